"""Pictures of sweeps, and where lines cross."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwmodel.compare.crossing import crossings
from hwmodel.plot_sweep import KINDS, draw_pareto
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.read import read_points
from hwmodel.sweep.space import space_from


def test_lines_cross_where_they_do() -> None:
    x = np.array([0.0, 1.0, 2.0, 4.0])
    found = crossings({"falls": (x, 4 - x), "rises": (np.array([0.0, 4.0]), np.array([1.0, 5.0]))})
    assert [(c.between, c.at, c.value) for c in found] == [(("falls", "rises"), 1.5, 2.5)]
    assert (found[0].low, found[0].high) == (1.0, 2.0)


def test_a_crossing_at_a_point_of_a_line_is_told_once() -> None:
    x = np.array([0.0, 1.0, 2.0])
    found = crossings({"a": (x, np.array([2.0, 1.0, 0.0])), "b": (x, np.array([0.0, 1.0, 2.0]))})
    assert [(c.between, c.at) for c in found] == [(("a", "b"), 1.0)]


def test_lines_that_do_not_meet_do_not_cross() -> None:
    x = np.array([0.0, 1.0])
    assert not crossings({"a": (x, x + 1), "b": (x, x), "far": (x + 5, x)})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "points.csv"
    value = {
        "scenario": "h100_llama_70b_decode", "interval": 0,
        "axes": {
            "plan": {"tp4": [{"tensor": {"degree": 4}}], "tp1": [], "pp4": [{"pipeline": {"stages": 4}}]},
            "cluster.pools.gpu.chip": ["b200_sxm"],
            "workload.batch": {"log": [1, 2000], "points": 30}, "workload.context": {"powers_of_two": [512, 16384]},
        },
    }  # fmt: skip
    run_sweep(space_from(Document("test", value, {}, ()), "test"), out=out)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn_the_same_way_twice(kind: str, file: Path, tmp_path: Path) -> None:
    points = read_points(file)
    for name in ("a.svg", "b.svg"):
        KINDS[kind](points, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len((tmp_path / "a.svg").read_text()) > 5000


def test_the_front_says_where_plans_change_places(file: Path, tmp_path: Path) -> None:
    points = read_points(file)
    found = draw_pareto(points, tmp_path / "front.svg", by="plan")
    plans, user, chip = points.words("plan"), points.number("tokens_per_s_per_user"), points.number("tokens_per_s_per_chip")
    for crossing in found:
        before, behind = crossing.between
        assert {before, behind} <= set(plans)

        def best(plan: str, at: float) -> float:
            return max((chip[k] for k in range(len(plans)) if plans[k] == plan and user[k] >= at), default=0.0)

        assert best(before, crossing.low) > 0
        assert best(behind, crossing.high) > 0


def test_the_command_draws(file: Path, tmp_path: Path) -> None:
    line = ["plot", str(file), "--kind", "pareto", "--out", str(tmp_path / "p.png")]
    done = subprocess.run([sys.executable, "-m", "hwmodel", *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "p.png").stat().st_size > 5000


def test_what_is_no_file_of_points_is_told(tmp_path: Path, file: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no file of points"):
        read_points(bad)
    with pytest.raises(InputError, match="did you mean 'time_s'"):
        KINDS["xy"](read_points(file), tmp_path / "x.svg", y="time")
