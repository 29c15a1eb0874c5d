"""Hit rates of a cache of experts in fast memory, requests independent and drawn by popularity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Array = NDArray[np.float64]


def lfu_hit(popularity: Array, capacity: int) -> float:
    """Hit rate of the `capacity` most popular experts, kept for good: the sum of their shares.

    Parameters
    ----------
    popularity
        (experts,) share of the requests for each, sum 1.
    """
    return float(np.sort(popularity)[::-1][:capacity].sum())


def lru_hit(popularity: Array, capacity: int) -> float:
    """Hit rate of the `capacity` last used experts by Che's approximation: the sum of p (1 - exp(-p t)).

    t, the time an expert stays without being asked for, solves sum of (1 - exp(-p t)) = C (Che, Tung and Wang, IEEE JSAC 20,
    2002). As `lfu_hit` for the parameters; experts of popularity 0 are never kept.
    """
    asked = popularity[popularity > 0]
    if capacity >= len(asked):
        return 1.0
    if capacity < 1:
        return 0.0

    def spare(t: float) -> float:
        return float(-np.expm1(-asked * t).sum()) - capacity

    high = float(capacity)
    while spare(high) < 0:
        high *= 2
    stays = brentq(spare, 0.0, high, xtol=1e-12 * high)
    return float(-(asked * np.expm1(-asked * stays)).sum())


def batch_bound(capacity: float, distinct: float) -> float:
    """Most of the experts of one step that a cache can hold when all that are asked for are needed: C / D(B).

    Parameters
    ----------
    distinct
        Expected distinct experts of the step, D(B) (`hwmodel.kernels.routing.distinct_experts`).
    """
    return min(1.0, capacity / distinct)
