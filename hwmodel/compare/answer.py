"""Who wins where: scenarios, saved answers and files of a sweep's points side by side, and where they change places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.answered import Answered
from hwmodel.compare import overtaking, rates, rows
from hwmodel.compare.along import Along
from hwmodel.compare.curve import Curve, Sampled, planned
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, loaded
from hwmodel.sweep.read import Points, is_points

Asked = Scenario | Mapping[str, Any] | Path | str


@dataclass(frozen=True)
class Comparison(Answered):
    """The answer of ``hwmodel compare``."""

    rows: tuple[dict[str, Any], ...]
    crossovers: tuple[dict[str, Any], ...]
    """x, y, between [ahead below, ahead above], at, and its range (None where an end has no crossing)."""
    notes: tuple[str, ...]
    along: tuple[Along, ...] = ()
    verdicts: tuple[dict[str, Any], ...] = ()
    """Of every two: who is ahead in what, by which factor, and whether beyond their ranges."""

    places: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of files of points: which point stands for the file, and what the axes are there, by the row's name and by column."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel compare --json`` prints it."""
        plain, crossovers = [dict(row) for row in self.rows], [dict(row) for row in self.crossovers]
        return {"columns": list(rows.COLUMNS), "rows": plain, "crossovers": crossovers, "notes": list(self.notes),
                "places": {name: dict(values) for name, values in self.places.items()},
                "along": [each.to_dict() for each in self.along],
                "verdicts": [dict(row) for row in self.verdicts]}  # fmt: skip


def compare(asked: Sequence[Asked], over: Sequence[Along] = ()) -> Comparison:
    """Set answers side by side.

    Parameters
    ----------
    asked
        Scenarios, or their names; answers as ``hwmodel run --json`` saved them, which have no curve, so no crossing; paths of
        files of points as ``hwmodel sweep --out`` writes them.
    over
        What `hwmodel.compare.along.along` found; in place of the curves over batches.

    Raises
    ------
    InputError
        For a file that is none of points.
    """
    asked = [loaded(each) if isinstance(each, str) and not is_points(each) else each for each in asked]
    files = _files(asked)
    steps = {n: run(each) for n, each in enumerate(asked) if isinstance(each, Scenario)}
    plain = _told_apart(_row(each, steps.get(n), files.get(n)) for n, each in enumerate(asked))
    verdicts = tuple(rows.verdicts(plain))
    if over:
        return Comparison(plain, tuple(row for each in over for row in each.crossovers), (), tuple(over), verdicts)
    if files:
        bands = {row["scenario"]: rates.of_points(files[n]) for n, row in enumerate(plain) if n in files}
        bands |= {plain[n]["scenario"]: rates.of_scenario(step.placed.scenario) for n, step in steps.items()}
        places = {plain[n]["scenario"]: rows.place(points) for n, points in files.items()}
        return Comparison(plain, tuple(rates.crossed(bands)), (), (), verdicts, places)
    decoding = {n: step for n, step in steps.items() if step.placed.scenario.workload.phase == "decode"}
    notes = [f"{row['scenario']}: {_CURVELESS}" for n, row in enumerate(plain) if n not in decoding]
    curves = _curves({plain[n]["scenario"]: step for n, step in decoding.items()})
    notes += [f"{curve.name}: a price of its chips is not known, so no cost to cross" for curve in curves if not curve.priced]
    changes = overtaking.in_pairs(curves)
    return Comparison(plain, tuple(changes), (*notes, *overtaking.never(curves, changes)), (), verdicts)


_CURVELESS = "a saved answer or no decode step: it has no curve over batches to cross"


def _curves(steps: Mapping[str, Result]) -> list[Curve]:
    """Each under its own plan, where one sequence fits."""
    lines = {name: planned(step.placed, step.placed.scenario.goal.max_batch) for name, step in steps.items()}
    return overtaking.refined([Sampled(name, line) for name, line in lines.items() if line], overtaking.in_pairs)


def _told_apart(plain: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Of rows of one name (a scenario under other settings) the second is called NAME (2)."""
    found, seen = list[dict[str, Any]](), Counter[str]()
    for row in plain:
        seen[row["scenario"]] += 1
        found.append(row | {"scenario": f"{row['scenario']} ({seen[row['scenario']]})"} if seen[row["scenario"]] > 1 else row)
    return tuple(found)


def _row(each: Asked, step: Result | None, points: Points | None) -> dict[str, Any]:
    if points is not None:
        return rows.of_points(points, points.name)
    return rows.of_answer(step.to_dict() if step else each)  # type: ignore[arg-type]


def _files(asked: Sequence[Asked]) -> dict[int, Points]:
    """Files of points by their place; of two files of one name both are called by their path."""
    found = {n: Points(Path(each)) for n, each in enumerate(asked) if isinstance(each, str | Path)}
    names = [points.name for points in found.values()]
    for points in found.values():
        if names.count(points.name) > 1:
            points.name = str(points.path)
    return found
