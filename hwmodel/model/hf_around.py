"""What stands around the blocks: norms and scalars of a layer, embeddings, head, multi-token-prediction modules."""

from __future__ import annotations

from hwmodel.model import hf_layers
from hwmodel.model.architecture import Layer, Mtp
from hwmodel.model.block import Block, Weight
from hwmodel.model.config import MAX_LAYERS, MAX_VOCAB, Config
from hwmodel.model.families import GEMMA_NORMS, Family
from hwmodel.model.hf_attention import compressed_block
from hwmodel.model.hf_ffn import ffn_part

_GEMMA_MOE_NORMS = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")


def vector(name: str, size: int, bias: bool = False) -> list[Weight]:
    """Build a norm's weight, and its bias if it has one."""
    found = [Weight(name, size, role="norm", matrix=False)]
    return [*found, Weight(f"{name}.bias", size, role="norm", matrix=False)] if bias else found


def extras(config: Config, family: Family, hidden: int, attention: Block | None, ffn: Block | None) -> tuple[Weight, ...]:
    """Norms, scalars, per-layer embedding projections and hyper-connections of one layer."""
    found = [weight for name in _norm_names(config, family, attention, ffn)
             for weight in vector(name, hidden, family.norm_bias)]  # fmt: skip
    if family.norms == GEMMA_NORMS and family.router_module == "router.proj":
        found.append(Weight("layer_scalar", 1, role="norm", matrix=False))
    width = config.number("hidden_size_per_layer_input", default=0, low=0)
    if width:
        found += [
            Weight("per_layer_input_gate", width, hidden, role="other"),
            Weight("per_layer_projection", hidden, width, role="other"),
            *vector("post_per_layer_input_norm", hidden),
        ]
    streams = config.number("hc_mult", default=0, low=0, high=64)
    if streams:
        found += [weight for end in ("attn", "ffn") for weight in _hyper(f"hc_{end}", streams, hidden)]
    return tuple(found)


def _norm_names(config: Config, family: Family, attention: Block | None, ffn: Block | None) -> tuple[str, ...]:
    if "FalconForCausalLM" in family.architectures:
        return _falcon_norms(config)
    names = family.norms
    if len(names) == 2 and (attention is None or ffn is None):
        names = tuple(name for name, block in zip(names, (attention, ffn), strict=True) if block is not None)
    if family.router_module == "router.proj" and ffn is not None and ffn.kind == "moe":
        names += _GEMMA_MOE_NORMS
    return names


def _falcon_norms(config: Config) -> tuple[str, ...]:
    """Attention and feed-forward run side by side on one norm, or on one each in the new decoder."""
    number = config.number("num_ln_in_parallel_attn", default=2 if config.flag("new_decoder_architecture") else 1)
    if number == 1 and config.flag("parallel_attn", default=True):
        return ("input_layernorm",)
    return ("ln_attn", "ln_mlp")


def _hyper(name: str, streams: int, hidden: int) -> list[Weight]:
    """Hyper-connections before one block: mixing weights of all streams, their offsets, three scales."""
    mixes = (2 + streams) * streams
    return [
        Weight(f"{name}_fn", mixes, streams * hidden, role="other", matrix=False),
        Weight(f"{name}_base", mixes, role="other", matrix=False),
        Weight(f"{name}_scale", 3, role="other", matrix=False),
    ]


def embeddings(config: Config, family: Family, hidden: int, count: int, tied: bool) -> tuple[Weight, ...]:
    """Token table (in use when it is also the head), learned positions, per-layer tables."""
    vocab = config.number("vocab_size", high=MAX_VOCAB)
    width = config.number("word_embed_proj_dim", default=hidden)
    used = None if tied else 0
    found = [Weight("model.embed_tokens", vocab, width, used=used, role="embedding", matrix=False)]
    if width != hidden:
        found += [Weight("model.project_in", hidden, width, role="embedding"),
                  Weight("model.project_out", width, hidden, role="embedding")]  # fmt: skip
    if family.positions is not None:
        rows = config.number("max_position_embeddings", "n_positions", "n_ctx") + family.positions
        found.append(Weight("model.embed_positions", rows, hidden, used=0, role="embedding", matrix=False))
    inner = config.number("hidden_size_per_layer_input", default=0, low=0)
    if inner:
        rows = config.number("vocab_size_per_layer_input", default=vocab, high=MAX_VOCAB)
        found += [
            Weight("model.embed_tokens_per_layer", rows, count * inner, used=0, role="embedding", matrix=False),
            Weight("model.per_layer_model_projection", count * inner, hidden, role="embedding"),
            *vector("model.per_layer_projection_norm", inner),
        ]
    else:
        config.ignore("vocab_size_per_layer_input")
    return tuple(found)


