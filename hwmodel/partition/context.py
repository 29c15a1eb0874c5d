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
        link = scale_up(graph, cluster, pool)
        prefill_only = all(op.phase != "decode" for op in graph.ops())
        for op in graph.ops(on(pool)):
            if op.kind.startswith("attention_"):
                graph.put(_split(op, cp))
                self._merge(graph, op, cp, pool, link)
            elif prefill_only and op.kind != "scan":
                graph.put(op.shard(("positions",), cp))
            elif cp not in op.copies:
                graph.put(replace(op, copies=(*op.copies, cp)))

    def _merge(self, graph: OpGraph, op: Op, cp: str, pool: str, link: str) -> None:
        if op.phase == "decode":  # partial outputs and their softmax statistics, in fp32
            elements, name = op.out.by(f"{pool}.tp", -1), "all_reduce"
        else:  # keys and values of all positions
            row = op.consts["read_width"] * op.dims["kv_heads"].value(graph.degrees)
            elements, name = _new_tokens(op).scaled(row), "all_gather"
        width = 4.0 if op.phase == "decode" else op.consts["kv_bytes"]
        exchange = collective(f"{op.name}.{name}", name, elements, degree(cp), width, op, link, out=op.out)
        graph.insert_after(op.name, exchange)


def _new_tokens(op: Op) -> Dim:
    """Tokens that one data-parallel group prefills."""
    return Dim(tuple(term.times_each("prefill_new", 1) for term in op.dims["sequences"].terms))


def _split(op: Op, cp: str) -> Op:
    kept = op.kept and replace(op.kept, split=op.kept.split.by(cp, 1))
    dims = {**op.dims, "shards": op.dims["shards"].by(cp, 1)}
    return replace(op, dims=dims, kept=kept, shards=(*op.shards, ("context", cp)))
