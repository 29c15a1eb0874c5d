"""Every claim row agrees with its printed figure; headline figures and closed forms are checked from outside too."""

import json
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from scipy.integrate import quad

from hwmodel.hardware import load_chip, with_number
from hwmodel.model.load import load_model

k = import_module("hwmodel.claims")  # `hwmodel.claims` of the package is the function
ROWS = k.claims()
BY_NAME = {f"{found.number}: {found.claim}": found for found in ROWS}

# figures of the literature as printed, not read from hwmodel
FACTS = {
    "1: ridge of h100_sxm, bf16": "295.3",
    "1: ridge of h100_sxm, fp8": "590.7",
    "1: ridge of h200_sxm, bf16": "206",
    "1: ridge of b200_sxm, bf16": "281",
    "1: ridge of a100_sxm, bf16": "153",
    "1: knee of h100_sxm in tokens, bf16": "295",
    "1: knee of h100_sxm in tokens, fp8": "295",
    "2: KV cache of 512 sequences, BF16, full context": "21.990",
    "2: KV cache of 512 sequences, BF16, 128,000 tokens": "21.47",
    "2: KV cache of 512 sequences, FP8, full context": "10.995",
    "2: KV cache of 512 sequences, BF16, 4,096 tokens": "0.687",
    "3: FFN over attention, llama-3.1-8b": "4.20",
    "3: FFN over attention, llama-3.1-70b": "4.667",
    "3: FFN over attention, llama-3.1-405b": "4.588",
    "3: attention share, llama-3.1-70b": "17.65",
    "3: FFN share, llama-3.1-70b": "82.35",
    "3: attention share, llama-2-7b": "33.2",
    "4: attention share of attention + FFN, mixtral-8x7b": "2.89",
    "4: attention share of attention + FFN, qwen3-235b-a22b": "2.87",
    "4: attention share of attention + FFN, deepseek-v3": "1.71",
    "4: attention share of attention + FFN, gpt-oss-120b": "0.83",
    "4: attention share of active parameters, deepseek-v3": "32.0",
    "4: parameters of deepseek-v3": "671.03",
    "5: decode step, weights read once": "5.27",
    "5: decode step with 4,096 tokens of cache, by the ideal run": "5.32",
    "5: compute of the decode step": "0.018",
    "6: decode attention of llama-3.1-70b, bf16 cache": "8",
    "6: decode attention of qwen3-235b-a22b, fp8 cache": "32",
    "6: decode attention of step-3, fp8 cache": "128",
    "6: decode attention of deepseek-v3, fp8 cache": "483.6",
    "6: batch whose cache equals the weights, llama-3.1-70b at 4,096": "105",
    "6: batch whose cache equals the weights, llama-3.1-70b at 131,072": "3.29",
    "7: weight streaming in the standard step": "0.3571429",
    "8: utilisation of a static batch of 64, exponential lengths": "21.1",
    "9: waste of pages": "0.75",
    "9: use of contiguous reservations": "24.4",
    "10: TTFT of one server": "1.25",
    "10: TTFT of two pipeline stages": "0.575",
    "10: TTFT of two chips tensor parallel": "0.500",
    "10: hand-off over nic of h100_sxm": "26.8",
    "12: gain of reuse": "58.4",
    "13: recompute of one token": "35.7",
    "13: link rate where loading equals recompute": "9.18",
    "13: Mooncake's form on 8 a800_sxm": "5.86",
    "13: Mooncake's form on 8 h800_sxm": "18.6",
    "14: break-even time of a cache in HBM": "54",
    "15: gross margin of a cost profit of 545 %": "84.5",
    "15: cost of DeepSeek's day": "87072",
    "16: price of memory, 192 GB as spoken": "26.04",
    "16: price of memory, capacity of the chip file": "24.25",
    "16: straight line over four years": "0.1427",
    "16: chips for the cache of claim 2": "114.5",
    "17: tokens per expert at the knee, h100_sxm": "295",
    "17: tokens per expert at the knee, b200_sxm": "281",
    "17: tokens per expert at the knee, rubin": "447",
    "17: tokens per expert at the knee, groq3_lpu": "4.0",
    "17: step batch that saturates the experts of deepseek-v3, h100_sxm": "9451",
    "17: step batch that saturates the experts of deepseek-v3, groq3_lpu": "128",
    "18: cost of step-3 at 8,192 tokens, attention and FFN apart": "0.055",
    "18: cost of deepseek-v3 at 8,192 tokens, attention and FFN apart": "0.068",
    "18: cost of qwen3-235b-a22b at 8,192 tokens, attention and FFN apart": "0.062",
    "19: least share of active experts, h800_sxm behind 8 x 400 Gb/s": "0.058",
    "19: least share of active experts, h20_sxm behind 8 x 400 Gb/s": "0.007",
    "19: least share of active experts, a800_sxm behind 8 x 200 Gb/s": "0.031",
    "19: least share of active experts, ascend_910b behind 8 x 200 Gb/s": "0.034",
    "18: price of a token of DeepSeek's service": "0.300",
    "18: price of a token of Step-3, attention and FFN apart": "0.1375",
    "18: tokens/s of step-3 on a roofline, h800_sxm at 4,096 tokens": "13231",
    "18: share of that roofline that Step-3 measures": "30.5",
    "21: experts' bandwidth of one socket": "193",
    "21: most tokens per second of deepseek-v3 with routed experts at 460 GB/s": "22.5",
    "21: most tokens per second of deepseek-v3 with routed and shared experts at 460 GB/s": "20.0",
}


