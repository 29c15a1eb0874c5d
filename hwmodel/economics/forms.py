"""Closed forms of cost, margin and the price of speed."""

from __future__ import annotations


def usd_per_million(usd_per_hour: float, tokens_per_s: float, utilisation: float = 1.0) -> float:
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
