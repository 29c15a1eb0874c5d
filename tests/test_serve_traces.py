"""The engine on real traces: W1, the Mooncake conversations, and two vLLM servers that were measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from serving_cases import requests

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.metrics import hit_rate, makespan_s, tpot_s, ttft_s
from hwmodel.serve.readers import read, recorded
from hwmodel.serve.requests import Requests
from hwmodel.serve.result import to_dict
from hwmodel.serve.simulate import Answer, answer, kinds_of, load_service
from hwmodel.serve.synthetic import started

pytestmark = pytest.mark.shared
FLOOR_TTFT_S, FLOOR_TPOT_S = 14.9e-3, 4.95e-3
"""Of W1 on one H100, facts/peers.md."""


def test_w1_lies_where_two_independent_simulators_put_it(shared: Path) -> None:
    """TTFT 31.4 and 29.3 ms, TPOT 7.61 and 7.87 ms, makespan 234.2 and 234.5 s (facts/peers.md, 4.1)."""
    work = read(shared / "traces" / "w1" / "w1.csv", "", ("arrived_at", "num_prefill_tokens", "num_decode_tokens"))
    found = answer(load_service("w1_llama_8b_h100"), work)
    run = found.run
    assert run.finished.all()
    assert int(run.req[:, c.MADE].sum()) == 260_164
    assert (run.when[:, c.SCHEDULED] >= work.arrival_s).all()
    assert 27e-3 < ttft_s(run).mean() < 34e-3
    assert 7.2e-3 < tpot_s(run).mean() < 8.3e-3
    assert ttft_s(run).mean() > FLOOR_TTFT_S
    assert tpot_s(run).mean() > FLOOR_TPOT_S
    assert makespan_s(run) == pytest.approx(234.35, rel=0.005)
    floor = to_dict(found)["floor"]
    assert floor["ttft_s"] < ttft_s(run).mean()
    assert floor["tpot_s"] < tpot_s(run).mean()


def test_a_dram_tier_brings_the_mooncake_hit_rate_to_its_bound(shared: Path) -> None:
    """First 2,000 requests at an eighth of the rate on one H100: a few per cent to 0.294, TTFT down by about a fifth."""
    work = read(shared / "traces" / "mooncake" / "conversation_trace.jsonl").first(2000).scaled(0.125)
    service = load_service("w1_llama_8b_h100")
    kinds = kinds_of(service, work)
    without = answer(service, work, kinds=kinds).run
    dram = "{tier: dram, capacity: 4 TB, bandwidth: 50 GB/s, latency: 20 us}"
    tiered = answer(load_service("w1_llama_8b_h100", [f"serving.tiers=[{dram}]"]), work, kinds=kinds).run
    assert 0.02 < hit_rate(without) < 0.06
    assert 0.28 < hit_rate(tiered) <= 0.2942
    assert 0.70 < ttft_s(tiered).mean() / ttft_s(without).mean() < 0.85
    slow = "{tier: tape, capacity: 4 TB, bandwidth: 1 GB/s, latency: 5 ms}"
    never = answer(load_service("w1_llama_8b_h100", [f"serving.tiers=[{slow}]"]), work, kinds=kinds).run
    assert never.tier[0, 1, c.READS] == 0, "reading takes longer than computing"
    assert ttft_s(never).mean() == ttft_s(without).mean()


def measured(shared: Path, name: str, workload: str) -> tuple[Requests, dict[str, float]]:
    """A measured server's requests in order of arrival at the engine, and its means."""
    folder = shared / "traces" / "measured_vllm"
    rows = np.genfromtxt(folder / f"{name}.requests.csv", delimiter=",", names=True)
    sizes = np.genfromtxt(folder / f"workload_{workload}.csv", delimiter=",", names=True)
    order = np.argsort(rows["queued_s"], kind="stable")
    work = requests(rows["queued_s"][order], sizes["input_tokens"][order], sizes["output_tokens"][order])
    span = float(rows["last_token_s"].max() - rows["queued_s"].min())
    return work, {"ttft": rows["ttft_ms"].mean() / 1e3, "tpot": rows["tpot_ms"].mean() / 1e3, "makespan": span}


def server(work: Requests, model: str, plan: str, chips: int) -> Answer:
    """vLLM 0.19 on RTX PRO 6000 as the runs' meta.json states it: 2,048 tokens, 128 sequences a rank."""
    return answer(load_service("w1_llama_8b_h100", [
        f"model={model}", f"plan={plan}", f"cluster.pools.gpu.count={chips}", "cluster.pools.gpu.chip=rtx_pro_6000_server",
        f"serving.scheduler={{vllm: {{max_sequences: {128 * chips}, max_tokens: {2048 * chips}}}}}",
    ]), work)  # fmt: skip


def errors(found: Answer, truth: dict[str, float]) -> dict[str, float]:
    run = found.run
    values = {"ttft": ttft_s(run).mean(), "tpot": np.nanmean(tpot_s(run)), "makespan": makespan_s(run)}
    return {name: float(values[name] / truth[name] - 1) for name in truth}


def test_a_measured_server_of_llama(shared: Path) -> None:
    """No fitting on this run: TPOT and makespan within 15 %, TTFT within 30 %."""
    work, truth = measured(shared, "RTXPRO6000_Llama-3.1-8B", "sharegpt_llama-3.1-8b")
    off = errors(server(work, "llama-3.1-8b", "[]", 1), truth)
    assert abs(off["tpot"]) < 0.15
    assert abs(off["makespan"]) < 0.15
    assert abs(off["ttft"]) < 0.30


def test_a_measured_server_of_qwen3_experts(shared: Path) -> None:
    """TPOT and makespan within 15 %, TTFT within 30 %.

    The run is at the edge of its 256 sequences: the mean of TTFT is the wait for a place, and steps 5 % shorter make it a third
    shorter.
    """
    work, truth = measured(shared, "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507", "sharegpt_qwen3")
    found = server(work, "qwen3-30b-a3b", "[{expert: {degree: 2}}]", 2)
    off = errors(found, truth)
    assert abs(off["tpot"]) < 0.15
    assert abs(off["makespan"]) < 0.15
    assert abs(off["ttft"]) < 0.30


def test_agents_on_attention_and_experts_apart(shared: Path) -> None:
    """300 recorded agent runs on Rubin and LPX: 64 calls each, nearly all of what a run could find again is found."""
    trace = started(recorded(shared / "traces" / "agentic_weka" / "weka_requests.csv.gz"), 1.0)
    work = trace.requests
    found = answer(load_service("rubin_lpx_agents", ["model=deepseek-v3"]), work)
    run = found.run
    assert len(work) / len(np.unique(work.session)) == pytest.approx(64.0, abs=0.1)
    assert run.finished.all()
    assert 0.93 < hit_rate(run) < 0.9635, "without a limit 0.963"
    told = to_dict(found)
    assert told["sessions"]["finished"] == 300
    assert told["sessions"]["usd"] > 0
    assert all(item["worst"] < 0.05 for item in told["step_times"])
