"""Closed forms of cost, power, margin and the price of speed: of one step, or of many over arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hwmodel.prices import HOURS_PER_YEAR, Economics

T = TypeVar("T", float, NDArray[np.float64])
LEAST = 0.2
"""Share of a chip's dynamic power that arithmetic takes at least, whatever its memory draws at full rate."""
IDLE = 0.15
"""Idle power over TDP where nothing is known."""


def joules_per_flop(above: T, memory: T, peak: T, running: float) -> T:
    """J per FLOP, max((1 - running) above - memory, LEAST above) / peak.

    above : TDP - idle power (W); memory : main memory at full rate (W); peak : FLOP/s; running : share of `above`
    """
    return np.maximum((1 - running) * above - memory, LEAST * above) / peak  # type: ignore[no-any-return]


def drawn_watts(joules: T, time_s: T, chips: T, tdp: T) -> tuple[T, T]:
    """(power of one chip in W while a step runs, at most its TDP; what its work would draw) from the joules of all chips."""
    each = joules / time_s / chips
    return np.minimum(each, tdp), each


def mean_watts(working: T, idle: T, utilisation: float) -> T:
    """Power (W) over all hours paid for: idle in those in which the step does not run."""
    return working * utilisation + idle * (1 - utilisation)


def joules_per_token(mean: T, chips: T, tokens_per_s: T, utilisation: float) -> T:
    """Joules per token of chips that draw `mean` (W) each, idle hours included."""
    return mean * chips / (tokens_per_s * utilisation)


def bought_usd_per_hour(chips: T, usd: T, prices: Economics) -> T:
    """USD per hour of bought chips without electricity; usd : of one with all that is bought beside it."""
    return chips * usd * prices.yearly_share / HOURS_PER_YEAR


def electricity_usd_per_hour(chips: T, watts: T, prices: Economics) -> T:
    """USD per hour of the electricity of bought chips that draw `watts` (W) each, with hosts and building."""
    dear = float(prices.electricity_usd_per_kwh or 0.0)
    return chips * (watts + float(prices.host_power_watts)) * float(prices.pue) * dear / 1e3


def with_memory_at(usd: T, tiers: list[tuple[T, float, T]]) -> T:
    """Purchase price (USD) with memory at other prices; tiers : (capacity in B, new price, price in `usd`), USD per GB."""
    for capacity, now, own in tiers:
        usd = usd + capacity / 1e9 * (now - own)
    return np.maximum(0.0, usd)  # type: ignore[no-any-return]


def usd_per_million(usd_per_hour: T, tokens_per_s: T, utilisation: float = 1.0) -> T:
    """USD per million tokens: 1e6 x USD/h / (3600 tokens/s utilisation) (as InferenceMAX publishes it)."""
    return usd_per_hour / (tokens_per_s * utilisation * 3600) * 1e6


def margin(cost: float, price: float) -> float:
    """Gross margin 1 - cost / price; negative when sold below cost."""
    return 1 - cost / price


def price_over_cost(share: float) -> float:
    """Price over cost at a gross margin: 1 / (1 - margin)."""
    return 1 / (1 - share)


def interactivity_line(slow: tuple[float, float], fast: tuple[float, float]) -> tuple[float, float]:
    """(a, b) of T = a + b B in s through two steps (batch, step time in s); X(s) = (1 - a s) / b with s = 1 / T.

    Derivation: X = B / T tokens/s, B = (T - a) / b. a: weights and fixed costs; b: cache and work of one more sequence.
    """
    (many, long), (few, short) = slow, fast
    b = (long - short) / (many - few)
    return long - b * many, b


def speed_price(share: float, times: float) -> float:
    """Cost per token of a mode `times` as quick over that of the standard step: (1 - x) / (1 - times x), x = a s.

    share : x, the part of the standard step that does not shrink with the batch. Infinite where the line ends.
    """
    left = 1 - times * share
    return (1 - share) / left if left > 0 else float("inf")
