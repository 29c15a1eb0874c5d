"""Dollars, joules, margins: published figures, closed forms, and what must never happen."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodel.cli import main
from hwmodel.economics import (
    Cost,
    PoolCost,
    Work,
    cost,
    interactivity_line,
    margin,
    price_over_cost,
    purchase_usd,
    speed_price,
    usd_per_million,
)
from hwmodel.economics.energy import Part, flop_energy
from hwmodel.economics.step import COUNTED
from hwmodel.hardware import Cluster, Pool, load_chip, with_number
from hwmodel.offer import offer
from hwmodel.prices import Economics, Session
from hwmodel.published import published
from hwmodel.run import Result, run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.number import Number

SHIPPED = Path(__file__).parents[1] / "measured"
AFD, ALONE = "rubin_lpx_deepseek_v3", "rubin_deepseek_v3"


def economics(**fields: Any) -> Economics:
    return Economics.model_validate(fields)


def asked(name: str, *settings: str) -> Result:
    return run(load_scenario(name, settings))


def spent(found: Result) -> Cost:
    assert found.cost is not None
    return found.cost


def one(chip: str, **fields: Any) -> tuple[Cluster, Economics]:
    return Cluster((Pool("gpu", load_chip(chip), 1),)), economics(**fields)


@pytest.mark.parametrize(("tokens_per_s", "printed"), [(1850, 0.300), (4039, 0.1375)])
def test_step_3_prices_a_token_of_an_h800_at_two_dollars(tokens_per_s: float, printed: float) -> None:
    assert usd_per_million(2.0, tokens_per_s) == pytest.approx(printed, abs=6e-4 if printed == 0.3 else 6e-5)
    cluster, prices = one("h800_sxm")
    found, _ = cost(cluster, Work(tokens_per_s), prices)
    assert found is not None
    assert found.usd_per_million_output_tokens == pytest.approx(printed, rel=2e-3)


def test_deepseek_s_day() -> None:
    """226.75 nodes of eight H800 at 2 USD/h; 342 and 266 billion input tokens, 168 billion output tokens sold."""
    found, _ = cost(Cluster((Pool("gpu", load_chip("h800_sxm"), 1814),)), Work(168e9 / 86_400))
    assert found is not None
    assert found.usd_per_hour * 24 == pytest.approx(87_072)
    income = 342e3 * 0.14 + 266e3 * 0.55 + 168e3 * 2.19
    assert margin(87_072, income) == pytest.approx(0.845, abs=5e-4)
    assert 1 / margin(87_072, income) - 1 == pytest.approx(1 / 5.455, abs=1e-3)  # cost over profit: "545 %"


def test_predicted_prices_of_published_systems() -> None:
    """Nothing fitted, 2 USD/h: Step-3 on 32 H800 costs 0.1375 USD/Mtok (4,039 tokens/s), DeepSeek's profile 0.239 (2,324)."""
    figures = published(SHIPPED, device="h800_sxm").figures
    wanted = {"Hopper (2A2F AFD)": 0.1375, "H800-class Hopper (3A2F AFD)": 0.1673, "Hopper (4A2F AFD)": 0.2102, "H800": 0.2390}
    found = {row.system: row for row in figures if row.metric == "tok_s_per_gpu" and row.system in wanted}
    assert set(found) == set(wanted)
    for system, usd in wanted.items():
        assert usd_per_million(2.0, found[system].measured) == pytest.approx(usd, rel=1e-3)
        assert usd_per_million(2.0, found[system].predicted) == pytest.approx(usd, rel=0.10), system


def test_margins_are_mark_ups() -> None:
    assert price_over_cost(0.7) == pytest.approx(10 / 3)
    assert price_over_cost(0.8) == pytest.approx(5)
    assert margin(1, price_over_cost(0.7)) == pytest.approx(0.7)


