"""Claims about what models hold: caches, parameters and the shares of their parts."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.claims.facts import DEEPSEEK, GPU, LLAMA, TB, group_of, kv_per_token, moe_of
from hwmodel.claims.rows import Claim, Library, Numbered, Value, row
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt


def long_context_cache(known: Library) -> Iterator[Claim]:
    """Cache of 512 sequences of Llama-3.1-70B at full context."""
    model, batch = known.model(LLAMA), 512
    group, longest = group_of(model), model.max_context
    cases = (
        ("BF16, full context", "bf16", longest, 1, "21.990"),
        ("BF16, 128,000 tokens", "bf16", 128_000, 1, "21.47"),
        ("FP8, full context", "fp8", longest, 1, "10.995"),
        ("BF16, 4,096 tokens", "bf16", 4096, 1, "0.687"),
        ("as if every query head had its own, 16,384 tokens", "bf16", 16_384, group, "21.990"),
        ("FP8, 262,144 tokens", "fp8", 262_144, 1, "21.990"),
    )
    formula = "batch x context x KV bytes per token"
    for label, kv, context, copies, printed in cases:
        inputs: dict[str, Value] = {
            "model": model.name,
            "batch": batch,
            "context": context,
            "kv_dtype": kv,
            "kv_bytes_per_token": kv_per_token(model, kv) * copies,
        }
        size = counts.kv_law(model, fmt(kv)).at(context, batch) * copies
        note = f"beyond the model's {longest:,}" if context > longest else ""
        yield row(f"KV cache of 512 sequences, {label}", f"{printed} TB", size / TB, formula, inputs, note=note)
    size = counts.kv_law(model, fmt("bf16")).at(longest, batch)
    yield row(
        "KV cache of 512 sequences, BF16, full context, binary units",
        "20.000 TiB",
        size / 2**40,
        formula,
        {"cache_bytes": size},
    )
    for name, printed in ((GPU, "34.4"), ("h200_sxm", "19.5"), ("mi300x", "14.3")):
        capacity = float(known.chip(name).main.capacity_bytes)
        yield row(
            f"servers of 8 {name} for that cache of 21.99 TB",
            f"{printed} servers",
            size / (8 * capacity),
            "cache / (8 C)",
            {"cache_bytes": size, "chips_per_server": 8, "capacity_bytes": capacity},
        )


def dense_shares(known: Library) -> Iterator[Claim]:
    """Attention and feed-forward part of dense models."""
    listed = (
        ("llama-3.1-8b", "4.20", "19.2", "80.8", "8.030", "the source of '4x, 20 to 80'"),
        (LLAMA, "4.667", "17.65", "82.35", "70.55", ""),
        ("llama-3.1-405b", "4.588", "17.9", "82.1", "405.85", ""),
        ("llama-2-7b", "", "33.2", "66.8", "", "multi-head attention: 20 to 80 does not hold"),
        ("gpt-3-175b", "", "33.3", "66.7", "", "4 h^2 against 8 h^2, biases counted"),
    )
    for name, ratio, attention, ffn, total, note in listed:
        model = known.model(name)
        roles, found = counts.params_by_role(model), counts.shares(model)
        inputs: dict[str, Value] = {"model": name, "attention_params": roles["attention"], "ffn_params": roles["ffn"]}
        if ratio:
            yield row(
                f"FFN over attention, {name}",
                f"{ratio} x",
                found[1] / found[0],
                "P_ffn / P_attention",
                inputs,
                note=note,
            )
        yield row(
            f"attention share, {name}",
            f"{attention} %",
            100 * found[0],
            "P_attention / (P_attention + P_ffn)",
            inputs,
            note=note,
        )
        yield row(f"FFN share, {name}", f"{ffn} %", 100 * found[1], "P_ffn / (P_attention + P_ffn)", inputs, note=note)
        if total:
            yield _total(model, total)


def dense_shares_with_embeddings(known: Library) -> Iterator[Claim]:
    """Three parts of Llama-3.1-70B as shares of all its parameters."""
    model = known.model(LLAMA)
    roles = counts.params_by_role(model)
    parts = {"attention": roles["attention"], "FFN": roles["ffn"], "embeddings": roles["embedding"] + roles["head"]}
    for (part, params), printed in zip(parts.items(), ("17.1", "79.9", "3.0"), strict=True):
        whole = counts.params_total(model)
        yield row(
            f"{part} share of all parameters, {LLAMA}",
            f"{printed} %",
            100 * params / whole,
            "P_part / P",
            {"part_params": params, "params": whole},
        )


def _total(model: Model, printed: str) -> Claim:
    found = counts.params_total(model)
    return row(
        f"parameters of {model.name}",
        f"{printed} B",
        found / 1e9,
        "sum over all tensors",
        {"model": model.name},
        note="MTP modules and vision parts left out",
    )


def moe_shares(known: Library) -> Iterator[Claim]:
    """Attention in mixture-of-experts models: little of what is stored, much of what is used."""
    listed = (
        ("mixtral-8x7b", "2.89", "46.70"),
        ("qwen3-235b-a22b", "2.87", "235.09"),
        (DEEPSEEK, "1.71", "671.03"),
        ("gpt-oss-120b", "0.83", "116.8"),
    )
    for name, share, total in listed:
        model = known.model(name)
        inputs: dict[str, Value] = {
            "model": name,
            **{f"{role}_params": n for role, n in counts.params_by_role(model).items()},
        }
        yield row(
            f"attention share of attention + FFN, {name}",
            f"{share} %",
            100 * counts.shares(model)[0],
            "P_attention / (P_attention + P_ffn), all experts, router in FFN",
            inputs,
        )
        yield _total(model, total)
    model = known.model(DEEPSEEK)
    attention, used = counts.params_by_role(model)["attention"], counts.active(model).excl_embeddings
    yield row(
        f"active parameters of {DEEPSEEK} without embeddings",
        "35.7 B",
        used / 1e9,
        "all but the experts not chosen, embedding and head",
        {"model": DEEPSEEK, "topk": moe_of(model).topk, "experts": moe_of(model).experts},
    )
    yield row(
        f"attention share of active parameters, {DEEPSEEK}",
        "32.0 %",
        100 * attention / used,
        "P_attention / P_active",
        {"attention_params": attention, "active_params": used},
        note="the opposite of the stored share",
    )


CLAIMS: Numbered = (
    (2, long_context_cache),
    (3, dense_shares),
    (3, dense_shares_with_embeddings),
    (4, moe_shares),
)
