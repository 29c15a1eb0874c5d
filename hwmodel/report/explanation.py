"""Explanations as text that people read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.explain import Explanation
from hwmodel.report.markup import MOVES
from hwmodel.report.tables import table


def explanations(found: Sequence[Explanation], scenario: str) -> RenderableType:
    """The answer of ``hwmodel explain``."""
    parts: list[RenderableType] = [Text(scenario, style="bold")]
    for each in found:
        parts += ["", *_one(each)]
    return Group(*parts)


def _one(each: Explanation) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"{each.of}: {each.value:.6g} {each.unit}", style="bold"), Text(f"  {each.formula}")]
    if each.note:
        lines.append(Text(f"  ({each.note})", style="dim"))
    rows = [(f"  {term.symbol}", f"{term.value:.10g}", term.unit, term.status, term.source) for term in each.terms]
    grid = table("", ("  term", "value", "unit", "status", "source"), rows, 5)
    grid.columns[1].justify = "right"
    grid.columns[1].no_wrap = True
    grid.columns[4].overflow = "fold"
    lines.append(grid)
    moved = ", ".join(f"{name} ({value:+.2f} %)" for name, value in each.most_sensitive if abs(value) >= MOVES)
    if moved:
        lines.append(Text(f"  moved most, per 1 % of the input, by: {moved}"))
    return lines
