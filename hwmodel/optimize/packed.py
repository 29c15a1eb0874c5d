"""One plan, packed once and asked about many batches: bounds of a step's time, its exact time, what fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.chain import chain
from hwmodel.economics import Work, hourly, spending
from hwmodel.economics.energy import energy
from hwmodel.fit import largest
from hwmodel.graph import OpGraph
from hwmodel.kernels import columns as c
from hwmodel.laid import Laid
from hwmodel.memory import MemoryRow, memory, misfits
from hwmodel.optimize.space import Choice
from hwmodel.partition import partition
from hwmodel.scenario import Scenario
from hwmodel.timeline import Program, busy_s, floors, periods
from hwmodel.timing import Array, device_array, pack, price

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Packed:
    """A choice on its cluster, ready to be priced at any batch."""

    choice: Choice
    scenario: Scenario
    """With the choice's cluster and plan."""
    laid: Laid
    device: Array
    most: int
    """Sequences that fit, at least one."""
    usd_per_hour: float | None
    """Of all chips, electricity aside; None where a price is not known."""

    def floors(self, batches: Ints, parts: int) -> Array:
        """Lower bounds of the step's time (s) at every batch, cut into `parts` at most."""
        found = np.zeros(len(batches))
        for where, order, durations in self._durations(batches, parts):
            found[where] = floors(order, durations)
        return found + self.scenario.cluster.host_s

    def times(self, batches: Ints, parts: int) -> Array:
        """The step's time (s) at every batch, as `run` schedules it."""
        found = np.zeros(len(batches))
        whole = 0 if self.scenario.workload.phase == "prefill" else 1
        for where, order, durations in self._durations(batches, parts):
            links = chain(order)  # micro-batches as tokens, where the plan is such
            found[where] = [(links.times(row, order.batches) if links else periods(order, row))[whole] for row in durations]
        return found + self.scenario.cluster.host_s

    def spending(self, batches: Ints, parts: int, times: Array) -> Array:
        """(USD per hour, joules per token) at every (batch, step time in s), shape (points, 2); NaN where not known.

        At a time that is too short the joules are too few as well: a bound. Collectives beside compute keep no chip busy.
        """
        found = np.full((len(batches), 2), np.nan)
        cluster, prices = self.scenario.cluster, self.scenario.economics
        for where, order, priced in self._priced(batches, parts):
            durations = priced[:, order.order, c.TIME] * order.repeats
            busy = {pool.name: busy_s(order, durations, pool.name) + self.scenario.cluster.host_s for pool in cluster.pools}
            for row, point in enumerate(where):
                time = float(times[point])
                share = {name: min(1.0, float(each[row]) / time) for name, each in busy.items()}
                uses = energy(self.laid.graph, self.laid.table, priced[row], cluster, prices, share, time, order.batches)
                rate = float(batches[point]) * tokens_of(self.scenario) / time
                usd, joules = spending(cluster, Work(rate, self.scenario.workload.phase, share, time, uses), prices)
                found[point] = np.nan if self.usd_per_hour is None else usd, np.nan if joules is None else joules
        return found

    def _durations(self, batches: Ints, parts: int) -> Iterator[tuple[Ints, Program, Array]]:
        """(where in `batches`, program, durations (points, tasks) in s), by number of micro-batches."""
        for where, order, priced in self._priced(batches, parts):
            yield where, order, priced[:, order.order, c.TIME] * order.repeats

    def _priced(self, batches: Ints, parts: int) -> Iterator[tuple[Ints, Program, Array]]:
        """(where in `batches`, program, priced ops (points, ops, N_OUT)), by number of micro-batches."""
        work, graph, table = self.scenario.workload, self.laid.graph, self.laid.table
        wanted = np.minimum(max(parts, graph.pipeline_batches), batches)
        cuts = -(-batches // -(-batches // wanted))
        for cut in np.unique(cuts).tolist():
            where = np.nonzero(cuts == cut)[0]
            base = self.laid.point(work.model_copy(update={"batch": max(cut, work.batch)}), cut)
            symbols = np.repeat(base, len(where), axis=0)
            sequences = "prefill_sequences" if work.phase == "prefill" else "decode_sequences"
            symbols[:, table.symbols.index(sequences)] = -(-batches[where] // cut)
            yield where, self.laid.order(cut), price(table, symbols, self.device)


def packed(choice: Choice, scenario: Scenario, lowered: OpGraph, batches: int) -> Packed | str:
    """Place a lowered model as a choice says, find how many sequences (at most `batches`) fit, and flatten it.

    The answer is a reason where the plan cannot run or nothing fits.

    Raises
    ------
    InputError
        When a chip multiplies none of the types an op can run in, or a link is missing.
    """
    own = replace(scenario, cluster=choice.cluster, plan=choice.plan(max(choice.micro_batches)))
    graph = partition(lowered, own.plan, own.cluster, check=False)
    if graph.reasons:
        return f"split: {graph.reasons[0]}"
    most = largest_batch(own, graph, batches)
    if not most:
        return misfits(rows_at(own, graph, 1), own.cluster)[0]
    table = pack(graph, own.cluster, own.workload.routing)
    known = [hourly(pool, own.economics) for pool in own.cluster.pools]
    usd = None if None in known else sum(found[0] for found in known if found)
    return Packed(choice, own, Laid(graph, table), device_array(table, own.cluster), most, usd)


def largest_batch(scenario: Scenario, graph: OpGraph, limit: int) -> int:
    """Sequences (at most `limit`) that fit; memory grows almost in proportion to them, which gives good guesses."""

    def free(batch: int) -> Array:
        return np.array([row.free_bytes for row in rows_at(scenario, graph, batch)])

    def fits(batch: int) -> bool:
        return bool((free(batch) >= 0).all())

    few = free(1)
    if (few < 0).any():
        return 0
    groups = graph.degrees[f"{scenario.cluster.pools[0].name}.dp"]  # what fits is a whole number of sequences in each
    guess = limit
    for _ in range(2):
        per_batch = np.maximum(few - free(guess), 1e-9) / max(guess - 1, 1)
        guess = min(limit, max(1, int(1 + (few / per_batch).min()) // groups * groups))
    return largest(fits, limit, guess)


def rows_at(scenario: Scenario, graph: OpGraph, batch: int) -> list[MemoryRow]:
    """What lies where at a batch."""
    return memory(graph, scenario.cluster, scenario.workload.model_copy(update={"batch": batch}))


def tokens_of(scenario: Scenario) -> float:
    """Tokens of a step per sequence: made (decode) or taken in (prefill)."""
    work = scenario.workload
    if work.phase == "prefill":
        return float(work.new_tokens)
    return work.speculative.tokens_per_step if work.speculative else 1.0


def worth(objective: str, plan: Packed, batches: Ints, times: Array, parts: int) -> Array:
    """How good a plan is at every (batch, step time in s): higher is better; -inf where the objective is not known.

    Never less for a larger batch in the same time, nor for a shorter time: what bounds rest on.
    """
    rate, used = batches * tokens_of(plan.scenario) / times, float(plan.scenario.economics.utilisation)
    if objective == "tokens_per_s_per_chip":
        return rate / plan.scenario.cluster.chips
    if objective == "chips":  # equal counts go by rate
        return -plan.scenario.cluster.chips + rate / (1.0 + rate)
    if objective == "tpot":
        return -times / tokens_of(plan.scenario)
    if objective != "joules_per_token" and plan.scenario.economics.electricity_usd_per_kwh is None:
        return rate * used / plan.usd_per_hour if plan.usd_per_hour else np.full(len(times), -np.inf)
    usd, joules = plan.spending(batches, parts, times).T
    found = 1 / joules if objective == "joules_per_token" else rate * used / usd
    return np.where(np.isnan(found), -np.inf, found)
