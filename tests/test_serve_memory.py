"""Long traces: columns in files, percentiles part by part, slots for those that are there; the same numbers as ever."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_cases import fleet, proportional, requests
from test_serve_fuzz import fleets, same, workloads

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_follow import followers
from hwmodel.serve import engine, metrics, scratch, selection
from hwmodel.serve.engine import Fleet, Run, simulate
from hwmodel.serve.readers import gather
from hwmodel.serve.readers.gather import chained, dense
from hwmodel.serve.readers.prefix import begun, rebuilt
from hwmodel.serve.readers.table import Table, grouped, picked
from hwmodel.serve.requests import Requests
from hwmodel.serve.synthetic import Synthetic, generate
from hwmodel.spec.errors import InputError

EVERY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


# --- columns ----------------------------------------------------------------------------------------------------------
def test_a_long_column_lies_in_a_file_without_a_name_and_keeps_what_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    small, large = scratch.column(1000), scratch.column((50_000, 4), np.int32)
    large[:] = np.arange(200_000).reshape(50_000, 4)
    scratch.release(large, small)
    assert large.tolist() == np.arange(200_000).reshape(50_000, 4).tolist()
    assert large.flags["C_CONTIGUOUS"]
    assert not list(tmp_path.iterdir())
    slots = scratch.untouched((1 << 20, 3), np.int64)
    slots[7] = 1, 2, 3
    scratch.release(slots)
    assert slots.sum() == 6, "no file has it: it is not dropped"
    many = scratch.column(1 << 18)
    many += 1.0
    assert many.sum() == 1 << 18


def test_files_go_where_the_user_says_else_where_there_is_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    made = tempfile.TemporaryFile

    def noted(**given_: Any) -> Any:
        asked.append(given_.pop("dir"))
        return made(**given_)

    monkeypatch.setattr(tempfile, "TemporaryFile", noted)
    monkeypatch.setattr(scratch, "LARGE", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "own"))
    scratch.column(1 << 18)
    monkeypatch.delenv("TMPDIR")
    scratch.column(1 << 18)
    monkeypatch.setattr(scratch, "LARGE", str(tmp_path / "nowhere"))
    scratch.column(1 << 18)
    assert asked == [None, str(tmp_path), None]


def test_without_a_place_for_files_columns_are_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert not scratch.column(1 << 18).any()
    growing = scratch.Growing("q")
    growing.last.extend(range(scratch.CHUNK))
    with pytest.raises(InputError, match="No space left on device; TMPDIR"):
        growing.settle()


def test_what_comes_one_by_one_is_all_there_in_order() -> None:
    growing, count = scratch.Growing("d"), 2 * scratch.CHUNK + 17
    for i in range(count):
        growing.last.append(i / 3)
        growing.settle()
    assert len(growing) == count
    assert len(growing.last) == 17
    np.testing.assert_array_equal(growing.column(), np.arange(count) / 3)


# --- sums and percentiles ---------------------------------------------------------------------------------------------
def drawn(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """Values spread over many sizes, crowded into a few, all equal, of both signs, or near one another in the last bits."""
    return {
        "wide": lambda: rng.lognormal(-3, 4, n), "few": lambda: rng.choice([0.0, 1.5, 2.5], n), "one": lambda: np.full(n, 0.1),
        "signs": lambda: rng.normal(0, 1, n), "near": lambda: 1.0 + np.spacing(1.0) * rng.integers(0, 1 << 20, n),
    }[kind]()  # fmt: skip


@pytest.mark.parametrize("kind", ["wide", "few", "one", "signs", "near"])
def test_of_a_long_column_numpy_says_the_same_to_the_last_bit(kind: str) -> None:
    values = drawn(kind, np.random.default_rng(5), 3 * scratch.CHUNK + 1234)
    asked = [0.0, 0.1, 50.0, 90.0, 99.0, 99.99, 100.0]
    assert selection.percentiles(values, asked).tolist() == np.percentile(values, asked).tolist()
    assert selection.real_sum(values) == float(values.sum())
    assert selection.mean(values) == float(values.mean())


@EVERY
@given(st.integers(129, 3000), st.integers(0, 2**32 - 1), st.sampled_from(["wide", "few", "one", "signs", "near"]))
def test_and_of_columns_of_any_length_in_small_parts(n: int, seed: int, kind: str) -> None:
    values = drawn(kind, np.random.default_rng(seed), n)
    asked = [0.0, 12.5, 50.0, 90.0, 99.0, 100.0]
    with pytest.MonkeyPatch.context() as patch:
        for module in (selection, scratch):
            patch.setattr(module, "CHUNK", 128)
        assert selection.percentiles(values, asked).tolist() == np.percentile(values, asked).tolist()
        assert selection.real_sum(values) == float(values.sum())
        kept = selection.kept(n, lambda part: np.where(values[part] > 1, values[part], np.nan))
    np.testing.assert_array_equal(kept, values[values > 1])


# --- runs -------------------------------------------------------------------------------------------------------------
def in_parts(work: Requests, made: Fleet) -> Run:
    """Stopped after every second arrival, all columns in files, all that is said of it made from two requests at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "CHUNK", 2)
        patch.setattr(engine, "UNITS_SMALL", 0)
        patch.setattr(scratch, "CHUNK", 2)
        patch.setattr(scratch, "SMALL", 0)
        run = simulate(work, made)
        metrics.session_s(run), metrics.within(run, {"ttft": 1.0}), metrics.finite(run, "e2e_s")
    return run


