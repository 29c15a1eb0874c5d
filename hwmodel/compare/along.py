"""Answers along one number of the scenarios: who is the cheapest where, and the value at which that changes.

At every value each scenario serves the most sequences that fit and keep to the TPOT target, and its cost per token counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from hwmodel.axis import TPOT, Axis, Question, seconds, unknown_pool
from hwmodel.compare.crossing import located
from hwmodel.compare.curve import planned
from hwmodel.goal import Slo
from hwmodel.optimize.optimum import optimize
from hwmodel.optimize.packed import tokens_of
from hwmodel.result import Placed, Result
from hwmodel.run import again, run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.number import Number
from hwmodel.spec.units import show

LIMIT = 1 << 20
"""Sequences a step may have."""
CLOSE, ROUGH = 1e-6, 1e-3
"""How near (relative) a break-even value is located, and the ends of its range."""
MANY = 4
"""Changes looked for between two neighbouring values: near a tie, batches of whole sequences change places more often."""


@dataclass(frozen=True)
class Cell:
    """One scenario at one value; cost and times are None where it cannot serve."""

    batch: int | None
    tpot_s: float | None
    usd_per_million_tokens: float | None
    low: float | None
    """USD per million tokens with the step at the quick end of its range."""
    high: float | None
    tokens_per_s_per_chip: float | None
    reason: str = ""
    """Why it cannot serve."""

    @property
    def cost(self) -> float:
        """USD per million tokens; infinite where it cannot serve."""
        return math.inf if self.usd_per_million_tokens is None else self.usd_per_million_tokens


@dataclass(frozen=True)
class Along:
    """A table over one number."""

    x: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """By value, then by scenario."""
    crossovers: tuple[dict[str, Any], ...]
    """x, between [cheapest below, cheapest above], at, and its range (None where an end has no crossing)."""
    unit: str = ""
    numbers: bool = True
    """Whether the values are numbers in rising order."""

    def cheapest(self, row: int) -> str:
        """Name of the cheapest at a value; empty where none serves."""
        return self.names[_winner(self.cells[row])] if _winner(self.cells[row]) >= 0 else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, a row per value."""
        rows = [
            {"value": value, "cheapest": self.cheapest(n) or None,
             "answers": {name: asdict(cell) for name, cell in zip(self.names, self.cells[n], strict=True)}}
            for n, value in enumerate(self.values)
        ]  # fmt: skip
        return {"x": self.x, "unit": self.unit, "rows": rows}


def along(questions: Sequence[Question], over: Axis, tpot_s: float | None = None, *, best: bool = False) -> Along:
    """Who is the cheapest along an axis, and where that changes.

    Parameters
    ----------
    over
        Its path may be ``tpot``, the target itself. A pool that only some of the scenarios have is changed in those.
    tpot_s
        Target (s); every scenario keeps the batch it states when None and the axis is not the target.
    best
        Whether each takes the plan of its chips that is cheapest under the target, as `optimize` finds it, not its own.

    Raises
    ------
    InputError
        When a setting is wrong, no scenario has the path, or a price is not known.
    """
    unknown_pool(questions, over.path)
    askers = [_Asker(each, over, tpot_s, best=best) for each in questions]
    cells = tuple(tuple(each.cell(text, ranges=True) for each in askers) for text in over.values)
    changes = [row for pair in pairwise(over.numbers) for row in _changes(askers, over, pair)]
    names = tuple(each.name for each in questions)
    return Along(over.path, names, over.values, cells, tuple(changes), over.unit, bool(over.numbers))


NUMBERS = ("workload.batch", "workload.context", "workload.new_tokens", "economics")
"""Starts of the paths that change numbers of a placed step and nothing else; so do overrides of a chip's numbers."""


