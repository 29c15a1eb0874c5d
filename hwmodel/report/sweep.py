"""The answer of a sweep as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from hwmodel.report.tables import table
from hwmodel.sweep.answer import Answer
from hwmodel.sweep.names import BOUND, POINT, inputs, said, short

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
    aims = ", ".join(f"{way} {name}" for name, way in found.objectives.items())
    first, *_, last = [*found.objectives, *found.objectives]
    front = sorted(found.pareto, key=lambda row: -row[first])
    for title, rows_ in ((f"Pareto front: {aims}", front), (f"best by {last}", list(found.top))):
        if rows_:
            parts += ["", *_points(title, rows_, list(found.objectives))]
    return Group(*parts)


def _points(title: str, all_rows: Sequence[Mapping[str, Any]], objectives: Sequence[str]) -> list[Any]:
    """What all points share, and their rows: number, objectives, what bounds, of the inputs that differ as many as fit."""
    rows = all_rows[:: max(1, -(-len(all_rows) // MOST))]
    shown = f" ({len(rows)} of {len(all_rows)})" if len(rows) < len(all_rows) else ""
    every = inputs(rows[0])
    varied = [name for name in every if len({row[name] for row in all_rows}) > 1]
    shared = [f"{head} {said(rows[0][name])}" for name, head in zip(every, short(every), strict=True) if name not in varied]
    varied.sort(key=lambda name: not any(isinstance(row[name], str) for row in rows))  # scenarios, plans and chips first
    names = [POINT, *objectives, BOUND, *varied]
    heads = dict(zip(names, [*names[: 2 + len(objectives)], *short(varied)], strict=True))
    cells = {name: [said(row[name], whole=name == POINT) for row in rows] for name in names}
    broken = {name: _broken(head) for name, head in heads.items()}
    wide = {name: max(len(text) for text in (*cells[name], *broken[name].split("\n"))) + 2 for name in names}
    kept = [name for n, name in enumerate(names) if sum(wide[each] for each in names[: n + 1]) <= WIDE]
    left = f"; not shown: {', '.join(heads[name] for name in names if name not in kept)}" if len(kept) < len(names) else ""
    lines = [tuple(cells[name][n] for name in kept) for n in range(len(rows))]
    grid = table("", tuple(broken[name] for name in kept), lines, 1)
    return [
        Text(title + shown + left, style="bold"),
        *([Text(f"all with {', '.join(shared)}", style="dim")] if shared else []),
        grid,
    ]


def _broken(head: str) -> str:
    """A long name on lines of its parts."""
    if len(head) <= 10:
        return head
    return head.replace("_per_user", "\nper_user").replace("_per_chip", "\nper_chip").replace(".", ".\n")
