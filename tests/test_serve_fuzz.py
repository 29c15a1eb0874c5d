"""Random workloads on tiny KV pools: nothing is lost, nothing runs twice, everything ends, the same again to the last bit."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_cases import proportional, requests

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.serve import engine
from hwmodel.serve.engine import REASONS, Fleet, Group, Run, Wire, simulate
from hwmodel.serve.kv import POLICIES, Eviction, Tier
from hwmodel.serve.metrics import hit_rate, itl, ttft_s
from hwmodel.serve.requests import Requests, Worth
from hwmodel.serve.schedulers import Scheduler

BLOCK = 8


@st.composite
def workloads(draw: Any) -> Requests:
    """Bursts, loops and shared prefixes; some requests are too long for any pool."""
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrival = np.sort(np.round(rng.uniform(0, draw(st.sampled_from([0.01, 1.0, 30.0])), n), draw(st.integers(1, 4))))
    prompt, output = rng.integers(1, 120, n), rng.integers(1, 60, n)
    after = np.where(rng.random(n) < draw(st.sampled_from([0.0, 0.6])), rng.integers(-1, np.maximum(1, np.arange(n))), -1)
    after[0] = -1
    count = -(-prompt // BLOCK) if draw(st.booleans()) else np.zeros(n, np.int64)
    tree = rng.integers(0, 3, n)  # prefixes of three families
    blocks = [int(tree[r]) * 1000 + np.where(np.arange(count[r]) < rng.integers(0, 16), np.arange(count[r]), 500 + r)
              for r in range(n)]  # fmt: skip
    _, ids = np.unique(np.concatenate([[0], *blocks]), return_inverse=True)
    return requests(
        arrival, prompt, output, after=after, gap_s=np.round(rng.uniform(0, 2, n), 2), block_tokens=BLOCK,
        starts=np.concatenate([[0], np.cumsum(count)]), blocks=ids[1:].astype(np.int64),
        forecast=rng.integers(0, 3, n), worth=Worth(np.sort(rng.choice([-np.inf, *rng.uniform(-0.5, 1, 6)], (3, 12)))[:, ::-1]),
    )  # fmt: skip


@st.composite
def fleets(draw: Any) -> Fleet:
    """Any scheduler, mixed or split, with or without tiers, on pools of a few pages."""
    kind = draw(st.sampled_from(sorted(Scheduler.kinds)))
    given_: dict[str, Any] = {"max_sequences": draw(st.integers(1, 12))}
    if kind in ("vllm", "sarathi", "sglang"):
        given_["max_tokens"] = draw(st.sampled_from([1, 7, 64, 512]))
    if kind == "orca":
        given_["reserve"] = draw(st.sampled_from(["final", "paged", 150]))
    given_["watermark"] = draw(st.sampled_from([0.0, 0.1]))
    rule = Scheduler.kinds[kind](**given_)
    slow = draw(st.sampled_from([{}, {"write_bytes_per_s": 2e4, "duplex": False, "buffer_bytes": 12.0 * BLOCK}]))
    pool = draw(
        st.sampled_from([Tier("ssd", 30.0 * BLOCK, 3e4, 1e-3, **slow), Tier("pool", 20.0 * BLOCK, 3e4, 1e-3, pooled=True)])
    )
    tiers = (Tier("dram", 8.0 * BLOCK, 1e5, 1e-4), pool)[: draw(st.integers(0, 2))]
    eviction = Eviction(draw(st.sampled_from(sorted(POLICIES))), draw(st.sampled_from([0.0, 0.3, 5.0])))
    pages, page = draw(st.integers(10, 60)), draw(st.sampled_from([2, 4, 8]))
    steps = proportional(1e-3)

    def group(role: str) -> Group:
        return Group(role, draw(st.integers(1, 3)), steps, rule, pages, role, tiers, 1.0, Wire(1e-5, 1e-4))

    split = kind != "static" and draw(st.booleans())
    groups = (group("prefill"), group("decode")) if split else (group("mixed"),)
    return Fleet(groups, page, draw(st.sampled_from(["round_robin", "least_loaded", "prefix"])), draw(st.booleans()), eviction)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), fleets())
def test_nothing_is_lost_whatever_comes(work: Requests, fleet: Fleet) -> None:
    found = simulate(work, fleet)  # conservation is checked inside, after every run
    assert (found.finished | found.rejected).all()
    assert set(found.req[found.rejected, c.REASON]) <= set(REASONS)
    longest = fleet.groups[-1].pages * fleet.page
    fits = (work.prompt + work.output <= longest) & (work.prompt + work.output <= 150)
    chunked = fleet.groups[0].scheduler.chunked
    if chunked and not (work.after >= 0).any():
        assert found.finished[fits].all(), "a request that fits alone is served"
    same(found, simulate(work, fleet))


def same(one: Run, two: Run) -> None:
    for name in ("req", "when", "inst", "meter", "tier", "tier_s", "series", "gaps", "total"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(workloads(), fleets())
def test_the_loop_for_requests_that_share_nothing_does_the_same(work: Requests, fleet: Fleet) -> None:
    """It is compiled without the units of prompts; the whole loop, which has them, finds none."""
    alone = dataclasses.replace(fleet, prefix_cache=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Unshared", Serving)
        whole = simulate(work, alone)
    same(simulate(work, alone), whole)


@pytest.mark.parametrize("kind", sorted(Scheduler.kinds))
def test_a_pool_for_one_request_serves_all_of_them_one_after_the_other(kind: str) -> None:
    rule = Scheduler.kinds[kind](max_sequences=8)
    work = requests(np.zeros(20), 40, 24)
    found = simulate(work, Fleet((Group("gpu", 1, proportional(1e-3), rule, 16),), 4))
    assert found.finished.all()
    assert found.inst[0, c.PEAK] == 16
    assert (found.when[1:, c.SCHEDULED] >= found.when[:-1, c.FINISH]).all()


def test_preempted_requests_are_computed_again_and_their_gap_is_seen() -> None:
    """Two requests of 40 + 24 tokens in 100 tokens of cache: the second is preempted and waits for the first one's end."""
    found = simulate(
        requests([0.0, 0.0], 40, 24), Fleet((Group("gpu", 1, proportional(1e-3), Scheduler.kinds["vllm"](), 25),), 4)
    )
    assert found.req[:, c.PREEMPTED].tolist() == [0, 1]
    gaps = itl(found)
    assert gaps is not None
    assert gaps.max > 10e-3 > gaps.p50
    assert found.inst[0, c.PREFILLS] == 80 + 49  # 25 pages of 4: the 49th token of the first one has no other page to go to