class _Asker:
    """One scenario along an axis; what was asked before is kept, and so is a placed step whose numbers alone change."""

    def __init__(self, question: Question, over: Axis, tpot_s: float | None, *, best: bool) -> None:
        self.name, self.best = question.name, best
        self._question, self._over, self._tpot_s = question, over, tpot_s
        self._mine = over.path != TPOT and question.has(over.path)
        self._numbers = not self._mine or over.path.startswith(NUMBERS) or ".override." in over.path
        self._fixed: Scenario | None = None
        self._placed: Result | None = None
        self._known: dict[tuple[str, bool], Cell] = {}

    def cell(self, text: str, *, ranges: bool = False) -> Cell:
        """The answer at a value."""
        key = (text if self._mine or self._over.path == TPOT else "", ranges)
        if not ranges and (key[0], True) in self._known:
            key = (key[0], True)
        if key not in self._known:
            self._known[key] = self._asked(text, ranges=ranges)
        return self._known[key]

    def _asked(self, text: str, *, ranges: bool) -> Cell:
        target = seconds(text, TPOT) if self._over.path == TPOT else self._tpot_s
        scenario = self._scenario(text)
        if self.best and target is not None:
            result = cheapest(scenario, target)
            return _no("no plan of its chips fits and keeps to the target") if result is None else _served(result)
        if self._placed is None or not self._numbers:
            self._placed = run(scenario, ranges=False)
        base, batch, work = self._placed, scenario.workload.batch, scenario.workload
        if base.placed.graph.reasons:
            return _no(base.placed.graph.reasons[0])
        if target is not None:
            own = replace(base.placed, scenario=replace(scenario, workload=work))
            batch, reason = _most(own, target, fixed=self._over.path == "workload.batch")
            if reason:
                return _no(reason)
        changed = work.model_copy(update={"batch": batch})
        return _served(again(base, scenario.cluster, scenario.economics, changed, ranges=ranges))

    def _scenario(self, text: str) -> Scenario:
        if self._mine:
            return self._question.scenario([f"{self._over.path}={text}"])
        self._fixed = self._fixed or self._question.scenario()
        return self._fixed


def _no(reason: str) -> Cell:
    return Cell(None, None, None, None, None, None, reason)


def _served(result: Result) -> Cell:
    scenario, batch = result.placed.scenario, result.placed.scenario.workload.batch
    if not result.feasible:
        return replace(_no(result.reasons[0]), batch=batch)
    spent = result.cost
    made = None if spent is None else spent.usd_per_million_output_tokens or spent.usd_per_million_input_tokens
    if made is None:
        chips = ", ".join(dict.fromkeys(pool.chip.name for pool in scenario.cluster.pools))
        raise InputError(f"{scenario.name}: a price of {chips} is not known, so no cost; set cluster.pools.POOL.override.price")
    step, usd = result.step, float(made)
    low, high = usd * step.time_low_s / step.time_s, usd * step.time_high_s / step.time_s
    return Cell(batch, step.tpot_s or step.time_s, usd, low, high, step.tokens_per_s_per_chip)


def _most(placed: Placed, tpot_s: float, *, fixed: bool) -> tuple[int, str]:
    """(most sequences that fit and keep to a TPOT target in s, why not even one does).

    fixed : ask for the scenario's own batch only

    By bisection: where a step of more sequences is shorter (waves of tiles), a larger batch may be overlooked.
    """
    line, scenario = planned(placed, LIMIT), placed.scenario
    least = scenario.workload.batch if fixed else 1
    if line is None or line.high < least:
        return 0, f"memory: {line.high:,} sequences fit" if line else "memory: not one sequence fits"

    def slow(batch: int) -> float:
        return float(line.times([batch])[0]) / tokens_of(scenario)

    if slow(least) > tpot_s:
        return 0, f"TPOT {show(slow(least), 's', 4)} with {least:,} sequence{'s' if least > 1 else ''}"
    if fixed:
        return least, ""
    low, high = 1, line.high
    if slow(high) <= tpot_s:
        return high, ""
    while high - low > 1:
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (middle, high) if slow(middle) <= tpot_s else (low, middle)
    return low, ""


