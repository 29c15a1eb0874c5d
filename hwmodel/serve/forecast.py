"""What a predictor says of every call, in the few kinds that the serving loop keeps idle KV by."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.idle_cache import Predicted
from hwmodel.serve.predictors import Predictor
from hwmodel.serve.requests import Array, Ints, Requests, Worth
from hwmodel.serve.returns import HORIZON_S, auc, returns_of
from hwmodel.serve.trace import Trace

BINS = 12
"""Kinds of forecast of the calls that ended in one way: equal shares of them by the chance of a return."""


def forecast(trace: Trace, predictor: Predictor, horizon_s: float = HORIZON_S, drop: float = 0.0) -> Requests:
    """The requests of a trace with the forecast of each.

    The predictor sees the trace's own times; in a closed loop the pauses are the same at any speed of the service. Worth is
    that of `Predicted`: the chance of a return per second that a place is still taken, given how long none has come. Where the
    chance that is left is below `drop`, KV that leaves the first tier is dropped. Requests of no conversation are worth the
    inverse of the horizon and their age. The last kind but one is that of copies of what a higher tier has, the
    first to go; the last that of conversations that have come back and wait, kept before all others.

    Raises
    ------
    InputError
        When the predictor cannot say.
    """
    ages = 2.0 ** (np.arange(int(c.AGES_PER_OCTAVE * np.log2(1 + horizon_s)) + 1) / c.AGES_PER_OCTAVE) - 1
    returns = returns_of(trace, horizon_s)
    kind, rows = np.zeros(len(trace), np.int64), [1 / (horizon_s + ages)]
    quality = float("nan")
    if len(returns):
        chance = predictor.chances(trace, returns)
        quality = auc(returns.came, chance)
        known = Predicted(returns, chance)
        for step in np.unique(returns.step).tolist():
            own = np.flatnonzero(returns.step == step)
            part = _bins(chance[own])
            for number in np.unique(part).tolist():
                inside = own[part == number]
                kind[returns.call[inside]] = len(rows)
                rows.append(_row(known, step, float(chance[inside].mean()), ages, drop))
    rows += [np.full(len(ages), -np.inf), np.full(len(ages), np.inf)]
    return replace(trace.requests, forecast=kind, worth=Worth(np.array(rows), quality))


def _row(known: Predicted, step: int, chance: float, ages: Array, drop: float) -> Array:
    """(ages,) worth of calls that ended so, of such a chance."""
    steps, chances = np.full(len(ages), step), np.full(len(ages), chance)
    value = known.at(steps, chances, ages)
    return np.where(known.still(steps, chances, ages) < drop, -np.inf, value) if drop else value


def _bins(chance: Array) -> Ints:
    """(n,) number of the part of equal size that a chance falls into; equal chances fall into one."""
    edges = np.unique(np.quantile(chance, np.arange(1, BINS) / BINS, method="inverted_cdf"))
    return np.asarray(np.searchsorted(edges, chance), np.int64)
