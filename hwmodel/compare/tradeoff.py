"""Throughput against interactivity: a plan over its batches, the other plans of its chips, other scenarios, where they cross.

Every point is a step priced and scheduled as `run` does it. tokens/s/chip counts the chips that a plan uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hwmodel.answered import Answered
from hwmodel.compare.crossing import crossings
from hwmodel.economics import hourly, usd_per_million
from hwmodel.goal import Slo
from hwmodel.optimize.optimum import prepared
from hwmodel.optimize.packed import Packed, largest_batch, tokens_of
from hwmodel.optimize.search import Line, lines
from hwmodel.optimize.space import Choice
from hwmodel.result import Placed
from hwmodel.run import again, run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.timing import Array, device_array

USER, CHIP, USD = "tokens_per_s_per_user", "tokens_per_s_per_chip", "usd_per_million_tokens"
COARSE, FINE = 16, 40
"""Batches of a line, evenly in logarithms: of every plan when the best are chosen, of those that are shown."""
RANGED = 5
"""Batches of a line at which the range of the step is found; between them its ratio to the step is interpolated."""
MOST = 4
"""Other plans of the same chips that are shown."""
WORTH = 0.005
"""What another plan must add to a front to be shown: relative, in the mean over the logarithm of interactivity."""
BETWEEN, ROUNDS = 12, 8
"""Batches added between the two points around a crossing, and how often at the most: until all that lie between are there."""
CLOSE = 1e-9
"""How near (relative) to a point of a curve a crossing is taken to be at it."""
DOWN = 1e-3
"""How far (relative) stairs are drawn out beyond their ends."""
SAME = 1.01
"""Two curves that change places and back within this ratio of interactivity are taken as equal there; a plan must be ahead of
all others by this ratio to be shown."""


@dataclass(frozen=True)
class Point:
    """One batch."""

    batch: int
    tokens_per_s_per_user: float
    tokens_per_s_per_chip: float
    ratio_low: float
    """Of the step's time at the quick end of its range to the time itself."""
    ratio_high: float
    usd_per_million_tokens: float | None


@dataclass(frozen=True)
class Curve:
    """One plan over its batches, the quickest last; batches that another one beats in both are left out."""

    name: str
    own: bool
    """Whether it is the plan that was asked about."""
    alike: bool
    """Whether it runs on the scenario's own chips, so that inputs in doubt move it as they move the plan asked about."""
    chips: int
    points: tuple[Point, ...]

    def axes(self, y: str, ratio: str = "") -> tuple[Array, Array]:
        """(tokens/s/user, tokens/s/chip or tokens per USD) as stairs: between two points the quicker one serves.

        Its first step reaches down to any interactivity; beyond the last there is nothing.
        ratio : the end of the range; its steps are so many times as long
        """
        rows = [(p.tokens_per_s_per_user, getattr(p, y), getattr(p, ratio) if ratio else 1.0) for p in self.points]
        user, worth, over = np.array(sorted(rows)).T
        user, worth = user / over, (worth if y == CHIP else 1e6 / worth) / over
        heights = np.stack([worth, np.append(worth[1:], 0.0)], axis=1).ravel()  # at each point it jumps to the next one's
        edges = np.concatenate([user[:1] * DOWN, np.repeat(user, 2), user[-1:] / DOWN])
        return edges, np.concatenate([worth[:1], heights, [0.0]])

    @property
    def priced(self) -> bool:
        """Whether what it costs is known."""
        return all(point.usd_per_million_tokens is not None for point in self.points)


