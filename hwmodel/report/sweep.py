"""The answer of a sweep as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from hwmodel.report.tables import table
from hwmodel.sweep.answer import Answer
from hwmodel.sweep.names import BOUND, POINT, inputs, short

MOST = 16
"""Points of the front that are printed; the file and the JSON have all."""
WIDE = 118
"""Characters of a line."""


def answer(found: Answer) -> Any:
    """Counts, reasons, the front, the best."""
    counts = [
        ("points", f"{found.points:,}"), ("evaluated", f"{found.evaluated:,}"), ("feasible", f"{found.feasible:,}"),
        ("seconds", f"{found.seconds:.2f}"), ("points per second", f"{found.points_per_s:,.0f}"),
    ]  # fmt: skip
    parts: list[Any] = [table(f"sweep {found.name}{' (stopped)' if found.stopped else ''}", ("", ""), counts, 1)]
    if found.rejected:
        rows = [(reason, f"{count:,}") for reason, count in found.rejected.items()]
        parts.append(table("left out", ("reason", "points"), rows, 1))
    said = ", ".join(f"{way} {name}" for name, way in found.objectives.items())
    first, *_, last = [*found.objectives, *found.objectives]
    front = sorted(found.pareto, key=lambda row: -row[first])
    for title, rows_ in ((f"Pareto front: {said}", front), (f"best by {last}", list(found.top))):
        if rows_:
            step = max(1, -(-len(rows_) // MOST))
            shown = f" ({len(rows_[::step])} of {len(rows_)})" if step > 1 else ""
            parts += ["", _points(title + shown, rows_[::step], list(found.objectives))]
    return Group(*parts)


def _points(title: str, rows: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> Any:
    """Rows of points: number, objectives, what bounds, and of the inputs that differ as many as stand on a line."""
    varied = [name for name in inputs(rows[0]) if len({row[name] for row in rows}) > 1]
    varied.sort(key=lambda name: not any(isinstance(row[name], str) for row in rows))  # scenarios, plans and chips first
    names = [POINT, *objectives, BOUND, *varied]
    heads = dict(zip(names, [*names[: 2 + len(objectives)], *short(varied)], strict=True))
    cells = {name: [_cell(row[name], whole=name == POINT) for row in rows] for name in names}
    broken = {name: _broken(head) for name, head in heads.items()}
    wide = {name: max(len(text) for text in (*cells[name], *broken[name].split("\n"))) + 2 for name in names}
    kept = [name for n, name in enumerate(names) if sum(wide[each] for each in names[: n + 1]) <= WIDE]
    left = f"; not shown: {', '.join(heads[name] for name in names if name not in kept)}" if len(kept) < len(names) else ""
    lines = [tuple(cells[name][n] for name in kept) for n in range(len(rows))]
    return table(title + left, tuple(broken[name] for name in kept), lines, 1)


def _broken(head: str) -> str:
    """A long name on lines of its parts."""
    if len(head) <= 10:
        return head
    return head.replace("_per_user", "\nper_user").replace("_per_chip", "\nper_chip").replace(".", ".\n")


def _cell(value: Any, *, whole: bool = False) -> str:
    if value is None:
        return "-"
    if whole or not isinstance(value, int | float) or isinstance(value, bool):
        return f"{value}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
