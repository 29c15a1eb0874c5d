"""Searches over services: sizes, rates, ratios, how sure the answer is, and what the doubt about a step does to it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from hwmodel.cli import cli
from hwmodel.serve.doubt import doubtful, factors
from hwmodel.serve.metrics import e2e_s
from hwmodel.serve.ratio import mix
from hwmodel.serve.result import to_dict
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
    tried = {t["rate_scale"]: t["goodput_share"] for t in fastest.found["tried"]}
    scale = max(rate for rate, good in tried.items() if good >= GOOD)
    fewer = min(rate for rate, good in tried.items() if good < GOOD)
    assert scale < fewer < 1.02 * scale, "between them the share may go up and down by single requests"
    assert fastest.good == tried[scale] >= GOOD > tried[fewer] == answer(service.sized(2), work.scaled(fewer), SLO).good
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
    targets = {"ttft": 2.0, "tpot": 20e-3 if more == "prefill" else 8e-3}
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


BOUGHT = "{pay: purchase, electricity: 0.12 USD/kWh, pue: 1.3, utilisation: 60 %}"
TIER = "[{tier: dram, capacity: 1 TB, bandwidth: 50 GB/s, latency: 20 us, rental: 7 USD/h}]"


@pytest.mark.parametrize("what", ["ratio", "chips"])
def test_a_search_prices_as_a_plain_simulation_does(what: str) -> None:
    """Energy of the run and rent of the tiers, not electricity at TDP and chips alone."""
    name = "h100_1p1d_llama_8b" if what == "ratio" else "w1_llama_8b_h100"
    service = load_service(name, [f"economics={BOUGHT}", f"serving.tiers={TIER}", "serving.trace.requests=200"])
    work = requests_of(service)
    found = find(service, work, what)
    told = to_dict(found)
    same = answer(found.service, work)
    assert told["find"]["usd_per_hour"] == told["cost"]["usd_per_hour"] == to_dict(same)["cost"]["usd_per_hour"]
    bare = load_service(name, [f"economics={BOUGHT}", "serving.trace.requests=200"])
    less = find(bare, requests_of(bare), what).found
    assert less is not None
    assert told["find"]["usd_per_hour"] - less["usd_per_hour"] == pytest.approx(7.0 * told["find"]["instances"], rel=0.01)


def test_that_idle_hours_are_the_runs_own_is_said() -> None:
    half, full = (load_service("w1_llama_8b_h100", [f"economics.utilisation={use}", "serving.trace.requests=50"])
                  for use in ("50 %", "100 %"))  # fmt: skip
    one, two = (to_dict(answer(service, requests_of(service))) for service in (half, full))
    assert one["cost"] == two["cost"]
    assert [text for text in one["warnings"] if "utilisation is not used" in text]
    assert not [text for text in two["warnings"] if "utilisation" in text]


def test_a_rate_that_cannot_be_is_told_after_two_tries() -> None:
    """A microsecond is less than any first token takes; then one that a request alone just keeps."""
    service = load_service("w1_llama_8b_h100", BUSY)
    work = requests_of(service).first(100)
    found = find(service, work, "rate", {"ttft": 1e-6})
    assert found.found is not None
    assert not found.found["met"]
    assert [row["rate_scale"] for row in found.found["tried"]] == [1.0, 2.0**-14]
    assert [text for text in to_dict(found)["warnings"] if text.startswith("no rate makes 90 %")]
    alone = np.quantile(e2e_s(answer(service, work.scaled(2.0**-14)).run), 0.95)
    slow = find(service, work, "rate", {"e2e": float(alone)}).found
    assert slow is not None
    assert slow["met"]
    assert 2.0**-14 <= slow["rate_scale"] < 1
    easy = find(service, work, "rate", {"ttft": 1e6}).found
    assert easy is not None
    assert easy["rate_scale"] == pytest.approx(2.0**14, rel=0.02)
    assert len(easy["tried"]) < 30


def test_the_command_says_that_no_rate_will_do() -> None:
    arguments = ["simulate", "w1_llama_8b_h100", "--requests", "50", "--find", "rate", "--slo", "ttft=1us", "--seeds", "2"]
    found = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert found.return_value == 3
    assert "nothing found; nearest: 1 instances" in found.stdout
    assert "no rate makes 90 % of the requests good" in found.stderr


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
