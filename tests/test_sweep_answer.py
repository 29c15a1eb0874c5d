"""The answer of a sweep as Python has it: frozen, plain data, columns, a notebook's form; progress and manifests."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

import hwmodel as hw
from hwmodel.report.sweep import answer
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.answer import Answer
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.names import chosen, inputs, layers, short
from hwmodel.sweep.space import space_from
from hwmodel.terminal import left, show

AXES: dict[str, Any] = {
    "workload.batch": [1, 8, 512], "workload.context": [2048, 65536],
    "plan": {"tp4": [{"tensor": {"degree": 4}}], "<b>tp2": [{"tensor": {"degree": 2}}]},
}  # fmt: skip
SWEEP = {"scenario": "h100_llama_70b_decode", "axes": AXES, "interval": 0}


def asked(out: Path | None = None, *, resume: bool = False, **changes: Any) -> Answer:
    return run_sweep(space_from(Document("test", {**SWEEP, **changes}, {}, ()), "test"), out=out, resume=resume)


def test_columns_and_rows_are_the_same_points() -> None:
    table = hw.sweep("h100_llama_70b_decode", AXES)
    plain = table.to_dict()
    columns = table.columns()
    assert plain["points"] == len(plain["rows"]) == 12
    assert plain["feasible"] == sum(columns["feasible"]) < 12
    assert [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)] == plain["rows"]
    assert columns["plan"][:2] == ["tp4", "<b>tp2"]
    assert columns["tpot_s"] == table.numbers["tpot_s"].tolist()
    assert json.loads(json.dumps(plain)) == plain
    with pytest.raises(InputError, match="no table 'row', did you mean 'rows'"):
        table.columns("row")


def test_a_notebook_shows_the_first_rows() -> None:
    shown = hw.sweep("h100_llama_70b_decode", {**AXES, "workload.batch": [1, 2, 3, 4, 5]})._repr_html_()
    assert "(12 of 20 rows)" in shown
    assert "&lt;b&gt;tp2" in shown
    assert "<b>" not in shown
    assert shown.count("<tr>") == 1 + 12 + 2
    assert "tokens_per_s_per_user" in asked()._repr_html_()


def test_an_answer_is_frozen_and_plain() -> None:
    found = asked()
    with pytest.raises(FrozenInstanceError):
        found.points = 3  # type: ignore[misc]
    assert found.tables() == ["pareto", "top"]
    assert found.columns("pareto")["point"] == [row["point"] for row in found.pareto]
    assert found.to_dict()["columns"] == list(found.names)


def test_a_manifest_says_inputs_and_versions(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    asked(out)
    said = json.loads((tmp_path / "points.csv.manifest.json").read_text())
    assert said["inputs"]["sweep"]["axes.workload.batch"] == [1, 8, 512]
    assert set(said["inputs"]["versions"]) == {"hwmodel", "numpy", "python"}
    assert list(said["inputs"]["scenarios"]) == ["h100_llama_70b_decode"]
    assert said["complete"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axes": {**AXES, "workload.batch": [1, 9, 512]}}, r"axes.workload.batch was \[1, 8, 512\] and is \[1, 9, 512\]"),
        (
            {"axes": {**AXES, "workload.context": [2048]}, "top": 3},
            r"workload.context was \[2048, 65536\] .*; top was 10 and is 3",
        ),
        ({"where": ["tpot_s < 20 ms"]}, r'where was \[\] and is \["tpot_s < 20 ms"\]'),
        ({"random": {"points": 9}}, "random.points was not there and is 9; random.seed was not there and is 0"),
        ({"set": {"cluster.pools.gpu.chip": "h200_sxm"}}, 'set.cluster.pools.gpu.chip was not there and is "h200_sxm"'),
    ],
)
def test_what_has_changed_is_said(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    out = tmp_path / "points.csv"
    asked(out)
    with pytest.raises(InputError, match=said):
        asked(out, resume=True, **changes)
    assert asked(out, resume=True).evaluated == 12


def test_a_changed_chip_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chips").mkdir()
    mine, out = tmp_path / "chips" / "mine.yaml", tmp_path / "points.csv"
    changes = {"set": {"cluster.pools.gpu.chip": str(mine)}}
    mine.write_text("extends: h100_sxm\n")
    asked(out, **changes)
    mine.write_text("extends: h200_sxm\n")
    with pytest.raises(InputError, match="scenario h100_llama_70b_decode, or its chips or model, has changed"):
        asked(out, resume=True, **changes)


def test_what_is_no_whole_file_is_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    manifest = tmp_path / "points.csv.manifest.json"
    asked(out)
    whole = out.read_bytes()
    out.write_bytes(whole + b"half a row")
    asked(out, resume=True)
    assert out.read_bytes() == whole
    out.write_bytes(whole[:-1])
    with pytest.raises(InputError, match="shorter than its manifest says"):
        asked(out, resume=True)
    for text in ("", "[]", "{", '{"fingerprint": 1}'):
        manifest.write_text(text)
        with pytest.raises(InputError, match=r"no manifest of a sweep|another sweep"):
            asked(out, resume=True)


def test_a_lost_part_is_said(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    out = tmp_path / "points.parquet"
    asked(out)
    manifest = tmp_path / "points.parquet.manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"complete": False}))
    with pytest.raises(InputError, match="lacks its part number 0"):
        asked(out, resume=True)


@pytest.mark.parametrize(
    ("points", "rate", "text"), [(90, 1.0, "1:30 left"), (7_500_000, 1000.0, "2 h 05 min left"), (1, 1e6, "0:00 left")]
)
def test_time_left(points: int, rate: float, text: str) -> None:
    assert left(points, rate) == text


def test_tables_of_points_are_read_without_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty axes do not fit on a line: what is left out is named, and no number is cut."""
    scenario = hw.load("rubin_lpx_deepseek_v3")
    numbers = [
        f"cluster.pools.{pool.name}.override.{path}" for pool in scenario.cluster.pools for path, _ in pool.chip.numbers()
    ]
    chosen = [path for path in numbers if path.endswith(("bandwidth", "latency"))][:20]
    axes = {path: {"log": ["1 us", "2 us"] if path.endswith("latency") else ["1 TB/s", "2 TB/s"]} for path in chosen}
    found = asked(scenario="rubin_lpx_deepseek_v3", axes={**axes, "workload.batch": {"log": [72, 720]}}, random={"points": 50})
    show(answer(found))
    text = capsys.readouterr().out
    assert "not shown: " in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 120
    assert text.index("best by tokens_per_s_per_chip") < text.rindex(f"{found.top[0]['point']} ")


