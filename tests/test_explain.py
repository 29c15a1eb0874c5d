"""Every printed formula with its printed numbers gives the printed result."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hwmodel.cli import main
from hwmodel.explain import Explanation, explain, explain_all, names
from hwmodel.run import Result, run
from hwmodel.scenario import from_options, load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError

SCENARIOS = catalog.names("scenarios")
OPTIONS: dict[str, dict[str, Any]] = {
    "calibrated": {"model": "llama-3.1-70b", "chip": "h100_sxm", "count": 8, "tp": 8, "batch": 64, "stack": "vllm"},
    "calibrated experts": {"model": "qwen3-235b-a22b", "chip": "h200_sxm", "count": 8, "tp": 4, "ep": 8, "stack": "trtllm"},
    "calibrated prefill": {"model": "llama-3.1-8b", "chip": "b200_sxm", "phase": "prefill", "stack": "sglang"},
    "prior": {"model": "llama-3.1-8b", "chip": "mi300x", "batch": 8, "stack": "vllm"},
    "pipeline": {"model": "llama-3.1-70b", "chip": "h100_sxm", "count": 8, "tp": 2, "pp": 4, "batch": 32},
    "mixed": {"model": "gpt-oss-120b", "chip": "b200_sxm", "count": 2, "tp": 2, "batch": 32, "phase": "mixed"},
    "state": {"model": "qwen3.5-35b-a3b", "chip": "h100_sxm", "batch": 8},
    "lanes": {"model": "llama-3.1-70b", "chip": "groq3_lpu", "count": 512, "tp": 16, "pp": 32, "batch": 1},
}  # fmt: skip


@cache
def priced(name: str, ideal: bool = False) -> Result:
    return run(from_options(OPTIONS[name]) if name in OPTIONS else load_scenario(name), ideal=ideal)


@cache
def explained(name: str, ideal: bool = False) -> list[Explanation]:
    return explain_all(priced(name, ideal), ops=True)


def evaluated(found: Explanation, digits: int = 16) -> float:
    """The formula with every number as printed with so many digits."""
    expression = found.formula.partition("=")[2]
    numbers = {term.symbol: float(f"{term.value:.{digits}g}") for term in found.terms}
    return float(eval(expression, {"__builtins__": {}}, {"max": max, "min": min, **numbers}))


CASES = [(name, False) for name in (*SCENARIOS, *OPTIONS)] + [("h100_llama_70b_decode", True), ("rubin_lpx_deepseek_v3", True)]


@pytest.mark.parametrize(("name", "ideal"), CASES)
def test_formulas_give_the_results_they_explain(name: str, ideal: bool) -> None:
    found = explained(name, ideal)
    assert len(found) == len(names(priced(name, ideal)))
    for each in found:
        assert evaluated(each) == pytest.approx(each.value, rel=1e-9, abs=1e-18), f"{each.of}: {each.formula}"
        assert evaluated(each, 10) == pytest.approx(each.value, rel=1e-7, abs=1e-18), each.of


@pytest.mark.parametrize(("name", "ideal"), CASES)
def test_explained_values_are_those_of_the_answer(name: str, ideal: bool) -> None:
    result, by_name = priced(name, ideal), {each.of: each for each in explained(name, ideal)}
    assert by_name["step"].value == result.step.time_s
    for latency, value in (("ttft", result.step.ttft_s), ("tpot", result.step.tpot_s)):
        assert (by_name[latency].value if latency in by_name else None) == value
    for row in result.ops:
        assert by_name[row.op].value == row.time_s
    if result.cost:
        assert by_name["cost"].value in (result.cost.usd_per_million_output_tokens, result.cost.usd_per_million_input_tokens)
        assert by_name["energy"].value == result.cost.joules_per_token
    for pool in result.pools:
        assert by_name[f"pool:{pool.pool}"].value == pool.busy_fraction
    for link in result.links:
        assert by_name[f"link:{link.source}>{link.target}"].value == link.time_s
    for row in result.memory:
        if row.weights_bytes + row.kv_bytes + row.activation_bytes:
            assert by_name[f"memory:{row.pool}:{row.tier}"].value == pytest.approx(row.capacity_bytes - row.free_bytes)


def test_rounding_is_not_told_as_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """A pool whose bounds sum to the step but for rounding is never idle, and no input moves that; one that waits is."""
    for pool, (here, gone) in {"gpu": ("never idle", "moved most"), "lpx": ("(idle for 0.95", "0.00 %")}.items():
        with pytest.raises(SystemExit):
            main(["explain", "rubin_lpx_deepseek_v3", "--op", f"pool:{pool}"])
        said = capsys.readouterr().out
        assert here in said
        assert gone not in said
        assert ("moved most" in said) == (pool == "lpx")


def test_every_term_has_a_source_and_a_status() -> None:
    for name in ("rubin_lpx_deepseek_v3", "calibrated", "rtx4090_mixtral_offload"):
        for each in explained(name):
            assert each.terms or each.value == 0
            for term in each.terms:
                assert term.source, f"{each.of}: {term.symbol}"
                assert term.status in {"published", "derived", "estimated", "measured", "given"}


def test_provenance_is_that_of_the_chip() -> None:
    found = explain(priced("h100_llama_70b_decode"), "attention_decode")
    terms = {term.symbol: term for term in found.terms}
    assert terms["bandwidth_hbm"].value == 3.35e12
    assert terms["bandwidth_hbm"].status == "published"
    assert "nvidia.com" in terms["bandwidth_hbm"].source
    assert terms["efficiency_hbm"].status == "measured"
    assert terms["kv_bytes"].value == 16 * 2048 * 2 * 2 * 128 * 2  # sequences, positions, K and V, heads a chip, width, bytes


def test_a_gemm_names_what_its_tiles_waste() -> None:
    """o of Llama-3.1-70B over four H100: 16 rows, 8192 columns, 2048 inner."""
    found = explain(priced("h100_llama_70b_decode"), "o")
    terms = {term.symbol: term for term in found.terms}
    assert terms["flops"].value == 2 * 16 * 8192 * 2048
    assert 0 < terms["tile_use"].value < 1
    assert "max(flops / (peak_bf16 * efficiency_compute * tile_use)" in found.formula


def test_elasticities_of_a_memory_bound_step() -> None:
    """Reading is most of the step: the bandwidth's elasticity is its share, and that of all times together is -1 or 1."""
    result = priced("h100_llama_70b_decode")
    moved = dict(explain(result, "attention_decode").most_sensitive)
    row = next(row for row in result.ops if row.op.endswith("attention_decode"))
    terms = {term.symbol: term.value for term in explain(result, "attention_decode").terms}
    stream = terms["kv_bytes"] / (terms["bandwidth_hbm"] * terms["efficiency_hbm"])
    assert moved["h100_sxm.memory.hbm.bandwidth"] == pytest.approx(-stream / row.time_s, rel=1e-3)
    assert moved["workload.context"] == pytest.approx(stream / row.time_s, rel=0.02)


