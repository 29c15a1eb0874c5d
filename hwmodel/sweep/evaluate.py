"""From the numbers of many points to the columns of a table: what `run` reports, point by point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import columns as c
from hwmodel.kernels.strip import GEMM, MOST_KNOWN
from hwmodel.kernels.sweep import N_POOL, evaluate
from hwmodel.routing import Routing
from hwmodel.sweep.devices import host_s, varied
from hwmodel.sweep.footprint import held
from hwmodel.sweep.names import BOUND, CHIP, TIME, TOKENS, TPOT, TTFT, USER
from hwmodel.sweep.numbers import Numbers, parts_of, symbol_rows, symbols_of
from hwmodel.sweep.spent import spent
from hwmodel.sweep.structures import Structure, with_routing
from hwmodel.timeline import periods, program, seconds
from hwmodel.timing import Array, price

BOUNDS = ("compute", "memory", "link", "overhead", "dependency")
"""What bounds a pool, by code."""
GENERAL = 1024
"""Points priced at once the general way, which writes an array of points x ops x columns."""
PAD = 24
"""Numbers left over behind every column, so that columns of 2^n points do not fall on the same lines of the cache."""


@dataclass(frozen=True)
class Columns:
    """Columns of the points of one structure, each (points,)."""

    numbers: dict[str, Array]
    codes: dict[str, tuple[NDArray[np.int64], tuple[str, ...]]]
    """Columns of words: codes and the word of each."""
    feasible: NDArray[np.bool_]
    reason: tuple[NDArray[np.int64], tuple[str, ...]]
    """Why not, the first reason; code 0 is none."""

    def taken(self, where: NDArray[np.int64]) -> Columns:
        """Those of some points."""
        return Columns(
            {name: column[where] for name, column in self.numbers.items()},
            {name: (codes[where], words) for name, (codes, words) in self.codes.items()},
            self.feasible[where], (self.reason[0][where], self.reason[1]),
        )  # fmt: skip


def columns(of: Structure, numbers: Numbers, routings: tuple[Routing, ...]) -> Columns:
    """Price all points of a structure."""
    scenario = of.scenario
    parts = parts_of(numbers, scenario, of.graph)
    out = _priced(of, numbers, routings, parts)
    found: dict[str, Array] = {}
    _step(of, numbers, parts, out, found)
    codes = {BOUND: (out[2].astype(np.int64), of.names)}
    for index, pool in enumerate(scenario.cluster.pools):
        at = 3 + N_POOL * index
        for k, name in enumerate((*BOUNDS[:4], "idle")):
            found[f"{pool.name}.{name}_s"] = out[at + k]
        found[f"{pool.name}.busy_fraction"] = out[at + 5]
        codes[f"{pool.name}.bound"] = (out[at + 6].astype(np.int64), BOUNDS)
    at = 3 + N_POOL * of.sizes.pools
    for row, name in enumerate(of.rows):
        found[f"{name}.time_s"] = out[at + 2 * row]
        codes[f"{name}.{BOUND}"] = (out[at + 2 * row + 1].astype(np.int64), of.names)
    at += 2 * of.sizes.rows
    for lane, name in enumerate(of.order.lanes):
        found[f"{name.replace('>', '_to_')}.lane_s"] = out[at + lane]
    at += of.sizes.lanes
    if of.sizes.expert_op >= 0:
        found["tokens_per_expert"], found["experts_hit"] = out[-2], out[-1]
    found |= spent(scenario, of.slots, out[at : at + of.sizes.slots], numbers, found)
    reason = _feasible(of, numbers, found)
    return Columns(found, codes, reason[0] == 0, reason)


_CALM = frozenset({
    c.LAUNCH, c.RAMP, c.VECTOR, c.EXPONENTIALS, c.CACHE_BYTES, c.CACHE_BANDWIDTH, c.EXCHANGE,
    *range(c.TIER, c.TIER + c.N_TIERS), *range(c.LINK, c.LINK + c.N_LINKS * c.LINK_WIDTH),
})  # fmt: skip
"""Numbers of a chip that do not move how long its cores compute a product."""


def _priced(of: Structure, numbers: Numbers, routings: tuple[Routing, ...], parts: Array) -> Array:
    """The kernel's columns, (columns, points)."""
    scenario, sizes = of.scenario, of.sizes
    at, over = varied(of.devices, numbers, scenario.cluster)
    which = np.zeros(numbers.points, dtype=np.int64) if numbers.routing is None else numbers.routing
    host = host_s(numbers, scenario.cluster)
    wide = 3 + N_POOL * sizes.pools + 2 * sizes.rows + sizes.lanes + sizes.slots + 2 * (sizes.expert_op >= 0)
    bins, logs, shares = of.bins(routings)
    sized = of.laws.resolved(symbol_rows(numbers, scenario, of.graph, of.laws.symbols, parts))
    cuts = parts.astype(np.int64)
    still, keeps, most = _kept(of, at, sized)

    def filled(part: slice, priced: Array, given: Array, out: Array) -> Array:
        evaluate(
            of.ops, of.sums, of.uses, of.way, sizes, of.constant, np.ascontiguousarray(sized[:, part]), bins, logs, shares,
            which[part], of.devices.base, still, keeps, most, at, np.ascontiguousarray(over[:, part]), cuts[part], host[part],
            priced, given, out,
        )  # fmt: skip
        return out

    if not of.general and of.chain is not None:
        out = np.empty((wide, numbers.points + PAD))
        return filled(slice(None), np.zeros((0, 0, c.N_OUT)), np.zeros((0, 2)), out)[:, : numbers.points]
    out = np.empty((wide, numbers.points))
    symbols = symbols_of(numbers, scenario, of.graph, of.table.symbols, parts)
    for start in range(0, numbers.points, GENERAL):
        part = slice(start, min(start + GENERAL, numbers.points))
        priced, given = _general(of, symbols[part], at, over[:, part], cuts[part], which[part], routings)
        out[:, part] = filled(part, priced, given, np.empty((wide, part.stop - start)))
    return out


