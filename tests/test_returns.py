"""Return prediction: what is predicted, how well, and what it is worth."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.serve.foresight import foresight
from hwmodel.serve.idle_cache import Clairvoyant, Lru, Predicted, limited
from hwmodel.serve.keeping import (
    DROP,
    Plan,
    Prices,
    Tier,
    cheapest,
    clairvoyant,
    held,
    held_at_most_s,
    idle_share,
    outcome,
    priced,
)
from hwmodel.serve.logistic import fit
from hwmodel.serve.predictors import Predictor, per_request
from hwmodel.serve.predictors.constant import Always, Never, Rate
from hwmodel.serve.predictors.learned import Learned
from hwmodel.serve.predictors.noisy import Noisy
from hwmodel.serve.predictors.oracle import Oracle
from hwmodel.serve.readers import recorded
from hwmodel.serve.readers.closed import Call, closed_loop
from hwmodel.serve.returns import Returns, auc, break_even_s, rates, returns_of
from hwmodel.serve.synthetic import started
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError

HBM = priced(prefill_s_per_token=35.7e-6, usd_per_hour=16, kv_bytes_per_token=327_680, free_bytes=499e9)
"""Theory item 14: Llama-3.1-70B on 8 H100."""
TIERED = priced(35.7e-6, 16, 327_680, 499e9, (("dram", 1 / 20, 440e9),), usd_per_waited_s=16 / 3600)


def made(n: int, seed: int = 0, back: float = 0.6, mean_gap_s: float = 100.0, horizon_s: float = 600.0) -> Returns:
    """Calls of one kind that return with a probability, after exponential gaps (cut at the horizon), and reuse all."""
    rng = np.random.default_rng(seed)
    gap = np.where(rng.random(n) < back, np.minimum(rng.exponential(mean_gap_s, n), horizon_s), np.inf)
    context = rng.integers(1_000, 100_000, n)
    following = np.where(np.isfinite(gap), 0, -1)
    reused, end = np.where(np.isfinite(gap), context, 0), np.sort(rng.random(n)) * n * 2.0
    return Returns(np.arange(n), following, end, gap, context, reused, np.zeros(n, np.int64), horizon_s, int(context.sum()))


def session(gaps_s: list[float], steps: list[str], number: int = 0, start_s: float = 0.0, offset: int = 0) -> list[Call]:
    """Calls of one conversation, 10 s each, whose prompts grow by 64 tokens."""
    gaps = [0.0, *gaps_s]
    return [
        Call(64 * (k + 1), 5, 64 * k, step, number, number, 0, offset + k - 1 if k else -1, gaps[k], 10.0, start_s)
        for k, step in enumerate(steps)
    ]


# --- what is predicted ------------------------------------------------------------------------------------------------
def test_returns_of_a_conversation_by_hand() -> None:
    trace = closed_loop(session([5, 700], ["tool_use", "end_turn", "end_turn"]), 64, "")
    found = returns_of(trace, 600)
    assert found.gap_s.tolist() == [5, 700, np.inf]
    assert found.came.tolist() == [True, False, False]
    assert found.next.tolist() == [1, 2, -1]
    assert found.reused.tolist() == [64, 128, 0]
    assert found.end_s.tolist() == [10, 25, 735]
    assert found.prompt_tokens == 64 + 128 + 192
    assert rates(found).tolist() == [1, 0, 0]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(calls: list[tuple[bool, int]]) -> None:
    came, score = np.array([c for c, _ in calls]), np.array([float(s) for _, s in calls])
    pairs = [(a > b) + (a == b) / 2 for a, b in itertools.product(score[came], score[~came])]
    found = auc(came, score)
    assert np.isnan(found) if not pairs else found == pytest.approx(sum(pairs) / len(pairs))


def test_every_predictor_is_found_and_says_probabilities() -> None:
    assert {"oracle", "noisy", "always", "never", "rate", "learned"} <= set(Predictor.kinds)
    trace = closed_loop(session([5, 700], ["tool_use", "end_turn", "end_turn"]), 64, "")
    found = returns_of(trace)
    for kind, predictor in Predictor.kinds.items():
        chance = predictor.model_validate({"auc": 0.7} if kind == "noisy" else {}).chances(trace, found)
        assert chance.shape == (3,)
        assert ((chance >= 0) & (chance <= 1)).all()
    assert per_request(trace, Oracle()).tolist() == [1, 0, 0]


def test_requests_of_no_conversation_are_not_predicted() -> None:
    trace = closed_loop(session([5], ["tool_use", "end_turn"]), 64, "")
    apart = replace(trace, chain=np.full(2, -1))
    assert len(returns_of(apart)) == 0
    for predictor in (Never(), Learned()):
        assert per_request(apart, predictor).tolist() == [1, 1]
    with pytest.raises(InputError, match="has no conversations"):
        foresight(apart, HBM)


BARE = closed_loop([Call(64, 1, 0)], 64, "")


@pytest.mark.parametrize("quality", [0.55, 0.69, 0.9, 0.99])
def test_noisy_predictors_have_the_auc_they_are_given_and_are_calibrated(quality: float) -> None:
    found = made(60_000)
    chance = Noisy(auc=quality).chances(BARE, found)
    assert auc(found.came, chance) == pytest.approx(quality, abs=0.01)
    for low in (0.1, 0.3, 0.5, 0.7, 0.9):
        part = (chance > low - 0.1) & (chance < low + 0.1)
        if part.sum() > 500:
            assert found.came[part].mean() == pytest.approx(chance[part].mean(), abs=0.04)


def test_a_half_is_a_coin_and_one_is_the_oracle() -> None:
    found = made(2_000)
    np.testing.assert_allclose(Noisy(auc=0.5).chances(BARE, found), found.came.mean())
    assert auc(found.came, Noisy(auc=0.5).chances(BARE, found)) == 0.5
    assert (Noisy(auc=1).chances(BARE, found) == Oracle().chances(BARE, found)).all()
    assert auc(found.came, Oracle().chances(BARE, found)) == 1


def test_a_noisy_predictor_may_see_some_ends_only() -> None:
    found = replace(made(4_000), step=np.arange(4_000) % 2)
    two = replace(BARE, steps=("tool_use", "end_turn"))
    chance = Noisy(auc=0.9, only=("end_turn",)).chances(two, found)
    assert len(set(chance[::2])) == 1
    assert auc(found.came[1::2], chance[1::2]) == pytest.approx(0.9, abs=0.02)


# --- learning ---------------------------------------------------------------------------------------------------------
def test_logistic_regression_finds_the_weights_that_made_the_data() -> None:
    rng = np.random.default_rng(1)
    what = rng.normal(3, 2, (40_000, 3))
    true = np.array([0.8, -0.5, 0.0])
    came = rng.random(40_000) < 1 / (1 + np.exp(-(what @ true - 0.4)))
    model = fit(what, came, ridge=1e-6)
    np.testing.assert_allclose(model.weights[1:] / model.scale, true, atol=0.03)
    # the score equations of the maximum: residuals are orthogonal to every feature
    assert np.abs(what.T @ (came - model.predict(what))).max() < 1e-3
    assert model.predict(what).mean() == pytest.approx(came.mean(), abs=1e-6)


def test_logistic_regression_bears_what_separates_and_what_is_constant() -> None:
    what = np.column_stack((np.arange(50.0), np.ones(50)))
    for came in (what[:, 0] > 20, np.ones(50, bool), np.zeros(50, bool)):
        chance = fit(what, came).predict(what)
        assert np.isfinite(chance).all()
        assert ((chance > 0.5) == came).all()


def patterned(sessions: int, seed: int = 4) -> Trace:
    """Conversations that end after their first long pause: whoever was quick comes back, whoever was slow does not."""
    rng = np.random.default_rng(seed)
    calls: list[Call] = []
    for k in range(sessions):
        quick = int(rng.integers(1, 6))
        gaps = [*rng.uniform(1, 20, quick), float(rng.uniform(200, 500))]
        calls += session(gaps, ["end_turn"] * (quick + 2), k, 60.0 * k, len(calls))
    return closed_loop(calls, 64, "")


def test_the_learner_learns() -> None:
    trace = patterned(400)
    found = returns_of(trace)
    late = slice(len(found) // 4, None)
    chance = Learned().chances(trace, found)
    assert auc(found.came[late], chance[late]) > 0.95
    assert auc(found.came, Rate().chances(trace, found)) == 0.5


def test_the_learner_knows_the_past_only() -> None:
    """What comes after a moment changes nothing that was said before it."""
    trace = patterned(200)
    found = returns_of(trace)
    chance = Learned().chances(trace, found)
    until = int(len(found) * 0.6)
    now = found.end_s[until - 1]
    unknown = found.end_s[:until] + found.gap_s[:until] > now
    gap = np.where(unknown, np.inf, found.gap_s[:until])
    columns = {name: getattr(found, name)[:until] for name in ("call", "next", "end_s", "context", "reused", "step")}
    part = replace(found, gap_s=gap, **columns)
    assert unknown.sum() > 5
    assert (Learned().chances(trace, part) == chance[:until]).all()
    assert len(set(chance[:until])) > 50


# --- keep, demote, drop -----------------------------------------------------------------------------------------------
def test_break_even_times_of_theory_item_14() -> None:
    assert break_even_s(35.7e-6, 499e9, 327_680) == pytest.approx(54.4, abs=0.1)
    assert held_at_most_s(HBM, 0) == pytest.approx(break_even_s(35.7e-6, 499e9, 327_680))
    assert held_at_most_s(TIERED, 0) == pytest.approx(2 * 54.4, abs=0.1)  # a waited second is worth as much as the instance's
    twenty = priced(35.7e-6, 16, 327_680, 499e9, (("dram", 1 / 20, 440e9),))
    assert held_at_most_s(twenty, 1) / 60 == pytest.approx(18, abs=0.2)


def test_an_outcome_by_hand() -> None:
    """Two calls of 1,000 tokens, back after 10 s and never; HBM for 20 s, then DRAM to 100 s."""
    prices = Prices(1e-3, 2.0, 1.0, (Tier("hbm", 1e-3), Tier("dram", 1e-4, 500.0)), usd_per_waited_s=0.5)
    found = Returns(np.arange(2), np.array([1, -1]), np.zeros(2), np.array([10.0, np.inf]), np.array([1000, 1000]),
                    np.array([900, 0]), np.zeros(2, np.int64), 100.0, 4000)  # fmt: skip
    plan = Plan(np.array([0.0, 20.0, 100.0]), np.array([[0, 1], [0, 1]]))
    one = outcome(found, plan, prices)
    assert one.hit == 900 / 4000
    assert one.recomputed == 0
    assert one.hold_usd == pytest.approx(1000 * (1e-3 * (10 + 20) + 1e-4 * 80))
    assert one.saved_s == pytest.approx(0.9 / 2)
    assert one.miss_usd == 0
    demoted = outcome(found, Plan(np.array([0.0, 5.0, 100.0]), np.array([[0, 1], [DROP, DROP]])), prices)
    assert demoted.hold_usd == pytest.approx(1000 * (1e-3 * 5 + 1e-4 * 5))
    assert demoted.saved_s == pytest.approx((0.9 - 900 / 500) / 2)  # loading is slower than computing
    assert demoted.miss_usd == pytest.approx(900 / 500 * 0.5)
    none = outcome(found, held(found, DROP, 100), prices)
    assert (none.hit, none.hold_usd, none.recomputed) == (0, 0, 900)
    assert none.miss_usd == pytest.approx(0.9 * 2.5)


def test_who_surely_returns_is_kept_and_who_surely_does_not_is_dropped() -> None:
    found = made(50, mean_gap_s=5.0)
    assert (cheapest(found, np.zeros(50), HBM).tier == DROP).all()
    kept = cheapest(found, np.ones(50), HBM)
    assert (kept.tier[:, 0] == 0).all()
    assert outcome(found, cheapest(found, np.zeros(50), HBM), HBM) == outcome(found, held(found, DROP, 1), HBM)


@pytest.mark.parametrize("prices", [HBM, TIERED], ids=["hbm", "tiered"])
@pytest.mark.parametrize("chance", [0.05, 0.3, 0.6, 0.9, 1.0])
def test_the_cheapest_plan_is_the_best_of_all_that_go_down(prices: Prices, chance: float) -> None:
    """Every way down through the tiers is the oracle, on a grid of 5 times."""
    found = made(400, mean_gap_s=60.0)
    plan = cheapest(found, np.full(400, chance), prices, edges=5)
    alive = idle_share(found, plan.edges_s)[0]
    still = chance * alive + 1 - chance
    idle = (still[1:] + still[:-1]) / 2 * np.diff(plan.edges_s)
    comes = chance * (alive[:-1] - alive[1:])
    context, tiers = found.context[0], len(prices.tiers)

    def cost(way: tuple[int, ...]) -> float:
        rent = [*(float(prices.hold_usd_per_s(k, context)) for k in range(tiers)), 0.0]
        miss = [
            *(float(prices.load_s(k, context)) * prices.usd_per_waited_s for k in range(tiers)),
            float(prices.miss_usd(context)),
        ]
        return sum(rent[k] * idle[m] + miss[k] * comes[m] for m, k in enumerate(way))

    ways = [way for way in itertools.product(range(tiers + 1), repeat=5) if list(way) == sorted(way)]
    chosen = tuple(tiers if k == DROP else int(k) for k in plan.tier[0])
    assert list(chosen) == sorted(chosen)
    assert cost(chosen) == pytest.approx(min(map(cost, ways)), rel=1e-12)


@pytest.mark.parametrize(("prices", "mean_gap_s"), [(HBM, 30.0), (TIERED, 100.0)], ids=["hbm", "tiered"])
def test_a_better_predictor_costs_less(prices: Prices, mean_gap_s: float) -> None:
    """Where calls are as the plan takes them to be, cost falls with AUC from that of the rate to that of the oracle."""
    found = made(40_000, mean_gap_s=mean_gap_s)

    def usd(predictor: Predictor) -> float:
        return outcome(found, cheapest(found, predictor.chances(BARE, found), prices), prices).usd

    costs = [usd(Noisy(auc=quality)) for quality in (0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0)]
    assert (np.diff(costs) < costs[0] * 1e-3).all()
    assert costs[0] == pytest.approx(usd(Rate()))
    assert costs[-1] == pytest.approx(usd(Oracle()))
    assert costs[-1] < 0.9 * costs[0]
    perfect = outcome(found, clairvoyant(found, prices), prices).usd
    assert perfect <= costs[-1]
    assert max(costs) <= usd(Never())


def test_the_break_even_time_costs_at_most_twice_what_perfect_information_does() -> None:
    """Renting until the rent equals the price (Karlin et al., Algorithmica 3, 1988), where all come back."""
    for mean in (1.0, 50.0, 500.0):
        found = made(3_000, back=1.1, mean_gap_s=mean, horizon_s=1e9)
        until = outcome(found, held(found, 0, held_at_most_s(HBM, 0)), HBM).usd
        perfect = outcome(found, clairvoyant(found, HBM), HBM).usd
        assert perfect <= until <= 2 * perfect * (1 + 1e-9)


# --- a memory of limited size -----------------------------------------------------------------------------------------
def visits(*calls: tuple[float, float, int]) -> Returns:
    """Ends, gaps and contexts of calls that reuse all."""
    end, gap, context = (np.array(column) for column in zip(*calls, strict=True))
    n = len(end)
    return Returns(np.arange(n), np.zeros(n, np.int64), end.astype(float), gap.astype(float), context,
                   np.where(np.isfinite(gap), context, 0), np.zeros(n, np.int64), 600.0, int(context.sum()))  # fmt: skip


def test_who_is_put_out_by_hand() -> None:
    """Room for two: LRU puts out the first, who comes back; who knows puts out the second, who never does."""
    found = visits((0, 10, 100), (1, np.inf, 100), (2, 5, 100))
    assert limited(found, Lru(), 200, HBM).hit == pytest.approx(100 / 300)
    assert limited(found, Clairvoyant(), 200, HBM).hit == pytest.approx(200 / 300)
    assert limited(found, Predicted(found, found.came.astype(float)), 200, HBM).hit == pytest.approx(200 / 300)
    assert limited(found, Lru(), 300, HBM).hit == pytest.approx(200 / 300)
    assert limited(found, Lru(), 99, HBM).hit == 0
    rent = limited(found, Lru(), 200, HBM).hold_usd
    assert rent == pytest.approx(2 * float(HBM.hold_usd_per_s(0, np.array(200))))


@pytest.mark.parametrize("seed", range(5))
def test_no_policy_beats_the_one_that_knows_when_all_are_of_one_size(seed: int) -> None:
    """Belady's optimum holds for equal sizes; with room for all every policy hits all."""
    found = made(600, seed, mean_gap_s=80.0)
    found = replace(found, context=np.full(600, 1000), reused=np.where(found.came, 1000, 0), prompt_tokens=600_000)
    noisy = Predicted(found, Noisy(auc=0.8, seed=seed).chances(BARE, found))
    for size in (3_000, 10_000, 30_000):
        best = limited(found, Clairvoyant(), size, HBM).hit
        sure = limited(found, Predicted(found, found.came.astype(float)), size, HBM).hit
        lru = limited(found, Lru(), size, HBM).hit
        assert best >= sure
        assert best >= limited(found, noisy, size, HBM).hit
        assert best > lru
        assert sure > lru
    room = [limited(found, policy, 1e9, HBM) for policy in (Lru(), Clairvoyant(), noisy)]
    assert {one.hit for one in room} == {found.reused.sum() / 600_000}
    assert {one.recomputed for one in room} == {0}


