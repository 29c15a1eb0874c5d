"""The answer to a scenario: rows that people read, and the plain data that the command line prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hwmodel import __version__
from hwmodel.answered import Answered
from hwmodel.asked import asked
from hwmodel.economics import Cost, Work, cost
from hwmodel.economics.energy import energy
from hwmodel.graph import Op
from hwmodel.hardware import Cluster
from hwmodel.kernels import columns as c
from hwmodel.laid import Laid, OnLaid
from hwmodel.memory import MemoryRow, memory, misfits
from hwmodel.remarks import assumptions_of, warnings_of
from hwmodel.scenario import Scenario
from hwmodel.stages import executions, stage_counts
from hwmodel.timeline import Timeline, lane_of
from hwmodel.timing import Array
from hwmodel.uncertainty import Spread

BOUNDS = ("compute", "memory", "link", "overhead")


@dataclass(frozen=True)
class Step:
    """Time and rate of one step."""

    phase: str
    time_s: float
    """Decode and mixed: between two steps in steady state; prefill: from start to end."""
    time_low_s: float
    time_high_s: float
    ttft_s: float | None
    tpot_s: float | None
    tokens: float
    """Tokens produced (decode) or taken in (prefill) per step."""
    tokens_per_s: float
    tokens_per_s_per_user: float
    tokens_per_s_per_chip: float
    makespan_s: float
    """An isolated step, pipeline filled and drained."""
    micro_batches: int
    bound: str
    """What most of a token's way through the model is: compute, memory:TIER, link, or overhead (launch, latency)."""


@dataclass(frozen=True)
class PoolRow:
    """One chip of a pool over one step."""

    pool: str
    chip: str
    count: int
    busy_fraction: float
    bound_s: dict[str, float]
    """The sum is the step; communication that compute hides is left out."""
    bound: str
    """What takes most of the step: compute, memory, link, overhead, or dependency (it waits)."""


@dataclass(frozen=True)
class LinkRow:
    """What crosses a link in one step: inside a pool per chip of its busiest stage, between pools in total."""

    source: str
    target: str
    bytes: float
    time_s: float
    busy_fraction: float


@dataclass(frozen=True)
class LayerRow:
    """A run of equal layers; the time is that of one layer, all micro-batches one after the other."""

    index: int
    count: int
    kind: str
    time_s: float
    bound: str


@dataclass(frozen=True)
class OpRow:
    """One execution of an op on one chip; `count` executions per step."""

    op: str
    layer_kind: str
    pool: str
    kind: str
    count: float
    flops: float
    bytes: float
    time_s: float
    low_s: float
    high_s: float
    bound: str
    note: str
    """What was chosen for it: absorbed or expanded MLA, the collective, prefetch."""


@dataclass(frozen=True)
class Result(Answered):
    """The answer to a scenario. Frozen; `to_dict` gives the JSON of the command line."""

    scenario: str
    feasible: bool
    reasons: tuple[str, ...]
    step: Step
    memory: tuple[MemoryRow, ...]
    pools: tuple[PoolRow, ...]
    links: tuple[LinkRow, ...]
    layers: tuple[LayerRow, ...]
    ops: tuple[OpRow, ...]
    cost: Cost | None
    cost_reason: str
    estimated_inputs: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]
    placed: Placed = field(repr=False, compare=False)
    """What the plots and the trace are drawn from."""
    around: Spread | None = field(default=None, repr=False, compare=False)
    """What the ranges of the step and of its ops come from."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel run --json`` prints it."""
        step = {key: value for key, value in asdict(self.step).items() if value is not None}
        cost_dict = self.cost.to_dict() if self.cost else None
        return {
            "scenario": self.scenario,
            "feasible": self.feasible,
            "reasons": list(self.reasons),
            "step": step,
            "memory": [{**asdict(row), "free_bytes": row.free_bytes} for row in self.memory],
            "pools": [asdict(row) for row in self.pools],
            "links": [
                {
                    "from": r.source,
                    "to": r.target,
                    "bytes": r.bytes,
                    "time_s": r.time_s,
                    "busy_fraction": r.busy_fraction,
                }
                for r in self.links
            ],
            "layers": [asdict(row) for row in self.layers],
            "ops": [asdict(row) for row in self.ops],
            "cost": cost_dict,
            "cost_reason": self.cost_reason,
            "estimated_inputs": list(self.estimated_inputs),
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
            "asked": asked(self.placed.scenario, self.placed.ideal),
            "version": __version__,
        }


