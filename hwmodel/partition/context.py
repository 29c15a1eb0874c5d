"""Context parallelism: the cached positions of each sequence split over chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from hwmodel.graph import Dim, Op, OpGraph
from hwmodel.hardware import Cluster
from hwmodel.model.block import Size
from hwmodel.partition.strategy import Strategy, collective, degree, on, scale_up


class Context(Strategy):
    """Each chip keeps 1/`degree` of the positions.

    Decode: partial attention results are merged. Prefill: the new tokens are split as well, and keys and values are gathered.
    """

    kind: ClassVar[str] = "context"
    rank: ClassVar[int] = 40

    degree: Size
    """Chips that share the positions of a sequence."""
    pool: str = ""
    """Pool it applies to; the first when empty."""

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """The pool's context degree."""
        return {f"{self.pool or cluster.pools[0].name}.cp": self.degree}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Split the positions and add the exchange."""
        if self.degree == 1:
            return
        pool = self.pool or cluster.pools[0].name
        cp = f"{pool}.cp"
        link = scale_up(graph, cluster, pool, self.degree)
        split = all(op.phase != "decode" for op in graph.ops())
        for op in graph.ops(on(pool)):
            if op.kind.startswith("attention_"):
                graph.put(_split(op, cp))
                self._exchange(graph, op, pool, link, split)
            elif split and op.kind != "scan":
                graph.put(op.shard(("positions",), cp))
            elif cp not in op.copies:
                graph.put(replace(op, copies=(*op.copies, cp)))

    def _exchange(self, graph: OpGraph, op: Op, pool: str, link: str, split: bool) -> None:
        """Where new tokens are split, what the cache keeps of them is gathered; else partial results are merged in fp32."""
        group = degree(f"{pool}.cp")
        if not split:
            elements, name, width = op.out.by(f"{pool}.tp", -1), "all_reduce", 4.0
        elif op.kept is None:  # the keys and values of an earlier layer, gathered there
            return
        else:
            row = op.kept.token_elements.value(graph.degrees) + op.kept.window_elements.value(graph.degrees)
            elements, name, width = _new_tokens(op).scaled(row), "all_gather", op.kept.kv_bytes
        exchange = collective(f"{op.name}.{name}", name, elements, group, width, op, link, out=op.out)
        graph.insert_after(op.name, exchange)


def _new_tokens(op: Op) -> Dim:
    """Tokens that one data-parallel group prefills."""
    return Dim(tuple(term.times_each("prefill_new", 1) for term in op.dims["sequences"].terms))


def _split(op: Op, cp: str) -> Op:
    kept = op.kept and replace(op.kept, split=op.kept.split.by(cp, 1))
    dims = {**op.dims, "shards": op.dims["shards"].by(cp, 1)}
    return replace(op, dims=dims, kept=kept, shards=(*op.shards, ("context", cp)))