def test_a_larger_memory_hits_more() -> None:
    found = made(800, 3)
    hits = [limited(found, Lru(), size, HBM).hit for size in (1e5, 1e6, 3e6, 1e7)]
    assert (np.diff(hits) > 0).all()


# --- the agents' runs -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def agents(shared: Path) -> Trace:
    return started(recorded(shared / "traces" / "agentic_weka" / "weka_requests.csv.gz"), 1 / 120)


def test_agents_return_as_measured(agents: Trace) -> None:
    """Facts: 60.3 % return within 10 minutes after a turn's end (710 runs); 26 % of gaps <= 60 s, 92 % <= 1 h."""
    found = returns_of(agents)
    ends = found.step == agents.steps.index("end_turn")
    assert found.came[ends].mean() == pytest.approx(0.603, abs=0.02)
    gaps = found.gap_s[ends]
    gaps = gaps[np.isfinite(gaps)]
    for limit, share in ((60, 0.26), (300, 0.57), (600, 0.69), (3600, 0.92)):
        assert (gaps <= limit).mean() == pytest.approx(share, abs=0.04)
    tools = found.step == agents.steps.index("tool_use")
    assert found.came[tools].mean() > 0.97
    assert found.reused.sum() / found.prompt_tokens == pytest.approx(0.962, abs=0.002)


