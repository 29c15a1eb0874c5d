"""Which layer is what: the token mixer, the window, and dense or expert feed-forward of each layer."""

from __future__ import annotations

from typing import Any

from hwmodel.model.config import MAX_WIDTH, Config
from hwmodel.model.families import Family
from hwmodel.spec.errors import did_you_mean

FULL, SLIDING, CHUNKED, LINEAR, LIGHTNING, KDA, MAMBA, NONE = (
    "full", "sliding", "chunked", "linear", "lightning", "kda", "mamba", "none",
)  # fmt: skip
_WORDS = {
    "full_attention": FULL, "attention": FULL, "global": FULL, "global_attention": FULL, "sliding_attention": SLIDING,
    "sliding": SLIDING, "local": SLIDING, "chunked_attention": CHUNKED, "linear_attention": LINEAR, "mamba": MAMBA,
    "mamba2": MAMBA, "moe": NONE, "mlp": NONE,
}  # fmt: skip
_PATTERN = {"M": (MAMBA, ""), "*": (FULL, ""), "E": (NONE, "moe"), "-": (NONE, "dense")}
_SINGLE = {"mamba": (MAMBA, ""), "attention": (FULL, ""), "moe": (NONE, "moe"), "mlp": (NONE, "dense")}


def mixers(config: Config, family: Family, count: int) -> list[str]:
    """Name the token mixer of each layer: one of the constants above."""
    single = single_parts(config, "hybrid_override_pattern", count)
    if single is not None:
        return [mixer for mixer, _ in single]
    kda = config.mapping("linear_attn_config")
    if kda:
        return _from_kda(config, kda, count)
    types = config.whole_items("attn_type_list", count, 0, 1)
    if types is not None:
        return [FULL if kind else LIGHTNING for kind in types]
    words = config.items("layer_types", count, at_least=True)
    if words is not None:
        found = [_word(config, "layer_types", i, word) for i, word in enumerate(words[:count])]
        return _lightning(config, found)
    interval = config.optional("full_attention_interval")
    if interval is not None and config.has("linear_num_value_heads", "linear_num_key_heads"):
        return [FULL if (i + 1) % interval == 0 else LINEAR for i in range(count)]
    period = config.optional("attn_layer_period")
    if period is not None:
        offset = config.number("attn_layer_offset", default=0, low=0)
        return [FULL if i % period == offset else MAMBA for i in range(count)]
    return _sliding(config, family, count)


def single_parts(config: Config, key: str, count: int | None) -> list[tuple[str, str]] | None:
    """Split layers that are one mixer or one feed-forward part each: (mixer, feed-forward), or None."""
    words = config.items("layers_block_type", count) if key == "hybrid_override_pattern" else None
    if words is not None:
        return [_part(config, "layers_block_type", i, word, _SINGLE) for i, word in enumerate(words)]
    pattern = config.text(key)
    if not pattern:
        return None
    if count is not None and len(pattern) != count:
        config.problem(config.place(key), f"has {len(pattern)} letters for {count} layers")
        return [(FULL, "")] * count
    return [_part(config, key, i, letter, _PATTERN) for i, letter in enumerate(pattern)]


