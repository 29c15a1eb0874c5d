"""A whole sweep from its file, or from Python, to its answer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep import dask, local
from hwmodel.sweep.chunks import CHUNK, Pricer, Reduced, Table, merged, order_of, pricer
from hwmodel.sweep.space import Space, space_from
from hwmodel.sweep.store import Store, header

MOST_HELD = 20_000_000
"""Points whose columns `sweep` returns at once: 10 GB."""
Words = tuple[NDArray[np.int64], tuple[str, ...]]
Progress = Callable[[int, int, float], None]
"""Called with points done, points in all, and seconds."""


@dataclass
class Answer:
    """What a sweep found."""

    name: str
    points: int
    evaluated: int = 0
    feasible: int = 0
    """Points that can run and meet every constraint."""
    seconds: float = 0.0
    columns: tuple[str, ...] = ()
    objectives: Mapping[str, str] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    """How many points each reason took out, the most frequent first."""
    pareto: list[dict[str, Any]] = field(default_factory=list)
    top: list[dict[str, Any]] = field(default_factory=list)
    interval_error: float | None = None
    """time_low_s and time_high_s are fitted: 95 % of them are off by at most this share of the time; None without them."""
    stopped: bool = False
    """Ended before its end."""

    @property
    def points_per_s(self) -> float:
        """Points priced a second, all threads together."""
        return self.evaluated / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel sweep --json`` prints it."""
        return {
            "sweep": self.name, "points": self.points, "evaluated": self.evaluated, "feasible": self.feasible,
            "seconds": self.seconds, "points_per_s": self.points_per_s, "columns": list(self.columns),
            "objectives": dict(self.objectives), "pareto": self.pareto, "top": self.top, "rejected": self.rejected,
            "interval_error": self.interval_error, "stopped": self.stopped,
        }  # fmt: skip


class _Sum:
    """The reduction of chunks that come in order."""

    def __init__(self, answer: Answer, top: int) -> None:
        self.answer, self.top = answer, top
        self.front: list[tuple[tuple[float, ...], dict[str, Any]]] = []
        self.best: list[tuple[float, dict[str, Any]]] = []

    def add(self, part: Reduced) -> None:
        answer = self.answer
        answer.evaluated += part.evaluated
        answer.feasible += part.feasible
        for reason, count in part.rejected.items():
            answer.rejected[reason] = answer.rejected.get(reason, 0) + count
        self.front = merged([*self.front, *part.pareto])
        self.best = sorted([*self.best, *part.top], key=lambda item: (-item[0], item[1]["point"]))[: self.top]

    def state(self) -> dict[str, Any]:
        return {
            "evaluated": self.answer.evaluated, "feasible": self.answer.feasible, "rejected": self.answer.rejected,
            "front": self.front, "best": self.best,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        if state:
            self.answer.evaluated, self.answer.feasible = state["evaluated"], state["feasible"]
            self.answer.rejected = dict(state["rejected"])
            self.front = [(tuple(values), row) for values, row in state["front"]]
            self.best = [(value, row) for value, row in state["best"]]

    def close(self) -> Answer:
        self.answer.pareto = [row for _, row in self.front]
        self.answer.top = [row for _, row in self.best]
        self.answer.rejected = dict(sorted(self.answer.rejected.items(), key=lambda item: (-item[1], item[0])))
        return self.answer


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
    answer = Answer(space.name, space.points, objectives=space.spec.objectives)
    errors = [one.error for one in made.intervals.values() if one.error == one.error]
    answer.interval_error = max(errors) if errors else None
    total = _Sum(answer, space.spec.top)
    if resume and out is None:
        raise InputError("--resume goes on with a file: give --out FILE")
    store = Store(out, made, resume=resume) if out is not None else None
    first = store.done if store else 0
    total.restore(store.state.get("summary") or {} if store else {})
    shape, _ = _empty(made)
    answer.columns = ("point", *order_of(shape), "feasible")
    chunks = -(-space.points // CHUNK)
    start, before = time.perf_counter(), answer.evaluated
    parts = _parts(made, store, first, chunks, address, jobs)
    try:
        for part in parts:
            total.add(part)
            if store is not None:
                store.add(part.index, part.text, total.state(), header(shape))
            if progress is not None:
                progress(min((part.index + 1) * CHUNK, space.points), space.points, time.perf_counter() - start)
        if store is not None:
            store.finish(total.state())
    except KeyboardInterrupt:
        answer.stopped = True
    finally:
        parts.close()
    answer.seconds = time.perf_counter() - start
    found = total.close()
    if first and answer.seconds:  # the rate is that of the points priced now
        answer.seconds *= answer.evaluated / max(1, answer.evaluated - before)
    return found


def _parts(made: Pricer, store: Store | None, first: int, last: int, address: str, jobs: int) -> Generator[Reduced]:
    if address:
        return dask.chunks(made, store.path.suffix if store else "", first, last, address, jobs)
    write = store.write if store else None
    return local.chunks(lambda index: made.reduced(index, write), first, last, jobs)


def _empty(made: Pricer) -> tuple[Table, dict[str, int]]:
    """A table without rows, for its columns."""
    space = made.space
    numbers = {path: np.zeros(0) for path, axis in space.axes.items() if axis.numeric}
    none: Words = (np.zeros(0, dtype=np.int64), ("",))
    words = {path: none for path, axis in space.axes.items() if not axis.numeric}
    numbers |= {name: np.zeros(0) for name in made.names}
    words |= dict.fromkeys((*made.words, "reason"), none)
    return Table(np.zeros(0, dtype=np.int64), numbers, words, np.zeros(0, dtype=bool)), {}


def sweep(
    scenario: str, axes: Mapping[str, Any], *, points: int = 0, seed: int = 0, where: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None, zipped: Sequence[Sequence[str]] = (), jobs: int = 1,
) -> Table:  # fmt: skip
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
    Table
        `numbers` and `words` by column, each (points,); SI units.

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


def sweep_of(document: Document, jobs: int = 1) -> Table:
    """Columns of all points of a sweep's document; see `sweep`."""
    space = space_from(document, "sweep")
    if space.points > MOST_HELD:
        raise InputError(f"{space.points:,} points do not fit in memory; at most {MOST_HELD:,}, or 'hwmodel sweep --out'")
    return whole(pricer(space, document), jobs)


def whole(made: Pricer, jobs: int = 1) -> Table:
    """Columns of all points of a space, those marked not feasible that fail a constraint."""
    chunks = range(-(-made.space.points // CHUNK))
    parts = [made.table(chunk)[0] for chunk in chunks] if jobs <= 1 else _threads(made, made.space, jobs)
    found = _stacked(parts, made)
    for constraint in made.constraints:
        np.logical_and(found.feasible, constraint.holds(found.numbers), out=found.feasible)
    return found


def _threads(made: Pricer, space: Space, jobs: int) -> list[Table]:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(jobs) as pool:
        return [table for table, _ in pool.map(made.table, range(-(-space.points // CHUNK)))]


def _stacked(parts: Sequence[Table], made: Pricer) -> Table:
    shape, _ = _empty(made)
    words = {}
    for name in shape.words:
        known: dict[str, int] = {}
        codes = []
        for part in parts:
            code, own = part.words[name]
            codes.append(np.array([*(known.setdefault(word, len(known)) for word in own), -1], dtype=np.int64)[code])
        words[name] = (np.concatenate(codes), tuple(known))
    return Table(
        np.concatenate([part.point for part in parts]),
        {name: np.concatenate([part.numbers[name] for part in parts]) for name in shape.numbers}, words,
        np.concatenate([part.feasible for part in parts]),
    )  # fmt: skip