@dataclass(frozen=True)
class Placed(OnLaid):
    """The inner objects behind a result."""

    scenario: Scenario
    laid: Laid
    priced: Array
    """(ops, N_OUT) of one micro-batch."""
    timeline: Timeline
    device: Array
    ideal: bool
    host_s: float = 0.0
    """The host's share of the step."""


def assemble(placed: Placed, time: float, host: float, parts: int, around: Spread) -> Result:
    """Everything a reader wants from a priced and scheduled step.

    Parameters
    ----------
    time, host
        Of the step in s, and the host's share of it.
    parts
        Micro-batches of the step.
    """
    scenario, graph = placed.scenario, placed.graph
    rows = memory(graph, scenario.cluster, scenario.workload, ideal=placed.ideal)
    reasons = tuple(dict.fromkeys([*graph.reasons, *misfits(rows, scenario.cluster)]))
    chips = {pool.name: _chip_of(placed, pool.name, host, parts) for pool in scenario.cluster.pools}
    pools = _pools(placed, time, chips)
    step = _step(placed, time, host, parts, around, _bound_of_step(placed, host, pools))
    spent, why = _cost(placed, step, pools, parts)
    warnings, assumptions = warnings_of(scenario, graph, placed.table), assumptions_of(scenario, placed.ideal)
    return Result(
        scenario.name, not reasons, reasons, step, tuple(rows), pools, _links(placed, time, parts, chips),
        _layers(placed, parts), _ops(placed, parts, around), spent, why, _inputs(around), warnings, assumptions, placed,
        around,
    )  # fmt: skip


def _step(placed: Placed, time: float, host: float, parts: int, around: Spread, bound: str) -> Step:
    work = placed.scenario.workload
    per_step = work.speculative.tokens_per_step if work.speculative else 1.0
    tokens = work.batch * (work.new_tokens if work.phase == "prefill" else per_step)
    tpot = None if work.phase == "prefill" else time / per_step
    return Step(
        work.phase, time, time * around.low, time * around.high, None if work.phase == "decode" else time, tpot, tokens,
        tokens / time, 1 / tpot if tpot else work.new_tokens / time, tokens / time / placed.scenario.cluster.chips,
        placed.timeline.makespan_s + host, parts, bound,
    )  # fmt: skip


def _cost(placed: Placed, step: Step, pools: tuple[PoolRow, ...], parts: int) -> tuple[Cost | None, str]:
    scenario = placed.scenario
    busy, prices = {row.pool: row.busy_fraction for row in pools}, scenario.economics
    uses = energy(placed.graph, placed.table, placed.priced, scenario.cluster, prices, busy, step.time_s, parts)
    ends = (step.time_low_s / step.time_s, step.time_high_s / step.time_s)
    work = Work(step.tokens_per_s, scenario.workload.phase, busy, step.time_s, uses, ends)
    return cost(scenario.cluster, work, prices)


def bound_of(op: Op, priced: Array, cluster: Cluster) -> str:
    """What takes longest in one execution: compute, memory:TIER, link or overhead."""
    shares = {
        "compute": priced[c.COMPUTE],
        "memory": priced[c.MEMORY],
        "link": priced[c.WIRE],
        "overhead": priced[c.OVERHEAD],
    }
    name = max(shares, key=lambda key: float(shares[key]))
    return f"memory:{tier_of(op, priced, cluster)}" if name == "memory" else name


