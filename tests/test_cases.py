"""Public cases of what goes wrong in tools of this kind: the input of each, the right value, and the words a user needs.

Numbers of the cases as in the shared collection; where each comes from (issue, pull request) stands there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hwmodel.cli import main

pytestmark = pytest.mark.shared
Ask = Callable[..., Any]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run a command; its JSON, or its text when `text`. Names with ``--`` in them are configs of the shared data."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str, text: bool = False, status: int | None = 0) -> Any:
        given = [str(shared / "configs" / f"{arg}.json") if "--" in arg[1:] else arg for arg in args]
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*given, *(() if text else ("--json",))])
        assert status is None or left.value.code == status, capsys.readouterr().err
        found = capsys.readouterr()
        return " ".join(found.out.split()) if text else json.loads(found.out)

    return run


def scenario(folder: Path, model: str, shared: Path, plan: str, **fields: Any) -> str:
    """A scenario file: keys of ``workload``, ``count``, ``chip``, ``dtypes``."""
    chip, count = fields.pop("chip", "h200_sxm"), fields.pop("count", 8)
    path = folder / "case.yaml"
    dtypes = fields.pop("dtypes", {})
    path.write_text(
        f"model: {shared / 'configs' / model}.json\n"
        f"cluster: {{pools: {{gpu: {{chip: {chip}, count: {count}}}}}}}\n"
        f"dtypes: {json.dumps(dtypes)}\nplan: {plan}\n"
        f"workload: {json.dumps({'batch': 8, 'context': 4096, **fields})}\n"
    )
    return str(path)


def test_every_public_case_has_its_test(shared: Path) -> None:
    known = set(re.findall(r"\*\*C(\d+b?)\*\*", (shared / "facts" / "cases.md").read_text()))
    here = Path(__file__).parent
    tried = set(re.findall(r"def test_c(\d+b?)_", Path(__file__).read_text()))
    tried |= set(re.findall(r"Case C(\d+)", (here / "test_economics.py").read_text()))
    assert len(known) == 27
    assert known <= tried, known - tried


def kv_of(found: dict[str, Any]) -> float:
    return float(sum(row["kv_bytes"] for row in found["memory"]))


# --- KV size --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tp", [1, 4, 8])
def test_c1_an_mla_cache_is_one_latent_on_every_rank(ask: Ask, shared: Path, tmp_path: Path, tp: int) -> None:
    assert ask("model", "moonshotai--Kimi-K2.5")["kv"]["bytes_per_token"] == 70_272
    assert "latent 512 + 64" in ask("model", "moonshotai--Kimi-K2.5", text=True)
    path = scenario(tmp_path, "moonshotai--Kimi-K2.5", shared, f"[tensor: {{degree: {tp}}}]", count=tp, batch=1, context=1000)
    found = ask("fit", path, status=None)
    assert found["kv_bytes_per_token"] == 70_272  # not 437,248, a quarter of 64 heads
    assert kv_of(found) == 70_272_000


def test_c2_a_compressed_cache_is_not_84_kilobytes(ask: Ask) -> None:
    found = ask("model", "deepseek-ai--DeepSeek-V4-Flash", "--context", "200000")["kv"]
    assert found["bytes_per_token"] == 6_880
    assert found["bytes_at_context"] == 1_376_000_000 + 43 * 128 * 512 * 2
    said = ask("model", "deepseek-ai--DeepSeek-V4-Flash", "--context", "200000", text=True)
    for words in ("index key 128 per 4 tokens", "512 per 128 tokens", "window 128"):
        assert words in said


def test_c4_only_attention_layers_have_a_cache_that_grows(ask: Ask) -> None:
    found = ask("model", "Qwen--Qwen3.5-35B-A3B")["kv"]
    assert (found["bytes_per_token"], found["fixed_bytes_per_sequence"]) == (20_480, 64_880_640)
    said = ask("model", "Qwen--Qwen3.5-35B-A3B", text=True)
    assert "20,480 B per token + 64,880,640 B per sequence" in said
    assert "30 x (state 32 x 128 x 128 + conv 8192)" in said


def test_c5_many_short_sequences_are_dear_by_their_state(ask: Ask) -> None:
    name = "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
    found = ask("model", name, "--context", "500", "--batch", "1000")["kv"]
    assert found["bytes_at_context"] == 1000 * (500 * 6_144 + 49_364_992)
    assert found["bytes_per_token"] * 500 * 1000 == pytest.approx(3.07e9, rel=1e-3)
    assert found["state_bytes"] * 1000 == pytest.approx(49.4e9, rel=1e-3)


@pytest.mark.parametrize(("context", "windowed", "full"), [(128, 128, 128), (1024, 1024, 1024), (131_072, 1024, 131_072)])
def test_c7_sliding_layers_hold_their_window(
    ask: Ask, shared: Path, tmp_path: Path, context: int, windowed: int, full: int
) -> None:
    model = "nvidia--Gemma-4-31B-IT-NVFP4"
    for alloc, held in (("windowed", windowed), ("full", full)):
        path = scenario(tmp_path, model, shared, "[]", count=1, chip="b200_sxm", batch=1, context=context,
                        dtypes={"kv": "bf16", "weights": "fp8"}, kv_alloc=alloc)  # fmt: skip
        found = ask("run", path, status=None)
        assert kv_of(found) == 81_920 * context + 819_200 * held
        assert any(f"KV cache in bf16 (from the scenario), {alloc}" in text for text in found["assumptions"])
    at = ask("model", model, "--kv", "bf16", "--context", str(context))["kv"]
    assert at["bytes_at_context"] == 81_920 * context + 819_200 * windowed
    assert at["bytes_at_context_full_length"] == 81_920 * context + 819_200 * full


@pytest.mark.parametrize("context", [2_000, 32_768])
def test_c8_a_capacity_is_a_batch_at_a_stated_length(ask: Ask, shared: Path, tmp_path: Path, context: int) -> None:
    path = scenario(tmp_path, "Qwen--Qwen3.5-35B-A3B", shared, "[]", count=1, batch=1, context=context)
    found = ask("fit", path)
    row = found["memory"][0]
    room = row["capacity_bytes"] - row["reserve_bytes"] - row["weights_bytes"]
    a, b = found["kv_bytes_per_token"], found["kv_fixed_bytes"]
    assert (a, b) == (20_480, 64_880_640)
    assert found["max_batch"] <= math.floor(room / (a * context + b))
    assert found["max_batch"] >= 0.98 * math.floor(room / (a * context + b))  # activations take the rest
    said = ask("fit", path, text=True)
    assert f"largest batch at {context:,} tokens a sequence" in said
    assert "20,480 B per token + 64,880,640 B" in said


def test_c11_the_cache_format_counts_in_every_check(ask: Ask, shared: Path, tmp_path: Path) -> None:
    found = {}
    for kv, gib in (("bf16", 16), ("fp8", 8)):
        path = scenario(tmp_path, "meta-llama--Meta-Llama-3.1-8B", shared, "[]", count=1, chip="l40s", batch=1, context=131_072,
                        dtypes={"kv": kv})  # fmt: skip
        found[kv] = ask("fit", path, status=None)
        assert found[kv]["kv_bytes_per_sequence"] == gib * 2**30
        assert found[kv]["kv_dtype"] == kv
    assert found["fp8"]["max_batch"] == pytest.approx(2 * found["bf16"]["max_batch"], abs=1)
    said = ask(
        "fit", "--model", "meta-llama--Meta-Llama-3.1-8B", "--chip", "l40s", "--context", "221000", "--kv", "fp8", text=True
    )
    assert "the model was made for 131,072 tokens; 221,000 are asked for" in said
    assert "longest context at batch 1 131,072, all that the model was made for" in said
    wide = {kv: ask("fit", scenario(tmp_path, "meta-llama--Meta-Llama-3.1-8B", shared, "[]", count=1, chip="l40s", batch=8,
                                    context=1000, dtypes={"kv": kv})) for kv in found}  # fmt: skip
    assert wide["fp8"]["max_context"] == pytest.approx(2 * wide["bf16"]["max_context"], rel=0.02)


def test_c12_the_cache_format_is_that_of_the_companion_or_unknown(ask: Ask, shared: Path, tmp_path: Path) -> None:
    name = "nvidia--Gemma-4-31B-IT-NVFP4"
    found = ask("model", name)["kv"]
    assert (found["dtype"], found["dtype_source"]) == ("fp8", "hf_quant")
    alone = tmp_path / "alone.json"
    alone.write_text((shared / "configs" / f"{name}.json").read_text())
    found = ask("model", str(alone))["kv"]
    assert (found["dtype"], found["dtype_source"]) == ("bf16", "activations")
    assert found["bytes_per_token"] == 80 * 1024  # growing part of 10 layers; 880 KiB is all 60 at full length
    at = ask("model", str(alone), "--context", "1")["kv"]
    assert at["bytes_at_context_full_length"] == 880 * 1024
    assert "in bf16 (from activations)" in ask("model", str(alone), text=True)


# --- weights and parameters -----------------------------------------------------------------------------------------
def test_c14_memory_is_of_all_parameters(ask: Ask) -> None:
    found = ask("model", "Qwen--Qwen3.5-35B-A3B")
    assert found["params_total"] * 0.58 == pytest.approx(20.1e9, rel=1e-3)
    assert found["params_active"]["excl_input_embedding"] * 0.58 == pytest.approx(1.7e9, rel=0.01)


def test_c15_every_expert_counts(ask: Ask) -> None:
    assert ask("model", "mistralai--Mixtral-8x7B-v0.1")["params_total"] == 46_702_792_704


@pytest.mark.parametrize(("plan", "billion"), [("[expert: {degree: 8}]", 138.56), ("[tensor: {degree: 8}]", 128.8)])
def test_c17_experts_are_divided_by_their_own_degree(ask: Ask, shared: Path, tmp_path: Path, plan: str, billion: float) -> None:
    found = ask("run", scenario(tmp_path, "moonshotai--Kimi-K2-Instruct", shared, plan, dtypes={"weights": "bf16"}), status=3)
    held = found["memory"][0]["weights_bytes"] / 2
    assert held == pytest.approx(billion * 1e9, rel=0.005)
    assert any(reason.startswith("memory: pool gpu needs") for reason in found["reasons"])


def test_c18_four_bits_and_their_scales(ask: Ask) -> None:
    found = ask("model", "nvidia--Qwen3-235B-A22B-NVFP4")
    plain = ask("model", "Qwen--Qwen3-235B-A22B")
    assert found["weights_bytes"] == pytest.approx(134.1e9, rel=1e-4)
    assert plain["weights_bytes"] / found["weights_bytes"] == pytest.approx(3.51, abs=0.005)
    assert "nvfp4" in found["weights_dtype"].lower()


def test_c20_data_parallel_attention_replicates_the_dense_part(ask: Ask, shared: Path, tmp_path: Path) -> None:
    model = "deepseek-ai--DeepSeek-V4-Flash"
    split = ask("run", scenario(tmp_path, model, shared, "[tensor: {degree: 8}]"), status=None)
    data = ask("run", scenario(tmp_path, model, shared, "[expert: {degree: 8}]"), status=None)
    assert data["memory"][0]["weights_bytes"] > 1.05 * split["memory"][0]["weights_bytes"]


# --- divisibility ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "plan", "count", "reason"),
    [
        ("Qwen--Qwen3-235B-A22B-FP8", "[tensor: {degree: 4}]", 8, ""),
        ("Qwen--Qwen3-235B-A22B-FP8", "[tensor: {degree: 8}]", 8, "192"),
        ("Qwen--Qwen3-235B-A22B-FP8", "[{tensor: {degree: 8}}, {expert: {degree: 8}}]", 8, ""),
        ("Qwen--Qwen3-30B-A3B-FP8", "[tensor: {degree: 4}]", 4, "192"),
        ("deepseek-ai--DeepSeek-R1", "[tensor: {degree: 32}]", 32, "576"),
    ],
)
def test_c22_a_share_must_hold_whole_blocks(
    ask: Ask, shared: Path, tmp_path: Path, model: str, plan: str, count: int, reason: str
) -> None:
    found = ask("run", scenario(tmp_path, model, shared, plan, count=count), status=None)
    blocks = [text for text in found["reasons"] if "128" in text]
    assert bool(blocks) == bool(reason), found["reasons"]
    assert not reason or any(reason in text for text in blocks)


# --- speed ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("batch", "distinct"), [(1, 8.0), (16, 102.0), (64, 222.4), (256, 255.9), (1024, 256.0)])
def test_c24_bytes_are_of_the_distinct_experts(ask: Ask, batch: int, distinct: float) -> None:
    shape = [f"tokens={batch}", "hidden=7168", "inter=18432", "topk=8", "experts=256", "tp=1", "ep=1", "dist=balanced"]
    found = ask("op", "moe", *shape, "--chip", "h100_sxm", "--dtype", "bf16", "--cold", "--ideal")
    expert = 3 * 7168 * 18_432 * 2
    assert found["bytes"] / expert == pytest.approx(distinct, rel=0.02)  # activations are the rest


def test_c25_each_tier_at_its_own_bandwidth(ask: Ask) -> None:
    """Experts in host memory: 100 % off chip takes longer than 50 % by the bytes over the slow bandwidth."""
    times = [
        ask("run", "rtx4090_mixtral_offload", "--set", f"plan.0.offload.fraction={fraction}", status=None)["step"]["time_s"]
        for fraction in (0, 0.5, 0.75, 1)
    ]
    assert times[0] < times[1] < times[2] < times[3]
    assert times[3] - times[2] == pytest.approx(times[2] - times[1], rel=0.1)
    stay = ask("run", "rtx4090_mixtral_offload", "--set", "plan=[]", status=None)["step"]["time_s"]
    assert times[0] == stay  # nothing off the chip


def test_c27_heads_that_share_a_cache_read_it_once(ask: Ask, shared: Path, tmp_path: Path) -> None:
    path = scenario(tmp_path, "meta-llama--Llama-2-70b-hf", shared, "[]", count=1, batch=1, context=4096)
    found = ask("explain", path, "--op", "attention_decode", status=None)
    read = next(term["value"] for term in found["terms"] if term["symbol"] == "kv_bytes")
    assert read * 80 == pytest.approx(1.342e9, rel=1e-3)


def test_c28_work_follows_the_chosen_experts_and_bytes_the_distinct_ones(ask: Ask, shared: Path, tmp_path: Path) -> None:
    flops, weights = {}, {}
    for batch in (1, 64):
        path = scenario(tmp_path, "mistralai--Mixtral-8x7B-v0.1", shared, "[]", count=1, batch=batch, context=1)
        found = ask("run", path, status=None)
        flops[batch] = sum(op["flops"] * op["count"] for op in found["ops"]) / batch
        up = ask("explain", path, "--op", "experts_up", status=None)
        weights[batch] = next(term["value"] for term in up["terms"] if term["symbol"] == "weight_bytes")
    assert flops[1] == pytest.approx(25.5e9, rel=0.01)
    assert flops[64] == pytest.approx(flops[1], rel=1e-6)
    assert weights[1] / weights[64] == pytest.approx(2 / 8, rel=1e-6)


def test_c30_both_ways_to_count_a_latent_are_printed(ask: Ask, shared: Path, tmp_path: Path) -> None:
    path = scenario(tmp_path, "deepseek-ai--DeepSeek-V3", shared, "[]", count=8, dtypes={"kv": "bf16"})
    note = ask("explain", path, "--op", "attention_decode", status=None)["note"]
    assert "read once, 1,152 B per position and layer" in note
    assert "reads values apart moves 2,176 B" in note


def test_c31_the_rule_for_latency_is_printed(ask: Ask) -> None:
    found = ask("explain", "rubin_lpx_deepseek_v3", "--op", "topk>lpx")
    assert "one latency, one way" in found["note"]
    terms = {term["symbol"]: term["value"] for term in found["terms"]}
    assert found["formula"].count("latency") == 1
    carried = terms.get("carried") or terms["bandwidth"] * terms["chips_lpx"] * terms["efficiency"]
    assert found["value"] == pytest.approx(terms["sent_bytes"] / carried + 4e-6)


# --- serving and planning -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("plan", "words"), [("[tensor: {degree: 8}]", "memory:"), ("[tensor: {degree: 32}]", "576")])
def test_c36_each_candidate_says_what_killed_it(ask: Ask, shared: Path, tmp_path: Path, plan: str, words: str) -> None:
    path = scenario(tmp_path, "deepseek-ai--DeepSeek-V3", shared, plan, chip="l40s", count=1024)
    found = ask("run", path, status=3)
    assert any(words in reason for reason in found["reasons"]), found["reasons"]


def test_c38_the_answer_s_length_takes_memory_too(ask: Ask, shared: Path, tmp_path: Path) -> None:
    batches = []
    for length in (8_192, 8_192 + 1_024, 8_192 + 8_192):
        path = scenario(tmp_path, "deepseek-ai--DeepSeek-R1", shared, "[expert: {degree: 8}]", batch=8, context=length,
                        dtypes={"kv": "bf16"})  # fmt: skip
        found = ask("fit", path, status=None)
        batches.append(found["max_batch"])
        assert found["kv_bytes_per_sequence"] == 70_272 * length
    assert batches[0] > batches[1] > batches[2] > 0


def test_c40_no_tokens_no_price(ask: Ask) -> None:
    found = ask("cost", "h100_llama_70b_decode")
    kinds = {row["kind"]: row for row in found["tokens"]}
    assert {"output", "input", "cached input"} == set(kinds)
    assert all(row["how"] for row in kinds.values())


@pytest.mark.parametrize("plan", ["[{tensor: {degree: 2}}, {expert: {degree: 8}}]"])
def test_c17_three_buckets_under_both_degrees(ask: Ask, shared: Path, tmp_path: Path, plan: str) -> None:
    """TP2 DP4 EP8: experts over eight, the rest that tensor parallelism splits over two."""
    found = ask("run", scenario(tmp_path, "moonshotai--Kimi-K2-Instruct", shared, plan, dtypes={"weights": "bf16"}), status=3)
    held, experts, rest = found["memory"][0]["weights_bytes"] / 2, 1_014_686_023_680 / 8, 11_722_208_768
    assert experts + rest / 2 < held < experts + rest  # what tensor parallelism replicates lies between


@pytest.mark.parametrize(("bytes_per_s", "tokens_per_s"), [("1228 GB/s", 66.4), ("134 GB/s", 7.24)])
def test_c25_a_host_is_bound_by_the_bytes_it_touches(
    ask: Ask, shared: Path, tmp_path: Path, bytes_per_s: str, tokens_per_s: float
) -> None:
    """37 B active parameters at half a byte are 18.5 GB; scales and a head in 16 bits add a fifth, which is printed."""
    path = scenario(tmp_path, "deepseek-ai--DeepSeek-V3", shared, "[]", count=1, chip="xeon_host", batch=1, context=1,
                    dtypes={"weights": "int4", "activations": "bf16"})  # fmt: skip
    speed = f"cluster.pools.gpu.override.memory.ddr.bandwidth={bytes_per_s}"
    found = ask("run", path, "--ideal", "--set", speed, status=None)
    assert 0.8 * tokens_per_s < found["step"]["tokens_per_s"] < tokens_per_s
    read = sum(op["bytes"] * op["count"] for op in found["ops"])
    assert read * found["step"]["tokens_per_s"] == pytest.approx(float(bytes_per_s.split(maxsplit=1)[0]) * 1e9, rel=0.01)
    assert found["step"]["bound"].startswith("memory")


def test_c25b_units_belong_to_the_number(ask: Ask, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Megabytes where gigabytes were expected: the unit is obligatory, and 1,000 MB/s is 1 GB/s."""
    speed = "cluster.pools.host.override.memory.ddr.bandwidth"
    times = [ask("run", "rtx4090_mixtral_offload", "--set", f"{speed}={text}", status=None)["step"]["time_s"]
             for text in ("100 GB/s", "100000 MB/s")]  # fmt: skip
    assert times[0] == times[1]
    with pytest.raises(SystemExit) as left:
        main(["run", "rtx4090_mixtral_offload", "--set", f"{speed}=100"])
    assert left.value.code == 2
    assert "needs a unit" in capsys.readouterr().err


