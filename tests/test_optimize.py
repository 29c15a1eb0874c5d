"""The search: its answer is what `run` says, nothing in its space is better, constraints hold."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hwmodel.cli import main
from hwmodel.goal import Goal, Slo
from hwmodel.lower.decoder import lower
from hwmodel.optimize.held import held
from hwmodel.optimize.limits import excluded
from hwmodel.optimize.optimum import Optimum, Target, natural, optimize
from hwmodel.optimize.packed import largest_batch, packed, rows_at, tokens_of, worth
from hwmodel.optimize.search import best, lines
from hwmodel.optimize.space import Choice, choices
from hwmodel.run import run
from hwmodel.scenario import Scenario, load_scenario
from hwmodel.spec.number import Number
from hwmodel.timeline import floors, period, seconds

SLOS = (5e-3, 10e-3, 20e-3, 50e-3)
LARGE = ("rubin_lpx_deepseek_v3", "rubin_lpx_kimi_k2_5")


@pytest.fixture(scope="module", params=LARGE)
def large(request: pytest.FixtureRequest) -> Optimum:
    scenario = load_scenario(request.param)
    return optimize(scenario, Goal(objective="usd_per_mtok"), SLOS)


def test_front_is_what_run_says(large: Optimum) -> None:
    values = []
    for target in large.front:
        assert target.result is not None, target.tpot_slo_s
        assert target.result.feasible
        assert target.result.step.time_s == pytest.approx(target.best.time_s, rel=1e-9)
        assert target.tpot_slo_s is not None
        assert target.result.step.tpot_s <= target.tpot_slo_s  # type: ignore[operator]
        assert target.result.cost is not None
        assert target.result.cost.usd_per_million_output_tokens == pytest.approx(1e6 / (target.best.value * 3600), rel=1e-9)
        assert target.best.gap <= 1e-5
        values.append(target.best.value)
    assert values == sorted(values)  # a looser target is never dearer


def test_no_plan_of_a_random_sample_is_better(large: Optimum) -> None:
    """10,000 random plans, micro-batches and batches, priced exactly: none beats the front; the bounds hold as well."""
    rng = np.random.default_rng(7)
    every = lines(large.packed, 1)
    picks = rng.integers(len(every), size=10_000)
    beaten, looked = 0, 0
    for index in np.unique(picks):
        line, count = every[index], int((picks == index).sum())
        batches = np.exp(rng.uniform(np.log(line.low), np.log(line.high + 1), count)).astype(int).clip(line.low, line.high)
        times = line.plan.times(batches, line.parts)
        assert (line.plan.floors(batches, line.parts) <= times * (1 + 1e-9)).all()
        values = worth("usd_per_mtok", line.plan, batches, times, line.parts)
        looked += len(batches)
        for target in large.front:
            inside = times / tokens_of(line.plan.scenario) <= (target.tpot_slo_s or np.inf)
            beaten += int((values[inside] > target.best.value * (1 + 1e-5)).sum())
    assert looked == 10_000
    assert beaten == 0


def test_attention_stays_and_experts_go_where_it_pays(large: Optimum) -> None:
    """Nothing says so but the numbers: under 5 ms the LPUs hold the experts, under 20 ms the GPUs do alone."""
    tight, loose = large.front[0].choice, large.front[2].choice
    assert tight is not None
    assert loose is not None
    if large.scenario.name == "rubin_lpx_deepseek_v3":
        assert tight.placement == "experts on lpx"
    assert loose.placement == "all on gpu"


@pytest.mark.parametrize("objective", ["tokens_per_s_per_chip", "tokens_per_s_per_usd", "joules_per_token"])
def test_equals_every_batch_of_every_plan(objective: str) -> None:
    scenario = load_scenario("h100_mixtral_decode")
    goal = Goal(objective=objective, slo=Slo(tpot_s=Number(0.025)), max_batch=300)  # type: ignore[arg-type]
    found = optimize(scenario, goal)
    top = -np.inf
    for line in lines(found.packed, 1):
        batches = np.arange(line.low, line.high + 1)
        times = line.plan.times(batches, line.parts)
        values = worth(objective, line.plan, batches, times, line.parts)
        top = max(top, float(values[times <= 0.025].max(initial=-np.inf)))
    assert found.answer.best.value == pytest.approx(top, rel=1e-5)
    assert found.answer.best.bound >= top * (1 - 1e-12)


def test_joules_and_dollars_are_those_of_run() -> None:
    """With electricity and hours of no use, the objective is still what `run` says of the plan."""
    settings = ["economics.pay=purchase", "economics.electricity=0.1 USD/kWh", "economics.utilisation=0.7"]
    scenario = load_scenario("h100_mixtral_decode", settings)
    for objective, key in (("joules_per_token", "joules_per_token"), ("usd_per_mtok", "usd_per_million_output_tokens")):
        found = optimize(scenario, Goal(objective=objective, max_batch=200))  # type: ignore[arg-type]
        assert found.answer.result is not None
        said = getattr(found.answer.result.cost, key)
        assert natural(objective, found.answer.best.value) == pytest.approx(said, rel=1e-9)
        assert found.answer.best.gap < 1e-4


def _mixtral(**changes: object) -> Target:
    return optimize(load_scenario("h100_mixtral_decode"), Goal(**changes)).answer  # type: ignore[arg-type]


def test_objectives() -> None:
    quickest = _mixtral(objective="tpot")
    batch = load_scenario("h100_mixtral_decode").workload.batch
    assert quickest.best.batch == batch  # the workload's sequences at least
    fewest = _mixtral(objective="chips")
    assert fewest.choice is not None
    assert fewest.choice.cluster.chips == 2  # 93 GB of weights do not fit one
    assert fewest.best.batch >= batch


def test_constraints_kill_by_name() -> None:
    scenario = load_scenario("h100_mixtral_decode")
    cases = {
        "chips": Goal(max_chips=1), "budget": Goal(purchase_usd=Number(1.0)), "TPOT": Goal(slo=Slo(tpot_s=Number(1e-4))),
        "TTFT": Goal(slo=Slo(ttft_s=Number(1e-5))), "memory": Goal(min_batch=60_000),
    }  # fmt: skip
    for word, goal in cases.items():
        found = optimize(scenario, goal)
        assert not found.feasible
        assert any(item.reason.startswith(word) for item in found.candidates), word
        assert len(found.candidates) == found.plans
        assert found.to_dict()["plan"] is None


def test_more_chips_and_slower_links() -> None:
    """More to choose from never makes the best worse; a slower link between pools never makes it better."""
    scenario = load_scenario("rubin_lpx_deepseek_v3")
    values = []
    for gpus in ((36,), (36, 72)):
        goal = Goal(objective="usd_per_mtok", pools={"gpu": gpus, "lpx": (1536,)}, slo=Slo(tpot_s=Number(8e-3)))
        values.append(optimize(scenario, goal).answer.best.value)
    assert values[1] >= values[0]
    goal = Goal(objective="tpot", pools={"gpu": (72,), "lpx": (1536,)}, min_batch=72)
    work = scenario.workload.model_copy(update={"batch": 72})
    times = []
    for latency in (1e-6, 4e-6, 4e-5):
        wire = scenario.cluster.wires[0].model_copy(update={"latency_s": Number(latency)})
        times.append(optimize(replace(scenario, workload=work, cluster=replace(scenario.cluster, wires=(wire,))), goal))
    assert [-found.answer.best.value for found in times] == sorted(-found.answer.best.value for found in times)
    assert times[0].answer.choice.placement == "experts on lpx"  # type: ignore[union-attr]
    assert times[2].answer.choice.placement.startswith("all on gpu")  # type: ignore[union-attr]


def _choices(name: str) -> tuple[Scenario, list[Choice]]:
    scenario = load_scenario(name)
    lowered = lower(scenario.model, scenario.workload.phase, scenario.formats, scenario.workload.drafts)
    return scenario, list(choices(scenario, Goal(offload="always"), held(lowered, scenario.workload)))


def test_what_is_excluded_does_not_fit() -> None:
    """The quick check rules out nothing that memory would hold."""
    scenario, every = _choices("rubin_lpx_deepseek_v3")
    lowered = lower(scenario.model, "decode", scenario.formats)
    model = held(lowered, scenario.workload)
    out = [choice for choice in every if excluded(choice, Goal(), model)]
    for choice in [out[i] for i in np.random.default_rng(1).integers(len(out), size=60)]:
        assert isinstance(packed(choice, scenario, lowered, 4096), str)


def test_largest_batch_is_the_largest() -> None:
    scenario, every = _choices("rubin_lpx_deepseek_v3")
    lowered = lower(scenario.model, "decode", scenario.formats)
    for choice in [every[i] for i in np.random.default_rng(2).integers(len(every), size=200)]:
        plan = packed(choice, scenario, lowered, 1 << 16)
        if not isinstance(plan, str) and plan.most < 1 << 16:
            own, graph = plan.scenario, plan.laid.graph
            assert plan.most == largest_batch(own, graph, 1 << 20)
            assert all(row.free_bytes >= 0 for row in rows_at(own, graph, plan.most))
            assert any(row.free_bytes < 0 for row in rows_at(own, graph, plan.most + 1))


def test_bounds_hold() -> None:
    result = run(load_scenario("rubin_lpddr_deepseek_v3"))
    order, durations = result.placed.timeline.program, seconds(result.placed.timeline.program, result.placed.priced)
    rng = np.random.default_rng(3)
    for _ in range(30):
        changed = durations * rng.uniform(0.2, 5, len(durations))
        assert floors(order, changed[None])[0] <= period(order, changed) * (1 + 1e-9)


def test_hot_experts_stay_and_cold_ones_go() -> None:
    """Three classes of devices: attention on the GPUs, hot experts in SRAM, cold ones in LPDDR; run agrees."""
    scenario = load_scenario("rubin_lpx_lpddr_deepseek_v3")
    goal = scenario.goal.model_copy(update={"pools": {"gpu": (72,), "lpx": (512,), "lpddr": (64,)}})
    found = optimize(scenario, goal)
    names = {choice.choice.placement for choice in found.packed}
    assert any("coldest" in name for name in names)
    hot = [line for line in lines(found.packed, 1) if "coldest" in line.plan.choice.placement]
    target = best(hot, "tokens_per_s_per_chip", None)
    assert target.line is not None
    work = scenario.workload.model_copy(update={"batch": target.batch})
    again = run(replace(target.line.plan.scenario, plan=target.line.plan.choice.plan(target.line.parts), workload=work))
    assert again.feasible
    assert again.step.time_s == pytest.approx(target.time_s, rel=1e-9)
    assert {op.pool for op in again.ops if "experts" in op.op} == {"lpx", "lpddr"}


def _exit(*args: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(args)
    return int(left.value.code or 0)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert _exit("optimize", "h100_mixtral_decode", "--slo", "tpot=25ms", "--front", "15ms,25ms", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"plan", "batch", "microbatches", "pools", "candidates", "proof", "front", "step"} <= answer.keys()
    assert {"method", "gap"} <= answer["proof"].keys()
    assert all({"plan", "objective", "feasible", "reason"} <= item.keys() for item in answer["candidates"])
    assert answer["front"][1]["plan"]["label"] == answer["plan"]["label"]
    assert _exit("optimize", "h100_mixtral_decode", "--slo", "tpot=1us") == 3
    for wrong in (["--slo", "tpot=3"], ["--slo", "fast=1ms"], ["--objective", "joy"], ["--front", "0ms"]):
        assert _exit("optimize", "h100_mixtral_decode", *wrong) == 2, wrong