def test_elasticities_of_cost_and_energy() -> None:
    result = priced("rubin_deepseek_v3")
    cost = dict(explain(result, "cost").most_sensitive)
    assert cost["rubin.price.rental"] == pytest.approx(1)
    assert cost["economics.utilisation"] == pytest.approx(-1)
    energy = explain(result, "energy").most_sensitive
    assert len(energy) == 3
    assert [abs(value) for _, value in energy] == sorted((abs(value) for _, value in energy), reverse=True)


def test_layers_and_near_misses() -> None:
    result = priced("rubin_lpx_deepseek_v3")
    layer = explain(result, "layer3")
    assert explain(result, "mla+moe").of == "layer3"
    ops = sum(row.time_s * row.count for row in result.ops if row.op.startswith("layer3.")) / 58
    assert layer.value == pytest.approx(ops)
    with pytest.raises(InputError, match="did you mean 'step'"):
        explain(result, "stpe")


def test_bought_chips_with_all_that_stands_beside_them() -> None:
    setting = "economics={pay: purchase, electricity: 0.1 USD/kWh, host: 9000 USD, utilisation: 60 %, memory: {hbm: 30 USD/GB}}"
    result = run(load_scenario("rubin_deepseek_v3", [setting]))
    for name in ("cost", "energy"):
        found = explain(result, name)
        assert evaluated(found) == pytest.approx(found.value, rel=1e-12)
    assert {"electricity_gpu", "beside_gpu", "purchase_gpu"} <= {term.symbol for term in explain(result, "cost").terms}


def test_the_command_has_the_keys_of_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*args: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as left:
            main(["explain", "h100_llama_70b_decode", *args])
        assert left.value.code == 0
        return dict(json.loads(capsys.readouterr().out))

    one = asked("--op", "attention_decode", "--json")
    assert {*one} >= {"of", "formula", "terms", "most_sensitive"}
    assert {*one["terms"][0]} == {"symbol", "value", "unit", "source", "status"}
    assert {*one["most_sensitive"][0]} == {"input", "elasticity"}
    whole = asked("--json")
    assert whole["of"] == "step"
    assert [each["of"] for each in whole["totals"]] == ["tpot", "throughput", "cost", "energy", "memory:gpu:hbm"]
    assert all(math.isfinite(term["value"]) for each in whole["totals"] for term in each["terms"])


def test_names_of_files_are_only_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = tmp_path / "odd.yaml"
    chip.write_text(
        "kind: gpu\npeaks: {bf16: 100 TFLOP/s}\n"
        "memory: [{tier: hbm, capacity: 80 GB, bandwidth: 1 TB/s, source: '[bold]x[/b]'}]\n"
        "execution: {cores: 64, launch: 1 us}\nprice: {purchase: 10 USD}\n"
    )
    scenario = tmp_path / "odd_question.yaml"
    scenario.write_text(
        "model: llama-3.1-8b\ncluster: {pools: {'a b': {chip: ./odd.yaml, count: 1}}}\nworkload: {batch: 2, context: 512}\n"
    )
    with pytest.raises(SystemExit) as left:
        main(["explain", str(scenario)])
    assert left.value.code == 0
    assert "[bold]x[/b]" in capsys.readouterr().out


def test_a_saved_answer_is_no_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence, and not an error for every key of the answer."""
    with pytest.raises(SystemExit):
        main(["run", "h100_llama_70b_decode", "--json"])
    path = tmp_path / "answer.json"
    path.write_text(capsys.readouterr().out)
    with pytest.raises(SystemExit) as left:
        main(["explain", str(path)])
    said = capsys.readouterr().err
    assert left.value.code == 2
    assert said.count("error:") == 1
    assert "is an answer that 'hwmodel run --json' saved, no scenario: 'report' and 'compare' take it" in said
