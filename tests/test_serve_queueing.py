"""The engine against closed forms: M/D/1, M/M/1, static batches, pages, DistServe's three queues."""

from __future__ import annotations

import numpy as np
import pytest
from serving_cases import fleet, proportional, requests, steady

from hwmodel.claims.forms import static_utilisation_exponential, ttft_one_queue, ttft_split, ttft_two_stages
from hwmodel.serve.engine import Fleet, Group, simulate
from hwmodel.serve.metrics import e2e_s, kv_use, queue_s, slot_utilisation, ttft_s, waste_tokens
from hwmodel.serve.schedulers import Scheduler

LONG = 400_000
"""Requests of a long run: the standard error of a mean wait is below 1 % at these loads."""


def poisson(rate: float, n: int, seed: int) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, n))


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_a_server_of_constant_service_waits_like_m_d_1(load: float) -> None:
    """W = rho D / (2 (1 - rho)): Pollaczek-Khinchine with constant service."""
    found = simulate(requests(poisson(load, LONG, 1), 100, 1), fleet(steady(1.0), max_sequences=1))
    assert queue_s(found).mean() == pytest.approx(load / (2 * (1 - load)), rel=0.02)


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
def test_a_server_of_exponential_service_waits_like_m_m_1(load: float) -> None:
    """W = rho / (mu - lambda)."""
    prompt = np.maximum(1, np.rint(np.random.default_rng(7).exponential(1000, LONG))).astype(int)
    served = fleet(proportional(1e-3), max_sequences=1, max_tokens=None)
    found = simulate(requests(poisson(load * 1000 / prompt.mean(), LONG, 2), prompt, 1), served)
    assert queue_s(found).mean() == pytest.approx(load / (1 - load) * prompt.mean() / 1000, rel=0.02)


def test_time_to_first_token_of_distserve_section_3() -> None:
    """1.25 s with one server, 0.575 s with two pipeline stages, 0.500 s with twice the chips at a speed-up of 1.5."""
    rate, service, speedup, n = 1.5, 0.5, 1.5, LONG
    work = requests(poisson(rate, n, 3), 100, 1)
    one = simulate(work, fleet(steady(service), max_sequences=1))
    assert ttft_s(one).mean() == pytest.approx(ttft_one_queue(rate, service), rel=0.02)
    assert ttft_one_queue(rate, service) == pytest.approx(1.25)
    split = simulate(work, fleet(steady(service / speedup), max_sequences=1))
    assert ttft_s(split).mean() == pytest.approx(ttft_split(rate, service, speedup), rel=0.02)
    assert ttft_split(rate, service, speedup) == pytest.approx(0.5)
    rule = Scheduler.kinds["vllm"](max_sequences=1)
    stages = tuple(Group(role, 1, steady(service / 2), rule, 1 << 20, role) for role in ("prefill", "decode"))
    two = simulate(requests(poisson(rate, n, 3), 100, 2), Fleet(stages))
    assert e2e_s(two).mean() == pytest.approx(ttft_two_stages(rate, service), rel=0.02)
    assert ttft_two_stages(rate, service) == pytest.approx(0.575)


@pytest.mark.parametrize(("batch", "printed"), [(8, 0.368), (16, 0.296), (64, 0.211)])
def test_a_static_batch_uses_one_over_the_harmonic_number_of_its_rows(batch: int, printed: float) -> None:
    output = 1 + np.ceil(np.random.default_rng(5).exponential(200, 1500 * batch)).astype(int)
    work = requests(np.zeros(len(output)), 1, output)
    found = simulate(work, fleet(steady(1e-3), "static", max_sequences=batch))
    assert slot_utilisation(found) == pytest.approx(static_utilisation_exponential(batch), rel=0.02)
    assert slot_utilisation(found) == pytest.approx(printed, rel=0.02)
    assert slot_utilisation(simulate(work, fleet(steady(1e-3), "vllm", max_sequences=batch))) == 1.0


@pytest.mark.parametrize("block", [1, 16, 32])
def test_pages_waste_half_a_page_less_half_a_token(block: int) -> None:
    """Lengths spread evenly over one page; (block - 1) / 2 tokens a sequence, 0.75 % at 16 of 1,000."""
    output = 1001 - block // 2 - 500 + np.arange(block * 20) % block
    found = simulate(requests(np.zeros(len(output)), 500, output), fleet(steady(1e-3), page=block))
    assert waste_tokens(found) == pytest.approx((block - 1) / 2)


def test_contiguous_reservation_uses_a_quarter_of_what_it_holds() -> None:
    """Reserve 2,048 tokens for requests that come to 500 in the end: 24.4 % at the end, less on the way."""
    work = requests(np.zeros(64), 499, 2)
    held = simulate(work, fleet(steady(1e-3), "orca", reserve=2048, max_sequences=64))
    assert waste_tokens(held) == 2048 - 500
    assert kv_use(held) < 500 / 2048 < kv_use(simulate(work, fleet(steady(1e-3), "vllm")))
