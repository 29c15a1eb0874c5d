"""Whole layers on different pools, in order from the bottom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

from hwmodel.graph import OpGraph, Segment
from hwmodel.hardware import Cluster
from hwmodel.model.block import Size
from hwmodel.partition.strategy import Strategy, transfer


class Layers(Strategy):
    """Give the first layers to the first pool named, the next ones to the next, and so on.

    The embedding stays with the first layers, the head goes with the last.
    """

    kind: ClassVar[str] = "layers"
    rank: ClassVar[int] = 5

    split: dict[str, Size]
    """Layers of each pool, in order; their sum is the model's layer count."""

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Cut the segments at pool borders and put a transfer on each border."""
        total = len(graph.sequence)
        if sum(self.split.values()) != total:
            graph.reasons.append(f"layers: the split adds up to {sum(self.split.values())} layers, the model has {total}")
            return
        pools = [cluster.pool(name).name for name, count in self.split.items() for _ in range(count)]
        owners = [(index, pool) for index, pool in zip(graph.sequence, pools, strict=True)]
        _divide(graph, owners)
        last = pools[-1]
        graph.each(lambda op: graph.segment(op.segment).name in ("head", "draft"), lambda op: replace(op, pool=last))
        _join(graph, cluster)


def _divide(graph: OpGraph, owners: list[tuple[int, str]]) -> None:
    """One segment per (layer kind, pool): ops of a kind that several pools share are copied."""
    segments = list(graph.segments)
    made: dict[tuple[int, str], int] = {}
    for index, pool in dict.fromkeys(owners):
        count = owners.count((index, pool))
        first = owners.index((index, pool))
        old = graph.segments[index]
        if not any(key[0] == index for key in made):
            made[(index, pool)] = index
            segments[index] = replace(old, count=count)
            for op in graph.ops():
                if op.segment == old.name:
                    graph.put(replace(op, pool=pool))
            continue
        name = f"layer{first}"
        made[(index, pool)] = len(segments)
        segments.append(Segment(name, count, old.kind, first))
        _copy(graph, old.name, name, pool)
    graph.sequence = tuple(made[owner] for owner in owners)
    graph.segments = tuple(segments)


def _copy(graph: OpGraph, old: str, new: str, pool: str) -> None:
    names = {}
    for op in graph.ops(lambda op: op.segment == old):
        names[op.name] = f"{new}.{op.name.removeprefix(old + '.')}"
        inputs = [names[source] for source in graph.inputs(op.name) if source in names]
        graph.add(replace(op, name=names[op.name], segment=new, pool=pool), inputs)


def _join(graph: OpGraph, cluster: Cluster) -> None:
    """A transfer at every border between consecutive layers of different pools; it runs once per step."""
    for source, target in list(graph.nx.edges):
        if graph.op(source).pool != graph.op(target).pool:  # the chain of layer kinds as it was lowered
            graph.disconnect(source, target)
    borders = graph.borders()
    names = [graph.segments[index].name for index in graph.sequence]
    for lower, upper in pairwise([*names, "head"]):
        source, target = borders[lower][1], borders[upper][0]
        crosses = source.pool != target.pool
        if lower == upper or not (crosses or upper == "head") or graph.nx.has_edge(source.name, target.name):
            continue
        graph.connect(source.name, target.name)
        if crosses:
            name = f"{source.name}>{target.segment}"
            transfer(graph, cluster, name, source.name, target.name, source.out, source.out_bytes)
            graph.put(replace(graph.op(name), segment="embedding"))
