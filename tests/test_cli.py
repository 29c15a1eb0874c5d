"""The command line keeps its contract: keys of the JSON, exit statuses, what goes where."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.cli import main
from hwmodel.hardware import load_chip
from hwmodel.operation import operation
from hwmodel.routing import Experts, reached_groups
from hwmodel.spec.errors import InputError


def call(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of one command."""
    with pytest.raises(SystemExit) as stop:
        main(args)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(stop.value.code or 0), out, err


def answer(*args: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    code, out, err = call(*args, "--json", capsys=capsys)
    assert code == status, err
    return json.loads(out)


def test_run_json_has_the_keys_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("run", "rubin_lpx_deepseek_v3", capsys=capsys)
    assert set(found) >= {
        "scenario", "feasible", "reasons", "step", "memory", "pools", "links", "layers", "ops", "cost", "estimated_inputs",
        "warnings", "version",
    }  # fmt: skip
    assert set(found["step"]) >= {
        "phase", "time_s", "time_low_s", "time_high_s", "tpot_s", "tokens", "tokens_per_s", "tokens_per_s_per_user",
        "tokens_per_s_per_chip",
    }  # fmt: skip
    assert set(found["memory"][0]) >= {
        "pool",
        "tier",
        "capacity_bytes",
        "weights_bytes",
        "kv_bytes",
        "activation_bytes",
        "free_bytes",
    }
    assert set(found["pools"][0]) >= {"pool", "chip", "count", "busy_fraction", "bound_s"}
    assert set(found["pools"][0]["bound_s"]) == {"compute", "memory", "link", "overhead", "idle"}
    assert set(found["links"][0]) == {"from", "to", "bytes", "time_s", "busy_fraction"}
    assert set(found["layers"][0]) >= {"index", "count", "kind", "time_s", "bound"}
    assert set(found["ops"][0]) >= {
        "op",
        "layer_kind",
        "pool",
        "kind",
        "count",
        "flops",
        "bytes",
        "time_s",
        "low_s",
        "high_s",
        "bound",
    }
    assert set(found["cost"]) >= {"usd_per_hour", "usd_per_million_output_tokens", "joules_per_token", "watts"}
    assert set(found["estimated_inputs"][0]) == {"input", "status", "source", "effect_on_time"}
    assert found["step"]["time_low_s"] < found["step"]["time_s"] < found["step"]["time_high_s"]
    assert sum(layer["count"] for layer in found["layers"]) == 61


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ((), {"tpot_s"}),
        (("workload.phase=prefill", "workload.new_tokens=512"), {"ttft_s"}),
        (("workload.phase=mixed", "workload.new_tokens=512"), {"ttft_s", "tpot_s"}),
    ],
)
def test_each_phase_states_its_latencies(settings: tuple[str, ...], keys: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = [part for text in settings for part in ("--set", text)]
    step = answer("run", "h100_llama_70b_decode", *flags, capsys=capsys)["step"]
    assert {"ttft_s", "tpot_s"} & set(step) == keys


def test_an_infeasible_plan_is_priced_and_leaves_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("run", "h100_mixtral_decode", "--ideal", "--set", "workload.batch=256", capsys=capsys, status=3)
    assert not found["feasible"]
    assert "81.06 GB" in found["reasons"][0]
    assert found["step"]["time_s"] == pytest.approx(24.16e-3, rel=0.02)


def test_run_by_options_alone(capsys: pytest.CaptureFixture[str]) -> None:
    args = [
        "run",
        "--model",
        "llama-3.1-70b",
        "--chip",
        "h100_sxm",
        "--count",
        "4",
        "--tp",
        "4",
        "--batch",
        "16",
        "--context",
        "2048",
    ]
    found = answer(*args, capsys=capsys)
    same = answer("run", "h100_llama_70b_decode", capsys=capsys)
    assert found["step"]["time_s"] == pytest.approx(same["step"]["time_s"], rel=1e-12)


def test_csv_has_one_row_per_op(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call("run", "h100_llama_70b_decode", "--csv", capsys=capsys)
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert {"op", "time_s", "bound"} <= set(rows[0])
    assert any(row["op"] == "layer0.attention_decode" for row in rows)


def test_out_writes_tables_plots_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call("run", "h100_llama_70b_decode", "--out", str(tmp_path / "answer"), capsys=capsys)
    assert code == 0
    written = {path.name for path in (tmp_path / "answer").iterdir()}
    assert written >= {
        "result.json",
        "ops.csv",
        "layers.png",
        "roofline.png",
        "memory.png",
        "timeline.png",
        "trace.json",
    }
    assert "wrote" in err
    assert json.loads((tmp_path / "answer" / "result.json").read_text())["feasible"]


def test_settings_reach_lists_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--set", "cluster.links.0.latency=40us", "--set", "cluster.pools.gpu.override.memory.hbm.bandwidth=4 TB/s"]
    slow = answer("run", "rubin_lpx_deepseek_v3", *flags, capsys=capsys)
    assert slow["step"]["time_s"] > 2 * answer("run", "rubin_lpx_deepseek_v3", capsys=capsys)["step"]["time_s"]


def test_fit_is_consistent_with_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("fit", "h100_llama_70b_decode", capsys=capsys)
    assert set(found) >= {"max_batch", "max_context", "memory"}
    batch = found["max_batch"]
    assert answer("run", "h100_llama_70b_decode", "--set", f"workload.batch={batch}", capsys=capsys)["feasible"]
    answer("run", "h100_llama_70b_decode", "--set", f"workload.batch={batch + 1}", capsys=capsys, status=3)


@pytest.mark.parametrize(
    "args",
    [
        ("gemm", "m=16", "n=8192", "k=8192"),
        ("attention_prefill", "batch=1", "seq=2048", "heads=64", "kv_heads=8", "head_dim=128"),
        (
            "attention_decode",
            "batch=16",
            "kv_len=2048",
            "heads=64",
            "kv_heads=8",
            "head_dim=128",
            "window=1024",
            "kv_dtype=fp8",
        ),
        ("mla_prefill", "batch=1", "seq=2048", "kv_len=2048", "heads=16"),
        ("mla_decode", "batch=16", "seq=1", "kv_len=2048", "heads=16"),
        (
            "moe",
            "tokens=64",
            "hidden=7168",
            "inter=2048",
            "topk=8",
            "experts=256",
            "tp=1",
            "ep=8",
            "dist=power_law_1.2",
        ),
        ("all_reduce", "chips=8", "bytes=1000000"),
        ("alltoall", "chips=8", "bytes=1000000"),
        ("expert_dispatch", "tokens_per_rank=128", "hidden=7168", "topk=8", "experts=256", "ep=8", "nodes=1"),
    ],
)
def test_op_prices_every_kind(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    found = answer("op", *args, "--chip", "h100_sxm", "--dtype", "bfloat16", capsys=capsys)
    assert set(found) >= {"kind", "chip", "stack", "dtype", "shape", "time_s", "low_s", "high_s", "bound", "terms"}
    assert 0 < found["low_s"] <= found["time_s"] <= found["high_s"]
    assert found["dtype"] == "bf16"


def exchange(capsys: pytest.CaptureFixture[str], kind: str = "expert_dispatch", **shape: int) -> dict[str, Any]:
    full = {"tokens_per_rank": 4096, "hidden": 7168, "topk": 8, "experts": 256, "ep": 16, "nodes": 2, **shape}
    pairs = [f"{key}={value}" for key, value in full.items()]
    return answer("op", kind, *pairs, "--chip", "h100_sxm", "--dtype", "bf16", capsys=capsys)


def test_expert_exchange_counts_experts_and_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    found = exchange(capsys)
    sent = 4096 * 7168 * 2 * reached_groups(Experts(256, 8), 16)
    assert found["bytes"] == pytest.approx(sent * 7 / 8 + sent / 2)
    # 7 of 8 parts stay on NVLink at 0.8 of 450 GB/s; half goes to the other node over the NIC
    chip = load_chip("h100_sxm")
    near, far = (link.bandwidth_bytes_per_s * (link.efficiency or chip.efficiency.link) for link in chip.links[:2])
    assert found["terms"]["link"] == pytest.approx(sent * 7 / 8 / near + sent / 2 / far)
    # few experts: a token's choices are different ones, so it reaches more ranks than by chance
    assert exchange(capsys, experts=16)["bytes"] > exchange(capsys, experts=256)["bytes"]
    inside, across = exchange(capsys, ep=8, nodes=1), exchange(capsys, ep=8, nodes=2)
    assert inside["bytes"] == pytest.approx(4096 * 7168 * 2 * reached_groups(Experts(256, 8), 8) * 7 / 8)
    assert across["time_s"] > inside["time_s"]
    assert "16-bit" in exchange(capsys, "expert_combine")["formula"]


@pytest.mark.parametrize(
    ("shape", "words"),
    [({"nodes": 3}, "nodes=3 must divide ep=16"), ({"topk": 300}, "at most experts=256"), ({"ep": 512}, "at most experts=256")],
)
def test_expert_exchange_says_what_does_not_fit(shape: dict[str, int], words: str) -> None:
    full = {"tokens_per_rank": 128, "hidden": 7168, "topk": 8, "experts": 256, "ep": 16, "nodes": 2, **shape}
    with pytest.raises(InputError, match=words):
        operation("expert_combine", load_chip("h100_sxm"), "bf16", full)


def test_model_chips_models_and_claims(capsys: pytest.CaptureFixture[str]) -> None:
    model = answer("model", "deepseek-v3", "--kv", "bf16", "--context", "4096", capsys=capsys)
    assert model["params_total"] == 671_026_419_200
    assert model["kv"]["bytes_per_token"] == 70_272
    assert set(model) >= {
        "name",
        "params_active",
        "weights_bytes",
        "layers",
        "attention_share",
        "ffn_share",
        "mtp",
        "vision",
        "warnings",
    }
    chips = answer("chips", capsys=capsys)
    assert set(chips[0]) >= {"name", "kind", "peaks", "memory", "links", "power", "price", "unpublished"}
    models = answer("models", capsys=capsys)
    assert len(models) >= 30
    assert set(models[0]) == {"name", "params_total", "attention", "ffn"}
    claims = answer("claims", capsys=capsys)
    assert all(set(claim) >= {"claim", "formula", "inputs", "result", "unit", "agrees", "note"} for claim in claims)
    assert all(claim["agrees"] for claim in claims)
    said = " ".join(call("claims", capsys=capsys)[1].split())
    assert "1 ridge of h100_sxm, bf16 295.3 295.34 FLOP/B yes F / BW" in said  # claimed, computed
    assert "23 tokens per MW over a GB200 35 19.913 x within 17.49 to 92.89" in said  # with its bounds


def test_a_shadowed_name_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "h100_sxm.yaml").write_text("extends: h100_sxm\ntitle: mine\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = call("chips", "h100_sxm", capsys=capsys)
    assert code == 0
    assert "shadows the shipped chip 'h100_sxm'" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("runn",), "did you mean 'run'"),
        (("run", "h100_llama_70b_decode", "--stack", "vllm"), "--set cluster.pools.POOL.stack=vllm"),
        (
            ("explain", "h100_llama_70b_decode", "--op", "ttft"),
            "explained are step, tpot, throughput, cost, energy",
        ),
        (("whatif", "h100_llama_70b_decode", "--least", "gpu.x", "--slo", "tpot=5ms"), "'hwmodel whatif SCENARIO' alone lists"),
        (("calibrate", "h20", "--stack", "vllm"), "no measured rows of h20, did you mean 'h200_sxm'"),
        (("calibrate", "cpu", "--stack", "vllm"), "(known: a100_sxm, b200_sxm, gb200, h100_sxm, h200_sxm, l40s)"),
        (("calibrate", "h100_sxm", "--stack", "vlm"), "did you mean 'vllm'?; it was measured under custom_sglang"),
        (("run",), "--model and --chip"),
        (("run", "h100_llama_70b_decod"), "did you mean 'h100_llama_70b_decode'"),
        (("run", "h100_llama_70b_decode", "--batch", "3"), "use --set"),
        (("run", "h100_llama_70b_decode", "--set", "workload.bach=3"), "did you mean 'batch'"),
        (("op", "gem", "--chip", "h100_sxm", "--dtype", "bf16"), "did you mean 'gemm'"),
        (("op", "gemm", "m=3", "--chip", "h100_sxm", "--dtype", "bf16"), "missing n=, k="),
        (("plot", "h100_llama_70b_decode", "--kind", "rooflin", "--out", "x.png"), "did you mean 'roofline'"),
    ],
)
def test_mistakes_leave_with_2_and_a_hint(args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(*args, capsys=capsys)
    assert code == 2
    assert words in err
    assert out == ""