def test_a_cheap_chip_over_four_years() -> None:
    chip = load_chip("bertha500")
    assert float(chip.price.purchase_usd or 0) / 192 == pytest.approx(26.04, abs=5e-3)
    found, _ = cost(Cluster((Pool("chip", chip, 1),)), Work(1.0))
    assert found is not None
    assert found.usd_per_hour == pytest.approx(0.1427, abs=5e-5)


def test_fast_mode_of_the_published_price() -> None:
    assert speed_price(5 / 14, 2.5) == pytest.approx(6)
    assert speed_price(0.5, 2.0) == float("inf")
    a, b = interactivity_line((100, 0.020), (50, 0.015))
    assert (a, b) == pytest.approx((0.010, 1e-4))
    for batch, time in ((100, 0.020), (50, 0.015), (10, 0.011)):
        assert (1 - a / time) / b == pytest.approx(batch / time)  # X(s) = (1 - a s) / b


def test_half_the_use_is_twice_the_cost() -> None:
    full, half = asked(ALONE), asked(ALONE, "economics.utilisation=50 %")
    cost_of = "usd_per_million_output_tokens"
    assert getattr(spent(half), cost_of) == pytest.approx(2 * getattr(spent(full), cost_of), rel=1e-12)
    assert spent(half).joules_per_token > spent(full).joules_per_token  # idle hours draw power


def test_a_rental_price_is_all_there_is_to_pay() -> None:
    plain = spent(asked(ALONE))
    more = spent(asked(ALONE, "economics={electricity: 0.2 USD/kWh, host: 9000 USD, cost_of_capital: 10 %, life: 2 year}"))
    assert plain.usd_per_hour == more.usd_per_hour == pytest.approx(72 * 7.5)
    assert plain.usd_per_million_output_tokens == pytest.approx(1.1303, rel=1e-3)


def test_what_bought_hardware_costs_an_hour_by_hand() -> None:
    """(27,500 + 8,000 + 1,500 + 1,000) USD, 5 years at 8 %: 0.25046 a year; 2 % upkeep; 0.7 kW (no work known) x 1.3 x 0.1."""
    cluster, prices = one(
        "h100_sxm", pay="purchase", life="5 year", cost_of_capital="8 %", upkeep="2 %", host="8000 USD", network="1500 USD",
        rack="1000 USD", electricity="0.1 USD/kWh", pue=1.3, host_power="100 W",
    )  # fmt: skip
    found, _ = cost(cluster, Work(1000.0), prices)
    assert found is not None
    annuity = 0.08 / (1 - 1.08**-5)
    assert annuity == pytest.approx(0.25046, abs=1e-5)
    assert found.usd_per_hour == pytest.approx(38_000 * (annuity + 0.02) / 8760 + 0.8 * 1.3 * 0.1)


def test_memory_prices_move_a_chip_s_price() -> None:
    """192 GiB at 15 USD/GB in the file: 10 USD/GB more makes it 2,061.6 USD dearer."""
    chip = load_chip("bertha500")
    dearer = economics(memory={"lpddr": "25 USD/GB"})
    assert purchase_usd(chip, dearer) - purchase_usd(chip, economics()) == pytest.approx(10 * 192 * 2**30 / 1e9)
    cluster = Cluster((Pool("chip", chip, 1),))
    for tier, words in (("hbm", "no chip has"), ("sram", "no chip has")):
        found, why = cost(cluster, Work(1.0), economics(memory={tier: "25 USD/GB"}))
        assert found is None
        assert words in why


def test_both_pools_are_paid_for_and_the_idle_one_is_named() -> None:
    found = spent(asked(AFD))
    assert sum(row.usd_per_hour for row in found.pools) == pytest.approx(found.usd_per_hour)
    lpx = next(row for row in found.pools if row.pool == "lpx")
    busy = next(row.busy_fraction for row in asked(AFD).pools if row.pool == "lpx")
    assert lpx.idle_usd_per_million_tokens == pytest.approx(lpx.usd_per_million_tokens * (1 - busy))
    assert lpx.idle_usd_per_million_tokens > 0.9 * lpx.usd_per_million_tokens


