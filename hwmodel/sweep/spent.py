"""Dollars and joules of many points: the formulas of `economics` over arrays."""

from __future__ import annotations

import numpy as np

from hwmodel.economics.forms import (
    bought_usd_per_hour,
    drawn_watts,
    electricity_usd_per_hour,
    joules_per_token,
    mean_watts,
    usd_per_million,
    with_memory_at,
)
from hwmodel.economics.purchase import rented, repriced
from hwmodel.economics.step import unpriced
from hwmodel.hardware import Pool
from hwmodel.prices import Economics
from hwmodel.scenario import Scenario
from hwmodel.sweep.energy import Slot, power, work_joules
from hwmodel.sweep.names import COST, JOULES, TIME, TOKENS, WATTS
from hwmodel.sweep.numbers import Numbers
from hwmodel.timing import Array

SPENT = ("usd_per_hour", COST, JOULES, WATTS)


def spent(
    scenario: Scenario, slots: tuple[Slot, ...], amounts: Array, numbers: Numbers, found: dict[str, Array]
) -> dict[str, Array]:
    """USD per hour and million tokens, joules per token and watts, as `economics.cost` counts them.

    amounts : (slots, points) of all micro-batches; found : columns of the step, (points,). Nan where no price or no TDP is
    known.
    """
    cluster, prices = scenario.cluster, scenario.economics
    if unpriced(cluster, prices):
        return {name: np.full(numbers.points, np.nan) for name in SPENT}
    rate, time, used = found[TOKENS], found[TIME], float(prices.utilisation)
    dollars, joules, drawn = (np.zeros(numbers.points) for _ in range(3))
    for pool in cluster.pools:
        chips = numbers.count(pool.name, cluster)
        watts, mean = _watts(pool, scenario, slots, amounts, numbers, found[f"{pool.name}.busy_fraction"] * chips, time)
        dollars += _hourly(pool, prices, numbers, chips)
        if not rented(pool.chip, prices) and prices.electricity_usd_per_kwh is not None:
            dollars += electricity_usd_per_hour(chips, np.nan_to_num(mean), prices)
        joules += joules_per_token(mean, chips, rate, used)
        drawn += watts * chips
    return dict(zip(SPENT, (dollars, usd_per_million(dollars, rate, used), joules, drawn), strict=True))


def _watts(
    pool: Pool, scenario: Scenario, slots: tuple[Slot, ...], amounts: Array, numbers: Numbers, busy: Array, time: Array
) -> tuple[Array, Array]:
    """Power of one chip of a pool (W): while the step runs, and over all hours. busy : chips x share of the step."""
    prices, cluster = scenario.economics, scenario.cluster
    of = power(pool, numbers, prices)
    if of is None:
        unknown = np.full(numbers.points, np.nan)
        return unknown, unknown
    chips = numbers.count(pool.name, cluster)
    joules = work_joules(pool, slots, amounts, of, numbers, cluster, prices)
    joules += time * busy * of.running + time * chips * of.idle
    watts, _ = drawn_watts(joules, time, chips, of.tdp)
    return watts, mean_watts(watts, of.idle, float(prices.utilisation))


def _hourly(pool: Pool, prices: Economics, numbers: Numbers, chips: Array) -> Array:
    """USD per hour of a pool's chips without electricity."""
    price, name = pool.chip.price, pool.name
    if rented(pool.chip, prices):
        return chips * numbers.chip(name, "price.rental", float(price.rental_usd_per_hour or 0.0))
    usd = np.asarray(numbers.chip(name, "price.purchase", float(price.purchase_usd or 0.0)))
    tiers = [
        (
            np.asarray(numbers.chip(name, f"memory.{tier.tier}.capacity", float(tier.capacity_bytes))), now,
            np.asarray(numbers.chip(name, f"memory.{tier.tier}.usd_per_gb", float(tier.usd_per_gb or 0.0))),
        )
        for tier, now in repriced(pool.chip, prices)
    ]  # fmt: skip
    return bought_usd_per_hour(chips, with_memory_at(usd, tiers) + prices.beside_usd, prices)
