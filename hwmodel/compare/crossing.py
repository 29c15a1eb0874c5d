"""Curves that cross: where one of several lines overtakes another, between their points or at a value that is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hwmodel.timing import Array

Line = tuple[Array, Array]
"""x ascending, and y."""
Band = tuple[Array, Array, Array, Array]
"""x ascending, y, and the ends of its range."""


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


def crossings(lines: Mapping[str, Line]) -> list[Crossing]:
    """Every change of places of two lines where both are known, straight between their points.

    lines : by name
    """
    known = {name: (np.asarray(x), np.asarray(y)) for name, (x, y) in lines.items() if len(x)}
    found = []
    for (one, (x, y)), (other, (u, v)) in combinations(known.items(), 2):
        low, high = max(x[0], u[0]), min(x[-1], u[-1])
        if low >= high:
            continue
        at = np.unique(np.concatenate([x, u, [low, high]]))
        at = at[(at >= low) & (at <= high)]
        ends = np.array([_sides(x, y, at), _sides(u, v, at)]).reshape(2, -1)
        gap, at = ends[0] - ends[1], np.repeat(at, 2)
        kept = np.append(True, (np.diff(gap) != 0) | (np.diff(at) != 0))  # one side where no line jumps
        gap, at, height = gap[kept], at[kept], ends[0][kept]
        for k in range(len(at) - 1):
            if gap[k] * gap[k + 1] < 0 or (gap[k] == 0 and k > 0 and gap[k - 1] * gap[k + 1] < 0):
                share = gap[k] / (gap[k] - gap[k + 1])
                where, value = (float(own[k] + share * (own[k + 1] - own[k])) for own in (at, height))
                names = (one, other) if (gap[k] or gap[k - 1]) > 0 else (other, one)
                found.append(Crossing(names, where, value, float(at[k]), float(at[k + 1])))
    return sorted(found, key=lambda crossing: crossing.at)


def _sides(x: Array, y: Array, at: Array) -> Array:
    """Values of a line just before and just behind places, (places, 2): they differ where points of equal x make it jump."""
    found = np.repeat(np.interp(at, x, y)[:, None], 2, axis=1)
    for side, nearest in enumerate((np.searchsorted(x, at, "left"), np.searchsorted(x, at, "right") - 1)):
        here = x[np.minimum(nearest, len(x) - 1)] == at
        found[here, side] = y[nearest[here]]
    return found


def overlap(one: Band, other: Band, at: float) -> tuple[float, float]:
    """The stretch around a crossing over which the ranges of two lines overlap."""
    ends = [max(one[0][0], other[0][0]), min(one[0][-1], other[0][-1])]
    for a, b in ((2, 3), (3, 2)):
        ends += [crossing.at for crossing in crossings({"one": (one[0], one[a]), "other": (other[0], other[b])})]
    close = 1e-12 * abs(at)
    return float(max(end for end in ends if end <= at + close)), float(min(end for end in ends if end >= at - close))


def located(first: Callable[[float], bool], low: float, high: float, close: float, *, whole: bool) -> float:
    """The value from which a condition that holds at `low` and not at `high` no longer holds.

    close : how near, relative; whole : among whole numbers, exactly
    """
    while (high - low > 1) if whole else (high / low > 1 + close):
        middle = float(math.floor(math.sqrt(low * high))) if whole else math.sqrt(low * high)
        middle = min(max(middle, low + 1), high - 1) if whole else middle
        low, high = (middle, high) if first(middle) else (low, middle)
    return high if whole else math.sqrt(low * high)
