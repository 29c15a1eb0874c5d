"""The physical form: its derivatives, and that the parameters found are as good as a slower search finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from hwmodel.calibrate import known_chips
from hwmodel.measured import read
from hwmodel.sample import FOLDS, LEAST, MOST, NOISE, WEAK, Array, Sample, physical, physics_of, slopes, start_of
from hwmodel.spec import catalog
from hwmodel.study import studies

SECONDS = st.one_of(st.just(0.0), st.floats(-9, 0).map(lambda power: 10.0**power))
INSIDE = st.tuples(*(st.floats(low + 0.01, most - 0.01) for low, most in zip(LEAST, MOST, strict=True)))


@settings(max_examples=300)
@given(INSIDE, st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=5))
def test_slopes_are_those_of_finite_differences(at: tuple[float, ...], times: list[tuple[float, float]]) -> None:
    theta, step = np.array(at), 1e-5
    compute, memory = np.array(times).T
    found = slopes(theta, compute, memory)
    assert found.shape == (4, len(times))
    for index, one in enumerate(np.eye(4) * step):
        above, below = (physical(theta + sign * one, compute, memory, 0 * compute) for sign in (1, -1))
        near = 1e-7 * physical(theta, compute, memory, 0 * compute)
        assert (np.abs(found[index] - (above - below) / (2 * step)) <= near + 1e-16).all(), index


def test_slopes_where_compute_and_memory_take_equally_long() -> None:
    """(a^s + b^s)^(1/s) at a = b = 1 and s = 2 is sqrt(2), half of it from either, and its slope by s -sqrt(2) (ln 2) / 4."""
    theta = np.array([np.log(1e-6), 0.0, 0.0, 0.0])
    one = np.ones(1)
    assert physical(theta, one, one, 0 * one) == pytest.approx(1e-6 + np.sqrt(2))
    assert slopes(theta, one, one)[:, 0] == pytest.approx(
        [1e-6, -np.sqrt(0.5), -np.sqrt(0.5), -np.sqrt(2) * np.log(2) / 4]
    )  # fmt: skip


def wrongs(theta: Array, sample: Sample, chosen: np.ndarray) -> Array:
    """What the fit makes small: errors of rows in units of NOISE, and the distance from the start."""
    parts = physical(theta, sample.compute[chosen], sample.memory[chosen], sample.fixed[chosen])
    errors = np.log((parts.sum(axis=1) + sample.other[chosen]) / sample.measured[chosen]) / NOISE
    return np.concatenate([errors, (theta - start_of(sample, chosen)) * WEAK])


def loss(theta: Array, sample: Sample, chosen: np.ndarray) -> float:
    """Errors count by their square where they are small, by themselves where not."""
    return float((np.sqrt(1 + wrongs(theta, sample, chosen) ** 2) - 1).sum())


def shipped(kind: str) -> Iterator[tuple[Sample, np.ndarray]]:
    """Every group of the shipped rows of a kind, without each fold."""
    groups = read(catalog.shipped("measured"), [kind])
    for sample in studies(groups, known_chips(groups))[kind].samples:
        for fold in range(-1, FOLDS):
            chosen = sample.fold != fold
            if chosen.any():
                yield sample, chosen


def test_a_fit_prices_its_rows_a_few_dozen_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """37 times for experts, where the steps are most; with finite differences, and the first method alone, 127 times."""
    asked = []
    monkeypatch.setattr("hwmodel.sample.physical", lambda *of: asked.append(1) or physical(*of))
    fits = [physics_of(sample, chosen) for sample, chosen in shipped("moe")]
    assert len(asked) < 45 * len(fits)


@pytest.mark.parametrize("kind", ["attention_prefill", "mla_prefill", "moe"])
def test_no_slower_search_finds_better_parameters(kind: str) -> None:
    """One that knows no derivatives and stays inside the bounds, as long as it likes, from the same start."""
    worse = []
    for sample, chosen in shipped(kind):
        start = np.clip(start_of(sample, chosen), LEAST + 1e-6, MOST - 1e-6)
        slow = least_squares(wrongs, start, bounds=(LEAST, MOST), loss="soft_l1", args=(sample, chosen)).x
        worse.append(loss(physics_of(sample, chosen), sample, chosen) / loss(slow, sample, chosen) - 1)
    assert len(worse) > 100
    assert max(worse) < 1e-5


@pytest.mark.parametrize("stated", [None, "2"])
def test_systems_are_solved_in_one_thread_unless_the_user_says_otherwise(stated: str | None) -> None:
    """What the process says when SciPy is loaded."""
    code = """import os, sys
from hwmodel.cli import main
assert "scipy" not in sys.modules
try:
    main(["calibrate", "l40s", "--stack", "vllm", "--op", "mla_decode"])
finally:
    print("threads", os.environ["OPENBLAS_NUM_THREADS"], "scipy" in sys.modules)"""
    env = {key: value for key, value in os.environ.items() if key != "OPENBLAS_NUM_THREADS"}
    given = {} if stated is None else {"OPENBLAS_NUM_THREADS": stated}
    run = subprocess.run([sys.executable, "-c", code], env=env | given, capture_output=True, text=True, check=False)
    assert f"threads {stated or 1} True" in run.stdout, run.stderr
