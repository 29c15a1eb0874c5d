"""Pipeline parallelism: consecutive layers on consecutive groups of chips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from hwmodel.graph import Dim, OpGraph, Stored, Term, size
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Strategy, collective, on, scale_up


class Pipeline(Strategy):
    """Split the layers of a pool into `stages`, of about equal bytes; stages may differ by a layer.

    A pipeline does not shorten a token's way. With `micro_batches` (one per stage when 0) all stages work at once.
    """

    kind: ClassVar[str] = "pipeline"
    rank: ClassVar[int] = 50

    stages: Annotated[int, Field(ge=1, le=512)]
    """Groups of chips in a row."""
    micro_batches: Annotated[int, Field(ge=0, le=128)] = 0
    """Parts of the batch in flight; 0: as many as stages, at most one sequence each."""
    pool: str = ""
    """Pool it applies to; the first when empty."""

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """The pool's pipeline degree."""
        return {f"{self.pool or cluster.pools[0].name}.pp": self.stages}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Cut the sequence of layers and add the hop between stages."""
        if self.stages == 1:
            return
        pool = self.pool or cluster.pools[0].name
        layers = len(graph.sequence)
        if self.stages > layers:
            graph.reasons.append(f"pool {pool}: {self.stages} pipeline stages for {layers} layers; use at most {layers}")
            return
        weight = _bytes_by_segment(graph)
        edge = {name: sum(weight[i] for i, s in enumerate(graph.segments) if s.name == name) for name in ("embedding", "head")}
        sizes = [weight[index] for index in graph.sequence]
        cuts = balanced(sizes, self.stages, edge["embedding"], edge["head"])
        graph.stages = tuple(_counts(graph, first, last, self.stages, number) for number, (first, last) in enumerate(cuts))
        graph.pipeline_batches = self.micro_batches or min(self.stages, 128)
        self._hops(graph, cluster, pool)

    def _hops(self, graph: OpGraph, cluster: Cluster, pool: str) -> None:
        """One message from each stage to the next: over the scale-up link, or the next link where its domain ends."""
        stage = graph.degrees[f"{pool}.tp"] * graph.degrees[f"{pool}.cp"]
        near = scale_up(graph, cluster, pool, self.stages * stage)
        links = cluster.pool(pool).chip.links
        far = -(-self.stages * stage // links[0].domain) - 1 if len(links) > 1 else 0
        far = min(far, self.stages - 1)
        for end in [op for op in graph.ops(on(pool)) if op.segment == "embedding"][-1:]:
            for name, link, count in (("hop", near, self.stages - 1 - far), ("hop_far", links[1].name if far else "", far)):
                if count:
                    hop = collective(name, "p2p", end.out.by(f"{pool}.tp", -1), size(2), end.out_bytes, end, link, out=end.out,
                                     repeats=Dim((Term(1.0, count),)))  # fmt: skip
                    graph.insert_after(end.name, hop)


def _bytes_by_segment(graph: OpGraph) -> list[float]:
    held: dict[str, list[Stored]] = {}
    for op in graph.ops():
        held.setdefault(op.segment, []).extend(op.stored)
    return [sum(s.bytes(graph.degrees) for s in held.get(segment.name, [])) for segment in graph.segments]


def balanced(sizes: Sequence[float], stages: int, first: float = 0.0, last: float = 0.0) -> list[tuple[int, int]]:
    """Cut `sizes` into `stages` runs of consecutive items so that the largest run is as small as possible.

    `first` and `last` are added to the first and last run. Returns (start, end) index pairs; no run is empty.
    """
    count = len(sizes)
    low = max(*sizes, sizes[0] + first, sizes[-1] + last)
    high = sum(sizes) + first + last
    for _ in range(60):
        middle = (low + high) / 2
        if _runs(sizes, stages, first, last, middle) is None:
            low = middle
        else:
            high = middle
    runs = _runs(sizes, stages, first, last, high * (1 + 1e-12))
    return runs if runs is not None else [(i * count // stages, (i + 1) * count // stages) for i in range(stages)]


def _runs(sizes: Sequence[float], stages: int, first: float, last: float, limit: float) -> list[tuple[int, int]] | None:
    """Runs of at most `limit`, filled greedily while enough items are left for the stages behind; None if impossible."""
    runs = []
    start = 0
    for stage in range(stages):
        total = first if stage == 0 else 0.0
        total += last if stage == stages - 1 else 0.0
        end = start
        while end < len(sizes) and len(sizes) - end > stages - stage - 1 and (end == start or total + sizes[end] <= limit):
            total += sizes[end]
            end += 1
        if end == start or total > limit:
            return None
        runs.append((start, end))
        start = end
    return runs if start == len(sizes) else None


def _counts(graph: OpGraph, first: int, last: int, stages: int, number: int) -> tuple[int, ...]:
    """How often each segment runs in one stage."""
    counts = [0] * len(graph.segments)
    for index in graph.sequence[first:last]:
        counts[index] += 1
    for position, segment in enumerate(graph.segments):
        if segment.first < 0:
            on_first = segment.name == "embedding"
            counts[position] = segment.count if (on_first and number == 0) or (not on_first and number == stages - 1) else 0
    return tuple(counts)
