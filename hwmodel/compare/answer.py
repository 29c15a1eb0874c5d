"""Who wins where: scenarios, saved answers and files of a sweep's points side by side, and where they change places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwmodel.answered import Answered
from hwmodel.compare import cost, rates, rows
from hwmodel.compare.along import Along
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.sweep.read import Points

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

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel compare --json`` prints it."""
        plain, crossovers = [dict(row) for row in self.rows], [dict(row) for row in self.crossovers]
        return {"columns": list(rows.COLUMNS), "rows": plain, "crossovers": crossovers, "notes": list(self.notes),
                "along": [each.to_dict() for each in self.along],
                "verdicts": [dict(row) for row in self.verdicts]}  # fmt: skip


def compare(asked: Sequence[Asked], over: Sequence[Along] = ()) -> Comparison:
    """Set answers side by side.

    Parameters
    ----------
    asked
        Scenarios; answers as ``hwmodel run --json`` saved them, which have no curve, so no crossing; paths of files of points
        as ``hwmodel sweep --out`` writes them.
    over
        What `hwmodel.compare.along.along` found; in place of the curves over batches.

    Raises
    ------
    InputError
        For a file that is none of points.
    """
    files = _files(asked)
    plain = tuple(rows.of_points(files[n], files[n].name) if n in files else _row(each) for n, each in enumerate(asked))
    verdicts = tuple(rows.verdicts(plain))
    if over:
        return Comparison(plain, tuple(row for each in over for row in each.crossovers), (), tuple(over), verdicts)
    if files:
        bands = {row["scenario"]: rates.of_points(files[n]) for n, row in enumerate(plain) if n in files}
        bands |= {each.name: rates.of_scenario(each) for each in asked if isinstance(each, Scenario)}
        return Comparison(plain, tuple(rates.crossed(bands)), (), (), verdicts)
    notes = [f"{row['scenario']}: {_CURVELESS}" for row, each in zip(plain, asked, strict=True) if not _decodes(each)]
    curves = {each.name: cost.curve(each) for each in asked if isinstance(each, Scenario) and _decodes(each)}
    crossovers, never = cost.crossed(curves)
    return Comparison(plain, tuple(crossovers), (*notes, *never), (), verdicts)


_CURVELESS = "a saved answer or no decode step: it has no curve over batches to cross"


def _row(each: Asked) -> dict[str, Any]:
    return rows.of_answer(run(each).to_dict() if isinstance(each, Scenario) else each)  # type: ignore[arg-type]


def _decodes(each: Asked) -> bool:
    return isinstance(each, Scenario) and each.workload.phase == "decode"


def _files(asked: Sequence[Asked]) -> dict[int, Points]:
    """Files of points by their place; of two files of one name both are called by their path."""
    found = {n: Points(Path(each)) for n, each in enumerate(asked) if isinstance(each, str | Path)}
    names = [points.name for points in found.values()]
    for points in found.values():
        if names.count(points.name) > 1:
            points.name = str(points.path)
    return found
