"""The points that no other point beats in every objective, kept while points stream by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.timing import Array, Ints

FEW = 512
"""Points that are sorted outright."""
PIVOTS = 24
"""Good points that the others are compared with first: most fall at once."""


def front(values: Array) -> Ints:
    """Indices, ascending, of the rows that no other row beats; of equal rows the first. values : (points, objectives), up."""
    alive = np.nonzero(~np.isnan(values).any(axis=1))[0]
    if not len(alive):
        return alive
    rest = values[alive]
    low, spread = rest.min(axis=0), rest.max(axis=0) - rest.min(axis=0)
    shares = (rest - low) / np.where(spread > 0, spread, 1.0)
    for weight in _weights(values.shape[1]):
        if len(alive) <= FEW:
            break
        best = rest[np.argmax(shares @ weight)]
        left = rest[:, 0] > best[0]
        for k in range(1, values.shape[1]):
            left |= rest[:, k] > best[k]
        left |= _equal(rest, best)
        alive, rest, shares = alive[left], rest[left], shares[left]
    return alive[_sorted_front(rest)]


def _equal(rest: Array, best: Array) -> NDArray[np.bool_]:
    same = rest[:, 0] == best[0]
    same[same] = (rest[same] == best).all(axis=1)
    return np.asarray(same)


def _weights(objectives: int) -> Array:
    even = np.full((1, objectives), 1.0 / objectives)
    return np.concatenate([even, np.random.default_rng(0).dirichlet(np.full(objectives, 0.5), PIVOTS)])


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
