"""What it is worth to know which conversations come back: predictors and policies side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.serve.idle_cache import Clairvoyant, Lru, Predicted, limited
from hwmodel.serve.keeping import Outcome, Prices, cheapest, clairvoyant, held, held_at_most_s, outcome
from hwmodel.serve.predictors import Predictor
from hwmodel.serve.predictors.constant import Never, Rate
from hwmodel.serve.predictors.learned import Learned
from hwmodel.serve.predictors.noisy import Noisy
from hwmodel.serve.predictors.oracle import Oracle
from hwmodel.serve.requests import Array
from hwmodel.serve.returns import HORIZON_S, Returns, auc, returns_of
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError


@dataclass(frozen=True)
class Row:
    """One policy over a trace."""

    name: str
    auc: float
    """Of what it says of returns, over all calls; NaN for policies that say nothing."""
    rented: Outcome | None
    """Memory rented by the byte and second: each call's KV kept, demoted and dropped as is cheapest."""
    limited: Outcome | None
    """One memory of a size, the KV of least worth put out when it is full."""


@dataclass(frozen=True)
class Foresight:
    """Policies side by side."""

    rows: tuple[Row, ...]
    returns: Returns
    break_even_s: tuple[float, ...]
    """By tier: how long KV may lie there before computing it again is cheaper."""

    def row(self, name: str) -> Row:
        """A policy by name."""
        return next(row for row in self.rows if row.name == name)

    def worth_usd(self, name: str) -> float:
        """USD over the trace that a policy saves in rented memory against one that knows how calls end, and no more."""
        known, asked = self.row("rate").rented, self.row(name).rented
        if known is None or asked is None:
            return float("nan")
        return known.usd - asked.usd


def foresight(
    trace: Trace,
    prices: Prices,
    capacity_tokens: float = 0.0,
    tier: int = 0,
    horizon_s: float = HORIZON_S,
    aucs: Sequence[float] = (0.69,),
    predictors: Mapping[str, Predictor] | None = None,
    seed: int = 0,
) -> Foresight:
    """LRU, no and perfect information, and predictors between them, over the conversations of a trace.

    Parameters
    ----------
    capacity_tokens
        Size of the limited memory; 0 leaves it out.
    tier
        Which of the prices' tiers it is.
    aucs
        Qualities of noisy predictors.
    predictors
        More of them by name.

    Raises
    ------
    InputError
        For a trace without conversations.
    """
    returns = returns_of(trace, horizon_s)
    if not len(returns):
        raise InputError(f"{trace.requests.source or 'the trace'} has no conversations, so nothing returns")
    asked: dict[str, Predictor] = {
        "never": Never(), "rate": Rate(), "learned": Learned(), **(predictors or {}),
        **{f"AUC {quality:g}": Noisy(auc=quality, seed=seed) for quality in aucs}, "oracle": Oracle(),
    }  # fmt: skip
    size = capacity_tokens
    rows = [Row("LRU", float("nan"), None, limited(returns, Lru(), size, prices, tier) if size else None)]
    for k, place in enumerate(prices.tiers):
        rented = outcome(returns, held(returns, k, held_at_most_s(prices, k)), prices)
        rows.append(Row(f"break-even time in {place.name}", float("nan"), rented, None))
    for name, predictor in asked.items():
        chance = predictor.chances(trace, returns)
        rows.append(Row(name, auc(returns.came, chance), outcome(returns, cheapest(returns, chance, prices), prices),
                        _limited(returns, chance, size, prices, tier)))  # fmt: skip
    perfect = limited(returns, Clairvoyant(), size, prices, tier) if size else None
    rows.append(Row("perfect information", 1.0, outcome(returns, clairvoyant(returns, prices), prices), perfect))
    return Foresight(tuple(rows), returns, tuple(held_at_most_s(prices, k) for k in range(len(prices.tiers))))


def _limited(returns: Returns, chance: Array, size: float, prices: Prices, tier: int) -> Outcome | None:
    """The limited memory under a predictor; one that says never leaves it empty."""
    if not size:
        return None
    return limited(returns, Predicted(returns, chance), size if np.any(chance > 0) else 0.0, prices, tier)