NOT_REPRODUCED = {"23: tokens per MW over a GB200 NVL72 that serves one user at 400 tokens/s"}


@pytest.mark.parametrize("name", BY_NAME)
def test_agrees(name: str):
    found = BY_NAME[name]
    assert found.agrees is (name not in NOT_REPRODUCED), f"{found.result} {found.unit} against {found.expected}"


@pytest.mark.parametrize("name", BY_NAME)
def test_verdict_and_words_are_one(name: str):
    """What agrees is nowhere said not to be reproduced, and the other way round."""
    found = BY_NAME[name]
    bounded_ = "low" in found.inputs
    assert found.verdict == ("within its range" if bounded_ else "reproduced") if found.agrees else "not reproduced"
    assert "not reproduced" not in found.note
    assert not bounded_ or found.agrees is (found.inputs["low"] <= found.expected <= found.inputs["high"])


@pytest.mark.parametrize("name", FACTS)
def test_headline(name: str):
    printed = FACTS[name]
    decimals = len(printed.partition(".")[2])
    half_unit = 0.5 * 10**-decimals
    assert BY_NAME[name].result == pytest.approx(float(printed), rel=1e-3, abs=half_unit * (1 + 1e-9))


def test_exact_ones():
    assert BY_NAME["7: weight streaming in the standard step"].result == pytest.approx(5 / 14, rel=1e-12)
    assert BY_NAME["17: tokens per expert at the knee, groq3_lpu"].result == pytest.approx(4, rel=1e-12)
    assert BY_NAME["15: cost of DeepSeek's day"].result == pytest.approx(87072, rel=1e-12)
    assert BY_NAME["17: step batch that saturates the experts of deepseek-v3, h100_sxm"].result == pytest.approx(9451, abs=5)
    assert BY_NAME["2: KV cache of 512 sequences, BF16, full context, binary units"].result == 20


def test_predictions_of_published_systems():
    """MegaScale-Infer prints 1.7 to 1.86; ktransformers measured 12.208 tokens/s."""
    gain = BY_NAME["20: gain per price of 4 H20 + 8 L40S over 8 H20, mixtral-8x7b"]
    assert 1.4 < gain.result < 2.2
    assert gain.note.endswith("agrees within 25%")
    assert BY_NAME["21: decode with eight experts on two sockets"].result == pytest.approx(12.208, rel=0.25)
    fixed, streamed = k.fixed_and_streamed(1 / 10.303, 1 / 13.69)
    assert fixed + streamed == pytest.approx(1 / 10.303)
    assert fixed + streamed / 2 == pytest.approx(1 / 13.69)