def _winner(cells: Sequence[Cell]) -> int:
    best = min(range(len(cells)), key=lambda n: cells[n].cost)
    return best if cells[best].cost < math.inf else -1


def _changes(askers: Sequence[_Asker], over: Axis, ends: tuple[float, float]) -> list[dict[str, Any]]:
    """The changes of the cheapest between two neighbouring values, in order."""
    close = ROUGH if askers[0].best else CLOSE

    def winner(value: float, among: Sequence[int]) -> int:
        """Of some of the scenarios; -1 when none of them serves."""
        found = _winner([askers[n].cell(over.text(value)) for n in among])
        return among[found] if found >= 0 else -1

    every = range(len(askers))
    found: list[dict[str, Any]] = []
    (low, high), last = ends, winner(ends[1], every)
    while (before := winner(low, every)) != last and len(found) < MANY:
        rivals = [n for n in (before, last) if n >= 0]

        def first(number: float, own: int = before, among: Sequence[int] = rivals) -> bool:
            return winner(number, among) == own

        value = located(first, low, high, close, whole=over.whole)
        low = value if over.whole else min(high, value * (1 + close))
        after = winner(low, every)
        names = [askers[n].name if n >= 0 else "none" for n in (before, after)]
        around: tuple[float | None, float | None] = (None, None)
        if before >= 0 and after >= 0:
            around = _ends(askers[before], askers[after], over, value)
        found.append({"x": over.path, "between": names, "at": value, "low": around[0], "high": around[1]})
    return found


def _ends(one: _Asker, other: _Asker, over: Axis, value: float) -> tuple[float | None, float | None]:
    """Where the change would be if the ranges of both steps, as independent ones, moved their costs apart.

    None for an end that lies outside the axis. Inputs that both share move both: there the range is too wide.
    """
    here = [each.cell(over.text(value), ranges=True) for each in (one, other)]
    if any(cell.low is None or cell.high is None for cell in here):
        return None, None
    sides = [(math.log(cell.cost / (cell.low or 1)), math.log((cell.high or 1) / cell.cost)) for cell in here]
    down = math.hypot(sides[0][0], sides[1][1])  # `one` cheaper than thought, `other` dearer
    up = math.hypot(sides[0][1], sides[1][0])

    def gap(number: float) -> float:
        a, b = (each.cell(over.text(number)) for each in (one, other))
        if math.inf in (a.cost, b.cost):  # who cannot serve has lost
            return math.nan if a.cost == b.cost else math.copysign(math.inf, a.cost - b.cost)
        return math.log(a.cost / b.cost)

    first, last = over.numbers[0], over.numbers[-1]

    def where(shift: float) -> float | None:
        if not gap(first) < shift < gap(last):
            return None
        return located(lambda number: gap(number) < shift, first, last, ROUGH, whole=over.whole)

    low, high = where(-up), where(down)
    return low and min(low, value), high and max(high, value)


def cheapest(scenario: Scenario, tpot_s: float) -> Result | None:
    """The scenario under the plan and batch of its chips that cost least within a target (s); None when none meets it."""
    counts = {pool.name: (pool.count,) for pool in scenario.cluster.pools}
    goal = scenario.goal.model_copy(update={"objective": "usd_per_mtok", "slo": Slo(tpot_s=Number(tpot_s)), "pools": counts})
    return optimize(scenario, goal).answer.result


def at_target(scenario: Scenario, tpot_s: float | None, *, best: bool = False) -> Scenario:
    """The scenario with the most sequences that keep to a target; as it is when none does, or without a target.

    best : under its cheapest plan, see `along`
    """
    if tpot_s is None:
        return scenario
    if best:
        result = cheapest(scenario, tpot_s)
        return scenario if result is None else replace(result.placed.scenario, name=scenario.name)
    placed = run(scenario, ranges=False).placed
    batch = 0 if placed.graph.reasons else _most(placed, tpot_s, fixed=False)[0]
    return replace(scenario, workload=scenario.workload.model_copy(update={"batch": batch})) if batch else scenario
