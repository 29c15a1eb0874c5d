"""Dollars and joules of a step."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.hardware import Cluster, Pool

HOURS_PER_YEAR = 8760.0
LIFE_YEARS = 4.0
"""Straight-line life of bought hardware when no rental price is known."""

COUNTED = {
    "decode": "per output token",
    "prefill": "per input token",
    "mixed": "per output token of the decodes, which bear the prefill's share as well",
}
"""Which tokens dollars and joules are divided by."""


@dataclass(frozen=True)
class Cost:
    """What the cluster costs and draws while it runs this step over and over."""

    usd_per_hour: float
    usd_per_million_output_tokens: float | None
    """None for a prefill step, which makes no output."""
    usd_per_million_input_tokens: float | None
    """Of a prefill step; None for the others."""
    joules_per_token: float | None
    """Per token that `basis` says is counted."""
    watts: float | None
    basis: str
    """Rental or purchase, chip by chip, the power assumed, and which tokens are counted."""


def cost(cluster: Cluster, tokens_per_s: float, phase: str = "decode") -> tuple[Cost | None, str]:
    """Cost of `tokens_per_s` (input of a prefill step, else output), or None and the reason.

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
    per_million = per_hour / (tokens_per_s * 3600) * 1e6
    made, taken = (None, per_million) if phase == "prefill" else (per_million, None)
    return Cost(
        per_hour, made, taken, None if watts is None else watts / tokens_per_s, watts,
        f"{basis}; power at TDP, chips only; {COUNTED[phase]}",
    ), ""  # fmt: skip


def _hourly(pool: Pool) -> tuple[float, str] | None:
    price = pool.chip.price
    if price.rental_usd_per_hour is not None:
        return pool.count * float(price.rental_usd_per_hour), f"rental {price.rental_usd_per_hour:g} USD/h a chip"
    if price.purchase_usd is not None:
        per_hour = float(price.purchase_usd) / (LIFE_YEARS * HOURS_PER_YEAR)
        return pool.count * per_hour, f"{price.purchase_usd:g} USD a chip over {LIFE_YEARS:g} years"
    return None
