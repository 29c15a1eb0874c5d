"""Chunks on the threads of this machine: kernels release the interpreter's lock; results come back in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor

from hwmodel.sweep.chunks import Reduced

Work = Callable[[int], Reduced]


def chunks(work: Work, first: int, last: int, jobs: int) -> Generator[Reduced]:
    """Results of chunks `first` to `last`, in order; at most two for every job wait, whatever their number."""
    if jobs == 1:
        yield from map(work, range(first, last))
        return
    waiting: deque[Future[Reduced]] = deque()
    pool = ThreadPoolExecutor(jobs)
    try:
        for index in range(first, last):
            waiting.append(pool.submit(work, index))
            if len(waiting) >= 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
