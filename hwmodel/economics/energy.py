"""Joules of a step: work, bytes by memory technology, links, and what idles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.prices import Economics
from hwmodel.spec.number import Number
from hwmodel.stages import executions, stage_counts
from hwmodel.timing import Array, OpTable

LEAST = 0.2
"""Share of a chip's dynamic power that arithmetic takes at least, whatever its memory draws at full rate."""
MATRIX = "matrix units "


@dataclass(frozen=True)
class Part:
    """One use of energy in a pool."""

    pool: str
    part: str
    """``matrix units DTYPE``, ``memory:TIER``, ``link``, ``running`` or ``idle``."""
    amount: float
    """FLOP, bytes or seconds x chips of a step, all chips together."""
    each: Number
    """J per FLOP, J per byte, or W of one chip, with its range and source."""

    @property
    def joules(self) -> float:
        """Of a step, all chips of the pool."""
        return self.amount * float(self.each)


def flop_energy(chip: Chip, dtype: str, running: float = 0.0) -> Number | None:
    """J per FLOP in a format: what the TDP leaves at full rate, (TDP - idle - running - main memory at full rate) / peak.

    Derivation: a chip's power limit is set for matrix units and memory both busy. At most all that is not idle power, at
    least a fifth of it; half as a low end. None where no TDP is known. running : share of the power above idle, see `energy`.
    """
    power, tier = chip.power, chip.main
    if power.tdp_watts is None:
        return None
    dynamic = float(power.tdp_watts) - float(idle_power(chip) or 0.0)
    memory = float(tier.bandwidth_bytes_per_s) * float(tier.energy_joules_per_byte or 0.0)
    peak = float(chip.peaks.by_dtype()[dtype])
    found = max((1 - running) * dynamic - memory, LEAST * dynamic) / peak
    return Number(
        found, found / 2, dynamic / peak, "derived: (TDP - idle - running - memory at full rate) / dense peak", "derived"
    )


def idle_power(chip: Chip) -> Number | None:
    """Idle power of a chip in W; 15 % of the TDP where the file has none."""
    if chip.power.idle_watts is not None or chip.power.tdp_watts is None:
        return chip.power.idle_watts
    tdp = float(chip.power.tdp_watts)
    return Number(0.15 * tdp, 0.08 * tdp, 0.25 * tdp, "assumption of the project: 15 % of the TDP", "estimated")


def running_power(chip: Chip, prices: Economics) -> Number:
    """Power of a chip (W) above idle while it runs anything: clocks, on-chip traffic, control."""
    above = float(chip.power.tdp_watts or 0.0) - float(idle_power(chip) or 0.0)
    share = prices.running
    return Number(share * above, share.low * above, share.high * above, share.source, share.status)


def energy(
    graph: OpGraph,
    table: OpTable,
    priced: Array,
    cluster: Cluster,
    prices: Economics,
    busy: Mapping[str, float],
    time_s: float,
    parts: int,
) -> dict[str, list[Part]]:
    """Uses of energy in one step by pool; a pool without a known TDP has none.

    Parameters
    ----------
    priced : (ops, N_OUT) of one micro-batch on the busiest chip; every chip of a stage counts as that one
    busy : share of the step in which a pool's chips run an op
    time_s : of the step
    parts : micro-batches
    """
    amounts = _amounts(graph, table, priced, cluster, parts)
    found: dict[str, list[Part]] = {}
    for pool in cluster.pools:
        idle = idle_power(pool.chip)
        if idle is None or pool.chip.power.tdp_watts is None:
            continue
        rows = []
        for part, amount in amounts[pool.name].items():
            each = _each(pool.chip, part, prices)
            if each is not None:
                rows.append(Part(pool.name, part, amount, each))
        rows.append(Part(pool.name, "running", time_s * pool.count * busy[pool.name], running_power(pool.chip, prices)))
        rows.append(Part(pool.name, "idle", time_s * pool.count, idle))
        found[pool.name] = rows
    return found


def _each(chip: Chip, part: str, prices: Economics) -> Number | None:
    if part.startswith(MATRIX):
        return flop_energy(chip, part.removeprefix(MATRIX), float(prices.running))
    return prices.link_joules_per_byte if part == "link" else chip.tier(part.partition(":")[2]).energy_joules_per_byte


def _amounts(graph: OpGraph, table: OpTable, priced: Array, cluster: Cluster, parts: int) -> dict[str, dict[str, float]]:
    """FLOP and bytes of a step by pool and use, all chips together."""
    found: dict[str, dict[str, float]] = {pool.name: {} for pool in cluster.pools}
    types = operand_types(table)
    stages = stage_counts(graph)
    for counts in stages:
        for position, (op, row) in enumerate(zip(table.ops, priced, strict=True)):
            if op.kind in ("transfer", "load"):
                continue
            pool = cluster.pool(op.pool)
            times = executions(graph, op, counts) * parts * pool.count / len(stages)
            for part, amount in _of_op(pool, op, row, types.get(position, "")).items():
                found[op.pool][part] = found[op.pool].get(part, 0.0) + amount * times
    for op, row in zip(table.ops, priced, strict=True):
        if op.kind not in ("transfer", "load"):
            continue
        source, target = (cluster.pool(name) for name in op.way.split(">"))
        times = graph.segment(op.segment).count * op.repeats.value({}) * parts * (target.count if op.kind == "load" else 1)
        sent = float(row[c.WIRE_BYTES]) * times
        uses = found[source.name]
        uses["link"] = uses.get("link", 0.0) + sent
        if op.kind == "load":
            key = f"memory:{source.chip.main.tier}"
            uses[key] = uses.get(key, 0.0) + sent
    return found


def _of_op(pool: Pool, op: Op, row: Array, dtype: str) -> Mapping[str, float]:
    """FLOP and bytes of one execution on one chip by use; activations that fit the cache stay in it."""
    main = pool.chip.main.tier
    cache = next((tier for tier in pool.chip.memory if tier.cache), None)
    kept = cache is not None and row[c.ACTIVATION_BYTES] <= cache.capacity_bytes
    where = cache.tier if cache is not None and kept else main
    uses = [
        (f"{MATRIX}{dtype}", row[c.FLOPS] if dtype else 0.0), (f"memory:{op.tier or main}", row[c.WEIGHT_BYTES]),
        (f"memory:{op.kv_tier or main}", row[c.KV_BYTES]), (f"memory:{where}", row[c.ACTIVATION_BYTES]),
        ("link", row[c.WIRE_BYTES]),
    ]  # fmt: skip
    total: dict[str, float] = {}
    for part, amount in uses:
        if amount > 0:
            total[part] = total.get(part, 0.0) + float(amount)
    return total


def operand_types(table: OpTable) -> dict[int, str]:
    """The format in which each op that multiplies matrices does so, by position."""
    return {
        int(position): c.DTYPES[int(where[c.DTYPE])]
        for group in table.groups
        if getattr(kinds()[group.kind], "MATRIX", True)
        for position, where in zip(group.rows, group.where, strict=True)
    }