@dataclass(frozen=True)
class Tradeoff(Answered):
    """The curves of a question and where they change places."""

    curves: tuple[Curve, ...]
    crossovers: tuple[dict[str, Any], ...]
    """x, y, between [ahead below, ahead above], at, value, and the range of `at` (None where an end does not cross)."""
    plans: int
    """Of the scenario's chips that can run."""
    batch: int
    """That was asked about."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"curves": [asdict(curve) for curve in self.curves], "crossovers": [dict(row) for row in self.crossovers],
                "plans": self.plans, "batch": self.batch}  # fmt: skip


def tradeoff(placed: Placed, against: Sequence[Scenario] = ()) -> Tradeoff:
    """The plan of a placed step, up to four plans of the same chips that are ahead of it somewhere, and other scenarios' plans.

    Parameters
    ----------
    placed
        Of a decode or prefill step.
    against
        Scenarios of the same phase; each keeps its own plan.

    Raises
    ------
    InputError
        When a phase is mixed, or differs.
    """
    scenario, every = placed.scenario, dict[str, Line]()
    for other in (scenario, *against):
        if other.workload.phase != scenario.workload.phase or other.workload.phase == "mixed":
            raise InputError(f"{other.name} is a {other.workload.phase} step; batches of decode or of prefill steps compare")
        line = _own(placed if other is scenario else run(other, ranges=False).placed)
        if line is not None:
            every[PLANNED if other is scenario else other.name] = line
    foreign = set(every) - {PLANNED}
    plans, others = _others(scenario)
    every |= {_label(line): line for line in _ahead(list(every.values()), others)}
    batches = {name: {*_grid(line, FINE)} for name, line in every.items()}
    asked = scenario.workload.batch
    if PLANNED in every and asked <= every[PLANNED].high:
        batches[PLANNED].add(asked)
    ranges = {name: _ranges(line) for name, line in every.items()}

    def curves() -> list[Curve]:
        return [_curve(name, line, sorted(batches[name]), ranges[name], name not in foreign) for name, line in every.items()]

    for _ in range(ROUNDS):
        found, known = {curve.name: curve for curve in curves()}, sum(map(len, batches.values()))
        for row in crossovers(list(found.values())):
            for name in row["between"]:
                batches[name] |= _around(found[name], row["at"])
        if sum(map(len, batches.values())) == known:
            break
    drawn = _shown(curves(), foreign)
    return Tradeoff(tuple(drawn), tuple(crossovers(drawn)), plans, asked)


PLANNED = "as planned"


def _own(placed: Placed) -> Line | None:
    """The plan as it is stated; None when it cannot run or not one sequence fits."""
    scenario, graph = placed.scenario, placed.graph
    most = 0 if graph.reasons else largest_batch(scenario, graph, scenario.goal.max_batch)
    if not most:
        return None
    parts = max(graph.micro_batches, graph.pipeline_batches)
    known = [hourly(pool, scenario.economics) for pool in scenario.cluster.pools]
    usd = None if None in known else sum(each[0] for each in known if each)
    choice = Choice(PLANNED, scenario.cluster, (), (parts,))
    plan = Packed(choice, scenario, placed.laid, device_array(placed.table, scenario.cluster), most, usd)
    return Line(plan, parts, 1, most)


def _others(scenario: Scenario) -> tuple[int, list[Line]]:
    """(plans that can run, each with each number of micro-batches) of exactly the scenario's chips, or of one of its pools."""
    goal = scenario.goal.model_copy(
        update={
            "objective": "tokens_per_s_per_chip", "slo": Slo(),
            "pools": {pool.name: (pool.count,) for pool in scenario.cluster.pools},
        }
    )  # fmt: skip
    ready = prepared(scenario, goal)
    return len(ready), lines(ready, 1)


def _label(line: Line) -> str:
    cut = f", {line.parts} micro-batches" if line.parts > 1 else ""
    return line.plan.choice.label + cut