def test_c31_one_latency_and_the_rule_beside_it(ask: Ask, tmp_path: Path) -> None:
    """1 MB over 1 TB/s and 1 us: 2 us with one latency, 3 us with two."""
    chip = tmp_path / "plain.yaml"
    chip.write_text(
        "kind: gpu\npeaks: {bf16: 100 TFLOP/s}\nmemory: [{tier: hbm, capacity: 80 GB, bandwidth: 1 TB/s}]\n"
        "links: [{name: wire, bandwidth: 1 TB/s, latency: 1 us, domain: 8}]\n"
        "execution: {cores: 64, launch: 0 us}\nefficiency: {link: 1.0}\n"
    )
    asked = ("op", "p2p", "--chip", str(chip), "--dtype", "bf16", "chips=2", "bytes=1000000")
    found = ask(*asked)
    assert found["time_s"] == pytest.approx(2e-6)
    assert (found["terms"]["link"], found["terms"]["overhead"]) == pytest.approx((1e-6, 1e-6))
    said = ask(*asked, text=True)
    assert "wire: S/B" in said
    assert "plus one latency per phase" in said


RATES = "0.88", "1.47", "1.82"
"""Multiples of the scenario's rate at which its prefill instance is busy for 0.5, 0.8 and 0.95 of the time."""


