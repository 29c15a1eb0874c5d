"""Services: prefill and decode apart, routing, searches, the command line, what published systems gained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from serving_cases import fleet, proportional, requests, steady

from hwmodel.cli import cli
from hwmodel.kernels import serving_columns as c
from hwmodel.serve.engine import Fleet, Group, Wire, simulate
from hwmodel.serve.metrics import e2e_s, hit_rate, itl, makespan_s, quantiles, session_s, slowest_parts, tpot_s, ttft_s, within
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.simulate import answer, load_service, requests_of
from hwmodel.serve.steps import by_tokens


def poisson(rate: float, n: int, seed: int = 0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


def weights_and_tokens(tokens: Any) -> Any:
    """5 ms for the weights, 20 us a token: about Llama-3.1-8B on one H100."""
    return 5e-3 + 20e-6 * tokens


# prefill and decode apart


def split(pages: int = 1 << 20, decode_pages: int = 1 << 20, **wire: float) -> Fleet:
    rule, steps = Scheduler.kinds["vllm"](), proportional(1e-3)
    return Fleet((Group("prefill", 1, steps, rule, pages, "prefill", wire=Wire(**wire)),
                  Group("decode", 1, steps, rule, decode_pages, "decode")))  # fmt: skip


def test_the_second_token_waits_for_the_transfer_of_the_cache() -> None:
    """100 tokens at 1 ms each, then 100 tokens over the wire at 2 ms each and 0.5 s, then one step of 1 ms."""
    found = simulate(requests([0.0], 100, 2), split(token_s=2e-3, latency_s=0.5))
    assert ttft_s(found)[0] == pytest.approx(0.1)
    assert e2e_s(found)[0] == pytest.approx(0.1 + 0.5 + 0.2 + 1e-3)
    assert found.when[0, c.TRANSFER_S] == pytest.approx(0.7)
    assert found.meter[0, c.SENT_TOKENS] == 100
    assert simulate(requests([0.0], 100, 1), split(token_s=2e-3)).meter[0, c.SENT_TOKENS] == 0, "one token needs no decode"


def test_a_wire_takes_one_cache_after_the_other() -> None:
    found = simulate(requests([0.0] * 4, 100, 2), split(token_s=10e-3))
    assert np.sort(found.when[:, c.FINISH] - found.when[:, c.FIRST]) == pytest.approx([1.001, 2.0, 3.0, 4.0], rel=0.01)


def test_a_full_decode_instance_keeps_caches_at_their_origin() -> None:
    """Room to decode one request at a time: the others wait staged, and prefill stops when their pages are all taken."""
    work = requests([0.0] * 6, 64, 30)
    found = simulate(work, split(pages=8, decode_pages=6))
    assert found.finished.all()
    assert found.inst[0, c.PEAK] <= 8
    assert found.inst[1, c.PEAK] <= 6
    assert (np.diff(np.sort(found.when[:, c.FINISH])) > 29e-3).all(), "one after the other"


def test_apart_a_decode_is_never_stalled_by_a_prompt_but_a_prompt_has_half_the_chips() -> None:
    """DistServe's trade: the tail of the gaps falls, and time to first token rises with the load on fewer prefill chips."""
    work = requests(poisson(8.0, 1500, 3), 2000, 100)
    steps = by_tokens(weights_and_tokens, tokens=1 << 15)
    rule = Scheduler.kinds["vllm"](max_tokens=8192)
    together = simulate(work, Fleet((Group("gpu", 2, steps, rule, 1 << 20),), routing="least_loaded"))
    groups = tuple(Group(role, 1, steps, rule, 1 << 20, role, wire=Wire(1e-7)) for role in ("prefill", "decode"))
    apart = simulate(work, Fleet(groups))
    one, two = itl(together), itl(apart)
    assert one is not None
    assert two is not None
    assert two.p99 < 0.5 * one.p99
    assert ttft_s(apart).mean() > ttft_s(together).mean()
    slo = {"ttft": 0.4, "tpot": 5.6e-3}
    assert within(apart, slo).mean() > within(together, slo).mean(), "a tight target per token: apart wins"
    loose = {"ttft": 0.055, "tpot": 50e-3}
    assert within(apart, loose).mean() < within(together, loose).mean(), "a tight first token: together wins"


def test_the_shipped_one_and_one_gains_on_tokens_and_loses_on_first_tokens() -> None:
    """The same two H100: apart is better under a tight TPOT, together under a tight TTFT."""
    apart = load_service("h100_1p1d_llama_8b")
    together = load_service("h100_1p1d_llama_8b", ["serving.prefill=null", "serving.decode=null", "serving.instances=2"])
    work = requests_of(apart)
    one, two = answer(apart, work), answer(together, work)
    assert apart.chips == together.chips == 2
    assert one.good > two.good
    fast = {"ttft": 0.5, "tpot": 10.5e-3}
    assert within(one.run, fast).mean() > within(two.run, fast).mean() + 0.3
    tight = {"ttft": 0.1, "tpot": 0.05}
    assert within(one.run, tight).mean() < within(two.run, tight).mean() - 0.1


