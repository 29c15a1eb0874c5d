"""Cost over interactivity: curves over the batches that fit, priced one by one, and where the cheaper one changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from hwmodel.compare.crossing import Crossing, crossings, level, paying
from hwmodel.fit import fit
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario

POINTS = 16
"""Batches of a curve, from one sequence to the most that fit."""
X = "tokens_per_s_per_user"


@dataclass(frozen=True)
class Point:
    """One batch on a curve of cost against interactivity, with its ends: slow and dear, quick and cheap."""

    batch: int
    at: tuple[float, float]
    """(tokens/s/user, USD per million tokens)."""
    low: tuple[float, float]
    high: tuple[float, float]


def curve(scenario: Scenario) -> list[Point]:
    """Cost against interactivity over the batches that fit, slowest last; empty where nothing fits or no price is known."""
    most = fit(scenario).max_batch
    if most < 1:
        return []
    sizes = sorted({round(most ** (n / (POINTS - 1))) for n in range(POINTS)})
    found = [
        _point(size, run(replace(scenario, workload=scenario.workload.model_copy(update={"batch": size})))) for size in sizes
    ]
    return [point for point in found if point is not None]


def _point(batch: int, result: Result) -> Point | None:
    """The ends take the range of the step's time into cost as well; ranges of prices are left out: both may share them."""
    if result.cost is None or result.cost.usd_per_million_output_tokens is None:
        return None
    step, usd = result.step, float(result.cost.usd_per_million_output_tokens)
    slow, quick = step.time_high_s / step.time_s, step.time_low_s / step.time_s
    speed = step.tokens_per_s_per_user
    return Point(batch, (speed, usd), (speed / slow, usd * slow), (speed / quick, usd * quick))


def crossed(curves: Mapping[str, Sequence[Point]]) -> tuple[list[dict[str, Any]], list[str]]:
    """(crossovers, with the cheaper below and the cheaper above; of the pairs that never cross, which is the cheaper)."""
    rows, notes = [], []
    for (one, a), (other, b) in combinations(curves.items(), 2):
        found = _pair(one, a, other, b)
        rows += found
        if not found and a and b:
            notes.append(_never(one, a, other, b))
    return rows, notes


def of_costs(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> list[Crossing]:
    """Where the cheaper of two curves of (interactivity, cost), "one" and "other", changes; each cut to what pays."""
    return crossings({"one": paying(one), "other": paying(other)}, log=True)


def _pair(one: str, a: Sequence[Point], other: str, b: Sequence[Point]) -> list[dict[str, Any]]:
    plain = of_costs([p.at for p in a], [p.at for p in b])
    ends = [of_costs([p.low for p in a], [p.high for p in b]), of_costs([p.high for p in a], [p.low for p in b])]
    rows = []
    for number, crossing in enumerate(plain):
        around = [end[number].at for end in ends if len(end) == len(plain)]
        dearer = {"one": one, "other": other}[crossing.between[0]]
        rows.append({
            "x": X, "y": "usd_per_million_tokens", "between": [other, one] if dearer == one else [one, other],
            "at": crossing.at,
            "low": min([crossing.at, *around]) if len(around) == 2 else None,
            "high": max([crossing.at, *around]) if len(around) == 2 else None,
        })  # fmt: skip
    return rows


def _never(one: str, a: Sequence[Point], other: str, b: Sequence[Point]) -> str:
    """Which of two is the cheaper wherever both can serve."""
    first, second = (paying([p.at for p in points]) for points in (a, b))
    low, high = max(first[0][0], second[0][0]), min(first[0][-1], second[0][-1])
    if low > high:
        quick = one if first[0][0] > second[0][0] else other
        return f"no interactivity that both reach: {quick} is the quicker one throughout"
    cheap, dear = (one, other) if level(first, low) < level(second, low) else (other, one)
    return f"{cheap} is cheaper than {dear} at every interactivity that both reach, {low:.4g} to {high:.4g} tokens/s/user"
