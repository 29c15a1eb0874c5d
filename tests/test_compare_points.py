"""Scenarios and files of points side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hwmodel.compare_points import BATCH, CHIP, USER
from hwmodel.compare_points import compare_points as compare
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.space import space_from

BASE = "h100_llama_70b_decode"


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


def test_rows_are_those_of_runs(base: str, other: str) -> None:
    found = compare([base, other])
    for row, name in zip(found["rows"], (base, other), strict=True):
        step = run(load_scenario(name)).step
        assert (row["time_s"], row["time_low_s"], row[CHIP]) == (step.time_s, step.time_low_s, step.tokens_per_s_per_chip)
    verdict = found["verdicts"][0]
    assert verdict["quicker"] == base
    assert verdict["ratio"] == pytest.approx(found["rows"][1]["time_s"] / found["rows"][0]["time_s"])


def test_a_crossover_is_where_runs_change_places(base: str, other: str) -> None:
    found = [c for c in compare([base, other])["crossovers"] if c["x"] == BATCH]
    assert found
    for crossing in found:
        assert crossing["low"] <= crossing["at"] <= crossing["high"]
    first = found[0]
    assert first["between"] == [base, other]
    for batch, ahead in ((first["at"] * 0.8, 0), (first["at"] * 1.3, 1)):
        rates = [run(load_scenario(name, [f"{BATCH}={int(batch)}"])).step.tokens_per_s_per_chip for name in first["between"]]
        assert rates[ahead] > rates[1 - ahead]


def test_a_file_of_points_beside_a_scenario(base: str, other: str, tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    axes = {BATCH: {"log": [1, 4000], "points": 40}}
    run_sweep(space_from(Document("t", {"scenario": other, "axes": axes}, {}, ()), "t"), out=out)
    found = compare([base, str(out)])
    assert found["rows"][1]["name"] == "points.csv"
    assert any(crossing["x"] == USER for crossing in found["crossovers"])


def test_the_command_keeps_to_its_form(base: str, other: str) -> None:
    line = [sys.executable, "-m", "hwmodel", "compare", base, other, "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer.keys() >= {"columns", "rows", "crossovers"}
    assert all({"x", "between", "at", "low", "high"} <= crossing.keys() for crossing in answer["crossovers"])


def test_one_name_is_not_compared() -> None:
    with pytest.raises(InputError, match="two or more"):
        compare([BASE])