def test_costs_of_step_3_by_chip():
    """Tables 6 and 7 of Step-3 (arXiv 2507.19427), from its own FLOP and bytes (Table 2), dollars per million tokens."""
    chips = {"h800": (2, 1.98e15, 3.35e12), "h20": (0.8, 296e12, 4e12), "a800": (0.75, 312e12, 2e12),
             "910b": (0.67, 280e12, 1.6e12)}  # fmt: skip
    for (kv, core, linear), printed in (
        ((2.56e8, 3.27e10, 2.07e10), {"h800": 0.0483, "h20": 0.0401, "a800": 0.0405, "910b": 0.0435}),
        ((2.88e8, 1.47e11, 2.28e10), {"h800": 0.0542, "h20": 0.1275}),
        ((7.89e8, 2.52e10, 1.34e10), {"h800": 0.1346, "h20": 0.0539}),
    ):
        for name, usd in printed.items():
            hourly, peak, rate = chips[name]
            assert 1e6 * k.attention_usd(core, kv, linear, peak, rate, hourly) == pytest.approx(usd, abs=1e-4)


def test_every_claim_has_its_rows():
    assert {found.number for found in ROWS} == set(range(1, 24))
    assert len(BY_NAME) == len(ROWS)
    for found in ROWS:
        assert found.formula
        assert found.inputs
        assert found.unit


def test_plain_data():
    data = json.loads(json.dumps([k.to_dict(found) for found in ROWS], allow_nan=False))
    assert {"claim", "formula", "inputs", "result", "unit", "agrees", "note"} <= set(data[0])
    for item in data:
        assert all(isinstance(value, float | int | str) for value in item["inputs"].values())


@pytest.mark.parametrize(
    ("result", "printed", "expected"),
    [
        (295.34, "295.3", True),
        (295.7, "295.3", False),
        (206.49, "206", True),
        (206.6, "206", False),
        (0.8345, "0.83", True),
        (0.836, "0.83", False),
        (21.99, "21.990", True),
        (22.02, "21.990", False),
        (-1.0, "1", False),
    ],
)
def test_tolerance(result: float, printed: str, expected: bool):
    assert k.agree(result, printed) is expected


# --- nothing is hard-coded: other chips and models give other results ------------------------------------------------


def _moved(**known) -> dict[str, k.Claim]:
    return {f"{found.number}: {found.claim}": found for found in k.claims(k.Library(**known))}


