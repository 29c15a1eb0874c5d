"""What a service costs and draws, and what theory says beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import fleet, proportional, requests, steady

from hwmodel.cli import main
from hwmodel.kernels import serving_columns as c
from hwmodel.run import run as run_step
from hwmodel.serve.engine import Fleet, Group, simulate
from hwmodel.serve.metrics import makespan_s, queue_s
from hwmodel.serve.result import to_dict
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.simulate import answer, load_service, requests_of
from hwmodel.serve.spending import NOTHING, Stages, prompt_shares, rates, spent
from hwmodel.serve.theory import checks, little, wait_s

FEW = ["serving.trace.requests=150"]


def test_joules_are_those_of_working_and_idle_chips() -> None:
    """By hand from the steps of a prompt and a decode in `run`, busy time, and the chip's idle power."""
    service = load_service("w1_llama_8b_h100", FEW)
    found = answer(service, requests_of(service))
    each, _ = rates(found.kinds[0])
    assert each is not None
    scenario = service.scenario
    work = scenario.workload
    prompt = replace(
        scenario, workload=work.model_copy(update={"phase": "prefill", "batch": 1, "new_tokens": 2048, "cached": 0})
    )
    step, decode = run_step(prompt), run_step(scenario)
    assert step.cost is not None
    assert decode.cost is not None
    assert (each.prefill_watts, each.decode_watts) == (step.cost.watts, decode.cost.watts)
    busy, span = float(found.run.meter[0, c.BUSY_S]), makespan_s(found.run)
    prefill = int(found.run.inst[0, c.PREFILLS]) * step.step.time_s / 2048
    idle = float(scenario.cluster.pools[0].chip.power.idle_watts or 0)
    assert idle > 0
    wanted = prefill * step.cost.watts + (busy - prefill) * decode.cost.watts + (span - busy) * idle
    told = to_dict(found)
    assert told["cost"]["joules"] == pytest.approx(wanted)
    assert told["cost"]["watts"] == pytest.approx(wanted / span)
    assert idle < told["cost"]["watts"] < float(scenario.cluster.pools[0].chip.power.tdp_watts or 0)
    assert told["cost"]["joules_per_output_token"] == pytest.approx(wanted / int(found.run.requests.output.sum()))


def test_stages_are_paid_for_by_their_own_tokens() -> None:
    """Cases C39 and C40: 8 x 900 W prefill 1e6 tokens, 8 x 700 W decode 2e5 in 100 s; 24 USD/h over 8,000 + 2,000 tokens/s."""
    made = Stages().plus(NOTHING, (8 * 900 * 100, 0.0, 0.0), prompt_shares("prefill", 100.0, 100.0))
    rows = made.plus(NOTHING, (0.0, 8 * 700 * 100, 0.0), prompt_shares("decode", 0.0, 100.0)).rows(10**6, 2 * 10**5, known=True)
    assert [row["joules_per_token"] for row in rows] == pytest.approx([0.72, 2.80, 1.0667], rel=1e-4)
    hour = (
        Stages().plus((24.0, 0.0, 0.0), NOTHING, prompt_shares("mixed", 1.0, 2.0)).rows(8000 * 3600, 2000 * 3600, known=False)
    )
    assert [row["usd_per_million"] for row in hour] == pytest.approx([0.8333, 0.0, 0.6667], rel=1e-3)
    assert [row["joules_per_token"] for row in hour] == [None, None, None]