def expert_layers(config: Config, count: int) -> list[bool]:
    """Tell for each layer whether its feed-forward part has experts (the model has some)."""
    named = _named_layers(config, count)
    if named is not None:
        return named
    first = config.number("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0, low=0)
    last = config.number("moe_layer_end_index", default=-1, low=-1)
    path, freq = config.find("moe_layer_freq", "moe_layer_interval", "moe_every_n_layers")
    every, phase = (config.whole(path, freq, 1, MAX_WIDTH) if freq is not None else 1), 0
    step = config.optional("interleave_moe_layer_step", "decoder_sparse_step")
    if step is not None:
        every, phase = step, step - 1
    period = config.optional("expert_layer_period")
    if period is not None:
        every, phase = period, config.number("expert_layer_offset", default=0, low=0) % period
    dense = set(config.whole_items("mlp_only_layers") or ())
    stop = count if last < 0 else last + 1
    return [first <= i < stop and i % every == phase and i not in dense for i in range(count)]


def _named_layers(config: Config, count: int) -> list[bool] | None:
    """Read the forms that name the expert layers one by one."""
    config.ignore("moe_every_n_layer", "moe_layer_offset")
    words = config.items("mlp_layer_types", count, at_least=True)
    if words is not None:
        for i, word in enumerate(words):
            if word not in ("dense", "sparse", "moe"):
                config.problem(
                    (*config.place("mlp_layer_types"), i),
                    f"unknown layer kind {str(word)[:40]!r} (known: dense, sparse)",
                )
        return [word != "dense" for word in words[:count]]
    path, enum = config.find("moe_layers_enum")
    if isinstance(enum, str):
        parts = [part.strip() for part in enum.split(",") if part.strip()]
        if not all(part.isdecimal() and len(part) < 9 for part in parts):
            config.problem(path, f"expected layer numbers separated by commas, got {enum[:60]!r}")
            return [False] * count
        chosen = {int(part) for part in parts}
        return [i in chosen for i in range(count)]
    if enum is not None or config.has("moe_layers"):
        key = "moe_layers_enum" if enum is not None else "moe_layers"
        chosen = set(config.whole_items(key) or ())
        return [i in chosen for i in range(count)] if chosen else None
    if isinstance(config.find("moe_layer_freq")[1], list):
        flags = config.whole_items("moe_layer_freq", count, 0, 1)
        return [bool(flag) for flag in flags or [0] * count]
    return None


def _from_kda(config: Config, kda: dict[str, Any], count: int) -> list[str]:
    """Layers of `linear_attn_config`, whose lists count from one."""
    chosen = kda.get("kda_layers")
    place = (*config.place("linear_attn_config"), "kda_layers")
    if not isinstance(chosen, list):
        config.problem(place, "expected a list of layer numbers, counted from 1")
        return [FULL] * count
    numbers = {config.whole((*place, i), value, 1, count) for i, value in enumerate(chosen)}
    return [KDA if i + 1 in numbers else FULL for i in range(count)]


def _lightning(config: Config, words: list[str]) -> list[str]:
    """Linear layers without the delta rule's keys are lightning attention."""
    if LINEAR in words and not config.has("linear_num_value_heads"):
        if config.has("linear_full_attn_alpha_factor", "full_attn_alpha_factor", "layernorm_full_attention_alpha"):
            return [LIGHTNING if word == LINEAR else word for word in words]
        config.problem((), "missing key 'linear_num_value_heads': layer_types has linear_attention layers")
    return words


def _sliding(config: Config, family: Family, count: int) -> list[str]:
    """Full or windowed, by whichever rule the config or its class has."""
    if config.has("attention_chunk_size"):
        return _chunked(config, count)
    flags = config.whole_items("hybrid_layer_pattern", count, 0, 1)
    if flags is not None:
        return [SLIDING if flag else FULL for flag in flags]
    if not config.has("sliding_window") or config.find("sliding_window")[1] == 0:
        config.ignore("sliding_window_pattern", "use_sliding_window", "max_window_layers")
        return [FULL] * count
    if not config.flag("use_sliding_window", default=not family.window_opt_in):
        config.ignore("max_window_layers")
        return [FULL] * count
    path, pattern = config.find("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern) - set("LG"):
            config.problem(path, f"expected a word of L (local) and G (global), got {pattern[:40]!r}")
            return [FULL] * count
        return [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(count)]
    period = config.whole(path, pattern, 1, MAX_WIDTH) if pattern is not None else family.window_period
    if not period:
        first = config.number("max_window_layers", default=0, low=0) if family.window_opt_in else 0
        return [SLIDING if i >= first else FULL for i in range(count)]
    full = 1 if family.window_first else period - 1
    return [FULL if i % period == full else SLIDING for i in range(count)]


def _chunked(config: Config, count: int) -> list[str]:
    """Three of four layers attend inside chunks (a class rule), unless `no_rope_layers` says which (0: everything)."""
    flags = config.items("no_rope_layers")
    if flags:
        flags = config.whole_items("no_rope_layers", count, 0, 1)
        return [CHUNKED if flag else FULL for flag in flags or [1] * count]
    period = config.number("no_rope_layer_interval", default=4)
    return [FULL if (i + 1) % period == 0 else CHUNKED for i in range(count)]


def _word(config: Config, key: str, index: int, word: object) -> str:
    if isinstance(word, str) and word in _WORDS:
        return _WORDS[word]
    config.problem((*config.place(key), index), f"unknown layer kind {str(word)[:40]!r}{did_you_mean(word, _WORDS)}")
    return FULL


def _part(config: Config, key: str, index: int, word: object, known: dict[str, tuple[str, str]]) -> tuple[str, str]:
    if isinstance(word, str) and word in known:
        return known[word]
    message = f"unknown layer kind {str(word)[:40]!r} at layer {index} (known: {', '.join(known)})"
    config.problem((*config.place(key), index) if known is _SINGLE else config.place(key), message)
    return (FULL, "")
