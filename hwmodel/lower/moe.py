"""Mixture of experts: a router sends each token to `topk` of `experts` small feed-forward parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import size
from hwmodel.lower.ffn import ffn_weights, lower_ffn
from hwmodel.model.block import Block, Count, Size, Weight, module
from hwmodel.routing import Experts

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class Moe(Block):
    """Routed experts, with optional shared expert, latent width, dense branch beside them, and hash routing."""

    kind: ClassVar[str] = "moe"
    part: ClassVar[Literal["attention", "ffn"]] = "ffn"

    experts: Size
    """Routed experts of the layer."""
    topk: Size
    """Experts a token is sent to."""
    expert_inter: Size
    """Inner width of one routed expert."""
    gated: bool = True
    """Experts have a gate matrix (three matrices), as has every other part of this block."""
    expert_bias: bool = False
    """Biases on the experts' matrices."""
    activation: str = "silu"
    """Name of the activation function."""
    latent: Count = 0
    """Width the experts work in, projected from and to the residual stream once per layer; 0 for its own width."""
    shared_inter: Count = 0
    """Inner width of the shared expert (all of them together), which every token passes; 0 for none."""
    shared_gate: bool = False
    """The shared expert's output is scaled by a sigmoid of one more projection."""
    dense_inter: Count = 0
    """Inner width of a dense branch beside the experts; 0 for none."""
    router_score_bias: bool = False
    """One correction per expert, added to the scores for choosing only."""
    router_bias: bool = False
    """The router's projection has a bias."""
    router_scale: bool = False
    """The router scales its input per channel and its output per expert."""
    hash_vocab: Count = 0
    """Tokens of a table that fixes each token's experts (hash routing); 0 for a learned choice."""
    module: str = "mlp"
    """Name of the experts' parent in checkpoints."""
    router_module: str = "mlp.gate"
    """Name of the router in checkpoints."""
    shared_module: str = "mlp.shared_experts"
    """Name of the shared expert in checkpoints."""
    dense_module: str = "mlp"
    """Name of the dense branch in checkpoints."""

    @model_validator(mode="after")
    def _topk_fits(self) -> Moe:
        if self.topk > self.experts:
            raise ValueError(f"topk {self.topk} is more than the {self.experts} experts")
        return self

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Router, routed experts, shared expert, latent projections, dense branch."""
        found = [*self._router(hidden)]
        name = module(self.module, "experts")
        found += ffn_weights(name, self.latent or hidden, self.expert_inter, self.gated, self.expert_bias,
                             role="experts", copies=self.experts, used=self.topk)  # fmt: skip
        if self.latent:
            found.append(Weight(module(self.module, "fc1_latent_proj"), self.latent, hidden, role="shared"))
            found.append(Weight(module(self.module, "fc2_latent_proj"), hidden, self.latent, role="shared"))
        if self.shared_inter:
            found += ffn_weights(self.shared_module, hidden, self.shared_inter, self.gated, role="shared")
        if self.shared_gate:
            found.append(Weight(f"{self.shared_module}_gate", 1, hidden, role="router"))
        if self.dense_inter:
            found += ffn_weights(self.dense_module, hidden, self.dense_inter, self.gated)
        return tuple(found)

    def lower(self, into: Lowering) -> None:
        """Router, grouped products of the chosen experts, weighted sum; shared expert and dense branch beside them."""
        before = into.at
        name = module(self.module, "experts")
        branches = []
        if self.dense_inter:
            lower_ffn(into, "dense_", self.dense_module, self.dense_inter, self.gated, role="ffn")
            branches.append(str(into.at))
        if self.shared_inter:
            into.at = before
            lower_ffn(into, "shared_", self.shared_module, self.shared_inter, self.gated, role="shared")
            branches.append(str(into.at))
        into.at = before
        routing = [m for m in into.rest() if m.startswith(f"{self.router_module}.") or m == f"{self.shared_module}_gate"]
        into.linear("router", [self.router_module], stored=into.keep(routing), role="router")
        into.stream("topk", size(self.experts), moved=2, flops=4, role="router", out=into.flow(self.hidden_in(into)))
        if self.latent:
            into.linear("latent_in", [module(self.module, "fc1_latent_proj")], role="shared")
        axis = ("ffn", float(self.expert_inter))
        ends = ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        chosen = Experts(self.experts, self.topk)
        pairs = into.tokens.on("tokens", "routed").pieces(float(self.topk), "experts")
        width = self.hidden_in(into)
        into.experts("experts_up", [module(name, end) for end in ends], columns=axis, inner=None, experts=chosen)
        into.stream(
            "experts_act",
            size(self.expert_inter, *axis),
            rows=pairs,
            moved=3 if self.gated else 2,
            flops=5,
            role="experts",
        )
        into.experts(
            "experts_down", [module(name, "down_proj")], columns=None, inner=axis, experts=chosen, out=into.flow(width)
        )
        into.stream("combine", size(width), moved=self.topk + 1, flops=2 * self.topk, role="router")
        if self.latent:
            into.linear("latent_out", [module(self.module, "fc2_latent_proj")], role="shared")
        if branches:
            into.stream(
                "join",
                size(into.hidden),
                moved=1 + len(branches),
                flops=1,
                role="router",
                inputs=[str(into.at), *branches],
            )

    def hidden_in(self, into: Lowering) -> int:
        """Width the routed experts read and write."""
        return self.latent or into.hidden

    def _router(self, hidden: int) -> list[Weight]:
        name = self.router_module
        found = [Weight(name, self.experts, hidden, role="router")]
        vectors = [
            ("bias", self.experts, self.router_bias),
            ("e_score_correction_bias", self.experts, self.router_score_bias),
            ("scale", hidden, self.router_scale),
            ("per_expert_scale", self.experts, self.router_scale),
        ]
        found += [Weight(module(name, end), size, role="router", matrix=False) for end, size, has in vectors if has]
        if self.hash_vocab:
            table = module(name, "tid2eid")
            found.append(Weight(table, self.hash_vocab, self.topk, used=0, role="router", matrix=False))
        return found