def test_c33_first_tokens_wait_longer_the_busier_prefill_is(ask: Ask) -> None:
    """Prefill busy for 0.5, 0.8 and 0.95 of the time: queueing shows in TTFT, and no more comes out than goes in."""
    found = [ask("simulate", "h100_1p1d_llama_8b", "--requests", "2000", "--rate", rate) for rate in RATES]
    busy = [next(row["busy_fraction"] for row in each["pools"] if row["pool"] == "prefill") for each in found]
    assert busy == pytest.approx([0.5, 0.8, 0.95], abs=0.04)
    first = [each["ttft_s"]["mean"] for each in found]
    queue = [each["queue_s"]["mean"] for each in found]
    assert first[0] < first[1] / 2 < first[2] / 4  # a constant factor would not do: 2.8 to 14.4 times were measured
    assert all(later - early > 0.5 * (b - a) for early, later, a, b in zip(first, first[1:], queue, queue[1:], strict=False))
    for each, rate in zip(found, map(float, RATES), strict=True):
        assert each["requests"]["finished"] == each["requests"]["in"] == 2000
        assert each["requests"]["finished"] / each["makespan_s"] <= 12 * rate * 1.05
        assert next(row["kv_peak_share"] for row in each["pools"] if row["pool"] == "prefill") > 0  # staged caches take room


