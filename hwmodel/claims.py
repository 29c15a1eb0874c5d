"""What people say about LLM inference on hardware, recomputed from the chips and models of this program.

Each small function yields one row per printed figure. To add a claim, write a function that takes a `Library` and
yields `row(...)`, and list it in `CLAIMS` with its number. What the program knows (peaks, bandwidths, parameters, cache
bytes, prices) is read from the library; only what belongs to the claim alone (a batch, a rate, a published count) is
typed, and it is named among the row's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any

from hwmodel.economics import HOURS_PER_YEAR, LIFE_YEARS, cost
from hwmodel.hardware import Chip, Cluster, Pool, load_chip, with_number
from hwmodel.kernels import columns as c
from hwmodel.lower.attention import Attention
from hwmodel.lower.decoder import Formats
from hwmodel.lower.mla import Mla
from hwmodel.lower.moe import Moe
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.partition.tensor import Tensor
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario, Workload

Value = float | int | str
RELATIVE_TOLERANCE = 1e-3
TB, GB, MS = 1e12, 1e9, 1e-3
LLAMA, DEEPSEEK, GPU = "llama-3.1-70b", "deepseek-v3", "h100_sxm"


@dataclass(frozen=True)
class Claim:
    """One printed figure beside what this program computes for it."""

    number: int
    """Of the claim; its figures share it."""
    claim: str
    formula: str
    inputs: dict[str, Value]
    result: float
    unit: str
    expected: float
    """As printed."""
    agrees: bool
    note: str


class Library:
    """Chips and models by name, loaded when first asked for; what is given stands in for the file of that name."""

    def __init__(self, chips: Iterable[Chip] = (), models: Iterable[Model] = ()) -> None:
        self._chips = {chip.name: chip for chip in chips}
        self._models = {model.name: model for model in models}

    def chip(self, name: str) -> Chip:
        """Find a chip by name."""
        if name not in self._chips:
            self._chips[name] = load_chip(name)
        return self._chips[name]

    def model(self, name: str) -> Model:
        """Find a model by name."""
        if name not in self._models:
            self._models[name] = load_model(name)
        return self._models[name]


def claims(library: Library | None = None) -> list[Claim]:
    """Every row of every claim, computed from the library (the shipped files when None)."""
    known = library or Library()
    return [replace(found, number=number) for number, compute in CLAIMS for found in compute(known)]


def to_dict(claim: Claim) -> dict[str, Any]:
    """Plain data, as ``hwmodel claims --json`` prints it."""
    return asdict(claim)


def row(claim: str, printed: str, result: float, formula: str, inputs: Mapping[str, Value], *, note: str = "") -> Claim:
    """Make a row, its claim's number left to `claims`.

    Parameters
    ----------
    printed
        Figure and unit with the digits the source gives: ``21.990 TB``, ``6.95 M tokens``.
    """
    figure, _, unit = printed.partition(" ")
    plain = {key: float(value) if isinstance(value, float) else value for key, value in inputs.items()}
    value = float(result)
    return Claim(0, claim, formula, plain, value, unit, float(figure), agree(value, figure), note)


def agree(result: float, printed: str) -> bool:
    """Whether a result is within 0.1 % of a printed figure, or within half a unit of its last digit if that is more."""
    exponent = Decimal(printed).as_tuple().exponent
    half_unit = 0.5 * 10.0 ** int(exponent)
    return abs(result - float(printed)) <= max(RELATIVE_TOLERANCE * abs(float(printed)), half_unit) * (1 + 1e-9)


# --- closed forms ---------------------------------------------------------------------------------------------------


def ridge(chip: Chip, dtype: str) -> float:
    """Intensity (FLOP/B) above which a chip's dense peak binds, F / BW (Williams et al., Roofline, CACM 2009)."""
    return float(chip.peaks.by_dtype()[dtype]) / float(chip.main.bandwidth_bytes_per_s)


def knee(chip: Chip, dtype: str, stored: str) -> float:
    """Rows of a weight GEMM at which reading and computing take equally long: F b_w / (2 BW), scales in b_w."""
    return ridge(chip, dtype) * fmt(stored).bytes / 2


def batch_where_cache_equals_weights(weights_bytes: float, context: int, kv_bytes_per_token: float) -> float:
    """Sequences whose cache is as large as the weights, both read once per decode step."""
    return weights_bytes / (context * kv_bytes_per_token)


