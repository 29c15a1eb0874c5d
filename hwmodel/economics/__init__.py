"""Dollars and joules of a step."""

from hwmodel.economics.forms import interactivity_line, margin, price_over_cost, speed_price, usd_per_million
from hwmodel.economics.purchase import memory_said, prices_said, purchase_usd
from hwmodel.economics.step import Cost, PoolCost, Work, cost, hourly, spending
from hwmodel.prices import HOURS_PER_YEAR, LIFE_YEARS

__all__ = [
    "HOURS_PER_YEAR",
    "LIFE_YEARS",
    "Cost",
    "PoolCost",
    "Work",
    "cost",
    "hourly",
    "interactivity_line",
    "margin",
    "memory_said",
    "price_over_cost",
    "prices_said",
    "purchase_usd",
    "speed_price",
    "spending",
    "usd_per_million",
]
