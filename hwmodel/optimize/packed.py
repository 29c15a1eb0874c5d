"""One plan, packed once and asked about many batches: bounds of a step's time, its exact time, what fits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.chain import chain
from hwmodel.economics import cost
from hwmodel.fit import largest
from hwmodel.graph import OpGraph
from hwmodel.kernels import columns as c
from hwmodel.memory import MemoryRow, memory, misfits
from hwmodel.optimize.space import Choice
from hwmodel.partition import partition
from hwmodel.scenario import Scenario
from hwmodel.timeline import Program, floors, periods, program
from hwmodel.timing import Array, OpTable, device_array, pack, points, price

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Packed:
    """A choice on its cluster, ready to be priced at any batch."""

    choice: Choice
    scenario: Scenario
    """With the choice's cluster and plan."""
    graph: OpGraph
    table: OpTable
    device: Array
    most: int
    """Sequences that fit."""
    reason: str
    """Why nothing fits or the plan cannot run; empty when it can."""
    usd_per_hour: float | None
    watts: float | None
    _programs: dict[int, Program] = field(default_factory=dict, repr=False, compare=False)

    @property
    def host_s(self) -> float:
        """Work of the host per step."""
        return max((float(pool.chip.execution.step_s or 0) for pool in self.scenario.cluster.pools), default=0.0)

    def floors(self, batches: Ints, parts: int) -> Array:
        """Lower bounds of the step's time (s) at every batch, cut into `parts` at most."""
        found = np.zeros(len(batches))
        for cut, where, order, durations in self._durations(batches, parts):
            found[where] = floors(order, durations)
            assert cut == order.batches
        return found + self.host_s

    def times(self, batches: Ints, parts: int) -> Array:
        """The step's time (s) at every batch, as `run` schedules it."""
        found = np.zeros(len(batches))
        whole = 0 if self.scenario.workload.phase == "prefill" else 1
        for cut, where, order, durations in self._durations(batches, parts):
            links = chain(order)  # micro-batches as tokens, where the plan is such
            found[where] = [(links.times(row, cut) if links else periods(order, row))[whole] for row in durations]
        return found + self.host_s

    def _durations(self, batches: Ints, parts: int) -> list[tuple[int, Ints, Program, Array]]:
        """(micro-batches, where in `batches`, program, durations (points, tasks) in s), by number of micro-batches."""
        work = self.scenario.workload
        wanted = np.minimum(max(parts, self.graph.pipeline_batches), batches)
        cuts = -(-batches // -(-batches // wanted))
        found = []
        for cut in np.unique(cuts):
            where = np.nonzero(cuts == cut)[0]
            base = self.graph.symbols(work.model_copy(update={"batch": max(int(cut), work.batch)}).symbols(int(cut)))
            symbols = np.repeat(points(self.table, base), len(where), axis=0)
            sequences = "prefill_sequences" if work.phase == "prefill" else "decode_sequences"
            symbols[:, self.table.symbols.index(sequences)] = -(-batches[where] // cut)
            if int(cut) not in self._programs:
                self._programs[int(cut)] = program(self.graph, self.table, int(cut))
            order = self._programs[int(cut)]
            priced = price(self.table, symbols, self.device)
            found.append((int(cut), where, order, priced[:, order.order, c.TIME] * order.repeats))
        return found


def packed(choice: Choice, scenario: Scenario, lowered: OpGraph, batches: int) -> Packed:
    """Place a lowered model as a choice says, flatten it, and find how many sequences (at most `batches`) fit.

    Raises
    ------
    InputError
        When a chip multiplies none of the types an op can run in, or a link is missing.
    """
    own = replace(scenario, cluster=choice.cluster, plan=choice.plan(max(choice.micro_batches)))
    graph = partition(lowered, own.plan, own.cluster, check=False)
    table = pack(graph, own.cluster, own.workload.routing)
    reason = f"split: {graph.reasons[0]}" if graph.reasons else ""
    most = 0 if reason else largest_batch(own, graph, batches)
    if not reason and not most:
        reason = misfits(rows_at(own, graph, 1), own.cluster)[0]
    spent, _ = cost(own.cluster, 1.0, own.workload.phase)
    hourly, watts = (spent.usd_per_hour, spent.watts) if spent else (None, None)
    return Packed(choice, own, graph, table, device_array(table, own.cluster), most, reason, hourly, watts)


def largest_batch(scenario: Scenario, graph: OpGraph, limit: int) -> int:
    """Sequences (at most `limit`) that fit; memory grows almost in proportion to them, which gives the first guess."""

    def fits(batch: int) -> bool:
        return all(row.free_bytes >= 0 for row in rows_at(scenario, graph, batch))

    if not fits(1):
        return 0
    few, many = (np.array([row.free_bytes for row in rows_at(scenario, graph, batch)]) for batch in (1, limit))
    per_batch = np.maximum(few - many, 1e-9) / max(limit - 1, 1)
    guess = int(1 + (few / per_batch).min())
    groups = graph.degrees[f"{scenario.cluster.pools[0].name}.dp"]  # what fits is a whole number of sequences in each
    return largest(fits, limit, max(1, guess // groups * groups))


def rows_at(scenario: Scenario, graph: OpGraph, batch: int) -> list[MemoryRow]:
    """What lies where at a batch."""
    return memory(graph, scenario.cluster, scenario.workload.model_copy(update={"batch": batch}))


def tokens_of(scenario: Scenario) -> float:
    """Tokens of a step per sequence: made (decode) or taken in (prefill)."""
    work = scenario.workload
    if work.phase == "prefill":
        return float(work.new_tokens)
    return work.speculative.tokens_per_step if work.speculative else 1.0


def worth(objective: str, plan: Packed, batches: Array, times: Array) -> Array:
    """How good a plan is at every (batch, step time in s): higher is better; -inf where the objective is not known.

    Non-decreasing in the batch and non-increasing in the time, whatever the objective: what bounds rest on.
    """
    rate = batches * tokens_of(plan.scenario) / times
    if objective == "tokens_per_s_per_chip":
        return rate / plan.scenario.cluster.chips
    if objective == "chips":  # equal counts go by rate
        return -plan.scenario.cluster.chips + rate / (1.0 + rate)
    if objective == "tpot":
        return -times / tokens_of(plan.scenario)
    spent = plan.watts if objective == "joules_per_token" else plan.usd_per_hour
    return rate / spent if spent else np.full(len(times), -np.inf)
