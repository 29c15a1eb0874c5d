"""Expert placement: random, and with redundant experts as EPLB plans it, against published imbalances and brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel import replication
from hwmodel.model.dtypes import fmt
from hwmodel.result import Result
from hwmodel.routing import Routing, zipf
from hwmodel.run import run
from hwmodel.scenario import load_scenario

EXPERTS, TOPK, RANKS = 256, 8, 32


def random_imbalance(loads: np.ndarray, ranks: int, draws: int = 2000) -> float:
    """Mean (max - mean) / mean over random placements."""
    rng = np.random.default_rng(0)
    placed = np.array([rng.permutation(loads).reshape(ranks, -1).sum(axis=1) for _ in range(draws)])
    return float((placed.max(axis=1) / placed.mean(axis=1)).mean() - 1)


def test_published_skew_under_random_placement() -> None:
    """DeepSeek-R1 on EP32: (max - mean) / mean 1.56 measured (TensorRT-LLM, examples/ep_load_balancer)."""
    assert random_imbalance(zipf(EXPERTS, 0.63), RANKS) == pytest.approx(1.56, abs=0.1)  # loads of pairs follow the law
    assert random_imbalance(zipf(EXPERTS, 0.8), RANKS) == pytest.approx(2.8, abs=0.2)
    # a token chooses different experts: the popular ones saturate, and the same exponent is milder
    assert random_imbalance(Routing(kind="zipf", s=0.63).inclusion(EXPERTS, TOPK), RANKS) == pytest.approx(1.29, abs=0.05)
    assert random_imbalance(np.ones(EXPERTS), RANKS, 2) == 0


@pytest.mark.parametrize("loads", [zipf(EXPERTS, 0.63), Routing(kind="zipf", s=0.63).inclusion(EXPERTS, TOPK)])
def test_replication_evens_the_ranks(loads: np.ndarray) -> None:
    slots, ranks = 288, 36
    found = replication.place(loads, slots, ranks)
    assert found.replicas.sum() == slots
    assert [len(held) for held in found.slots] == [8] * ranks
    assert np.array_equal(np.bincount(np.concatenate(found.slots), minlength=EXPERTS), found.replicas)
    assert found.imbalance(loads) <= 0.01
    fresh = np.random.default_rng(1).multinomial(1024 * ranks, loads / loads.sum(), 300)
    assert np.mean([found.imbalance(batch.astype(float)) for batch in fresh]) == pytest.approx(0.06, abs=0.01)


def test_a_plan_from_one_batch_is_worse_on_the_next() -> None:
    """Published after EPLB: 0.115 (TensorRT-LLM); counts of 1,024 tokens a rank are a noisy plan."""
    rng, law, found = np.random.default_rng(5), zipf(EXPERTS, 0.63), []
    for _ in range(20):
        plan = replication.place(rng.multinomial(1024 * RANKS, law).astype(float), 288, 36)
        found += [plan.imbalance(batch.astype(float)) for batch in rng.multinomial(1024 * 36, law, 20)]
    assert np.mean(found) == pytest.approx(0.10, abs=0.02)


def test_replicas_cost_memory() -> None:
    expert = 3 * 7168 * 2048
    assert replication.slots_bytes(288, expert) / replication.slots_bytes(256, expert) == 1.125
    assert replication.slots_bytes(288, expert) == 288 * expert
    with pytest.raises(ValueError, match="250 slots do not hold 256 experts"):
        replication.place(zipf(256, 1), 250, 25)


counts = st.lists(st.integers(0, 50), min_size=2, max_size=6)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(counts, st.integers(0, 4), st.integers(1, 3))
def test_placement_against_brute_force(loads: list[int], redundant: int, chips: int) -> None:
    tokens = np.array(loads, dtype=float)
    slots = len(loads) + redundant
    replicas = replication.replicate(tokens, slots)
    # no other way to hand out the slots has a lighter heaviest replica
    shares = [
        (tokens / np.array(other)).max()
        for other in product(range(1, redundant + 2), repeat=len(loads)) if sum(other) == slots
    ]  # fmt: skip
    assert (tokens / replicas).max() == pytest.approx(min(shares))
    found = replication.place(tokens, slots, chips)
    each, room = np.repeat(tokens / replicas, replicas), -(-slots // chips)
    packed = (np.bincount(where, each, chips) for where in product(range(chips), repeat=slots)
              if np.bincount(where, minlength=chips).max() <= room) if slots <= 7 else ()  # fmt: skip
    best = min((float(load.max()) for load in packed), default=None)
    heaviest = max((float(share.sum()) for share in found.shares(tokens)), default=0.0)
    assert heaviest >= replication.lower_bound(tokens, slots, chips) - 1e-9
    assert sum(share.sum() for share in found.shares(tokens)) == pytest.approx(tokens.sum())
    if best is not None:
        assert best - 1e-9 <= heaviest <= 4 / 3 * best + 1e-9  # Graham's bound for LPT


def test_more_slots_never_raise_the_heaviest_replica() -> None:
    loads = zipf(64, 1.1)
    heaviest = [(loads / replication.replicate(loads, slots)).max() for slots in range(64, 200)]
    assert heaviest == sorted(heaviest, reverse=True)
    assert replication.place(loads, 64, 64).imbalance(loads) == pytest.approx(loads.max() * 64 - 1)


# --- in a plan -------------------------------------------------------------------------------------------------------
def step(degree: int, redundant: int, routing: str, batch: int = 4096, **pool: int) -> Result:
    changes = [f"plan.0={{expert: {{degree: {degree}, redundant: {redundant}}}}}", f"workload.routing={routing}",
               f"workload.batch={batch}", "workload.context=1024", f"cluster.pools.gpu.count={degree}"]  # fmt: skip
    return run(load_scenario("rubin_deepseek_v3", changes))


def test_redundant_slots_are_charged() -> None:
    plain, more = step(32, 0, "{kind: uniform}"), step(32, 32, "{kind: uniform}")
    experts = 58 * 8 * 3 * 7168 * 2048 * fmt("fp8_block").bytes  # 8 of 256 on a chip
    assert more.memory[0].weights_bytes - plain.memory[0].weights_bytes == pytest.approx(experts / 8, rel=1e-6)
    # 256 experts on 36 groups are padded to 8 slots each: so many redundant ones cost nothing
    plain, more = step(36, 0, "{kind: uniform}"), step(36, 32, "{kind: uniform}")
    assert more.memory[0].weights_bytes == plain.memory[0].weights_bytes
    assert any("256 experts over 36 groups: padded to 8 slots each" in warning for warning in plain.warnings)
    assert not any("padded" in warning for warning in more.warnings)


def test_the_busiest_chip_follows_the_placement() -> None:
    law = Routing(kind="zipf", s=0.63)
    loads = law.inclusion(EXPERTS, TOPK)
    plain, more = law.bins(EXPERTS, TOPK, EXPERTS, 36), law.bins(EXPERTS, TOPK, EXPERTS, 36, redundant=32)
    mean = TOPK / 36
    assert (plain[:, 0] * plain[:, 1]).sum() > 1.8 * mean
    assert (more[:, 0] * more[:, 1]).sum() == pytest.approx(mean, rel=0.01)
    found = replication.place(np.random.default_rng(0).permutation(loads), 288, 36)
    assert more[:, 1].sum() == len(found.slots[0])
    # all experts chosen, and alike ones: 32 of 256 in two slots leave the fullest of 36 with 7 whole and one half
    for routing, k in ((law, EXPERTS), (Routing(), TOPK)):
        bins = routing.bins(EXPERTS, k, EXPERTS, 36, redundant=32)
        assert (bins[:, 0] * bins[:, 1]).sum() == pytest.approx(7.5 * k / EXPERTS)
    part = law.bins(EXPERTS, TOPK, 128, 32, 64, 32)  # half of the experts, in 160 slots of 32 chips
    assert part[:, 1].sum() == 5


def test_replication_speeds_a_skewed_step_and_work_is_conserved() -> None:
    skewed = "{kind: zipf, s: 0.8}"
    plain, more, even = step(36, 0, skewed, 65_536), step(36, 32, skewed, 65_536), step(36, 0, "{kind: uniform}", 65_536)
    # evenly loaded groups of 256 / 36 experts beat 8 padded slots of alike experts, and these the random placement
    assert more.step.time_s < even.step.time_s < plain.step.time_s
    work = lambda found: next(op.flops for op in found.ops if op.op == "layer3.experts_up")  # noqa: E731
    assert work(more) / work(even) == pytest.approx(256 / 36 / 8, rel=0.01)
    assert step(36, 64, skewed, 65_536).step.time_s <= plain.step.time_s


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (["plan.0={expert: {degree: 8, redundant: 1800}}"],
         "1800 redundant slots beside 256 experts on 8 groups; 1792 are enough"),
        (["plan=[{expert: {degree: 72, redundant: 8}}, {offload: {tier: lpddr, fraction: 0.5}}]"],
         "redundant experts need all experts of a layer in one memory"),
        (["plan=[{expert: {degree: 72, redundant: 8}}, {offload: {to: host}}]",
          "cluster.pools.host={chip: vera, count: 1}",
          "cluster.links=[{from: gpu, to: host, bandwidth: 900 GB/s, latency: 2 us}]"],
         "experts that are streamed from another pool have no redundant slots"),
        (["plan.0={expert: {degree: 300, redundant: 8}}", "cluster.pools.gpu.count=300"], "300 groups for 264 expert slots"),
    ],
)  # fmt: skip
def test_plans_that_cannot_replicate(changes: list[str], reason: str) -> None:
    result = run(load_scenario("rubin_deepseek_v3", changes))
    assert not result.feasible
    assert any(reason in found for found in result.reasons), result.reasons
