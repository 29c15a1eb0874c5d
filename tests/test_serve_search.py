"""Searches over services: sizes, rates, ratios, how sure the answer is, and what the doubt about a step does to it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hwmodel.cli import cli
from hwmodel.serve.doubt import doubtful, factors
from hwmodel.serve.ratio import mix
from hwmodel.serve.search import GOOD, find, interval
from hwmodel.serve.simulate import answer, kinds_of, load_service, requests_of
from hwmodel.spec.errors import InputError

BUSY = ["serving.trace.rate=40 /s", "serving.trace.requests=600"]
SLO = {"ttft": 0.1, "tpot": 12e-3}


def test_a_search_finds_the_smallest_fleet_and_the_highest_rate() -> None:
    service = load_service("w1_llama_8b_h100", BUSY)
    work = requests_of(service)
    found = find(service, work, "chips", SLO)
    size = found.service.serving.instances
    assert found.good >= GOOD
    assert size > 1
    assert answer(service.sized(size - 1), work, SLO).good < GOOD
    fastest = find(service.sized(2), work, "rate", SLO)
    assert fastest.found is not None
    scale = max(t["rate_scale"] for t in fastest.found["tried"] if t["goodput_share"] >= GOOD)
    assert fastest.good >= GOOD > answer(service.sized(2), work.scaled(scale * 1.02), SLO).good
    with pytest.raises(InputError, match="targets"):
        find(load_service("w1_llama_8b_h100", ["serving.slo={}"]), work, "rate")


def test_several_seeds_are_served_at_every_size_and_their_mean_decides() -> None:
    service = load_service("w1_llama_8b_h100", BUSY)
    works = [requests_of(service, seed) for seed in (1, 2, 3, 4)]
    found = find(service, works, "chips", SLO)
    assert found.found is not None
    size = found.found["instances"]
    shares = [answer(service.sized(size), work, SLO).good for work in works]
    assert found.found["goodput_share"] == pytest.approx(np.mean(shares))
    assert found.found["goodput_low"] <= found.found["goodput_share"] <= found.found["goodput_high"]
    fewer = [answer(service.sized(size - 1), work, SLO).good for work in works]
    assert np.mean(fewer) < GOOD <= np.mean(shares)
    assert find(service, works, "chips", SLO).found == found.found, "the same seeds, the same answer"


def test_students_interval_by_hand() -> None:
    """Mean 0.9, deviation 0.02, three of them: 4.303 x 0.02 / sqrt(3)."""
    mean, low, high = interval([0.88, 0.90, 0.92])
    assert mean == pytest.approx(0.9)
    assert high - mean == pytest.approx(4.303 * 0.02 / 3**0.5)
    assert mean - low == pytest.approx(high - mean)
    assert interval([0.5]) == (0.5, 0.0, 1.0), "one run says nothing of its doubt"
    rng = np.random.default_rng(0)
    inside = [low <= 0.7 <= high for _, low, high in (interval(rng.normal(0.7, 0.05, 5).tolist()) for _ in range(2000))]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_the_interval_of_one_trace_comes_from_its_batches() -> None:
    service = load_service("w1_llama_8b_h100", BUSY)
    found = find(service, requests_of(service), "rate", SLO).found
    assert found is not None
    assert found["seeds"] == 1
    assert 0.0 < found["goodput_low"] < found["goodput_share"] <= found["goodput_high"] <= 1.0


@pytest.mark.parametrize(("prompt", "output", "more"), [(8000, 20, "prefill"), (200, 600, "decode")])
def test_the_ratio_follows_the_work(prompt: int, output: int, more: str) -> None:
    """Long prompts want prefill instances, long answers decode instances; with one of either less the targets are missed."""
    service = load_service("h100_1p1d_llama_8b", [
        f"serving.trace.prompt={{mean: {prompt}}}", f"serving.trace.output={{mean: {output}}}", "serving.trace.requests=300",
        f"serving.trace.rate={16 if more == 'prefill' else 60} /s",
    ])  # fmt: skip
    work = requests_of(service)
    targets = {"ttft": 2.0, "tpot": 20e-3}
    told = find(service, work, "ratio", targets).found
    assert told is not None
    assert told["met"]
    other = "decode" if more == "prefill" else "prefill"
    assert told[more] > told[other]
    for fewer in ((1, 0), (0, 1)):
        sides = told["prefill"] - fewer[0], told["decode"] - fewer[1]
        if min(sides) >= 1:
            assert answer(mix(service, *sides), work, targets).good < GOOD


def test_a_ratio_of_unlike_chips_is_judged_by_dollars() -> None:
    side = "{{instances: 1, cluster: {{pools: {{gpu: {{chip: {}, count: 1, stack: vllm}}}}}}}}"
    service = load_service("h100_1p1d_llama_8b", [
        f"serving.prefill={side.format('h100_sxm')}", f"serving.decode={side.format('h200_sxm')}", "serving.trace.requests=300",
        "serving.trace.rate=30 /s",
    ])  # fmt: skip
    told = find(service, requests_of(service), "ratio").found
    assert told is not None
    assert told["met"]
    good = [row["usd_per_hour"] for row in told["tried"] if row["goodput_share"] >= GOOD]
    assert told["usd_per_hour"] == min(good)
    with pytest.raises(InputError, match="ratio"):
        find(load_service("w1_llama_8b_h100"), requests_of(service), "ratio")


def test_the_doubt_about_steps_becomes_doubt_about_goodput() -> None:
    """Every step as slow, and as quick, as its 80 % interval allows; times scale exactly."""
    service = load_service("w1_llama_8b_h100", ["serving.trace.rate=12 /s", "serving.trace.requests=400"])
    work = requests_of(service)
    kind = kinds_of(service, work)[0]
    low, high = factors(kind)
    assert low < 1 < high
    points = np.array([[32, 1000, 0, 1, 0.0], [8, 500, 2, 700, 100.0]])
    np.testing.assert_allclose(kind.steps.times_factor(high).times(points), high * kind.steps.times(points), rtol=1e-12)
    found = answer(service, work, {"tpot": 8.5e-3}, (kind,))
    told = doubtful(found, [work])
    assert told["share_low"] < found.good < told["share_high"]


def test_the_command_searches_over_seeds() -> None:
    arguments = ["simulate", "w1_llama_8b_h100", "--requests", "200", "--find", "chips", "--seeds", "2", "--json"]
    found = CliRunner().invoke(cli, arguments)
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["find"]
    assert told["seeds"] == 2
    assert told["chips"] == told["instances"] == 1
    assert {"share_low", "share_high", "steps"} <= told["doubt"].keys()
    plain = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", "--find", "chips", "--seeds", "2", "--requests", "200"])
    assert "95 % interval" in plain.stdout
    assert "found: 1 instances (1 chips)" in plain.stdout
