"""Dollars and joules of a step."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.hardware import Cluster, Pool

HOURS_PER_YEAR = 8760.0
LIFE_YEARS = 4.0
"""Straight-line life of bought hardware when no rental price is known."""


@dataclass(frozen=True)
class Cost:
    """What the cluster costs and draws while it runs this step over and over."""

    usd_per_hour: float
    usd_per_million_output_tokens: float
    joules_per_token: float | None
    watts: float | None
    basis: str
    """Rental or purchase, chip by chip, and the power assumed."""


def cost(cluster: Cluster, tokens_per_s: float) -> tuple[Cost | None, str]:
    """Cost of `tokens_per_s`, or None and the reason.

    Every chip at its rental price, else at its purchase price over 4 years of 8,760 h; power at TDP.
    """
    missing = [pool.chip.name for pool in cluster.pools if _hourly(pool) is None]
    if missing:
        return None, f"no price is known for {', '.join(dict.fromkeys(missing))}; add price: to the chip's YAML"
    if tokens_per_s <= 0:
        return None, "no tokens are produced"
    hourly = [_hourly(pool) or (0.0, "") for pool in cluster.pools]
    per_hour = sum(price for price, _ in hourly)
    known = [pool.chip.power.tdp_watts for pool in cluster.pools]
    watts = (
        None if any(tdp is None for tdp in known) else sum(float(p.chip.power.tdp_watts or 0) * p.count for p in cluster.pools)
    )
    basis = "; ".join(f"{pool.name}: {text}" for pool, (_, text) in zip(cluster.pools, hourly, strict=True))
    return Cost(
        per_hour, per_hour / (tokens_per_s * 3600) * 1e6, None if watts is None else watts / tokens_per_s, watts,
        f"{basis}; power at TDP, chips only",
    ), ""  # fmt: skip


def _hourly(pool: Pool) -> tuple[float, str] | None:
    price = pool.chip.price
    if price.rental_usd_per_hour is not None:
        return pool.count * float(price.rental_usd_per_hour), f"rental {price.rental_usd_per_hour:g} USD/h a chip"
    if price.purchase_usd is not None:
        per_hour = float(price.purchase_usd) / (LIFE_YEARS * HOURS_PER_YEAR)
        return pool.count * per_hour, f"{price.purchase_usd:g} USD a chip over {LIFE_YEARS:g} years"
    return None
