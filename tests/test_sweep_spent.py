"""Dollars and joules of a sweep's points: those of a run under any stated economics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_sweep_points import compare, space_of

import hwmodel as hw
from hwmodel.run import run
from hwmodel.sweep.chunks import pricer
from hwmodel.sweep.point import scenario_at

BOUGHT = {
    "economics.pay": "purchase", "economics.electricity": "0.11 USD/kWh", "economics.utilisation": 0.6, "economics.pue": 1.3,
    "economics.life": "5 year", "economics.cost_of_capital": 0.08, "economics.upkeep": 0.05, "economics.host": "4000 USD",
    "economics.host_power": "250 W", "economics.running": 0.2, "economics.link": "9 pJ/bit",
}  # fmt: skip
GPU = "cluster.pools.gpu.override"


@pytest.mark.parametrize(
    ("name", "changes", "axes"),
    [
        ("h100_llama_70b_decode", {"economics.utilisation": 0.4, "economics.electricity": "0.2 USD/kWh"},
         {f"{GPU}.price.rental": {"linear": ["1 USD/h", "4 USD/h"]}}),
        ("h100_llama_70b_decode", BOUGHT,
         {f"{GPU}.power.tdp": {"linear": ["150 W", "1200 W"]}, f"{GPU}.power.idle": {"linear": ["20 W", "140 W"]},
          f"{GPU}.price.purchase": {"log": ["8000 USD", "60000 USD"]}}),
        ("h100_llama_70b_decode", {**BOUGHT, "workload.phase": "prefill", "workload.new_tokens": 2048, "economics.running": 0},
         {f"{GPU}.memory.hbm.energy": {"log": ["1 pJ/bit", "40 pJ/bit"]},
          f"{GPU}.peaks.bf16": {"log": ["200 TFLOP/s", "2000 TFLOP/s"]},
          f"{GPU}.memory.hbm.bandwidth": {"log": ["1 TB/s", "9 TB/s"]},
          f"{GPU}.memory.l2.energy": {"log": ["0.1 pJ/bit", "9 pJ/bit"]},
          f"{GPU}.memory.l2.capacity": {"log": ["1 MB", "1 GB"]}}),
        ("rubin_lpx_deepseek_v3", {**BOUGHT, "economics.memory": {"hbm": "30 USD/GB"}},
         {f"{GPU}.memory.hbm.capacity": {"log": ["100 GB", "900 GB"]}, f"{GPU}.memory.hbm.usd_per_gb": {"log": [5, 50]},
          "cluster.pools.lpx.override.power.tdp": {"log": ["50 W", "900 W"]}, "cluster.pools.lpx.count": [1536, 3072]}),
        ("rtx4090_mixtral_offload", {"economics.utilisation": 0.5, "economics.running": 0.1},
         {"cluster.links.0.bandwidth": {"log": ["5 GB/s", "64 GB/s"]}}),
        ("h100_llama_70b_decode", {"plan": [{"tensor": {"degree": 1}}, {"pipeline": {"stages": 4}}], **BOUGHT},
         {"cluster.pools.gpu.count": [4, 8]}),
    ],
)  # fmt: skip
def test_dollars_and_joules_are_those_of_the_stated_economics(name: str, changes: Any, axes: dict[str, Any]) -> None:
    value = {"scenario": name, "set": changes, "axes": {"workload.batch": {"log": [1, 3000]}, **axes}, "random": {"points": 24}}
    space = space_of(value)
    table, _ = pricer(space).table(0)
    bare = pricer(space_of({**value, "set": {k: v for k, v in changes.items() if "economics" not in k}})).table(0)[0]
    assert not np.isclose(bare.numbers["joules_per_token"], table.numbers["joules_per_token"]).any()
    for index in range(24):
        result = run(scenario_at(space, table.row(index)))
        assert result.cost is not None
        assert result.cost.joules_per_token is not None
        compare(table, index, result)


def test_power_of_a_point_is_held_at_its_tdp() -> None:
    """By hand: at 40 W a chip that draws more than 40 W at work draws 40 W; joules a token are 40 W x chips / rate."""
    axes = {f"{GPU}.power.tdp": ["40 W", "700 W"], f"{GPU}.power.idle": ["30 W"], f"{GPU}.memory.hbm.energy": ["60 pJ/bit"]}
    table = hw.sweep("h100_llama_70b_decode", {"workload.batch": [64], **axes})
    held, free = table.row(0), table.row(1)
    assert held["watts"] == pytest.approx(40 * held["chips"], rel=1e-12)
    assert held["joules_per_token"] == pytest.approx(40 * held["chips"] / held["tokens_per_s"], rel=1e-12)
    assert 40 * free["chips"] < free["watts"] <= 700 * free["chips"]


def test_dollars_need_a_price_and_joules_a_power() -> None:
    """Chips that say neither: nothing is made up."""
    space = space_of({"scenario": "rubin_lpx_deepseek_v3", "axes": {"workload.batch": [72]},
                      "set": {"economics.memory": {"punch_cards": "1 USD/GB"}}})  # fmt: skip
    table, _ = pricer(space).table(0)
    assert run(scenario_at(space, table.row(0))).cost is None
    for name in ("usd_per_hour", "usd_per_million_tokens", "joules_per_token", "watts"):
        assert table.row(0)[name] is None
