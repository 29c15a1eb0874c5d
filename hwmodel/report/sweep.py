"""The answer of a sweep as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group

from hwmodel.report.tables import table
from hwmodel.sweep.answer import Answer

MOST = 16
"""Points of the front that are printed; the file and the JSON have all."""


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
    names = list(found.objectives)
    said = ", ".join(f"{way} {name}" for name, way in found.objectives.items())
    for title, rows_ in ((f"Pareto front: {said}", found.pareto), (f"best by {names[-1]}", found.top)):
        if rows_:
            chosen = sorted(rows_, key=lambda row: -row[names[0]]) if rows_ is found.pareto else list(rows_)
            step = max(1, -(-len(chosen) // MOST))
            moved = _inputs(found, rows_)
            cells = [tuple(_cell(row[name]) for name in ("point", *names, *moved)) for row in chosen[::step]]
            shown = f" ({len(cells)} of {len(rows_)})" if step > 1 else ""
            parts.append(
                table(title + shown, ("point", *names, *(name.rpartition(".")[2] for name in moved)), cells, 1 + len(names))
            )
    return Group(*parts)


def _inputs(found: Answer, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Axes: what stands before the first column of results."""
    known = [name for name in rows[0] if "." in name and name.split(".")[0] in ("workload", "cluster", "plan")]
    return [name for name in ("scenario", *known, "plan") if name in rows[0]] + ["bound"]


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
