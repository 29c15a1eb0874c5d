"""What lies where on one chip of every pool, at many points: the law of `hwmodel.memory` with its constants taken out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwmodel.graph import WORKLOAD, Dim, OpGraph
from hwmodel.hardware import Pool
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InternalError
from hwmodel.sweep.numbers import Numbers
from hwmodel.timing import Array


@dataclass(frozen=True)
class Cache:
    """Caches of one kind on one tier: sequences x (per_token x context + per_held x min(context, window) + fixed) bytes."""

    sequences: int
    """Which size."""
    decode: bool
    window: float
    tier: int
    per_token: Array
    """(stages,), as the others."""
    per_held: Array
    fixed: Array


@dataclass(frozen=True)
class PoolFootprint:
    """The constants of one pool."""

    pool: str
    tiers: tuple[str, ...]
    capacity: tuple[float, ...]
    weights: Array
    """(stages, tiers) B."""
    homes: Array
    """(stages,) B that the whole pool keeps for others, on the main tier."""
    caches: tuple[Cache, ...]
    widest: tuple[tuple[int, float], ...]
    """(size, bytes of its unit) of inputs and outputs; the largest counts."""
    residual: tuple[int, ...]
    residual_bytes: float
    staged: float


@dataclass(frozen=True)
class Footprint:
    """The constants of a structure; `sizes` are resolved with the symbols of the whole batch."""

    pools: tuple[PoolFootprint, ...]
    sizes: tuple[Dim, ...]


def footprint(graph: OpGraph, scenario: Scenario) -> Footprint:
    """Take the constants of a placed graph.

    Raises
    ------
    InternalError
        Where an op's width depends on the workload: no such op is known.
    """
    sizes: dict[Dim, int] = {}
    return Footprint(tuple(_of_pool(graph, scenario, pool, sizes) for pool in scenario.cluster.pools), tuple(sizes))


def _constant(dim: Dim, graph: OpGraph) -> float:
    if dim.symbols & set(WORKLOAD) or any(name.endswith((".dp", ".edp")) for name in dim.symbols):
        raise InternalError(f"a width that depends on the workload: {dim}")
    return dim.value(graph.degrees)


def _of_pool(graph: OpGraph, scenario: Scenario, pool: Pool, sizes: dict[Dim, int]) -> PoolFootprint:
    tiers = [tier for tier in pool.chip.memory if not tier.cache]
    names = [tier.tier for tier in tiers]
    main = names[0]
    stages = graph.stages or (tuple(segment.count for segment in graph.segments),)
    times = [{segment.name: count for segment, count in zip(graph.segments, counts, strict=True)} for counts in stages]
    weights, homes = np.zeros((len(stages), len(tiers))), np.zeros(len(stages))
    caches: dict[tuple[int, bool, float, int], Array] = {}
    for op in graph.ops():
        once = np.array([1 if op.segment in ("head", "draft") else each[op.segment] for each in times], dtype=float)
        if op.segment in ("head", "draft", "embedding"):
            once = np.array([min(1, each[op.segment]) for each in times], dtype=float)
        if op.name in graph.homes:
            if graph.homes[op.name] == pool.name:
                homes += once * sum(s.elements.exact({}) * s.copies.exact({}) * s.bytes_per_element for s in op.base_stored)
            continue
        if op.pool != pool.name:
            continue
        held = sum(_constant(s.elements, graph) * _constant(s.copies, graph) * s.bytes_per_element for s in op.stored)
        weights[:, names.index(op.tier or main)] += held * once
        if op.kept is not None:
            kept = op.kept
            size = sizes.setdefault(op.dims["sequences"], len(sizes))
            each = kept.kv_bytes / _constant(kept.split, graph)
            key = (size, op.phase == "decode", float(kept.window), names.index(op.kv_tier or main))
            law = caches.setdefault(key, np.zeros((3, len(stages))))
            law += np.outer([
                _constant(kept.token_elements, graph) * each, _constant(kept.window_elements, graph) * each,
                _constant(kept.state_bytes, graph),
            ], once)  # fmt: skip
    widest, residual = _activations(graph, pool.name, sizes)
    return PoolFootprint(
        pool.name, tuple(names), tuple(float(tier.capacity_bytes) for tier in tiers), weights, homes,
        tuple(Cache(*key, *law) for key, law in caches.items()), widest, residual,
        2.0 * graph.model.hidden * graph.model.dtype.bytes, _staged(graph, pool.name),
    )  # fmt: skip


def _activations(graph: OpGraph, pool: str, sizes: dict[Dim, int]) -> tuple[tuple[tuple[int, float], ...], tuple[int, ...]]:
    widest: dict[int, float] = {}
    for op in graph.ops(lambda op: op.pool == pool and op.kind in ("gemm", "experts")):
        size = sizes.setdefault(op.dims["m" if op.kind == "gemm" else "tokens"], len(sizes))
        share = op.experts.topk / op.experts.total * _constant(op.dims["experts"], graph) if op.experts else 1.0
        groups = _constant(op.dims["groups"], graph) if op.kind == "gemm" else 1.0
        n, k = _constant(op.dims["n"], graph), _constant(op.dims["k"], graph)
        wide = share * groups * (n * op.consts["output_bytes"] + k * op.consts["input_bytes"])
        widest[size] = max(widest.get(size, 0.0), wide)
    norms = graph.ops(lambda op: op.pool == pool and op.role == "norm")
    return tuple(widest.items()), tuple(dict.fromkeys(sizes.setdefault(op.dims["rows"], len(sizes)) for op in norms))


def _staged(graph: OpGraph, pool: str) -> float:
    rooms: dict[str, float] = {}
    for op in graph.ops(lambda op: op.name in graph.homes and op.pool == pool):
        held = sum(_constant(s.elements, graph) * _constant(s.copies, graph) * s.bytes_per_element for s in op.stored)
        rooms[op.segment] = rooms.get(op.segment, 0.0) + held * (2 if op.note == "prefetch" else 1)
    return max(rooms.values(), default=0.0)


def held(of: PoolFootprint, sizes: Array, numbers: Numbers, scenario: Scenario) -> tuple[Array, Array, Array]:
    """(weights, caches, activations) in B on one chip of a pool's fullest stage: (tiers, points) twice, (points,).

    sizes : (sizes, points) of the whole batch
    """
    stages = of.weights.shape[0]
    weights = np.repeat(of.weights[:, :, None], numbers.points, axis=2)
    if of.homes.any():
        weights[:, 0] += of.homes[:, None] / numbers.count(of.pool, scenario.cluster)
    kv = np.zeros_like(weights)
    for cache in of.caches:
        context, kept = _context(cache, numbers, scenario)
        law = cache.per_token[:, None] * context + cache.per_held[:, None] * kept + cache.fixed[:, None]
        kv[:, cache.tier] += sizes[cache.sequences] * law
    activations = np.zeros(numbers.points)
    for size, wide in of.widest:
        activations = np.maximum(activations, sizes[size] * wide)
    if of.residual:
        activations = activations + of.residual_bytes * np.max([sizes[size] for size in of.residual], axis=0)
    activations = activations + of.staged
    if stages == 1:
        return weights[0], kv[0], activations
    fullest = (weights.sum(axis=1) + kv.sum(axis=1)).argmax(axis=0)
    weights, kv = (np.take_along_axis(table, fullest[None, None, :], axis=0)[0] for table in (weights, kv))
    return weights, kv, activations


def _context(cache: Cache, numbers: Numbers, scenario: Scenario) -> tuple[Array, Array]:
    """Tokens that a sequence holds, and those of its window."""
    if cache.decode:
        context = numbers.work("context", scenario)
    else:
        context = numbers.work("cached", scenario) + numbers.work("new_tokens", scenario)
    block = scenario.workload.kv_block
    if block > 1:
        context = np.ceil(context / block) * block
    return context, np.minimum(context, cache.window) if scenario.workload.kv_alloc == "windowed" else context