def tier_of(op: Op, priced: Array, cluster: Cluster) -> str:
    """Name the memory tier that takes longest in an op."""
    slot = int(priced[c.BOUND_TIER])
    return [tier.tier for tier in cluster.pool(op.pool).chip.memory if tier.cache == (slot < 0)][max(slot, 0)]


def parts_of(priced: Array) -> dict[str, float]:
    """An op's time by bound (s): the longer of compute and memory, links, and the fixed cost on top."""
    longer = "compute" if priced[c.COMPUTE] > priced[c.MEMORY] else "memory"
    found = dict.fromkeys(BOUNDS, 0.0)
    if priced[c.TIME] > 0:
        found[longer] = float(max(priced[c.COMPUTE], priced[c.MEMORY]))
        found["link"] = float(priced[c.WIRE])
        found["overhead"] = float(priced[c.OVERHEAD])
    return found


@dataclass(frozen=True)
class _Chip:
    """One chip of a pool over one step, on its busiest pipeline stage."""

    held: dict[str, float]
    """By bound (s), one thing after the other: what occupies the chip."""
    beside: dict[str, float]
    """By bound (s): what its links do on a lane of their own, hidden or not."""
    wire_s: float
    wire_bytes: float
    """Of all its collectives."""
    floor: dict[str, float]
    """Totals by resource (s), which a physical floor overlaps: compute, memory TIER, link."""

    def total(self) -> float:
        return sum(self.held.values()) + sum(self.beside.values())

    def bound_s(self, time: float, *, ideal: bool) -> dict[str, float]:
        """Share of a step by bound (s); the sum is the step. Links beside compute count as far as compute leaves room."""
        found = dict.fromkeys(BOUNDS, 0.0)
        if ideal:
            key = max(self.floor, key=lambda key: self.floor[key])
            found[key.partition(" ")[0]] = min(time, self.floor[key])
        else:
            room, links = max(0.0, time - sum(self.held.values())), sum(self.beside.values())
            shown = min(1.0, room / links) if links else 0.0
            found = {key: self.held[key] + shown * self.beside[key] for key in BOUNDS}
        return {**found, "idle": max(0.0, time - sum(found.values()))}


def _chip_of(placed: Placed, pool: str, host: float, parts: int) -> _Chip:
    found = []
    for counts in stage_counts(placed.graph):
        held, beside, floor = dict.fromkeys(BOUNDS, 0.0), dict.fromkeys(BOUNDS, 0.0), {"compute": 0.0, "link": 0.0}
        wire = [0.0, 0.0]
        for op, priced in zip(placed.table.ops, placed.priced, strict=True):
            if op.pool != pool or op.kind in ("transfer", "load"):
                continue
            times = executions(placed.graph, op, counts) * parts
            lane = held if lane_of(op, placed.graph.overlap) == pool else beside
            for key, value in parts_of(priced).items():
                lane[key] += value * times
            own = {"compute": priced[c.COMPUTE], f"memory {op.tier}": priced[c.MEMORY], "link": priced[c.WIRE]}
            for key, value in own.items():
                floor[key] = floor.get(key, 0.0) + float(value) * times
            wire = [wire[0] + float(priced[c.WIRE]) * times, wire[1] + float(priced[c.WIRE_BYTES]) * times]
        held["overhead"] += host
        found.append(_Chip(held, beside, wire[0], wire[1], floor))
    return max(found, key=_Chip.total)


def _pools(placed: Placed, time: float, chips: Mapping[str, _Chip]) -> tuple[PoolRow, ...]:
    rows = []
    for pool in placed.scenario.cluster.pools:
        bound_s = chips[pool.name].bound_s(time, ideal=placed.ideal)
        bound = max(bound_s, key=lambda key: bound_s[key]).replace("idle", "dependency")
        busy = min(1.0, sum(bound_s[key] for key in BOUNDS) / time)
        rows.append(PoolRow(pool.name, pool.chip.name, pool.count, busy, bound_s, bound))
    return tuple(rows)


