"""A plan over its batches: what it gives and costs at which interactivity, as stairs of steps that `run` would find.

Every point is a step priced and scheduled as `run` does it. tokens/s/chip counts the chips that a plan uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from hwmodel.economics import hourly, usd_per_million
from hwmodel.optimize.packed import Packed, largest_batch, tokens_of
from hwmodel.optimize.search import Line
from hwmodel.optimize.space import Choice
from hwmodel.result import Placed
from hwmodel.run import again, run
from hwmodel.sweep.names import CHIP
from hwmodel.timing import Array, device_array

FINE = 40
"""Batches of a curve at first, evenly in logarithms."""
RANGED = 5
"""Batches of a line at which the range of the step is found; between them its ratio to the step is interpolated."""
BETWEEN = 12
"""Batches added between the two points around a place that is looked at."""
CLOSE = 1e-9
"""How near (relative) to a point of a curve a place is taken to be at it."""
DOWN = 1e-3
"""How far (relative) stairs are drawn out beyond their ends."""
PLANNED = "as planned"


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

    @property
    def quickest(self) -> float:
        """The most tokens/s/user it gives."""
        return max(point.tokens_per_s_per_user for point in self.points)


@dataclass
class Sampled:
    """A line of batches with those that are drawn so far."""

    name: str
    line: Line
    own: bool = False
    alike: bool = False
    batches: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Start with batches evenly in logarithms."""
        self.batches |= {*grid(self.line, FINE)}

    @cached_property
    def _ranges(self) -> tuple[Array, Array, Array]:
        """(logarithms of batches, ratio of the quick end of a step to the step, of the slow end), each (batches,)."""
        batches = grid(self.line, RANGED)
        choice, scenario, rows = self.line.plan.choice, self.line.plan.scenario, list[tuple[float, float]]()
        if choice.strategies:
            scenario = replace(scenario, plan=choice.plan(self.line.parts))
        base = run(scenario, ranges=False)
        for batch in batches:
            work = scenario.workload.model_copy(update={"batch": batch})
            step = again(base, scenario.cluster, scenario.economics, work, ranges=True).step
            rows.append((step.time_low_s / step.time_s, step.time_high_s / step.time_s))
        low, high = np.array(rows).T
        return np.log(batches), low, high

    def curve(self) -> Curve:
        """Of its batches those that no other beats."""
        batches, line = sorted(self.batches), self.line
        user, chip = rates(line, batches)
        spent = line.plan.spending(np.array(batches), line.parts, line.times(batches))[:, 0]
        scenario = line.plan.scenario
        usd = usd_per_million(spent, chip * scenario.cluster.chips, float(scenario.economics.utilisation))
        at, *ends = self._ranges
        low, high = (np.interp(np.log(batches), at, ratio) for ratio in ends)
        order = sorted(range(len(batches)), key=lambda n: (-user[n], -chip[n]))
        kept, most = list[Point](), 0.0
        for n in order:
            if chip[n] > most:
                most = float(chip[n])
                cost = None if np.isnan(usd[n]) else float(usd[n])
                kept.append(Point(batches[n], float(user[n]), most, float(low[n]), float(high[n]), cost))
        return Curve(self.name, self.own, self.alike, scenario.cluster.chips, tuple(reversed(kept)))

    def look(self, curve: Curve, user: float) -> None:
        """Also draw batches between the points of its curve that stand around an interactivity; at a point, on both sides."""
        batches = [point.batch for point in curve.points]
        users = np.array([point.tokens_per_s_per_user for point in curve.points])
        low, high = int(np.searchsorted(users, user * (1 - CLOSE))) - 1, int(np.searchsorted(users, user * (1 + CLOSE)))
        near = batches[max(0, low) : high + 1]
        self.batches |= {round(float(batch)) for a, b in pairwise(near) for batch in np.linspace(a, b, BETWEEN + 2)}


def planned(placed: Placed, limit: int) -> Line | None:
    """The plan as it is stated, over at most `limit` sequences; None when it cannot run or not one sequence fits."""
    scenario, laid = placed.scenario, placed.laid
    most = 0 if laid.graph.reasons else largest_batch(scenario, laid.graph, limit)
    if not most:
        return None
    known = [hourly(pool, scenario.economics) for pool in scenario.cluster.pools]
    usd = None if None in known else sum(each[0] for each in known if each)
    choice = Choice(PLANNED, scenario.cluster, (), (laid.most,))
    return Line(Packed(choice, scenario, laid, device_array(laid.table, scenario.cluster), most, usd), laid.most, 1, most)


def grid(line: Line, count: int) -> list[int]:
    """Batches evenly in logarithms; whole numbers of sequences for every group of chips where there are as many."""
    home = line.plan.scenario.cluster.pools[0].name
    whole = line.plan.laid.graph.degrees[f"{home}.dp"] * line.parts
    found = {round(float(batch)) for batch in np.geomspace(line.low, line.high, count)}
    return sorted({max(line.low, batch // whole * whole) if batch >= whole else batch for batch in found} | {line.high})


def rates(line: Line, batches: Sequence[int]) -> tuple[Array, Array]:
    """(tokens/s/user, tokens/s/chip)."""
    user = tokens_of(line.plan.scenario) / line.times(batches)
    return user, user * np.array(batches) / line.plan.scenario.cluster.chips
