"""From durations to a timeline: start, finish and lane of every op, the period of a step, what each pool waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from hwmodel.graph import Op, OpGraph
from hwmodel.kernels import columns as c
from hwmodel.kernels.schedule import INPUT, PREVIOUS, exact
from hwmodel.timing import Array, Ints, OpTable

ROUNDS = 3
"""Steps run one behind the other until the period is steady, as a rule."""
MANY_ROUNDS = 11
"""Where it is not (it alternates, say), the mean period from ROUNDS to here."""


Layers = tuple[Ints, Ints]
"""(segment, stage) of a list of layers."""


@dataclass(frozen=True)
class Cut:
    """A program with its runs of equal layers cut short."""

    whole: Layers
    short: Layers
    longer: tuple[tuple[int, int, Layers, Layers], ...]
    """For each run that was cut: its segment, layers left out, and the short program with one and with two more of them."""
    together: Layers
    """The short program with one more of every run that was cut."""


@dataclass(frozen=True)
class Program:
    """The order of work, packed for the scheduling kernel."""

    segment: Ints
    """Segment of each layer of a step, what stands before and behind the layers included."""
    stage: Ints
    tasks: Ints
    lane: Ints
    inputs: Ints
    input: Ints
    follow: Ints
    after: Ints
    order: Ints
    """Position in the op table of each task."""
    repeats: Array
    """Executions of each task per layer."""
    lanes: tuple[str, ...]
    batches: int
    stages: int

    @cached_property
    def _cuts(self) -> dict[int, Cut]:
        return {}

    def cut(self, rounds: int) -> Cut:
        """The layers of `rounds` steps, whole and cut short."""
        if rounds not in self._cuts:
            self._cuts[rounds] = _cut(self, rounds)
        return self._cuts[rounds]

    @cached_property
    def ends_whole(self) -> bool:
        """Whether nothing of a step is left to do when its last op ends, and nothing of the next one starts before."""
        read = np.diff(self.follow) > 0
        read[self.tasks[1:] - 1] = True
        return bool(read.all()) and PREVIOUS not in self.input

    def place(self, layer: int) -> int:
        """Index of a layer's first op among all of a micro-batch."""
        widths = np.diff(self.tasks)[self.segment[:layer]]
        return int(widths.sum())


@dataclass(frozen=True)
class Event:
    """One op of one layer and micro-batch."""

    op: Op
    layer: int
    batch: int
    stage: int
    lane: str
    start_s: float
    finish_s: float


@dataclass(frozen=True)
class Timeline:
    """One step at one point."""

    makespan_s: float
    """From the start of an isolated step to its end, all micro-batches."""
    period_s: float
    """Between two steps of the same sequence in steady state."""
    program: Program
    start_s: Array
    finish_s: Array
    """(micro-batches, ops of all layers)."""
    ops: tuple[Op, ...]

    def events(self) -> Iterator[Event]:
        """Every op in program order."""
        p = self.program
        base = 0
        for layer, segment in enumerate(p.segment):
            first, last = p.tasks[segment], p.tasks[segment + 1]
            for batch in range(p.batches):
                for task in range(first, last):
                    place = base + task - first
                    yield Event(
                        self.ops[p.order[task]], layer, batch, int(p.stage[layer]), p.lanes[p.lane[task]],
                        float(self.start_s[batch, place]), float(self.finish_s[batch, place]),
                    )  # fmt: skip
            base += last - first


def _cut(order: Program, rounds: int) -> Cut:
    runs = [(key, len(list(group))) for key, group in groupby(zip(order.segment.tolist(), order.stage.tolist(), strict=True))]
    # which of several stages is the bottleneck depends on the layers that each has: they are scheduled whole
    short = [count if order.stages > 1 else min(count, order.batches + 3) for _, count in runs]

    def layers(counts: list[int]) -> Layers:
        return tuple(np.tile(np.repeat([key[i] for key, _ in runs], counts), rounds) for i in (0, 1))  # type: ignore[return-value]

    longer, every = list[tuple[int, int, Layers, Layers]](), list(short)
    for position, ((segment, _), count) in enumerate(runs):
        if count > short[position]:
            more = [layers([n + (extra if i == position else 0) for i, n in enumerate(short)]) for extra in (1, 2)]
            longer.append((segment, count - short[position], more[0], more[1]))
            every[position] += 1
    return Cut(layers([count for _, count in runs]), layers(short), tuple(longer), layers(every))


