"""Published systems: what the issue asks of each, whatever the golden reports say."""

from __future__ import annotations

from functools import cache

import pytest

from hwmodel.model.counts import weights_bytes
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import load_scenario

NO_COST_PER_OP = "cluster.pools.lpu.override.execution.launch=0 us"


@cache
def answer(name: str, *settings: str) -> Result:
    return run(load_scenario(name, settings))


def test_llama_2_7b_is_the_point_the_cost_per_op_is_fitted_on() -> None:
    """750 tokens/s/user on 64 GroqChip 1, 41.7 us per layer."""
    found = answer("groqchip_llama2_7b")
    assert found.feasible
    assert found.step.tokens_per_s_per_user == pytest.approx(750, rel=0.01)
    assert found.step.time_s / 32 == pytest.approx(41.7e-6, rel=0.01)


def test_llama_2_70b_is_predicted() -> None:
    """300 tokens/s/user on 576 GroqChip 1."""
    found = answer("groqchip_llama2_70b")
    assert found.feasible
    assert found.placed.scenario.cluster.chips == 576
    assert found.step.tokens_per_s_per_user == pytest.approx(300, rel=0.1)


def test_bandwidth_and_hops_alone_are_far_quicker() -> None:
    assert answer("groqchip_llama2_70b", NO_COST_PER_OP).step.tokens_per_s_per_user > 1500


@pytest.mark.parametrize("name", ["groqchip_llama2_7b", "groqchip_llama2_70b", "groqchip_mixtral"])
def test_latency_is_what_bounds_groq(name: str) -> None:
    found = answer(name)
    assert {layer.bound for layer in found.layers} == {"overhead"}
    assert found.step.bound == "overhead"
    assert found.to_dict()["step"]["bound"] == "overhead"


def test_the_cost_per_op_is_marked_as_an_estimate() -> None:
    chip = answer("groqchip_llama2_7b").placed.scenario.cluster.pool("lpu").chip
    assert dict(chip.numbers())["execution.launch"].status == "estimated"


def test_mixtral_is_reported_beside_it() -> None:
    """480 tokens/s/user are published; reported, not fitted."""
    found = answer("groqchip_mixtral")
    assert found.feasible
    assert 400 < found.step.tokens_per_s_per_user < 700


def test_sixteen_bit_weights_exceed_576_chips() -> None:
    """138.0 GB against 132.5 GB, whatever the cut into stages."""
    found = answer("groqchip_llama2_70b", "dtypes.weights=fp16")
    cluster = found.placed.scenario.cluster
    held = weights_bytes(load_model("llama-2-70b"), fmt("fp16"))
    room = cluster.chips * float(cluster.pool("lpu").chip.main.capacity_bytes)
    assert (held, room) == (pytest.approx(138.0e9, rel=1e-3), pytest.approx(132.5e9, rel=1e-3))
    assert not found.feasible
    assert any("of sram per chip" in reason for reason in found.reasons)


def test_opt_66b_on_two_lpus() -> None:
    """20.9 ms per token, the weights' stream at 90 % of 2 x 3.28 TB/s."""
    found = answer("lpu_opt_66b")
    assert found.feasible
    assert found.step.tpot_s == pytest.approx(20.9e-3, rel=0.1)
    assert found.step.bound == "memory:hbm"
    assert found.pools[0].bound_s["link"] == 0  # synchronisation is hidden


def test_opt_1_3b_is_reported() -> None:
    assert answer("lpu_opt_1_3b").step.tpot_s == pytest.approx(1.25e-3, rel=0.25)
