"""Sweeps: points equal runs, the same rows whoever prices them, fronts, files that survive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedule import Plan, solve

import hwmodel as hw
from hwmodel.chain import chain
from hwmodel.kernels.schedule import INPUT
from hwmodel.result import Result
from hwmodel.routing import Routing
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.chunks import CHUNK, Table, merged, pricer
from hwmodel.sweep.drive import run_sweep
from hwmodel.sweep.interval import exact
from hwmodel.sweep.numbers import Numbers
from hwmodel.sweep.pareto import best, front
from hwmodel.sweep.point import scenario_at
from hwmodel.sweep.space import Space, load_space, space_from
from hwmodel.sweep.store import Store
from hwmodel.sweep.structures import structure
from hwmodel.timeline import periods

SHIPPED = "sweep_rubin_lpx_deepseek_v3"
CLOSE = 1e-9


def space_of(value: dict[str, Any]) -> Space:
    return space_from(Document("test", value, {}, ()), "test")


# --- points equal runs ----------------------------------------------------------------------------------------------
def expected(result: Result) -> tuple[dict[str, float], dict[str, str]]:
    """Columns of a run, by the names of a sweep."""
    step, cost = result.step, result.cost
    found = {
        key: getattr(step, key)
        for key in (
            "time_s",
            "makespan_s",
            "tokens",
            "tokens_per_s",
            "tokens_per_s_per_user",
            "tokens_per_s_per_chip",
            "micro_batches",
        )
    }
    found |= {key: value for key in ("tpot_s", "ttft_s") if (value := getattr(step, key)) is not None}
    words = {"bound": step.bound}
    for pool in result.pools:
        found[f"{pool.pool}.busy_fraction"] = pool.busy_fraction
        found |= {f"{pool.pool}.{key}_s": value for key, value in pool.bound_s.items()}
        words[f"{pool.pool}.bound"] = pool.bound
    for tier in result.memory:
        for key in ("weights_bytes", "kv_bytes", "activation_bytes", "free_bytes"):
            found[f"{tier.pool}.{tier.tier}.{key}"] = getattr(tier, key)
    graph, first = result.placed.graph, {}
    for layer, segment in enumerate(graph.sequence):
        first.setdefault(layer, graph.segments[segment].name)
    for row in result.layers:
        found[f"{first[row.index]}.time_s"], words[f"{first[row.index]}.bound"] = row.time_s, row.bound
    if cost is not None:
        found |= {"usd_per_hour": cost.usd_per_hour}
        found["usd_per_million_tokens"] = cost.usd_per_million_output_tokens or cost.usd_per_million_input_tokens or 0.0
        if cost.joules_per_token is not None:
            found |= {"joules_per_token": cost.joules_per_token, "watts": cost.watts or 0.0}
    return found, words


def compare(table: Table, index: int, result: Result) -> None:
    numbers, words = expected(result)
    row = table.row(index)
    for name, value in numbers.items():
        # a share of the step that is next to nothing is compared with the step
        scale = result.step.time_s if name.endswith(("idle_s", "compute_s", "memory_s", "link_s", "overhead_s")) else abs(value)
        scale = (
            abs(next(m.capacity_bytes for m in result.memory if name.startswith(f"{m.pool}.{m.tier}.")))
            if name.endswith("free_bytes")
            else scale
        )
        assert row[name] == pytest.approx(value, rel=CLOSE, abs=CLOSE * scale), name
    for name, word in words.items():
        assert row[name] == word, name
    assert row["feasible"] == result.feasible, (row["reason"], result.reasons)


@pytest.mark.parametrize("chunk", [0, 7, 30])
def test_points_of_the_shipped_sweep_equal_runs(chunk: int) -> None:
    space = load_space(SHIPPED)
    table, _ = pricer(space).table(chunk)
    count = 334 if os.environ.get("HWMODEL_FULL") else 40  # a thousand in all
    for index in np.random.default_rng(chunk).choice(len(table.point), count, replace=False).tolist():
        compare(table, index, run(scenario_at(space, table.row(index))))


@pytest.mark.parametrize("name", catalog.names("scenarios"))
def test_points_of_every_scenario_equal_runs(name: str) -> None:
    base = load_scenario(name)
    length = "context" if base.workload.phase == "decode" else "new_tokens"
    axes = {"workload.batch": {"log": [1, 5000]}, f"workload.{length}": {"log": [200, 100000]}}
    space = space_of({"scenario": name, "axes": axes, "random": {"points": 8, "seed": 3}})
    table, _ = pricer(space).table(0)
    for index in range(8):
        compare(table, index, run(scenario_at(space, table.row(index))))


@pytest.mark.parametrize(
    ("name", "changes", "axes"),
    [
        ("h100_llama_70b_decode", {"plan": [{"tensor": {"degree": 1}}, {"pipeline": {"stages": 4}}]}, {}),
        ("h100_llama_70b_decode", {"cluster.pools.gpu.stack": "trtllm"}, {"cluster.pools.gpu.count": [4, 8, 12]}),
        ("h100_llama_70b_decode", {}, {"cluster.pools.gpu.override.links.nvlink.bandwidth": {"log": ["100 GB/s", "900 GB/s"]}}),
        ("h100_llama_70b_decode", {"workload.phase": "mixed", "workload.new_tokens": 512},
         {"workload.prefill_batch": [1, 2, 5]}),
        ("h100_llama_70b_decode", {"plan": [{"tensor": {"degree": 4}}, {"data": {"degree": 2}}]},
         {"cluster.pools.gpu.count": [4, 8]}),
        ("h100_mixtral_decode", {}, {"cluster.pools.gpu.count": [1, 2, 3, 4, 8]}),
        ("h100_llama_70b_decode", {"workload.speculative": {"draft": 3, "acceptance": 0.7, "method": "free"}},
         {"workload.context": [1, 4000, 100000]}),
        ("rubin_deepseek_v3", {"workload.speculative": {"draft": 2, "acceptance": 0.7}}, {}),
        ("rubin_deepseek_v3", {}, {"cluster.pools.gpu.count": [72, 100, 144], "cluster.pools.gpu.memory_reserve": [0.0, 0.2]}),
        ("rtx4090_mixtral_offload", {}, {"cluster.links.0.bandwidth": {"log": ["5 GB/s", "64 GB/s"]}}),
    ],
)  # fmt: skip
def test_numbers_of_a_point_are_those_of_the_scenario(name: str, changes: dict[str, Any], axes: dict[str, Any]) -> None:
    value = {"scenario": name, "set": changes, "axes": {"workload.batch": {"log": [1, 3000]}, **axes}, "random": {"points": 12}}
    space = space_of(value)
    table, _ = pricer(space).table(0)
    for index in range(12):
        compare(table, index, run(scenario_at(space, table.row(index))))


def test_structures_are_packed_for_every_plan_and_chip() -> None:
    plans = {"tp4": [{"tensor": {"degree": 4}}], "tp2": [{"tensor": {"degree": 2}}]}
    axes = {"plan": plans, "cluster.pools.gpu.chip": ["h100_sxm", "b200_sxm"], "workload.batch": [4, 40]}
    table = hw.sweep("h100_llama_70b_decode", axes)
    assert len(table.point) == 8
    for index in range(8):
        row = table.row(index)
        scenario = load_scenario(
            "h100_llama_70b_decode",
            [f"plan={json.dumps(plans[row['plan']])}", f"cluster.pools.gpu.chip={row['cluster.pools.gpu.chip']}",
             f"workload.batch={row['workload.batch']}"],
        )  # fmt: skip
        compare(table, index, run(scenario))


def test_fitted_ranges_are_near_those_of_runs() -> None:
    """Of points that the fit has not seen; the error that the answer states holds on them (with room for few points)."""
    space = load_space(SHIPPED)
    made = pricer(space)
    table, _ = made.table(11)
    off = []
    for index in np.random.default_rng(2).choice(len(table.point), 40, replace=False).tolist():
        step = run(scenario_at(space, table.row(index))).step
        ends = (table.numbers["time_low_s"][index], table.numbers["time_high_s"][index])
        off += [abs(ends[0] - step.time_low_s) / step.time_s, abs(ends[1] - step.time_high_s) / step.time_s]
        assert ends[0] <= step.time_s * (1 + CLOSE)
        assert ends[1] >= step.time_s * (1 - CLOSE)
    stated = max(one.error for one in made.intervals.values())
    assert stated < 0.12
    assert np.quantile(off, 0.9) < 1.5 * stated


def test_exact_ranges_behind_the_fit_are_those_of_runs() -> None:
    for name in ("h100_llama_70b_decode", "rubin_lpx_deepseek_v3", "rubin_lpx_lpddr_deepseek_v3"):
        scenario = load_scenario(name)
        result = run(scenario)
        of = structure(scenario)
        low, high = exact(of, scenario, Numbers(1), scenario.workload.routing, result.step.micro_batches)
        step = result.step
        assert low == pytest.approx(np.log(step.time_s / step.time_low_s), rel=1e-6)
        assert high == pytest.approx(np.log(step.time_high_s / step.time_s), rel=1e-6)


def test_tokens_per_expert_are_those_of_the_busiest_chip() -> None:
    batches = [72, 720, 7200]
    changes = {"workload.routing.kind": "zipf", "workload.routing.s": 0.5}
    table = hw.sweep("rubin_deepseek_v3", {"workload.batch": batches}, settings=changes)
    chosen = Routing(kind="zipf", s=0.5).bins(256, 8, 256, 72)
    p, experts = chosen[:, 0], chosen[:, 1]
    for index, batch in enumerate(batches):
        assert table.numbers["tokens_per_expert"][index] == pytest.approx(batch * (p * experts).sum() / experts.sum())
        assert table.numbers["experts_hit"][index] == pytest.approx((experts * (1 - (1 - p) ** batch)).sum())


# --- the walk of micro-batches against the queue of events ------------------------------------------------------------
@st.composite
def chains(draw: Any) -> Plan:
    """Programs of one chain: every op reads the one before it; lanes at random."""
    lanes = draw(st.integers(1, 4))
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        tasks = draw(st.lists(st.tuples(st.integers(0, lanes - 1), st.integers(1, 200)), min_size=1, max_size=5))
        kinds.append(
            tuple((lane, float(took) + 0.137 * k, (INPUT if k == 0 else k - 1,)) for k, (lane, took) in enumerate(tasks))
        )
    runs, stage = [], 0
    for _ in range(draw(st.integers(1, 4))):
        runs.append((draw(st.integers(0, len(kinds) - 1)), stage, draw(st.integers(1, 30))))
        stage += draw(st.integers(0, 1))
    return Plan(tuple(kinds), tuple(runs), draw(st.integers(1, 6)))


@settings(derandomize=True, max_examples=300, deadline=None)
@given(chains())
def test_walk_equals_the_queue_of_events(plan: Plan) -> None:
    order, seconds = plan.program()
    links = chain(order)
    assert links is not None
    assert links.times(seconds, plan.batches) == pytest.approx(periods(order, seconds), rel=1e-9)


ROUND = ((0, 70.0, (INPUT,)), (1, 35.137, (0,)), (0, 70.274, (1,)))
"""A layer that ends on the lane it starts on, so that one goes on in the next, with a short visit to another between."""


@pytest.mark.parametrize("layers", [1, 2, 30])
@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_walk_at_the_end_of_a_step_that_goes_on_in_the_next(layers: int, batches: int) -> None:
    plan = Plan((ROUND,), ((0, 0, layers),), batches)
    order, seconds = plan.program()
    links = chain(order)
    assert links is not None
    assert links.times(seconds, batches) == pytest.approx(periods(order, seconds), rel=1e-9)


def test_walk_of_layers_that_are_one_visit() -> None:
    """Six layers on one lane, six on another: 6 s each and two micro-batches."""
    plan = Plan((((0, 1.0, (INPUT,)),), ((1, 1.0, (INPUT,)),)), ((0, 0, 6), (1, 0, 6)), 2)
    order, seconds = plan.program()
    links = chain(order)
    assert links is not None
    assert links.times(seconds, 2) == (18.0, 12.0)
    assert solve(plan)[0] == 18.0


def test_side_by_side_is_no_chain() -> None:
    apart = Plan((((0, 1.0, (INPUT,)), (1, 2.0, (INPUT,)), (0, 1.0, (0, 1))),), ((0, 0, 4),), 2)
    assert chain(apart.program()[0]) is None


# --- fronts ---------------------------------------------------------------------------------------------------------
@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.integers(1, 3), st.integers(1, 1500), st.integers(0, 1000), st.booleans())
def test_front_is_what_nothing_beats(objectives: int, points: int, seed: int, coarse: bool) -> None:
    values = np.random.default_rng(seed).random((points, objectives))
    values = np.round(values, 1) if coarse else values
    found = front(values)
    seen: dict[tuple[float, ...], int] = {}
    for index, row in enumerate(values.tolist()):
        seen.setdefault(tuple(row), index)
    rows = np.array(list(seen))
    alive = [not ((rows >= row).all(axis=1) & (rows > row).any(axis=1)).any() for row in rows]
    assert found.tolist() == sorted(index for index, yes in zip(seen.values(), alive, strict=True) if yes)


def test_fronts_of_parts_are_the_front_of_the_whole() -> None:
    values = np.random.default_rng(5).random((5000, 2))
    rows = [(tuple(row), {"point": index}) for index, row in enumerate(values.tolist())]
    parts = [rows[k : k + 700] for k in range(0, 5000, 700)]
    found = merged([item for part in parts for item in merged(part)])
    assert [row["point"] for _, row in found] == front(values).tolist()


def test_best_are_the_largest_in_order() -> None:
    values = np.array([3.0, np.nan, 7.0, 7.0, -1.0, 5.0])
    assert best(values, 3).tolist() == [2, 3, 5]
    assert best(values, 9).tolist() == [2, 3, 5, 0, 4]


# --- the same rows, whoever prices them -------------------------------------------------------------------------------
SMALL = {
    "scenario": "h100_llama_70b_decode",
    "axes": {
        "workload.batch": {"log": [1, 600]}, "workload.context": {"log": [100, 40000]},
        "plan": {"tp4": [{"tensor": {"degree": 4}}], "pp4": [{"pipeline": {"stages": 4}}]},
        "cluster.pools.gpu.override.memory.hbm.bandwidth": {"linear": ["2 TB/s", "8 TB/s"]},
    },
    "random": {"points": 3 * CHUNK - 1000, "seed": 2},
    "where": ["tokens_per_s_per_user >= 15", "workload.batch < 500"],
}  # fmt: skip


def test_rows_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    files, answers = [], []
    for jobs in (1, 3):
        out = tmp_path / f"jobs{jobs}.csv"
        answers.append(run_sweep(space_of(SMALL), out=out, jobs=jobs))
        files.append(out.read_bytes())
    assert files[0] == files[1]
    first, second = (answer.to_dict() for answer in answers)
    for key in first.keys() - {"seconds", "points_per_s"}:
        assert first[key] == second[key]
    lines = files[0].decode().splitlines()
    assert len(lines) == 1 + answers[0].evaluated
    assert lines[0].split(",") == list(answers[0].names)
    assert answers[0].evaluated + answers[0].rejected["workload.batch < 500"] == answers[0].points


def test_a_front_holds_all_that_is_good_in_the_file(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    answer = run_sweep(space_of({**SMALL, "random": {"points": 3000}}), out=out)
    header, *rows = [line.split(",") for line in out.read_text().splitlines()]
    at = {name: header.index(name) for name in header}
    good = [row for row in rows if row[at["feasible"]] == "true" and float(row[at["tokens_per_s_per_user"]]) >= 15]
    assert len(good) == answer.feasible
    values = np.array([[float(row[at[name]]) for name in answer.objectives] for row in good])
    assert [row["point"] for row in answer.pareto] == [int(good[k][0]) for k in front(values)]
    for row in answer.pareto:
        assert row["tokens_per_s_per_user"] >= 15


def command(*arguments: str, **keep: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "hwmodel", *arguments], capture_output=True, text=True, check=False, **keep)


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(SMALL))
    return path


def test_a_killed_sweep_is_finished_to_the_same_file(tmp_path: Path, small_file: Path) -> None:
    whole, cut = tmp_path / "whole.csv", tmp_path / "cut.csv"
    assert command("sweep", str(small_file), "--out", str(whole), "--jobs", "2").returncode == 0
    kills = 0
    for attempt in range(6):
        extra = ["--resume"] if attempt else []
        process = subprocess.Popen([sys.executable, "-m", "hwmodel", "sweep", str(small_file), "--out", str(cut), *extra],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        limit = time.monotonic() + 60
        manifest = tmp_path / "cut.csv.manifest.json"
        before = json.loads(manifest.read_text())["done"] if manifest.exists() else 0
        while process.poll() is None and time.monotonic() < limit:
            if manifest.exists() and json.loads(manifest.read_text())["done"] > before:
                time.sleep(0.01 * attempt)
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        process.wait()
    done = command("sweep", str(small_file), "--out", str(cut), "--resume", "--json")
    assert done.returncode == 0, done.stderr
    assert kills >= 1
    assert cut.read_bytes() == whole.read_bytes()
    again = command("sweep", str(small_file), "--json")
    first, second = json.loads(done.stdout), json.loads(again.stdout)
    assert first["pareto"] == second["pareto"]
    assert first["feasible"] == second["feasible"]


def test_a_changed_sweep_is_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "points.csv"
    run_sweep(space_of({**SMALL, "random": {"points": 100}}), out=out)
    with pytest.raises(InputError, match="belongs to another sweep"):
        run_sweep(space_of({**SMALL, "random": {"points": 100, "seed": 9}}), out=out, resume=True)


def test_parquet_holds_the_same_numbers(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    value = {**SMALL, "random": {"points": 2000}}
    run_sweep(space_of(value), out=tmp_path / "a.csv")
    run_sweep(space_of(value), out=tmp_path / "a.parquet")
    frame = polars.read_parquet(tmp_path / "a.parquet")
    header, *rows = [line.split(",") for line in (tmp_path / "a.csv").read_text().splitlines()]
    assert frame.columns == header
    column = header.index("time_s")
    assert frame["time_s"].to_list() == [float(row[column]) for row in rows]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_dask_worker_may_die(tmp_path: Path, suffix: str) -> None:
    distributed = pytest.importorskip("distributed")
    if suffix == ".parquet":
        pytest.importorskip("polars")
    whole, cut = tmp_path / f"local{suffix}", tmp_path / f"dask{suffix}"
    run_sweep(space_of(SMALL), out=whole)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        lost: list[int] = []

        def progress(done: int, whole: int, seconds: float) -> None:
            if not lost:
                worker = next(iter(cluster.workers.values()))
                lost.append(worker.pid)
                os.kill(worker.pid, signal.SIGKILL)

        run_sweep(space_of(SMALL), out=cut, address=cluster.scheduler_address, progress=progress)
    assert lost
    assert cut.read_bytes() == whole.read_bytes()


def test_the_command_answers_in_the_form_that_was_agreed(small_file: Path) -> None:
    done = command("sweep", str(small_file), "--json", "--jobs", "1")
    assert done.returncode == 0
    assert done.stderr == "" or "compiling" in done.stderr
    answer = json.loads(done.stdout)
    assert {"points", "evaluated", "feasible", "seconds", "points_per_s", "columns", "pareto"} <= answer.keys()
    assert answer["points"] == SMALL["random"]["points"]


def test_ctrl_c_ends_with_what_is_done(tmp_path: Path, small_file: Path) -> None:
    value = {**SMALL, "random": {"points": 200 * CHUNK}}
    small_file.write_text(json.dumps(value))
    out = tmp_path / "points.csv"
    process = subprocess.Popen([sys.executable, "-m", "hwmodel", "sweep", str(small_file), "--out", str(out), "--json"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    manifest = tmp_path / "points.csv.manifest.json"
    limit = time.monotonic() + 60
    while time.monotonic() < limit and not (manifest.exists() and json.loads(manifest.read_text())["done"]):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    text, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert json.loads(text)["stopped"]
    assert len(out.read_text().splitlines()) == 1 + json.loads(text)["evaluated"]


@pytest.mark.parametrize("moment", ["csv", "manifest"])
def test_ctrl_c_while_a_chunk_is_written_leaves_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """The file, its manifest and the answer say the same points, whenever the signal comes."""
    space = space_of({**SMALL, "random": {"points": 5 * CHUNK}})
    out = tmp_path / "points.csv"
    add, note = Store.add, Store._note

    def interrupted(self: Store, *given: Any) -> None:
        if moment == "csv":
            signal.raise_signal(signal.SIGINT)
        add(self, *given)

    def noted(self: Store, summary: dict[str, Any]) -> None:
        if moment == "manifest" and summary:
            signal.raise_signal(signal.SIGINT)
        note(self, summary)

    monkeypatch.setattr(Store, "add", interrupted)
    monkeypatch.setattr(Store, "_note", noted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background starts without
    try:
        found = run_sweep(space, out=out, jobs=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.stopped
    assert len(out.read_text().splitlines()) == 1 + found.evaluated
    state = json.loads((tmp_path / "points.csv.manifest.json").read_text())
    assert (state["done"], state["summary"]["evaluated"]) == (1, found.evaluated)
    monkeypatch.undo()
    assert run_sweep(space, out=out, resume=True).evaluated == run_sweep(space).evaluated
