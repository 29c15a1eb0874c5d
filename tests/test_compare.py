"""Who wins where: crossings of known curves, and the contract of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.cli import main
from hwmodel.compare.answer import compare
from hwmodel.compare.cost import curve, of_costs
from hwmodel.compare.crossing import crossings
from hwmodel.scenario import load_scenario

Curve = list[tuple[float, float]]


def crossed(one: Curve, other: Curve) -> list[tuple[float, bool]]:
    """(x, whether `one` is the cheaper below it) of every crossing."""
    return [(found.at, found.between[0] == "other") for found in of_costs(one, other)]


def test_power_laws_cross_where_they_must() -> None:
    """y = x and y = 4 / x cross at 2; y = x and y = 2 x never."""
    xs = [0.5, 0.9, 1.3, 3.7, 8.0]
    rising, falling = [(x, x) for x in xs], [(x, 4 * x**0.1) for x in xs]
    ((at, first),) = crossed(rising, falling)
    assert at == pytest.approx(4 ** (1 / 0.9), rel=1e-9)
    assert first  # below it the rising one is the cheaper
    assert crossed(falling, rising) == [(pytest.approx(at), False)]
    assert crossed(rising, [(x, 2 * x) for x in xs]) == []
    assert crossed(rising, []) == []
    assert crossed([(1.0, 1.0)], [(2.0, 1.0)]) == []


def test_only_what_pays_counts() -> None:
    """A batch that is slower and dearer than another one is no offer."""
    plain = [(1.0, 1.0), (10.0, 10.0)]
    other = [(1.0, 2.0), (10.0, 5.0)]  # at 1 it may as well offer its 5 at 10
    ((at, _),) = crossed([(1.0, 1.0), (0.9, 50.0), (10.0, 10.0)], other)
    assert crossed(plain, other)[0][0] == pytest.approx(at)


def test_a_curve_that_jumps_crosses_where_it_jumps() -> None:
    """At 2 tokens/s/user one costs 1 to 100 (other batches, the same step): past a level one at 10 there and nowhere else."""
    jumps, flat = [(1.0, 0.5), (2.0, 1.0), (2.0, 100.0), (4.0, 200.0)], [(1.0, 9.0), (4.0, 11.0)]
    assert crossed(jumps, flat) == [(pytest.approx(2.0, rel=1e-15), True)]
    assert crossed(flat, jumps) == [(pytest.approx(2.0, rel=1e-15), False)]
    x = np.array([0.0, 1.0, 1.0, 2.0])
    (found,) = crossings({"steps": (x, np.array([0.0, 0.0, 4.0, 4.0])), "level": (x[[0, 3]], np.array([3.0, 3.0]))})
    assert (found.between, found.at, found.value) == (("level", "steps"), 1.0, 3.0)


def test_a_cheaper_copy_never_crosses_and_a_dearer_one_says_so() -> None:
    scenario, dear = load_scenario("rubin_deepseek_v3"), load_scenario("rubin_deepseek_v3", ["economics.utilisation=50 %"])
    found = compare([scenario, type(dear)(**{**dear.__dict__, "name": "half idle"})])
    assert found.crossovers == ()
    assert any("rubin_deepseek_v3 is cheaper than half idle at every interactivity" in note for note in found.notes)


def test_curves_fall_towards_large_batches() -> None:
    points = curve(load_scenario("h100_llama_70b_decode"))
    assert len(points) > 8
    speeds, costs = [p.at[0] for p in points], [p.at[1] for p in points]
    assert speeds == sorted(speeds, reverse=True)
    assert costs == sorted(costs, reverse=True)
    for point in points:
        assert point.low[0] <= point.at[0] <= point.high[0]
        assert point.low[1] >= point.at[1] >= point.high[1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*args: str) -> dict[str, Any]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*args, "--json"])
        assert left.value.code == 0
        return dict(json.loads(capsys.readouterr().out))

    saved = asked("run", "h100_llama_70b_prefill")
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    found = asked("compare", "rubin_lpx_deepseek_v3", "rubin_lpddr_deepseek_v3", str(tmp_path / "saved.json"))
    assert {*found} >= {"columns", "rows", "crossovers"}
    assert [row["scenario"] for row in found["rows"]] == [
        "rubin_lpx_deepseek_v3",
        "rubin_lpddr_deepseek_v3",
        "h100_llama_70b_prefill",
    ]
    assert all([*row] == found["columns"] for row in found["rows"])
    assert found["rows"][2]["step_s"] == saved["step"]["time_s"]
    for row in found["crossovers"]:
        assert {*row} >= {"x", "between", "at", "low", "high"}
        assert row["low"] is None or row["low"] <= row["at"] <= row["high"]
    assert any("h100_llama_70b_prefill: a saved answer or no decode step" in note for note in found["notes"])
    with pytest.raises(SystemExit):
        main(["compare", "rubin_lpx_deepseek_v3", "rubin_deepseek_v3"])
    assert "rubin_deepseek_v3 is cheaper than rubin_lpx_deepseek_v3" in " ".join(capsys.readouterr().out.split())
