"""Pictures of sweeps, and where lines cross."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hwmodel.axis import axis
from hwmodel.cli import main
from hwmodel.compare.crossing import crossings
from hwmodel.figures import LayerBar
from hwmodel.plot_along import _by_kind, _shares, _texts
from hwmodel.plot_axes import plain
from hwmodel.plot_page import CYCLE, GREY
from hwmodel.plot_serving import draw_percentiles
from hwmodel.plot_sweep import KINDS, draw_pareto, parts_of, varied
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.read import Points
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
    return sweep(out)


def sweep(out: Path) -> Path:
    """Three plans over batch and context."""
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
    for name in ("a.svg", "b.svg"):
        KINDS[kind]([Points(file)], tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert len((tmp_path / "a.svg").read_text()) > 5000


def emptied(file: Path, out: Path, column: str, plan: str = "") -> Points:
    """A copy of a file of points with nothing in a column, of every plan or of one."""
    with file.open(newline="") as whole:
        head, *lines = csv.reader(whole)
    for line in lines:
        if plan in ("", line[head.index("plan")]):
            line[head.index(column)] = ""
    with out.open("w", newline="") as whole:
        csv.writer(whole).writerows([head, *lines])
    return Points(out)


DRAWN = [("pareto", "tokens_per_s_per_user"), ("pareto", "tokens_per_s_per_chip"), ("xy", "time_s"), ("xy", "workload.batch"),
         ("heatmap", "workload.batch"), ("heatmap", "workload.context"), ("layers", "workload.batch")]  # fmt: skip


@pytest.mark.parametrize(("kind", "column"), DRAWN)
def test_an_empty_column_is_said_by_its_name(kind: str, column: str, file: Path, tmp_path: Path) -> None:
    points = emptied(file, tmp_path / "empty.csv", column)
    with pytest.raises(InputError, match=f"empty.csv: column '{column}' is empty"):
        KINDS[kind]([points], tmp_path / "no.svg")
    assert not (tmp_path / "no.svg").exists()


@pytest.mark.parametrize("kind", ["pareto", "heatmap", "layers", "xy"])
def test_what_has_no_rate_is_left_out(kind: str, file: Path, tmp_path: Path) -> None:
    """One plan without a rate: the fronts of the others are drawn."""
    points = emptied(file, tmp_path / "some.csv", "tokens_per_s_per_user", "tp4")
    KINDS[kind]([points], tmp_path / "some.svg")
    if kind == "pareto":
        assert "tp4" not in {name for crossing in draw_pareto([points], tmp_path / "s.svg") for name in crossing.between}


def test_lines_of_cost_need_the_cost_of_every_front(file: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    column, told = "usd_per_million_tokens", []
    for n, points in enumerate([Points(file), emptied(file, tmp_path / "tp4.csv", column, "tp4"),
                                emptied(file, tmp_path / "all.csv", column)]):  # fmt: skip
        draw_pareto([points], tmp_path / f"{n}.svg")
        told.append("USD/Mtok" in (tmp_path / f"{n}.svg").read_text())
    assert told == [True, False, False]
    assert not recwarn.list


def test_a_file_without_layers_says_so(file: Path, tmp_path: Path) -> None:
    with file.open(newline="") as whole:
        head, *lines = csv.reader(whole)
    kept = [k for k, name in enumerate(head) if not name.endswith(".bound")]
    with (tmp_path / "none.csv").open("w", newline="") as whole:
        csv.writer(whole).writerows([[line[k] for k in kept] for line in [head, *lines]])
    with pytest.raises(InputError, match=r"none.csv has no columns 'LAYER.time_s' and 'LAYER.bound'"):
        KINDS["layers"]([Points(tmp_path / "none.csv")], tmp_path / "no.svg")


def test_the_front_says_where_plans_change_places(file: Path, tmp_path: Path) -> None:
    points = Points(file)
    found = draw_pareto([points], tmp_path / "front.svg", by="plan")
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
        Points(bad)
    with pytest.raises(InputError, match="did you mean 'time_s'"):
        KINDS["xy"]([Points(file)], tmp_path / "x.svg", y="time")
    with pytest.raises(InputError, match="'plan' holds words"):
        KINDS["xy"]([Points(file)], tmp_path / "x.svg", y="plan")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        Points(tmp_path / "none.csv")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    pytest.importorskip("polars")
    with pytest.raises(InputError, match="cannot be read"):
        Points(tmp_path / "bad.parquet")


def test_a_row_cut_short_is_left_out(tmp_path: Path, file: Path) -> None:
    """The file of a sweep that is at work, or was killed, may end anywhere."""
    text = file.read_bytes()
    (tmp_path / "cut.csv").write_bytes(text[: text.rindex(b",true\n") - 40])
    assert len(Points(tmp_path / "cut.csv").number("time_s")) == len(Points(file).number("time_s")) - 1


def test_csv_and_parquet_read_alike(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    files = [sweep(tmp_path / f"points{suffix}") for suffix in (".csv", ".parquet")]
    one, other = (Points(file) for file in files)
    assert one.names == other.names
    for name in one.names:
        assert one.words(name) == other.words(name)


def test_only_points_that_meet_a_comparison(file: Path) -> None:
    points = Points(file)
    before = points.words("plan")
    context = points.number("workload.context")
    points.only(["workload.context == 1024", "tpot_s < 20 ms"])
    kept = (context == 1024) & (Points(file).number("tpot_s") < 0.02)
    assert 0 < len(points.number("time_s")) == kept.sum() < len(before)
    assert points.words("plan") == [word for word, yes in zip(before, kept, strict=True) if yes]
    with pytest.raises(InputError, match=r"meets 'workload.context == 3'"):
        points.only(["workload.context == 3"])
    with pytest.raises(InputError, match=r"no column 'batch', did you mean 'workload.batch'\?"):
        points.number("batch")
    with pytest.raises(InputError, match=r"no column 'workload.contxt', did you mean 'workload.context'\?"):
        points.only(["workload.contxt == 3"])
    with pytest.raises(InputError, match="holds words"):
        points.only(["plan == 3"])


def test_several_files_are_lines_of_one_picture(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_bytes(file.read_bytes())
    files = [Points(file), Points(other)]
    assert {part.label for part in parts_of(files, varied(files))} == {
        f"{name}: {plan}" for name in ("points", "other") for plan in ("tp1", "tp4", "pp4") if plan in files[0].words("plan")
    }
    assert not [
        c for c in draw_pareto(files, tmp_path / "two.svg", by="bound") if c.between[0][-3:] == c.between[1][-3:] == "hbm"
    ]
    assert "other: " in (tmp_path / "two.svg").read_text()


def test_iso_costs_lie_where_the_cost_is_that(file: Path, tmp_path: Path) -> None:
    """USD per million tokens times tokens/s per chip is what a chip costs a second: one price, one set of lines."""
    points = Points(file)
    worth = points.number("usd_per_million_tokens") * points.number("tokens_per_s_per_chip")
    hourly = points.number("usd_per_hour") / points.number("chips")
    assert worth == pytest.approx(hourly / 3600 * 1e6, rel=1e-9)
    draw_pareto([points], tmp_path / "front.svg")
    assert "USD/Mtok" in (tmp_path / "front.svg").read_text()


def test_layers_along_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plot", "rubin_lpx_deepseek_v3", "--kind", "layers", "--over", "workload.batch=72..9216", "--out"]
    for name in ("a.svg", "b.svg"):
        with pytest.raises(SystemExit) as left:
            main([*line, str(tmp_path / name)])
        assert left.value.code == 3  # the largest does not fit
        assert "workload.batch=9216 does not run as planned: memory: pool gpu needs" in capsys.readouterr().err
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(SystemExit) as left:
        main([*line[:3], "roofline", *line[4:], str(tmp_path / "c.svg")])
    assert left.value.code == 2
    assert "--over goes with a scenario and --kind layers" in capsys.readouterr().err


def test_values_under_bars_are_short() -> None:
    assert _texts(axis("workload.context=4096..131072")) == [
        "4,096", "6,720", "11k", "18.1k", "29.7k", "48.7k", "79.9k", "131k",
    ]  # fmt: skip
    assert _texts(axis("cluster.pools.gpu.override.execution.launch=1 us,2.5 us")) == ["1", "2.5"]


def test_shares_of_a_layer_add_up() -> None:
    row = LayerBar("dense", 1, {"q": 1.0, "k": 2.0, "norm": 1.0}, {"compute": 3.0, "overhead": 1.0}, 1.0)
    kinds = _by_kind(row, {"q": "gemm", "k": "gemm", "norm": "stream"})
    assert kinds == {"gemm": 3.0, "stream": 1.0}
    assert _shares(kinds, {"gemm": ""}) == {"gemm": 0.75, "other": 0.25}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.02, "0.02"), (5000, "5,000"), (20000, "20k"), (2.5e6, "2.5M"), (1e-7, "1e-7"), (3e10, "3e10"), (0, "0")],
)
def test_ticks_are_short(value: float, text: str) -> None:
    assert plain(value) == text


def test_a_picture_says_which_points_it_shows(tmp_path: Path, file: Path) -> None:
    points = Points(file)
    points.only(["workload.context == 1024"])
    for kind, draw in KINDS.items():
        draw([points], tmp_path / f"{kind}.svg", "workload.batch" if kind == "layers" else "")
        assert f"{file.name}, workload.context == 1024" in (tmp_path / f"{kind}.svg").read_text()


def test_latencies_are_written_with_units(tmp_path: Path) -> None:
    columns = {"ttft_s": np.linspace(0.02, 1.5, 50), "tpot_s": np.linspace(0.007, 0.04, 50), "class": np.array(["all"] * 50)}
    draw_percentiles(columns, ["ttft_s", "tpot_s"], {}, tmp_path / "p.svg", "t")
    drawn = (tmp_path / "p.svg").read_text()
    assert all(f"<!-- {tick} -->" in drawn for tick in ("50 ms", "1 s", "10 ms", "30 ms"))
    assert "10^" not in drawn
    assert "target" not in drawn


def lines_at(path: Path) -> list[tuple[str, str]]:
    """(colour, dashes) of the lines of a picture that run level from side to side."""
    found = re.findall(r'<path d="M ([\d.]+) ([\d.]+) \nL ([\d.]+) \2 \n" clip-path[^>]*style="([^"]*)"', path.read_text())
    styles = [dict(part.split(": ") for part in style.split("; ")) for *_, style in found]
    return [(style["stroke"], style["stroke-dasharray"]) for style in styles if "stroke-dasharray" in style]


def test_every_class_has_its_line_and_its_target(tmp_path: Path) -> None:
    """Of three classes two have targets of their own for the first token, all one for the others, two one for the whole."""
    kinds = np.repeat(["chat", "code", "bulk"], [30, 20, 10])
    columns = {name: np.linspace(0.02, 1.5, 60) for name in ("ttft_s", "tpot_s", "e2e_s")} | {"class": kinds}
    slos = {"chat": {"ttft_s": 0.5, "tpot_s": 0.2, "e2e_s": 1.2}, "code": {"ttft_s": 1.0, "tpot_s": 0.2, "e2e_s": 1.2},
            "bulk": {"tpot_s": 0.2}}  # fmt: skip
    draw_percentiles(columns, ["ttft_s", "tpot_s", "e2e_s"], slos, tmp_path / "p.svg", "t")
    drawn = (tmp_path / "p.svg").read_text()
    assert [drawn.count(f"<!-- {name} -->") for name in ("chat", "code", "bulk", "targets", "target")] == [3, 3, 3, 2, 1]
    chat, code, grey = (colour.lower() for colour in (*CYCLE[:2], GREY))
    found = lines_at(tmp_path / "p.svg")
    assert [colour for colour, _ in found] == [chat, code, grey, chat, code]
    whole = [[float(part) for part in dashes.split(",")] for _, dashes in found]
    assert whole[0][0] / whole[0][1] == whole[2][0] / whole[2][1] == pytest.approx(4 / 3)
    assert whole[3] == whole[4]
    assert whole[3][0] / whole[3][1] == pytest.approx(4 / 10)  # in turn
