"""Who wins where: answers side by side, and the interactivity at which the cheaper one changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from hwmodel.along import Along
from hwmodel.answered import Answered
from hwmodel.fit import fit
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario

POINTS = 16
"""Batches of a curve, from one sequence to the most that fit."""
COLUMNS = (
    "scenario", "feasible", "batch", "step_s", "step_low_s", "step_high_s", "tokens_per_s", "tokens_per_s_per_user",
    "tokens_per_s_per_chip", "usd_per_million_tokens", "usd_low", "usd_high", "joules_per_token", "bound", "reasons",
)  # fmt: skip
X = "tokens_per_s_per_user"


@dataclass(frozen=True)
class Point:
    """One batch on a curve of cost against interactivity, with its ends: slow and dear, quick and cheap."""

    batch: int
    at: tuple[float, float]
    """(tokens/s/user, USD per million tokens)."""
    low: tuple[float, float]
    high: tuple[float, float]


@dataclass(frozen=True)
class Comparison(Answered):
    """The answer of ``hwmodel compare``."""

    rows: tuple[dict[str, Any], ...]
    crossovers: tuple[dict[str, Any], ...]
    """x, between [cheaper below, cheaper above], at, and its range (None where an end has no crossing)."""
    notes: tuple[str, ...]
    along: tuple[Along, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel compare --json`` prints it."""
        rows, crossovers = [dict(row) for row in self.rows], [dict(row) for row in self.crossovers]
        return {"columns": list(COLUMNS), "rows": rows, "crossovers": crossovers, "notes": list(self.notes),
                "along": [each.to_dict() for each in self.along]}  # fmt: skip


def compare(asked: Sequence[Scenario | Mapping[str, Any]], over: Sequence[Along] = ()) -> Comparison:
    """Set answers side by side.

    Parameters
    ----------
    asked
        Scenarios, or answers as ``hwmodel run --json`` saved them; those have no curve, so no crossing.
    over
        What `hwmodel.along.along` found; in place of the curves over batches.
    """
    if over:
        plain = tuple(_row(run(each).to_dict() if isinstance(each, Scenario) else each) for each in asked)
        return Comparison(plain, tuple(row for each in over for row in each.crossovers), (), tuple(over))
    rows, curves, notes = [], {}, []
    for each in asked:
        answer = run(each).to_dict() if isinstance(each, Scenario) else each
        rows.append(_row(answer))
        if isinstance(each, Scenario) and each.workload.phase == "decode":
            curves[rows[-1]["scenario"]] = curve(each)
        else:
            notes.append(f"{rows[-1]['scenario']}: a saved answer or no decode step: it has no curve over batches to cross")
    crossovers = []
    for one, other in combinations(curves, 2):
        found = _crossings(one, curves[one], other, curves[other])
        crossovers += found
        if not found and curves[one] and curves[other]:
            notes.append(_never(one, curves[one], other, curves[other]))
    return Comparison(tuple(rows), tuple(crossovers), tuple(notes))


def _row(answer: Mapping[str, Any]) -> dict[str, Any]:
    step, cost = answer["step"], answer.get("cost") or {}
    usd = cost.get("usd_per_million_output_tokens")
    values = (
        answer["scenario"], answer["feasible"], answer["asked"]["workload"].get("batch", 1), step["time_s"],
        step["time_low_s"], step["time_high_s"], step["tokens_per_s"],
        step["tokens_per_s_per_user"], step["tokens_per_s_per_chip"],
        cost.get("usd_per_million_input_tokens") if usd is None else usd,
        cost.get("usd_per_million_low"), cost.get("usd_per_million_high"), cost.get("joules_per_token"), step["bound"],
        list(answer["reasons"]),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


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


def crossings(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> list[tuple[float, bool]]:
    """(x, whether `one` is the cheaper below it) of every crossing of two curves of (x, y).

    Curves are straight between points in logarithms; each is first cut to what pays, the least y at x or more.
    """
    a, b = (_least(points) for points in (one, other))
    if not a or not b:
        return []
    low, high = max(a[0][0], b[0][0]), min(a[-1][0], b[-1][0])
    xs = sorted({x for x, _ in a + b if low <= x <= high} | {low, high}) if low < high else []
    gaps = [(x, math.log(_at(a, x) / _at(b, x))) for x in xs]
    found = []
    for (x0, g0), (x1, g1) in pairwise(gaps):
        if g0 * g1 < 0:
            part = g0 / (g0 - g1)
            found.append((math.exp(math.log(x0) + part * (math.log(x1) - math.log(x0))), g0 < 0))
    return found


def _least(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other beats in both, by x."""
    kept: list[tuple[float, float]] = []
    for x, y in sorted(points, reverse=True):
        if not kept or y < kept[-1][1]:
            kept.append((x, y))
    return kept[::-1]


def _at(points: Sequence[tuple[float, float]], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            part = math.log(x / x0) / math.log(x1 / x0)
            return math.exp(math.log(y0) + part * math.log(y1 / y0))
    return points[0][1] if x <= points[0][0] else points[-1][1]


def _crossings(one: str, a: Sequence[Point], other: str, b: Sequence[Point]) -> list[dict[str, Any]]:
    plain = crossings([p.at for p in a], [p.at for p in b])
    ends = [crossings([p.low for p in a], [p.high for p in b]), crossings([p.high for p in a], [p.low for p in b])]
    rows = []
    for number, (x, first) in enumerate(plain):
        around = [end[number][0] for end in ends if len(end) == len(plain)]
        rows.append({
            "x": X, "between": [one, other] if first else [other, one], "at": x,
            "low": min([x, *around]) if len(around) == 2 else None, "high": max([x, *around]) if len(around) == 2 else None,
        })  # fmt: skip
    return rows


def _never(one: str, a: Sequence[Point], other: str, b: Sequence[Point]) -> str:
    """Which of two is the cheaper wherever both can serve."""
    first, second = (_least([p.at for p in points]) for points in (a, b))
    low, high = max(first[0][0], second[0][0]), min(first[-1][0], second[-1][0])
    if low > high:
        quick = one if first[0][0] > second[0][0] else other
        return f"no interactivity that both reach: {quick} is the quicker one throughout"
    cheap, dear = (one, other) if _at(first, low) < _at(second, low) else (other, one)
    return f"{cheap} is cheaper than {dear} at every interactivity that both reach, {low:.4g} to {high:.4g} tokens/s/user"
