"""Everything on one pool."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Strategy


class Single(Strategy):
    """Place every op on one pool. Every plan starts so, on the first pool."""

    kind: ClassVar[str] = "single"
    rank: ClassVar[int] = 0

    pool: str = ""
    """Pool that takes everything; the first when empty."""

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Place."""
        pool = cluster.pool(self.pool).name if self.pool else cluster.pools[0].name
        graph.each(lambda op: True, lambda op: replace(op, pool=pool))
