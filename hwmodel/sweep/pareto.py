"""The points that no other point beats in every objective, and the best by one, kept while points stream by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels.front import unbeaten
from hwmodel.timing import Array, Ints


def front(values: Array) -> Ints:
    """Indices, ascending, of the rows that no other row beats; of equal rows the first. values : (points, objectives), up."""
    kept = np.empty(len(values), dtype=np.int64)
    return np.sort(kept[: unbeaten(np.ascontiguousarray(values, dtype=np.float64), kept)])


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
