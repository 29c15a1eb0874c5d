"""Chunks on a Dask cluster: an existing one by address, or one of this machine's own processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from functools import lru_cache
from typing import Any

from hwmodel.spec.errors import InputError, shortened
from hwmodel.sweep.chunks import Pricer, Reduced, pricer
from hwmodel.sweep.interval import Fitted
from hwmodel.sweep.space import Space
from hwmodel.sweep.store import csv_bytes, parquet_bytes

RETRIES = 20
"""How often a chunk is tried again when the worker that has it is lost."""
_WRITERS = {"": None, ".csv": csv_bytes, ".parquet": parquet_bytes}


class _Held:
    """A space, known by its text: a worker packs it once."""

    def __init__(self, space: Space, intervals: dict[int, Fitted]) -> None:
        self.space, self.intervals = space, intervals

    def __hash__(self) -> int:
        return hash(self.space.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.space.text == self.space.text


@lru_cache(maxsize=2)
def _pricer(held: _Held) -> Pricer:
    return pricer(held.space, intervals=held.intervals)


def work(held: _Held, index: int, suffix: str) -> Reduced:
    """Price a chunk on a worker."""
    return _pricer(held).reduced(index, _WRITERS[suffix])


def chunks(made: Pricer, suffix: str, first: int, last: int, address: str, jobs: int) -> Generator[Reduced]:
    """Results of chunks `first` to `last`, in order.

    Raises
    ------
    InputError
        When Dask is not installed, or no scheduler answers at the address.
    """
    try:
        import distributed  # noqa: PLC0415  an extra
    except ImportError:
        raise InputError("--dask needs Dask, which is not installed: pip install 'hwmodel[distributed]'") from None
    made_by: Any = distributed  # its calls are untyped
    cluster: Any = None
    try:
        if address == "local":
            cluster = made_by.LocalCluster(n_workers=jobs, threads_per_worker=1, dashboard_address=None)
        client = made_by.Client(cluster or address, timeout=10)
    except (OSError, ValueError) as error:
        raise InputError(f"no Dask scheduler answers at {shortened(address)}: {shortened(str(error), 120)}") from None
    try:
        yield from _ordered(client, made, suffix, first, last)
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


def _ordered(client: Any, made: Pricer, suffix: str, first: int, last: int) -> Generator[Reduced]:
    held = _Held(made.space, made.intervals)  # sent with every chunk: what is scattered is lost with the worker that has it
    waiting: deque[Any] = deque()
    for index in range(first, last):
        waiting.append(client.submit(work, held, index, suffix, pure=False, retries=RETRIES))
        most = 3 * max(1, sum(client.nthreads().values()))
        while len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
