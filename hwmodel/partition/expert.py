"""Expert parallelism: whole experts on different chips, tokens sent to them and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from hwmodel.exchange import HIGH_THROUGHPUT, LOW_LATENCY
from hwmodel.graph import Dim, Op, OpGraph, Stored
from hwmodel.hardware import Cluster, Pool
from hwmodel.model.block import Size
from hwmodel.model.dtypes import fmt
from hwmodel.partition.strategy import (
    Strategy,
    block_ends,
    check_blocks,
    check_divides,
    collective,
    degree,
    on,
    per_chip,
    scale_up,
)
from hwmodel.routing import reached_groups
from hwmodel.spec.errors import InputError


class Expert(Strategy):
    """Spread the routed experts of a pool over `degree` groups of `tensor` chips.

    Tokens that are spread over the chips (data-parallel attention) are dispatched to the experts and combined; tokens that
    every chip holds (tensor-parallel attention) need only the sum over chips; tokens that another pool sent to the chips of
    their experts are shared and summed inside each expert's group.
    """

    kind: ClassVar[str] = "expert"
    rank: ClassVar[int] = 20

    degree: Size
    """Groups of chips with different experts."""
    tensor: Size = 1
    """Chips that share each expert's matrices."""
    pool: str = ""
    """Pool it applies to; the first when empty."""
    exchange: Literal["auto", "all_to_all", "all_reduce"] = "auto"
    """How tokens reach their experts; auto: all-to-all when tokens are spread over the chips."""
    redundant: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Slots of every layer, all groups together, that hold further copies of the hottest experts, each charged with its
    memory; placed for the loads that the workload's routing says, as EPLB does (`hwmodel.replication`)."""
    dispatch: str = ""
    """Format of dispatched activations, such as fp8; that of the activations when empty."""

    @field_validator("dispatch")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return fmt(name).name if name else ""
        except InputError as error:
            raise ValueError(error.problems[0].message) from None

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        """Expert degree and tensor degree inside an expert."""
        pool = self.pool or cluster.pools[0].name
        return {f"{pool}.ep": self.degree, f"{pool}.etp": self.tensor}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        """Shard the experts, then exchange tokens around them."""
        pool = self.pool or cluster.pools[0].name
        ep, etp = f"{pool}.ep", f"{pool}.etp"
        experts = [op for op in graph.ops(on(pool)) if op.role == "experts"]
        if not experts:
            graph.reasons.append(f"pool {pool}: nothing to split by expert: no routed experts are placed on it")
            return
        for op in experts:
            check_blocks(graph, cluster.pool(pool), op, self.tensor)
            for term in (term for dim in op.dims.values() for term in dim.terms if "ffn" in term.axes and op.kind == "experts"):
                check_divides(graph, cluster.pool(pool), "columns of the expert width", term.count, self.tensor)
        if self.redundant:
            experts = self._replicate(graph, pool, experts)
        held = experts[0].experts.slots if experts[0].experts else 0
        what = "expert slots" if self.redundant else "experts"
        if held and self.degree > held:
            graph.reasons.append(
                f"pool {pool}: {self.degree} groups for {held} {what}; use at most {held}, and tensor: for the rest"
            )
        elif held and held % self.degree:
            most = -(-held // self.degree)
            graph.notes.append(f"pool {pool}: {held} {what} over {self.degree} groups: padded to {most} slots each")
        kept = graph.degrees[f"{pool}.edp"]
        if kept > 1:
            groups = f"{self.degree} groups of {self.tensor}"
            graph.notes.append(f"pool {pool}: {cluster.pool(pool).count} chips hold each expert {kept} times ({groups})")
        names = {op.name for op in experts}
        graph.each(lambda op: op.name in names, lambda op: op.shard(("experts",), ep).shard(("ffn",), etp))
        if self.degree * self.tensor > 1:
            self._exchange(graph, cluster, pool)

    def _replicate(self, graph: OpGraph, pool: str, experts: list[Op]) -> list[Op]:
        """Give the redundant slots to the experts of every layer, and charge them."""
        parts = [op for op in experts if op.experts]
        held = {op.experts for op in parts}
        if len({(op.segment, op.experts) for op in parts}) > len({op.segment for op in parts}):
            graph.reasons.append(f"pool {pool}: redundant experts need all experts of a layer in one memory, these lie in two")
            return experts
        if not all(op.stored for op in parts):
            graph.reasons.append(f"pool {pool}: experts that are streamed from another pool have no redundant slots")
            return experts
        for one in held:
            if one and one.held + self.redundant > one.held * self.degree:
                most = one.held * (self.degree - 1)
                graph.reasons.append(
                    f"pool {pool}: {self.redundant} redundant slots beside {one.held} experts on {self.degree} groups; "
                    f"{most} are enough for a copy in every group"
                )
        graph.each(lambda op: op in parts, self._slots)
        return [graph.op(op.name) for op in experts]

    def _slots(self, op: Op) -> Op:
        """The op with redundant slots: more copies stored, the same work."""
        if op.experts is None:
            return op
        found = replace(op.experts, redundant=self.redundant)
        grown = found.slots / found.held

        def more(stored: Stored) -> Stored:
            terms = (replace(t, count=t.count * grown) if "experts" in t.axes else t for t in stored.copies.terms)
            return replace(stored, copies=Dim(tuple(terms)))

        return replace(op, experts=found, stored=tuple(more(stored) for stored in op.stored))

    def _exchange(self, graph: OpGraph, cluster: Cluster, pool: str) -> None:
        link = scale_up(graph, cluster, pool, self.degree * self.tensor)
        foreign = {op.pool for op in graph.ops() if op.part == "attention"} != {pool}
        prefill_only = all(op.phase != "decode" for op in graph.ops())
        split = graph.degrees[f"{pool}.dp"] > 1 or (prefill_only and graph.degrees[f"{pool}.cp"] > 1)
        spread = foreign or split
        if split and self.exchange == "all_reduce":
            graph.reasons.append(
                f"pool {pool}: tokens are spread over the chips, so their experts cannot be reached by all_reduce"
            )
        kind = self.exchange if self.exchange != "auto" else ("all_to_all" if spread else "all_reduce")
        for end, ops in block_ends(graph, pool):
            inner = [op for op in ops if op.role == "experts"]
            if not inner:
                continue
            if foreign and graph.sent_to_experts:
                self._inside(graph, pool, link, inner[0].name, inner[-1].name)
            elif kind == "all_reduce":
                chips = degree(f"{pool}.tp").by(f"{pool}.cp", 1)  # every chip that holds these tokens
                name = f"{end.name}.expert_reduce"
                total = collective(name, "all_reduce", end.out, chips, end.out_bytes, end, link, out=end.out)
                graph.insert_after(end.name, total)
            else:
                self._all_to_all(graph, cluster, pool, link, (inner[0].name, inner[-1].name))

    def _inside(self, graph: OpGraph, pool: str, link: str, first: str, last: str) -> None:
        """Share the tokens of an expert among the chips of its group, and sum their partial results."""
        if self.tensor == 1:
            return
        op, back = graph.op(first), graph.op(last)
        topk = op.experts.topk if op.experts else 1.0
        width = op.dims["k"].exact({})
        # token-expert pairs, not tokens, are whole
        pairs = op.dims["tokens"].pieces(topk).by(f"{pool}.ep").scaled(width)
        group = degree(f"{pool}.etp")
        before = graph.inputs(first)[0]
        share = collective(_named(op, "share"), "all_gather", pairs, group, op.consts["input_bytes"], op, link,
                           out=graph.op(before).out)  # fmt: skip
        graph.insert_after(before, share, only=[first])
        total = collective(
            _named(op, "sum"), "reduce_scatter", pairs, group, back.consts["output_bytes"], back, link, out=back.out
        )
        graph.insert_after(last, total)

    def _all_to_all(self, graph: OpGraph, cluster: Cluster, pool: str, link: str, ends: tuple[str, str]) -> None:
        """Dispatch before the first expert op and combine behind the last; each token goes once to each group it needs."""
        first, last = ends
        op = graph.op(first)
        groups = reached_groups(op.experts, self.degree) * self.tensor if op.experts else 1.0
        hidden = op.dims["k"].exact({}) if not op.dims["k"].symbols else graph.model.hidden
        # the chips of one data group of experts share its tokens
        tokens = per_chip(op.dims["tokens"].pieces(), [f"{pool}.ep", f"{pool}.etp"]).scaled(hidden * groups)
        chips = degree(f"{pool}.ep").by(f"{pool}.etp", 1)
        before = graph.inputs(first)[0]
        width = fmt(self.dispatch).bytes if self.dispatch else op.consts["input_bytes"]
        source, back = graph.op(before), graph.op(last)
        send = collective(_named(op, "dispatch"), "all_to_all", tokens, chips, width, op, link, out=source.out)
        graph.insert_after(before, self._measured(graph, cluster.pool(pool), send, "expert_dispatch"), only=[first])
        ret = collective(
            _named(op, "collect"), "all_to_all", tokens, chips, back.consts["output_bytes"], back, link, out=back.out
        )
        graph.insert_after(last, self._measured(graph, cluster.pool(pool), ret, "expert_combine"))

    def _measured(self, graph: OpGraph, pool: Pool, op: Op, family: str) -> Op:
        """The exchange under the name that measurements know it by: kind of kernel, format, ranks and nodes."""
        ranks = self.degree * self.tensor
        reach = pool.chip.links[0].domain if pool.chip.links else ranks
        decode = all(other.phase != "prefill" for other in graph.ops())
        form = next((name for most, name in EXCHANGED if op.consts["bytes"] <= most), "bf16")
        consts = {**op.consts, "ranks": float(ranks), "nodes": float(-(-ranks // reach))}
        mode = LOW_LATENCY if decode else HIGH_THROUGHPUT
        return replace(op, family=family, format=f"{mode}/{form}", consts=consts)


def _named(op: Op, what: str) -> str:
    """Name of an exchange around the experts; those kept on another pool have their own."""
    return f"{op.segment}.{what}{'_outside' if op.name.endswith('_outside') else ''}"


EXCHANGED = ((0.75, "nvfp4"), (1.5, "fp8"))
"""Most bytes of an element, and the format in which it is exchanged."""
