"""Who wins where: crossings of known curves, and the contract of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.axis import axis, question
from hwmodel.cli import main
from hwmodel.compare.along import along
from hwmodel.compare.answer import compare
from hwmodel.compare.crossing import crossings
from hwmodel.compare.curve import Curve, Point
from hwmodel.compare.overtaking import in_pairs, never
from hwmodel.run import run
from hwmodel.scenario import load_scenario


def priced(name: str, rows: list[tuple[float, float]]) -> Curve:
    """A curve of (tokens/s/user, USD per million tokens), of one chip at 1 USD an hour, batches in order."""
    points = tuple(Point(n, user, 1e6 / 3600 / usd, 1.0, 1.0, usd) for n, (user, usd) in enumerate(rows, 1))
    return Curve(name, own=False, alike=False, chips=1, points=points)


def changes(*curves: Curve) -> list[tuple[list[str], float, float]]:
    return [(row["between"], row["at"], row["value"]) for row in in_pairs(curves)]


def test_stairs_change_places_at_their_steps() -> None:
    """Up to 10 tokens/s/user one sells at 1 USD, then at 6; the other at 3 up to 20: it is the cheaper from 10 to 20."""
    one, other = priced("one", [(10.0, 1.0), (40.0, 6.0)]), priced("other", [(20.0, 3.0)])
    for found in (changes(one, other), changes(other, one)):
        assert [who for who, _, _ in found] == [["one", "other"], ["other", "one"]]
        assert [(at, usd) for _, at, usd in found] == [pytest.approx((10.0, 3.0)), pytest.approx((20.0, 6.0))]
    assert never([one, other], in_pairs([one, other])) == ["other gives at most 20 tokens/s/user"]


def test_what_never_changes_places_says_who_is_cheaper() -> None:
    cheap, dear = priced("cheap", [(10.0, 1.0), (40.0, 2.0)]), priced("dear", [(10.0, 3.0), (30.0, 4.0)])
    for pair in ([cheap, dear], [dear, cheap]):
        assert changes(*pair) == []
        assert never(pair, []) == ["cheap is cheaper than dear at every interactivity, up to 30 tokens/s/user"]
    twin = priced("twin", [(10.0, 1.0), (40.0, 2.0)])
    assert never([cheap, twin], []) == ["cheap costs as much as twin at every interactivity, up to 40 tokens/s/user"]


def test_where_one_ends_it_is_said() -> None:
    short, long = priced("short", [(10.0, 1.0)]), priced("long", [(20.0, 2.0)])
    assert changes(short, long) == [(["short", "long"], pytest.approx(10.0), pytest.approx(2.0))]
    assert never([short, long], in_pairs([short, long])) == ["short gives at most 10 tokens/s/user"]


@pytest.mark.parametrize(
    ("names", "target"),
    [(("q01_gpu_and_lpu", "q01_gpu_alone"), "5.2ms..5.6ms"), (("q03_lpddr_card", "q03_hbm_gpu"), "20ms..80ms")],
)
def test_costs_cross_where_the_target_says(names: tuple[str, str], target: str) -> None:
    """Along the TPOT target, by bisection, with the most sequences that keep to it: another way to the same number."""
    expected = along([question(name, ()) for name in names], axis(f"tpot={target}")).crossovers
    found = compare([load_scenario(name) for name in names]).crossovers
    assert expected
    for change in expected:
        places = [row["at"] for row in found if row["between"] == change["between"][::-1]]
        assert min(abs(1e3 / at / change["at"] - 1) for at in places) < 1e-5
    for row in found:
        assert row["y"] == "usd_per_million_tokens"


def test_two_of_one_name_are_told_apart() -> None:
    name = "h100_llama_70b_decode"
    both = compare([load_scenario(name), load_scenario(name, ["economics.utilisation=30 %"])])
    assert [row["scenario"] for row in both.rows] == [name, f"{name} (2)"]
    assert [note for note in both.notes if note.startswith(f"{name} is cheaper than {name} (2)")]


def test_without_a_price_there_is_no_curve_of_cost() -> None:
    free = load_scenario("lpu_opt_66b")
    assert run(free).cost is None
    found = compare([load_scenario("h100_llama_70b_decode"), free])
    assert found.crossovers == ()
    assert found.notes == ("lpu_opt_66b: a price of its chips is not known, so no cost to cross",)


def test_a_curve_that_jumps_crosses_where_it_jumps() -> None:
    x = np.array([0.0, 1.0, 1.0, 2.0])
    (found,) = crossings({"steps": (x, np.array([0.0, 0.0, 4.0, 4.0])), "level": (x[[0, 3]], np.array([3.0, 3.0]))})
    assert (found.between, found.at, found.value) == (("level", "steps"), 1.0, 3.0)


def test_a_cheaper_copy_never_crosses_and_a_dearer_one_says_so() -> None:
    scenario, dear = load_scenario("rubin_deepseek_v3"), load_scenario("rubin_deepseek_v3", ["economics.utilisation=50 %"])
    found = compare([scenario, type(dear)(**{**dear.__dict__, "name": "half idle"})])
    assert found.crossovers == ()
    assert any("rubin_deepseek_v3 is cheaper than half idle at every interactivity" in note for note in found.notes)


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
    out = " ".join(capsys.readouterr().out.split())
    assert "rubin_deepseek_v3 rubin_lpx_deepseek_v3 224.9" in out
    assert "note: rubin_deepseek_v3 gives at most 224.9 tokens/s/user" in out
