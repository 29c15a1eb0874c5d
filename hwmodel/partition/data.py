"""Data parallelism: what is left of a pool's chips serves different sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.model.block import Count
from hwmodel.partition.strategy import Strategy, on


class Data(Strategy):
    """Spread the sequences of the step over copies of the dense weights.

    The degree follows from the chip count and the other degrees; stating it is a check. Every plan ends with this strategy.
    """

    kind: ClassVar[str] = "data"
    rank: ClassVar[int] = 90

    degree: Count = 0
    """Copies of the dense weights; 0: as many as the chips allow."""
    pool: str = ""
    """Pool it applies to; the first when empty."""

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """None of its own: they follow (see `data_degrees`)."""
        return {}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Divide tokens among the groups of chips."""
        pool = self.pool or cluster.pools[0].name
        dp = graph.degrees[f"{pool}.dp"]
        if self.degree and self.degree != dp:
            graph.reasons.append(f"pool {pool}: data degree {self.degree} is stated, but chips and other degrees leave {dp}")
        graph.each(on(pool), lambda op: op.shard(("tokens",), f"{pool}.dp") if "tokens" in op.axes else op)
        graph.each(on(pool), lambda op: op.shard(("routed",), f"{pool}.edp") if "routed" in op.axes else op)


def data_degrees(degrees: Mapping[str, int], cluster: Cluster) -> tuple[dict[str, int], list[str]]:
    """Data-parallel degrees of every pool (``dp`` of dense parts, ``edp`` of experts), and why counts do not fit."""
    found: dict[str, int] = {}
    reasons = []
    for pool in cluster.pools:
        tp, cp, pp, ep, etp = (degrees[f"{pool.name}.{kind}"] for kind in ("tp", "cp", "pp", "ep", "etp"))
        dense, expert = tp * cp * pp, pp * (ep * etp if ep * etp > 1 else tp * cp)
        groups = [(dense, "tensor x context x pipeline")]
        groups += [(expert, "expert x tensor-in-expert x pipeline")] if ep * etp > 1 else []
        for group, what in groups:
            if pool.count % group:
                fits = [str(n) for n in (group * (pool.count // group), group * (pool.count // group + 1)) if n]
                reasons.append(
                    f"pool {pool.name}: {pool.count} chips are no multiple of {what} = {group}; use {' or '.join(fits)} chips"
                )
        found[f"{pool.name}.dp"] = max(1, pool.count // dense)
        found[f"{pool.name}.edp"] = max(1, pool.count // expert)
    return found, list(dict.fromkeys(reasons))
