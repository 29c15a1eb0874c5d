"""Files of sweeps and constraints that are wrong, hostile or too large: told at once, at their place."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.spec import yamlfile
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.chunks import pricer
from hwmodel.sweep.constraints import ConstraintError, read_constraint
from hwmodel.sweep.space import Space, load_space, space_from

NAMES = ("time_s", "tokens_per_s_per_user", "workload.batch", "gpu.hbm.free_bytes", "gpu-a.busy_fraction")
COLUMNS = {name: np.array([1.0, 20.0, 300.0, np.nan]) * (k + 1) for k, name in enumerate(NAMES)}


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("time_s<=20", [True, True, False, False]),
        ("time_s > 0.5 * workload.batch - 2", [True, False, False, False]),
        ("-(time_s - 20) == 0", [False, True, False, False]),
        ("time_s / 10 < 1000 ms", [True, False, False, False]),
        ("gpu.hbm.free_bytes >= 1 kB", [False, False, True, False]),
        ("gpu-a.busy_fraction-time_s != 4", [False, True, True, False]),
        ("10 us < time_s", [True, True, True, False]),
        ("gpu.hbm.free_bytes / time_s > 1 GB / 300 ms", [False, False, False, False]),
        ("2 * time_s - 3 ms < time_s * 2", [True, True, True, False]),
    ],
)
def test_constraints_compare_columns(text: str, met: list[bool]) -> None:
    assert read_constraint(text, NAMES).holds(COLUMNS).tolist() == met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a number or a column"),
        ("time_s", "expected a comparison"),
        ("time_s < 1 < 2", "one comparison a line"),
        ("time_s < 1; import os", "cannot read"),
        ("__import__('os').system('true') < 1", "cannot read"),
        ("__import__(os) < 1", "no column '__import__'"),
        ("time_s.__class__ < 1", "no column 'time_s.__class__'"),
        ("time_s.real < 1", "no column 'time_s.real'"),
        ("'time_s' < 1", "cannot read"),
        ('"a" == "a"', "cannot read"),
        ("time_s[0] < 1", "cannot read"),
        ("time < 1", "did you mean 'time_s'"),
        ("(" * 400 + "1" + ")" * 400 + " < time_s", "nested too deeply"),
        ("-" * 400 + "1 < time_s", "nested too deeply"),
        ("1 < 2", "compares no column"),
        ("time_s < 3 parsecs", "neither a unit nor a column"),
        ("time_s < 1 and time_s > 0", "neither a unit nor a column"),
        ("time_s ** 2 < 1", "expected a number or a column"),
        ("time_s < lambda", "no column 'lambda'"),
        ("time_s <", "expected a number or a column"),
        ("time_s < 1e999", "is no finite number"),
        ("time_s < 1 / 0", "is no finite number"),
        ("0 / 0 < time_s", "is no finite number"),
        ("time_s < " + "9" * 400, "is no finite number"),
        ("time_s < nan", "no column 'nan'"),
        ("bound == compute", "column 'bound' holds words; only numbers are compared"),
        ("time_s = 1", "cannot read '=', did you mean '=='?"),
        ("time_s ≤ 1", "cannot read '≤', did you mean '<='?"),
        ("time_s < 1 and time_s > 0", "; one comparison a line"),
        ("'time_s' < 1", "names of columns stand without quotes"),
        ('x"y < 1', "cannot read '\"'"),
        ("time_s < 1\x1b[31m", r"at character 11 of 'time_s < 1\x1b[31m'"),
        ("time_s < 20 GB", "a time and bytes cannot be compared or added"),
        ("gpu.hbm.free_bytes - 3 ms > 0", "bytes and a time cannot be compared or added"),
        ("gpu.hbm.free_bytes > time_s * 2", "bytes and a time cannot be compared or added"),
    ],
)
def test_hostile_constraints_are_told(text: str, said: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        read_constraint(text, NAMES, ["bound"])
    assert said in str(caught.value)
    assert str(caught.value).isprintable()


@settings(derandomize=True, max_examples=500, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_constraint_or_told(text: str) -> None:
    message = ""
    try:
        read_constraint(text, NAMES)
    except ConstraintError as error:
        message = str(error)
    assert "\n" not in message


def space_of(value: dict[str, Any]) -> Space:
    return space_from(Document("test", value, {}, ()), "test")


BATCH = {"workload.batch": [1, 2]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axes": {"workload.batch": []}}, "the sweep would be empty"),
        ({"axes": {}}, "needs at least 1"),
        ({"axes": {"workload.batch": {"powers_of_two": [5, 7]}}}, "no power of two"),
        ({"axes": {"workload.batch": [float("nan")]}}, "finite"),
        ({"axes": {"workload.batch": [1.5]}}, "whole numbers"),
        ({"axes": {"workload.batch": [0]}}, "must be from 1"),
        ({"axes": {"workload.batch": [True]}}, "expected a number"),
        ({"axes": {"workload.batch": {"log": [0, 10], "points": 3}}}, "more than zero"),
        ({"axes": {"workload.batch": {"linear": [10, 1], "points": 3}}}, "wrong way round"),
        ({"axes": {"workload.batch": {"linear": [1, 10]}}}, "needs points"),
        ({"axes": {"workload.batch": {"linear": [1, 10], "points": 10**12}}}, "at most 1,000,000"),
        ({"axes": {"workload.batch": {"linear": [1, 10], "pints": 3}}}, "did you mean 'points'"),
        ({"axes": {"workload.batch": {"powers": [1, 64]}}}, "no kind of range, did you mean 'powers_of_two'"),
        ({"axes": {"workload.batch": 7}}, "expected a list"),
        ({"axes": {"cluster.pools.gpu.override.memory.hbm.bandwidth": [3]}}, "needs a unit"),
        ({"axes": {"cluster.pools.gpu.override.memory.hbm.bandwith": ["3 TB/s"]}}, "memory.hbm.bandwith"),
        ({"axes": {"cluster.pools.npu.count": [3]}}, "a pool 'npu'"),
        ({"axes": {"cluster.pools.gpu.override.efficiency.memory": ["120 %"]}}, "at most 1"),
        ({"axes": {"dtypes.kv": ["fp8", "fp7"]}}, "fp7"),
        ({"axes": {"cluster.pools.gpu.chip": ["h100_sxm", "no_such_chip"]}}, "no_such_chip"),
        ({"axes": {**BATCH, "workload.context": [1, 2, 3]}, "zip": [["workload.batch", "workload.context"]]}, "equally many"),
        ({"axes": BATCH, "zip": [["workload.batch", "x'\"y"]]}, "is no axis"),
        ({"axes": BATCH, "set": {"workload.batch.x.y": 1}}, "is a single value"),
        ({"axes": BATCH, "random": {"points": 10**18}}, "31,710 years|3.17e\\+04 years"),
        ({"axes": {f"workload.{name}": {"linear": [1, 10**6], "points": 10**6} for name in ("batch", "context", "cached")}},
         "points would take"),
        ({"axes": BATCH, "random": {"points": int("9" * 400)}}, r"10\^399 points would take about .* years"),
        ({"axes": {"workload.__class__": [1]}}, r"axes.workload.__class__: unknown key '__class__'"),
        ({"axes": {"workload.'batch'": [1]}}, "unknown key ''batch'', did you mean 'batch'"),
        ({"axes": {"plan": {"tp4": "tensor"}}}, "axes.plan: expected a list, got 'tensor'"),
        ({"axes": BATCH, "set": {"workload.phase": "dance"}}, r"set.workload.phase: .*dance"),
        ({"axes": {"model": ["llama-3.1-8b"] * 5000}}, "packed one by one"),
        ({"scenario": "../no/such/file"}, "scenario: ../no/such/file: no such file"),
        ({"scenario": "no_such"}, "no scenario named"),
        ({"scenario": ""}, "name the scenario"),
    ],
)  # fmt: skip
def test_wrong_sweeps_are_told_at_once(changes: dict[str, Any], said: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError, match=said):
        space_of({"scenario": "h100_llama_70b_decode", "axes": BATCH, **changes})
    assert time.perf_counter() - start < 5


def test_wrong_objectives_and_constraints_are_told_together() -> None:
    space = space_of({
        "scenario": "h100_llama_70b_decode", "axes": BATCH, "where": ["tpot < 1", "bound == 1"], "objectives": {"speed": "max"},
    })  # fmt: skip
    with pytest.raises(InputError) as caught:
        pricer(space)
    assert len(caught.value.problems) == 3


def test_a_mistake_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("scenario: h100_llama_70b_decode\naxes:\n  workload.batch: [1, 2]\n  workload.context: {log: [0, 10]}\n")
    with pytest.raises(InputError) as caught:
        load_space(str(path))
    problem = caught.value.problems[0]
    assert (problem.line, problem.path) == (4, "axes.workload.context")
    assert yamlfile.load(path).value["axes"]


def test_axes_that_move_together() -> None:
    axes = {"workload.batch": [1, 2, 3], "workload.context": [10, 20, 30], "cluster.pools.gpu.count": [4, 8]}
    space = space_of({"scenario": "h100_llama_70b_decode", "axes": axes, "zip": [["workload.batch", "workload.context"]]})
    assert space.points == 6
    table, _ = pricer(space).table(0)
    rows = [[table.numbers[path][k] for path in axes] for k in range(6)]
    assert rows == [[1, 10, 4], [1, 10, 8], [2, 20, 4], [2, 20, 8], [3, 30, 4], [3, 30, 8]]