def _links(placed: Placed, time: float, parts: int, chips: Mapping[str, _Chip]) -> tuple[LinkRow, ...]:
    """Ways between pools in total, as they stand in the graph; links inside a pool as its busiest chip sees them."""
    found: dict[tuple[str, str], list[float]] = {}
    for op, priced in zip(placed.table.ops, placed.priced, strict=True):
        if priced[c.WIRE_BYTES] <= 0:
            continue
        if op.kind not in ("transfer", "load"):
            found[op.pool, op.pool] = [chips[op.pool].wire_bytes, chips[op.pool].wire_s]
            continue
        source, target = op.way.split(">")
        times = placed.graph.segment(op.segment).count * op.repeats.value({}) * parts
        # loads are priced per receiving chip, shown in total
        receivers = placed.scenario.cluster.pool(target).count if op.kind == "load" else 1
        total = found.setdefault((source, target), [0.0, 0.0])
        total[0] += float(priced[c.WIRE_BYTES]) * times * receivers
        total[1] += float(priced[c.WIRE]) * times
    return tuple(LinkRow(a, b, sent, busy, min(1.0, busy / time)) for (a, b), (sent, busy) in found.items())


def _bound_of_step(placed: Placed, host: float, pools: tuple[PoolRow, ...]) -> str:
    """What most of a micro-batch's way through all layers is: its ops one after the other, by bound.

    Of a physical floor, what the busiest chip is bound by; where that is a tier, the one that the longest ops read.
    """
    total: dict[str, float] = {"overhead": host}
    for op, priced in zip(placed.table.ops, placed.priced, strict=True):
        times = placed.graph.segment(op.segment).count * op.repeats.value({})
        for key, value in parts_of(priced).items():
            if value > 0:
                name = f"memory:{tier_of(op, priced, placed.scenario.cluster)}" if key == "memory" else key
                total[name] = total.get(name, 0.0) + value * times
    if placed.ideal:
        busiest = max(pools, key=lambda row: row.busy_fraction).bound
        total = {name: value for name, value in total.items() if name.partition(":")[0] == busiest} or {busiest: 0.0}
    return max(total, key=lambda name: total[name])


def _layers(placed: Placed, parts: int) -> tuple[LayerRow, ...]:
    total: dict[str, dict[str, float]] = {}
    for op, priced in zip(placed.table.ops, placed.priced, strict=True):
        kinds = total.setdefault(op.segment, {})
        name = bound_of(op, priced, placed.scenario.cluster)
        kinds[name] = kinds.get(name, 0.0) + float(priced[c.TIME]) * op.repeats.value({}) * parts
    rows = []
    index = 0
    runs: list[tuple[int, int]] = []
    for segment in placed.graph.sequence:
        if runs and runs[-1][0] == segment:
            runs[-1] = (segment, runs[-1][1] + 1)
        else:
            runs.append((segment, 1))
    for position, count in runs:
        segment_ = placed.graph.segments[position]
        kinds = total[segment_.name]
        rows.append(LayerRow(index, count, segment_.kind, sum(kinds.values()), max(kinds, key=lambda key: kinds[key])))
        index += count
    return tuple(rows)


def _ops(placed: Placed, parts: int, around: Spread) -> tuple[OpRow, ...]:
    rows = []
    for position, (op, priced) in enumerate(zip(placed.table.ops, placed.priced, strict=True)):
        segment = placed.graph.segment(op.segment)
        moved = priced[c.WEIGHT_BYTES] + priced[c.KV_BYTES] + priced[c.ACTIVATION_BYTES] + priced[c.WIRE_BYTES]
        time = float(priced[c.TIME])
        rows.append(
            OpRow(
                op.name, segment.kind, op.pool, op.kind, segment.count * op.repeats.value({}) * parts, float(priced[c.FLOPS]),
                float(moved), time, time * float(around.op_low[position]), time * float(around.op_high[position]),
                bound_of(op, priced, placed.scenario.cluster), op.note,
            )
        )  # fmt: skip
    return tuple(rows)


def _inputs(around: Spread) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"input": item.path, "status": item.status, "source": item.source, "effect_on_time": item.effect}
        for item in around.inputs
    )
