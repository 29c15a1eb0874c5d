"""From prices to a placement problem: the ops of one layer of each kind, or of every layer by itself."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise

import numpy as np

from hwmodel.graph import Op, OpGraph
from hwmodel.optimize.pricing import Prices
from hwmodel.optimize.problem import Array, Edge, Problem, Run, Stack

WHOLE = ("attention", "experts")
"""Roles whose ops stay together: beside the tensors of the graph, keys, values and token-expert pairs pass inside them.
So does an elementwise op that leaves more than it is sent (the choice of experts leaves the token itself)."""


def assignment(found: Prices, *, capacity: bool = True) -> Problem:
    """The problem whose ops are those of one layer of each kind, counted as often as the kind occurs.

    A tensor that several ops read is sent to another pool once: it has an op of its own without cost, named ``OP.out``
    (``SEGMENT.in`` for what a layer reads), from which its readers take it.
    """
    graph = found.graph
    net = _Net(found)
    for op in graph.ops():
        net.add(op, graph.segment(op.segment).count)
    for op in graph.ops():
        net.send(op.name, op.name, _readers(graph, op), net.count[op.name], f"{op.name}.out")
    ends = graph.borders()
    for (below, above), times in Counter(pairwise(names(graph))).items():
        end = ends[below][1].name
        net.send(end, end, [name for name in _entries(graph, above) if name != end], float(times), f"{above}.in")
    for one, other in residuals(graph):
        net.edges.append((one, other, net.tensors.between(one, ""), net.count[one]))
    for one, other in shared(graph):
        net.edges.append((one, other, net.tensors.together, 1.0))
    return net.problem(_capacity(found, capacity))


def stack(found: Prices, *, capacity: bool = True) -> Stack:
    """The problem whose layers are each placed by themselves, named ``OP``, with ``in`` for what a layer reads."""
    graph = found.graph
    order = [("", names(graph)[0]), *pairwise(names(graph))]
    runs = []
    for (below, segment), equal in groupby(order):
        net = _Net(found)
        net.seconds["in"], net.count["in"] = np.zeros(len(net.tensors.devices)), 1.0
        ops = graph.ops(lambda op, segment=segment: op.segment == segment)  # type: ignore[misc]
        for op in ops:
            net.add(op, 1.0, 1.0 / graph.segment(segment).count)
        if below:
            net.send("in", graph.borders()[below][1].name, _entries(graph, segment), 1.0, "in.out")
        for op in ops:
            net.send(op.name, op.name, _readers(graph, op), 1.0, f"{op.name}.out")
        for one, other in residuals(graph):
            if one in net.seconds:
                net.edges.append((one, other, net.tensors.between(one, ""), 1.0))
        layer = net.problem(np.zeros(0))
        last = layer.ops.index(graph.borders()[segment][1].name)
        runs.append(Run(layer, len(list(equal)), 0, last))
    return Stack(tuple(runs), _capacity(found, capacity))


def _capacity(found: Prices, bounded: bool) -> Array:
    return np.array([pool.capacity_bytes if bounded else np.inf for pool in found.pools])


def names(graph: OpGraph) -> list[str]:
    """Segments in the order in which a step runs them: embedding, layers from the bottom up, head, drafts."""
    before = [segment.name for segment in graph.segments if segment.name == "embedding"]
    behind = [s.name for s in graph.segments if s.first < 0 and s.name != "embedding" for _ in range(s.count)]
    return [*before, *(graph.segments[index].name for index in graph.sequence), *behind]


def residuals(graph: OpGraph) -> list[tuple[str, str]]:
    """Norms of one layer that pass the residual stream on beside the block between them."""
    norms = [op for op in graph.ops(lambda op: op.role == "norm") if graph.segment(op.segment).first >= 0]
    return [(one.name, other.name) for one, other in pairwise(norms) if one.segment == other.segment]


def shared(graph: OpGraph) -> list[tuple[str, str]]:
    """Output matrices without weights of their own, and the op that holds them: tied embeddings, drafts that use the head."""
    heads = graph.ops(lambda op: op.role == "head" and op.kind == "gemm")
    tables = [*graph.ops(lambda op: op.role == "embedding"), *heads]
    owner = next((op for op in reversed(tables) if op.stored), None)
    return [(owner.name, op.name) for op in heads if owner is not None and not op.stored]


def _inputs(graph: OpGraph, op: Op) -> list[str]:
    """What an op reads of its own layer."""
    return [name for name in graph.inputs(op.name) if graph.op(name).segment == op.segment]


def _readers(graph: OpGraph, op: Op) -> list[str]:
    """What reads an op's output in its own layer."""
    return [name for name in graph.readers(op.name) if graph.op(name).segment == op.segment]


def _entries(graph: OpGraph, segment: str) -> list[str]:
    """The ops that read what the layer below leaves."""
    return [op.name for op in graph.ops(lambda op: op.segment == segment) if not _inputs(graph, op)]


class _Net:
    """Ops and tensors of a problem as it is put together."""

    def __init__(self, found: Prices) -> None:
        self.tensors = _Tensors(found)
        self.seconds: dict[str, Array] = {}
        self.count: dict[str, float] = {}
        self.bytes: dict[str, Array] = {}
        self.edges: list[tuple[str, str, Array, float]] = []

    def add(self, op: Op, count: float, share: float = 1.0) -> None:
        """An op of the model, with a share of the bytes of all its executions."""
        self.seconds[op.name], self.count[op.name] = self.tensors.seconds(op), float(count)
        self.bytes[op.name] = self.tensors.bytes(op.name) * share

    def send(self, start: str, tensor: str, readers: list[str], times: float, name: str) -> None:
        """From an op that has the output of `tensor` to its readers; over an op called `name` when there are several."""
        if len(readers) > 1:
            self.seconds.setdefault(name, np.zeros(len(self.tensors.devices)))
            self.count[name] = 1.0
            self.edges.append((start, name, self.tensors.between(tensor, ""), times))
            start = name
        self.edges += [(start, reader, self.tensors.between(tensor, reader), times) for reader in readers]

    def problem(self, capacity: Array) -> Problem:
        """All of it."""
        place = {name: index for index, name in enumerate(self.seconds)}
        none = np.zeros(len(self.tensors.devices))
        return Problem(
            tuple(place), self.tensors.devices, np.array(list(self.seconds.values())),
            tuple(Edge(place[one], place[other], cost, times) for one, other, cost, times in self.edges),
            np.array([self.count[name] for name in place]), np.array([self.bytes.get(name, none) for name in place]), capacity,
            self.tensors.memory,
        )  # fmt: skip


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