@EVERY
@given(workloads(), fleets())
def test_a_run_in_parts_is_the_run(work: Requests, made: Fleet) -> None:
    whole, run = simulate(work, made), in_parts(work, made)
    same(whole, run)
    assert whole.iterations == run.iterations


@EVERY
@given(workloads(), fleets())
def test_as_many_slots_as_requests_were_there_at_once(work: Requests, made: Fleet) -> None:
    """Of those that come at one time all are there before any ends."""
    run = simulate(work, made)
    come, left = run.when[run.finished, c.ARRIVAL], run.when[run.finished, c.FINISH]
    inside = max((int((come <= at).sum() - (left < at).sum()) for at in come), default=0)
    fewest = max((int((come <= at).sum() - (left <= at).sum()) for at in come), default=0)
    assert fewest <= run.most_inside <= inside + bool(run.rejected.any())


@EVERY
@given(workloads(), fleets())
def test_latencies_are_those_of_the_columns(work: Requests, made: Fleet) -> None:
    run = in_parts(work, made)
    done = run.finished
    for name, first, last in (
        ("ttft_s", c.ARRIVAL, c.FIRST),
        ("e2e_s", c.ARRIVAL, c.FINISH),
        ("queue_s", c.ARRIVAL, c.SCHEDULED),
    ):
        wanted = (run.when[:, last] - run.when[:, first])[done]
        np.testing.assert_array_equal(metrics.finite(run, name), wanted)
        found = metrics.quantiles(metrics.finite(run, name))
        if found is not None:
            said = [found.p50, found.p90, found.p99, found.mean, found.max]
            assert said == [*np.percentile(wanted, [50, 90, 99]), wanted.mean(), wanted.max()]
    met = done & ~((run.when[:, c.FIRST] - run.when[:, c.ARRIVAL]) > 0.2)
    assert metrics.within(run, {"ttft": 0.2}).tolist() == met.tolist()
    assert metrics.finished_tokens(run) == int(work.output[done].sum())
    if done.any():
        assert metrics.makespan_s(run) == run.when[done, c.FINISH].max() - run.when[done, c.ARRIVAL].min()


def test_a_request_that_comes_when_another_one_ends_takes_its_slot() -> None:
    """One a second, each there for 20 ms."""
    run = simulate(requests(np.arange(500.0), 10, 10), fleet(proportional(1e-3)))
    assert run.finished.all()
    assert run.most_inside == 1


# --- workloads --------------------------------------------------------------------------------------------------------
def poisson(**more: Any) -> Synthetic:
    return Synthetic.model_validate(
        {
            "kind": "poisson",
            "rate": "5 /s",
            "requests": 1000,
            "prompt": {"mean": 300, "sigma": 1},
            "output": {"mean": 20},
            **more,
        }
    )


