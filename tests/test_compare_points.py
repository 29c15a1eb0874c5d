"""Who is ahead, and files of points beside scenarios."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.cli import main
from hwmodel.compare.answer import compare
from hwmodel.compare.crossing import overlap
from hwmodel.compare.rates import BATCH, CHIP, USER
from hwmodel.compare.rows import COLUMNS
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.space import space_from


def scenario(path: Path, override: dict[str, Any]) -> str:
    value = {
        "model": "llama-3.1-70b", "dtypes": {"weights": "bf16", "activations": "bf16", "kv": "bf16"},
        "cluster": {"pools": {"gpu": {"chip": "h100_sxm", "count": 4, "override": override}}},
        "plan": [{"tensor": {"degree": 4}}], "workload": {"phase": "decode", "batch": 16, "context": 128},
    }  # fmt: skip
    path.write_text(json.dumps(value))
    return str(path)


@pytest.fixture
def base(tmp_path: Path) -> str:
    """Llama-3.1-70B on four H100, short contexts."""
    return scenario(tmp_path / "base.yaml", {})


@pytest.fixture
def other(tmp_path: Path) -> str:
    """The same on chips of three times the compute and less bandwidth: behind at small batches, ahead at large ones."""
    return scenario(tmp_path / "other.yaml", {"memory": {"hbm": {"bandwidth": "2.5 TB/s"}}, "peaks": {"bf16": "3000 TFLOP/s"}})


def sweep(name: str, out: Path) -> Path:
    """Points of a scenario over 40 batches."""
    axes = {BATCH: {"log": [1, 4000], "points": 40}}
    run_sweep(space_from(Document("t", {"scenario": name, "axes": axes}, {}, ()), "t"), out=out)
    return out


def test_who_is_ahead_and_whether_beyond_the_ranges(base: str, other: str) -> None:
    found = compare([load_scenario(base), load_scenario(other)])
    one, two = (run(load_scenario(name)).step for name in (base, other))
    verdict = next(row for row in found.verdicts if row["of"] == CHIP)
    assert verdict["ahead"] == "base"
    assert verdict["ratio"] == pytest.approx(one.tokens_per_s_per_chip / two.tokens_per_s_per_chip)
    assert verdict["low"] == pytest.approx(two.time_low_s / one.time_high_s)
    assert verdict["high"] == pytest.approx(two.time_high_s / one.time_low_s)
    assert verdict["beyond_ranges"] == (one.time_high_s < two.time_low_s)
    assert {row["of"] for row in found.verdicts} == {USER, CHIP, "usd_per_million_tokens"}


def test_a_chip_of_half_the_bandwidth_is_behind_beyond_the_ranges(base: str, tmp_path: Path) -> None:
    slow = scenario(tmp_path / "slow.yaml", {"memory": {"hbm": {"bandwidth": "0.8 TB/s"}}})
    for verdict in compare([load_scenario(slow), load_scenario(base)]).verdicts:
        assert (verdict["ahead"], verdict["behind"], verdict["beyond_ranges"]) == ("base", "slow", True)
        assert 1 < verdict["low"] < verdict["ratio"] < verdict["high"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_crossover_is_where_runs_change_places(base: str, other: str, tmp_path: Path, suffix: str) -> None:
    if suffix == ".parquet":
        pytest.importorskip("polars")
    found = compare([load_scenario(base), sweep(other, tmp_path / f"points{suffix}")])
    crossing = next(row for row in found.crossovers if row["x"] == BATCH)
    assert crossing["low"] <= crossing["at"] <= crossing["high"]
    assert crossing["between"] == ["base", f"points{suffix}"]
    for batch, ahead in ((crossing["at"] * 0.8, 0), (crossing["at"] * 1.3, 1)):
        rates = [run(load_scenario(name, [f"{BATCH}={int(batch)}"])).step.tokens_per_s_per_chip for name in (base, other)]
        assert rates[ahead] > rates[1 - ahead]
    assert any(row["x"] == USER for row in found.crossovers)


def test_the_row_of_a_file_is_its_best_point(base: str, tmp_path: Path) -> None:
    (row,) = compare([sweep(base, tmp_path / "points.csv")]).rows
    assert tuple(row) == COLUMNS
    step = run(load_scenario(base, [f"{BATCH}={row['batch']:.0f}"])).step
    assert row["step_s"] == pytest.approx(step.time_s)
    assert (row["scenario"], row["phase"], row["chips"], row["bound"]) == ("points.csv", "decode", 4, step.bound)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_it_is_said_which_point_a_row_is(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    if suffix == ".parquet":
        pytest.importorskip("polars")
    axes = {"plan": {"tp4": [{"tensor": {"degree": 4}}], "pp4": [{"pipeline": {"stages": 4}}]}, BATCH: [1, 4, 9999],
            "workload.context": [512, 4096]}  # fmt: skip
    value = {"scenario": "h100_llama_70b_decode", "axes": axes, "interval": 0}
    path = tmp_path / f"points{suffix}"
    table = run_sweep(space_from(Document("t", value, {}, ()), "t"), out=path)
    best = table.top[0]  # feasible, of most tokens/s/chip: TP4 at the batch of 4 and the shorter context
    assert (best["point"], best["plan"], best[BATCH], best["workload.context"]) == (2, "tp4", 4, 512)
    found = compare([path, load_scenario("h100_llama_70b_decode")])
    assert found.to_dict()["places"] == {path.name: {"point": 2, "plan": "tp4", BATCH: 4.0, "workload.context": 512.0}}
    with pytest.raises(SystemExit):
        main(["compare", str(path), "h100_llama_70b_decode"])
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith(f"{path.name}: point 2, most tokens/s/chip of the file; ")]
    assert {*line.partition("; ")[2].split(", ")} == {"batch 4", "context 512", "plan tp4"}


def test_settings_hold_for_the_scenarios_beside_a_file(base: str, tmp_path: Path) -> None:
    line = ["compare", base, str(sweep(base, tmp_path / "points.csv")), "--set", "workload.context=8192", "--json"]
    done = subprocess.run([sys.executable, "-m", "hwmodel", *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer.keys() >= {"columns", "rows", "crossovers"}
    step = run(load_scenario(base, ["workload.context=8192"])).step
    assert answer["rows"][0]["step_s"] == pytest.approx(step.time_s)


def test_files_of_one_name_are_told_apart(base: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = [sweep(base, tmp_path / "points.csv"), sweep(base, tmp_path / "a" / "points.csv")]
    assert [row["scenario"] for row in compare(files).rows] == [str(file) for file in files]


def test_ranges_overlap_around_a_crossing_as_far_as_they_do() -> None:
    """y = x with 10 % and y = 1 with 20 % both ways: 0.9 x = 1.2 at 4/3, 1.1 x = 0.8 at 8/11."""
    x = np.array([0.0, 2.0])
    rising, level = (x, x, 0.9 * x, 1.1 * x), (x, 0 * x + 1, 0 * x + 0.8, 0 * x + 1.2)
    assert overlap(rising, level, 1.0) == pytest.approx((8 / 11, 4 / 3))
    assert overlap(level, rising, 1.0) == pytest.approx((8 / 11, 4 / 3))
    narrow = (x, x, x, x)
    assert overlap(narrow, (x, 0 * x + 1, 0 * x + 1, 0 * x + 1), 1.0) == pytest.approx((1.0, 1.0))
    assert overlap(rising, (x, 0 * x + 1, 0 * x - 9, 0 * x + 9), 1.0) == (0.0, 2.0)


@pytest.mark.parametrize("option", [["--slo", "tpot=20ms"], ["--over", "workload.context=1..9"], ["--best"]])
def test_a_file_is_not_asked_again(base: str, tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", base, str(tmp_path / "points.csv"), *option])
    assert left.value.code == 2
    assert "points.csv cannot be asked again" in capsys.readouterr().err


def test_a_file_whose_rates_are_empty_is_named(tmp_path: Path) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(f"point,{CHIP},{USER},time_s,feasible\n0,,2.0,0.5,true\n")
    with pytest.raises(InputError, match=f"empty.csv: column '{CHIP}' is empty"):
        compare([path, path])
