"""The feed-forward part of every layer, from a config's keys."""

from __future__ import annotations

from typing import Any

from hwmodel.model import hf_layers as layers
from hwmodel.model.block import Block, make_block
from hwmodel.model.config import MAX_EXPERTS, MAX_WIDTH, Config
from hwmodel.model.families import Family

Blocks = list[Block | None]
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "num_routed_experts", "moe_num_experts")
TOPK = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_top_k", "moe_topk",
        "moe_k", "num_experts_per_topk")  # fmt: skip
_EXPERT_WIDTH = ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size")
_DENSE_WIDTH = ("intermediate_size_mlp", "dense_intermediate_size", "prefix_dense_intermediate_size",
                "intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")  # fmt: skip
_SHARED_WIDTH = ("shared_expert_intermediate_size", "share_expert_dim", "moe_shared_expert_intermediate_size",
                 "shared_intermediate_size", "shared_expert_dim")  # fmt: skip


def ffn_blocks(config: Config, family: Family, hidden: int, count: int) -> Blocks:
    """Build the feed-forward part of each layer; None where a layer has none."""
    described = config.find("block_configs")[1]
    if isinstance(described, list):
        return _described(config, family, hidden, described)
    single = layers.single_parts(config, "hybrid_override_pattern", count)
    if single is not None:
        made = {word: ffn_part(config, family, hidden, word) for word in dict.fromkeys(part for _, part in single)}
        return [made[word] for _, word in single]
    if not has_experts(config):
        return _dense_layers(config, family, hidden, count)
    sparse = layers.expert_layers(config, count)
    hashed = config.number("num_hash_layers", default=0, low=0)
    dense = None if all(sparse) else _dense(config, family, hidden)
    moe = _moe(config, family, hidden, hashed=False) if any(sparse) else None
    table = _moe(config, family, hidden, hashed=True) if hashed else None
    return [(table if i < hashed else moe) if has else dense for i, has in enumerate(sparse)]


def has_experts(config: Config) -> bool:
    """Tell whether the model has routed experts at all."""
    if not config.flag("enable_moe_block", default=True):
        config.ignore(*EXPERTS, *TOPK, *_EXPERT_WIDTH)
        return False
    number = config.optional(*EXPERTS, low=0)
    return number is not None and number > 1


def ffn_part(config: Config, family: Family, hidden: int, word: str) -> Block | None:
    """Build the feed-forward part of a layer that is "moe", "dense" or, with "", has none."""
    if word == "moe":
        return _moe(config, family, hidden, hashed=False)
    return _dense(config, family, hidden) if word == "dense" else None


def _dense(config: Config, family: Family, hidden: int, factor: int = 1) -> Block:
    default = {"default": family.inter_factor * hidden} if family.inter_factor else {}
    return make_block(
        "ffn",
        inter=config.number(*_DENSE_WIDTH, **default) * factor,
        gated=family.gated,
        bias=config.flag("mlp_bias", "use_bias", "bias") if family.mlp_bias is None else family.mlp_bias,
        activation=_activation(config),
        module="mlp" if family.moe_module != "mixer" else "mixer",
    )


def _dense_layers(config: Config, family: Family, hidden: int, count: int) -> Blocks:
    """Dense everywhere; `use_double_wide_mlp` doubles the layers that share another layer's cache."""
    shared = config.number("num_kv_shared_layers", default=0, low=0)
    plain = _dense(config, family, hidden)
    if not (config.flag("use_double_wide_mlp") and shared):
        return [plain] * count
    wide = _dense(config, family, hidden, factor=2)
    return [wide if i >= count - shared else plain for i in range(count)]


def _moe(config: Config, family: Family, hidden: int, hashed: bool) -> Block:
    experts = config.number(*EXPERTS, high=MAX_EXPERTS)
    topk = config.number(*TOPK)
    if topk > experts:
        config.problem(config.find(*TOPK)[0], f"{topk} experts per token are more than the {experts} experts")
        topk = experts
    width = _expert_width(config)
    beside = config.flag("enable_moe_block") or config.flag("residual_moe", "parallel_attn_mlp_res")
    gemma = family.router_module == "router.proj"
    bias = family.score_bias or config.flag("use_routing_bias", "moe_router_enable_expert_bias")
    return make_block(
        "moe",
        experts=experts,
        topk=topk,
        expert_inter=width,
        gated=family.gated,
        expert_bias=family.expert_bias,
        activation=_activation(config),
        latent=config.number("moe_latent_size", "routed_expert_hidden_size", default=0, low=0),
        shared_inter=_shared_width(config, family, width),
        shared_gate=family.shared_gate,
        dense_inter=config.number(*_DENSE_WIDTH) if beside else 0,
        router_score_bias=bias and not hashed,
        router_bias=family.router_bias,
        router_scale=gemma,
        hash_vocab=config.number("vocab_size") if hashed else 0,
        module=family.moe_module,
        router_module=family.router_module,
        shared_module=family.shared_module,
    )


def _expert_width(config: Config) -> int:
    """An own key; else `intermediate_size`, where the dense layers have another key or there are none."""
    return config.number(*_EXPERT_WIDTH, "intermediate_size")


def _shared_width(config: Config, family: Family, expert: int) -> int:
    """Width of all shared experts together: a key, a number of experts' widths, or implicit; 0 for none."""
    number = config.optional("n_shared_experts", "num_shared_experts", "num_shared_expert", low=0)
    width = config.optional(*_SHARED_WIDTH, low=0)
    if width is not None:
        return width
    if family.moe_module == "feed_forward":  # Llama-4: one shared expert as wide as a routed one, no key
        return expert
    return (number or 0) * expert


def _activation(config: Config) -> str:
    return config.text("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act", default="silu")


def _described(config: Config, family: Family, hidden: int, blocks: list[Any]) -> Blocks:
    """Layers described one by one: `intermediate_size`, or `ffn_mult` of the width, rounded up to a multiple of 256."""
    found: Blocks = []
    for i, block in enumerate(blocks):
        place = ("block_configs", i, "ffn")
        inner = block.get("ffn") if isinstance(block, dict) else None
        if not isinstance(inner, dict):
            config.problem(place, "expected an object")
            continue
        if inner.get("replace_with_linear"):
            config.problem((*place, "replace_with_linear"), "a feed-forward part that is one matrix is an unknown kind")
        if inner.get("no_op"):
            found.append(None)
            continue
        found.append(make_block("ffn", inter=_described_width(config, place, inner, hidden), gated=True))
    return found


def _described_width(config: Config, place: tuple[str | int, ...], inner: dict[str, Any], hidden: int) -> int:
    if inner.get("intermediate_size") is not None:
        return config.whole((*place, "intermediate_size"), inner["intermediate_size"], 1, MAX_WIDTH)
    factor = inner.get("ffn_mult")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1000:
        config.problem((*place, "ffn_mult"), f"expected a factor of the width, got {str(factor)[:40]!r}")
        return 256
    return -(-int(2 * factor * hidden / 3) // 256) * 256