@pytest.mark.parametrize(
    ("chip", "path", "rows"),
    [
        (
            "h100_sxm",
            "peaks.bf16",
            {"1: ridge of h100_sxm, bf16": 2, "5: compute of the decode step": 0.5, "13: recompute of one token": 0.5},
        ),
        (
            "h100_sxm",
            "memory.hbm.bandwidth",
            {
                "1: ridge of h100_sxm, bf16": 0.5,
                "5: decode step, weights read once": 0.5,
                "5: decode step with 4,096 tokens of cache, by the ideal run": 0.5,
                "6: decode attention of llama-3.1-70b, bf16 cache": 1,
            },
        ),
        ("h100_sxm", "memory.hbm.capacity", {"2: servers of 8 h100_sxm for that cache of 21.99 TB": 0.5}),
        ("h100_sxm", "links.nic.bandwidth", {"10: hand-off over nic of h100_sxm": 0.5}),
        ("h800_sxm", "price.rental", {"15: cost of DeepSeek's day": 2}),
        ("h800_sxm", "peaks.bf16", {"13: Mooncake's form on 8 h800_sxm": 2}),
        (
            "groq3_lpu",
            "peaks.fp8",
            {
                "17: tokens per expert at the knee, groq3_lpu": 2,
                "17: step batch that saturates the experts of deepseek-v3, groq3_lpu": 2,
            },
        ),
        (
            "bertha500",
            "price.purchase",
            {"16: price of memory, 192 GB as spoken": 2, "16: straight line over four years": 2},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_doubling_a_number_of_a_chip(chip: str, path: str, rows: dict[str, float]):
    base = load_chip(chip)
    double = with_number(base, path, 2 * dict(base.numbers())[path])
    moved = _moved(chips=[double])
    for name, factor in rows.items():
        assert moved[name].result == pytest.approx(factor * BY_NAME[name].result, rel=1e-9)
        assert moved[name].agrees is (factor == 1)


def test_another_model():
    small = replace(load_model("llama-3.1-8b"), name="llama-3.1-70b")
    moved = _moved(models=[small])
    cache = "2: KV cache of 512 sequences, BF16, full context"
    assert moved[cache].result == pytest.approx(BY_NAME[cache].result * 32 / 80)
    assert moved["3: FFN over attention, llama-3.1-70b"].result == pytest.approx(4.2)
    assert not moved[cache].agrees


# --- the closed forms against other ways to the same number ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hidden", "inner", "heads", "kv_heads"),
    [
        ("llama-3.1-8b", 4096, 14336, 32, 8),
        ("llama-3.1-70b", 8192, 28672, 64, 8),
        ("llama-3.1-405b", 16384, 53248, 128, 8),
    ],
)
def test_dense_ratio_from_widths(name: str, hidden: int, inner: int, heads: int, kv_heads: int):
    widths = 3 * inner / hidden / (2 + 2 * kv_heads / heads)
    assert BY_NAME[f"3: FFN over attention, {name}"].result == pytest.approx(widths, rel=1e-12)


@pytest.mark.parametrize("batch", [1, 8, 64, 256])
def test_static_utilisation_by_integration(batch: int):
    """E[max] is the integral of 1 - F^B."""
    longest = quad(lambda x: 1 - (1 - np.exp(-x)) ** batch, 0, 60, limit=200)[0]
    assert k.static_utilisation_exponential(batch) == pytest.approx(1 / longest, rel=1e-6)
    longest = quad(lambda u: 1 - u**batch, 0, 1, limit=200)[0]
    assert k.static_utilisation_uniform(batch) == pytest.approx(0.5 / longest, rel=1e-6)


def _queue(rate: float, service: float, n: int = 400_000) -> float:
    """Mean time in an M/D/1 system by Lindley's recursion, W = running sum minus its running minimum."""
    gaps = np.random.default_rng(1).exponential(1 / rate, n)
    walk = np.concatenate([[0.0], np.cumsum(service - gaps)])
    waits = walk - np.minimum.accumulate(walk)
    return float(waits.mean() + service)


def test_ttft_by_simulation():
    rate, prefill, speedup = 1.5, 0.5, 1.5
    assert k.ttft_one_queue(rate, prefill) == pytest.approx(_queue(rate, prefill), rel=0.03)
    assert k.ttft_split(rate, prefill, speedup) == pytest.approx(_queue(rate, prefill / speedup), rel=0.03)
    # two stages of D / 2: the second never queues behind a constant first
    assert k.ttft_two_stages(rate, prefill) == pytest.approx(_queue(rate, prefill / 2) + prefill / 2, rel=0.03)


def test_fast_mode_on_the_line():
    share = k.streaming_share(6, 2.5)
    throughput = lambda speed: 1 - share * speed  # noqa: E731
    assert throughput(1) / throughput(2.5) == pytest.approx(6)


def test_reuse_by_counting():
    without = sum(20_000 + 1000 * step for step in range(100))
    assert k.prefill_tokens(100, 20_000, 1000) == (without, 20_000 + 99 * 1000)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "deepseek-v3"])
def test_attention_intensity_is_independent_of_batch_and_context(name: str):
    chip, model = load_chip("h100_sxm"), load_model(name)
    one = k.decode_attention_intensity(model, chip, "fp8", 1, 1024)
    for batch, context in ((1, 131_072), (256, 4096)):
        assert k.decode_attention_intensity(model, chip, "fp8", batch, context) == pytest.approx(one, rel=1e-9)


# --- vendors' claims: bounded, not reproduced to a digit ---------------------------------------------------------------
VENDOR = {found.claim: found for found in ROWS if found.number >= 18}


