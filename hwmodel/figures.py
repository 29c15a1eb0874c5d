"""What the pictures of a result show, as plain data: bars, dots, ceilings, windows. Nothing is drawn here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwmodel import __version__
from hwmodel.graph import Op
from hwmodel.kernels import columns as c
from hwmodel.result import Result, bound_of, parts_of
from hwmodel.spec.units import show
from hwmodel.timeline import Event


def title_of(result: Result) -> str:
    """Give the scenario's title, its name when it has none."""
    return result.placed.scenario.title or result.scenario


def footer_of(result: Result) -> str:
    """Say what was asked: model, chips, phase, batch, context, and the version that answered."""
    scenario, work = result.placed.scenario, result.placed.scenario.workload
    chips = " + ".join(f"{pool.name}: {pool.count:,} × {pool.chip.name}" for pool in scenario.cluster.pools)
    said = [scenario.model.name, chips, work.phase, f"batch {work.batch:,}"]
    said += [f"context {work.context:,}"] if work.phase != "prefill" else []
    said += [f"new tokens {work.new_tokens:,}"] if work.phase != "decode" else []
    said += [f"step {show(result.step.time_s, 's', 4)}", "physical floor" if result.placed.ideal else ""]
    return "  ·  ".join([part for part in said if part] + [f"hwmodel {__version__}"])


def short(op: Op) -> str:
    """Drop the segment from an op's name."""
    return op.name.partition(".")[2] or op.name


def unit_of(seconds: float) -> tuple[float, str]:
    """(factor, unit) in which a time of that size is between 1 and 1000."""
    units = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
    return next(((1 / scale, name) for scale, name in units if seconds >= scale), (1e9, "ns"))


def _priced(result: Result) -> list[tuple[Op, Any]]:
    """Every op with its row of prices (`hwmodel.kernels.columns`)."""
    return list(zip(result.placed.table.ops, result.placed.priced, strict=True))


def tier_of(result: Result, op: Op, priced: Any) -> str:
    """Name the memory tier that takes longest in an op."""
    tiers = result.placed.scenario.cluster.pool(op.pool).chip.memory
    slot = int(priced[c.BOUND_TIER])
    return [tier.tier for tier in tiers if tier.cache == (slot < 0)][max(slot, 0)]


def tiers_of(result: Result) -> list[str]:
    """Names of the memory tiers that take longest in some op: the main ones first, caches last."""
    tiers = [tier for pool in result.placed.scenario.cluster.pools for tier in pool.chip.memory]
    ordered = dict.fromkeys(tier.tier for tier in sorted(tiers, key=lambda tier: tier.cache))
    used = {tier_of(result, op, priced) for op, priced in _priced(result) if priced[c.MEMORY] > 0}
    return [name for name in ordered if name in used]


# --- layers -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LayerBar:
    """One layer of a segment, all micro-batches, in s."""

    label: str
    count: int
    by_op: dict[str, float]
    by_bound: dict[str, float]
    share: float
    """Of the step, all `count` layers; of one chip's step in a pipeline."""

    @property
    def time_s(self) -> float:
        """Ops one after the other."""
        return sum(self.by_op.values())


def layer_bars(result: Result, only: str = "") -> list[LayerBar]:
    """Compute what `layers` draws: every segment of the model (or the one named), from the bottom up."""
    graph, found = result.placed.graph, []
    for index, segment in enumerate(graph.segments):
        if only and segment.name != only:
            continue
        by_op: dict[str, float] = {}
        by_bound: dict[str, float] = {}
        for op, priced in _priced(result):
            if op.segment != segment.name or segment.count == 0 or priced[c.TIME] <= 0:
                continue
            times = op.repeats.value({}) * result.step.micro_batches
            by_op[short(op)] = by_op.get(short(op), 0.0) + float(priced[c.TIME]) * times
            for name, seconds in parts_of(priced).items():
                key = f"memory:{tier_of(result, op, priced)}" if name == "memory" else name
                if seconds > 0:
                    by_bound[key] = by_bound.get(key, 0.0) + seconds * times
        if by_op:
            places = [place for place, number in enumerate(graph.sequence) if number == index]
            where = f"\n{_ranges(places)}" if places else ""
            share = sum(by_op.values()) * segment.count / max(1, len(graph.stages)) / result.step.time_s
            found.append(LayerBar(f"{segment.kind}{where}", segment.count, by_op, by_bound, share))
    return found


