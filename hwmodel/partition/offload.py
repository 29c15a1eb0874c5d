"""Experts kept in a slower memory: streamed to the fast chip when needed, or computed where they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hwmodel.graph import NONE, Dim, Op, OpGraph, size
from hwmodel.hardware import Cluster
from hwmodel.partition.strategy import Strategy, move, on
from hwmodel.routing import Experts


class Offload(Strategy):
    """Keep the routed experts (or a fraction of them, those chosen least) outside the fast memory.

    ``tier``: another memory tier of the same chip, read in place. ``to``: another pool; mode `stream` brings the weights
    over the link before each layer, mode `compute` sends the activations and computes there.
    """

    kind: ClassVar[str] = "offload"
    rank: ClassVar[int] = 12

    to: str = ""
    """Pool that keeps the experts."""
    tier: str = ""
    """Memory tier of the same chip that keeps them."""
    mode: Literal["stream", "compute"] = "stream"
    """Bring the weights to the fast chip, or the activations to the weights."""
    fraction: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the experts of every layer that is kept outside; with 0 all stay where they are."""
    pool: str = ""
    """Pool whose experts they are; the first when empty."""
    prefetch: bool = False
    """Weights of the next layer stream while this one computes (needs a guess of the routing)."""

    @model_validator(mode="after")
    def _one_place(self) -> Offload:
        if bool(self.to) == bool(self.tier):
            raise ValueError("say where the experts are kept: either 'to: POOL' or 'tier: TIER'")
        return self

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Split off the offloaded experts and move, stream or re-home them."""
        home = cluster.pool(self.pool or cluster.pools[0].name).name
        if not any(op.experts for op in graph.ops(on(home))):
            graph.reasons.append(f"offload: the model has no routed experts on pool {home} to keep outside")
            return
        outside = _split(graph, home, self.fraction) if self.fraction else set()
        if self.tier:
            cluster.pool(home).chip.tier(self.tier)
            graph.each(lambda op: op.name in outside, lambda op: replace(op, tier=self.tier))
            return
        pool = cluster.pool(self.to).name
        if not outside:
            return
        if self.mode == "compute":
            topk = max((op.experts.topk for op in graph.ops() if op.experts), default=1.0)
            move(graph, cluster, lambda op: op.name in outside, pool, topk * self.fraction if graph.sent_to_experts else 1.0)
            return
        cluster.wire(home, pool)
        for name in sorted(outside):
            self._stream(graph, graph.op(name), pool)

    def _stream(self, graph: OpGraph, op: Op, pool: str) -> None:
        """A load of the op's weights from the far pool; the op itself then reads them from the chip's memory."""
        if op.kind != "experts":
            return
        width = op.stored[0].bytes_per_element
        per_expert = sum(stored.elements.exact({}) for stored in op.stored)
        pieces = next(term.count for stored in op.stored for term in stored.elements.terms if "ffn" in term.axes)
        load = replace(
            op, name=f"{op.name}.load", kind="load", family="", role="communication", way=f"{pool}>{op.pool}", part=op.part,
            dims={"tokens": op.dims["tokens"], "experts": op.dims["experts"], "elements": size(per_expert, "ffn", pieces)},
            consts={"weight_bytes": width}, contracts=(), kept=None, out=NONE, base_stored=op.stored,
            note="prefetch" if self.prefetch else "",
        )  # fmt: skip
        before = [] if self.prefetch else graph.inputs(op.name)[:1]
        graph.add(load, before, graph.rank(op.name) - 1)
        graph.connect(load.name, op.name)
        graph.put(replace(op, stored=()))
        graph.homes[load.name] = pool


def _split(graph: OpGraph, home: str, fraction: float) -> set[str]:
    """Names of the expert ops to keep outside; with a fraction below 1 each is split in two first."""
    chosen = [op for op in graph.ops(on(home)) if op.role == "experts"]
    if fraction >= 1:
        return {op.name for op in chosen}
    names = {op.name: f"{op.name}_outside" for op in chosen}
    for op in chosen:
        total = op.experts or next(o.experts for o in chosen if o.experts and o.segment == op.segment)
        far = round(total.total * fraction) if total else 0
        if total is None or far in (0, total.total):
            graph.reasons.append(
                f"offload: fraction {fraction:g} of {total.total if total else 0} experts is no whole number of experts"
            )
            return set()
        near = total.total - far
        graph.put(_part(op, op.name, Experts(total.total, total.topk, 0, near, ranked=True), near / total.total))
        inputs = [names.get(name, name) for source in graph.inputs(op.name) for name in _behind(graph, source, graph.inputs)]
        other = _part(op, names[op.name], Experts(total.total, total.topk, near, far, ranked=True), far / total.total)
        graph.add(other, inputs, graph.rank(op.name))
        for reader in graph.readers(op.name):
            for target in _behind(graph, reader, graph.readers):
                if target not in names:
                    graph.connect(other.name, target)
    return set(names.values())


def _behind(graph: OpGraph, name: str, further: Callable[[str], list[str]]) -> list[str]:
    """The op itself, or what stands on the other side of a transfer: a part that moves takes a way of its own."""
    return further(name) if graph.op(name).kind == "transfer" else [name]


def _part(op: Op, name: str, experts: Experts, share: float) -> Op:
    """The op on a share of the experts."""

    def cut(dim: Dim) -> Dim:
        return Dim(tuple(replace(t, count=t.count * share) if "experts" in t.axes else t for t in dim.terms))

    return replace(
        op,
        name=name,
        dims={key: cut(dim) for key, dim in op.dims.items()},
        stored=tuple(replace(stored, copies=cut(stored.copies)) for stored in op.stored),
        experts=experts if op.experts else None,
    )