def streaming_share(price_ratio: float, speed_ratio: float) -> float:
    """Share x of weight streaming in the standard step that explains a price for a speed.

    A step of B sequences takes T = a + b B, so throughput at interactivity s = 1 / T is X(s) = (1 - a s) / b. With cost
    going as 1 / X and x = a s: (1 - x) / (1 - speed x) = price.
    """
    return (price_ratio - 1) / (price_ratio * speed_ratio - 1)


def static_utilisation_exponential(batch: int) -> float:
    """Share of useful slots of a static batch, E[n] / E[max of B n], for exponential lengths: 1 / H_B."""
    return 1 / sum(1 / i for i in range(1, batch + 1))


def static_utilisation_uniform(batch: int) -> float:
    """Share of useful slots of a static batch for lengths uniform on (0, N): (B + 1) / (2 B)."""
    return (batch + 1) / (2 * batch)


def ttft_one_queue(rate: float, prefill_s: float) -> float:
    """Mean TTFT (s) of one prefill server, M/D/1: D + R D^2 / (2 (1 - R D)) (DistServe, OSDI 2024, section 3)."""
    return prefill_s + rate * prefill_s**2 / (2 * (1 - rate * prefill_s))


def ttft_two_stages(rate: float, prefill_s: float) -> float:
    """Mean TTFT (s) of two pipeline stages: D + R D^2 / (4 (2 - R D)) (DistServe, section 3)."""
    return prefill_s + rate * prefill_s**2 / (4 * (2 - rate * prefill_s))


def ttft_split(rate: float, prefill_s: float, speedup: float) -> float:
    """Mean TTFT (s) of tensor parallelism K times as fast: D / K + R D^2 / (2 K (K - R D)) (DistServe, section 3)."""
    return prefill_s / speedup + rate * prefill_s**2 / (2 * speedup * (speedup - rate * prefill_s))


def prefill_tokens(steps: int, first: int, added: int) -> tuple[int, int]:
    """Prompt tokens of a session without and with cache reuse: n c0 + d n (n - 1) / 2 and c0 + (n - 1) d."""
    return steps * first + added * steps * (steps - 1) // 2, first + (steps - 1) * added


def recompute_s_per_token(params: float, flops_per_s: float, mfu: float) -> float:
    """Seconds (s) to prefill one token again: 2 P / (F MFU)."""
    return 2 * params / (flops_per_s * mfu)


def reload_bandwidth(prefix: int, hidden: int, group: int, element_bytes: float, flops_per_s: float) -> float:
    """Link rate (B/s) above which loading a cached prefix beats prefilling it (Mooncake, arXiv 2407.00079).

    B > 2 d s G / (g (a p d + b d^2)), d hidden width, s bytes per element, g query heads per KV head, p prefix tokens;
    a = 4 (attention) and b = 22 (matrices of a Llama block).
    """
    return 2 * hidden * element_bytes * flops_per_s / (group * (4 * prefix * hidden + 22 * hidden**2))


def margin(cost_over_price: float) -> float:
    """Gross margin, 1 - cost / price."""
    return 1 - cost_over_price


def hourly_usd(chip: Chip) -> float:
    """Dollars per hour of one chip: rental, else straight line."""
    spent, why = cost(Cluster((Pool("chip", chip, 1),)), 1.0)
    if spent is None:
        raise ValueError(why)
    return spent.usd_per_hour


# --- what the claims read from chips and models -----------------------------------------------------------------------


def _roof(chip: Chip, dtype: str) -> dict[str, Value]:
    return {
        "chip": chip.name,
        "dtype": dtype,
        "peak_flops_per_s": float(chip.peaks.by_dtype()[dtype]),
        "bandwidth_bytes_per_s": float(chip.main.bandwidth_bytes_per_s),
    }


def _kv_per_token(model: Model, kv: str = "bf16") -> float:
    return counts.kv_law(model, fmt(kv)).bytes_per_token


def _moe(model: Model) -> Moe:
    return next(layer.ffn for layer in model.kinds if isinstance(layer.ffn, Moe))


def _group(model: Model) -> int:
    return next(layer.attention.group for layer in model.kinds if isinstance(layer.attention, Attention))


