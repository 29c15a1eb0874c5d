"""Answers along one number of the scenarios: who is the cheapest where, and the value at which that changes.

At every value each scenario serves the most sequences that fit and keep to the TPOT target, and its cost per token counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hwmodel.axis import TPOT, Axis, Question, seconds
from hwmodel.optimize.packed import Packed, largest_batch, tokens_of
from hwmodel.optimize.space import Choice
from hwmodel.result import Placed, Result
from hwmodel.run import again, run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show
from hwmodel.timing import device_array

LIMIT = 1 << 20
"""Sequences a step may have."""
CLOSE, ROUGH = 1e-6, 1e-3
"""How near (relative) a break-even value is located, and the ends of its range."""


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


def along(questions: Sequence[Question], over: Axis, tpot_s: float | None = None) -> Along:
    """Who is the cheapest along an axis, and where that changes.

    Parameters
    ----------
    over
        Its path may be ``tpot``, the target itself. A pool that only some of the scenarios have is changed in those.
    tpot_s
        Target (s); every scenario keeps the batch it states when None and the axis is not the target.

    Raises
    ------
    InputError
        When a setting is wrong, no scenario has the path, or a price is not known.
    """
    if not any(each.has(over.path) for each in questions):
        raise InputError(f"{over.path}: none of {', '.join(each.name for each in questions)} has that pool")
    askers = [_Asker(each, over, tpot_s) for each in questions]
    cells = tuple(tuple(each.cell(text, ranges=True) for each in askers) for text in over.values)
    changes = [row for pair in pairwise(over.numbers) for row in _changes(askers, over, pair)]
    names = tuple(each.name for each in questions)
    return Along(over.path, names, over.values, cells, tuple(changes), over.unit)


NUMBERS = ("workload.batch", "workload.context", "workload.new_tokens", "economics")
"""Starts of the paths that change numbers of a placed step and nothing else; so do overrides of a chip's numbers."""


class _Asker:
    """One scenario along an axis; what was asked before is kept, and so is a placed step whose numbers alone change."""

    def __init__(self, question: Question, over: Axis, tpot_s: float | None) -> None:
        self.name = question.name
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
    """
    scenario, graph, table = placed.scenario, placed.graph, placed.table
    fit = largest_batch(scenario, graph, LIMIT)
    least = scenario.workload.batch if fixed else 1
    if fit < least:
        return 0, f"memory: {fit:,} sequences fit" if fit else "memory: not one sequence fits"
    choice = Choice("as planned", scenario.cluster, (), (1,))
    plan = Packed(choice, scenario, graph, table, device_array(table, scenario.cluster), fit, "", None)
    parts = max(graph.micro_batches, graph.pipeline_batches)

    def slow(batch: int) -> float:
        return float(plan.times(np.array([batch]), parts)[0]) / tokens_of(scenario)

    if slow(least) > tpot_s:
        return 0, f"TPOT {show(slow(least), 's', 4)} with {least:,} sequence{'s' if least > 1 else ''}"
    if fixed:
        return least, ""
    low, high = 1, fit
    if slow(high) <= tpot_s:
        return high, ""
    while high - low > 1:
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        low, high = (middle, high) if slow(middle) <= tpot_s else (low, middle)
    return low, ""


def _winner(cells: Sequence[Cell]) -> int:
    best = min(range(len(cells)), key=lambda n: cells[n].cost)
    return best if cells[best].cost < math.inf else -1


def _changes(askers: Sequence[_Asker], over: Axis, ends: tuple[float, float]) -> list[dict[str, Any]]:
    """The changes of the cheapest between two neighbouring values, in order."""

    def winner(value: float) -> int:
        return _winner([each.cell(over.text(value)) for each in askers])

    found: list[dict[str, Any]] = []
    (low, high), last = ends, winner(ends[1])
    while (before := winner(low)) != last:
        value = _located(lambda number, own=before: winner(number) == own, low, high, CLOSE, whole=over.whole)  # type: ignore[misc]
        low = value if over.whole else min(high, value * (1 + CLOSE))
        after = winner(low)
        names = [askers[n].name if n >= 0 else "none" for n in (before, after)]
        around: tuple[float | None, float | None] = (None, None)
        if before >= 0 and after >= 0:
            around = _ends(askers[before], askers[after], over, value)
        found.append({"x": over.path, "between": names, "at": value, "low": around[0], "high": around[1]})
    return found


def _located(first: Callable[[float], bool], low: float, high: float, close: float, *, whole: bool) -> float:
    """The value from which a condition that holds at `low` and not at `high` no longer holds."""
    while (high - low > 1) if whole else (high / low > 1 + close):
        middle = float(math.floor(math.sqrt(low * high))) if whole else math.sqrt(low * high)
        middle = min(max(middle, low + 1), high - 1) if whole else middle
        low, high = (middle, high) if first(middle) else (low, middle)
    return high if whole else math.sqrt(low * high)


def _ends(one: _Asker, other: _Asker, over: Axis, value: float) -> tuple[float | None, float | None]:
    """Where the change would be if the ranges of both steps, as independent ones, moved their costs apart.

    (None, None) where an end lies outside the axis, or one of the two cannot serve there.
    """
    here = [each.cell(over.text(value), ranges=True) for each in (one, other)]
    if any(cell.low is None or cell.high is None for cell in here):
        return None, None
    sides = [(math.log(cell.cost / (cell.low or 1)), math.log((cell.high or 1) / cell.cost)) for cell in here]
    down = math.hypot(sides[0][0], sides[1][1])  # `one` cheaper than thought, `other` dearer
    up = math.hypot(sides[0][1], sides[1][0])

    def gap(number: float) -> float:
        a, b = (each.cell(over.text(number)) for each in (one, other))
        return math.log(a.cost / b.cost) if a.cost < math.inf and b.cost < math.inf else math.nan

    first, last = over.numbers[0], over.numbers[-1]
    if not (gap(first) < -up and gap(last) > down):
        return None, None
    low, high = (
        _located(lambda number, own=shift: gap(number) < own, first, last, ROUGH, whole=over.whole)  # type: ignore[misc]
        for shift in (-up, down)
    )
    return min(low, value), max(high, value)


def at_target(scenario: Scenario, tpot_s: float | None) -> Scenario:
    """The scenario with the most sequences that keep to a target; as it is when none does, or without a target."""
    if tpot_s is None:
        return scenario
    placed = run(scenario, ranges=False).placed
    batch = 0 if placed.graph.reasons else _most(placed, tpot_s, fixed=False)[0]
    return replace(scenario, workload=scenario.workload.model_copy(update={"batch": batch})) if batch else scenario
