"""Joules of many points: what uses energy is packed once, its amounts are counted by the kernel, its prices are numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hwmodel.economics.energy import MATRIX, uses
from hwmodel.economics.forms import IDLE, joules_per_flop
from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster, Pool
from hwmodel.kernels.sweep import FILLED, Uses
from hwmodel.prices import Economics
from hwmodel.sweep.numbers import Numbers
from hwmodel.timing import Array, Ints, OpTable

Slot = tuple[str, str, str]
"""(pool, part, pool whose chips each do it; all chips together when empty), as `economics.energy` names them."""


@dataclass(frozen=True)
class Power:
    """Powers of one chip of a pool at every point (W), each (points,) or one number."""

    tdp: Array
    idle: Array
    running: Array
    """Above idle, while it runs an op."""


def pack_uses(graph: OpGraph, table: OpTable, cluster: Cluster, unique: Ints) -> tuple[tuple[Slot, ...], Uses]:
    """Name the sums that the kernel makes, and pack which columns of the ops that differ go into each."""
    slots: dict[Slot, int] = {}
    found: dict[tuple[int, int, int, int], float] = {}
    for use in uses(graph, table, cluster):
        filled = FILLED.get(table.ops[use.position].kind)
        if filled is not None and use.column not in filled:
            continue
        into, spilled = (slots.setdefault((use.pool, part, use.per), len(slots)) for part in (use.part, use.spilled))
        u = int(unique[use.position])
        key = (u, use.column, into, spilled)
        found[key] = found.get(key, 0.0) + use.times
    ordered = sorted(found)
    op, column, slot, beyond = np.array(ordered, dtype=np.int64).reshape(-1, 4).T.copy()
    at = np.searchsorted(op, np.arange(int(unique.max(initial=-1)) + 2))
    return tuple(slots), Uses(at, column, slot, beyond, np.array([found[key] for key in ordered], dtype=np.float64))


def power(pool: Pool, numbers: Numbers, prices: Economics) -> Power | None:
    """Powers of a pool's chips as `economics.energy` has them; None without a known TDP."""
    own = pool.chip.power
    if own.tdp_watts is None:
        return None
    tdp = np.asarray(numbers.chip(pool.name, "power.tdp", float(own.tdp_watts)))
    known = own.idle_watts is not None
    idle = np.asarray(numbers.chip(pool.name, "power.idle", float(own.idle_watts or 0.0)) if known else IDLE * tdp)
    return Power(tdp, idle, float(prices.running) * (tdp - idle))


def work_joules(
    pool: Pool, slots: tuple[Slot, ...], amounts: Array, of: Power, numbers: Numbers, cluster: Cluster, prices: Economics
) -> Array:
    """Joules of a step's work, bytes and links in a pool, all its chips; amounts : (slots, points) of all micro-batches."""
    found = np.zeros(numbers.points)
    for (name, part, per), amount in zip(slots, amounts, strict=True):
        if name != pool.name:
            continue
        for each in _each(pool, part, of, numbers, prices):
            found += amount * (each * _count(per, numbers, cluster))
    return found


def _count(per: str, numbers: Numbers, cluster: Cluster) -> Array | float:
    if not per:
        return 1.0
    return numbers.counts[per] if per in numbers.counts else float(cluster.pool(per).count)


def _each(pool: Pool, part: str, of: Power, numbers: Numbers, prices: Economics) -> Iterator[Array]:
    """J per FLOP or byte of a part; nothing where no one has said it."""
    chip, main = pool.chip, pool.chip.main
    if part.startswith(MATRIX):
        name = part.removeprefix(MATRIX)
        bandwidth = numbers.chip(pool.name, f"memory.{main.tier}.bandwidth", float(main.bandwidth_bytes_per_s))
        byte = numbers.chip(pool.name, f"memory.{main.tier}.energy", float(main.energy_joules_per_byte or 0.0))
        peak = numbers.chip(pool.name, f"peaks.{name}", float(chip.peaks.by_dtype()[name]))
        memory = np.asarray(bandwidth * byte)
        yield joules_per_flop(of.tdp - of.idle, memory, np.asarray(peak), float(prices.running))
    elif part == "link":
        yield np.asarray(float(prices.link_joules_per_byte))
    else:
        tier = chip.tier(part.partition(":")[2])
        if tier.energy_joules_per_byte is not None:
            yield np.asarray(numbers.chip(pool.name, f"memory.{tier.tier}.energy", float(tier.energy_joules_per_byte)))