def _ideal(model: Model, chip: Chip, count: int, workload: Workload, kv: str) -> Result:
    """Find the physical floor of one step: BF16 weights, tensor parallel over all chips."""
    formats = Formats(model.dtype, fmt(kv), fmt("bf16"))
    cluster = Cluster((Pool("gpu", chip, count),))
    return run(Scenario("claim", model, formats, cluster, (Tensor(degree=count),), workload, "the claim"), ideal=True)


def decode_attention_intensity(model: Model, chip: Chip, kv: str, batch: int, context: int) -> float:
    """FLOP per cache byte of decode attention, as the kernel that prices it counts them."""
    placed = _ideal(model, chip, 1, Workload(batch=batch, context=context), kv).placed
    ops = enumerate(placed.table.ops)
    core = next(index for index, op in ops if op.kind == "attention_decode" and op.kept is not None)
    return float(placed.priced[core, c.FLOPS] / placed.priced[core, c.KV_BYTES])


# --- the claims -------------------------------------------------------------------------------------------------------


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
            _roof(chip, dtype),
            note="dense peak; the printed 1,979 TFLOP/s BF16 of H100 is sparse",
        )
    rounded = with_number(known.chip("a100_sxm"), "memory.hbm.bandwidth", 2.0 * TB)
    yield row(
        "ridge of a100_sxm with its bandwidth rounded to 2.0 TB/s",
        "156 FLOP/B",
        ridge(rounded, "bf16"),
        "F / BW",
        _roof(rounded, "bf16"),
        note="the upper end of the printed 153-156",
    )
    for stored in ("bf16", "fp8"):
        chip = known.chip(GPU)
        inputs = {**_roof(chip, stored), "bytes_per_weight": fmt(stored).bytes}
        yield row(
            f"knee of {GPU} in tokens, {stored}",
            "295 tokens",
            knee(chip, stored, stored),
            "F b_w / (2 BW)",
            inputs,
            note="FP8 doubles F and halves b_w: the same batch",
        )


def long_context_cache(known: Library) -> Iterator[Claim]:
    """Cache of 512 sequences of Llama-3.1-70B at full context."""
    model, batch = known.model(LLAMA), 512
    group, longest = _group(model), model.max_context
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
            "kv_bytes_per_token": _kv_per_token(model, kv) * copies,
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
        {"model": DEEPSEEK, "topk": _moe(model).topk, "experts": _moe(model).experts},
    )
    yield row(
        f"attention share of active parameters, {DEEPSEEK}",
        "32.0 %",
        100 * attention / used,
        "P_attention / P_active",
        {"attention_params": attention, "active_params": used},
        note="the opposite of the stored share",
    )


def decode_is_memory_bound(known: Library) -> Iterator[Claim]:
    """One sequence of Llama-3.1-70B on eight H100."""
    model, chip, n = known.model(LLAMA), known.chip(GPU), 8
    weights, kv = counts.weights_bytes(model, fmt("bf16")), counts.kv_law(model, fmt("bf16")).at(4096)
    bandwidth, flops = n * float(chip.main.bandwidth_bytes_per_s), n * float(chip.peaks.by_dtype()["bf16"])
    inputs: dict[str, Value] = {**_roof(chip, "bf16"), "chips": n, "weights_bytes": weights}
    read, compute = weights / bandwidth, 2 * counts.params_total(model) / flops
    yield row("decode step, weights read once", "5.27 ms", read / MS, "W / (n BW)", inputs)
    yield row(
        "decode step with 4,096 tokens of cache",
        "5.32 ms",
        (weights + kv) / bandwidth / MS,
        "(W + KV) / (n BW)",
        {**inputs, "kv_bytes": kv},
    )
    floor = _ideal(model, chip, n, Workload(batch=1, context=4096), "bf16").step.time_s
    table = counts.params_by_role(model)["embedding"] * fmt("bf16").bytes
    yield row(
        "decode step with 4,096 tokens of cache, by the ideal run",
        "5.32 ms",
        (floor + table / bandwidth) / MS,
        "ideal step + embedding table / (n BW)",
        {"model": LLAMA, "chips": n, "context": 4096, "ideal_step_s": floor, "embedding_table_bytes": table},
        note=f"the run reads one row of the table and not all of it: its floor is {floor / MS:.3f} ms",
    )
    used: dict[str, Value] = {**_roof(chip, "bf16"), "chips": n, "params": counts.params_total(model)}
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
    weights, kv_bytes = counts.weights_bytes(model, fmt("bf16")), _kv_per_token(model)
    for context, printed in ((4096, "105"), (32_768, "13.1"), (131_072, "3.29")):
        yield row(
            f"batch whose cache equals the weights, {LLAMA} at {context:,}",
            f"{printed} sequences",
            batch_where_cache_equals_weights(weights, context, kv_bytes),
            "W / (context x KV bytes per token)",
            {"weights_bytes": weights, "context": context, "kv_bytes_per_token": kv_bytes},
        )


