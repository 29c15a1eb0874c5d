"""Who wins where: files of a sweep's points, and scenarios beside them, and where they change places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.crossover import crossings
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.drive import sweep_of
from hwmodel.sweep.pareto import front
from hwmodel.sweep.read import read_points
from hwmodel.timing import Array

USER, CHIP, BATCH = "tokens_per_s_per_user", "tokens_per_s_per_chip", "workload.batch"
COLUMNS = (
    "name", "feasible", "phase", "chips", "time_s", "time_low_s", "time_high_s", USER, CHIP, "usd_per_million_tokens",
    "joules_per_token", "bound",
)  # fmt: skip
BATCHES = {"log": [1, 16384], "points": 96, "whole": True}


@dataclass(frozen=True)
class Lines:
    """One of those that are compared, as lines over an axis; each y with the ends of its range."""

    name: str
    over: Mapping[str, tuple[Array, Array, Array, Array]]
    """By axis: (x ascending, y, its low end, its high end)."""


def compare_points(names: Sequence[str]) -> dict[str, Any]:
    """Rows, verdicts and crossovers of scenarios and of sweeps' ``FILE.csv``.

    A crossover lies `at` where two lines meet, and anywhere from `low` to `high` where their ranges overlap around it.

    Raises
    ------
    InputError
        For fewer than two names, and whatever is wrong with a scenario or file.
    """
    if len(names) < 2:
        raise InputError("name two or more scenarios or files of points to compare")
    rows, lines = [], list[Lines]()
    for name in names:
        row, line = _points(Path(name)) if name.endswith(".csv") else _scenario(name)
        rows.append(row)
        lines.append(line)
    found = [crossing for x in (BATCH, USER) for crossing in _crossovers(lines, x)]
    return {"columns": list(COLUMNS), "rows": rows, "verdicts": _verdicts(rows), "crossovers": found}


def _scenario(name: str) -> tuple[dict[str, Any], Lines]:
    scenario = load_scenario(name)
    result = run(scenario)
    step, cost = result.step, result.cost
    usd = (cost.usd_per_million_output_tokens or cost.usd_per_million_input_tokens) if cost else None
    values = (
        name, result.feasible, step.phase, scenario.cluster.chips, step.time_s, step.time_low_s, step.time_high_s,
        step.tokens_per_s_per_user, step.tokens_per_s_per_chip, usd, cost.joules_per_token if cost else None, step.bound,
    )  # fmt: skip
    table = sweep_of(Document(name, {"scenario": name, "axes": {BATCH: BATCHES}}, {}, ()))
    good = table.feasible
    numbers = {key: values_[good] for key, values_ in table.numbers.items()}
    return dict(zip(COLUMNS, values, strict=True)), Lines(name, _lines(numbers, bool(good.any())))


def _lines(numbers: Mapping[str, Array], some: bool) -> dict[str, tuple[Array, Array, Array, Array]]:
    """Tokens/s per chip over the batch, and the front over tokens/s per user."""
    if not some:
        return {}
    rate, time = numbers[CHIP], numbers["time_s"]
    low, high = (rate * time / numbers.get(end, time) for end in ("time_high_s", "time_low_s"))
    best = front(np.array([numbers[USER], rate]).T)
    best = best[np.argsort(numbers[USER][best])]
    found = {USER: (numbers[USER][best], rate[best], low[best], high[best])}
    batch = numbers.get(BATCH)
    if batch is not None and len(np.unique(batch)) == len(batch):
        order = np.argsort(batch)
        found[BATCH] = batch[order], rate[order], low[order], high[order]
    return found


def _points(path: Path) -> tuple[dict[str, Any], Lines]:
    """A file of points: its row is the point with most tokens/s per chip."""
    points = read_points(path)
    best = int(np.argmax(points.number(CHIP)))
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    for name in COLUMNS:
        column = points.columns.get(name)
        if column is not None:
            value = column[best]
            row[name] = value if isinstance(value, str) else None if np.isnan(value) else float(value)
    row |= {"name": path.name, "feasible": True}
    numbers = {name: column for name, column in points.columns.items() if not isinstance(column, list)}
    return row, Lines(path.name, _lines(numbers, some=True))


def _crossovers(lines: Sequence[Lines], x: str) -> list[dict[str, Any]]:
    known = {line.name: line.over[x] for line in lines if x in line.over}
    found = []
    for crossing in crossings({name: (over[0], over[1]) for name, over in known.items()}):
        low, high = _overlap(known[crossing.between[0]], known[crossing.between[1]], crossing.at)
        found.append({"x": x, "y": CHIP, **asdict(crossing), "between": list(crossing.between), "low": low, "high": high})
    return found


def _overlap(one: Sequence[Array], other: Sequence[Array], at: float) -> tuple[float, float]:
    """The stretch around a crossing over which the ranges of two lines overlap."""
    low, high = max(one[0][0], other[0][0]), min(one[0][-1], other[0][-1])
    places = np.unique(np.concatenate([np.linspace(low, high, 257), one[0], other[0], [at]]))
    places = places[(places >= low) & (places <= high)]
    lows, highs = ([np.interp(places, line[0], line[k]) for line in (one, other)] for k in (2, 3))
    apart = (lows[0] > highs[1]) | (lows[1] > highs[0])
    before, behind = places[apart & (places < at)], places[apart & (places > at)]
    return float(before[-1]) if len(before) else float(low), float(behind[0]) if len(behind) else float(high)


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For every two of a phase: the quicker step, by how much, and whether their ranges lie apart."""
    found = []
    for one, other in combinations(rows, 2):
        if not one["time_s"] or not other["time_s"] or one["phase"] != other["phase"]:
            continue
        quick, slow = (one, other) if one["time_s"] <= other["time_s"] else (other, one)
        apart = bool(quick["time_high_s"] and slow["time_low_s"] and quick["time_high_s"] < slow["time_low_s"])
        found.append(
            {
                "quicker": quick["name"],
                "slower": slow["name"],
                "ratio": slow["time_s"] / quick["time_s"],
                "beyond_ranges": apart,
            }
        )
    return found
