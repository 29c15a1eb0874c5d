"""The closed forms of the best plan against published figures, brute force and simulation."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import provisioning as pools
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from provisioning import Stage
from scipy.optimize import linprog
from test_schedule import ping_pong

from hwmodel.hardware import load_chip, with_number
from hwmodel.kernels.routing import distinct_experts
from hwmodel.loads import expected_maximum, normal_maximum, rank_imbalance, tile_efficiency
from hwmodel.lower.decoder import Formats
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.optimize import caches, knee, offload, racks
from hwmodel.optimize.offload import Device, Link, Offloaded
from hwmodel.routing import Routing, zipf
from hwmodel.spec.errors import InputError
from hwmodel.timeline import periods


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


@pytest.mark.parametrize(("attention", "slope", "fixed"), [(340, 20, 20), (150, 10, 160), (97, 3, 40)])
@pytest.mark.parametrize("wire", [0, 30])
def test_the_scheduler_finds_the_ratio_of_the_form(attention: int, slope: int, fixed: int, wire: int) -> None:
    """Four micro-batches hide transfers behind work: a layer takes as long as the slower side, at every whole ratio."""

    def rate(ratio: int) -> float:
        plan = ping_pong(4, attention, slope * ratio + fixed, wire, layers=20)
        return ratio / ((ratio + 1) * periods(*plan.program())[1] / (4 * 20))

    rates, stages = {ratio: rate(ratio) for ratio in range(1, 41)}, [Stage(slope, fixed)]
    for ratio, found in rates.items():
        assert found == pytest.approx(pools.throughput(ratio, 1.0, attention, stages), rel=1e-9)
    assert max(rates, key=lambda ratio: rates[ratio]) == pools.best_whole_ratio(attention, stages, 40)


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


# --- caches of experts (theory.md 3) ---------------------------------------------------------------------------------
def simulated_lru(popularity: np.ndarray, capacity: int, requests: int) -> float:
    """Share of hits of a cache that holds the last used, after as many requests to warm it."""
    asked = np.random.default_rng(4).choice(len(popularity), 2 * requests, p=popularity)
    kept: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for number, expert in enumerate(asked.tolist()):
        if expert in kept:
            kept.move_to_end(expert)
            hits += number >= requests
            continue
        kept[expert] = None
        if len(kept) > capacity:
            kept.popitem(last=False)
    return hits / requests


@pytest.mark.parametrize(
    ("s", "capacity", "lru", "lfu"),
    [(1.0, 32, 0.531, 0.663), (1.0, 64, 0.680, 0.775), (1.0, 128, 0.838, 0.887),
     (0.6, 32, 0.234, None), (0.6, 64, 0.401, None), (0.6, 128, 0.651, None)],
)  # fmt: skip
def test_hit_rates(s: float, capacity: int, lru: float, lfu: float | None) -> None:
    popularity = zipf(256, s)
    found = caches.lru_hit(popularity, capacity)
    assert found == pytest.approx(lru, abs=0.0005)
    assert found == pytest.approx(simulated_lru(popularity, capacity, 200_000), abs=0.005)
    assert lfu is None or caches.lfu_hit(popularity, capacity) == pytest.approx(lfu, abs=0.0005)
    assert capacity / 256 < found < caches.lfu_hit(popularity, capacity)


def test_hit_rates_at_the_ends() -> None:
    alike = np.full(256, 1 / 256)
    for capacity in (0, 1, 64, 256, 300):
        expected = min(1.0, capacity / 256)  # of any policy, where all are asked for alike
        assert caches.lru_hit(alike, capacity) == pytest.approx(expected)
        assert caches.lfu_hit(alike, capacity) == pytest.approx(expected)
    assert caches.lru_hit(np.array([0.5, 0.5, 0.0]), 2) == 1.0


def test_a_batch_bounds_the_hits() -> None:
    bins = Routing().bins(256, 8, 256, 1)
    found = [caches.batch_bound(64, distinct_experts(tokens, bins)) for tokens in (1, 8, 32, 128, 4096)]
    assert found == pytest.approx([1.0, 1.0, 64 / 163.31, 64 / 251.60, 64 / 256], rel=1e-4)


# --- tokens on experts (theory.md 2) ---------------------------------------------------------------------------------
def chosen(tokens: int, experts: int, topk: int, seed: int = 0) -> np.ndarray:
    """(tokens, topk) different experts, uniform."""
    return np.random.default_rng(seed).random((tokens, experts)).argpartition(topk - 1, axis=1)[:, :topk]


@pytest.mark.parametrize(
    ("experts", "topk", "tokens", "expected"),
    [(256, 8, 1, 8), (256, 8, 8, 57.42), (256, 8, 32, 163.31), (256, 8, 64, 222.44), (256, 8, 128, 251.60),
     (128, 8, 32, 111.77), (128, 4, 64, 111.22), (8, 2, 4, 5.469), (384, 8, 128, 358.06)],
)  # fmt: skip
def test_distinct_experts(experts: int, topk: int, tokens: int, expected: float) -> None:
    found = distinct_experts(tokens, Routing().bins(experts, topk, experts, 1))
    assert found == pytest.approx(expected, abs=0.005)
    drawn = [len(np.unique(chosen(tokens, experts, topk, seed))) for seed in range(100)]
    assert found == pytest.approx(np.mean(drawn), rel=0.02)


def test_pairs_are_conserved_and_all_experts_are_dense() -> None:
    for kind in ("uniform", "zipf"):
        routing = Routing(kind=kind, s=0.63)
        assert routing.inclusion(256, 8).sum() == pytest.approx(8)
        assert routing.inclusion(8, 8).tolist() == [1.0] * 8
        assert distinct_experts(3.0, routing.bins(8, 8, 8, 1)) == 8  # k = E: D = E
        assert expected_maximum(7, routing.inclusion(8, 8)) == 7
    assert rank_imbalance(64, 8, 8, 4) == 1
    assert rank_imbalance(64, 256, 8, 1) == 1
    assert distinct_experts(5.0, Routing().bins(1, 1, 1, 1)) == 1  # one expert: dense


@pytest.mark.parametrize(("tokens", "expected"), [(128, 10.52), (4096, 160.6), (16_384, 576.1)])
def test_fullest_expert(tokens: int, expected: float) -> None:
    found = expected_maximum(tokens, Routing().inclusion(256, 8))
    assert found == pytest.approx(expected, rel=1e-3, abs=0.005)
    if tokens == 128:
        drawn = [np.bincount(chosen(tokens, 256, 8, seed).ravel()).max() for seed in range(1500)]
        assert found == pytest.approx(np.mean(drawn), abs=0.08)


def test_fullest_expert_of_a_law() -> None:
    inclusion = Routing(kind="zipf", s=1.2).inclusion(16, 2)
    drawn = np.random.default_rng(3).binomial(40, inclusion, (50_000, 16)).max(axis=1).mean()
    assert expected_maximum(40, inclusion) == pytest.approx(drawn, rel=2e-3)
    assert expected_maximum(5, np.array([0.5, 0.0])) == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("tokens", "ranks", "expected"),
    [(4096, 8, 1.021), (4096, 32, 1.063), (4096, 64, 1.101), (4096, 128, 1.159), (4096, 256, 1.246), (1024, 32, 1.126)],
)
def test_imbalance_of_ranks(tokens: int, ranks: int, expected: float) -> None:
    found = rank_imbalance(tokens, 256, 8, ranks)
    assert found == pytest.approx(expected, abs=0.001)
    drawn = []
    for seed in range(20):
        loads = np.bincount(chosen(tokens, 256, 8, seed).ravel(), minlength=256).reshape(ranks, -1).sum(axis=1)
        drawn.append(loads.max() / loads.mean())
    assert found == pytest.approx(np.mean(drawn), abs=0.03)


@pytest.mark.parametrize(
    ("rows", "mean", "expected"),
    [(128, 96, 0.7495), (128, 128, 0.6773), (128, 32, 0.25), (128, 64, 0.5), (64, 16, 0.25), (64, 32, 0.5),
     (64, 64, 0.682), (64, 128, 0.808), (64, 256, 0.892)],
)  # fmt: skip
def test_tiles_over_random_groups(rows: int, mean: int, expected: float) -> None:
    tokens = mean * 32
    found = tile_efficiency(tokens, 1 / 32, rows)
    assert found == pytest.approx(expected, abs=0.0005)
    drawn = np.random.default_rng(5).binomial(tokens, 1 / 32, 200_000)
    assert found == pytest.approx(drawn.mean() / (rows * np.ceil(drawn / rows).mean()), rel=2e-3)


# --- experts outside the fast memory (theory.md 3) -------------------------------------------------------------------
FREE = 1e30
MIXTRAL = 3 * 4096 * 14336


def far_expert(near_peak: float, link: float, **changes: float) -> Offloaded:
    """A BF16 expert of Mixtral; what is not given is free: a stream bound by the link against arithmetic that binds."""
    found = Offloaded(MIXTRAL, 2, 0.0, Device(FREE, FREE), Device(near_peak, FREE), Link(link))
    return replace(found, **changes)


@pytest.mark.parametrize(("near", "link", "expected"), [(2e12, 25e9, 80), (20e12, 25e9, 800), (4e12, 55e9, 73)])
def test_crossing_of_link_and_arithmetic(near: float, link: float, expected: float) -> None:
    form = 2 * near / (2 * link)  # W / BW_l = 2 P m / F_n with W = b_w P, b_w = 2 bytes
    assert form == pytest.approx(expected, rel=0.02)
    assert far_expert(near, link).crossing() == pytest.approx(form, rel=1e-9)
    # activations (earlier) and the fast device's own time (later) move it by 11 % at most here
    whole = Offloaded(MIXTRAL, 2, 4 * 4096, Device(150e12, 1e12), Device(near, 300e9), Link(link, 10e-6))
    assert whole.crossing() == pytest.approx(form, rel=0.12)


def test_weights_of_an_expert_over_a_link() -> None:
    assert far_expert(1e12, 25e9).move_s(1) == pytest.approx(14.1e-3, rel=2e-3)
    assert far_expert(1e12, 55e9).move_s(1) == pytest.approx(6.4e-3, rel=2e-3)
    assert far_expert(1e12, 25e9, ahead_s=4e-3).move_s(1) == pytest.approx(10.1e-3, rel=2e-3)
    assert far_expert(1e12, 25e9, ahead_s=1.0, fast=Device(1e12, 1e12)).move_s(1) == pytest.approx(352.3e6 / 1e12, rel=1e-3)
    moved = Offloaded(MIXTRAL, 2, 4 * 4096, Device(FREE, FREE), Device(FREE, FREE), Link(1))
    assert moved.move_s(1) / moved.near_s(1) == pytest.approx(21_504)  # 3 h f b_w / (2 m h b_a): bytes for one token


_rate = st.integers(10**9, 10**14)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(_rate, _rate, _rate, _rate, _rate, st.floats(0, 1e-2), st.floats(0, 1e-4), st.sampled_from([0, 4096, 65536]))
def test_crossing_is_the_first_and_equals_bisection(
    fast: float, fast_bytes: float, near: float, near_bytes: float, link: float, ahead: float, latency: float, moved: float
) -> None:
    expert = Offloaded(MIXTRAL, 2, moved, Device(fast, fast_bytes), Device(near, near_bytes), Link(link, latency), ahead)
    wins = lambda tokens: expert.near_s(tokens) >= expert.move_s(tokens)  # noqa: E731
    assume(abs(1 / near - 1 / fast) > 0.01 / max(near, fast))  # else the two times differ by less than rounding
    found = expert.crossing()
    if found == 0:
        assert wins(0)
        return
    grid = np.geomspace(1e-3, 1e9, 400)
    assert not any(wins(tokens) for tokens in (0.0, *grid) if tokens < found * (1 - 1e-6))
    if found < 1e9:
        low, high = 0.0, float(min((tokens for tokens in grid if wins(tokens)), default=found))
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (low, middle) if wins(middle) else (middle, high)
        assert expert.near_s(found) == pytest.approx(expert.move_s(high), rel=1e-9)


def test_memory_bound_near_always_wins_over_a_slower_link() -> None:
    expert = far_expert(1e15, 25e9, near=Device(FREE, 26e9))
    assert expert.crossing() == float("inf")
    assert replace(expert, near=Device(FREE, 24e9)).crossing() == 0


def test_near_memory_bounds_tokens() -> None:
    model, fp8 = load_model("deepseek-v3"), fmt("fp8")
    assert offload.near_tokens_per_s(model, 460e9, fp8) == pytest.approx(22.5, abs=0.05)
    assert offload.near_tokens_per_s(model, 460e9, fp8, shared=True) == pytest.approx(20.0, abs=0.05)
    assert offload.near_tokens_per_s(model, 460e9, fmt("bf16")) == pytest.approx(11.25, abs=0.03)


def test_a_hot_expert_is_divided_so_that_both_finish_together() -> None:
    """Columns of an expert divide its weights and its products alike: t_near / (t_near + t_move)."""
    expert = Offloaded(MIXTRAL, 2, 4 * 4096, Device(150e12, 1e12), Device(2e12, 300e9), Link(25e9))
    for tokens in (1, 40, 80, 4000):
        (share,) = offload.assign([tokens], expert, side_by_side=True).fast
        assert share == pytest.approx(expert.near_s(tokens) / (expert.near_s(tokens) + expert.move_s(tokens)))


def brought(missed: int, link: float, left: float) -> float:
    """Of equal experts in host memory, those brought while the host computes the others with what its memory has left."""
    expert = far_expert(FREE, link, near=Device(FREE, left))
    return sum(offload.assign([1] * missed, expert, side_by_side=True).fast)


def test_missed_experts_are_shared_by_link_and_host() -> None:
    """The link reads the same memory: q = m BW_l / BW_h (FreeToken, arXiv 2608.16157); from another: m BW_l / (BW_l + BW_h)."""
    assert brought(1, 11.8e9, 47.5e9 - 11.8e9) == pytest.approx(0.248, abs=0.0005)
    for missed, link in ((8, 11.8e9), (8, 30e9), (5, 47.4e9)):
        assert brought(missed, link, 47.5e9 - link) == pytest.approx(missed * link / 47.5e9)
        assert brought(missed, link, 47.5e9) == pytest.approx(missed * link / (link + 47.5e9))


layers = st.lists(st.integers(0, 400), min_size=1, max_size=8)
experts = st.builds(
    far_expert, st.sampled_from([1e12, 4e12]), st.sampled_from([25e9, 100e9]), ahead_s=st.sampled_from([0.0, 1e-3]),
    fast=st.sampled_from([Device(1e14, 1e12), Device(1e13, 2e11)]), moved_bytes=st.sampled_from([0.0, 16384.0]),
)  # fmt: skip


@settings(derandomize=True, max_examples=120, deadline=None)
@given(layers, experts)
def test_places_equal_brute_force(tokens: list[int], expert: Offloaded) -> None:
    move = np.array([expert.move_s(m) if m else 0.0 for m in tokens])
    near = np.array([expert.near_s(m) if m else 0.0 for m in tokens])
    choices = np.array(list(product((0, 1), repeat=len(tokens))))
    one = offload.assign(tokens, expert)
    assert one.seconds == pytest.approx((choices @ move + (1 - choices) @ near).min())
    both = offload.assign(tokens, expert, side_by_side=True)
    share = np.array(both.fast)
    assert max(share @ move, (1 - share) @ near) == pytest.approx(both.seconds)
    assert both.seconds <= np.maximum(choices @ move, (1 - choices) @ near).min() * (1 + 1e-12)
    assert sum(0 < part < 1 for part in both.fast) <= 1
    # a linear program in the shares and the time
    n = len(tokens)
    rows = np.vstack([np.append(move, -1), np.append(-near, -1)])
    exact = linprog(np.append(np.zeros(n), 1), rows, [0, -near.sum()], bounds=[(0, 1)] * n + [(0, None)])
    assert both.seconds == pytest.approx(exact.fun, rel=1e-7, abs=1e-12)


@settings(derandomize=True, max_examples=60, deadline=None)
@given(layers)
def test_the_fast_device_takes_experts_by_a_threshold(tokens: list[int]) -> None:
    expert = far_expert(2e12, 25e9, fast=Device(1e14, 1e12), near=Device(2e12, 3e11), moved_bytes=16384.0)
    for side_by_side in (False, True):
        found = offload.assign(tokens, expert, side_by_side=side_by_side)
        for m, part in zip(tokens, found.fast, strict=True):
            if m != found.threshold:
                assert part == float(m > found.threshold)
        assert all(part == 0 for m, part in zip(tokens, found.fast, strict=True) if m == 0)
    threshold = offload.assign(tokens, expert).threshold
    assert threshold >= expert.crossing()


@pytest.mark.parametrize("side_by_side", [False, True])
def test_the_near_share_falls_with_tokens_and_with_the_link(side_by_side: bool) -> None:
    drawn = np.random.default_rng(6).poisson(1000 * zipf(64, 0.8)).astype(float)

    def near_share(scale: float, link: float) -> float:
        expert = far_expert(2e12, link, fast=Device(1e14, 1e12), near=Device(2e12, 3e11), moved_bytes=16384.0)
        fast = np.array(offload.assign(scale * drawn, expert, side_by_side=side_by_side).fast)
        return float((1 - fast).mean())

    for values in ([near_share(scale, 25e9) for scale in (0.2, 1, 5, 25, 100)],
                   [near_share(1, link) for link in (5e9, 25e9, 100e9, 400e9)]):  # fmt: skip
        assert all(later <= earlier + 1e-12 for earlier, later in pairwise(values))
        assert values[-1] < values[0]


# --- the batch per expert (theory.md 2) ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("chip", "dtype", "tokens", "batch"),
    [("h100_sxm", "bf16", 295, 9451), ("h100_sxm", "fp8", 295, 9451), ("b200_sxm", "fp8", 281, None),
     ("groq3_lpu", "fp8", 4.0, 128), ("h20_sxm", "fp8", 37, None)],
)  # fmt: skip
def test_knees(chip: str, dtype: str, tokens: float, batch: float | None) -> None:
    found = knee.knee(load_chip(chip), dtype, dtype)
    assert found == pytest.approx(tokens, abs=0.5 if tokens > 10 else 1e-9)
    if batch:
        assert knee.step_batch(found, 256, 8) == pytest.approx(batch, abs=5)
    assert [knee.efficiency(scale * found, found, overlapped=False) for scale in (1, 4, 9)] == pytest.approx([0.5, 0.8, 0.9])
    assert [knee.efficiency(scale * found, found) for scale in (0.5, 1, 4)] == pytest.approx([0.5, 1, 1])


def test_tokens_under_a_time_limit() -> None:
    # three stages of 16.6 ms over 61 layers leave 272 us (theory.md 1.2)
    assert pytest.approx(272e-6, abs=0.5e-6) == 16.6e-3 / 61
    found = knee.most_tokens(272e-6, 1e15, 44.04e6, 8, 22e-6)
    assert found * 8 * 2 * 44.04e6 / 1e15 == pytest.approx(250e-6)
    assert knee.most_tokens(10e-6, 1e15, 44.04e6, 8, 22e-6) == 0


# --- racks (issue; chips/groq3_lpu.yaml: 256 x 500 MB) ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "count", "load"),
    [("gpt-oss-120b", 1, 0.90), ("deepseek-v4-flash", 3, 2.16), ("deepseek-v3", 6, 5.11), ("kimi-k2.5", 8, 7.93)],
)
def test_racks_by_capacity(model: str, count: int, load: float) -> None:
    found = racks.expert_racks(load_model(model), load_chip("groq3_lpu"), fmt("fp8"), "fp8")
    assert found.count == count
    assert found.loads["capacity"] == pytest.approx(load, abs=0.005)
    assert found.limit == "capacity"
    assert bool(found.warning) == (model == "kimi-k2.5")
    if found.warning:
        assert "0.9% of the memory of 8 racks of 256 groq3_lpu" in found.warning


def test_racks_by_bandwidth_and_compute() -> None:
    model, chip = load_model("deepseek-v3"), load_chip("groq3_lpu")
    fp8, expert, layers = fmt("fp8"), 3 * 7168 * 2048, 58
    few = racks.expert_racks(model, chip, fp8, "fp8", batch=32, seconds=1e-6)
    assert few.limit == "bandwidth"
    assert few.loads["bandwidth"] == pytest.approx(layers * 163.31 * expert / (256 * 150e12 * 1e-6), rel=1e-4)
    many = racks.expert_racks(model, chip, fp8, "fp8", batch=32_768, seconds=1e-4)
    assert many.limit == "compute"
    assert many.loads["compute"] == pytest.approx(layers * 2 * 8 * expert * 32_768 / (256 * 1200e12 * 1e-4))
    assert many.count == np.ceil(many.loads["compute"])
    # beyond the knee compute binds, before it bandwidth: 128 tokens for (256, 8)
    for batch, limit in ((100, "bandwidth"), (160, "compute")):
        found = racks.expert_racks(model, chip, fp8, "fp8", batch=batch, seconds=1e-7).loads
        assert max(("bandwidth", "compute"), key=lambda key: found[key]) == limit
    assert racks.expert_racks(model, chip, fp8, "fp8", rack=64).count == 21
    small = racks.expert_racks(model, with_number(chip, "memory.sram.capacity", 250e6), fp8, "fp8")
    assert small.loads["capacity"] == pytest.approx(2 * 5.10866, rel=1e-5)


def test_racks_say_what_cannot_be() -> None:
    fp8, lpu = fmt("fp8"), load_chip("groq3_lpu")
    with pytest.raises(InputError, match="no routed experts"):
        racks.expert_racks(load_model("llama-3.1-8b"), lpu, fp8, "fp8")
    with pytest.raises(InputError, match=r"multiplies .*, not nvfp4"):
        racks.expert_racks(load_model("deepseek-v3"), lpu, fp8, "nvfp4")
    formats = Formats(fmt("bf16"), fp8, fp8)
    with pytest.raises(InputError, match="does not hold the"):
        racks.attention_chips(load_model("deepseek-v3"), lpu, formats, "fp8", batch=1, context=4096, seconds=1.0)
    with pytest.raises(InputError, match="does not read"):
        racks.attention_chips(
            load_model("deepseek-v3"), load_chip("rubin"), formats, "fp8", batch=1, context=4096, seconds=1e-6
        )


def test_attention_chips() -> None:
    model, chip, formats = load_model("deepseek-v3"), load_chip("rubin"), Formats(fmt("bf16"), fmt("fp8"), fmt("fp8"))
    found = racks.attention_chips(model, chip, formats, "fp8", batch=256, context=131_072, seconds=10e-3)
    cache = 256 * 61 * 576 * 131_072
    weights = 671.026e9 - 653.909e9  # all but the routed experts
    bandwidth, capacity = float(chip.main.bandwidth_bytes_per_s), float(chip.main.capacity_bytes)
    read = weights - 7168 * 129_280
    assert found.loads["bandwidth"] == pytest.approx(cache / (bandwidth * 10e-3 - read), rel=1e-3)
    assert found.loads["capacity"] == pytest.approx(cache / (0.92 * capacity - weights), rel=1e-3)
    flops = 256 * (2 * read + 61 * 2 * 128 * (576 + 512) * 131_073)
    assert found.loads["compute"] == pytest.approx(flops / (float(chip.peaks.by_dtype()["fp8"]) * 10e-3), rel=1e-3)
    longer = racks.attention_chips(model, chip, formats, "fp8", batch=256, context=262_144, seconds=10e-3)
    assert longer.loads["bandwidth"] == pytest.approx(2 * found.loads["bandwidth"])
