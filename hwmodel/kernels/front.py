"""Which points no other point beats."""

import numpy as np

from hwmodel.kernels.bare import bare


@bare
def beats(values: np.ndarray, one: int, other: int) -> bool:
    """Whether a row is at least as good as another in every objective; values : (points, objectives), no unit, up is good."""
    for k in range(values.shape[1]):  # noqa: SIM110  plain for numba
        if not values[one, k] >= values[other, k]:
            return False
    return True


@bare
def unbeaten(values: np.ndarray, kept: np.ndarray) -> int:
    """Write the rows that no other row beats into `kept` (points,) int; how many. Of equal rows the first; none with nan.

    Each row is compared with those kept so far, the one that beat a row last coming first: most fall at once.
    values : (points, objectives), any unit, up is good
    """
    count = 0
    for q in range(values.shape[0]):
        if not beats(values, q, q):  # nan
            continue
        lost = False
        for i in range(count):
            if beats(values, kept[i], q):
                lost = True
                if i > 0:
                    kept[i], kept[i // 2] = kept[i // 2], kept[i]
                break
        if lost:
            continue
        left = 0
        for i in range(count):
            if not beats(values, q, kept[i]):
                kept[left] = kept[i]
                left += 1
        kept[left] = q
        count = left + 1
    return count
