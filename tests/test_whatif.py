"""What moves an answer: elasticities against homogeneous scaling and closed cases, inverse questions against `run`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hwmodel.cli import main
from hwmodel.fit import fit
from hwmodel.hardware import Cluster
from hwmodel.optimize.fixed import Fixed
from hwmodel.optimize.least import least
from hwmodel.optimize.parameters import parameter, parameters
from hwmodel.optimize.whatif import Elasticity, elasticities, euler, relieved, tornado, whatif
from hwmodel.run import run
from hwmodel.scenario import Scenario, from_options, load_scenario
from hwmodel.spec.errors import InputError

TWO_POOLS, ONE_POOL = "rubin_lpx_deepseek_v3", "h100_mixtral_decode"
TOY = [
    f"cluster.pools.chips.override.{key}"
    for key in ("execution.launch=0 us", "execution.ramp=0 us", "execution.step=0 us", "memory.l2.bandwidth=900 PB/s")
]
"""One H100 on which nothing but reading takes time."""


def toy(*settings: str) -> Scenario:
    options = {"model": "llama-3.1-8b", "chip": "h100_sxm", "batch": 1, "context": 4096}
    return from_options(options, [*TOY, *settings])


def by_name(scenario: Scenario) -> dict[str, Elasticity]:
    return {row.parameter: row for row in elasticities(Fixed(scenario))}


def changed(scenario: Scenario, **values: float) -> Scenario:
    """The scenario with numbers of its chips replaced, by their paths."""
    cluster = scenario.cluster
    for path, value in values.items():
        cluster = parameter(cluster, path).on(cluster, value)
    return replace(scenario, cluster=cluster)


# --- elasticities -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", [TWO_POOLS, ONE_POOL, "h100_llama_70b_prefill", "rubin_lpx_lpddr_deepseek_v3"])
def test_rates_and_fixed_times_together_scale_the_time(name: str) -> None:
    """Rates times k and fixed times over k divide the time by k, so that the elasticities sum to -1 (Euler)."""
    scenario = load_scenario(name)
    plan, cluster = Fixed(scenario), scenario.cluster
    for one in parameters(scenario.cluster):
        factor = {"rate": 3.0, "fixed": 1 / 3}.get(one.kind)
        if factor:
            cluster = parameter(cluster, one.path).on(cluster, float(one.number) * factor)
    assert plan.step_s(cluster) == pytest.approx(plan.step_s(scenario.cluster) / 3, rel=1e-9)
    assert euler(elasticities(plan)) == pytest.approx(-1, abs=1e-4)


def test_fixed_plan_is_what_run_says() -> None:
    scenario = load_scenario(TWO_POOLS)
    plan = Fixed(scenario)
    assert plan.step_s(scenario.cluster) == run(scenario).step.time_s
    assert plan.result(scenario.cluster).step.bound == run(scenario).step.bound
    larger = replace(scenario, workload=scenario.workload.model_copy(update={"batch": 2000}))
    assert plan.step_s(scenario.cluster, 2000) == pytest.approx(run(larger).step.time_s, rel=1e-12)
    assert plan.largest(scenario.cluster) == fit(scenario).max_batch
    slower = changed(scenario, **{"gpu.memory.hbm.bandwidth": 11e12})
    assert plan.step_s(slower.cluster) == run(slower).step.time_s


def test_time_of_a_step_that_only_reads() -> None:
    """t = bytes / (bandwidth x share): elasticity -1 to both, 0 to all else; dollars likewise, and 1 to the price."""
    rows = by_name(toy())
    for key in ("h100_sxm.memory.hbm.bandwidth", "h100_sxm.memory.hbm.efficiency"):
        assert rows[key].time == pytest.approx(-1, abs=1e-3), key
        assert rows[key].usd_per_mtok == rows[key].time
    assert rows["h100_sxm.price.rental"].usd_per_mtok == pytest.approx(1, abs=1e-9)
    assert rows["h100_sxm.price.rental"].time == 0
    assert rows["h100_sxm.price.purchase"].usd_per_mtok == 0  # rented
    others = [row for row in rows.values() if row.kind in ("rate", "fixed") and "hbm" not in row.parameter]
    assert max(abs(row.time) for row in others) < 1e-3


def test_shares_of_dollars_are_those_of_the_pools() -> None:
    scenario = load_scenario(TWO_POOLS)
    rows = by_name(scenario)
    gpu, lpx = 72 * 7.5, 1536 * 8000 / (4 * 8760)
    assert rows["rubin.price.rental"].usd_per_mtok == pytest.approx(gpu / (gpu + lpx), rel=1e-4)
    assert rows["groq3_lpu.price.purchase"].usd_per_mtok == pytest.approx(lpx / (gpu + lpx), rel=1e-4)


def test_dollars_with_electricity_are_those_of_run() -> None:
    """Power follows the work: dollars do not simply follow the time."""
    settings = ["economics.pay=purchase", "economics.electricity=2 USD/kWh"]
    scenario = load_scenario(ONE_POOL, settings)
    row = by_name(scenario)["h100_sxm.memory.hbm.bandwidth"]
    costs = [run(changed(scenario, **{"gpu.memory.hbm.bandwidth": 3.35e12 * by})).cost for by in (1 / 1.01, 1.01)]
    low, high = (spent.usd_per_million_output_tokens for spent in costs)  # type: ignore[union-attr]
    assert row.usd_per_mtok is not None
    assert (1.01**2) ** row.usd_per_mtok == pytest.approx(high / low, rel=1e-9)  # type: ignore[operator]
    assert abs(row.usd_per_mtok - row.time) > 0.01


def test_capacity_acts_through_the_largest_batch() -> None:
    scenario = load_scenario(ONE_POOL)
    row = by_name(scenario)["h100_sxm.memory.hbm.capacity"]
    rates = []
    for factor in (1 / 1.1, 1.1):
        other = changed(scenario, **{"gpu.memory.hbm.capacity": 80e9 * factor})
        batch = fit(other).max_batch
        assert f"{batch:,}" in row.note
        work = other.workload.model_copy(update={"batch": batch})
        rates.append(run(replace(other, workload=work)).step.tokens_per_s_per_chip)
    assert row.tokens_per_s_per_chip is not None
    assert (1.1**2) ** row.tokens_per_s_per_chip == pytest.approx(rates[1] / rates[0], rel=1e-9)
    assert row.time == 0
    sram = by_name(load_scenario(TWO_POOLS))["groq3_lpu.memory.sram.capacity"]
    assert "nothing fits" in sram.note  # 427 of 460 MB are weights


# --- what binds next --------------------------------------------------------------------------------------------------
def test_relief_is_run_with_the_number_changed() -> None:
    scenario = load_scenario(TWO_POOLS)
    base, plan = run(scenario).step.time_s, Fixed(scenario)
    for path, best in (("rubin.memory.hbm.bandwidth", 4 * 22e12), ("rubin.execution.launch", 2e-6 / 4)):
        four, free = relieved(plan, parameter(scenario.cluster, path))
        again = run(changed(scenario, **{path: best}))
        assert four.tpot_s == pytest.approx(again.step.tpot_s, rel=1e-12)
        assert four.bound == again.step.bound
        assert four.falls == pytest.approx(1 - again.step.time_s / base)
        assert 0 < four.falls <= free.falls < 1
        assert free.next
        assert free.next != path


def test_reading_without_limit_leaves_the_arithmetic() -> None:
    scenario = toy()
    free = relieved(Fixed(scenario), parameter(scenario.cluster, "h100_sxm.memory.hbm.bandwidth"))[1]
    assert free.bound == "compute"
    assert free.next == "h100_sxm.peaks.bf16"
    again = run(changed(scenario, **{"h100_sxm.memory.hbm.bandwidth": 3.35e24}))
    assert free.tpot_s == pytest.approx(again.step.time_s, rel=1e-9)
    assert again.pools[0].bound_s["compute"] / again.step.time_s > 0.9


# --- the inverse question ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "change"),
    [("rubin.memory.hbm.bandwidth", 1.1), ("gpu.memory.hbm.bandwidth", 0.97), ("rubin.execution.launch", 1.2),
     ("rubin.execution.launch", 0.9), ("gpu-lpx.latency", 1.05), ("groq3_lpu.peaks.fp8", 1.1),
     ("gpu.memory.hbm.efficiency", 1.02), ("link gpu-lpx.bandwidth", 1.3)],
)  # fmt: skip
def test_least_round_trips_through_run(path: str, change: float) -> None:
    scenario = load_scenario(TWO_POOLS)
    target = run(scenario).step.time_s * change
    found = least(scenario, path, target)
    assert found.meets
    assert found.value is not None
    again = run(changed(scenario, **{path: found.value})).step.tpot_s
    assert again == pytest.approx(target, rel=1e-6)
    assert again <= target
    one = parameter(scenario.cluster, path)
    worse = found.value * (1.001 if one.kind == "fixed" else 0.999)
    assert run(changed(scenario, **{path: worse})).step.tpot_s > target  # type: ignore[operator]


def test_least_capacity_holds_the_batch() -> None:
    scenario = load_scenario(TWO_POOLS)
    found = least(scenario, "lpx.memory.sram.capacity", 20e-3)
    assert found.value is not None
    assert run(changed(scenario, **{"lpx.memory.sram.capacity": found.value * 1.0001})).feasible
    assert not run(changed(scenario, **{"lpx.memory.sram.capacity": found.value * 0.9999})).feasible


def test_least_says_when_no_value_does_and_when_any_does() -> None:
    scenario = load_scenario(TWO_POOLS)
    none = least(scenario, "rubin.memory.hbm.bandwidth", 1e-3)
    assert not none.meets
    assert none.value is None
    assert "no value does" in none.note
    assert least(scenario, "rubin.memory.hbm.capacity", 1e-3).meets is False
    free = least(scenario, "rubin.links.pcie.bandwidth", 20e-3)  # no op uses it
    assert free.meets
    assert free.value is None
    assert "any value does" in free.note
    with pytest.raises(InputError, match="a price does not move TPOT"):
        least(scenario, "rubin.price.rental", 20e-3)
    with pytest.raises(InputError, match=r"did you mean 'rubin\.memory\.hbm\.bandwidth'"):
        least(scenario, "rubin.memory.hbm.bandwith", 20e-3)


def test_a_change_moves_all_equal_chips_and_no_others() -> None:
    scenario = load_scenario(TWO_POOLS)
    gpu, lpx = scenario.cluster.pools
    cluster = Cluster((gpu, replace(gpu, name="more"), lpx), scenario.cluster.wires)
    found = parameter(cluster, "more.memory.hbm.bandwidth").on(cluster, 1e12)
    assert [float(pool.chip.main.bandwidth_bytes_per_s) for pool in found.pools] == [1e12, 1e12, 150e12]


# --- tornado ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [(), ("cluster.pools.gpu.stack=vllm",)], ids=["uncalibrated", "calibrated"])
def test_tornado_is_sorted_and_its_ends_are_run(settings: tuple[str, ...]) -> None:
    scenario = load_scenario(ONE_POOL, settings)
    found, result = tornado(scenario), run(scenario)
    assert found.step_s == result.step.time_s
    for bars in (found.ranges, found.even):
        spans = [bar.span_s for bar in bars]
        assert spans == sorted(spans, reverse=True)
        assert spans[-1] > 0
    assert found.ranges[0].parameter == result.estimated_inputs[0]["input"]
    assert found.ranges[0].span_s / result.step.time_s == pytest.approx(result.estimated_inputs[0]["effect_on_time"], rel=1e-9)
    first = next(bar for bar in found.even if bar.parameter == "h100_sxm.memory.hbm.bandwidth")
    for factor, seconds in ((0.8, first.low_s), (1.2, first.high_s)):
        again = run(changed(scenario, **{"gpu.memory.hbm.bandwidth": 3.35e12 * factor}))
        assert seconds == pytest.approx(again.step.time_s, rel=1e-9)


# --- commands ---------------------------------------------------------------------------------------------------------
def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of one command."""
    with pytest.raises(SystemExit) as stop:
        main(args)
    return int(stop.value.code or 0), *capsys.readouterr()


