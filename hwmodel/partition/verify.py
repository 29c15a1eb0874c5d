"""What must hold after every strategy: work and weights are conserved, every crossing edge has a transfer."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx

from hwmodel.graph import TOKEN_AXES, WORKLOAD, Op, OpGraph, Segment
from hwmodel.partition.strategy import Strategy
from hwmodel.spec.errors import InternalError


@dataclass(frozen=True)
class Totals:
    """What a graph computes, stores and keeps, before any division: what no strategy may change."""

    work: Mapping[str, float]
    weights: Mapping[str, float]
    cache: Mapping[str, float]


def totals(graph: OpGraph) -> Totals:
    """Measure a graph with every degree and every size of the workload at 1."""
    ones = dict.fromkeys((*WORKLOAD, *graph.degrees), 1.0)
    return Totals(_work(graph, ones), _weights(graph, ones), _cache(graph, ones))


def verify(graph: OpGraph, before: Totals, after: Strategy) -> None:
    """Check the invariants of a placed graph against the totals of the lowered one.

    * work, stored weights and caches, before division by degrees, are those of the lowered graph;
    * each size on an axis is divided once by each degree that the op says it was sharded by, and by no other;
    * every op is placed once, on a pool;
    * an edge between pools goes through a transfer or a load;
    * the graph has no cycle.

    Raises
    ------
    InternalError
        A strategy broke one of them; never the user's fault.
    """
    who = f"strategy '{after.kind}'"
    if not nx.is_directed_acyclic_graph(graph.nx):
        raise InternalError(f"{who} left a cycle in the graph")
    now = totals(graph)
    _same(before.work, now.work, f"{who}: work of")
    _same(before.weights, now.weights, f"{who}: weights of")
    _same(before.cache, now.cache, f"{who}: cache of")
    for op in graph.ops():
        if not op.pool:
            raise InternalError(f"{who}: op {op.name} is on no pool")
        if op.role != "communication":
            _divided(op, graph, who)
    for name, (start, end) in graph.borders().items():
        if graph.segment(name).first >= 0 and end.delivers != start.pool:
            raise InternalError(f"{who}: layers of {name} end on {end.delivers} and start on {start.pool} without a transfer")
    for source, target in graph.nx.edges:
        first, second = graph.op(source), graph.op(target)
        if first.pool != second.pool and "transfer" not in (first.kind, second.kind) and first.segment == second.segment:
            raise InternalError(f"{who}: {source} -> {target} crosses from {first.pool} to {second.pool} without a transfer")


def _local(op: Op) -> str:
    """The op's name without its segment, parts of a split op under one name."""
    return op.name.partition(".")[2].removesuffix("_outside")


def _count(graph: OpGraph, op: Op) -> float:
    segment: Segment = graph.segment(op.segment)
    return float(segment.count)


def _divided(op: Op, graph: OpGraph, who: str) -> None:
    sizes = [*op.dims.values(), *(s.elements for s in op.stored), *(s.copies for s in op.stored)]
    for number, dim in enumerate(sizes):
        for term in dim.terms:
            own = (*term.axes, *term.each_axes)
            shards = {d for axis, d in op.shards if axis in own and (number < len(op.dims) or axis not in TOKEN_AXES)}
            found = {name: power for name, power in (*term.powers, *term.each) if name in graph.degrees}
            splits = {name for name, power in found.items() if power == 1 and ("context", name) in op.shards}
            if {name for name in found if name not in splits} != shards or any(found[name] != -1 for name in shards):
                raise InternalError(f"{who}: {op.name}: {dim} is divided by {found}, declared are {sorted(shards)}")


def _work(graph: OpGraph, symbols: Mapping[str, float]) -> dict[str, float]:
    """Product of the dims by op, communication aside."""
    total: dict[str, float] = defaultdict(float)
    for op in graph.ops():
        if op.role != "communication":
            total[_local(op)] += _count(graph, op) * math.prod(dim.exact(symbols) or 1.0 for dim in op.dims.values())
    return dict(total)


def _weights(graph: OpGraph, symbols: Mapping[str, float]) -> dict[str, float]:
    """Stored elements by module, declared copies of experts aside; loads stand for the ops they feed."""
    total: dict[str, float] = defaultdict(float)
    for op in graph.ops():
        copied = op.experts.slots / op.experts.held if op.experts else 1.0
        for stored in op.stored:
            total[stored.module] += _count(graph, op) / copied * stored.elements.exact(symbols) * stored.copies.exact(symbols)
    return dict(total)


def _cache(graph: OpGraph, symbols: Mapping[str, float]) -> dict[str, float]:
    """What sequences keep, by op: elements per token and bytes of state."""
    total: dict[str, float] = defaultdict(float)
    for op in graph.ops():
        if op.kept is not None:
            kept = op.kept
            elements = (kept.token_elements.exact(symbols) + kept.window_elements.exact(symbols)) / kept.split.exact(symbols)
            total[_local(op)] += _count(graph, op) * (elements + kept.state_bytes.exact(symbols))
    return dict(total)


def _same(before: Mapping[str, float], now: Mapping[str, float], what: str) -> None:
    for name in before.keys() | now.keys():
        first, second = before.get(name, 0.0), now.get(name, 0.0)
        if not math.isclose(first, second, rel_tol=1e-9):
            raise InternalError(f"{what} {name} changed from {first:.12g} to {second:.12g}")