def test_policies_side_by_side_on_the_agents(agents: Trace) -> None:
    side = foresight(agents, TIERED, capacity_tokens=1e6, tier=1, aucs=(0.69,))
    hits = {row.name: row.limited.hit for row in side.rows if row.limited}
    assert hits["never"] == 0 < hits["LRU"] < hits["rate"] < hits["oracle"] < hits["perfect information"]
    assert hits["LRU"] < hits["AUC 0.69"] < hits["oracle"]
    assert hits["LRU"] < hits["learned"]
    assert side.row("rate").auc == pytest.approx(0.752, abs=0.005)
    assert side.row("learned").auc > side.row("rate").auc
    assert side.row("oracle").auc == 1
    ends = side.returns.step == agents.steps.index("end_turn")
    learned = Learned().chances(agents, side.returns)
    assert 0.57 < auc(side.returns.came[ends], learned[ends]) < 0.69  # facts: 0.64 with more features, fitted on all
    assert 0 < side.worth_usd("AUC 0.69") < side.worth_usd("oracle") <= side.worth_usd("perfect information")
    assert side.worth_usd("rate") == 0
    assert side.worth_usd("never") < 0
    usd = {row.name: row.rented.usd for row in side.rows if row.rented}
    assert usd["perfect information"] < usd["rate"] < usd["never"]
    assert side.break_even_s[0] == pytest.approx(108.7, abs=0.1)


def test_always_is_the_rate_without_its_doubt(agents: Trace) -> None:
    found = returns_of(agents)
    assert outcome(found, cheapest(found, Always().chances(agents, found), HBM), HBM).usd > (
        outcome(found, cheapest(found, Rate().chances(agents, found), HBM), HBM).usd
    )