def test_gemma_on_a_rack_of_lpus():
    """3,431 tokens/s for one user at 100,000 tokens: 291 us a token, 4.86 us for each of 60 layers."""
    found = VENDOR["Gemma-4-31B at 100,000 tokens on a rack of LPUs, one user"]
    assert found.expected == 3431
    assert found.inputs["low"] < 3431 < found.inputs["high"]
    wide = found.inputs["high"] / found.inputs["low"]
    alone = found.inputs["high_of_op_cost_alone"] / found.inputs["low_of_op_cost_alone"]
    others = found.inputs["high_at_this_op_cost"] / found.inputs["low_at_this_op_cost"]
    assert np.log(alone) > 0.95 * np.log(wide)  # the cost of an op makes the span
    assert others < 1.3
    assert found.inputs["low_at_this_op_cost"] < 3431 < found.inputs["high_at_this_op_cost"]
    for words in ("13-fold", "cost of an op", "0.3 us (0.05 to 3)", "576 to 7,701", "3,174 to 3,973"):
        assert words in found.note
    assert found.result == pytest.approx(3431, rel=0.15)  # predicted from estimates that were not fitted to it
    floor = (30.7e9 + 10 * 2 * 4 * 512 * 1e5 + 50 * 2 * 16 * 256 * 1024) / (256 * 150e12)
    assert found.inputs["floor_s"] == pytest.approx(floor, rel=0.2)
    held = VENDOR["LPUs that hold Gemma-4-31B and its cache, at least"]
    assert held.result > 64  # eight-bit weights and cache need more chips than the press counts


def test_what_an_op_must_cost_for_it():
    vendor = import_module("hwmodel.claims.vendor")
    needed = VENDOR["cost per op on an LPU that gives just that rate"].result * 1e-6
    chip = with_number(load_chip("groq3_lpu"), "execution.launch", needed)
    step = vendor._gemma(load_model("gemma-4-31b"), chip, 100_000).step
    assert 1 / step.time_s == pytest.approx(3431, rel=2e-3)
    slow = with_number(load_chip("groq3_lpu"), "execution.launch", 4.307e-6)
    assert 1 / vendor._gemma(load_model("gemma-4-31b"), slow, 100_000).step.time_s < 500


def test_tokens_per_megawatt_need_a_slow_rival():
    (found,) = (row for row in ROWS if row.number == 23)
    inputs = found.inputs
    assert inputs["params"] == pytest.approx(2.04e12, rel=0.01)
    assert inputs["gb200_undrafted_tokens_per_s_per_user"] < 400 < inputs["gb200_tokens_per_s"]
    assert 0.5 < inputs["ratio_when_both_draft"] < 3
    gpus, lpus = (int(part.split()[0]) for part in inputs["new_chips"].split(" + "))
    by_hand = inputs["new_tokens_per_s"] / (gpus * 2300 + lpus * 400) / (400 / (72 * 1200))
    assert found.result == pytest.approx(by_hand)
    assert inputs["low"] < found.result < inputs["high"] < 35 < inputs["physical_floor"]
    assert not found.agrees
    assert f"a step of Rubin + LPX in {inputs['needed_share_of_step_time']:.0%} of the time" in found.note


def test_what_a_step_must_take_for_the_tokens_per_megawatt():
    """By hand: with every step in that share of its time, the largest batch at 400 tokens/s/user gives 35 times."""
    vendor = import_module("hwmodel.claims.vendor")
    (found,) = (row for row in ROWS if row.number == 23)
    share, known = found.inputs["needed_share_of_step_time"], k.Library()
    model = vendor._doubled(known.model("kimi-k2.5"))
    work = {"context": 400_000, "speculative": vendor.Speculative(draft=3, acceptance=0.8, method="free")}
    rates = {batch: vendor._new(known, model, vendor.Workload(batch=batch, **work)).step for batch in range(1500, 3500, 50)}
    quick = [step.tokens_per_s / share for step in rates.values() if step.tokens_per_s_per_user / share >= 400]
    assert max(quick) / (2088 * 2300 + 4608 * 400) / (400 / (72 * 1200)) == pytest.approx(35, rel=0.13)  # within an eighth


def test_a_range_that_misses_the_figure_disagrees():
    vendor = import_module("hwmodel.claims.vendor")
    assert vendor.bounded("c", "35 x", 1.0, (2.0, 40.0), "f", {}, "").agrees
    assert not vendor.bounded("c", "35 x", 1.0, (2.0, 30.0), "f", {}, "").agrees