# directions that were published


def test_continuous_batching_beats_static_batching_as_orca_says() -> None:
    output = 1 + np.random.default_rng(1).exponential(200, 1500).astype(int)
    work = requests(np.zeros(1500), 100, output)
    steps = by_tokens(weights_and_tokens, tokens=1 << 15)
    static = simulate(work, fleet(steps, "static", max_sequences=32))
    orca = simulate(work, fleet(steps, "orca", max_sequences=32))
    assert 2.0 < makespan_s(static) / makespan_s(orca) < 4.06, "at most the harmonic number of 32"


def test_pages_hold_more_requests_than_reservations() -> None:
    """Reserve 2,048 for 500 on average: vLLM reports 2 to 4 times the throughput."""
    output = np.random.default_rng(2).integers(2, 800, 1000)
    work = requests(np.zeros(1000), 100, output)
    steps = by_tokens(weights_and_tokens)
    pages = 16 * 2048 // 16
    reserved = simulate(work, fleet(steps, "orca", reserve=2048, pages=pages))
    paged = simulate(work, fleet(steps, "vllm", pages=pages))
    assert 2.0 < makespan_s(reserved) / makespan_s(paged) < 4.5


def test_chunks_cut_the_tail_of_the_gaps_as_sarathi_says() -> None:
    work = requests(poisson(2.0, 800, 4), 4000, 150)
    steps = by_tokens(weights_and_tokens, tokens=1 << 15)
    whole = itl(simulate(work, fleet(steps, "prefill_first")))
    chunks = itl(simulate(work, fleet(steps, "sarathi")))
    assert whole is not None
    assert chunks is not None
    assert chunks.p99 < whole.p99 / 4
    assert chunks.max < 5e-3 + 20e-6 * 512 + 1e-9


# routing


def families(n: int, count: int, blocks: int = 20) -> Any:
    """n requests of `count` families with a long common prefix each."""
    rng = np.random.default_rng(6)
    family = rng.integers(0, count, n)
    ids = family[:, None] * blocks + np.arange(blocks)
    return requests(poisson(20.0, n, 5), 16 * blocks + 16, 8, starts=np.arange(n + 1) * blocks, blocks=ids.ravel())


def test_prefix_aware_routing_finds_more_than_round_robin() -> None:
    work = families(2000, 64)
    steps = proportional(1e-4)
    found = {rule: simulate(work, fleet(steps, instances=4, pages=24 * 21, routing=rule))
             for rule in ("round_robin", "least_loaded", "prefix")}  # fmt: skip
    assert hit_rate(found["prefix"]) > 1.5 * hit_rate(found["round_robin"])
    assert ttft_s(found["prefix"]).mean() < ttft_s(found["round_robin"]).mean()
    counts = np.bincount(found["round_robin"].req[:, c.AT])
    assert counts.max() - counts.min() <= 1


def test_least_loaded_evens_out_what_round_robin_does_not() -> None:
    rng = np.random.default_rng(8)
    work = requests(poisson(30.0, 3000, 7), rng.choice([10, 2000], 3000, p=[0.9, 0.1]), 20)
    steps = proportional(1e-4)
    tail = {
        rule: quantiles(ttft_s(simulate(work, fleet(steps, instances=4, routing=rule))))
        for rule in ("round_robin", "least_loaded")
    }
    assert tail["least_loaded"].p99 < tail["round_robin"].p99  # type: ignore[union-attr]


# the command line


def test_the_command_answers_with_the_keys_of_the_contract() -> None:
    found = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", "--requests", "200", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    wanted = {
        "requests", "ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s", "makespan_s", "goodput", "iterations", "wall_s",
        "requests_per_wall_s", "prefix_hit_rate", "preemptions", "tiers", "pools", "cost", "warnings",
    }  # fmt: skip
    assert wanted <= told.keys()
    assert {"in", "finished", "rejected", "unfinished"} <= told["requests"].keys()
    assert told["requests"]["finished"] == told["requests"]["in"] == 200
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert told[name].keys() == {"mean", "p50", "p90", "p99", "max"}
        assert told[name]["p50"] <= told[name]["p90"] <= told[name]["p99"] <= told[name]["max"]
    assert {"slo", "requests_per_s", "share"} <= told["goodput"].keys()