def test_no_tokens_give_a_message() -> None:
    cluster, prices = one("h100_sxm")
    assert cost(cluster, Work(0.0), prices) == (None, "no tokens are produced")
    bare = load_chip("hyperaccel_lpu")
    assert "no price is known for hyperaccel_lpu" in cost(Cluster((Pool("a", bare, 1),)), Work(1.0))[1]


def test_cost_of_input_and_of_output_do_not_add() -> None:
    """Case C40: eight GPUs at 3 USD/h, 8,000 input and 2,000 output tokens/s."""
    assert usd_per_million(24, 10_000) == pytest.approx(0.667, abs=5e-4)
    assert usd_per_million(24, 8_000) == pytest.approx(0.833, abs=5e-4)
    assert usd_per_million(24, 2_000) == pytest.approx(3.333, abs=5e-4)


def test_energy_is_kept_by_stage() -> None:
    """Case C39: 8 x 900 W that prefill 1e6 tokens and 8 x 700 W that decode 2e5 in 100 s: 0.72 and 2.80 J a token.

    All energy over output tokens is 6.40 J, over all tokens 1.07 J; neither is what a stage's answer prints.
    """
    busy = {
        "gpu": (Part("gpu", "running", 1.0, Number(1e9)), Part("gpu", "idle", 8.0, Number(75)))
    }  # more than any TDP: every chip draws all of its own
    stages = {"prefill": (900.0, 1e6), "decode": (700.0, 2e5)}
    joules = {}
    for phase, (watts, tokens) in stages.items():
        cluster = Cluster((Pool("gpu", with_number(load_chip("h100_sxm"), "power.tdp", watts), 8),))
        found, why = cost(cluster, Work(tokens / 100, phase, time_s=1.0, energy=busy))
        assert found is not None, why
        assert COUNTED[phase] in found.basis
        joules[phase] = found.joules_per_token
    assert joules["prefill"] == pytest.approx(0.72)
    assert joules["decode"] == pytest.approx(2.80)
    whole = sum(joules[phase] * tokens for phase, (_, tokens) in stages.items())
    assert whole / 2e5 == pytest.approx(6.40)
    assert whole / 1.2e6 == pytest.approx(1.0667, abs=1e-4)
    answer = offer(load_scenario("h100_llama_70b_decode"))
    kinds = {row.kind: row for row in answer.tokens}
    assert kinds["output"].joules_per_token == spent(asked("h100_llama_70b_decode")).joules_per_token
    assert 0 < (kinds["input"].joules_per_token or 0) < (kinds["output"].joules_per_token or 0)


def test_energy_by_hand() -> None:
    """Llama-3.1-70B on four H100: HBM bytes at 4 pJ/bit, BF16 work at what the TDP leaves, idle 75 W."""
    found = asked("h100_llama_70b_decode", "workload.batch=1", "workload.context=1")
    uses = {row["part"]: row["joules_per_token"] for row in spent(found).energy}
    weights = sum(row.weights_bytes for row in found.memory) * 4
    table = 128_256 * 8192 * 2
    assert uses["memory:hbm"] == pytest.approx((weights - table) * 8 * 4e-12, rel=0.01)  # one row of the embedding is read
    assert uses["idle"] == pytest.approx(4 * 75 * found.step.time_s)
    assert uses["running"] == pytest.approx(4 * 0.35 * 625 * found.step.time_s * found.pools[0].busy_fraction)
    each = flop_energy(load_chip("h100_sxm"), "bf16", 0.35)
    assert each == pytest.approx((700 - 75 - 0.35 * 625 - 3.35e12 * 8 * 4e-12) / 989.4e12)
    flops = sum(op.flops * op.count for op in found.ops) * 4
    assert uses["matrix units bf16"] == pytest.approx(flops * float(each or 0), rel=1e-6)


