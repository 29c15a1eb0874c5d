"""Programs whose layers are chains of blocks: packed for the walk of micro-batches (`hwmodel.kernels.tokens`)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from hwmodel.kernels.schedule import INPUT
from hwmodel.kernels.tokens import N_STATE, steady
from hwmodel.timeline import MANY_ROUNDS, ROUNDS, Program
from hwmodel.timing import Array, Ints


@dataclass(frozen=True)
class Chain:
    """A program as blocks one behind the other; arrays as `hwmodel.kernels.tokens` describes them."""

    first: Ints
    lane: Ints
    segment: Ints
    stage: Ints
    count: Ints
    inner: Ints
    edge: Ints
    own: Ints
    blocks: Ints
    """First task of each block and their number, shape (blocks + 1,)."""
    lanes: int
    alone: bool
    """Whether all blocks are on one lane of one stage."""

    def seconds(self, durations: Array) -> Array:
        """Duration (s) of every block from those of the tasks; shape (..., tasks) to (..., blocks)."""
        return np.add.reduceat(durations, self.blocks[:-1], axis=-1)

    def times(self, durations: Array, batches: int) -> tuple[float, float]:
        """(makespan, period) in s at one point; the same as `timeline.periods`. durations : (tasks,) s."""
        found = steady(
            batches, int(self.alone), self.lanes, self.first, self.lane, self.segment, self.stage, self.count, self.inner,
            self.edge, self.own, self.seconds(durations), ROUNDS,
            np.zeros((4, batches, N_STATE), dtype=np.int64), np.zeros((4, batches)),
            np.zeros((4, self.lanes * (1 + int(self.stage.max())))), np.zeros(len(self.lane), dtype=np.int64),
            np.zeros(MANY_ROUNDS),
        )  # fmt: skip
        return float(found[0]), float(found[1])


def _runs(order: Program) -> list[tuple[tuple[int, int], int]]:
    """((segment, stage), how many layers) of one step."""
    return [(key, len(list(group))) for key, group in groupby(zip(order.segment.tolist(), order.stage.tolist(), strict=True))]


def unchained(order: Program) -> Chain:
    """A program with every task a block of its own: what sums over lanes are made of, not to be walked."""
    runs = _runs(order)
    keys = np.array([key for key, _ in runs])
    none = np.zeros(len(runs), dtype=np.int64)
    return Chain(
        order.tasks, order.lane, keys[:, 0].copy(), keys[:, 1].copy(), np.array([count for _, count in runs]), none, none,
        np.zeros(len(order.lane), dtype=np.int64), np.arange(len(order.lane) + 1), len(order.lanes), False,
    )  # fmt: skip


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
    keys = np.array([key for key, _ in runs])
    lane = order.lane[np.array(blocks)]
    return Chain(
        np.array(first), lane, keys[:, 0].copy(), keys[:, 1].copy(), np.array([count for _, count in runs]),
        np.array(inner, dtype=np.int64), np.array(edge, dtype=np.int64),
        _own(np.array(first), lane), np.array([*blocks, len(order.lane)]), len(order.lanes),
        len({(stage, order.lane[task]) for segment, stage in keys for task in range(*order.tasks[segment : segment + 2])}) == 1,
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
