"""A scenario's plan packed for one phase, and its steps priced exactly at many points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwmodel.graph import Op
from hwmodel.kernels import columns as c
from hwmodel.kernels.schedule import PREVIOUS
from hwmodel.laid import Laid, OnLaid, lay
from hwmodel.scenario import Scenario
from hwmodel.served.around import around
from hwmodel.served.stack import Stack
from hwmodel.spec.errors import InputError
from hwmodel.timeline import Program, period, seconds
from hwmodel.timing import OpTable, device_array, price
from hwmodel.workload import Workload

Array = NDArray[np.float64]
AT_ONCE = 20_000
"""Points priced in one call: memory stays small."""


@dataclass(frozen=True)
class Priced(OnLaid):
    """A plan placed and packed for a phase.

    Points are (n, 5): decoding sequences, their mean context, prompts, new tokens and cached tokens of each prompt.
    """

    scenario: Scenario
    phase: str
    stack: Stack | None
    laid: Laid
    device: Array
    host_s: float
    times: Array
    """How often each op runs in a step."""
    added: Array
    """Seconds that the stack adds to an execution of each op."""
    part: NDArray[np.str_]
    """What each op's time depends on: decode, prefill, head (sequences), linear (tokens of a rank), shared (all tokens)."""

    @property
    def additive(self) -> bool:
        """Whether a step is the sum of its ops."""
        order = self.order
        return order.batches == 1 and order.stages == 1 and order.ends_whole and len(order.lanes) == 1

    @property
    def order(self) -> Program:
        """The order of work of a whole step, as many micro-batches as there can be."""
        return self.laid.order(max(self.laid.most, 1))

    @property
    def most(self) -> int:
        """Micro-batches at most."""
        return self.laid.most

    def symbols(self, points: Array) -> Array:
        """Points as the table wants them, those of one micro-batch: (n, symbols)."""
        found = np.zeros((len(points), len(self.table.symbols)))
        known = ("decode_sequences", "decode_context", "prefill_sequences", "prefill_new", "prefill_cached")
        values = dict(zip(known, points.T, strict=True))
        for i, name in enumerate(self.table.symbols):
            found[:, i] = values.get(name, 1.0 if name == "decode_queries" else self.graph.degrees.get(name, 0))
        return found

    def _row(self, point: Array) -> Array:
        """One whole step as the table wants it, cut into micro-batches as `Workload` does."""
        decoding, context, prompts, new, cached = (int(value) for value in point)
        what = Workload(
            phase="mixed" if decoding and prompts else "decode" if decoding else "prefill", batch=max(1, decoding or prompts),
            context=max(1, context), new_tokens=max(1, new), cached=cached, prefill_batch=max(1, prompts),
        )  # fmt: skip
        row: Array = self.laid.point(what, self.laid.parts(what))[0]
        return row

    def _order_of(self, point: Array) -> Program:
        """The order of work when a batch fills fewer micro-batches than the plan has."""
        return self.laid.order(self.laid.parts(Workload(phase="decode", batch=max(1, int(point[0] or point[2])), context=1)))

    def exact(self, points: Array) -> Array:
        """Seconds of whole steps: every op priced, with what the stack adds to it, and the step scheduled in steady state."""
        found = []
        for start in range(0, len(points), AT_ONCE):
            some = points[start : start + AT_ONCE]
            asked = np.array([self._row(point) for point in some]) if self.most > 1 else self.symbols(some)
            rows = price(self.table, asked, self.device)
            if self.additive:  # what neighbours hide of one another may be more than an op takes: only the sum counts
                steps = rows[:, :, c.TIME] @ self.times + self.times @ self.added
            else:
                rows[:, :, c.TIME] = np.maximum(0.0, rows[:, :, c.TIME] + self.added)
                orders = [self._order_of(point) for point in some]
                steps = np.array([period(order, seconds(order, row)) for order, row in zip(orders, rows, strict=True)])
            found.append(self.host_s + steps)
        return np.concatenate(found)

    def sums(self, points: Array, weights: Array) -> Array:
        """Seconds of ops at points of one micro-batch, summed with weights (sums, ops), what the stack adds included.

        Returns
        -------
        (points, sums)
        """
        found = []
        for start in range(0, len(points), AT_ONCE):
            rows = price(self.table, self.symbols(points[start : start + AT_ONCE]), self.device)[:, :, c.TIME] + self.added
            found.append((rows if self.additive else np.maximum(0.0, rows)) @ weights.T)
        return np.concatenate(found)

    @cached_property
    def way(self) -> Array:
        """How often each op runs in a step as far as the next one waits for it, (ops,): what is fetched ahead is hidden."""
        order, found = self.order, self.times.copy()
        for task in range(len(order.order)):
            if PREVIOUS in order.input[order.inputs[task] : order.inputs[task + 1]]:
                found[order.order[task]] = 0.0
        return found

    @cached_property
    def lanes(self) -> Array:
        """How often each op runs in a step on every lane of every stage, (lanes, ops); none when a step is a sum."""
        order = self.order
        found = np.zeros((order.stages, len(order.lanes), len(self.table.ops)))
        for segment, stage in zip(order.segment, order.stage, strict=True):
            for task in range(order.tasks[segment], order.tasks[segment + 1]):
                found[stage, order.lane[task], order.order[task]] += order.repeats[task]
        rows = found.reshape(-1, len(self.table.ops))
        return rows[rows.any(axis=1)] if not self.additive else np.zeros((0, len(self.table.ops)))


def priced(scenario: Scenario, phase: str, stack: Stack | None) -> Priced:
    """Place and pack a scenario's plan for a phase.

    Raises
    ------
    InputError
        When it cannot be priced; and for speculative decoding, which serving does not model.
    """
    work = scenario.workload
    if work.speculative:
        raise InputError("serving with speculative decoding is not modelled; leave out workload.speculative")
    update = {"phase": phase, "context": max(1, work.context), "new_tokens": max(1, work.new_tokens)}
    laid = lay(replace(scenario, workload=work.model_copy(update=update)))
    graph, table = laid.graph, laid.table
    host = 0.0 if stack else scenario.cluster.host_s  # what was fitted of a stack holds the host's work
    part = np.array([_part(op) for op in table.ops])
    return Priced(
        scenario,
        phase,
        stack,
        laid,
        device_array(table, scenario.cluster),
        host,
        _executions(laid.order(max(laid.most, 1)), table),
        around(graph, table, scenario.cluster, stack) if stack else np.zeros(len(table.ops)),
        part,
    )


def _executions(order: Program, table: OpTable) -> Array:
    counts = np.zeros(len(table.ops))
    for segment, times in enumerate(np.bincount(order.segment, minlength=len(order.tasks) - 1)):
        for task in range(order.tasks[segment], order.tasks[segment + 1]):
            counts[order.order[task]] += times * order.repeats[task]
    return counts


def _part(op: Op) -> str:
    used = frozenset(symbol for dim in op.dims.values() for symbol in dim.symbols)
    if op.phase in ("decode", "prefill"):
        return op.phase
    if not used & {"prefill_new", "prefill_cached"}:
        if "prefill_sequences" in used or op.segment == "head":
            return "head"
        return "decode" if "decode_sequences" in used else "linear"
    if not used & {"decode_sequences"}:
        return "prefill"
    return "linear" if any(symbol.endswith(".dp") for symbol in used) else "shared"
