"""Tensor parallelism: heads, inner widths and the vocabulary split over chips, partial sums added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Cluster, Pool
from hwmodel.lower.attention import NORM_OVER_HEADS
from hwmodel.model.block import Size
from hwmodel.partition.strategy import (
    Strategy,
    block_ends,
    check_blocks,
    check_divides,
    collective,
    degree,
    on,
    scale_up,
)

_AXES = ("heads", "kv_heads", "ffn", "vocab")
_NAMES = {"heads": "query heads", "ffn": "columns of the feed-forward width"}


class Tensor(Strategy):
    """Split every weight matrix of a pool over `degree` chips: by heads, by inner width, by vocabulary.

    One all-reduce follows each block, and one precedes a norm of queries and keys over all heads. KV heads fewer than chips are
    copied; norms and latents are replicated.
    """

    kind: ClassVar[str] = "tensor"
    rank: ClassVar[int] = 30

    degree: Size
    """Chips that share each matrix."""
    pool: str = ""
    """Pool it applies to; the first when empty."""

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """The pool's tensor degree."""
        return {f"{self.pool or cluster.pools[0].name}.tp": self.degree}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Shard, then reduce behind each block that ends in partial sums."""
        if self.degree == 1:
            return
        pool = self.pool or cluster.pools[0].name
        tp = f"{pool}.tp"
        self._check(graph, cluster.pool(pool))
        # experts that are split by expert keep their own tensor degree (etp)
        mine = lambda op: on(pool)(op) and not (op.role == "experts" and graph.degrees[f"{pool}.ep"] > 1)  # noqa: E731
        graph.each(mine, lambda op: op.shard(_AXES, tp))
        link = scale_up(graph, cluster, pool, self.degree)
        width = 2.0
        for end, ops in block_ends(graph, pool):
            notes = {op.note for op in ops}
            if "all_reduce" in notes:  # by the expert strategy, over the same chips
                continue
            name = ""
            if any(tp in op.partial for op in ops):
                name = "all_reduce"
            elif "all_to_all" in notes:  # each chip got the experts' answers for its share of the group's tokens
                name = "all_gather"
            if name:
                op = collective(f"{end.name}.{name}", name, end.out, degree(tp), end.out_bytes, end, link, out=end.out)
                graph.insert_after(end.name, op)
                width = end.out_bytes
        for op in list(graph.ops(on(pool))):
            if op.note == NORM_OVER_HEADS:  # the sums of squares of a token's queries and keys, as 32-bit floats
                before = graph.op(graph.inputs(op.name)[0])
                sums = collective(f"{op.name}.all_reduce", "all_reduce", op.dims["rows"].scaled(2.0), degree(tp), 4.0,
                                  before, link)  # fmt: skip
                graph.insert_after(before.name, sums, only=[op.name])
            if op.part == "embedding" and any("vocab" in s.elements.axes for s in op.stored):
                total = collective(f"{op.name}.all_reduce", "all_reduce", op.out, degree(tp), width,
                                   op, link, out=op.out)  # fmt: skip
                graph.insert_after(op.name, total)
            if op.role == "head" and op.kind == "gemm":
                gathered = collective(f"{op.name}.all_gather", "all_gather", op.out, degree(tp), width,
                                      op, link, out=op.out)  # fmt: skip
                graph.insert_after(op.name, gathered)

    def _check(self, graph: OpGraph, pool: Pool) -> None:
        for op in graph.ops(on(pool.name)):
            if op.role == "experts" and graph.degrees[f"{pool.name}.ep"] > 1:
                continue
            for axis, what in _NAMES.items():
                for dim in op.dims.values():
                    for term in dim.terms:
                        if axis in term.axes and op.kind != "stream":
                            check_divides(graph, pool, what, term.count, self.degree)
            check_blocks(graph, pool, op, self.degree)
            self._check_kv(graph, pool, op)

    def _check_kv(self, graph: OpGraph, pool: Pool, op: Op) -> None:
        if op.kept is None:
            return
        for term in (*op.kept.token_elements.terms, *op.kept.window_elements.terms):
            if "kv_heads" not in term.axes or not term.unit:
                continue
            if term.count < self.degree:
                copies = self.degree / term.count
                note = f"pool {pool.name}: {term.count:g} KV heads over {self.degree} chips: each head is kept {copies:g} times"
                if note not in graph.notes:
                    graph.notes.append(note)
                check_divides(
                    graph,
                    pool,
                    f"chips ({term.count:g} KV heads)",
                    self.degree,
                    int(term.count),
                    "use a multiple of it",
                )
            else:
                check_divides(graph, pool, "KV heads", term.count, self.degree)
