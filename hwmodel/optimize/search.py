"""Branch and bound over batches of every plan: what is not looked at is proved to be no better.

A line is one plan with one number of micro-batches. Over a piece (low, high] of its batches no batch is worth more than the
largest batch at the smallest batch's time, where step times do not fall with the batch. Pieces are taken best bound first,
priced exactly at their ends, and cut, until the best bound is no better than the best plan found.

First come, first served on lanes that wait for one another can make a larger batch quicker. So the gap that is reported does
not rest on scheduled times but on their floor, the busiest lane and the longest path, which no batch undoes.
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
LOOSE_STEPS = 3000
"""Pieces cut for the proof by floors, at most."""
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
    """No plan of the space is worth more, by floors of the times alone."""
    bound_if_growing: float
    """No plan is, if a step of more sequences never takes less time."""
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

    @property
    def gap_if_growing(self) -> float:
        """The same, if a step of more sequences never takes less time."""
        return max(0.0, (self.bound_if_growing - self.value) / abs(self.value)) if self.line else 0.0


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
    heap: list[tuple[float, int, Line, int, int, float, bool]] = field(default_factory=list)
    """Pieces (-bound, order, line, low, high, bound by floors, whether `low` is priced exactly), best bound first."""
    loose: list[tuple[float, int, Line, int, int]] = field(default_factory=list)
    """Pieces (-bound by floors, order, line, low, high) left out because their scheduled times miss the target."""
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
            bound = self.push(line, low, high, (time, time), exact=False)
            if bound is not None:
                self.bounds[key] = max(self.bounds.get(key, -np.inf), bound)

    def push(self, line: Line, low: int, high: int, times: tuple[float, float], *, exact: bool) -> float | None:
        """Keep a piece of batches, none of which takes less than its times (s: by floors, as scheduled); its bound.

        None when it misses the target.
        """
        floor, time = times[0], max(times)
        each = tokens_of(line.plan.scenario)
        if floor / each > self.limit:
            return None
        sure = self.worth(line, high, floor)
        if time / each > self.limit:
            self.leave(line, low, high, sure)
            return None
        self.pushed += 1
        bound = self.worth(line, high, time) if time > floor else sure
        heapq.heappush(self.heap, (-bound, self.pushed, line, low, high, sure, exact))
        return bound

    def worth(self, line: Line, batch: int, time: float) -> float:
        return float(worth(self.objective, line.plan, np.array([batch]), np.array([time]), line.parts)[0])

    def leave(self, line: Line, low: int, high: int, sure: float) -> None:
        """Keep a piece for the proof by floors, unless they show that it is no better."""
        if sure > self.value + ENOUGH * abs(self.value) or self.line is None:
            self.pushed += 1
            heapq.heappush(self.loose, (-sure, self.pushed, line, low, high))

    def found(self) -> Best:
        """Take pieces until none may hold anything better; then prove by floors what scheduled times made unlikely."""
        pieces = 0
        while self.heap and pieces < MOST_STEPS and not self.done(-self.heap[0][0]):
            _, _, line, low, high, _, exact = heapq.heappop(self.heap)
            self.look(line, low, high, exact)
            pieces += 1
        growing = -self.heap[0][0] if self.heap else -np.inf
        for _, _, line, low, high, sure, _ in self.heap:
            self.leave(line, low, high, sure)
        left = LOOSE_STEPS
        while self.loose and left and not self.done(-self.loose[0][0]):
            _, _, line, low, high = heapq.heappop(self.loose)
            self.prove(line, low, high)
            left -= 1
        sure = max(self.value, -self.loose[0][0] if self.loose else -np.inf)
        time = self.line.exact[self.batch] if self.line else 0.0
        growing = max(self.value, growing)
        return Best(self.line, self.batch, time, self.value, sure, growing, pieces, self.by_plan, self.bounds, self.least)

    def done(self, bound: float) -> bool:
        """Whether what is left is no better than what was found."""
        return self.line is not None and bound <= self.value + ENOUGH * abs(self.value)

    def prove(self, line: Line, low: int, high: int) -> None:
        """Cut a piece by floors alone; one that holds a single batch is priced."""
        if high - low == 1:
            self.try_(line, high, float(line.times([high])[0]))
            return
        batches = np.unique(np.linspace(low, high, PIECES + 1).round().astype(int))
        floors = line.plan.floors(batches[:-1], line.parts).tolist()
        for first, last, floor in zip(batches.tolist(), batches[1:].tolist(), floors, strict=False):
            if floor / tokens_of(line.plan.scenario) <= self.limit:
                self.leave(line, first, last, self.worth(line, last, floor))

    def look(self, line: Line, low: int, high: int, exact: bool) -> None:
        """Price a piece at its ends, then inside; what lies between two priced batches is a piece again."""
        inner = np.linspace(low, high, PIECES + 1 if exact else 2).round().astype(int).tolist()
        batches = sorted({batch for batch in inner if batch >= line.low})
        times = line.times(batches).tolist()
        for batch, time in zip(batches, times, strict=True):
            self.try_(line, batch, time)
        floors = line.plan.floors(np.array(batches), line.parts).tolist()
        for first, last, pair in zip(batches, batches[1:], zip(floors, times, strict=True), strict=False):
            if last - first > 1:
                self.push(line, first, last, pair, exact=True)

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
