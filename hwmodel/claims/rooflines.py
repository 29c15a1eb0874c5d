"""Claims about what binds: ridges, memory-bound decode, attention and experts."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.claims.facts import (
    DEEPSEEK,
    GPU,
    LLAMA,
    MS,
    TB,
    decode_attention_intensity,
    ideal,
    kv_per_token,
    moe_of,
    roof,
)
from hwmodel.claims.forms import batch_where_cache_equals_weights
from hwmodel.claims.rows import Claim, Library, Numbered, Value, row
from hwmodel.hardware import with_number
from hwmodel.lower.mla import Mla
from hwmodel.model import counts
from hwmodel.model.dtypes import fmt
from hwmodel.optimize.knee import knee, ridge, step_batch
from hwmodel.workload import Workload


def ridges(known: Library) -> Iterator[Claim]:
    """Ratio of compute to memory bandwidth of GPUs."""
    listed = (
        (GPU, "bf16", "295.3"),
        (GPU, "fp8", "590.7"),
        ("h200_sxm", "bf16", "206"),
        ("b200_sxm", "bf16", "281"),
        ("a100_sxm", "bf16", "153"),
    )
    for name, dtype, printed in listed:
        chip = known.chip(name)
        yield row(
            f"ridge of {name}, {dtype}",
            f"{printed} FLOP/B",
            ridge(chip, dtype),
            "F / BW",
            roof(chip, dtype),
            note="dense peak; the printed 1,979 TFLOP/s BF16 of H100 is sparse",
        )
    rounded = with_number(known.chip("a100_sxm"), "memory.hbm.bandwidth", 2.0 * TB)
    yield row(
        "ridge of a100_sxm with its bandwidth rounded to 2.0 TB/s",
        "156 FLOP/B",
        ridge(rounded, "bf16"),
        "F / BW",
        roof(rounded, "bf16"),
        note="the upper end of the printed 153-156",
    )
    for stored in ("bf16", "fp8"):
        chip = known.chip(GPU)
        inputs = {**roof(chip, stored), "bytes_per_weight": fmt(stored).bytes}
        yield row(
            f"knee of {GPU} in tokens, {stored}",
            "295 tokens",
            knee(chip, stored, stored),
            "F b_w / (2 BW)",
            inputs,
            note="FP8 doubles F and halves b_w: the same batch",
        )


def decode_is_memory_bound(known: Library) -> Iterator[Claim]:
    """One sequence of Llama-3.1-70B on eight H100."""
    model, chip, n = known.model(LLAMA), known.chip(GPU), 8
    weights, kv = counts.weights_bytes(model, fmt("bf16")), counts.kv_law(model, fmt("bf16")).at(4096)
    bandwidth, flops = n * float(chip.main.bandwidth_bytes_per_s), n * float(chip.peaks.by_dtype()["bf16"])
    inputs: dict[str, Value] = {**roof(chip, "bf16"), "chips": n, "weights_bytes": weights}
    read, compute = weights / bandwidth, 2 * counts.params_total(model) / flops
    yield row("decode step, weights read once", "5.27 ms", read / MS, "W / (n BW)", inputs)
    yield row(
        "decode step with 4,096 tokens of cache",
        "5.32 ms",
        (weights + kv) / bandwidth / MS,
        "(W + KV) / (n BW)",
        {**inputs, "kv_bytes": kv},
    )
    floor = ideal(model, chip, n, Workload(batch=1, context=4096), "bf16").step.time_s
    table = counts.params_by_role(model)["embedding"] * fmt("bf16").bytes
    yield row(
        "decode step with 4,096 tokens of cache, by the ideal run",
        "5.32 ms",
        (floor + table / bandwidth) / MS,
        "ideal step + embedding table / (n BW)",
        {"model": LLAMA, "chips": n, "context": 4096, "ideal_step_s": floor, "embedding_table_bytes": table},
        note=f"the run reads one row of the table and not all of it: its floor is {floor / MS:.3f} ms",
    )
    used: dict[str, Value] = {**roof(chip, "bf16"), "chips": n, "params": counts.params_total(model)}
    yield row("compute of the decode step", "0.018 ms", compute / MS, "2 P / (n F)", used)
    yield row(
        "compute as a share of the decode step",
        "0.34 %",
        100 * compute / read,
        "(2 P / F) / (W / BW)",
        {**used, "weights_bytes": weights},
    )


def attention_gains_nothing_from_batching(known: Library) -> Iterator[Claim]:
    """Intensity of decode attention, the same at every batch."""
    gpu, batch, context = known.chip(GPU), 64, 8192
    listed = (
        (LLAMA, "bf16", "8", "grouped queries"),
        ("llama-2-7b", "bf16", "1", "one KV head per query head"),
        ("qwen3-235b-a22b", "fp8", "32", "grouped queries"),
        ("step-3", "fp8", "128", "one KV head"),
        (DEEPSEEK, "fp8", "483.6", "latent: products with keys 576 and values 512 wide, 576 elements read"),
    )
    for name, kv, printed, note in listed:
        found = decode_attention_intensity(known.model(name), gpu, kv, batch, context)
        inputs: dict[str, Value] = {"model": name, "kv_dtype": kv, "batch": batch, "context": context}
        yield row(
            f"decode attention of {name}, {kv} cache",
            f"{printed} FLOP/B",
            found,
            "FLOP / KV bytes of the attention op (2 g / b_kv)",
            inputs,
            note=note,
        )
    heads = next(kind.attention.heads for kind in known.model(DEEPSEEK).kinds if isinstance(kind.attention, Mla))
    yield row(
        f"decode attention of {DEEPSEEK}, fp8 cache, values charged at the width of keys",
        "512 FLOP/B",
        4 * heads / fmt("fp8").bytes,
        "4 heads / b_kv",
        {"model": DEEPSEEK, "heads": heads, "kv_bytes_per_element": fmt("fp8").bytes},
        note="a convention of Step-3 (arXiv 2507.19427), 5.9 % above the exact count that this program uses",
    )


def cache_outweighs_weights(known: Library) -> Iterator[Claim]:
    """Batches at which decode reads as much cache as weights."""
    model = known.model(LLAMA)
    weights, kv_bytes = counts.weights_bytes(model, fmt("bf16")), kv_per_token(model)
    for context, printed in ((4096, "105"), (32_768, "13.1"), (131_072, "3.29")):
        yield row(
            f"batch whose cache equals the weights, {LLAMA} at {context:,}",
            f"{printed} sequences",
            batch_where_cache_equals_weights(weights, context, kv_bytes),
            "W / (context x KV bytes per token)",
            {"weights_bytes": weights, "context": context, "kv_bytes_per_token": kv_bytes},
        )


def per_expert_batch(known: Library) -> Iterator[Claim]:
    """Tokens per expert that saturate a device, and the step they ask for."""
    sparse = "50 PFLOP/s is the sparse figure of the launch; the chip file has the dense 35"
    rubin = known.chip("rubin")
    listed = (
        (GPU, known.chip(GPU), "fp8", "fp8", "295", ""),
        ("b200_sxm", known.chip("b200_sxm"), "fp8", "fp8", "281", ""),
        ("rubin", rubin, "nvfp4", "nvfp4", "447", "dense; 0.5625 B per weight with its scales"),
        ("rubin at its sparse 50 PFLOP/s", with_number(rubin, "peaks.nvfp4", 50e15), "nvfp4", "nvfp4", "639", sparse),
        ("groq3_lpu", known.chip("groq3_lpu"), "fp8", "fp8", "4.0", "SRAM"),
    )
    for label, chip, dtype, stored, printed, note in listed:
        inputs: dict[str, Value] = {**roof(chip, dtype), "bytes_per_weight": fmt(stored).bytes}
        yield row(
            f"tokens per expert at the knee, {label}",
            f"{printed} tokens",
            knee(chip, dtype, stored),
            "F b_w / (2 BW)",
            inputs,
            note=note,
        )
    moe = moe_of(known.model(DEEPSEEK))
    for name, printed in ((GPU, "9451"), ("groq3_lpu", "128")):
        found = knee(known.chip(name), "fp8", "fp8")
        yield row(
            f"step batch that saturates the experts of {DEEPSEEK}, {name}",
            f"{printed} tokens",
            step_batch(found, moe.experts, moe.topk),
            "m* E / k",
            {"knee_tokens": found, "experts": moe.experts, "topk": moe.topk},
            note="uniform routing",
        )


CLAIMS: Numbered = (
    (1, ridges),
    (5, decode_is_memory_bound),
    (6, attention_gains_nothing_from_batching),
    (6, cache_outweighs_weights),
    (17, per_expert_batch),
)