def test_the_same_seed_gives_the_same_and_another_one_another() -> None:
    service = load_service("w1_llama_8b_h100", ["serving.trace.requests=100"])
    one, two, other = (ttft_s(answer(service, requests_of(service, seed)).run) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, two)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "serving.scheduler=vlm"], "did you mean 'vllm'"),
        (["--set", "serving.scheduler={vllm: {max_seqs: 3}}"], "max_sequences"),
        (["--set", "serving.tiers=[{tier: dram, capacity: 5}]"], "unit"),
        (["--set", "serving.decode={instances: 2}"], "both 'prefill' and 'decode'"),
        (["--set", "serving.trace=null"], "--trace FILE"),
        (["--slo", "ttfs=1s"], "ttft"),
        (["--seed", "1", "--trace", "nowhere.csv"], "--seed"),
        (["--set", "serving.scheduler={static: {reserve: paged}}"], "final"),
    ],
)
def test_mistakes_are_told(arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", *arguments])
    text = found.output + str(found.exception or "") + str(getattr(found.exception, "problems", ""))
    assert found.exit_code != 0
    assert said in text


def test_prefill_and_decode_on_unlike_chips() -> None:
    side = "{{instances: 1, cluster: {{pools: {{gpu: {{chip: {}, count: 1, stack: vllm}}}}}}}}"
    service = load_service("w1_llama_8b_h100", [
        f"serving.prefill={side.format('h100_sxm')}", f"serving.decode={side.format('h200_sxm')}",
        "serving.transfer={bandwidth: 50 GB/s, latency: 10 us}", "serving.trace.requests=300",
    ])  # fmt: skip
    found = answer(service, requests_of(service))
    mixed = answer(load_service("w1_llama_8b_h100", ["serving.trace.requests=300"]), requests_of(service))
    assert found.run.finished.all()
    assert np.nanmean(tpot_s(found.run)) < np.nanmean(tpot_s(mixed.run)), "H200 has more bandwidth, and no prompts to wait for"
    assert found.service.chips == 2


def test_a_step_of_constant_time_makes_a_request_take_its_tokens() -> None:
    found = simulate(requests([0.0], 10, 7), fleet(steady(2.0)))
    assert e2e_s(found)[0] == 14.0
    assert tpot_s(found)[0] == 2.0


def test_the_slowest_first_tokens_are_taken_apart() -> None:
    """One at a time, 1 ms a token: the last of 200 waits for 199 x 100 tokens and is computed in 100 ms."""
    found = simulate(requests(np.zeros(200), 100, 1), fleet(proportional(1e-3), max_sequences=1))
    parts = slowest_parts(found)
    assert parts is not None
    assert parts["prefill_s"] == pytest.approx(0.1)
    assert parts["load_s"] == 0
    assert parts["ttft_s"] == pytest.approx(parts["queue_s"] + 0.1)
    assert parts["queue_s"] == pytest.approx(19.85, rel=0.01)


def test_a_session_lasts_from_its_first_arrival_to_its_last_answer() -> None:
    """Two calls of 10 ms and a pause of 3 s; a session with a rejected call is not counted."""
    after, session = np.array([-1, 0, -1]), np.array([0, 0, 1])
    work = requests([1.0, 0.0, 0.0], [10, 10, 10**8], 1, after=after, gap_s=np.array([0, 3.0, 0]), session=session)
    assert session_s(simulate(work, fleet(proportional(1e-3)))) == pytest.approx([3.02])


def test_a_folder_gets_the_answer_and_a_row_per_request(tmp_path: Path) -> None:
    found = CliRunner().invoke(
        cli, ["simulate", "w1_llama_8b_h100", "--requests", "20", "--out", str(tmp_path / "out"), "--json"]
    )
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "out" / "simulate.json").read_text())
    lines = (tmp_path / "out" / "requests.csv").read_text().splitlines()
    assert len(lines) == 21
    column = lines[0].split(",").index("ttft_s")
    assert np.mean([float(line.split(",")[column]) for line in lines[1:]]) == pytest.approx(told["ttft_s"]["mean"])


def test_nobody_served_is_told_by_the_exit_status(tmp_path: Path) -> None:
    """Prompts of a million tokens fit nowhere: status 3, and the reason."""
    (tmp_path / "long.csv").write_text("at,in,out\n0,1000000,5\n1,1000000,5\n")
    arguments = ["simulate", "w1_llama_8b_h100", "--trace", str(tmp_path / "long.csv"), "--columns", "at,in,out", "--json"]
    found = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert found.return_value == 3
    told = json.loads(found.stdout)
    assert told["requests"]["rejected"] == 2
    assert told["ttft_s"] is None
    assert "does not fit" in next(iter(told["requests"]["reasons"]))