@pytest.mark.parametrize("more", [{}, {"kind": "gamma", "cv": 3.0}, {"shared": 200}, {"shared": 100_000}])
def test_a_workload_made_in_parts_is_the_workload(more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = generate(poisson(**more)).requests
    monkeypatch.setattr(scratch, "CHUNK", 128)
    monkeypatch.setattr(scratch, "SMALL", 0)
    monkeypatch.setattr("hwmodel.serve.readers.prefix.FEW", 7)
    found = generate(poisson(**more)).requests
    for name in ("arrival_s", "prompt", "output", "starts", "blocks", "session", "tier", "after", "gap_s"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


@EVERY
@given(st.integers(1, 60), st.integers(0, 400), st.integers(0, 2**32 - 1))
def test_prompts_with_a_beginning_in_common_are_those_of_sessions_of_one_call(n: int, shared: int, seed: int) -> None:
    prompt = np.random.default_rng(seed).integers(1, 300, n)
    none = np.full(n, -1)
    for found, wanted in zip(
        begun(prompt, 16, shared), rebuilt(prompt, 0 * prompt, np.arange(n), none, 16, shared), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@EVERY
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 1000]), st.sampled_from([1, 10**12]))
def test_ids_of_blocks_stand_for_all_that_they_begin_with(n: int, seed: int, few: int, spread: int) -> None:
    """Against the prefixes themselves; ranks against numpy's, of ids counted through and of hashes far apart."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(rng.integers(0, 5, n))))
    content = rng.integers(0, 4, starts[-1]) * spread
    prefixes = [tuple(content[a : i + 1].tolist()) for a, b in pairwise(starts) for i in range(a, b)]
    if not prefixes:
        return
    hashes = np.unique([repr(prefix) for prefix in prefixes], return_inverse=True)[1] * spread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwmodel.serve.readers.gather.MERGED", few)
        patch.setattr("hwmodel.serve.readers.gather.FEW", few)
        of_content, of_prefix = chained(starts, dense(content)), chained(starts, dense(hashes))
        np.testing.assert_array_equal(dense(content), np.unique(content, return_inverse=True)[1])
    np.testing.assert_array_equal(of_prefix, np.unique(hashes, return_inverse=True)[1])
    follows = {(int(content[i]), int(content[i - 1]) if i > a else -1) for a, b in pairwise(starts) for i in range(a, b)}
    if len(follows) > len({one for one, _ in follows}):  # else the content could be hashes of prefixes, and is taken for it
        for found, prefix in zip(of_content, prefixes, strict=True):
            assert [prefix == other for other in prefixes] == (of_content == found).tolist()


@EVERY
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 1000]))
def test_blocks_go_where_their_requests_go(n: int, seed: int, few: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate(([0], np.cumsum(rng.integers(0, 5, n))))
    blocks, order = rng.integers(0, 99, starts[-1]), rng.permutation(n)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwmodel.serve.readers.gather.FEW", few)
        begin, moved = gather.picked(starts, blocks, order)
    assert len(moved) == len(blocks)
    for place, r in enumerate(order):
        assert moved[begin[place] : begin[place + 1]].tolist() == blocks[starts[r] : starts[r + 1]].tolist()


@EVERY
@given(st.lists(st.integers(0, 6), max_size=60))
def test_rows_come_back_group_by_group(numbers: list[int]) -> None:
    known = {number: i for i, number in enumerate(dict.fromkeys(numbers))}
    number = np.array([known[one] for one in numbers], np.int64)
    table = Table(group="q", value="d")
    for i, one in enumerate(number.tolist()):
        table.add(one, i / 2)
    found = [list(picked(table.columns(), which)) for which in grouped(number)]
    assert found == [[(i / 2,) for i in range(len(numbers)) if number[i] == group] for group in range(len(known))]


@EVERY
@given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 1.0]))
def test_followers_are_those_that_wait(n: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    after = np.where(rng.random(n) < share, rng.integers(-1, np.maximum(1, np.arange(n))), -1)
    after[0] = -1
    follow = np.zeros(n + 1 + int((after >= 0).sum()), np.int64)
    followers(after, follow)
    found = [follow[follow[r] : follow[r + 1]].tolist() for r in range(n)]
    assert found == [np.flatnonzero(after == r).tolist() for r in range(n)]
