"""A whole sweep from its file, or from Python, to its answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep import dask, local
from hwmodel.sweep.answer import Answer, Swept, Total
from hwmodel.sweep.chunks import CHUNK, Pricer, Reduced, Table, Words, pricer
from hwmodel.sweep.interrupts import uninterrupted
from hwmodel.sweep.names import REASON
from hwmodel.sweep.space import Space, space_from
from hwmodel.sweep.store import Store, header

MOST_HELD = 20_000_000
"""Points whose columns `sweep` returns at once: 10 GB."""
Progress = Callable[[int, int, float], None]
"""Called with points done, points in all, and points a second of those priced now."""


def run_sweep(
    space: Space, document: Document | None = None, *, out: Path | None = None, jobs: int = 0, address: str = "",
    resume: bool = False, progress: Progress | None = None,
) -> Answer:  # fmt: skip
    """Price every point of a space, and keep the Pareto front and the best; a file with all of them where one is asked for.

    Parameters
    ----------
    jobs
        Threads (0: as many as the machine has), or processes of `address` "local".
    address
        Of a Dask scheduler; "local" starts one.

    Raises
    ------
    InputError
        For constraints, objectives, files and addresses that are no good.
    """
    made = pricer(space, document)
    jobs = jobs or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else jobs or os.cpu_count() or 1
    errors = [one.error for one in made.intervals.values() if one.error == one.error]
    if resume and out is None:
        raise InputError("--resume goes on with a file: give --out FILE")
    store = Store(out, made, resume=resume) if out is not None else None
    first = store.done if store else 0
    total = Total(space.spec.top, store.state.get("summary") or {} if store else {})
    shape = _empty(made)
    chunks = -(-space.points // CHUNK)
    start, before, stopped = time.perf_counter(), total.evaluated, False
    parts = _parts(made, store, first, chunks, address, jobs)
    try:
        for part in parts:
            with uninterrupted():
                total.add(part)
                if store is not None:
                    store.add(part.index, part.text, total.state(), header(shape))
            if progress is not None:
                points = min((part.index + 1) * CHUNK, space.points)
                progress(points, space.points, (points - first * CHUNK) / (time.perf_counter() - start))
        if store is not None:
            store.finish(total.state())
    except KeyboardInterrupt:
        stopped = True
    finally:
        parts.close()
    seconds = time.perf_counter() - start
    if first:  # as long as all points take at the rate of those priced now
        seconds *= total.evaluated / max(1, total.evaluated - before)
    return Answer(
        space.name, space.points, seconds=seconds, names=shape.names, stopped=stopped,
        objectives=space.spec.objectives, interval_error=max(errors) if errors else None, **total.found(),
    )  # fmt: skip


def _parts(made: Pricer, store: Store | None, first: int, last: int, address: str, jobs: int) -> Generator[Reduced]:
    if address:
        return dask.chunks(made, store.path.suffix if store else "", first, last, address, jobs)
    write = store.write if store else None
    return local.chunks(lambda index: made.reduced(index, write), first, last, jobs)


def _empty(made: Pricer) -> Table:
    """A table without rows, for its columns."""
    space = made.space
    numbers = {path: np.zeros(0) for path, axis in space.axes.items() if axis.numeric}
    none: Words = (np.zeros(0, dtype=np.int64), ("",))
    words = {path: none for path, axis in space.axes.items() if not axis.numeric}
    numbers |= {name: np.zeros(0) for name in made.names}
    words |= dict.fromkeys((*made.words, REASON), none)
    return Table(np.zeros(0, dtype=np.int64), numbers, words, np.zeros(0, dtype=bool))


def sweep(
    scenario: str, axes: Mapping[str, Any], *, points: int = 0, seed: int = 0, where: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None, zipped: Sequence[Sequence[str]] = (), jobs: int = 1,
) -> Swept:  # fmt: skip
    """Columns over axes from Python, as the file of a sweep has them.

    ``hw.sweep("h100_llama_70b_decode", {"workload.batch": [1, 8, 64], "workload.context": {"powers_of_two": [1024, 65536]}})``

    Parameters
    ----------
    points
        Draw so many points at random; 0: every combination.
    where
        Comparisons of columns; points that fail one are marked not feasible, or left out where an input fails.

    Returns
    -------
    Swept
        `numbers` and `words` by column, each (points,), SI units; `to_dict` and `columns` as plain data.

    Raises
    ------
    InputError
        Every problem of the axes and the scenario; more than MOST_HELD points.
    """
    value: dict[str, Any] = {
        "axes": dict(axes),
        "where": list(where),
        "set": dict(settings or {}),
        "zip": [list(z) for z in zipped],
    }
    if scenario:
        value["scenario"] = scenario
    if points:
        value["random"] = {"points": points, "seed": seed}
    return sweep_of(Document("sweep", value, {}, ()), jobs)


def sweep_of(document: Document, jobs: int = 1) -> Swept:
    """Columns of all points of a sweep's document; see `sweep`."""
    space = space_from(document, "sweep")
    if space.points > MOST_HELD:
        raise InputError(f"{space.points:,} points do not fit in memory; at most {MOST_HELD:,}, or 'hwmodel sweep --out'")
    return whole(pricer(space, document), jobs)


def whole(made: Pricer, jobs: int = 1) -> Swept:
    """Columns of all points of a space, those marked not feasible that fail a constraint."""
    chunks = range(-(-made.space.points // CHUNK))
    parts = [made.table(chunk)[0] for chunk in chunks] if jobs <= 1 else _threads(made, jobs)
    found = _stacked(parts, made)
    for constraint in made.constraints:
        np.logical_and(found.feasible, constraint.holds(found.numbers), out=found.feasible)
    return found


def _threads(made: Pricer, jobs: int) -> list[Table]:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(jobs) as pool:
        return [table for table, _ in pool.map(made.table, range(-(-made.space.points // CHUNK)))]


def _stacked(parts: Sequence[Table], made: Pricer) -> Swept:
    shape = _empty(made)
    words = {}
    for name in shape.words:
        known: dict[str, int] = {}
        codes = []
        for part in parts:
            code, own = part.words[name]
            codes.append(np.array([*(known.setdefault(word, len(known)) for word in own), -1], dtype=np.int64)[code])
        words[name] = (np.concatenate(codes), tuple(known))
    return Swept(
        np.concatenate([part.point for part in parts]),
        {name: np.concatenate([part.numbers[name] for part in parts]) for name in shape.numbers}, words,
        np.concatenate([part.feasible for part in parts]),
    )  # fmt: skip
