"""How fast points are priced and steps answered, in one warm process (pytest-benchmark)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hwmodel.placing import place
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.timing import device_array, pack, points, price

NAMES = ("h100_llama_70b_decode", "rubin_lpx_deepseek_v3")


@pytest.mark.parametrize("name", NAMES)
def test_price_many_points(name: str, benchmark: Any) -> None:
    """All ops of 1,000 points that differ in batch and context, one pack."""
    scenario = load_scenario(name)
    graph = place(scenario)
    table = pack(graph, scenario.cluster, scenario.workload.routing)
    rows = [
        points(
            table,
            graph.symbols(scenario.workload.model_copy(update={"batch": 1 + i % 500, "context": 1000 + i}).symbols()),
        )
        for i in range(1000)
    ]
    symbols = np.concatenate(rows)
    device = device_array(table, scenario.cluster)
    out = benchmark(price, table, symbols, device)
    assert out.shape[:2] == (1000, len(table.ops))
    if benchmark.stats:
        benchmark.extra_info["points_per_s"] = 1000 / benchmark.stats["mean"]


@pytest.mark.parametrize("name", NAMES)
def test_run(name: str, benchmark: Any) -> None:
    """One whole answer with its interval."""
    scenario = load_scenario(name)
    result = benchmark(run, scenario)
    assert result.feasible
