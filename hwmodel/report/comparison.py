"""Comparisons as tables that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.along import Along, Cell
from hwmodel.compare import Comparison
from hwmodel.report.money import usd
from hwmodel.report.tables import seconds, table

REASONS = 6
"""Of the values where a scenario cannot serve: so many are said."""


def comparison(found: Comparison) -> RenderableType:
    """The answer of ``hwmodel compare``."""
    rows = [
        (str(row["scenario"]), "fits" if row["feasible"] else "does not run", f"{row['batch']:,}", seconds(row["step_s"]),
         f"{row['tokens_per_s']:,.0f}", f"{row['tokens_per_s_per_user']:,.1f}", f"{row['tokens_per_s_per_chip']:,.1f}",
         usd(row["usd_per_million_tokens"]), usd(row["joules_per_token"]), str(row["bound"]))
        for row in found.rows
    ]  # fmt: skip
    columns = ("scenario", "", "batch", "step", "tokens/s", "/user", "/chip", "USD/Mtok", "J/token", "bound")
    parts: list[RenderableType] = [table("side by side", columns, rows, 2)]
    for each in found.along:
        parts += ["", _along(each)]
    if found.crossovers and not found.along:
        parts += ["", _crossovers("crossovers of cost over the batches that fit", found.crossovers, "tokens/s/user")]
    return Group(*parts, *(Text(f"note: {text}", style="dim") for text in found.notes))


def _crossovers(title: str, rows: Sequence[Mapping[str, Any]], unit: str) -> RenderableType:
    lines = [
        (row["between"][0], row["between"][1], number(row["at"]),
         "-" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}")
        for row in rows
    ]  # fmt: skip
    return table(title, ("cheaper below", "cheaper above", unit, "range"), lines, 2)


def number(value: float) -> str:
    """Whole numbers in full, others with four digits."""
    return f"{value:,.0f}" if value == int(value) and value >= 1000 else f"{value:,.4g}"


def _along(found: Along) -> RenderableType:
    """Cost by value and scenario, with its range, and the batch that each serves."""
    lines = []
    for row, value in enumerate(found.values):
        cells = [(_cost(cell), "-" if cell.batch is None or cell.reason else f"{cell.batch:,}") for cell in found.cells[row]]
        said = f"{int(value):,}" if value.isdigit() else value
        lines.append((said, *(text for pair in cells for text in pair), found.cheapest(row) or "none"))
    heads = [text for name in found.names for text in (name, "batch")]
    title = f"USD/Mtok (range of the step) over {found.x}"
    parts: list[RenderableType] = [table(title, (found.x, *heads, "cheapest"), lines, 1)]
    if found.crossovers:
        parts += ["", _crossovers(f"where the cheapest changes, over {found.x}", found.crossovers, found.unit or "value")]
    reasons = dict.fromkeys(
        f"{name} at {value}: {cell.reason}"
        for value, row in zip(found.values, found.cells, strict=True)
        for name, cell in zip(found.names, row, strict=True) if cell.reason
    )  # fmt: skip
    return Group(*parts, *(Text(f"note: {text}", style="dim") for text in list(reasons)[:REASONS]))


def _cost(cell: Cell) -> str:
    if cell.usd_per_million_tokens is None or cell.low is None or cell.high is None:
        return "-"
    return f"{usd(cell.usd_per_million_tokens)} ({usd(cell.low)}-{usd(cell.high)})"
