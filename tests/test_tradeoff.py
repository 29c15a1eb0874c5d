"""Fronts of plans: their points are steps, their crossings are where costs change places, and what they leave out is worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodel.axis import axis, question
from hwmodel.compare.along import along
from hwmodel.compare.curve import PLANNED, Curve, Point, rates
from hwmodel.compare.overtaking import crossovers
from hwmodel.compare.tradeoff import Tradeoff, tradeoff
from hwmodel.run import run
from hwmodel.scenario import Scenario, load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.sweep.names import CHIP, COST

NAMES = ["rubin_lpx_deepseek_v3", "h100_llama_70b_decode", "h100_llama_70b_prefill", "rtx4090_mixtral_offload"]


def of(scenario: Scenario, *against: str) -> Tradeoff:
    return tradeoff(run(scenario, ranges=False).placed, [load_scenario(name) for name in against])


def curve_of(found: Tradeoff, name: str) -> Curve:
    return next(curve for curve in found.curves if curve.name == name)


def test_two_lines_cross_where_the_arithmetic_says() -> None:
    """One plan gives 100, the other 30 tokens/s/chip up to 10 and 20 tokens/s/user: they change places at 10."""

    def curve(name: str, rows: list[tuple[int, float, float]]) -> Curve:
        return Curve(name, own=False, alike=True, chips=1, points=tuple(Point(b, x, y, 0.8, 1.25, 100 / y) for b, x, y in rows))

    wide, quick = curve("wide", [(10, 5.0, 200.0), (5, 10.0, 100.0)]), curve("quick", [(2, 20.0, 30.0), (1, 40.0, 10.0)])
    per_chip, per_usd = crossovers([wide, quick])
    assert per_chip["between"] == per_usd["between"] == ["wide", "quick"]
    assert per_chip["at"] == pytest.approx(10.0, rel=1e-6)
    assert (per_chip["low"], per_chip["high"]) == pytest.approx(
        (10 / 1.25, 10 / 0.8), rel=1e-6
    )  # both at one end of their ranges
    assert per_usd["at"] == pytest.approx(10.0, rel=1e-6)
    assert (per_chip["y"], per_usd["y"]) == (CHIP, COST)


@pytest.mark.parametrize("name", NAMES)
def test_the_points_of_the_plan_asked_about_are_steps_of_run(name: str) -> None:
    scenario = load_scenario(name)
    planned = curve_of(of(scenario), PLANNED)
    assert planned.own
    assert len(planned.points) > 3
    for point in planned.points[:: max(1, len(planned.points) // 5)]:
        result = run(replace(scenario, workload=scenario.workload.model_copy(update={"batch": point.batch})), ranges=False)
        assert result.feasible
        assert point.tokens_per_s_per_user == pytest.approx(result.step.tokens_per_s_per_user, rel=1e-9)
        assert point.tokens_per_s_per_chip == pytest.approx(result.step.tokens_per_s_per_chip, rel=1e-9)
        assert result.cost is not None
        usd = result.cost.usd_per_million_output_tokens or result.cost.usd_per_million_input_tokens
        assert point.usd_per_million_tokens == pytest.approx(usd, rel=1e-9)


def test_the_step_of_the_page_has_the_range_of_run() -> None:
    result = run(load_scenario("h100_llama_70b_decode", ["workload.batch=1"]))
    point = next(p for p in curve_of(tradeoff(result.placed), PLANNED).points if p.batch == 1)
    assert point.ratio_low == pytest.approx(result.step.time_low_s / result.step.time_s)
    assert point.ratio_high == pytest.approx(result.step.time_high_s / result.step.time_s)


@pytest.mark.parametrize("name", NAMES)
def test_no_point_of_a_curve_is_beaten_by_another(name: str) -> None:
    for curve in of(load_scenario(name)).curves:
        user, chip = np.array([(p.tokens_per_s_per_user, p.tokens_per_s_per_chip) for p in curve.points]).T
        assert (np.diff(user) > 0).all()
        assert (np.diff(chip) < 0).all()
        assert all(p.ratio_low <= 1 <= p.ratio_high for p in curve.points)


def test_costs_cross_where_compare_says() -> None:
    """Along the TPOT target, by bisection, with the most sequences that keep to it: another way to the same number."""
    names = ["q01_gpu_and_lpu", "q01_gpu_alone"]
    change = along([question(name, ()) for name in names], axis("tpot=5.2ms..5.6ms")).crossovers[0]
    found = of(load_scenario(names[1]), names[0])
    pair = [PLANNED, names[0]]
    places = [row["at"] for row in found.crossovers if row["y"] == COST and row["between"] == pair]
    assert min(abs(1e3 / at / change["at"] - 1) for at in places) < 1e-5


def test_plans_that_are_not_drawn_are_ahead_nowhere_by_much() -> None:
    """Every plan of the chips at eight batches: none gives 3 % more tokens/s/chip than the drawn ones at its interactivity."""
    from hwmodel.compare.tradeoff import _others

    scenario = load_scenario("rubin_deepseek_v3")
    curves = of(scenario).curves
    for line in _others(scenario)[1]:
        batches = sorted({round(float(b)) for b in np.geomspace(line.low, line.high, 8)})
        for user, chip in zip(*rates(line, batches), strict=True):
            best = max(
                (p.tokens_per_s_per_chip for c in curves for p in c.points if p.tokens_per_s_per_user >= user * 0.97), default=0
            )
            assert chip <= best * 1.03, (line.plan.choice.label, user, chip)


def test_a_plan_that_does_not_run_has_no_curve_but_its_chips_have() -> None:
    found = of(load_scenario("h100_llama_70b_decode", ["plan=[tensor: {degree: 1}]", "cluster.pools.gpu.count=4"]))
    assert all(not curve.own for curve in found.curves)
    assert found.curves
    assert json_like(found.to_dict())


def json_like(value: object) -> bool:
    import json

    return bool(json.loads(json.dumps(value)))


def test_unlike_phases_do_not_compare() -> None:
    with pytest.raises(InputError, match="h100_llama_70b_prefill is a prefill step"):
        of(load_scenario("h100_llama_70b_decode"), "h100_llama_70b_prefill")