def _ranges(places: Sequence[int]) -> str:
    """``layers 0-2``; the first few runs of a long list."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    said = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs[:3]) + (", …" if len(runs) > 3 else "")
    return f"layer {said}" if len(places) == 1 else f"layers {said}"


# --- roofline ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dot:
    """An op on one chip."""

    op: Op
    intensity: float
    """FLOP per byte that passes the memory tier which takes longest."""
    flops_per_s: float
    share: float
    """Of the step, all executions."""
    bound: str
    tier: str
    dtype: str


def dots(result: Result, pool: str) -> list[Dot]:
    """Compute what `roofline` draws for a pool: every op with matrix FLOP, the costliest first."""
    placed, types = result.placed, {}
    for group in placed.table.groups:
        for at, where in zip(group.rows, group.where, strict=True):
            types[int(at)] = c.DTYPES[int(where[c.DTYPE])]
    found = []
    for row, (op, priced) in enumerate(_priced(result)):
        if op.pool != pool or priced[c.FLOPS] <= 0 or priced[c.TIME] <= 0:
            continue
        flops, seconds, moved = float(priced[c.FLOPS]), float(priced[c.TIME]), bytes_through(result, op, priced)
        times = op.repeats.value({}) * placed.graph.segment(op.segment).count * result.step.micro_batches
        share = seconds * times / max(1, len(placed.graph.stages)) / result.step.time_s
        bound, tier = bound_of(op, priced, placed.scenario.cluster), tier_of(result, op, priced)
        found.append(Dot(op, flops / moved if moved else math.inf, flops / seconds, share, bound, tier, types[row]))
    return sorted(found, key=lambda dot: -dot.share)


def bytes_through(result: Result, op: Op, priced: Any) -> float:
    """Bytes of an op through the tier that takes longest: all of them in a cache; activations that fit it stay."""
    weights, kv, activations = (float(priced[at]) for at in (c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES))
    if priced[c.BOUND_TIER] < 0:
        return weights + kv + activations
    device = result.placed.device[0, result.placed.table.device_rows.index(op.pool)]
    if activations <= device[c.CACHE_BYTES] or device[c.FREE_ACTIVATIONS] == 1:
        activations = 0.0
    main, tier = result.placed.scenario.cluster.pool(op.pool).chip.main.tier, tier_of(result, op, priced)
    return (weights + activations) * ((op.tier or main) == tier) + kv * ((op.kv_tier or main) == tier)


def ceilings(result: Result, pool: str) -> tuple[dict[str, float], dict[str, float]]:
    """(bandwidth in B/s by memory tier, peak in FLOP/s by dtype in use) of one chip of a pool, as its file has them."""
    chip = result.placed.scenario.cluster.pool(pool).chip
    used = {dot.dtype for dot in dots(result, pool)}
    peaks = {name: float(peak) for name, peak in chip.peaks.by_dtype().items() if name in used}
    return {tier.tier: float(tier.bandwidth_bytes_per_s) for tier in chip.memory}, peaks


# --- memory -----------------------------------------------------------------------------------------------------------
def memory_bars(result: Result) -> list[tuple[str, float, dict[str, float]]]:
    """Compute what `memory` draws: (label, capacity in bytes, bytes by use) of every tier; free is never negative."""
    return [
        (
            f"{row.pool} · {row.tier}\n{show(row.capacity_bytes, 'bytes', 4)} per chip",
            row.capacity_bytes,
            {
                "weights": row.weights_bytes,
                "KV": row.kv_bytes,
                "activations": row.activation_bytes,
                "reserve": row.reserve_bytes,
                "free": max(0.0, row.free_bytes),
            },
        )
        for row in result.memory
    ]


def cut_off(stack: Mapping[str, float], end: float) -> dict[str, float]:
    """Cut a stack off at `end`."""
    found, left = {}, end
    for name, value in stack.items():
        found[name] = min(value, left)
        left -= found[name]
    return found


# --- timeline ---------------------------------------------------------------------------------------------------------
def window(result: Result, count: int = 3) -> tuple[float, float, list[Event]]:
    """(start, end, events) that `timeline` draws: `count` layers from the middle; all of a short or pipelined step."""
    line = result.placed.timeline
    events = [event for event in line.events() if event.finish_s > event.start_s]
    depth = 1 + max(event.layer for event in events)
    if line.program.stages > 1 or depth <= count + 2:
        return 0.0, max(event.finish_s for event in events), events
    first = (depth - count) // 2
    chosen = [event for event in events if first <= event.layer < first + count]
    start, end = min(event.start_s for event in chosen), max(event.finish_s for event in chosen)
    return start, end, [event for event in events if event.finish_s > start and event.start_s < end]


def lanes_of(result: Result) -> list[tuple[str, int]]:
    """(lane, pipeline stage) from top to bottom: each pool, its links, the ways that leave it."""
    program = result.placed.timeline.program
    order = [pool.name for pool in result.placed.scenario.cluster.pools]

    def rank(lane: str) -> tuple[int, int]:
        pool = re.split(r"[<>]|\.link", lane.removeprefix("load:"))[0]
        place = order.index(pool) if pool in order else len(order)
        return place, ("<" in lane or ">" in lane) * 2 + lane.endswith(".link")

    return [(lane, stage) for stage in range(program.stages) for lane in sorted(program.lanes, key=rank)]
