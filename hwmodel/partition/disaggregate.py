"""Attention-FFN disaggregation (AFD): attention on one pool, experts or all feed-forward parts on another."""

from __future__ import annotations

from typing import ClassVar, Literal

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Parts, Strategy, move


class Disaggregate(Strategy):
    """Move the routed experts, the whole feed-forward part, or the attention to another pool.

    Activations cross twice per layer. With `micro_batches` > 1 the batch is cut, so that one part computes on a
    micro-batch while another is on the way (ping-pong).
    """

    kind: ClassVar[str] = "disaggregate"
    rank: ClassVar[int] = 10

    move: Literal["experts", "ffn", "attention"] = "experts"
    """What moves: routed experts alone (router and shared expert stay), feed-forward parts, or attention."""
    to: str
    """Pool it moves to."""
    micro_batches: Parts = 1
    """Parts that the batch is cut into."""
    copies: Literal["per_expert", "hidden"] = "per_expert"
    """Each token crosses once per chosen expert, to the chips that hold it; or once, to be fanned out on the far side."""

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Place the moved ops and put transfers on the crossing edges."""
        pool = cluster.pool(self.to).name
        topk = max((op.experts.topk for op in graph.ops() if op.experts), default=1.0)
        if not any(self._moves(op) for op in graph.ops()):
            graph.reasons.append(f"disaggregate: the model has no {self.move} to move to pool {pool}")
            return
        graph.micro_batches = max(graph.micro_batches, self.micro_batches)
        graph.sent_to_experts = self.move == "experts" and self.copies == "per_expert"
        move(graph, cluster, self._moves, pool, topk if graph.sent_to_experts else 1.0)

    def _moves(self, op: Op) -> bool:
        if self.move == "experts":
            return op.role == "experts"
        return op.part == self.move and op.role != "norm"
