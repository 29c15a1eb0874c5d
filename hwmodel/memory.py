"""What lies where: weights, caches and activations on one chip of every pool, tier by tier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Cluster, Pool
from hwmodel.spec.units import show
from hwmodel.workload import Workload


@dataclass(frozen=True)
class MemoryRow:
    """One memory tier of one chip of a pool (its fullest pipeline stage)."""

    pool: str
    tier: str
    capacity_bytes: float
    reserve_bytes: float
    """Kept free for the runtime."""
    weights_bytes: float
    kv_bytes: float
    activation_bytes: float

    @property
    def free_bytes(self) -> float:
        """What is left after the reserve; negative when it does not fit."""
        return self.capacity_bytes - self.reserve_bytes - self.weights_bytes - self.kv_bytes - self.activation_bytes


def memory(graph: OpGraph, cluster: Cluster, workload: Workload, *, ideal: bool = False) -> list[MemoryRow]:
    """Bytes per chip and tier, for the pipeline stage that needs most.

    Activations are an estimate: the input and output of the widest op, and the residual stream, of the whole batch; with
    them counts the room that streamed weights need.
    ``ideal`` keeps activations on the chip and reserves nothing.
    """
    return [
        row
        for pool in cluster.pools
        for row in _of_pool(graph, pool, workload, ideal)
    ]  # fmt: skip


def _of_pool(graph: OpGraph, pool: Pool, workload: Workload, ideal: bool) -> list[MemoryRow]:
    tiers = [tier for tier in pool.chip.memory if not tier.cache]
    main = tiers[0].tier
    stages = graph.stages or (tuple(segment.count for segment in graph.segments),)
    totals = []
    for counts in stages:
        times = {segment.name: count for segment, count in zip(graph.segments, counts, strict=True)}
        weights, kv = _resident(graph, pool, workload, times, main)
        totals.append((weights, kv))
    weights, kv = max(totals, key=lambda total: sum(total[0].values()) + sum(total[1].values()))
    activations = 0.0 if ideal else _activations(graph, pool, workload) + _staged(graph, pool, workload)
    return [
        MemoryRow(
            pool.name, tier.tier, float(tier.capacity_bytes), 0.0 if ideal else pool.memory_reserve * tier.capacity_bytes,
            weights.get(tier.tier, 0.0), kv.get(tier.tier, 0.0), activations if tier.tier == main else 0.0,
        )
        for tier in tiers
    ]  # fmt: skip


def _resident(
    graph: OpGraph, pool: Pool, workload: Workload, times: Mapping[str, int], main: str
) -> tuple[dict[str, float], dict[str, float]]:
    """(weights, caches) in bytes by tier on one chip that runs each segment `times`."""
    symbols = graph.symbols(workload.symbols())
    weights: dict[str, float] = {}
    kv: dict[str, float] = {}
    for op in graph.ops():
        once = 1 if op.segment in ("head", "draft") else times[op.segment]  # drafts reuse one module
        if op.segment in ("head", "draft", "embedding"):
            once = min(1, times[op.segment])
        held = sum(stored.bytes(symbols) for stored in op.stored)
        if op.name in graph.homes:  # streamed from another pool, which keeps the weights of all receiving chips
            if graph.homes[op.name] == pool.name:
                whole = sum(
                    stored.elements.exact({}) * stored.copies.exact({}) * stored.bytes_per_element for stored in op.base_stored
                )
                weights[main] = weights.get(main, 0.0) + whole * once / pool.count
            continue
        if op.pool != pool.name:
            continue
        weights[op.tier or main] = weights.get(op.tier or main, 0.0) + held * once
        if op.kept is not None:
            tier = op.kv_tier or main
            kv[tier] = kv.get(tier, 0.0) + cache_bytes(op, symbols, workload) * once
    return weights, kv


def cache_bytes(op: Op, symbols: Mapping[str, float], workload: Workload) -> float:
    """Bytes that the op's layer keeps on one chip for the sequences of its phase."""
    if op.kept is None:
        return 0.0
    windowed = workload.kv_alloc == "windowed"
    context = workload.context if op.phase == "decode" else workload.cached + workload.new_tokens
    context = -(-context // workload.kv_block) * workload.kv_block
    sequences = op.dims["sequences"].value(symbols)
    return sequences * op.kept.bytes_per_sequence(context, symbols, windowed=windowed)


def _activations(graph: OpGraph, pool: Pool, workload: Workload) -> float:
    """Input and output of the widest op plus the residual stream on one chip, whole batch."""
    symbols = graph.symbols(workload.symbols())
    widest = 0.0
    for op in graph.ops(lambda op: op.pool == pool.name and op.kind in ("gemm", "experts")):
        rows = op.dims["m" if op.kind == "gemm" else "tokens"].value(symbols)
        share = op.experts.topk / op.experts.total * op.dims["experts"].value(symbols) if op.experts else 1.0
        groups = op.dims["groups"].value(symbols) if op.kind == "gemm" else 1.0
        wide = op.dims["n"].value(symbols) * op.consts["output_bytes"] + op.dims["k"].value(symbols) * op.consts["input_bytes"]
        widest = max(widest, rows * share * groups * wide)
    residual = max(
        (op.dims["rows"].value(symbols) for op in graph.ops(lambda op: op.pool == pool.name and op.role == "norm")),
        default=0.0,
    )
    return widest + 2 * residual * graph.model.hidden * graph.model.dtype.bytes


def _staged(graph: OpGraph, pool: Pool, workload: Workload) -> float:
    """Room for streamed weights: one layer's share, and the next one's as well when it is fetched ahead."""
    symbols = graph.symbols(workload.symbols())
    rooms: dict[str, float] = {}
    for op in graph.ops(lambda op: op.name in graph.homes and op.pool == pool.name):
        held = sum(stored.bytes(symbols) for stored in op.stored)
        rooms[op.segment] = rooms.get(op.segment, 0.0) + held * (2 if op.note == "prefetch" else 1)
    return max(rooms.values(), default=0.0)


def misfits(rows: list[MemoryRow], cluster: Cluster) -> list[str]:
    """One sentence for each tier that does not hold what the plan puts in it."""
    found = []
    for row in rows:
        if row.free_bytes < 0:
            need = row.weights_bytes + row.kv_bytes + row.activation_bytes
            parts = f"weights {_gb(row.weights_bytes)}, KV {_gb(row.kv_bytes)}, activations {_gb(row.activation_bytes)}"
            kept = f" less {_gb(row.reserve_bytes)} reserve" if row.reserve_bytes else ""
            chip = cluster.pool(row.pool).chip.name
            found.append(
                f"memory: pool {row.pool} needs {_gb(need)} of {row.tier} per chip ({parts}); "
                f"{chip} has {_gb(row.capacity_bytes)}{kept}"
            )
    return found


def _gb(value: float) -> str:
    return show(value, "bytes", 4)
