"""Tokens per expert: what a plan gives them against counting by hand, the best of a device against trying every batch."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hwmodel import plot_optimize
from hwmodel.cli import main
from hwmodel.goal import Goal, Slo
from hwmodel.kernels import columns as c
from hwmodel.optimize.agreement import agreement
from hwmodel.optimize.costs import best_placement
from hwmodel.optimize.expert_batch import Curve, curve, expert_batch, pool_batches, spaced, whole, widths
from hwmodel.optimize.expert_layout import Layout, layouts
from hwmodel.optimize.knee import knee
from hwmodel.optimize.optimum import optimize
from hwmodel.run import run
from hwmodel.scenario import Scenario, load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.number import Number

TWO_POOLS, ONE_POOL = "rubin_lpx_deepseek_v3", "h100_mixtral_decode"


def at(name: str, *settings: str) -> Scenario:
    return load_scenario(name, settings)


# --- what a plan gives its experts ------------------------------------------------------------------------------------
def test_tokens_of_a_micro_batch() -> None:
    """1,152 sequences in 2 micro-batches, 8 of 256 experts each: 18 tokens an expert, all but 256 (1 - 1/32)^576 are hit."""
    (row,) = pool_batches(run(at(TWO_POOLS)))
    assert (row.pool, row.weights, row.experts, row.experts_per_chip) == ("lpx", "sram", 256, 1)
    assert row.tokens == 576
    assert row.tokens_per_expert == pytest.approx(18)
    assert row.distinct_experts == pytest.approx(256 * (1 - (1 - 1 / 32) ** 576))
    chip = at(TWO_POOLS).cluster.pool("lpx").chip
    assert row.knee == pytest.approx(knee(chip, "fp8", "fp8_block"), rel=1e-9)


def test_a_plan_on_one_pool_and_its_expert_layer() -> None:
    scenario = at(ONE_POOL)
    result = run(scenario)
    (row,) = pool_batches(result)
    assert row.tokens_per_expert == 16 * 2 / 8
    assert row.distinct_experts == pytest.approx(8 * (1 - (1 - 1 / 4) ** 16))
    ops = [op for op in result.ops if ".experts" in op.op]
    assert row.layer_s == pytest.approx(sum(op.time_s for op in ops))
    assert row.bound == "memory:hbm"
    # 128 x 128 tiles hold Binomial(16, 1/4) rows of 16 at the least, and cores stand idle
    assert row.tile_efficiency == pytest.approx(4 / 16 * _waves(result), rel=0.35)


def _waves(result) -> float:  # type: ignore[no-untyped-def]
    """Reached share of the arithmetic by the priced ops, tokens rounded up to 16."""
    rows = [i for i, op in enumerate(result.placed.table.ops) if op.experts]
    device = result.placed.device[0, 0]
    peak = device[c.PEAK + c.DTYPES.index("bf16")] * device[c.COMPUTE_EFFICIENCY]
    return float(result.placed.priced[rows, c.FLOPS].sum() / (peak * result.placed.priced[rows, c.COMPUTE].sum())) * 4


def test_tile_efficiency_is_work_over_arithmetic_time() -> None:
    for name in (TWO_POOLS, ONE_POOL, "rubin_deepseek_v3"):
        result = run(at(name))
        (row,) = pool_batches(result)
        ops = [i for i, op in enumerate(result.placed.table.ops) if op.experts]
        pool = result.placed.scenario.cluster.pool(row.pool)
        peak = float(pool.chip.peaks.by_dtype()["bf16" if name == ONE_POOL else "fp8"]) * float(pool.chip.efficiency.compute)
        seconds = result.placed.priced[ops, c.COMPUTE].sum()
        assert row.tile_efficiency == pytest.approx(result.placed.priced[ops, c.FLOPS].sum() / peak / seconds, rel=1e-9)


def test_hot_and_cold_experts_are_told_apart() -> None:
    hot, cold = pool_batches(run(at("rubin_lpx_lpddr_deepseek_v3")))
    assert {hot.pool: hot.experts, cold.pool: cold.experts} == {"lpx": 64, "lpddr": 192}
    assert hot.tokens_per_expert > 10 * cold.tokens_per_expert
    assert cold.bound == "memory:lpddr"


def test_streamed_experts_have_the_knee_of_their_link() -> None:
    scenario = at("rtx4090_mixtral_offload")
    plan = [s.model_copy(update={"mode": "stream"}) if s.kind == "offload" else s for s in scenario.plan]
    rows = pool_batches(run(replace(scenario, plan=tuple(plan))))
    row = next(row for row in rows if row.weights == "host")
    assert row.bound == "link"
    assert row.knee > 1000  # 165 TFLOP/s over a PCIe link of tens of GB/s


def test_dense_models_have_none() -> None:
    assert expert_batch(run(at("h100_llama_70b_decode"))) is None
    with pytest.raises(InputError, match="no routed experts"):
        layouts(at("h100_llama_70b_decode"), ())


# --- what devices make of more or fewer -------------------------------------------------------------------------------
def _layout(name: str) -> tuple[Layout, Scenario]:
    scenario = at(name)
    holders = {row.pool for row in pool_batches(run(scenario))}
    return next(one for one in layouts(scenario, scenario.plan, holders) if one.pool.name in holders), scenario


@pytest.mark.parametrize("name", [TWO_POOLS, ONE_POOL, "rubin_deepseek_v3"])
def test_experts_alone_take_what_they_take_in_the_plan(name: str) -> None:
    layout, scenario = _layout(name)
    result = run(scenario)
    (row,) = pool_batches(result)
    tokens = scenario.workload.batch / result.step.micro_batches
    assert layout.seconds(np.array([tokens]))[0] / layout.layers == pytest.approx(row.layer_s, rel=1e-9)
    assert layout.fits


@pytest.mark.parametrize("tpot", [None, 0.015, 0.05])
def test_optimum_is_that_of_every_batch(tpot: float | None) -> None:
    """Mixtral on two H100: every batch up to 1,024 tokens an expert, one by one."""
    layout, scenario = _layout(ONE_POOL)
    found = curve(layout, scenario, most=1024).optimum(tpot)
    batches = np.arange(1, 1024 * 4 + 1)
    seconds = layout.seconds(batches.astype(float))
    fine = seconds <= (tpot or np.inf)
    cost = np.where(fine, seconds / batches, np.inf)
    first = int(np.argmax(cost <= cost.min() * 1.05))
    assert found is not None
    assert found.batch == pytest.approx(batches[first], rel=0.011)  # neighbours of a curve are 1 % apart
    assert found.tpot_s <= (tpot or np.inf)
    assert found.tokens_per_expert == pytest.approx(found.batch / 4)


def test_optimum_meets_the_target_or_there_is_none() -> None:
    layout, scenario = _layout(ONE_POOL)
    line = curve(layout, scenario)
    assert line.optimum(1e-6) is None
    loose, tight = line.optimum(), line.optimum(12e-3)
    assert loose is not None
    assert tight is not None
    assert tight.tokens_per_expert < loose.tokens_per_expert
    assert tight.tokens_per_s_per_chip < loose.tokens_per_s_per_chip


def test_optimum_of_plain_curves() -> None:
    """A roofline bends at its knee and is flat from there on: the optimum is the knee over 1.05."""
    batch = spaced(100_000)
    seconds = np.maximum(1000.0, batch) * 1e-6
    line = Curve("x", 1, 1000.0, None, True, batch, batch, batch / seconds, seconds)
    best = line.optimum()
    assert best is not None
    assert best.batch == pytest.approx(1000 / 1.05, rel=0.011)


def test_knee_and_its_step_batch() -> None:
    """(256, 8) on the LPU: 4.0 tokens an expert, 128 a step; on Rubin 17.5 P/(2 x 22 TB/s) = 398."""
    lines = {line.label: line for line in expert_batch(run(at(TWO_POOLS))).curves}  # type: ignore[union-attr]
    lpx, gpu = lines["1,536 x groq3_lpu, EP256 x TP6"], lines["72 x rubin, EP72"]
    assert lpx.knee == pytest.approx(4.0, rel=1e-3)
    assert lpx.knee_batch == pytest.approx(128, rel=1e-3)
    assert gpu.knee == pytest.approx(17.5e15 / 44e12, rel=1e-3)


def test_tile_steps_show() -> None:
    """On the H100 (tiles of 128 rows) time steps up where experts need a second tile: cost per token is not monotone."""
    layout, _ = _layout(ONE_POOL)
    tokens = np.arange(400.0, 4000.0, 20)
    cost = layout.seconds(tokens) / tokens
    assert (np.diff(cost) > 0).any()
    assert (np.diff(cost) < 0).any()


def test_accumulation_saves_reading_and_launching() -> None:
    found = expert_batch(run(at(ONE_POOL)))
    assert found is not None
    rows = found.accumulation
    layout, _ = _layout(ONE_POOL)
    assert [row["micro_batches"] for row in rows] == [1, 2, 3, 4, 8]
    assert rows[1]["layer_s"] == pytest.approx(2 * float(layout.seconds(np.array([8.0]))[0]) / 32)
    assert rows[1]["distinct_experts"] == pytest.approx(8 * (1 - 0.75**8))
    ratios = [row["times_accumulated"] for row in rows]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1


def test_widths_share_tokens_and_weights() -> None:
    layout, scenario = _layout("rubin_deepseek_v3")
    rows = widths(layout, scenario, 1)
    assert rows[0]["expert_groups"] == 72
    for row in rows:
        assert row["expert_groups"] * row["chips_per_group"] * row["copies"] == 72
        assert row["tokens_per_expert"] == pytest.approx(1152 * 8 / 256 / row["copies"])
        assert row["experts_per_chip"] == -(-256 // row["expert_groups"])
    weights = [row["weights_bytes_per_chip"] for row in rows]
    assert weights == sorted(weights)
    assert rows[0]["weights_bytes_per_chip"] == pytest.approx(58 * 4 * 3 * 7168 * 2048, rel=1e-3)


def test_named_chips_are_as_few_as_hold_the_experts() -> None:
    scenario = at(TWO_POOLS)
    found = {one.pool.chip.name: one for one in layouts(scenario, scenario.plan, (), ("h100_sxm", "groq3_lpu"))}
    h100 = found["h100_sxm"]
    assert h100.pool.count == -(-256 // int(0.92 * 80e9 // (h100.weights_bytes / h100.held)))
    assert h100.fits
    assert found["groq3_lpu"].tensor == 6
    assert found["groq3_lpu"].fits


def test_pipeline_stages_share_the_layers() -> None:
    """Mixtral on 256 GroqChip 1 in 32 stages of 8: each chip holds an 8th of the experts of one layer."""
    layout, scenario = _layout("groqchip_mixtral")
    assert (layout.chips, layout.pool.count, layout.tensor, layout.stages) == (256, 8, 8, 32)
    assert layout.weights_bytes == pytest.approx(3 * 4096 * 14336, rel=1e-3)  # int8
    assert layout.fits
    line = curve(layout, scenario)
    assert line.chips == 256
    at_ten = int(np.searchsorted(line.batch, 10))
    assert line.tokens_per_s_per_chip[at_ten] == pytest.approx(line.batch[at_ten] / line.tpot_s[at_ten] * 32 / 256)


def test_whole_plan_is_run() -> None:
    scenario = at(TWO_POOLS)
    line = whole(scenario, 12)
    assert line is not None
    for index in (3, 8, 11):
        work = scenario.workload.model_copy(update={"batch": int(line.batch[index])})
        step = run(replace(scenario, workload=work)).step
        assert line.tpot_s[index] == pytest.approx(step.tpot_s, rel=1e-12)
        assert line.tokens_per_s_per_chip[index] == pytest.approx(step.tokens_per_s_per_chip, rel=1e-12)
        assert line.tokens_per_expert[index] == pytest.approx(line.batch[index] / 2 / 32)


# --- placement of every op by itself ----------------------------------------------------------------------------------
def test_placement_agrees_with_a_plan_it_would_choose() -> None:
    """Under 5 ms the experts go to the LPUs: placing every op by itself says the same, and takes what `run` says."""
    goal = Goal(objective="usd_per_mtok", slo=Slo(tpot_s=Number(5e-3)), pools={"gpu": (72,), "lpx": (1536,)})
    found = optimize(at(TWO_POOLS), goal)
    check = found.proof["placement"]
    assert check["agrees"]
    assert check["classes"]["mla+moe experts"] == "lpx"
    assert check["gap"] <= 1e-6
    assert check["objective_s"] == pytest.approx(check["plan_s"], rel=1e-9)
    result = found.answer.result
    assert result is not None
    assert result.step.micro_batches == 1
    assert check["plan_s"] == pytest.approx(result.step.time_s - 100e-6, rel=1e-3)  # host time aside
    assert found.to_dict()["expert_batch"]["pools"][0]["pool"] == "lpx"


def test_placement_says_where_it_differs() -> None:
    """At 1,152 sequences of 128K the two trips to the LPUs do not pay: all on the GPUs is quicker, and is said so."""
    scenario = at(TWO_POOLS)
    check = agreement(run(scenario))
    one = best_placement(replace(scenario, workload=scenario.workload.model_copy(update={"batch": 576})))
    assert check["objective_s"] == pytest.approx(one.placement.objective_s)
    assert not check["agrees"]
    assert set(map(tuple, check["differs"].values())) == {("lpx", "gpu")}
    assert check["plan_s"] > check["objective_s"]


def test_placement_never_fails_an_answer() -> None:
    pipelined = at("groqchip_llama2_70b")
    check = agreement(run(pipelined))
    assert check["method"] is None
    assert "placement" in check["notes"][0]
    split = agreement(run(at("rubin_lpx_lpddr_deepseek_v3")))
    assert split["plan_s"] is None
    assert any("splits the experts" in note for note in split["notes"])


# --- commands and pictures --------------------------------------------------------------------------------------------
def _call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(args)
    return int(stop.value.code or 0), capsys.readouterr().out


def test_optimize_prints_the_batch_per_expert(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["optimize", ONE_POOL, "--slo", "tpot=25ms"]
    status, out = _call(capsys, *ask, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["expert_batch"]["tokens_per_expert"] == pytest.approx(found["batch"] / found["microbatches"] / 4)
    assert {"tokens_per_expert", "distinct_experts", "knee", "tile_efficiency", "bound"} <= found["expert_batch"]["pools"][
        0
    ].keys()
    assert found["proof"]["placement"]["agrees"]
    text = _call(capsys, *ask)[1]
    assert "tokens per expert" in text
    assert "placement of every op by itself (dynamic programming, gap 0): as planned (on one pool)" in text


@pytest.mark.parametrize("kind", ["batch", "tornado"])
def test_pictures(kind: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    texts = []
    for number in (1, 2):
        path = tmp_path / f"{kind}{number}.svg"
        assert _call(capsys, "plot", ONE_POOL, "--kind", kind, "--set", "goal.slo.tpot=20 ms", "--out", str(path))[0] == 0
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert kind in plot_optimize.KINDS
    assert _call(capsys, "plot", ONE_POOL, "--kind", "layers", "--beside", "b200_sxm", "--out", str(path))[0] == 2
    assert _call(capsys, "plot", ONE_POOL, "--kind", kind, "--ideal", "--out", str(path))[0] == 2


def test_batch_picture_of_a_dense_model_is_refused(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    path = str(tmp_path / "x.svg")
    assert _call(capsys, "plot", "h100_llama_70b_decode", "--kind", "batch", "--out", path)[0] == 2