def test_whatif_command(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["whatif", ONE_POOL, "--least", "gpu.memory.hbm.bandwidth"]
    status, out, err = call(capsys, *ask, "--slo", "tpot=20ms", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert {"tpot_s", "usd_per_mtok", "elasticities", "relieved", "largest_batch", "least"} <= found.keys()
    assert found["least"][0]["meets"]
    assert found["elasticities"][0]["parameter"] == "h100_sxm.memory.hbm.bandwidth"
    assert call(capsys, *ask, "--slo", "tpot=1us")[0] == 3
    assert call(capsys, *ask, "--set", "goal.slo.tpot=20 ms")[0] == 0
    assert "what binds next" in call(capsys, "whatif", ONE_POOL)[1]
    status, out, _ = call(capsys, "whatif", ONE_POOL, "--set", "workload.batch=20000")
    assert status == 3
    assert "does not run as planned" in out
    for wrong in (["--slo", "ttft=1s"], ["--slo", "tpot=3"], []):
        assert call(capsys, *ask, *wrong)[0] == 2, wrong


def test_whatif_without_prices() -> None:
    found = whatif(load_scenario("lpu_opt_66b"))
    assert all((row.usd_per_mtok is None) == (found.usd_per_mtok is None) for row in found.elasticities)


@pytest.mark.parametrize(
    ("model", "count", "load", "warned"),
    [("gpt-oss-120b", 1, 0.90, False), ("deepseek-v4-flash", 3, 2.16, False), ("deepseek-v3", 6, 5.11, False),
     ("kimi-k2.5", 8, 7.93, True)],
)  # fmt: skip
def test_racks_command(model: str, count: int, load: float, warned: bool, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = call(capsys, "racks", model, "--chip", "groq3_lpu", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["racks"]["count"] == count
    assert found["racks"]["loads"]["capacity"] == pytest.approx(load, abs=0.005)
    assert bool(found["warnings"]) == warned == ("warning:" in err)
    assert found["attention"] is None


def test_racks_with_attention(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["racks", "deepseek-v3", "--chip", "groq3_lpu", "--batch", "1152", "--context", "131072", "--tpot", "20ms"]
    found = json.loads(call(capsys, *ask, "--attention-chip", "rubin", "--stages", "2", "--json")[1])
    # by hand: 61 layers x 576 B x 131,072 x 1,152 sequences in 10 ms, less the 16.2 GB read beside them
    cache = 1152 * 61 * 576 * 131_072
    assert found["attention"]["loads"]["bandwidth"] == pytest.approx(cache / (22e12 * 10e-3 - 16.2e9), rel=2e-3)
    assert found["racks"]["limit"] == "capacity"
    assert "memory left" in call(capsys, *ask, "--attention-chip", "rubin")[1]
    assert call(capsys, "racks", "deepseek-v3", "--chip", "groq3_lpu", "--attention-chip", "rubin")[0] == 2
    assert call(capsys, "racks", "llama-3.1-8b", "--chip", "groq3_lpu")[0] == 2
