"""Where curves over batches change places, per chip and per dollar: on the front of all, or of every two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hwmodel.compare.crossing import crossings
from hwmodel.compare.curve import CLOSE, Curve, Sampled
from hwmodel.sweep.names import CHIP, COST, USER
from hwmodel.timing import Array

ROUNDS = 8
"""How often batches around the crossings are added at the most: until all that lie between are there."""
SAME = 1.01
"""Two curves that change places and back within this ratio of interactivity are taken as equal there."""

Changes = list[dict[str, Any]]
"""x, y, between [ahead below, ahead above], at, value, and the range of `at` (None where an end does not cross)."""


def refined(every: Sequence[Sampled], changes: Callable[[Sequence[Curve]], Changes]) -> list[Curve]:
    """Curves with all batches that stand around the places where they change places."""
    known = {each.name: each for each in every}
    for _ in range(ROUNDS):
        curves, drawn = {name: each.curve() for name, each in known.items()}, _drawn(every)
        for row in changes(list(curves.values())):
            for name in row["between"]:
                known[name].look(curves[name], row["at"])
        if _drawn(every) == drawn:
            break
    return [each.curve() for each in every]


def _drawn(every: Sequence[Sampled]) -> int:
    return sum(len(each.batches) for each in every)


def in_pairs(curves: Sequence[Curve]) -> Changes:
    """Where the cheaper of every two changes; who is too slow to serve has lost."""
    priced = [curve for curve in curves if curve.priced]
    return [row for pair in combinations(priced, 2) for row in crossovers(pair, (COST,))]


def never(curves: Sequence[Curve], changes: Changes) -> list[str]:
    """What the changes do not say: which is the cheaper of two without one, and whose end another one's lead is."""
    known = {curve.name: curve for curve in curves if curve.priced}
    pairs = [{*row["between"]} for row in changes]
    found = [_cheaper(one, other) for one, other in combinations(known.values(), 2) if {one.name, other.name} not in pairs]
    over = {row["between"][0]: row["at"] for row in changes if row["at"] > known[row["between"][0]].quickest * (1 - CLOSE)}
    return found + [f"{name} gives at most {at:.4g} tokens/s/user" for name, at in over.items()]


def _cheaper(one: Curve, other: Curve) -> str:
    """Both serve down to any interactivity; at the end of one it is decided."""
    at = np.array([min(one.quickest, other.quickest)])
    gap = float(best(*one.axes(COST), at)[0] - best(*other.axes(COST), at)[0])
    ahead, behind = (one, other) if gap >= 0 else (other, one)
    words = "is cheaper than" if gap else "costs as much as"
    return f"{ahead.name} {words} {behind.name} at every interactivity, up to {behind.quickest:.4g} tokens/s/user"


def best(user: Array, worth: Array, at: Array) -> Array:
    """Logarithm of the highest worth at an interactivity or a higher one; -inf beyond the last point."""
    order = np.argsort(user)
    most = np.append(np.maximum.accumulate(worth[order][::-1])[::-1], 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(most[np.searchsorted(user[order], at)])
    return found


def crossovers(curves: Sequence[Curve], measures: Sequence[str] = (CHIP, COST)) -> Changes:
    """Where two curves change places on the front of all.

    In the range of a crossing, plans of the same chips move to the same end of their ranges, other scenarios' to opposite ones.
    """
    found = []
    for y in measures:
        known = {curve.name: curve for curve in curves if y == CHIP or curve.priced}
        axes = {name: curve.axes(y) for name, curve in known.items()}
        rows = Changes()
        for crossing in crossings(axes):
            beside = [each for name, each in axes.items() if name not in crossing.between]
            if any(np.exp(best(*each, np.array([crossing.at])))[0] > crossing.value for each in beside):
                continue
            between = list(crossing.between)
            if rows and rows[-1]["between"] == between[::-1] and crossing.at < SAME * rows[-1]["at"]:
                rows.pop()
                continue
            low, high = _ends(known[between[0]], known[between[1]], y, crossing.at)
            value = crossing.value if y == CHIP else 1e6 / crossing.value
            rows.append({"x": USER, "y": y, "between": between, "at": crossing.at, "value": value, "low": low, "high": high})
        found += rows
    return found


def _ends(one: Curve, other: Curve, y: str, at: float) -> tuple[float | None, float | None]:
    """The range of a crossing; None, None where the curves do not cross at both ends."""
    ends = ("ratio_low", "ratio_high")
    pairs = zip(ends, ends, strict=True) if one.alike and other.alike else zip(ends, ends[::-1], strict=True)
    found = []
    for first, second in pairs:
        moved = [each.at for each in crossings({"a": one.axes(y, first), "b": other.axes(y, second)})]
        found += [min(moved, key=lambda x: abs(np.log(x / at)))] if moved else []
    return (min(at, *found), max(at, *found)) if len(found) == len(ends) else (None, None)