def lane_of(op: Op, overlap: bool = False) -> str:
    """The resource an op occupies: the chips of a pool, or the way between two pools.

    Collectives hold their chips, unless the plan overlaps them with compute (`micro_batch`): then the links are a lane.
    """
    if op.kind == "load":
        return f"load:{op.way}"
    if op.kind == "transfer":
        return op.lane or op.way
    if op.note == "p2p":  # between pipeline stages: the sender goes on with the next micro-batch
        return f"{op.pool}.hop"
    return f"{op.pool}.link" if op.kind == "collective" and overlap else op.pool


def program(graph: OpGraph, table: OpTable, batches: int) -> Program:
    """Pack the order of work of a placed graph; `batches` micro-batches pass it."""
    lanes = tuple(dict.fromkeys(lane_of(op, graph.overlap) for op in table.ops))
    place = {name: index for index, name in enumerate(lanes)}
    tasks, order, lane = [0], list[int](), list[int]()
    repeats: list[float] = []
    sources: list[list[int]] = []
    known: dict[str, int] = {}
    for segment in graph.segments:
        for op in table.ops:
            if op.segment != segment.name:
                continue
            known[op.name] = len(order)
            inside = [known[name] for name in graph.nx.predecessors(op.name) if graph.op(name).segment == segment.name]
            sources.append(inside or [PREVIOUS if op.note == "prefetch" else INPUT])
            order.append(table.index[op.name])
            lane.append(place[lane_of(op, graph.overlap)])
            repeats.append(op.repeats.value({}))
        tasks.append(len(order))
    readers: list[list[int]] = [[] for _ in order]
    for task, inside in enumerate(sources):
        for one in inside:
            if one >= 0:
                readers[one].append(task)
    segments, stages = _layers(graph)
    return Program(
        np.array(segments), np.array(stages), np.array(tasks), np.array(lane), *_ragged(sources), *_ragged(readers),
        np.array(order), np.array(repeats), lanes, batches, max(1, len(graph.stages)),
    )  # fmt: skip


def _ragged(rows: list[list[int]]) -> tuple[Ints, Ints]:
    """Rows of different length as (first index of each, all values)."""
    return np.cumsum([0, *(len(row) for row in rows)]), np.array([value for row in rows for value in row], dtype=np.int64)


def _layers(graph: OpGraph) -> tuple[list[int], list[int]]:
    """(segment, stage) of everything a step runs: embedding, layers from the bottom up, head, drafts."""
    names = [segment.name for segment in graph.segments]
    stages = graph.stages or (tuple(segment.count for segment in graph.segments),)
    layer_stage = [
        number for number, counts in enumerate(stages)
        for _ in range(sum(n for n, segment in zip(counts, graph.segments, strict=True) if segment.first >= 0))
    ]  # fmt: skip
    behind = [index for index, segment in enumerate(graph.segments) if segment.first < 0 and segment.name != "embedding"
              for _ in range(segment.count)]  # fmt: skip
    segments = [names.index("embedding"), *graph.sequence, *behind]
    return segments, [0, *layer_stage, *(len(stages) - 1 for _ in behind)]


def seconds(order: Program, priced: NDArray[np.float64]) -> Array:
    """Duration (s) of every task at one point; `priced` is (ops, N_OUT)."""
    return np.asarray(priced[order.order, c.TIME] * order.repeats)


def schedule(order: Program, table: OpTable, priced: Array) -> Timeline:
    """Schedule every op of one point exactly, and find the steady period."""
    durations = seconds(order, priced)
    end, start, finish = simulate(order, durations, order.segment, order.stage)
    return Timeline(end, period(order, durations), order, start, finish, table.ops)


def simulate(order: Program, durations: Array, segment: Ints, stage: Ints) -> tuple[float, Array, Array]:
    """(end, start, finish) in s of the given layers, every op of every micro-batch scheduled."""
    width = int(np.diff(order.tasks)[segment].sum())
    start = np.zeros((order.batches, width))
    finish = np.zeros_like(start)
    end = exact(
        segment, stage, order.tasks, order.lane, order.inputs, order.input, order.follow, order.after, durations, order.batches,
        len(order.lanes), order.stages, start, finish,
    )  # fmt: skip
    return float(end), start, finish


def periods(order: Program, durations: Array) -> tuple[float, float]:
    """(makespan, period) in s at one point; see `makespan` and `period`."""
    return makespan(order, durations), period(order, durations)


def makespan(order: Program, durations: Array) -> float:
    """End (s) of an isolated step at one point, by the closed form."""
    return _grown(order, durations, 1)