@pytest.mark.parametrize("name", [AFD, ALONE, "h100_llama_70b_prefill", "rubin_lpddr_deepseek_v3", "rtx4090_mixtral_offload"])
def test_joules_add_up_and_stay_below_the_tdp(name: str) -> None:
    found = spent(asked(name))
    assert sum(row.joules_per_token or 0 for row in found.pools) == pytest.approx(found.joules_per_token)
    assert not any(row.capped for row in found.pools) or name == "h100_llama_70b_prefill"
    if not any(row.capped for row in found.pools):
        assert sum(use["joules_per_token"] for use in found.energy) == pytest.approx(found.joules_per_token)
    assert found.joules_per_token_low <= found.joules_per_token <= found.joules_per_token_high
    assert found.joules_per_token <= found.joules_per_token_at_tdp


def test_dearer_energy_and_prices_never_make_a_token_cheaper() -> None:
    scenario = load_scenario(ALONE, ["economics={pay: purchase, electricity: 0.1 USD/kWh}"])
    pool = scenario.cluster.pools[0]
    base = spent(run(scenario))
    for path in ("power.idle", "memory.hbm.energy", "price.purchase"):
        number = dict(pool.chip.numbers())[path]
        chip = with_number(pool.chip, path, float(number) * 1.2)
        found = spent(run(replace(scenario, cluster=replace(scenario.cluster, pools=(replace(pool, chip=chip),)))))
        assert found.usd_per_million_output_tokens > base.usd_per_million_output_tokens
    assert base.usd_per_million_low < base.usd_per_million_output_tokens < base.usd_per_million_high


def test_a_range_set_over_a_chip_s_price_moves_the_range_of_the_cost() -> None:
    """By hand: the range of the price and that of the step add as independent ones, in log space."""
    rental = "cluster.pools.gpu.override={price: {rental: %s}}"
    plain = spent(asked("h100_llama_70b_decode", rental % "2 USD/h"))
    ranged = asked("h100_llama_70b_decode", rental % "{value: 2 USD/h, range: [1 USD/h, 4 USD/h], source: a quote}")
    found, usd = spent(ranged), plain.usd_per_million_output_tokens
    assert found.usd_per_million_output_tokens == pytest.approx(usd)
    for own, factor, bound in (
        (plain.usd_per_million_low, 0.5, found.usd_per_million_low), (plain.usd_per_million_high, 2, found.usd_per_million_high)
    ):  # fmt: skip
        by_hand = math.sqrt(math.log(own / float(usd or 0)) ** 2 + math.log(factor) ** 2)
        assert abs(math.log(bound / float(usd or 0))) == pytest.approx(by_hand, rel=1e-9)
    price = ranged.placed.scenario.cluster.pools[0].chip.price.rental_usd_per_hour
    assert price is not None
    assert (price.low, price.high, price.source) == (1.0, 4.0, "a quote")


def test_sessions_of_agents() -> None:
    """100 calls from 20,000 tokens, 1,000 more each: 6.95 M prompt tokens without reuse, 0.119 M with it."""
    session = Session.model_validate({"calls": 100, "first_input": 20_000, "input_per_call": 1_000})
    assert session.input_tokens == 6_950_000
    assert session.new_tokens == 119_000
    text = "economics.session={calls: 100, first_input: 20000, input_per_call: 1000, output_per_call: 500, cache_hit: 90 %}"
    found = offer(load_scenario(ALONE, [text]))
    s, usd = found.session, {row.kind: row.usd_per_million / 1e6 for row in found.tokens}
    assert s["cached_input_tokens"] == pytest.approx(0.9 * (6_950_000 - 119_000))
    assert s["input_tokens"] + s["cached_input_tokens"] == pytest.approx(6_950_000)
    by_hand = s["input_tokens"] * usd["input"] + s["cached_input_tokens"] * usd["cached input"] + 50_000 * usd["output"]
    assert s["usd"] == pytest.approx(by_hand)