def _grid(line: Line, count: int) -> list[int]:
    """Batches evenly in logarithms; whole numbers of sequences for every group of chips where there are as many."""
    home = line.plan.scenario.cluster.pools[0].name
    whole = line.plan.laid.graph.degrees[f"{home}.dp"] * line.parts
    found = {round(float(batch)) for batch in np.geomspace(line.low, line.high, count)}
    return sorted({max(line.low, batch // whole * whole) if batch >= whole else batch for batch in found} | {line.high})


def _rates(line: Line, batches: Sequence[int]) -> tuple[Array, Array]:
    """(tokens/s/user, tokens/s/chip)."""
    user = tokens_of(line.plan.scenario) / line.times(batches)
    return user, user * np.array(batches) / line.plan.scenario.cluster.chips


def _best(user: Array, worth: Array, at: Array) -> Array:
    """Logarithm of the highest worth at an interactivity or a higher one; -inf beyond the last point."""
    order = np.argsort(user)
    most = np.append(np.maximum.accumulate(worth[order][::-1])[::-1], 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(most[np.searchsorted(user[order], at)])
    return found


def _ahead(stated: Sequence[Line], others: Sequence[Line]) -> list[Line]:
    """The few plans that lift the fronts of the stated ones most, per chip and per dollar, one after the other."""
    every = [*stated, *others]
    if not every:
        return []
    rates = {id(line): _rates(line, _grid(line, COARSE)) for line in every}
    users = np.concatenate([user for user, _ in rates.values()])
    at = np.geomspace(users.min(), users.max(), 200)
    worths = [{id(line): 1.0 for line in every}]
    if all(line.plan.usd_per_hour for line in every):
        worths.append({id(line): line.plan.scenario.cluster.chips / (line.plan.usd_per_hour or 1.0) for line in every})
    heights = {}
    for key, (user, chip) in rates.items():
        heights[key] = np.array([_best(user, chip * worth[key], at) for worth in worths])
    floor = np.min([np.where(np.isinf(height), np.inf, height).min(axis=1) for height in heights.values()], axis=0)
    heights = {key: np.maximum(height, floor[:, None]) for key, height in heights.items()}
    front = np.max([np.repeat(floor[:, None], len(at), axis=1), *(heights[id(line)] for line in stated)], axis=0)
    left, found = list(others), list[Line]()
    while left and len(found) < MOST:
        gains = [float(np.maximum(heights[id(line)] - front, 0.0).mean(axis=1).max()) for line in left]
        best = int(np.argmax(gains))
        if gains[best] < WORTH:
            break
        found.append(left.pop(best))
        front = np.maximum(front, heights[id(found[-1])])
    return found


def _ranges(line: Line) -> tuple[Array, Array, Array]:
    """(logarithms of batches, ratio of the quick end of a step to the step, of the slow end), each (batches,)."""
    batches = _grid(line, RANGED)
    scenario, rows = line.plan.scenario, list[tuple[float, float]]()
    if line.plan.choice.strategies:
        scenario = replace(scenario, plan=line.plan.choice.plan(line.parts))
    base = run(scenario, ranges=False)
    for batch in batches:
        work = scenario.workload.model_copy(update={"batch": batch})
        step = again(base, scenario.cluster, scenario.economics, work, ranges=True).step
        rows.append((step.time_low_s / step.time_s, step.time_high_s / step.time_s))
    low, high = np.array(rows).T
    return np.log(batches), low, high


def _curve(name: str, line: Line, batches: Sequence[int], around: tuple[Array, Array, Array], alike: bool) -> Curve:
    user, chip = _rates(line, batches)
    spent = line.plan.spending(np.array(batches), line.parts, line.times(batches))[:, 0]
    scenario = line.plan.scenario
    usd = usd_per_million(spent, chip * scenario.cluster.chips, float(scenario.economics.utilisation))
    low, high = (np.interp(np.log(batches), around[0], ratio) for ratio in around[1:])
    order = sorted(range(len(batches)), key=lambda n: (-user[n], -chip[n]))
    kept, most = list[Point](), 0.0
    for n in order:
        if chip[n] > most:
            most = float(chip[n])
            cost = None if np.isnan(usd[n]) else float(usd[n])
            kept.append(Point(batches[n], float(user[n]), most, float(low[n]), float(high[n]), cost))
    return Curve(name, name == PLANNED, alike, scenario.cluster.chips, tuple(reversed(kept)))


def _shown(curves: Sequence[Curve], foreign: set[str]) -> list[Curve]:
    """What was asked for, and the plans that some batch of theirs puts ahead of all others."""

    def ahead(curve: Curve, y: str) -> bool:
        user, worth = curve.axes(y)
        beside = [np.exp(_best(*other.axes(y), user)) for other in curves if other is not curve]
        return not beside or bool((worth > SAME * np.max(beside, axis=0)).any())

    measures = (CHIP, USD) if all(curve.priced for curve in curves) else (CHIP,)
    return [each for each in curves if each.own or each.name in foreign or any(ahead(each, y) for y in measures)]


def _around(curve: Curve, user: float) -> set[int]:
    """Batches between the points of a curve that stand around an interactivity; at a point, on both sides of it."""
    batches = [point.batch for point in curve.points]
    users = np.array([point.tokens_per_s_per_user for point in curve.points])
    low, high = int(np.searchsorted(users, user * (1 - CLOSE))) - 1, int(np.searchsorted(users, user * (1 + CLOSE)))
    near = batches[max(0, low) : high + 1]
    return {round(float(batch)) for a, b in pairwise(near) for batch in np.linspace(a, b, BETWEEN + 2)}


def crossovers(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Where two curves change places on the front of all, per chip and per dollar.

    In the range of a crossing, plans of the same chips move to the same end of their ranges, other scenarios' to opposite ones.
    """
    found = []
    for y in (CHIP, USD):
        known = {curve.name: curve for curve in curves if y == CHIP or curve.priced}
        axes = {name: curve.axes(y) for name, curve in known.items()}
        rows = list[dict[str, Any]]()
        for crossing in crossings(axes):
            beside = [each for name, each in axes.items() if name not in crossing.between]
            if any(np.exp(_best(*each, np.array([crossing.at])))[0] > crossing.value for each in beside):
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