def period(order: Program, durations: Array) -> float:
    """Seconds between two steps of a sequence in steady state, by the closed form.

    One micro-batch over lanes that never overlap is a sum. Else the schedule grows by a constant for every further layer of
    a run once it is periodic (the eigenvalue of a max-plus linear system; Baccelli et al., Synchronization and Linearity,
    1992, section 3.7): runs are cut to a few layers, their growth is measured, and the rest is a product. A run that is not
    yet periodic when cut is scheduled whole, and so are runs that do not grow together by what each grows alone: two on lanes
    of their own may work side by side. Equal at one layer of each, growths add up for any numbers, as the longest of ways is
    convex in them.
    """
    if order.batches == 1 and order.ends_whole:  # the next step waits for this one
        return makespan(order, durations)
    ends = [_grown(order, durations, rounds) for rounds in range(ROUNDS - 2, ROUNDS + 1)]
    steady = abs(ends[2] - 2 * ends[1] + ends[0]) <= 1e-9 * ends[2]
    if steady:
        return ends[2] - ends[1]
    return (_grown(order, durations, MANY_ROUNDS) - ends[2]) / (MANY_ROUNDS - ROUNDS)


def _grown(order: Program, durations: Array, rounds: int) -> float:
    """End (s) of `rounds` steps one behind the other."""
    cut = order.cut(rounds)
    base = simulate(order, durations, *cut.short)[0]
    total = together = base
    for segment, left, one, two in cut.longer:
        first = simulate(order, durations, *one)[0]
        growth = first - base
        settled = abs(simulate(order, durations, *two)[0] - first - growth) <= 1e-9 * first
        # a lane that the short program does not fill yet may be the one that counts in the whole
        if left > 1 and not (settled and growth >= rounds * _least(order, durations, segment) * (1 - 1e-9)):
            return simulate(order, durations, *cut.whole)[0]
        total += growth * left
        together += growth
    alone = order.batches == 1 and order.ends_whole  # nothing runs beside anything of another layer
    if len(cut.longer) > 1 and not alone and abs(simulate(order, durations, *cut.together)[0] - together) > 1e-9 * together:
        return simulate(order, durations, *cut.whole)[0]
    return total


def _least(order: Program, durations: Array, segment: int) -> float:
    """Seconds that one more layer of a segment adds in the end, at the least: its busiest lane, all micro-batches."""
    tasks = slice(int(order.tasks[segment]), int(order.tasks[segment + 1]))
    return float(order.batches * np.bincount(order.lane[tasks], durations[tasks]).max())


def floors(order: Program, durations: Array) -> Array:
    """Lower bounds (s) of the period at many points.

    No lane does more than one thing at a time, no step starts before the one of the same sequence ends. Exact for one
    micro-batch whose lanes never overlap.

    durations : (points, tasks) s; the answer is (points,).
    """
    found = np.max([busy_s(order, durations, lane) for lane in order.lanes], axis=0)
    return np.asarray(np.maximum(found, _paths(order, durations) @ np.sum(_stages(order), axis=0)))


def busy_s(order: Program, durations: Array, lane: str) -> Array:
    """Time (s) that the busiest stage's lane works in a step, all micro-batches; durations : (points, tasks) s."""
    if lane not in order.lanes:
        return np.zeros(len(durations))
    where = np.repeat(np.arange(len(order.tasks) - 1), np.diff(order.tasks))
    own = order.lane == order.lanes.index(lane)
    each = [np.where(own, counts[where], 0) for counts in _stages(order)]
    return np.asarray(order.batches * np.max([durations @ one for one in each], axis=0))


def _stages(order: Program) -> list[Ints]:
    """How often every segment runs, stage by stage."""
    return [np.bincount(order.segment[order.stage == stage], minlength=len(order.tasks) - 1) for stage in range(order.stages)]


def _paths(order: Program, durations: Array) -> Array:
    """Longest way (s) through one layer of every segment, from its input to its last op; (points, segments)."""
    done = np.zeros_like(durations)
    for task in range(durations.shape[1]):
        for source in order.input[order.inputs[task] : order.inputs[task + 1]]:
            done[:, task] = np.maximum(done[:, task], done[:, source] if source >= 0 else 0.0)
        if PREVIOUS not in order.input[order.inputs[task] : order.inputs[task + 1]]:  # what is fetched ahead may be hidden
            done[:, task] += durations[:, task]
    return done[:, order.tasks[1:] - 1]
