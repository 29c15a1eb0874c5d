"""From durations to a timeline: start, finish and lane of every op, the period of a step, what each pool waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.graph import Op, OpGraph
from hwmodel.kernels import columns as c
from hwmodel.kernels.schedule import INPUT, PREVIOUS, closed, exact
from hwmodel.timing import Array, Ints, OpTable

ROUNDS = 3
"""Steps run one behind the other until the period is steady."""


@dataclass(frozen=True)
class Program:
    """The order of work, packed for the scheduling kernels."""

    segment: Ints
    count: Ints
    stage: Ints
    tasks: Ints
    lane: Ints
    inputs: Ints
    input: Ints
    order: Ints
    """Position in the op table of each task."""
    repeats: Array
    """Executions of each task per layer."""
    lanes: tuple[str, ...]
    batches: int
    stages: int


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
    """(layers, micro-batches, tasks)."""
    ops: tuple[Op, ...]

    def events(self) -> Iterator[Event]:
        """Every op in program order."""
        p = self.program
        layer = 0
        for run in range(len(p.segment)):
            for _ in range(p.count[run]):
                for batch in range(p.batches):
                    for task in range(p.tasks[p.segment[run]], p.tasks[p.segment[run] + 1]):
                        yield Event(
                            self.ops[p.order[task]], layer, batch, int(p.stage[run]), p.lanes[p.lane[task]],
                            float(self.start_s[layer, batch, task]), float(self.finish_s[layer, batch, task]),
                        )  # fmt: skip
                layer += 1


def lane_of(op: Op) -> str:
    """The resource an op occupies: a pool's compute, a pool's links, or the way between two pools."""
    if op.kind in ("transfer", "load"):
        return f"load:{op.way}" if op.kind == "load" else op.way
    return f"{op.pool}.link" if op.kind == "collective" else op.pool


def program(graph: OpGraph, table: OpTable, batches: int) -> Program:
    """Pack the order of work of a placed graph; `batches` micro-batches pass it."""
    lanes = tuple(dict.fromkeys(lane_of(op) for op in table.ops))
    place = {name: index for index, name in enumerate(lanes)}
    tasks, order, lane, inputs, input_, repeats = [0], [], [], [0], [], []
    known: dict[str, int] = {}
    for segment in graph.segments:
        for op in table.ops:
            if op.segment != segment.name:
                continue
            known[op.name] = len(order)
            sources = [known[name] for name in graph.nx.predecessors(op.name) if graph.op(name).segment == segment.name]
            input_ += sources or [PREVIOUS if op.note == "prefetch" else INPUT]
            inputs.append(len(input_))
            order.append(table.index[op.name])
            lane.append(place[lane_of(op)])
            repeats.append(op.repeats.value({}))
        tasks.append(len(order))
    runs = _runs(graph)
    return Program(
        *(np.array(part, dtype=np.int64) for part in zip(*runs, strict=True)),
        np.array(tasks), np.array(lane), np.array(inputs), np.array(input_, dtype=np.int64), np.array(order), np.array(repeats),
        lanes, batches, max(1, len(graph.stages)),
    )  # fmt: skip


def _runs(graph: OpGraph) -> list[tuple[int, int, int]]:
    """(segment, count, stage) in program order: embedding, layers from the bottom up, head, drafts."""
    names = [segment.name for segment in graph.segments]
    stages = graph.stages or (tuple(segment.count for segment in graph.segments),)
    sequence = iter(graph.sequence)
    runs: list[tuple[int, int, int]] = []
    for number, counts in enumerate(stages):
        layers = sum(n for n, segment in zip(counts, graph.segments, strict=True) if segment.first >= 0)
        steps = [names.index("embedding")] if number == 0 else []
        steps += [next(sequence) for _ in range(layers)]
        if number == len(stages) - 1:
            steps += [index for index, segment in enumerate(graph.segments) if segment.first < 0 and segment.name != "embedding"
                      for _ in range(segment.count)]  # fmt: skip
        for index in steps:
            if runs and runs[-1][0] == index and runs[-1][2] == number:
                runs[-1] = (index, runs[-1][1] + 1, number)
            else:
                runs.append((index, 1, number))
    return runs


def seconds(order: Program, priced: NDArray[np.float64]) -> Array:
    """Duration (s) of every task at one point; `priced` is (ops, N_OUT)."""
    return np.asarray(priced[order.order, c.TIME] * order.repeats)


def schedule(order: Program, table: OpTable, priced: Array) -> Timeline:
    """Schedule every op of one point exactly, and find the steady period."""
    durations = seconds(order, priced)
    layers = int(order.count.sum())
    start = np.zeros((layers, order.batches, len(durations)))
    finish = np.zeros_like(start)
    makespan = exact(
        order.segment, order.count, order.stage, order.tasks, order.lane, order.inputs, order.input, durations,
        order.batches, len(order.lanes), order.stages, start, finish,
    )  # fmt: skip
    return Timeline(makespan, periods(order, durations)[1], order, start, finish, table.ops)


def periods(order: Program, durations: Array) -> tuple[float, float]:
    """(makespan, period) in s by the closed form, for one point's durations."""
    out = np.zeros(2)
    closed(
        order.segment, order.count, order.stage, order.tasks, order.lane, order.inputs, order.input, durations,
        order.batches, len(order.lanes), order.stages, ROUNDS, out,
    )  # fmt: skip
    return float(out[0]), float(out[1])