def test_c33_a_target_that_is_given_is_kept(ask: Ask) -> None:
    found = ask("optimize", "h100_llama_70b_decode", "--slo", "tpot=18ms")
    assert found["step"]["tpot_s"] <= 0.018
    none = ask("optimize", "h100_llama_70b_decode", "--slo", "tpot=1ms", status=3)
    assert any(reason.startswith("TPOT") for reason in none["reasons"])


def test_c34_first_and_later_tokens_are_judged_apart(ask: Ask, shared: Path, tmp_path: Path) -> None:
    """A measured vLLM 0.19 server: an error of one does not hide in the other, nor both in the end-to-end latency."""
    folder = shared / "traces" / "measured_vllm"
    rows = (folder / "RTXPRO6000_Llama-3.1-8B.requests.csv").read_text().splitlines()
    heads = rows[0].split(",")
    table = [dict(zip(heads, map(str, row.split(",")), strict=True)) for row in rows[1:]]
    settings = (
        "cluster.pools.gpu.chip=rtx_pro_6000_server",
        "serving.scheduler={vllm: {max_sequences: 128, max_tokens: 2048}}",
    )
    asked = [part for text in settings for part in ("--set", text)]
    trace = tmp_path / "asked.csv"
    ordered = sorted(table, key=lambda row: float(row["queued_s"]))
    trace.write_text("arrival,prompt,output\n" + "\n".join(
        f"{row['queued_s']},{row['input_tokens']},{row['output_tokens']}" for row in ordered) + "\n")  # fmt: skip
    given = ("simulate", "w1_llama_8b_h100", "--trace", str(trace), "--columns", "arrival,prompt,output", *asked)
    found = ask(*given)
    for key, column in (("ttft_s", "ttft_ms"), ("tpot_s", "tpot_ms")):
        truth = sum(float(row[column]) for row in table) / len(table) / 1e3
        assert found[key]["mean"] == pytest.approx(truth, rel=0.15), key
    said = ask(*given, text=True)
    assert said.index("TTFT") < said.index("TPOT") < said.index("E2E")


