"""Tensors of a kind kept in another memory tier of the chip that works on them, and read there."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Strategy, on

ROLES = {
    "attention": ("attention",),
    "ffn": ("ffn", "shared"),
    "experts": ("experts",),
    "embedding": ("embedding", "head"),
}
"""Roles of the ops whose weights a word means."""


class Keep(Strategy):
    """Keep the KV cache, or the weights of some ops, in a memory tier of the same chip; experts in part with `offload`."""

    kind: ClassVar[str] = "keep"
    rank: ClassVar[int] = 13

    what: Literal["kv", "attention", "ffn", "experts", "embedding"]
    """kv: caches and states of attention; ffn: dense and shared ones; embedding: table and output matrix."""
    tier: str
    """Memory tier of the chip."""
    pool: str = ""
    """Pool it applies to; the first when empty."""

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Name the tier on every op of that kind."""
        pool = cluster.pool(self.pool or cluster.pools[0].name)
        tier = pool.chip.tier(self.tier).tier
        mine = on(pool.name)
        if self.what == "kv":
            graph.each(lambda op: mine(op) and op.kept is not None, lambda op: replace(op, kv_tier=tier))
            return
        roles = ROLES[self.what]

        def chosen(op: Op) -> bool:
            return mine(op) and op.role in roles and bool(op.stored)

        graph.each(chosen, lambda op: replace(op, tier=tier))
