"""From the numbers of many points to the columns of a table: what `run` reports, point by point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import columns as c
from hwmodel.kernels.resolve import resolve
from hwmodel.kernels.sweep import N_POOL, evaluate
from hwmodel.routing import Routing
from hwmodel.sweep.devices import host_s, varied
from hwmodel.sweep.footprint import held
from hwmodel.sweep.numbers import Numbers, parts_of, symbols_of
from hwmodel.sweep.spent import spent
from hwmodel.sweep.structures import Laws, Structure, with_routing
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


def columns(of: Structure, numbers: Numbers, routings: tuple[Routing, ...]) -> Columns:
    """Price all points of a structure."""
    scenario = of.scenario
    parts = parts_of(numbers, scenario, of.graph)
    symbols = symbols_of(numbers, scenario, of.graph, of.table.symbols, parts)
    host = host_s(numbers, scenario.cluster)
    out = _priced(of, numbers, routings, parts, symbols, host)
    found: dict[str, Array] = {}
    _step(of, numbers, parts, out, found)
    codes = {"bound": (out[2].astype(np.int64), of.names)}
    for index, pool in enumerate(scenario.cluster.pools):
        at = 3 + N_POOL * index
        for k, name in enumerate((*BOUNDS[:4], "idle")):
            found[f"{pool.name}.{name}_s"] = out[at + k]
        found[f"{pool.name}.busy_fraction"] = out[at + 5]
        codes[f"{pool.name}.bound"] = (out[at + 6].astype(np.int64), BOUNDS)
    at = 3 + N_POOL * of.sizes.pools
    for row, name in enumerate(of.rows):
        found[f"{name}.time_s"] = out[at + 2 * row]
        codes[f"{name}.bound"] = (out[at + 2 * row + 1].astype(np.int64), of.names)
    at += 2 * of.sizes.rows
    for lane, name in enumerate(of.order.lanes):
        found[f"{name.replace('>', '_to_')}.lane_s"] = out[at + lane]
    at += of.sizes.lanes
    if of.sizes.expert_op >= 0:
        found["tokens_per_expert"], found["experts_hit"] = out[-2], out[-1]
    found |= spent(scenario, of.slots, out[at : at + of.sizes.slots], numbers, found)
    reason = _feasible(of, numbers, symbols, found)
    return Columns(found, codes, reason[0] == 0, reason)


def resolved(laws: Laws, symbols: Array) -> Array:
    """Sizes at every point, (points, sizes)."""
    out = np.empty((len(symbols), 1, laws.unit.shape[1]))
    resolve(symbols, laws.unit, laws.coefficient, laws.which, laws.power, laws.each, out)
    return out[:, 0]


def _priced(of: Structure, numbers: Numbers, routings: tuple[Routing, ...], parts: Array, symbols: Array, host: Array) -> Array:
    """The kernel's columns, (columns, points)."""
    at, over = varied(of.devices, numbers, of.scenario.cluster)
    which = np.zeros(numbers.points, dtype=np.int64) if numbers.routing is None else numbers.routing
    sizes = of.sizes
    wide = 3 + N_POOL * sizes.pools + 2 * sizes.rows + sizes.lanes + sizes.slots + 2 * (sizes.expert_op >= 0)
    out = np.empty((wide, numbers.points + PAD))[:, : numbers.points]
    bins, logs = of.bins(routings)
    sized = resolved(of.laws, symbols)
    cuts = parts.astype(np.int64)
    step = GENERAL if of.general or of.chain is None else numbers.points
    priced, given = np.zeros((0, 0, c.N_OUT)), np.zeros((0, 2))
    for start in range(0, numbers.points, max(step, 1)):
        part = slice(start, start + step)
        if of.general or of.chain is None:
            priced, given = _general(of, symbols[part], at, over[:, part], cuts[part], which[part], routings)
        evaluate(
            of.ops, of.sums, of.uses, sizes, of.constant, sized[part], bins, logs, which[part], of.devices.base, at,
            over[:, part], cuts[part], host[part], priced, given, out[:, part],
        )  # fmt: skip
    return out


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
    found["time_s"] = time
    if work.phase != "decode":
        found["ttft_s"] = time
    if work.phase != "prefill":
        found["tpot_s"] = time / per_step
    found["tokens"], found["tokens_per_s"] = tokens, tokens / time
    found["tokens_per_s_per_user"] = new / time if work.phase == "prefill" else per_step / time
    found["tokens_per_s_per_chip"] = found["tokens_per_s"] / chips
    found["makespan_s"], found["micro_batches"], found["chips"] = out[1], parts, chips


def _feasible(
    of: Structure, numbers: Numbers, symbols: Array, found: dict[str, Array]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
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
        own = symbols[:, of.table.symbols.index(f"{pool}.dp")]
        say(f"pool {pool}: data degree {degree} is stated, but chips and other degrees leave another", own != degree)
    if not of.footprint.sizes:
        return reason, tuple(words)
    whole = symbols_of(numbers, scenario, of.graph, of.table.symbols, np.ones(numbers.points))
    sizes = np.ascontiguousarray(resolved(of.memory_laws, whole).T)
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
