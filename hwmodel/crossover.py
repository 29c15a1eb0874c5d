"""Where one of several lines overtakes another: fronts of plans and chips, or one column over another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hwmodel.timing import Array


@dataclass(frozen=True)
class Crossing:
    """A point where two lines change places."""

    between: tuple[str, str]
    """The one that is higher before it, then the one that is higher behind it."""
    at: float
    """Where, along the first column."""
    value: float
    low: float
    high: float
    """Ends of where it may lie: the points of the lines around it."""


def crossings(lines: Mapping[str, tuple[Array, Array]]) -> list[Crossing]:
    """Every change of places of two lines where both are known, straight between their points.

    lines : by name (x, y), x ascending
    """
    found = []
    for (one, (x, y)), (other, (u, v)) in combinations(lines.items(), 2):
        low, high = max(x[0], u[0]), min(x[-1], u[-1])
        if low >= high:
            continue
        at = np.unique(np.concatenate([x, u, [low, high]]))
        at = at[(at >= low) & (at <= high)]
        gap = np.interp(at, x, y) - np.interp(at, u, v)
        for k in range(len(at) - 1):
            if gap[k] * gap[k + 1] < 0 or (gap[k] == 0 and k > 0 and gap[k - 1] * gap[k + 1] < 0):
                share = gap[k] / (gap[k] - gap[k + 1])
                where = float(at[k] + share * (at[k + 1] - at[k]))
                names = (one, other) if (gap[k] or gap[k - 1]) > 0 else (other, one)
                found.append(Crossing(names, where, float(np.interp(where, x, y)), float(at[k]), float(at[k + 1])))
    return sorted(found, key=lambda crossing: crossing.at)