def head(config: Config, hidden: int, tied: bool) -> tuple[Weight, ...]:
    """Output matrix when it is not the token table, and its bias."""
    vocab = config.number("vocab_size", high=MAX_VOCAB)
    found = [] if tied else [Weight("lm_head", vocab, hidden, role="head")]
    if config.flag("lm_head_bias"):
        found.append(Weight("lm_head.bias", vocab, role="head", matrix=False))
    return tuple(found)


def final(config: Config, family: Family, hidden: int) -> tuple[Weight, ...]:
    """Norm behind the last layer, and what joins the streams of hyper-connections."""
    if config.flag("_remove_final_layer_norm") or not config.flag("do_layer_norm_before", default=True):
        return ()
    streams = config.number("hc_mult", default=0, low=0, high=64)
    return (*vector("model.norm", hidden, family.norm_bias), *_joined(streams, hidden))


def _joined(streams: int, hidden: int) -> list[Weight]:
    if not streams:
        return []
    return [
        Weight("hc_head_fn", streams, streams * hidden, role="other", matrix=False),
        Weight("hc_head_base", streams, role="other", matrix=False),
        Weight("hc_head_scale", 1, role="other", matrix=False),
    ]


def mtp(config: Config, family: Family, hidden: int, layers: list[Layer]) -> Mtp | None:
    """Multi-token-prediction modules, if the checkpoint has some: layers like the last one, joined by a projection."""
    count = config.number("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", default=0, low=0,
                          high=MAX_LAYERS)  # fmt: skip
    if not config.flag("use_mtp", default=True) or not count or not layers:
        config.ignore("mtp_hybrid_override_pattern", "mtp_transformer_layers", "mtp_use_dedicated_embeddings")
        return None
    each = _mtp_layers(config, family, hidden, layers)
    found: list[Weight] = []
    for _ in range(count):
        found += _mtp_extra(config, family, hidden)
    qwen = config.has("mtp_num_hidden_layers")
    prefix, first = ("mtp.layers", 0) if qwen or config.has("compress_ratios") else ("model.layers", len(layers))
    return Mtp(layers=tuple(each * count), extra=tuple(found), prefix=prefix, first=first)


def _mtp_layers(config: Config, family: Family, hidden: int, layers: list[Layer]) -> list[Layer]:
    """Layers of one module: a pattern of its own, or the last full-attention layer's likeness."""
    pattern = hf_layers.single_parts(config, "mtp_hybrid_override_pattern", None)
    if pattern:
        by_kind = {bool(layer.attention): layer for layer in layers if layer.attention is None or
                   layer.attention.kind == "attention"}  # fmt: skip
        found = []
        for mixer, part in pattern:
            attention = by_kind[True].attention if mixer == hf_layers.FULL and True in by_kind else None
            ffn = ffn_part(config, family, hidden, part)
            found.append(Layer(attention, ffn, extras(config, family, hidden, attention, ffn)))
        return found
    ratios = config.whole_items("compress_ratios")
    if ratios:
        last = layers[-1]
        ratio = ratios[len(layers)] if len(ratios) > len(layers) else 0
        smallest = min((value for value in ratios if value), default=0)
        return [Layer(compressed_block(config, family, ratio, smallest), last.ffn, last.extra)]
    last = next((layer for layer in reversed(layers) if layer.attention is None or layer.attention.kind in
                 ("attention", "mla")), layers[-1])  # fmt: skip
    return [last] * config.number("mtp_transformer_layers", default=1, high=16)


def _mtp_extra(config: Config, family: Family, hidden: int) -> list[Weight]:
    """Projection of (hidden state, next token's embedding) to the residual width, norms, and stored copies."""
    found = [
        Weight("eh_proj", hidden, 2 * hidden, role="other"),
        *(weight for name in ("enorm", "hnorm", "shared_head.norm") for weight in vector(name, hidden)),
        *_joined(config.number("hc_mult", default=0, low=0, high=64), hidden),
    ]
    if family.mtp_copies or config.flag("mtp_use_dedicated_embeddings"):
        vocab = config.number("vocab_size", high=MAX_VOCAB)
        found.append(Weight("embed_tokens", vocab, hidden, used=0, role="embedding", matrix=False))
        if family.mtp_copies:
            found.append(Weight("shared_head.head", vocab, hidden, role="head"))
    return found
