"""Measured counts of tokens by layer and expert: files, places of mistakes, and what a step makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodel.kernels.routing import distinct_experts
from hwmodel.popularity import load_counts
from hwmodel.routing import LayerCounts, Routing
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError

EVEN = "layer,expert,count\n" + "".join(f"{layer},{expert},64\n" for layer in range(32) for expert in range(8))


def question(folder: Path, text: str, name: str = "counts.csv", **more: str) -> list[str]:
    (folder / name).write_text(text)
    law = ", ".join(["kind: measured", f"file: {folder / name}", *(f"{key}: {value}" for key, value in more.items())])
    return [f"workload.routing={{{law}}}", "workload.batch=16"]


def test_csv_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    rows = [(0, 0, 30), (0, 1, 10), (2, 1, 7), (2, 3, 1.5)]
    (tmp_path / "a.csv").write_text("count, layer ,expert,note\n" + "".join(f"{n},{i},{e},x\n" for i, e, n in rows) + "\n")
    listed = [f"{{layer: {i}, expert: {e}, count: {n}}}" for i, e, n in rows]
    (tmp_path / "a.yaml").write_text("rows:\n" + "".join(f"  - {one}\n" for one in listed))
    (tmp_path / "a.json").write_text('{"rows": [%s]}' % ", ".join(  # noqa: UP031
        f'{{"layer": {i}, "expert": {e}, "count": {n}}}' for i, e, n in rows))  # fmt: skip
    expected = (LayerCounts(layer=0, tokens=(30, 10)), LayerCounts(layer=2, tokens=(0, 7, 0, 1.5)))
    for end in ("csv", "yaml", "json"):
        assert load_counts(tmp_path / f"a.{end}") == expected


def test_shares_are_those_counted() -> None:
    routing = Routing(kind="measured", counts=(LayerCounts(layer=4, tokens=(30, 10, 20)), LayerCounts(layer=5, tokens=(1, 1))))
    bins = lambda layers, groups=1: routing.bins(4, 1, 4, groups, layers=layers)  # noqa: E731
    assert bins([4])[:4, 0].tolist() == pytest.approx([30 / 60, 20 / 60, 10 / 60, 0])
    assert bins([5])[:4, 0].tolist() == pytest.approx([0.5, 0.5, 0, 0])
    # several layers: the mean of their sorted shares; layers that were not counted: the mean of all
    assert bins([4, 5])[:4, 0].tolist() == pytest.approx([0.5, (1 / 3 + 1 / 2) / 2, 1 / 12, 0])
    assert np.array_equal(bins([1]), bins([4, 5]))
    # experts stand in their order: the first two of four on the first of two chips
    assert bins([4], 2)[:2, 0].tolist() == pytest.approx([30 / 60, 10 / 60])
    assert routing.inclusion(4, 1).sum() == pytest.approx(1)
    assert distinct_experts(2.0, bins([5])) == pytest.approx(1.5)


def test_even_counts_are_uniform_routing(tmp_path: Path) -> None:
    measured = run(load_scenario("h100_mixtral_decode", question(tmp_path, EVEN)))
    uniform = run(load_scenario("h100_mixtral_decode", ["workload.batch=16"]))
    assert measured.step.time_s == pytest.approx(uniform.step.time_s, rel=1e-9)
    again = run(load_scenario("h100_mixtral_decode", question(tmp_path, EVEN)))
    assert again.step.time_s == measured.step.time_s
    assert any("expert popularity: measured on 32 layers" in line for line in measured.assumptions)


def test_skewed_counts_touch_fewer_experts(tmp_path: Path) -> None:
    skewed = "layer,expert,count\n0,0,100\n0,1,90\n0,2,10\n"
    found = run(load_scenario("h100_mixtral_decode", question(tmp_path, skewed)))
    even = run(load_scenario("h100_mixtral_decode", ["workload.batch=16"]))
    assert found.step.time_s < even.step.time_s  # one chip holds a part of every expert: fewer weights are read
    assert any("measured on layer 0" in line for line in found.assumptions)


def test_the_file_may_lie_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(EVEN)
    text = Path("scenarios/h100_mixtral_decode.yaml").read_text()
    workload = next(line for line in text.splitlines() if line.startswith("workload:"))
    assert workload.endswith("}")
    (tmp_path / "mine.yaml").write_text(text.replace(workload, workload[:-1] + ", routing: {kind: measured, file: c.csv}}"))
    assert len(load_scenario(str(tmp_path / "mine.yaml")).workload.routing.counts) == 32


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("layer,expert,count\n0,0,5\n0,x1,7\n", "3:3", "rows[1].expert: expected a whole number, got 'x1'"),
        ("layer,expert,count\n0,0,5\n0,1,-7\n", "3:5", "rows[1].count: must be at least 0, got '-7'"),
        ("layer,expert,count\n0,0,nan\n", "2:5", "rows[0].count: expected a finite number, got 'nan'"),
        ("layer,expert,count\n0,0\n", "2:1", "rows[0]: missing key 'count'"),
        ("layer,expert,count\n0,0,3\n\n0,0,4\n", "4:1", "expert 0 of layer 0 is counted twice"),
        ("layer,expert,tokens\n0,0,3\n", ":1", "needs the columns layer, expert, count; 'count' is missing"),
        ("layer,expert,count\n", "", "needs at least 1 of them"),
        ("", ":1", "'layer' is missing"),
        ("layer,expert,count\n1,0,0\n", "", "layer 1: no expert was given a token"),
        ("layer,expert,count\n0,0,\x00\n", "", "'count"),
        ("layer,expert,count\n40,0,1\n40,1,1\n", "", "layer 40: model mixtral-8x7b has 32 layers, from 0"),
        ("layer,expert,count\n0,8,1\n0,0,1\n", "", "layer 0: expert 8 of 8, from 0"),
        ("layer,expert,count\n0,0,9\n0,1,3\n", "", "expert 0 has 9 of 12 choices; a token chooses 2 different experts"),
    ],
)
def test_mistakes_say_their_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    if "\x00" in text:
        text, message = text.replace("\x00", "many"), "expected a number, got 'many'"
    with pytest.raises(InputError) as caught:
        load_scenario("h100_mixtral_decode", question(tmp_path, text))
    said = str(caught.value)
    assert message in said
    assert f"counts.csv:{place.lstrip(':')}" in said or not place


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ("{kind: measured}", "kind measured needs 'file', counts of tokens by layer and expert, or 'counts'"),
        ("{kind: measured, file: none.csv}", "workload.routing.file: none.csv: no such file"),
        ("{kind: zipf, s: 1, file: none.csv}", "counts are for kind measured, not zipf"),
        ("{kind: measured, file: a.csv, counts: [{layer: 0, tokens: [1]}]}", "either 'file' or 'counts'"),
        ("{kind: measured, counts: [{layer: 0, tokens: [0, 0]}]}", "layer 0: no expert was given a token"),
        ("{kind: measured, counts: [{layer: 0, tokens: [1, 1]}, {layer: 0, tokens: [1, 1]}]}", "layer 0 is counted twice"),
        (
            "{kind: measured, counts: [{layer: 40, tokens: [1, 1]}]}",
            "routing.counts: layer 40: model mixtral-8x7b has",
        ),
        ("{kind: measured, file: chips}", "is a folder"),
        ("{kind: measured, file: %s}" % ("x" * 5000), "too long"),
    ],
)
def test_mistakes_in_the_scenario(law: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("h100_mixtral_decode", [f"workload.routing={law}"])
    assert message in str(caught.value)


def test_dense_layers_have_no_counts() -> None:
    law = "workload.routing={kind: measured, counts: [{layer: 0, tokens: [1, 1]}]}"
    with pytest.raises(InputError, match="layer 0 of deepseek-v3 has no routed experts"):
        load_scenario("rubin_deepseek_v3", [law])