def fast_mode(known: Library) -> Iterator[Claim]:
    """Price of a fast mode, read as a point on the line of throughput against interactivity."""
    price, speed = 30.0 / 5.0, 2.5
    inputs: dict[str, Value] = {
        "usd_per_million_fast": "30 in, 150 out",
        "usd_per_million_standard": "5 in, 25 out",
        "price_ratio": price,
        "speed_ratio": speed,
    }
    note = "prices as published for Opus 4.6; an interpretation: a price is not a cost"
    share = streaming_share(price, speed)
    yield row(
        "weight streaming in the standard step",
        "0.357 share",
        share,
        "x: (1 - x) / (1 - speed x) = price",
        inputs,
        note=note,
    )
    yield row("weight streaming in the fast step", "89.3 %", 100 * speed * share, "speed x", inputs, note=note)


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
    yield row(
        "TTFT of two pipeline stages", "0.575 s", ttft_two_stages(rate, prefill), "D + R D^2 / (4 (2 - R D))", inputs
    )
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
    kv_bytes = _kv_per_token(model)
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
        size = {"prefix": prefix, "hidden": model.hidden, "group": _group(model), "element_bytes": fmt("bf16").bytes}
        found = reload_bandwidth(prefix, model.hidden, _group(model), fmt("bf16").bytes, flops)
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
    kv_bytes, cheaper = _kv_per_token(model), 20
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


def margins(known: Library) -> Iterator[Claim]:
    """Margin, mark-up and cost profit."""
    for share, printed in ((0.70, "3.33"), (0.80, "5")):
        yield row(
            f"price over cost at {share:.0%} margin",
            f"{printed} x",
            1 / (1 - share),
            "1 / (1 - margin)",
            {"margin": share},
        )
    profit = 5.45
    yield row(
        "gross margin of a cost profit of 545 %",
        "84.5 %",
        100 * margin(1 / (1 + profit)),
        "1 - cost / price, price / cost = 1 + profit",
        {"cost_profit": profit},
    )


def deepseek_day(known: Library) -> Iterator[Claim]:
    """Cost and income of the day that DeepSeek published."""
    nodes, chips, hours, million = 226.75, 8, 24, 1e6
    rental = hourly_usd(known.chip("h800_sxm"))
    spent = nodes * chips * hours * rental
    sold = {"hit": (342e9, 0.14), "miss": (266e9, 0.55), "out": (168e9, 2.19)}
    income = sum(tokens * usd / million for tokens, usd in sold.values())
    note = "node count, tokens and list prices as published by DeepSeek for one day"
    yield row(
        "cost of DeepSeek's day",
        "87072 USD",
        spent,
        "nodes x 8 x rental x 24 h",
        {"nodes": nodes, "chips_per_node": chips, "chip": "h800_sxm", "usd_per_hour": rental},
        note=note,
    )
    yield row(
        "income of DeepSeek's day",
        "562100 USD",
        income,
        "sum of tokens x price",
        {
            f"{kind}_{key}": value
            for kind, pair in sold.items()
            for key, value in zip(("tokens", "usd_per_million"), pair, strict=True)
        },
        note=f"{note}, which prints 562,027",
    )
    yield row(
        "gross margin of DeepSeek's day",
        "84.5 %",
        100 * margin(spent / income),
        "1 - cost / income",
        {"cost_usd": spent, "income_usd": income},
    )


