"""The points that no other point beats in every objective, kept while points stream by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.timing import Array, Ints

PIVOTS = 16
"""Good points that the others are compared with first: most fall at once."""


def front(values: Array) -> Ints:
    """Indices, ascending, of the rows that no other row beats; of equal rows the first. values : (points, objectives), up."""
    alive = np.nonzero(~np.isnan(values).any(axis=1))[0]
    if not len(alive):
        return alive
    rest = values[alive]
    spread = rest.max(axis=0) - rest.min(axis=0)
    shares = (rest - rest.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    for weight in _weights(values.shape[1]):
        if len(alive) <= 64:
            break
        best = rest[np.argmax(shares @ weight)]
        beaten = (rest <= best).all(axis=1) & (rest < best).any(axis=1)
        alive, rest, shares = alive[~beaten], rest[~beaten], shares[~beaten]
    return alive[_sorted_front(rest)]


def _weights(objectives: int) -> Array:
    return np.random.default_rng(0).dirichlet(np.full(objectives, 0.7), PIVOTS)


def _sorted_front(values: Array) -> Ints:
    order = np.lexsort((np.arange(len(values)), *(-values[:, k] for k in reversed(range(values.shape[1])))))
    if values.shape[1] <= 2:
        second = values[order, -1] if values.shape[1] == 2 else np.where(np.arange(len(order)) == 0, 1.0, 0.0)
        before = np.concatenate([[-np.inf], np.maximum.accumulate(second)[:-1]])
        return np.sort(order[second > before])
    kept: list[int] = []
    for index in order.tolist():
        if not kept or not (values[kept] >= values[index]).all(axis=1).any():
            kept.append(index)
    return np.sort(np.array(kept, dtype=np.int64))


def best(values: Array, many: int) -> Ints:
    """Indices of the `many` largest values, the largest first; of equal ones the first. values : (points,), nan last."""
    ranked = np.where(np.isnan(values), -np.inf, values)
    if len(ranked) > 4 * many > 0:
        limit = np.partition(ranked, len(ranked) - many)[len(ranked) - many]
        some = np.nonzero(ranked >= limit)[0]
    else:
        some = np.arange(len(ranked))
    order: NDArray[np.int64] = some[np.argsort(-ranked[some], kind="stable")][:many]
    return order[~np.isnan(values[order])]
