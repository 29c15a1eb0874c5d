"""Branch and bound over batches of every plan: what is not looked at is proved to be no better.

A line is one plan with one number of micro-batches. Over a piece (low, high] of its batches no batch is worth more than the
largest batch at the smallest batch's time: step times do not fall with the batch. Pieces are taken best bound first, priced
exactly at their ends, and cut, until the best bound is no better than the best plan found.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hwmodel.optimize.packed import Packed, tokens_of, worth
from hwmodel.timing import Array

GRID = 1.3
"""Ratio of neighbouring batches that every line is bounded at first."""
PIECES = 6
"""Parts that a piece is cut into."""
ENOUGH = 1e-5
"""Gap (relative) at which the search stops."""
MOST_STEPS = 20000
"""Pieces looked at before the search stops with the gap it has."""


@dataclass
class Line:
    """One plan with one number of micro-batches, over its batches."""

    plan: Packed
    parts: int
    low: int
    high: int
    exact: dict[int, float] = field(default_factory=dict)
    """Step times (s) found so far."""

    def times(self, batches: Sequence[int]) -> Array:
        """Exact step times (s)."""
        new = sorted({*batches} - self.exact.keys())
        if new:
            self.exact |= dict(zip(new, self.plan.times(np.array(new), self.parts).tolist(), strict=True))
        return np.array([self.exact[batch] for batch in batches])

    @property
    def dip(self) -> float:
        """How much shorter (relative) a step with a larger batch was, at the worst; 0 when time never fell."""
        known = np.array([self.exact[batch] for batch in sorted(self.exact)])
        return float(max(0.0, (1 - known / np.maximum.accumulate(known)).max())) if len(known) else 0.0


@dataclass(frozen=True)
class Best:
    """The best point of a search."""

    line: Line | None
    """None when no plan meets the targets."""
    batch: int
    time_s: float
    value: float
    bound: float
    """No plan of the space is worth more."""
    pieces: int
    """Looked at."""
    by_plan: dict[int, tuple[float, int, int]]
    """For every plan priced exactly, by its id: best value found, batch, micro-batches."""
    bounds: dict[int, float]
    """For every plan that may meet the target, by its id: no batch of it is worth more."""
    least: dict[int, float]
    """For every plan, by its id: its shortest step (s) is no shorter."""

    @property
    def gap(self) -> float:
        """How much better (relative) a plan that was not looked at could be."""
        return max(0.0, (self.bound - self.value) / abs(self.value)) if self.line else 0.0


def lines(plans: Sequence[Packed], least: int) -> list[Line]:
    """Every plan that can run with every number of micro-batches, from `least` sequences on."""
    found: list[Line] = []
    for plan in plans:
        counts = plan.choice.micro_batches if plan.most >= least else ()
        found += [Line(plan, parts, max(least, parts), plan.most) for parts in counts if parts <= plan.most]
    return found


def best(every: Sequence[Line], objective: str, tpot_s: float | None) -> Best:
    """The batch, micro-batches and plan of highest worth whose TPOT (s) is at most `tpot_s`."""
    search = _Search(objective, np.inf if tpot_s is None else tpot_s)
    for line in every:
        search.add(line)
    return search.found()


@dataclass
class _Search:
    objective: str
    limit: float
    """TPOT in s, at most."""
    heap: list[tuple[float, int, Line, int, int, bool]] = field(default_factory=list)
    """Pieces (-bound, order, line, low, high, whether `low` is priced exactly), best bound first."""
    bounds: dict[int, float] = field(default_factory=dict)
    least: dict[int, float] = field(default_factory=dict)
    by_plan: dict[int, tuple[float, int, int]] = field(default_factory=dict)
    line: Line | None = None
    batch: int = 0
    value: float = -np.inf
    pushed: int = 0

    def add(self, line: Line) -> None:
        """Bound a line on a grid of batches."""
        key, grid = id(line.plan), _grid(line)
        floors = np.minimum.accumulate(line.plan.floors(np.array(grid), line.parts)[::-1])[::-1].tolist()
        self.least[key] = min(self.least.get(key, np.inf), floors[0])
        for low, high, time in zip([grid[0] - 1, *grid], grid, [floors[0], *floors], strict=False):
            bound = self.push(line, low, high, time, exact=False)
            if bound is not None:
                self.bounds[key] = max(self.bounds.get(key, -np.inf), bound)

    def push(self, line: Line, low: int, high: int, time: float, *, exact: bool) -> float | None:
        """Keep a piece of batches, none of which takes less than `time` (s); its bound, None when it misses the target."""
        if time / tokens_of(line.plan.scenario) > self.limit:
            return None
        self.pushed += 1
        bound = self.worth(line, high, time)
        heapq.heappush(self.heap, (-bound, self.pushed, line, low, high, exact))
        return bound

    def worth(self, line: Line, batch: int, time: float) -> float:
        return float(worth(self.objective, line.plan, np.array([batch]), np.array([time]), line.parts)[0])

    def found(self) -> Best:
        """Take pieces until none may hold anything better."""
        pieces, bound = 0, -np.inf
        while self.heap and pieces < MOST_STEPS:
            bound = -self.heap[0][0]
            if bound <= self.value + ENOUGH * abs(self.value):
                break
            _, _, line, low, high, exact = heapq.heappop(self.heap)
            self.look(line, low, high, exact)
            pieces += 1
        else:
            bound = -self.heap[0][0] if self.heap else self.value
        time = self.line.exact[self.batch] if self.line else 0.0
        bound = max(bound, self.value)
        return Best(self.line, self.batch, time, self.value, bound, pieces, self.by_plan, self.bounds, self.least)

    def look(self, line: Line, low: int, high: int, exact: bool) -> None:
        """Price a piece at its ends, then inside; what lies between two priced batches is a piece again."""
        inner = np.linspace(low, high, PIECES + 1 if exact else 2).round().astype(int).tolist()
        batches = sorted({batch for batch in inner if batch >= line.low})
        times = line.times(batches).tolist()
        for batch, time in zip(batches, times, strict=True):
            self.try_(line, batch, time)
        for (first, time), last in zip(zip(batches, times, strict=True), batches[1:], strict=False):
            if last - first > 1:
                self.push(line, first, last, time, exact=True)

    def try_(self, line: Line, batch: int, time: float) -> None:
        """Note a priced batch when it is the best of its plan, or of all."""
        if time / tokens_of(line.plan.scenario) > self.limit:
            return
        here, key = self.worth(line, batch, time), id(line.plan)
        if key not in self.by_plan or here > self.by_plan[key][0]:
            self.by_plan[key] = here, batch, line.parts
        if here > self.value:
            self.line, self.batch, self.value = line, batch, here


def _grid(line: Line) -> list[int]:
    steps = max(1, int(np.ceil(np.log(line.high / line.low) / np.log(GRID))))
    return sorted({*np.geomspace(line.low, line.high, steps + 1).round().astype(int).tolist(), line.low, line.high})
