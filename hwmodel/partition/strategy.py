"""What a partition strategy is, and the edits that several of them make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from hwmodel.graph import Dim, Op, OpGraph, Term
from hwmodel.hardware import Cluster, Pool
from hwmodel.kernels.collective import OPERATIONS
from hwmodel.spec.schema import Spec

DEGREES = ("tp", "cp", "pp", "ep", "etp")
"""Tensor, context, pipeline, expert, and tensor inside an expert; data-parallel degrees follow from the chip count."""


Parts = Annotated[int, Field(ge=1, le=128)]
"""Micro-batches: every op of every one is scheduled, so that thousands would take minutes."""


class Strategy(Spec):
    """The base of partition strategies. Its fields are its YAML; it takes a valid graph and leaves a valid graph."""

    kind: ClassVar[str] = ""
    """Name in a plan."""
    rank: ClassVar[int] = 50
    """Strategies apply in this order, whatever order the plan lists them in: placement (10), experts (20), tensor (30),
    context (40), pipeline (50), data (90)."""
    kinds: ClassVar[dict[str, type[Strategy]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Make the kind known."""
        super().__pydantic_init_subclass__(**options)
        if cls.kind:
            Strategy.kinds[cls.kind] = cls

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """Degree symbols it sets, such as ``{"gpu.tp": 4}``."""
        return {}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Edit the graph in place (it is a copy)."""
        raise NotImplementedError


def on(pool: str) -> Callable[[Op], bool]:
    """Ops placed on a pool, transfers to other pools aside."""
    return lambda op: op.pool == pool and op.kind not in ("transfer", "load")


def block_ends(graph: OpGraph, pool: str) -> list[tuple[Op, list[Op]]]:
    """For each block on a pool (attention or feed-forward part of a segment): its last op and all of its ops."""
    blocks: dict[tuple[str, str], list[Op]] = {}
    for op in graph.ops(on(pool)):
        if op.part in ("attention", "ffn") and op.role != "norm":
            blocks.setdefault((op.segment, op.part), []).append(op)
    return [(ops[-1], ops) for ops in blocks.values()]


def collective(
    name: str, operation: str, elements: Dim, chips: Dim, bytes_per_element: float, like: Op, link: str, **changes: Any
) -> Op:
    """A collective among the chips of the pool of `like`."""
    return replace(
        like, name=name, kind="collective", role="communication", dims={"elements": elements, "chips": chips},
        consts={"bytes": bytes_per_element, "operation": float(OPERATIONS.index(operation))}, stored=(), kept=None,
        experts=None, contracts=(), way=link, shards=(), copies=(), note=operation, phase="all",
        **{"family": operation, "format": "bytes", **changes},
    )  # fmt: skip


def degree(symbol: str) -> Dim:
    """A degree as a number of chips."""
    return Dim((Term(1.0, 1.0, ((symbol, 1),)),))


def per_chip(elements: Dim, symbols: Iterable[str]) -> Dim:
    """The share of one chip when a tensor is split over the degrees."""
    for symbol in symbols:
        elements = elements.by(symbol, -1)
    return elements


def scale_up(graph: OpGraph, cluster: Cluster, pool: str, chips: int) -> str:
    """The widest link of a pool's chip, for an exchange among `chips`; how far its links reach is checked."""
    chip = cluster.pool(pool).chip
    if not chip.links:
        reason = f"pool {pool}: chip {chip.name} has no link, so its chips cannot share a model"
    else:
        reach = max(link.domain for link in chip.links)
        reason = (
            f"pool {pool}: {chips} chips exchange tensors, but the links of {chip.name} reach {reach} chips"
            if chips > reach
            else ""
        )
    if reason and reason not in graph.reasons:
        graph.reasons.append(reason)
    return chip.links[0].name if chip.links else ""


def transfer(graph: OpGraph, cluster: Cluster, name: str, source: str, target: str, elements: Dim, width: float) -> None:
    """Put a transfer on the edge source -> target, whose ends lie on different pools; reuse one of the same tensor."""
    first, second = graph.op(source), graph.op(target)
    way = f"{first.pool}>{second.pool}"
    for reader in graph.readers(source):
        op = graph.op(reader)
        if op.kind == "transfer" and op.way == way:
            graph.disconnect(source, target)
            graph.connect(op.name, target)
            return
    graph.insert_after(source, transfer_op(cluster, name, first, second.pool, elements, width), only=[target])


def transfer_op(cluster: Cluster, name: str, source: Op, pool: str, elements: Dim, width: float) -> Op:
    """The op that carries the output of `source` to another pool."""
    wire = cluster.wire(source.pool, pool)
    way = f"{source.pool}>{pool}"
    return replace(
        source, name=name, kind="transfer", family="", role="communication", dims={"elements": elements},
        consts={"bytes": width},
        stored=(), kept=None, experts=None, contracts=(), way=way, lane=f"{wire.from_}-{wire.to}" if wire.exclusive else way,
        shards=(), copies=(), phase="all", note="one message, one latency each way",
    )  # fmt: skip


def move(graph: OpGraph, cluster: Cluster, where: Callable[[Op], bool], pool: str, copies: float = 1.0) -> None:
    """Place ops on another pool, with a transfer on every edge that now crosses; `copies` of each token go out and back."""
    graph.each(where, lambda op: replace(op, pool=pool))
    for source, target in list(graph.nx.edges):
        first, second = graph.op(source), graph.op(target)
        if first.pool == second.pool or "transfer" in (first.kind, second.kind) or first.segment != second.segment:
            continue
        transfer(graph, cluster, f"{source}>{second.pool}", source, target, first.out.scaled(copies), first.out_bytes)
    for start, end in graph.borders().values():  # what a layer leaves goes back to where the next one starts
        if end.delivers != start.pool:
            name = f"{end.name}>{start.pool}"
            graph.insert_after(end.name, transfer_op(cluster, name, end, start.pool, end.out.scaled(copies), end.out_bytes))


def check_divides(graph: OpGraph, pool: Pool, what: str, pieces: float, by: int, remedy: str = "") -> None:
    """Say that `by` does not divide `pieces`, once."""
    if by > 1 and pieces % by:
        fits = [str(n) for n in range(1, 65) if pieces % n == 0][:8]
        _say(graph, pool, f"{by} does not divide {pieces:g} {what}; {remedy or 'use ' + ', '.join(fits)}")


def check_blocks(graph: OpGraph, pool: Pool, op: Op, by: int) -> None:
    """Say that a split cuts quantisation blocks: the width of a share must be a multiple of the block (128 x 128 fp8)."""
    for stored in op.stored:
        for term in stored.elements.terms:
            if stored.block and "ffn" in term.axes and by > 1 and term.count % by == 0 and (term.count / by) % stored.block:
                fits = [n for n in range(1, 65) if term.count % n == 0 and (term.count / n) % stored.block == 0]
                text = (
                    f"width {term.count:g} / {by} = {term.count / by:g} is not a multiple of the "
                    f"{stored.block} x {stored.block} quantisation block of {stored.module}; "
                    f"split it by {', '.join(map(str, fits))}"
                )
                _say(graph, pool, text + (", or split by expert instead" if op.role == "experts" else ""))
                return


def _say(graph: OpGraph, pool: Pool, text: str) -> None:
    """A reason why the plan cannot run, or a note where a compiler lays out the weights and pads the shares."""
    compiled = pool.chip.execution.compiled
    found = graph.notes if compiled else graph.reasons
    full = f"pool {pool.name}: {text}" + ("; the compiler pads the shares" if compiled else "")
    if full not in found:
        found.append(full)
