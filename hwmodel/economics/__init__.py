"""Dollars and joules of a step."""

from hwmodel.economics.forms import interactivity_line, margin, price_over_cost, speed_price, usd_per_million
from hwmodel.economics.step import Cost, PoolCost, Work, cost, hourly, purchase_usd, spending
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
    "price_over_cost",
    "purchase_usd",
    "speed_price",
    "spending",
    "usd_per_million",
]
