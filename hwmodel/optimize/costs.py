"""The best placement of a scenario's op classes over its pools, all layers of a kind alike.

The objective is the latency of one step with one micro-batch, one op after another: the sum over all ops and transfers.
What runs beside something else (the shared expert while tokens travel) is counted in full, so that `run` of the same plan
takes at most this long, host time aside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hwmodel.graph import Op, OpGraph
from hwmodel.optimize.placement import Edge, Placement, Problem, solve
from hwmodel.optimize.pricing import Prices, prices
from hwmodel.optimize.problem import Array
from hwmodel.scenario import Scenario

WHOLE = ("attention", "experts")
"""Roles whose ops stay together: beside the tensors of the graph, keys, values and token-expert pairs pass inside them.
So does an elementwise op that leaves more than it is sent (the choice of experts leaves the token itself)."""


@dataclass(frozen=True)
class BestPlacement:
    """Where everything goes."""

    placement: Placement
    """Objective, method, bound and gap; `device` by position in `problem.ops`."""
    problem: Problem
    classes: Mapping[str, str]
    """Device of each op class, named by layer kind and role ("mla+moe experts"); several joined by " + "; empty when nothing
    fits. A device is a pool, or ``A<B``: computed on pool A with weights that lie on pool B."""
    notes: tuple[str, ...]

    def device(self, op: str) -> str:
        """Device of an op of the lowered graph, such as ``layer3.experts_up``."""
        return self.problem.devices[self.placement.device[self.problem.ops.index(op)]]


def best_placement(scenario: Scenario, *, capacity: bool = True) -> BestPlacement:
    """The placement of least latency, proved.

    Parameters
    ----------
    capacity
        Whether weights and caches must fit the main memory of the chips they are placed on.

    Raises
    ------
    InputError
        When the plan has strategies other than those that shard a pool or place ops.
    """
    found = prices(scenario)
    problem = assignment(found, capacity=capacity)
    placement = solve(problem)
    classes: dict[str, dict[str, None]] = {}
    if placement.feasible:
        known = {name: problem.devices[device] for name, device in zip(problem.ops, placement.device, strict=True)}
        for op in found.graph.ops():
            classes.setdefault(class_of(found.graph, op), {})[known[op.name]] = None
    return BestPlacement(placement, problem, {key: " + ".join(value) for key, value in classes.items()}, found.notes)


def class_of(graph: OpGraph, op: Op) -> str:
    """The class that an op is placed with: the kind of its layer and its role."""
    kind = graph.segment(op.segment).kind
    return kind if kind == op.role else f"{kind} {op.role}"


def assignment(found: Prices, *, capacity: bool = True) -> Problem:
    """The problem whose ops are those of one layer of each kind, counted as often as the kind occurs.

    A tensor that several ops read is sent to another pool once: it has an op of its own without cost, named ``OP.out``
    (``SEGMENT.in`` for what a layer reads), from which its readers take it.
    """
    tensors = _Tensors(found)
    graph = found.graph
    seconds = {op.name: tensors.seconds(op) for op in graph.ops()}
    count = {op.name: float(graph.segment(op.segment).count) for op in graph.ops()}
    edges: list[tuple[str, str, Array, float]] = []

    def send(source: str, readers: list[str], times: float, name: str) -> None:
        """From an op to the readers of its output in the same layer, or in the one above."""
        if len(readers) > 1:
            seconds.setdefault(name, np.zeros(len(tensors.devices)))
            count[name] = 1.0
            edges.append((source, name, tensors.between(source, ""), times))
            edges.extend((name, reader, tensors.between(source, reader), times) for reader in readers)
        else:
            edges.extend((source, reader, tensors.between(source, reader), times) for reader in readers)

    for op in graph.ops():
        inside = [name for name in graph.readers(op.name) if graph.op(name).segment == op.segment]
        send(op.name, inside, count[op.name], f"{op.name}.out")
    for (below, above), times in borders(graph).items():
        end = graph.borders()[below][1].name
        first = [op.name for op in graph.ops(lambda op, above=above: op.segment == above) if not _inputs(graph, op)]  # type: ignore[misc]
        send(end, [name for name in first if name != end], float(times), f"{above}.in")
    edges += [(one, other, tensors.between(one, ""), count[one]) for one, other in residuals(graph)]
    edges += [(one, other, tensors.together, 1.0) for one, other in shared(graph)]
    place = {name: index for index, name in enumerate(seconds)}
    held = np.array([tensors.bytes(name) for name in seconds])
    return Problem(
        tuple(seconds), tensors.devices, np.array(list(seconds.values())),
        tuple(Edge(place[one], place[other], cost, times) for one, other, cost, times in edges),
        np.array([count[name] for name in seconds]), held,
        np.array([pool.capacity_bytes if capacity else np.inf for pool in found.pools]), tensors.memory,
    )  # fmt: skip


def borders(graph: OpGraph) -> Counter[tuple[str, str]]:
    """How often a layer of one segment follows one of another (or of its own), what stands around the layers included."""
    names = [graph.segments[index].name for index in graph.sequence]
    before = [segment.name for segment in graph.segments if segment.name == "embedding"]
    behind = [s.name for s in graph.segments if s.first < 0 and s.name != "embedding" for _ in range(s.count)]
    return Counter(pairwise([*before, *names, *behind]))


def residuals(graph: OpGraph) -> list[tuple[str, str]]:
    """Norms of one layer that pass the residual stream on beside the block between them."""
    norms = [op for op in graph.ops(lambda op: op.role == "norm") if graph.segment(op.segment).first >= 0]
    return [(one.name, other.name) for one, other in pairwise(norms) if one.segment == other.segment]


def shared(graph: OpGraph) -> list[tuple[str, str]]:
    """Output matrices without weights of their own, and the op that holds them: tied embeddings, drafts that use the head."""
    heads = [op for op in graph.ops(lambda op: op.role == "head" and op.kind == "gemm")]
    tables = [op for op in graph.ops(lambda op: op.role == "embedding")] + heads
    owner = next((op for op in reversed(tables) if op.stored), None)
    return [(owner.name, op.name) for op in heads if owner is not None and not op.stored]


def _inputs(graph: OpGraph, op: Op) -> list[str]:
    """What an op reads of its own layer."""
    return [name for name in graph.inputs(op.name) if graph.op(name).segment == op.segment]


class _Tensors:
    """The arrays of a problem: devices are the pools, then the first pool with experts streamed from each other one."""

    def __init__(self, found: Prices) -> None:
        self.found = found
        self.pools = [pool.name for pool in found.pools]
        ways = list(found.streamed.values())
        self.devices = (*self.pools, *(f"{way.pool}<{way.home}" for way in ways))
        self.works = [*self.pools, *(way.pool for way in ways)]
        """The pool that computes, of each device."""
        self.memory = tuple(self.pools.index(name) for name in [*self.pools, *(way.home for way in ways)])

    def seconds(self, op: Op) -> Array:
        """(devices,) of one execution."""
        own = [pool.seconds[op.name] for pool in self.found.pools]
        return np.array([*own, *(way.seconds.get(op.name, np.inf) for way in self.found.streamed.values())])

    def bytes(self, name: str) -> Array:
        """(devices,) of all executions."""
        own = [pool.bytes.get(name, 0.0) for pool in self.found.pools]
        return np.array([*own, *(way.bytes.get(name, 0.0) for way in self.found.streamed.values())])

    def between(self, source: str, target: str) -> Array:
        """(devices, devices) seconds of the output of `source` on its way to `target` (no one yet when empty)."""
        graph = self.found.graph
        one, other = graph.op(source), graph.op(target) if target else None
        whole = other is not None and self._whole(one, other)
        cost = np.full((len(self.devices), len(self.devices)), np.inf)
        for i, here in enumerate(self.works):
            for j, there in enumerate(self.works):
                if whole and i != j:
                    continue
                if here == there:
                    cost[i, j] = self.found.pools[self.pools.index(here)].exchange.get((source, target), 0.0)
                    continue
                apart = (there, here) if one.role == "experts" else (here, there)
                crossing = self.found.crossing[here, there].get(source, np.inf)
                cost[i, j] = self.found.experts[apart].get((source, target), crossing)
        return cost

    def _whole(self, one: Op, other: Op) -> bool:
        """Whether two ops cannot be parted: see `WHOLE`."""
        if one.segment != other.segment or one.role != other.role:
            return False
        graph = self.found.graph
        sent = sum(graph.op(name).out.value(self.found.symbols) for name in _inputs(graph, other))
        return one.role in WHOLE or (other.kind == "stream" and other.out.value(self.found.symbols) > sent)

    @property
    def together(self) -> Array:
        """(devices, devices): 0 on one pool, inf apart."""
        works = np.array(self.works)
        return np.where(works[:, None] == works[None, :], 0.0, np.inf)
