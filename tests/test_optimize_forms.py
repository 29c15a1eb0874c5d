"""The closed forms of the best plan against published figures, brute force and simulation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.optimize import provisioning as pools
from hwmodel.optimize.provisioning import Stage
from hwmodel.routing import normal_maximum


# --- attention devices per FFN device (theory.md 1.3; arXiv 2601.21351) ----------------------------------------------
@pytest.mark.parametrize(
    ("attention", "slope", "fixed", "expected"), [(340, 20, 20, 16.0), (150, 10, 160, 4.0)], ids=["attention", "peak"]
)
def test_pool_ratio(attention: float, slope: float, fixed: float, expected: float) -> None:
    ffn = (Stage(slope, fixed),)
    assert pools.best_ratio(attention, ffn) == pytest.approx(expected, rel=1e-12)
    grid = np.arange(0.01, 64, 0.01)
    best = grid[np.argmax([pools.throughput(r, 32, attention, ffn) for r in grid])]
    assert best == pytest.approx(expected, abs=0.011)
    assert pools.throughput(16.0, 32, 340, (Stage(20, 20),)) == pytest.approx(16 * 32 / (17 * 340))


_whole = st.integers(1, 400)
_stages = st.lists(st.builds(Stage, _whole, st.integers(0, 400)), min_size=1, max_size=2)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(_whole, _stages, st.integers(2, 60))
def test_whole_ratios_and_pools_equal_brute_force(attention: int, stages: list[Stage], most: int) -> None:
    rate = lambda ratio: pools.throughput(ratio, 1.0, attention, stages)  # noqa: E731
    assert rate(pools.best_whole_ratio(attention, stages, most)) == max(rate(r) for r in range(1, most + 1))
    first, second = pools.best_pools(most, attention, stages)
    assert first + second == most
    assert rate(first / second) == pytest.approx(max(rate(n / (most - n)) for n in range(1, most)), rel=1e-12)
    best = rate(pools.best_ratio(attention, stages))
    assert best >= max(rate(r) for r in np.geomspace(1e-3, 1e4, 500)) * (1 - 1e-12)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(_whole, _whole, st.integers(1, 400))
def test_pool_ratio_without_transfers_is_the_larger_of_two(attention: int, slope: int, fixed: int) -> None:
    expected = max((attention - fixed) / slope, (fixed / slope) ** 0.5)
    assert pools.best_ratio(attention, [Stage(slope, fixed)]) == pytest.approx(expected)


def test_a_slow_transfer_lowers_the_ratio() -> None:
    ffn, link = Stage(20, 20), Stage(40, 20)
    assert pools.best_ratio(340, [ffn, link]) == pytest.approx(8.0)  # (340 - 20) / 40: the link meets attention first
    assert pools.best_ratio(340, [ffn, Stage(1, 0)]) == pytest.approx(16.0)


def test_pools_need_two_devices() -> None:
    with pytest.raises(ValueError, match="two devices, got 1"):
        pools.best_pools(1, 340, [Stage(20, 20)])


def test_stationary_context() -> None:
    assert pools.geometric_context(2000, 500) == 2499
    assert pools.constant_context(2000, 500) == 2249.5
    rng = np.random.default_rng(0)
    prompts, outputs = rng.poisson(2000, 400_000).astype(float), rng.geometric(1 / 500, 400_000).astype(float)
    assert pools.stationary_context(prompts, outputs) == pytest.approx(2499, rel=0.005)
    assert pools.stationary_context(np.full(3, 2000.0), np.full(3, 500.0)) == 2249.5
    # longer prompts that get longer answers hold the slot longer
    assert pools.stationary_context(np.array([100.0, 300.0]), np.array([10.0, 30.0])) == pytest.approx(250 + 960 / 80)


def test_stationary_context_by_renewal() -> None:
    """One slot, refilled at once, looked at every step."""
    rng = np.random.default_rng(1)
    outputs = rng.geometric(1 / 50, 20_000)
    held = np.concatenate([200 + np.arange(length) for length in outputs])
    assert held.mean() == pytest.approx(pools.geometric_context(200, 50), rel=0.01)


@pytest.mark.parametrize(("replicas", "printed"), [(2, 0.564), (4, 1.029), (8, 1.424), (16, 1.766), (32, 2.070)])
def test_straggler_barrier(replicas: int, printed: float) -> None:
    # printed by simulation: exact are 0.5642, 1.0294, 1.4236, 1.7660, 2.0697
    assert normal_maximum(replicas) == pytest.approx(printed, abs=0.0006)
    drawn = np.random.default_rng(2).normal(2499, 300, (20_000, replicas)).max(axis=1).mean()
    assert pools.slowest_replica(replicas, 1, 2499, 300) == pytest.approx(drawn, rel=2e-3)
    assert pools.slowest_replica(replicas, 64, 2499, 300) == pytest.approx(64 * 2499 + normal_maximum(replicas) * 2400)


def test_straggler_barrier_exactly() -> None:
    assert normal_maximum(1) == pytest.approx(0, abs=1e-12)
    assert normal_maximum(2) == pytest.approx(np.pi**-0.5, rel=1e-12)
    assert normal_maximum(3) == pytest.approx(1.5 * np.pi**-0.5, rel=1e-12)
    assert all(later > earlier for earlier, later in pairwise(normal_maximum(n) for n in range(1, 300)))