def cheap_memory(known: Library) -> Iterator[Claim]:
    """Prices of a chip with 192 GB for 5,000 USD."""
    chip = known.chip("bertha500")
    price, spoken, stored = float(chip.price.purchase_usd or 0), 192e9, float(chip.main.capacity_bytes)
    inputs: dict[str, Value] = {"chip": chip.name, "purchase_usd": price}
    per_gb = price / (spoken / GB)
    yield row(
        "price of memory, 192 GB as spoken",
        "26.04 USD/GB",
        per_gb,
        "price / C",
        {**inputs, "capacity_bytes": spoken},
        note=f"decimal GB; the chip file holds {stored / GB:.1f} GB",
    )
    yield row(
        "price of memory, capacity of the chip file",
        "24.25 USD/GB",
        price / (stored / GB),
        "price / C",
        {**inputs, "capacity_bytes": stored},
        note="192 GiB",
    )
    gpu_usd, gpu_bytes = 25_000.0, float(known.chip(GPU).main.capacity_bytes)
    gpu: dict[str, Value] = {"chip": GPU, "assumed_usd": gpu_usd, "capacity_bytes": gpu_bytes}
    yield row(
        f"price of memory, {GPU}",
        "312 USD/GB",
        gpu_usd / (gpu_bytes / GB),
        "price / C",
        gpu,
        note="price assumed by the claim",
    )
    yield row(
        f"{GPU} over {chip.name}, per GB",
        "12 x",
        gpu_usd / (gpu_bytes / GB) / per_gb,
        "ratio",
        {**gpu, "usd_per_gb": per_gb},
    )
    yield row(
        "straight line over four years",
        "0.1427 USD/h",
        hourly_usd(chip),
        "price / (years x hours)",
        {**inputs, "years": LIFE_YEARS, "hours_per_year": HOURS_PER_YEAR},
    )


def cheap_memory_for_long_context(known: Library) -> Iterator[Claim]:
    """Chips that hold the cache of claim 2."""
    chip, spoken = known.chip("bertha500"), 192e9
    price, stored = float(chip.price.purchase_usd or 0), float(chip.main.capacity_bytes)
    gpu_bytes = float(known.chip(GPU).main.capacity_bytes)
    inputs: dict[str, Value] = {"chip": chip.name, "purchase_usd": price}
    model = known.model(LLAMA)
    cache = counts.kv_law(model, fmt("bf16")).at(model.max_context, 512)
    need: dict[str, Value] = {"cache_bytes": cache, "capacity_bytes": spoken}
    yield row(
        "chips for the cache of claim 2",
        "114.5 chips",
        cache / spoken,
        "cache / C",
        need,
        note=f"192 GB decimal; {cache / stored:.1f} with 192 GiB",
    )
    yield row(
        "price of the chips for the cache of claim 2",
        "573 thousand USD",
        cache / spoken * price / 1e3,
        "cache / C x price",
        {**inputs, **need},
    )
    yield row(
        f"{GPU} for the cache of claim 2",
        "274.9 chips",
        cache / gpu_bytes,
        "cache / C",
        {"cache_bytes": cache, "capacity_bytes": gpu_bytes},
    )
    won = 10e6
    yield row(
        "exchange rate at which the chip costs 10 million won",
        "2000 won/USD",
        won / price,
        "won / USD",
        {**inputs, "won": won},
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
        inputs: dict[str, Value] = {**_roof(chip, dtype), "bytes_per_weight": fmt(stored).bytes}
        yield row(
            f"tokens per expert at the knee, {label}",
            f"{printed} tokens",
            knee(chip, dtype, stored),
            "F b_w / (2 BW)",
            inputs,
            note=note,
        )
    moe = _moe(known.model(DEEPSEEK))
    for name, printed in ((GPU, "9451"), ("groq3_lpu", "128")):
        found = knee(known.chip(name), "fp8", "fp8")
        yield row(
            f"step batch that saturates the experts of {DEEPSEEK}, {name}",
            f"{printed} tokens",
            found * moe.experts / moe.topk,
            "m* E / k",
            {"knee_tokens": found, "experts": moe.experts, "topk": moe.topk},
            note="uniform routing",
        )


CLAIMS: tuple[tuple[int, Callable[[Library], Iterator[Claim]]], ...] = (
    (1, ridges),
    (2, long_context_cache),
    (3, dense_shares),
    (3, dense_shares_with_embeddings),
    (4, moe_shares),
    (5, decode_is_memory_bound),
    (6, attention_gains_nothing_from_batching),
    (6, cache_outweighs_weights),
    (7, fast_mode),
    (8, static_batching),
    (9, paged_cache),
    (10, disaggregated_prefill),
    (11, agent_sessions),
    (12, cache_reuse),
    (13, cache_offload),
    (14, return_within_ten_minutes),
    (15, margins),
    (15, deepseek_day),
    (16, cheap_memory),
    (16, cheap_memory_for_long_context),
    (17, per_expert_batch),
)
"""Every claim: its number, and what computes its rows."""
