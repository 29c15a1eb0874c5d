"""How many cached positions a query sees: causal, windowed, compressed, top-k."""

import numpy as np
from numba import njit


@njit(cache=True)
def visible(length: float, window: float, ratio: float, topk: float) -> float:
    """Positions that the last token of a sequence of `length` attends to.

    A sliding window sees min(length, window); a compressed or plain cache sees length / ratio entries, at most topk of
    them (0: all). ratio = 0: no such part; window = 0: no window part.
    """
    seen = 0.0
    if window > 0.0:
        seen += min(length, window)
    if ratio > 0.0:
        entries = length / ratio
        seen += min(entries, topk) if topk > 0.0 else entries
    return seen


@njit(cache=True)
def sum_of_min(first: float, count: float, limit: float) -> float:
    """Sum of min(first + i, limit) for i = 1 .. count."""
    rising = min(max(limit - first, 0.0), count)
    rising = np.floor(rising)
    return rising * first + rising * (rising + 1.0) / 2.0 + (count - rising) * limit


@njit(cache=True)
def causal_pairs(cached: float, new: float, window: float, ratio: float, topk: float) -> float:
    """Query-key pairs of `new` tokens behind `cached` ones: new cached + new (new + 1) / 2 without window."""
    pairs = 0.0
    if window > 0.0:
        pairs += sum_of_min(cached, new, window)
    if ratio > 0.0:
        limit = topk * ratio if topk > 0.0 else np.inf
        if limit == np.inf:
            pairs += (new * cached + new * (new + 1.0) / 2.0) / ratio
        else:
            pairs += sum_of_min(cached, new, limit) / ratio
    return pairs
