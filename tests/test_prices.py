"""Prices are inputs with a source: what memory costs today moves the price of a chip, and every price has a date or says so."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hwmodel.economics import Cost, Work, cost, purchase_usd
from hwmodel.explain import explain
from hwmodel.hardware import Chip, Cluster, Pool, load_chip
from hwmodel.memory_prices import ASSUMED, USD_PER_GB
from hwmodel.offer import offer
from hwmodel.prices import Economics
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.number import Number

CHIPS = catalog.names("chips")
BOUGHT = {"pay": "purchase"}
DIES = {"groqchip1", "wse3"}
"""Chips whose memory is part of the die."""


def economics(**fields: Any) -> Economics:
    return Economics.model_validate(fields)


def tiers(chip: Chip) -> list[str]:
    return [tier.tier for tier in chip.memory if not tier.cache and tier.tier != "sram"]


def spent(chip: Chip, prices: Economics) -> Cost:
    found, why = cost(Cluster((Pool("gpu", chip, 1),)), Work(1000.0), prices)
    assert found is not None, why
    return found


def around(found: Cost) -> float:
    return found.usd_per_million_high / found.usd_per_million_low


def test_memory_of_an_h100_by_hand() -> None:
    """80 GB at 20 instead of 15 USD/GB: 27,500 + 400 USD over four years."""
    chip = load_chip("h100_sxm")
    prices = economics(**BOUGHT, memory={"hbm": "20 USD/GB"})
    assert purchase_usd(chip, prices) == pytest.approx(27_900)
    assert spent(chip, prices).usd_per_hour == pytest.approx(27_900 / (4 * 8760))


@pytest.mark.parametrize("name", CHIPS)
def test_today_s_memory_moves_every_chip_that_is_sold(name: str) -> None:
    """By capacity x (new price - price in the chip's price), and the doubt about the latter widens the answer."""
    chip = load_chip(name)
    if chip.price.purchase_usd is None:
        return
    assert bool(tiers(chip)) == (name not in DIES)
    before = economics(**BOUGHT)
    for tier in map(chip.tier, tiers(chip)):
        own = tier.usd_per_gb
        assert own is not None
        assert own.low < own < own.high
        after = economics(**BOUGHT, memory={tier.tier: f"{own + 10} USD/GB"})
        more = 10 * float(tier.capacity_bytes) / 1e9
        assert purchase_usd(chip, after) - purchase_usd(chip, before) == pytest.approx(more)
        assert spent(chip, after).usd_per_hour - spent(chip, before).usd_per_hour == pytest.approx(more / (4 * 8760))
        at_once = economics(
            **BOUGHT, memory={tier.tier: {"value": f"{own + 10} USD/GB", "range": [f"{own} USD/GB", "99 USD/GB"]}}
        )
        sure = {"tier": tier.tier, "usd_per_gb": own.at(float(own))}
        certain = chip.model_copy(update={"memory": tuple(t.model_copy(update=sure) if t is tier else t for t in chip.memory)})
        assert around(spent(certain, after)) < around(spent(chip, after)) < around(spent(chip, at_once))


def test_an_assumed_price_is_named_in_the_answer() -> None:
    setting = "economics={pay: purchase, memory: {hbm: 20 USD/GB}}"
    scenario = load_scenario("h100_llama_70b_decode", [setting])
    for said in (run(scenario).assumptions, offer(scenario).assumptions):
        (line,) = (text for text in said if ASSUMED in text)
        assert line.startswith("hbm in the price of h100_sxm: +400 USD: 80 GB at 20 instead of 15 (8 to 20) USD/GB")
    found = explain(scenario, "cost")
    assert "(usd_per_gb_now_gpu_hbm - usd_per_gb_gpu_hbm)" in found.formula
    stated = run(load_scenario("h100_llama_70b_decode", [setting, "cluster.pools.gpu.override.memory.hbm.usd_per_gb=12"]))
    assert any("80 GB at 20 instead of 12 USD/GB" in text for text in stated.assumptions)
    assert stated.cost is not None
    assert stated.cost.pools[0].purchase_usd == pytest.approx(27_500 + 80 * 8)
    rented = run(load_scenario("h100_llama_70b_decode", ["economics.memory={hbm: 20 USD/GB}"]))
    assert any("hbm in the price of h100_sxm: nothing: it is rented" in text for text in rented.assumptions)


def test_memory_without_a_figure_says_which_have_one() -> None:
    found, why = cost(Cluster((Pool("gpu", load_chip("groqchip1"), 1),)), Work(1.0), economics(memory={"sram": "20 USD/GB"}))
    assert found is None
    for words in ("sram", *USD_PER_GB, "usd_per_gb"):
        assert words in why


def dated(source: str) -> bool:
    """A year outside of addresses, or the word that none is known."""
    return re.search(r"\b20[12]\d\b|\bundated\b", re.sub(r"https?://\S+|arXiv \S+", "", source)) is not None


def test_what_counts_as_a_date() -> None:
    assert dated("Morgan Stanley, May 2026")
    assert dated("undated: general knowledge")
    assert not dated("https://example.org/prices-2026 and arXiv 2507.19427")


@pytest.mark.parametrize("name", CHIPS)
def test_every_price_of_a_chip_has_a_date_or_says_that_it_has_none(name: str) -> None:
    for path, number in load_chip(name).numbers():
        if path.startswith("price.") or path.endswith(".usd_per_gb"):
            assert dated(number.source), f"{path}: {number.source}"


def test_defaults_of_economics_are_dated() -> None:
    plain = Economics()
    numbers = [getattr(block, name) for block in (plain, plain.session) for name in type(block).model_fields]
    stated = [number for number in [*numbers, *USD_PER_GB.values()] if isinstance(number, Number) and number.status]
    assert len(stated) > 10
    assert all(dated(number.source) for number in stated)
    assert all(number.low < number < number.high for number in USD_PER_GB.values())


def test_cost_says_where_a_price_comes_from_and_that_it_has_no_date() -> None:
    said = offer(load_scenario("h100_llama_70b_decode")).assumptions
    assert any(text.startswith("rental of h100_sxm: 2.95 (1.99 to 5) USD/h, published: median of 37") for text in said)
    other = offer(load_scenario("h100_llama_70b_decode", ["cluster.pools.gpu.chip=mi300x"])).assumptions
    assert any(text.startswith("rental of mi300x: 2.5 (1.7 to 6) USD/h, estimated: undated: ") for text in other)
