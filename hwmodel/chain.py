"""Programs whose layers are chains of blocks: packed for the walk of micro-batches (`hwmodel.kernels.tokens`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from hwmodel.kernels.schedule import INPUT
from hwmodel.kernels.tokens import N_STATE, Way, steady
from hwmodel.timeline import MANY_ROUNDS, ROUNDS, Program
from hwmodel.timing import Array, Ints

Visit = tuple[int, tuple[int, ...], int, int, int]
"""Lane of a stage, blocks one behind the other, and run, layer of the run and layers of the step before it starts."""


@dataclass(frozen=True)
class Chain:
    """A program as blocks one behind the other."""

    first: Ints
    """First block of each segment and their number, shape (segments + 1,)."""
    lane: Ints
    """Of each block."""
    segment: Ints
    stage: Ints
    count: Ints
    """Of each run of equal layers; `count` is how many."""
    blocks: Ints
    """First task of each block and their number, shape (blocks + 1,)."""
    lanes: int
    way: Way
    """What the walk takes."""

    def seconds(self, durations: Array) -> Array:
        """Duration (s) of every block from those of the tasks; shape (..., tasks) to (..., blocks)."""
        return np.add.reduceat(durations, self.blocks[:-1], axis=-1)

    def times(self, durations: Array, batches: int) -> tuple[float, float]:
        """(makespan, period) in s at one point; the same as `timeline.periods`. durations : (tasks,) s."""
        kinds = len(self.way.first) - 1
        found = steady(
            batches, self.way, self.seconds(durations), ROUNDS, np.zeros(kinds), np.zeros(kinds, dtype=np.int64),
            np.zeros((4, N_STATE, batches), dtype=np.int64), np.zeros((4, batches)), np.zeros((4, self.way.places)),
            np.zeros(MANY_ROUNDS),
        )  # fmt: skip
        return float(found[0]), float(found[1])


def _runs(order: Program) -> list[tuple[tuple[int, int], int]]:
    """((segment, stage), how many layers) of one step."""
    return [(key, len(list(group))) for key, group in groupby(zip(order.segment.tolist(), order.stage.tolist(), strict=True))]


def unchained(order: Program) -> Chain:
    """A program with every task a block of its own: what sums over lanes are made of, not to be walked."""
    runs = _runs(order)
    return _chain(order, runs, order.tasks, list(range(len(order.lane))), None)


def chain(order: Program) -> Chain | None:
    """The chain that a program is; None where blocks run side by side, or weights are fetched ahead."""
    runs = _runs(order)
    cuts: dict[int, list[int]] = {}
    edge, inner = [], []
    for position, ((segment, stage), count) in enumerate(runs):
        before, at = runs[position - 1][0]
        edge.append(_goes_on(order, before, segment) and at == stage)
        inner.append(_goes_on(order, segment, segment))
        for goes_on in {edge[-1], *([inner[-1]] if count > 1 else [])} | ({False} if position == 0 else set()):
            cut = _blocks(order, segment, goes_on)
            if cut is None or cuts.setdefault(segment, cut) != cut:
                return None
    first, blocks = [0], list[int]()
    for segment in range(len(order.tasks) - 1):
        blocks += cuts.get(segment, [int(order.tasks[segment])])
        first.append(len(blocks))
    return _chain(order, runs, np.array(first), blocks, (inner, edge))


def _chain(
    order: Program, runs: list[tuple[tuple[int, int], int]], first: Ints, blocks: list[int],
    goes_on: tuple[list[bool], list[bool]] | None,
) -> Chain:  # fmt: skip
    """A chain from its blocks; goes_on : whether a layer goes on in the block of the one below, in runs and at their edges."""
    keys = np.array([key for key, _ in runs])
    segment, stage, count = keys[:, 0].copy(), keys[:, 1].copy(), np.array([many for _, many in runs])
    lane, lanes = order.lane[np.array(blocks)], len(order.lanes)
    visits = _visits(first, lane, segment, stage, count, lanes, *goes_on) if goes_on else []
    joined = bool(goes_on and goes_on[1][0]) and len(visits) > 1
    way = _way(visits, joined, first, _own(first, lane), segment, count, lanes * (1 + int(stage.max())))
    return Chain(first, lane, segment, stage, count, np.array([*blocks, len(order.lane)]), lanes, way)


def _visits(
    first: Ints, lane: Ints, segment: Ints, stage: Ints, count: Ints, lanes: int, inner: list[bool], edge: list[bool]
) -> list[Visit]:
    """Every uninterrupted visit of a micro-batch to a lane in one step."""
    found: list[Visit] = []
    done = 0
    for run, of in enumerate(segment.tolist()):
        for layer in range(count[run]):
            for block in range(first[of], first[of + 1]):
                goes_on = block == first[of] and found and (inner[run] if layer else run > 0 and edge[run])
                if goes_on:
                    found[-1] = (found[-1][0], (*found[-1][1], block), *found[-1][2:])
                else:
                    found.append((int(stage[run]) * lanes + int(lane[block]), (block,), run, layer, done))
            done += 1
    return found


def _way(visits: list[Visit], joined: bool, first: Ints, own: Ints, segment: Ints, count: Ints, places: int) -> Way:
    """The visits as arrays; the last is the end of a step where it is joined to the first."""
    layers, last = int(count.sum()), visits[-1][1] if joined else ()
    kinds = list(dict.fromkeys(visit[1] for visit in (visits[:-1] if joined else visits)))
    of = [*kinds, last]
    starts = np.zeros(len(own), dtype=np.int64)
    starts[first[:-1]] = 1
    times = np.zeros(len(own))
    for run, number in enumerate(segment.tolist()):
        times[first[number] : first[number + 1]] += count[run]
    row = [
        (place, kinds.index(blocks), run if v else -1, layer, done if v or not joined else visits[-1][4] - layers)
        for v, (place, blocks, run, layer, done) in enumerate(visits[:-1] if joined else visits)
    ]  # fmt: skip
    place, kind, run_of, layer_of, before = np.array(row, dtype=np.int64).reshape(-1, 5).T.copy()
    per = [sum(1 for visit in visits if visit[2] == run and visit[3] == min(1, count[run] - 1)) for run in range(len(count))]
    lone = [kinds.index((block,)) if own[block] and (block,) in kinds else -1 for block in range(len(own))]
    return Way(
        place, kind, run_of, layer_of, before, count.astype(np.int64), np.array(per, dtype=np.int64),
        np.cumsum([0, *(len(blocks) for blocks in of)]), np.array([block for blocks in of for block in blocks], dtype=np.int64),
        np.array(lone, dtype=np.int64), starts, times, layers, int(joined), int(len({visit[0] for visit in visits}) == 1),
        places,
    )  # fmt: skip


def _own(first: Ints, lane: Ints) -> Ints:
    """1 for blocks inside a layer whose lane serves no other block of any segment."""
    found = np.zeros(len(lane), dtype=np.int64)
    for start, end in pairwise(first.tolist()):
        for k in range(start + 1, end - 1):
            found[k] = int((lane == lane[k]).sum() == 1)
    return found


def _goes_on(order: Program, lower: int, upper: int) -> bool:
    """Whether a layer starts on the lane on which the layer below it ends."""
    return bool(order.lane[order.tasks[lower + 1] - 1] == order.lane[order.tasks[upper]])


def _blocks(order: Program, segment: int, goes_on: bool) -> list[int] | None:
    """First task of each block of a layer, cut as `kernels.schedule.cut_blocks` does; None where they are no chain."""
    start, end = order.tasks[segment], order.tasks[segment + 1]
    found = [int(start)]
    for task in range(start, end):
        sources = order.input[order.inputs[task] : order.inputs[task + 1]].tolist()
        if any(source < INPUT for source in sources):
            return None
        if task == start:
            if sources != [INPUT]:
                return None
            continue
        inside = [source >= found[-1] or (source == INPUT and goes_on and len(found) == 1) for source in sources]
        if order.lane[task] == order.lane[task - 1] and all(inside):
            continue
        if task - 1 not in sources:  # it may start before the block behind it ends
            return None
        found.append(task)
    return found
