"""Joules of a step: work, bytes by memory technology, links, and what idles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hwmodel.economics.forms import IDLE, joules_per_flop
from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.prices import Economics
from hwmodel.spec.number import Number
from hwmodel.stages import executions, stage_counts
from hwmodel.timing import Array, OpTable

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
    found = float(joules_per_flop(dynamic, memory, peak, running))
    return Number(
        found, found / 2, dynamic / peak, "derived: (TDP - idle - running - memory at full rate) / dense peak", "derived"
    )


def idle_power(chip: Chip) -> Number | None:
    """Idle power of a chip in W; 15 % of the TDP where the file has none."""
    if chip.power.idle_watts is not None or chip.power.tdp_watts is None:
        return chip.power.idle_watts
    tdp = float(chip.power.tdp_watts)
    return Number(IDLE * tdp, 0.08 * tdp, 0.25 * tdp, "assumption of the project: 15 % of the TDP", "estimated")


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


@dataclass(frozen=True)
class Use:
    """A column of an op that uses energy: so much of `part` per micro-batch on every chip of `per`, where that is named."""

    position: int
    """Of the op."""
    column: int
    pool: str
    part: str
    spilled: str
    """The part instead where activations do not fit the cache."""
    times: float
    per: str = ""
    """Pool whose chips each do it; all chips together when empty."""


def uses(graph: OpGraph, table: OpTable, cluster: Cluster) -> Iterator[Use]:
    """All uses of energy of a step; what its kernels answer and chips per pool are all that is missing."""
    types = operand_types(table)
    stages = stage_counts(graph)
    columns = {position: _of_op(cluster.pool(op.pool), op, types.get(position, ""))
               for position, op in enumerate(table.ops) if op.kind not in ("transfer", "load")}  # fmt: skip
    for counts in stages:
        for position, parts in columns.items():
            op = table.ops[position]
            times = executions(graph, op, counts) / len(stages)
            for column, part, spilled in parts:
                yield Use(position, column, op.pool, part, spilled, times, op.pool)
    for position, op in enumerate(table.ops):
        if position in columns:
            continue
        source, target = op.way.split(">")
        times, per = graph.segment(op.segment).count * op.repeats.value({}), target if op.kind == "load" else ""
        yield Use(position, c.WIRE_BYTES, source, "link", "link", times, per)
        if op.kind == "load":
            read = f"memory:{cluster.pool(source).chip.main.tier}"
            yield Use(position, c.WIRE_BYTES, source, read, read, times, per)


def _amounts(graph: OpGraph, table: OpTable, priced: Array, cluster: Cluster, parts: int) -> dict[str, dict[str, float]]:
    """FLOP and bytes of a step by pool and use, all chips together; activations that fit the cache stay in it."""
    found: dict[str, dict[str, float]] = {pool.name: {} for pool in cluster.pools}
    cache = {pool.name: sum(float(t.capacity_bytes) for t in pool.chip.memory if t.cache) for pool in cluster.pools}
    count = {pool.name: pool.count for pool in cluster.pools}
    for use in uses(graph, table, cluster):
        amount = float(priced[use.position, use.column])
        if amount > 0:
            part = use.part if amount <= cache[use.pool] else use.spilled
            total = found[use.pool]
            total[part] = total.get(part, 0.0) + amount * use.times * parts * count.get(use.per, 1)
    return found


def _of_op(pool: Pool, op: Op, dtype: str) -> list[tuple[int, str, str]]:
    """(column, part, part where activations do not fit the cache) of an op."""
    main = pool.chip.main.tier
    cache = next((tier.tier for tier in pool.chip.memory if tier.cache), main)
    found = [
        (c.FLOPS, f"{MATRIX}{dtype}" if dtype else "", ""), (c.WEIGHT_BYTES, f"memory:{op.tier or main}", ""),
        (c.KV_BYTES, f"memory:{op.kv_tier or main}", ""), (c.ACTIVATION_BYTES, f"memory:{cache}", f"memory:{main}"),
        (c.WIRE_BYTES, "link", ""),
    ]  # fmt: skip
    return [(column, part, spilled or part) for column, part, spilled in found if part]


def operand_types(table: OpTable) -> dict[int, str]:
    """The format in which each op that multiplies matrices does so, by position."""
    return {
        int(position): c.DTYPES[int(where[c.DTYPE])]
        for group in table.groups
        if getattr(kinds()[group.kind], "MATRIX", True)
        for position, where in zip(group.rows, group.where, strict=True)
    }