def _kept(of: Structure, at: NDArray[np.int64], sized: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(rows of the device array whose cores are alike at all points, products that differ in their rows only, most rows)."""
    still = np.ones(len(of.devices.base), dtype=np.int64)
    still[[row for row, column in at.tolist() if column not in _CALM]] = 0
    first, others = of.ops.slot[:, 0], of.ops.slot[:, 1:4]
    keeps = (of.ops.kind == GEMM) & (others >= len(sized)).all(axis=1) & (still[of.ops.where[:, c.ROW]] == 1)
    used = np.unique(first[keeps & (first < len(sized))])
    most = sized[used].max(initial=1.0) if len(used) else 1.0
    return still, keeps.astype(np.int64), int(min(most, MOST_KNOWN))


def _general(
    of: Structure, symbols: Array, at: NDArray[np.int64], over: Array, cuts: NDArray[np.int64], which: NDArray[np.int64],
    routings: tuple[Routing, ...],
) -> tuple[Array, Array]:  # fmt: skip
    """Ops priced by `timing.price`, as the kernel wants them, and (makespan, period) of every point as `run` schedules it."""
    device = np.repeat(of.devices.base[None], len(symbols), axis=0)
    device[:, at[:, 0], at[:, 1]] = over.T
    whole = np.empty((len(symbols), len(of.table.ops), c.N_OUT))
    for routing in np.unique(which):
        own = np.nonzero(which == routing)[0]
        whole[own] = price(with_routing(of, routings[routing]), symbols[own], device[own])
    times = np.empty((len(symbols), 2))
    orders = {int(cut): program(of.graph, of.table, int(cut)) for cut in np.unique(cuts)} if of.chain is None else {}
    for q, cut in enumerate(cuts.tolist()):
        if of.chain is None:
            times[q] = periods(orders[cut], seconds(orders[cut], whole[q]))
        else:
            times[q] = of.chain.times(seconds(of.order, whole[q]), cut)
    return whole[:, of.reached], times


def _step(of: Structure, numbers: Numbers, parts: Array, out: Array, found: dict[str, Array]) -> None:
    """Times and rates of the step."""
    scenario = of.scenario
    work = scenario.workload
    per_step = work.speculative.tokens_per_step if work.speculative else 1.0
    new = numbers.work("new_tokens", scenario)
    time = out[0]
    tokens = numbers.work("batch", scenario) * (new if work.phase == "prefill" else per_step)
    chips = np.zeros(numbers.points)
    for pool in scenario.cluster.pools:
        chips = chips + numbers.count(pool.name, scenario.cluster)
    found[TIME] = time
    if work.phase != "decode":
        found[TTFT] = time
    if work.phase != "prefill":
        found[TPOT] = time / per_step
    found["tokens"], found[TOKENS] = tokens, tokens / time
    found[USER] = new / time if work.phase == "prefill" else per_step / time
    found[CHIP] = found[TOKENS] / chips
    found["makespan_s"], found["micro_batches"], found["chips"] = out[1], parts, chips


def _feasible(of: Structure, numbers: Numbers, found: dict[str, Array]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Write what lies where, and say for every point the first reason why it cannot run."""
    scenario = of.scenario
    words = ["", *of.reasons[:1]]
    reason = np.full(numbers.points, 1 if of.reasons else 0, dtype=np.int64)

    def say(text: str, where: NDArray[np.bool_]) -> None:
        if where.any():
            if text not in words:
                words.append(text)
            reason[where & (reason == 0)] = words.index(text)

    for pool, group, what in of.groups:
        if pool in numbers.counts or scenario.cluster.pool(pool).count % group:
            count = numbers.count(pool, scenario.cluster)
            say(f"pool {pool}: its chips are no multiple of {what} = {group}", count % group != 0)
    for pool, degree in of.stated:
        own = symbol_rows(numbers, scenario, of.graph, (f"{pool}.dp",), np.ones(1))[0]
        say(f"pool {pool}: data degree {degree} is stated, but chips and other degrees leave another", own != degree)
    if not of.footprint.sizes:
        return reason, tuple(words)
    whole = np.ones(numbers.points)
    sizes = of.memory_laws.resolved(symbol_rows(numbers, scenario, of.graph, of.memory_laws.symbols, whole))
    for feet in of.footprint.pools:
        weights, kv, activations = held(feet, sizes, numbers, scenario)
        share = numbers.reserves.get(feet.pool, scenario.cluster.pool(feet.pool).memory_reserve)
        for index, tier in enumerate(feet.tiers):
            capacity = numbers.chip(feet.pool, f"memory.{tier}.capacity", feet.capacity[index])
            used = activations if index == 0 else np.zeros(numbers.points)
            free = capacity - share * capacity - weights[index] - kv[index] - used
            name = f"{feet.pool}.{tier}"
            found[f"{name}.weights_bytes"], found[f"{name}.kv_bytes"] = weights[index], kv[index]
            found[f"{name}.activation_bytes"], found[f"{name}.free_bytes"] = used, free
            say(f"memory: pool {feet.pool} needs more {tier} per chip than it has", free < 0)
    return reason, tuple(words)