def test_an_equal_prompt_is_computed_but_for_its_last_block() -> None:
    """64 tokens in blocks of 16, twice: the second one finds 48, the block with the last token is computed."""
    blocks = np.array([0, 1, 2, 3, 0, 1, 2, 3])
    work = requests([0.0, 10.0], 64, 2, starts=np.array([0, 4, 8]), blocks=blocks)
    for kind in ("vllm", "sglang", "orca"):
        found = simulate(work, Fleet((Group("gpu", 1, proportional(1e-3), Scheduler.kinds[kind](), 64),), 16))
        assert found.req[:, c.HIT].tolist() == [0, 48]
        assert hit_rate(found) == 48 / 128
        assert ttft_s(found) == pytest.approx([64e-3, 16e-3])
    without = Fleet((Group("gpu", 1, proportional(1e-3), Scheduler.kinds["vllm"](), 64),), 16, prefix_cache=False)
    assert hit_rate(simulate(work, without)) == 0


def test_a_follower_comes_after_its_gap_and_is_refused_with_what_it_waits_for() -> None:
    work = requests(
        [0.0, 0.0, 0.0, 0.0], [10, 10, 5000, 10], 1, after=np.array([-1, 0, 1, 2]), gap_s=np.array([0, 3.0, 1.0, 1.0])
    )
    found = simulate(work, Fleet((Group("gpu", 1, proportional(1e-3), Scheduler.kinds["vllm"](), 64),), 16))
    assert found.when[1, c.ARRIVAL] == pytest.approx(3.01)
    assert found.finished.tolist() == [True, True, False, False]
    assert found.req[2:, c.REASON].tolist() == [c.TOO_LONG, c.NOT_PRECEDED]


def digest(seed: int) -> str:
    """Hash of everything a run leaves behind, of a workload with prefixes, loops, tiers, and two kinds of instances."""
    rng = np.random.default_rng(seed)
    n = 60
    prompt = rng.integers(20, 120, n)
    count = prompt // BLOCK
    ids = np.concatenate([np.where(np.arange(k) < 6, np.arange(k), 100 + 20 * r + np.arange(k)) for r, k in enumerate(count)])
    work = requests(
        np.sort(rng.uniform(0, 1, n)), prompt, rng.integers(1, 40, n), block_tokens=BLOCK, blocks=ids.astype(np.int64),
        starts=np.concatenate([[0], np.cumsum(count)]), after=np.where(np.arange(n) % 5 == 4, np.arange(n) - 3, -1),
        gap_s=np.full(n, 0.2),
    )  # fmt: skip
    tiers = (Tier("dram", 30.0 * BLOCK, 1e5, 1e-4),)
    found = hashlib.sha256()
    for kind in sorted(Scheduler.kinds):
        rule = Scheduler.kinds[kind](max_sequences=6)
        mixed = (Group("gpu", 2, proportional(1e-3), rule, 40, "mixed", tiers),)
        split = tuple(Group(role, 1, proportional(1e-3), rule, 40, role, wire=Wire(1e-4)) for role in ("prefill", "decode"))
        for groups, shared in itertools.product((mixed, split) if kind != "static" else (mixed,), (True, False)):
            run = simulate(work, Fleet(groups, 4, "prefix", prefix_cache=shared))
            for part in (run.req, run.when, run.inst, run.meter, run.tier):
                found.update(part.tobytes())
    return found.hexdigest()


def test_the_compiled_loop_does_what_its_python_does() -> None:
    """Every kernel of the loop against its own source, interpreted, to the last bit."""
    here = Path(__file__).parent
    program = "import sys; sys.path.insert(0, sys.argv[1]); from test_serve_fuzz import digest; print(digest(4))"
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", program, str(here)], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(4)