def test_margins_and_fast_modes_of_an_offer() -> None:
    found = offer(load_scenario(ALONE, ["economics.sold={output: 4 USD/Mtok, input: 1 USD/Mtok}", "workload.context=8192"]))
    output = found.tokens[0]
    assert output.margin == pytest.approx(1 - output.usd_per_million / 4)
    assert found.tokens[2].margin is None
    assert found.streaming_share is not None
    for row in found.fast:
        if row.line_price is not None:
            assert row.line_price == pytest.approx(speed_price(found.streaming_share, row.times))
            assert row.price_found is not None
            assert 1 < row.price_found < 2 * row.line_price


def test_the_input_may_be_taken_in_elsewhere() -> None:
    plain = offer(load_scenario("h100_llama_70b_decode"))
    other = offer(load_scenario("h100_llama_70b_decode"), load_scenario("h100_llama_70b_prefill", ["workload.batch=8"]))
    assert plain.tokens[0] == other.tokens[0]
    assert plain.tokens[1] != other.tokens[1]
    with pytest.raises(InputError, match="decode step"):
        offer(load_scenario("h100_llama_70b_prefill"))
    with pytest.raises(InputError, match="prefill step"):
        offer(load_scenario(ALONE), load_scenario(ALONE))
    with pytest.raises(InputError, match=r"prefills llama-3\.1-70b; .* decodes deepseek-v3"):
        offer(load_scenario(ALONE), load_scenario("h100_llama_70b_prefill"))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("economics.utilisation=0", "economics.utilisation: is a share of all hours"),
        ("economics.pue=0.9", "economics.pue: is at least 1"),
        ("economics.life=0 s", "economics.life: must be more than zero"),
        ("economics.electricity=0.1", "needs a unit, such as '0.08 USD/kWh'"),
        ("economics.electricity=0.1 USD/h", "expected USD/kWh"),
        ("economics.rent=2 USD/h", "unknown key 'rent'"),
        ("economics.pay=lease", "is not one of rental, purchase"),
    ],
)
def test_wrong_economics_are_told_where_and_why(setting: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario(ALONE, [setting])
    assert words in str(caught.value.problems[0])


def test_the_command_prints_what_it_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["cost", ALONE, "--json"])
    assert left.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["kind"] for row in found["tokens"]} == {"output", "input", "cached input"}
    assert "not counted: electricity, host, network, rack" in found["assumptions"][0]
    assert found["step"]["usd_per_hour"] == pytest.approx(540)
    with pytest.raises(SystemExit):
        main(["cost", ALONE])
    assert "not counted: electricity, host, network, rack" in " ".join(capsys.readouterr().out.split())


def test_rows_of_pools_are_plain() -> None:
    found = asked(AFD).to_dict()["cost"]
    assert json.loads(json.dumps(found)) == json.loads(json.dumps(found))
    assert {*found["pools"][0]} == {*PoolCost.__dataclass_fields__}


def test_a_cache_dearer_than_computing_again_says_for_how_long_it_pays() -> None:
    """Read + keep x time = compute again: at that time a cached token costs what a new one does."""
    asked_for = "h100_llama_70b_decode"
    kinds = {row.kind: row for row in offer(load_scenario(asked_for)).tokens}
    assert kinds["cached input"].usd_per_million > kinds["input"].usd_per_million
    said = re.search(r"dearer than computing it again .*: worth keeping for up to ([\d.]+) s", kinds["cached input"].how)
    assert said is not None
    at = offer(load_scenario(asked_for, [f"economics.session.keep={said[1]} s"]))
    kept = {row.kind: row for row in at.tokens}
    assert kept["cached input"].usd_per_million == pytest.approx(kept["input"].usd_per_million, rel=0.02)
    cheap = {row.kind: row for row in offer(load_scenario("rubin_deepseek_v3")).tokens}
    assert "computing it again" not in cheap["cached input"].how


@pytest.mark.parametrize(("text", "hours"), [("4 years", 4 * 8760), ("4 year", 4 * 8760), ("2 days", 48), ("3 hours", 3)])
def test_a_life_may_be_said_in_plain_words(text: str, hours: float) -> None:
    economics = load_scenario("h100_llama_70b_decode", [f"economics.life={text}"]).economics
    assert float(economics.life_s) == pytest.approx(hours * 3600)