def test_c34_requests_longer_than_the_model_are_counted(ask: Ask, tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    trace.write_text("arrival,prompt,output\n0,1000,20\n1,131000,20\n2,131060,20\n3,500000,20\n")
    found = ask("simulate", "w1_llama_8b_h100", "--trace", str(trace), "--columns", "arrival,prompt,output")
    said = " ".join(found["warnings"])
    assert "2 of 4 requests are longer than the 131,072 tokens that llama-3.1-8b was made for" in said
    assert found["requests"]["rejected"] == 1  # 500,000 tokens of cache do not fit one H100 at all
    assert "1 of 4 requests were rejected: does not fit the KV cache even alone" in said


def test_c36_shares_of_the_weights_are_those_of_the_plan(ask: Ask, shared: Path, tmp_path: Path) -> None:
    """671 GB at FP8 over eight is 83.9 GB a chip, too much for 48 GB; over sixteen 41.9 GB, which leaves almost no room."""
    for tp, gb, status in ((8, 83.9, 3), (16, 41.9, 0)):
        path = scenario(tmp_path, "deepseek-ai--DeepSeek-V3", shared, f"[tensor: {{degree: {tp}}}]", chip="l40s", count=1024)
        found = ask("run", path, status=status)
        row = found["memory"][0]
        assert gb < row["weights_bytes"] / 1e9 < gb * 1.06  # scales, and what tensor parallelism replicates
        if status:
            assert any("l40s has 48.31 GB less 3.864 GB reserve" in text for text in found["reasons"])
        else:
            assert 0 < row["free_bytes"] < 0.05 * row["capacity_bytes"]


def test_c40_where_all_cost_goes_is_said(ask: Ask, shared: Path, tmp_path: Path) -> None:
    """Eight GPUs at 3 USD/h: 24 USD/h over the tokens of the step that are counted, and which those are."""
    path = scenario(tmp_path, "meta-llama--Meta-Llama-3.1-8B", shared, "[]", batch=64, context=1000)
    price = ("--set", "cluster.pools.gpu.override.price.rental=3 USD/h")
    found = ask("run", path, *price)
    assert found["cost"]["usd_per_hour"] == pytest.approx(24)
    by_hand = 24 / (found["step"]["tokens_per_s"] * 3600) * 1e6
    assert found["cost"]["usd_per_million_output_tokens"] == pytest.approx(by_hand)
    assert "per output token" in found["cost"]["basis"]
    both = {row["kind"]: row["usd_per_million"] for row in ask("cost", path, *price)["tokens"]}
    assert both["output"] == pytest.approx(by_hand)
    assert 0 < both["input"] < both["output"]
