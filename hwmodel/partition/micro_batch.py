"""Two-batch overlap: one part of the batch computes while the other communicates."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Parts, Strategy


class MicroBatch(Strategy):
    """Cut the batch into `count` parts that pass the layers one behind the other.

    Each part reads the weights again: it gains where communication or another pool is waited for, and loses where memory
    is the bound.
    """

    kind: ClassVar[str] = "micro_batch"
    rank: ClassVar[int] = 60

    count: Parts
    """Parts."""

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Note the count; the timeline interleaves the parts."""
        graph.micro_batches = max(graph.micro_batches, self.count)
        graph.overlap = True
