"""Claims about serving: batches, pages, queues, and what a cache saves."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.claims.facts import GB, GPU, LLAMA, MS, group_of, kv_per_token
from hwmodel.claims.forms import (
    prefill_tokens,
    recompute_s_per_token,
    reload_bandwidth,
    static_utilisation_exponential,
    static_utilisation_uniform,
    ttft_one_queue,
    ttft_split,
    ttft_two_stages,
)
from hwmodel.claims.rows import Claim, Library, Numbered, Value, row
from hwmodel.model import counts
from hwmodel.model.dtypes import fmt


def static_batching(known: Library) -> Iterator[Claim]:
    """Slots that a static batch uses."""
    for batch, printed in ((8, "36.8"), (16, "29.6"), (32, "24.6"), (64, "21.1"), (256, "16.3")):
        yield row(
            f"utilisation of a static batch of {batch}, exponential lengths",
            f"{printed} %",
            100 * static_utilisation_exponential(batch),
            "E[n] / E[max_B n] = 1 / H_B",
            {"batch": batch},
        )
    yield row(
        "utilisation of a static batch of 8, uniform lengths",
        "56.25 %",
        100 * static_utilisation_uniform(8),
        "(B + 1) / (2 B)",
        {"batch": 8},
        note="the source prints the formula only",
    )


def paged_cache(known: Library) -> Iterator[Claim]:
    """Memory that pages and reservations waste."""
    law, block, mean = counts.kv_law(known.model(LLAMA), fmt("bf16")), 16, 1000
    lengths = range(mean - block // 2, mean + block // 2)
    padding = sum(law.at(n, block=block) - law.at(n) for n in lengths) / block / law.bytes_per_token
    yield row(
        "waste of pages",
        "0.75 %",
        100 * padding / mean,
        "mean padding / mean length, mean padding (block - 1) / 2",
        {"block": block, "mean_length": mean, "mean_padding_tokens": padding},
        note="lengths spread evenly over one page",
    )
    reserved, used = 2048, 500
    yield row(
        "use of contiguous reservations",
        "24.4 %",
        100 * law.at(used) / law.at(reserved),
        "E[length] / reserved",
        {"reserved_tokens": reserved, "mean_length": used},
    )


def disaggregated_prefill(known: Library) -> Iterator[Claim]:
    """Time to first token by queue, and the hand-off of the cache."""
    rate, prefill, speedup = 1.5, 0.5, 1.5
    inputs: dict[str, Value] = {"requests_per_s": rate, "prefill_s": prefill}
    yield row("TTFT of one server", "1.25 s", ttft_one_queue(rate, prefill), "D + R D^2 / (2 (1 - R D))", inputs)
    yield row("TTFT of two pipeline stages", "0.575 s", ttft_two_stages(rate, prefill), "D + R D^2 / (4 (2 - R D))", inputs)
    yield row(
        "TTFT of two chips tensor parallel",
        "0.500 s",
        ttft_split(rate, prefill, speedup),
        "D / K + R D^2 / (2 K (K - R D))",
        {**inputs, "speedup": speedup},
    )
    size, chip = counts.kv_law(known.model(LLAMA), fmt("bf16")).at(4096), known.chip(GPU)
    yield row(
        "cache to hand over at 4,096 tokens",
        "1.342 GB",
        size / GB,
        "context x KV bytes per token",
        {"model": LLAMA, "context": 4096},
    )
    for name, printed in (("nic", "26.8"), ("nvlink", "3.0")):
        bandwidth = float(chip.link(name).bandwidth_bytes_per_s)
        yield row(
            f"hand-off over {name} of {GPU}",
            f"{printed} ms",
            size / bandwidth / MS,
            "KV / BW",
            {"kv_bytes": size, "bandwidth_bytes_per_s": bandwidth},
            note="without latency",
        )


def agent_sessions(known: Library) -> Iterator[Claim]:
    """Length of agents' sessions: arithmetic on published counts."""
    note = "arithmetic on published counts, nothing of this program in it"
    yield row(
        "steps per session, GitHub Copilot",
        "84.2 steps",
        40.6 + 43.6,
        "LLM calls + tool calls",
        {"llm_calls": 40.6, "tool_calls": 43.6},
        note=f"{note} (arXiv 2608.00101); heavy tail",
    )
    yield row(
        "LLM steps per session, TraceLab",
        "83.7 steps",
        357_161 / 4265,
        "steps / sessions",
        {"llm_steps": 357_161, "sessions": 4265},
        note=f"{note} (arXiv 2606.30560)",
    )
    yield row(
        "input tokens cached, TraceLab",
        "95.7 %",
        100 * 52.56 / 54.90,
        "cached / input",
        {"cached_tokens": 52.56e9, "input_tokens": 54.90e9},
        note=f"{note} (arXiv 2606.30560)",
    )