def test_what_all_points_of_a_table_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """TP4 leads the front everywhere; the context differs among the best only."""
    plans = {"tp4": [{"tensor": {"degree": 4}}], "pp4": [{"pipeline": {"stages": 4}}]}
    axes = {"workload.batch": list(range(1, 41)), "workload.context": [1024, 4096], "plan": plans, "model": ["llama-3.1-70b"]}
    found = asked(axes=axes)
    assert {row["plan"] for row in found.pareto} == {"tp4"}
    show(answer(found))
    front, best = capsys.readouterr().out.split("best by ")
    assert f"(14 of {len(found.pareto)})" in front
    assert "all with context 1,024, plan tp4, model llama-3.1-70b\n" in front
    assert "pp4" not in front
    assert {row["workload.context"] for row in found.top} == {1024, 4096}
    assert "all with plan tp4, model llama-3.1-70b\n" in best


def test_inputs_are_told_from_answers() -> None:
    names = hw.sweep("h100_llama_70b_decode", {"workload.batch": [1], "model": ["llama-3.1-70b"], "dtypes.kv": ["bf16"]}).names
    assert inputs(names) == ["workload.batch", "model", "dtypes.kv"]
    assert chosen(names) == ["model", "dtypes.kv"]
    assert layers(names) == ["layer0"]


def test_short_names_tell_paths_apart() -> None:
    paths = ["workload.batch", "a.hbm.bandwidth", "b.hbm.bandwidth", "a.sram.bandwidth", "bandwidth"]
    assert short(paths) == ["batch", "a.hbm.bandwidth", "b.hbm.bandwidth", "sram.bandwidth", "bandwidth"]