@pytest.mark.parametrize("name", ["w1_llama_8b_h100", "h100_1p1d_llama_8b", "rubin_dram_ssd_agents"])
def test_stages_add_up_to_the_service(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On one pool or two, with rented memory below: what input and output tokens cost apart is the whole bill."""
    service = load_service(name)
    found = answer(service, requests_of(service))
    told, hours = to_dict(found)["cost"], makespan_s(found.run) / 3600
    first, second, every = told["stages"]
    assert first["usd"] + second["usd"] == pytest.approx(every["usd"]) == pytest.approx(told["usd_per_hour"] * hours)
    assert first["joules"] + second["joules"] == pytest.approx(every["joules"]) == pytest.approx(told["joules"])
    assert 0 < first["joules_per_token"] < every["joules_per_token"] < second["joules_per_token"]
    assert second["usd_per_million"] < told["usd_per_million_output_tokens"]
    assert second["count"] == int(found.run.requests.output.sum())
    assert first["count"] == int(found.run.requests.prompt.sum())
    with pytest.raises(SystemExit):
        main(["simulate", name])
    said = " ".join(capsys.readouterr().out.split())
    assert "if these carry all of it by stage: input tokens" in said


def test_a_scenario_that_buys_its_chips_pays_their_price() -> None:
    rented = load_service("w1_llama_8b_h100", FEW)
    bought = load_service("w1_llama_8b_h100", [*FEW, "economics.pay=purchase"])
    bills = [spent(answer(one, requests_of(one)), 1.0)[0] for one in (rented, bought)]
    assert bills[0] is not None
    assert bills[1] is not None
    for bill, one in zip(bills, (rented, bought), strict=True):
        step = run_step(one.scenario)
        assert step.cost is not None
        assert bill["usd_per_hour"] == pytest.approx(step.cost.usd_per_hour)
    assert bills[0]["usd_per_hour"] != bills[1]["usd_per_hour"]


def test_bought_chips_pay_for_the_electricity_that_they_draw() -> None:
    """A service that is idle most of the time: joules x PUE x price, and no decode step around the clock."""
    idle = ["serving.trace.requests=30", "serving.trace.rate=0.05 /s", "economics.pay=purchase"]
    bills = []
    for economics in ([], ["economics.electricity=0.5 USD/kWh", "economics.pue=1.3"]):
        service = load_service("w1_llama_8b_h100", [*idle, *economics, "economics.utilisation=50 %"])
        bills.append(to_dict(answer(service, requests_of(service))))
    without, found = (bill["cost"] for bill in bills)
    hours, busy = bills[1]["makespan_s"] / 3600, bills[1]["pools"][0]["busy_fraction"]
    assert busy < 0.2
    assert found["joules"] == without["joules"]
    paid = found["joules"] / 3.6e6 * 1.3 * 0.5
    assert (found["usd_per_hour"] - without["usd_per_hour"]) * hours == pytest.approx(paid, rel=1e-9)
    assert without["usd_busy"] == pytest.approx(without["usd_per_hour"] * hours * busy)
    assert without["usd_busy"] < found["usd_busy"] < without["usd_busy"] + paid, "idle power is no part of it"


def test_a_session_has_joules() -> None:
    service = load_service("rubin_dram_ssd_agents", ["serving.trace.sessions=3"])
    told = to_dict(answer(service, requests_of(service)))
    assert told["sessions"]["joules"] == pytest.approx(told["cost"]["joules"] / told["sessions"]["finished"])
    hits = next(one for one in told["checks"] if one["name"] == "prefix hits")
    assert 0.5 < hits["simulated"] <= hits["theory"] < 1


def test_floor_and_bound_are_those_of_the_requests_that_were_served() -> None:
    """Twenty prompts too long for any cache are rejected: no floor above what the others took, no bound below their hits."""
    service = load_service("w1_llama_8b_h100", [])
    prompt = np.tile([320, 320, 800_000], 20)
    blocks = np.concatenate([np.arange(20), np.arange(20), 20 + np.arange(50_000)])
    size = np.array([20, 20, 50_000])
    starts = np.concatenate([[0], np.cumsum(np.tile(size, 20))])
    ids = np.concatenate([np.where(blocks < 20, blocks, blocks + 50_000 * turn) for turn in range(20)])
    work = replace(requests(np.arange(60) * 0.5, prompt, 20), blocks=ids, starts=starts, block_tokens=16)
    told = to_dict(answer(service, work))
    assert told["requests"]["rejected"] == 20
    for one in told["checks"]:
        if one["relation"] == "at least":
            assert one["simulated"] >= one["theory"], one
        if one["relation"] == "at most":
            assert 0.9 < one["simulated"] <= one["theory"] < 1, one
    alone = to_dict(answer(service, requests(np.arange(40) * 0.5, 320, 20)))
    assert told["floor"]["tpot_s"] == alone["floor"]["tpot_s"]


def test_littles_law_holds_from_the_states_alone() -> None:
    """States over time are noted by the loop, times in the system by the requests: rate x time = requests inside."""
    rng = np.random.default_rng(3)
    work = requests(np.cumsum(rng.exponential(0.05, 4000)), rng.integers(10, 60, 4000), rng.integers(1, 40, 4000))
    inside, law = little(simulate(work, fleet(proportional(1e-4), max_sequences=16)))
    assert inside == pytest.approx(law, rel=1e-9)
    assert law == pytest.approx(0.127, abs=0.001), "a server that is idle most of the time"


def test_pollaczek_and_khinchine_by_hand() -> None:
    """M/D/1 at half load waits half a service; M/M/1 a whole one (E[S^2] = 2)."""
    assert wait_s(0.5, np.ones(5)) == 0.5
    times = np.random.default_rng(0).exponential(1.0, 1_000_000)
    assert wait_s(0.5 / times.mean(), times / 1.0) == pytest.approx(times.mean(), rel=0.01)


def test_a_prefill_queue_is_that_of_theory() -> None:
    """M/G/1 in the engine: prompts one by one on a prefill instance of its own, lengths of two kinds, at 60 % load."""
    rng = np.random.default_rng(9)
    n = 100_000
    prompt = rng.choice([100, 900], n, p=[0.8, 0.2])
    rate = 0.6 / (prompt.mean() * 1e-3)
    work = requests(np.cumsum(rng.exponential(1 / rate, n)), prompt, 2)
    rule = Scheduler.kinds["vllm"](max_sequences=1, max_tokens=None)
    groups = (Group("prefill", 1, proportional(1e-3), rule, 1 << 20, "prefill"),
              Group("decode", 1, steady(1e-6), Scheduler.kinds["vllm"](), 1 << 20, "decode"))  # fmt: skip
    found = simulate(work, Fleet(groups))
    rate = n / (work.arrival_s[-1] - work.arrival_s[0])
    assert queue_s(found).mean() == pytest.approx(wait_s(rate, prompt * 1e-3), rel=0.03)


def test_checks_stand_beside_a_split_service() -> None:
    service = load_service("h100_1p1d_llama_8b", ["serving.trace.requests=400"])
    found = answer(service, requests_of(service))
    told = {one["name"]: one for one in checks(found, {"ttft_s": 0.01, "tpot_s": 0.001})}
    wait = told["wait for prefill (s), mean"]
    assert 0.3 < wait["simulated"] / wait["theory"] < 3, "prompts that wait together are computed together"
    assert told["TTFT (s), mean"]["simulated"] > told["TTFT (s), mean"]["theory"]