def cache_reuse(known: Library) -> Iterator[Claim]:
    """Prompt tokens of an agent's session with and without a prefix cache."""
    steps, first, added = 100, 20_000, 1000
    inputs: dict[str, Value] = {"steps": steps, "first_prompt_tokens": first, "added_tokens_per_step": added}
    without, with_reuse = prefill_tokens(steps, first, added)
    yield row("prompt tokens without reuse", "6.95 M tokens", without / 1e6, "n c0 + d n (n - 1) / 2", inputs)
    yield row("prompt tokens with reuse", "0.119 M tokens", with_reuse / 1e6, "c0 + (n - 1) d", inputs)
    yield row("gain of reuse", "58.4 x", without / with_reuse, "ratio of the two", inputs)


def _recompute(known: Library) -> tuple[float, dict[str, Value]]:
    """Seconds to prefill one token of Llama-3.1-70B again on eight H100, and the inputs."""
    model, chip, n, mfu = known.model(LLAMA), known.chip(GPU), 8, 0.5
    params, peak = counts.params_total(model), float(chip.peaks.by_dtype()["bf16"])
    inputs: dict[str, Value] = {"params": params, "chips": n, "chip": GPU, "peak_flops_per_s": peak, "mfu": mfu}
    return recompute_s_per_token(params, n * peak, mfu), inputs


def cache_offload(known: Library) -> Iterator[Claim]:
    """Link rate above which loading the cache beats computing it again."""
    model = known.model(LLAMA)
    per_token, inputs = _recompute(known)
    kv_bytes = kv_per_token(model)
    yield row("recompute of one token", "35.7 us", per_token * 1e6, "2 P / (n F MFU)", inputs)
    as_printed = float(f"{per_token * 1e6:.3g}") * 1e-6
    pcie = float(known.chip(GPU).link("pcie").bandwidth_bytes_per_s)
    yield row(
        "link rate where loading equals recompute",
        "9.18 GB/s",
        kv_bytes / as_printed / GB,
        "KV bytes per token / recompute, which the source rounds to 3 digits",
        {"kv_bytes_per_token": kv_bytes, "recompute_s_rounded": as_printed},
        note=f"{kv_bytes / per_token / GB:.2f} GB/s without rounding; one PCIe link ({pcie / GB:g} GB/s per direction) "
        f"wins {pcie * as_printed / kv_bytes:.1f}x",
    )
    prefix, n = 8192, 8
    for name, printed in (("a800_sxm", "5.86"), ("h800_sxm", "18.6")):
        flops = n * float(known.chip(name).peaks.by_dtype()["bf16"])
        size = {"prefix": prefix, "hidden": model.hidden, "group": group_of(model), "element_bytes": fmt("bf16").bytes}
        found = reload_bandwidth(prefix, model.hidden, group_of(model), fmt("bf16").bytes, flops)
        yield row(
            f"Mooncake's form on 8 {name}",
            f"{printed} GB/s",
            found / GB,
            "2 d s G / (g (4 p d + 22 d^2))",
            {"model": LLAMA, **size, "flops_per_s": flops},
        )


def return_within_ten_minutes(known: Library) -> Iterator[Claim]:
    """How long a cache may stay in memory before computing it again is cheaper."""
    model, chip, n = known.model(LLAMA), known.chip(GPU), 8
    per_token, _ = _recompute(known)
    free = n * float(chip.main.capacity_bytes) - counts.weights_bytes(model, fmt("bf16"))
    kv_bytes, cheaper = kv_per_token(model), 20
    tau = per_token * free / kv_bytes
    inputs: dict[str, Value] = {"recompute_s_per_token": per_token, "free_bytes": free, "kv_bytes_per_token": kv_bytes}
    formula = "recompute per token x free memory / KV bytes per token"
    yield row("memory of 8 H100 that the weights leave", "499 GB", free / GB, "n C - W", {"chip": GPU, "chips": n})
    yield row("break-even time of a cache in HBM", "54 s", tau, formula, inputs)
    yield row(
        "break-even time in host memory",
        "18 min",
        tau * cheaper / 60,
        f"{formula} x price ratio",
        {**inputs, "price_ratio": cheaper},
        note="host memory assumed at a twentieth of the price: ten minutes is a question for that tier",
    )


CLAIMS: Numbered = (
    (8, static_batching),
    (9, paged_cache),
    (10, disaggregated_prefill),
    (11, agent_sessions),
    (12, cache_reuse),
    (13, cache_offload),
    (14, return_within_ten_minutes),
)
