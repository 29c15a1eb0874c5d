"""The token mixer of every layer, from a config's keys."""

from __future__ import annotations

from typing import Any

from hwmodel.model import hf_layers as layers
from hwmodel.model.block import Block, make_block
from hwmodel.model.config import Config
from hwmodel.model.families import Family

Blocks = list[Block | None]


def mixer_blocks(config: Config, family: Family, hidden: int, count: int) -> Blocks:
    """Build the token mixer of each layer; None where a layer has none."""
    described = config.items("block_configs", count)
    if described is not None:
        return _described(config, family, hidden, described)
    if config.has("compress_ratios"):
        return _compressed(config, family, count)
    words = layers.mixers(config, family, count)
    built: dict[tuple[str, bool, bool], Block | None] = {}
    shared = config.number("num_kv_shared_layers", default=0, low=0)
    owners = _index_owners(config, count)
    found: Blocks = []
    for i, word in enumerate(words):
        key = (word, shared > 0 and i >= count - shared, owners[i])
        if key not in built:
            built[key] = _mixer(config, family, hidden, word, shares=key[1], owns=key[2])
        found.append(built[key])
    return found


def _mixer(config: Config, family: Family, hidden: int, word: str, *, shares: bool, owns: bool) -> Block | None:
    if word == layers.NONE:
        return None
    if word == layers.LINEAR:
        return _delta(config)
    if word == layers.KDA:
        return _kda(config)
    if word == layers.LIGHTNING:
        heads = config.number("num_attention_heads")
        width = config.number("head_dim", default=max(1, hidden // heads))
        return make_block("lightning", heads=heads, head_dim=width)
    if word == layers.MAMBA:
        return _mamba(config, family)
    if config.has("kv_lora_rank"):
        return _mla(config, owns)
    return _attention(config, family, hidden, word, shares)


def _attention(config: Config, family: Family, hidden: int, word: str, shares: bool) -> Block:
    sliding = word == layers.SLIDING
    heads, kv_heads, width, v_width = _heads(config, hidden, word)
    if heads % kv_heads:
        config.problem(
            config.find("num_key_value_heads", "num_kv_heads")[0],
            f"{heads} attention heads are not a multiple of {kv_heads} key-value heads",
        )
        kv_heads = 1
    both = config.flag("attention_bias", "use_bias", "bias")
    sinks = family.sinks or config.flag(f"add_{'swa' if sliding else 'full'}_attention_sink_bias")
    norm = _qk_norm(config, family)
    return make_block(
        "attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        v_head_dim=v_width,
        window=_window(config, word),
        chunked=word == layers.CHUNKED,
        rope_dim=_rope(config, width, sliding),
        qk_norm=norm,
        qkv_bias=config.flag("qkv_bias", default=both if family.qkv_bias is None else family.qkv_bias),
        o_bias=both if family.o_bias is None else family.o_bias,
        gated=config.flag("attn_output_gate", default=_implicit_gate(config)),
        sinks=sinks,
        k_eq_v=config.flag("attention_k_eq_v") and not sliding,
        kv_from_shared=shares,
        share_q_dim=config.optional("share_q_dim"),
        module=family.attention_module,
    )


def _heads(config: Config, hidden: int, word: str) -> tuple[int, int, int, int | None]:
    """Query heads, key-value heads, their width, and the value's width if it differs, for that kind of layer."""
    heads = config.number("num_attention_heads", "n_head", "n_heads")
    width = config.optional("head_dim", "attention_head_dim")
    if width is None:
        if hidden % heads and not config.problems:
            place = config.find("num_attention_heads", "n_head")[0]
            config.problem(place, f"hidden width {hidden} is not a multiple of {heads} heads")
        width = max(1, hidden // heads)
    v_width = config.optional("v_head_dim")
    kv_heads = _kv_heads(config, heads)
    if word == layers.SLIDING:
        heads = config.number("swa_num_attention_heads", default=heads)
        kv_heads = config.number("swa_num_key_value_heads", default=kv_heads)
        width = config.number("swa_head_dim", default=width)
        v_width = config.number("swa_v_head_dim", default=v_width or width) if v_width else None
    elif word == layers.FULL:
        width = config.number("global_head_dim", default=width)
        if config.flag("attention_k_eq_v", default=config.has("num_global_key_value_heads")):
            kv_heads = config.number("num_global_key_value_heads", default=kv_heads)
    return heads, kv_heads, width, None if v_width == width else v_width


def _kv_heads(config: Config, heads: int) -> int:
    """Key-value heads: a key, one with `multi_query`, else as many as query heads."""
    config.ignore("num_attention_groups", "num_query_groups")
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        config.ignore("num_kv_heads", "n_head_kv", "num_key_value_heads")
        return 1
    return config.number("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups", default=heads)


def _window(config: Config, word: str) -> int:
    if word == layers.CHUNKED:
        return config.number("attention_chunk_size")
    return config.number("sliding_window", "sliding_window_size") if word == layers.SLIDING else 0


def _rope(config: Config, width: int, sliding: bool) -> int | None:
    """Rotated columns of a head when fewer than all."""
    rotated = config.optional("rotary_dim", low=0)
    if rotated is not None:
        return min(rotated, width)
    share = config.find("partial_rotary_factor", "rotary_pct")[1]
    ropes = config.mapping("rope_parameters")
    inner = ropes.get("sliding_attention" if sliding else "full_attention", ropes)
    if isinstance(inner, dict):
        share = inner.get("partial_rotary_factor", share)
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1:
        return int(width * share)
    return None


def _qk_norm(config: Config, family: Family) -> str:
    """Norms of queries and keys that have weights; Llama-4's have none."""
    kind = config.text("qk_norm_type")
    if config.flag("use_qk_norm") and family.attention_module == "self_attn" and family.moe_module != "feed_forward":
        return "full" if kind == "per_layer" else "head"
    return family.qk_norm


def _implicit_gate(config: Config) -> bool:
    """Classes with delta-rule layers gate their softmax layers even when no key says so."""
    return config.has("linear_num_value_heads")


def _mla(config: Config, owns: bool) -> Block:
    config.ignore("head_dim", "num_key_value_heads", "qk_head_dim")
    return make_block(
        "mla",
        heads=config.number("num_attention_heads"),
        kv_lora_rank=config.number("kv_lora_rank"),
        nope_dim=config.number("qk_nope_head_dim"),
        rope_dim=config.number("qk_rope_head_dim", low=0),
        v_head_dim=config.number("v_head_dim"),
        q_lora_rank=config.optional("q_lora_rank"),
        bias=config.flag("attention_bias"),
        gated=config.flag("mla_use_output_gate"),
        index_heads=config.number("index_n_heads", default=0, low=0),
        index_head_dim=config.number("index_head_dim", default=0, low=0),
        index_topk=config.number("index_topk", default=0, low=0),
        index_shared=not owns,
    )


def _index_owners(config: Config, count: int) -> list[bool]:
    """Tell which layers have an indexer of their own (`indexer_types`: full or shared)."""
    words = config.items("indexer_types", count, at_least=True)
    if words is None:
        return [True] * count
    for i, word in enumerate(words):
        if word not in ("full", "shared"):
            config.problem(
                (*config.place("indexer_types"), i), f"unknown indexer kind {str(word)[:40]!r} (known: full, shared)"
            )
    return [word != "shared" for word in words[:count]]


def compressed_block(config: Config, family: Family, ratio: int, smallest: int) -> Block:
    """Build one layer of compressed attention; the smallest ratio overlaps its pools and has the indexer."""
    small = ratio > 0 and ratio == smallest
    return make_block(
        "compressed_attention",
        heads=config.number("num_attention_heads"),
        head_dim=config.number("head_dim"),
        rope_dim=config.number("qk_rope_head_dim", low=0),
        q_lora_rank=config.number("q_lora_rank"),
        o_groups=config.number("o_groups"),
        o_lora_rank=config.number("o_lora_rank"),
        window=config.number("sliding_window"),
        ratio=ratio,
        overlap=small,
        index_heads=config.number("index_n_heads", default=0, low=0) if small else 0,
        index_head_dim=config.number("index_head_dim", default=0, low=0) if small else 0,
        index_topk=config.number("index_topk", default=0, low=0) if small else 0,
        module=family.attention_module,
    )


def _compressed(config: Config, family: Family, count: int) -> Blocks:
    config.ignore("num_key_value_heads", "layer_types")
    ratios = config.whole_items("compress_ratios", count, 0, at_least=True) or [0] * count
    smallest = min((ratio for ratio in ratios if ratio), default=0)
    built = {ratio: compressed_block(config, family, ratio, smallest) for ratio in dict.fromkeys(ratios)}
    return [built[ratio] for ratio in ratios[:count]]


def _delta(config: Config) -> Block:
    keys = config.number("linear_num_key_heads")
    values = config.number("linear_num_value_heads")
    if values % keys:
        config.problem(config.find("linear_num_value_heads")[0], f"{values} is not a multiple of {keys} key heads")
        values = keys
    return make_block(
        "gated_delta",
        key_heads=keys,
        value_heads=values,
        key_dim=config.number("linear_key_head_dim"),
        value_dim=config.number("linear_value_head_dim"),
        conv_width=config.number("linear_conv_kernel_dim", default=4),
    )


def _kda(config: Config) -> Block:
    inner = config.mapping("linear_attn_config")
    place = config.place("linear_attn_config")
    sizes: dict[str, Any] = {}
    for field, key, default in (("heads", "num_heads", None), ("head_dim", "head_dim", None),
                                ("conv_width", "short_conv_kernel_size", 4)):  # fmt: skip
        sizes[field] = config.whole((*place, key), inner.get(key, default), 1, 10_000_000)
    return make_block("kda", **sizes)


def _mamba(config: Config, family: Family) -> Block:
    config.ignore("expand", "mamba_expand", "chunk_size")
    if not config.has("mamba_num_heads", "mamba_n_heads"):
        config.problem((), "missing key 'mamba_num_heads': of Mamba layers, only those of Mamba-2 are known")
    heads = config.number("mamba_num_heads", "mamba_n_heads", default=1)
    groups = config.number("n_groups", "mamba_n_groups", default=1)
    if heads % groups:
        config.problem(config.find("n_groups")[0], f"{heads} Mamba heads are not a multiple of {groups} groups")
        groups = 1
    bits = config.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype", default="float32")
    return make_block(
        "mamba2",
        heads=heads,
        head_dim=config.number("mamba_head_dim", "mamba_d_head"),
        state_dim=config.number("ssm_state_size", "mamba_d_state"),
        groups=groups,
        conv_width=config.number("conv_kernel", "mamba_d_conv", default=4),
        conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
        bias=config.flag("mamba_proj_bias"),
        state_bits=16 if bits in ("bfloat16", "float16") else 32,
        module=family.attention_module,
    )


def _described(config: Config, family: Family, hidden: int, blocks: list[Any]) -> Blocks:
    """Layers described one by one: `n_heads_in_group` query heads share a key-value head, `no_op` layers have none."""
    config.ignore("num_key_value_heads")
    heads = config.number("num_attention_heads")
    found: Blocks = []
    for i, block in enumerate(blocks):
        place = (*config.place("block_configs"), i, "attention")
        inner = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(inner, dict):
            config.problem(place, "expected an object")
            continue
        if inner.get("replace_with_linear"):
            config.problem((*place, "replace_with_linear"), "attention that is one matrix is an unknown layer kind")
        if inner.get("no_op"):
            found.append(None)
            continue
        group = config.whole((*place, "n_heads_in_group"), inner.get("n_heads_in_group"), 1, heads)
        if heads % group:
            config.problem((*place, "n_heads_in_group"), f"{heads} heads are not a multiple of {group}")
            group = 1
        width = config.number("head_dim", default=max(1, hidden // heads))
        bias = config.flag("attention_bias")
        found.append(make_block("attention", heads=heads, kv_heads=heads // group, head_dim=width, qkv_bias=bias,
                                o_bias=bias, module=family.attention_module))  # fmt: skip
    return found
