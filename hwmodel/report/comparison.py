"""Comparisons as tables that people read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hwmodel.compare.along import Along, Cell
from hwmodel.compare.answer import Comparison
from hwmodel.compare.rows import MEASURES
from hwmodel.report.money import usd
from hwmodel.report.tables import seconds, table
from hwmodel.sweep.names import BATCH, CHIP, COST, USER, said, short

REASONS = 6
"""Of the values where a scenario cannot serve: so many are said."""


def comparison(found: Comparison) -> RenderableType:
    """The answer of ``hwmodel compare``."""
    rows = [
        (str(row["scenario"]), "fits" if row["feasible"] else "does not run", _cell(row["batch"], ",.0f"),
         seconds(row["step_s"]), _cell(row["tokens_per_s"], ",.0f"), _cell(row["tokens_per_s_per_user"], ",.1f"),
         _cell(row["tokens_per_s_per_chip"], ",.1f"), usd(row[COST]), usd(row["joules_per_token"]), _cell(row["bound"], ""))
        for row in found.rows
    ]  # fmt: skip
    columns = ("scenario", "", "batch", "step", "tokens/s", "/user", "/chip", "USD/Mtok", "J/token", "bound")
    parts: list[RenderableType] = [table("side by side", columns, rows, 2)]
    parts += [Text(_place(row, found.places[row["scenario"]])) for row in found.rows if row["scenario"] in found.places]
    for each in found.along:
        parts += ["", _along(each)]
    if found.verdicts and not found.along:
        parts += ["", _verdicts(found)]
    if found.crossovers and not found.along:
        parts += [
            part
            for y, x in dict.fromkeys((row["y"], row["x"]) for row in found.crossovers)
            for part in ("", _changes([row for row in found.crossovers if (row["y"], row["x"]) == (y, x)], y, x))
        ]
    return Group(*parts, *(Text(f"note: {text}", style="dim") for text in found.notes))


def _place(row: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Which of a file's points a row is."""
    point, *axes = values
    heads = zip(short(axes), (values[name] for name in axes), strict=True)
    said_ = ", ".join(f"{head} {said(value)}" for head, value in heads if value is not None)
    return f"{row['scenario']}: point {values[point]}, most tokens/s/chip of the file" + (f"; {said_}" if said_ else "")


def _verdicts(found: Comparison) -> RenderableType:
    """Who is ahead in what: of every two, or where they are many the best of all and the others."""
    rows = list(found.verdicts)
    if len(found.rows) > FEW + 1:
        ahead = {of: {row["behind"] for row in rows if row["of"] == of} for of in MEASURES}
        rows = [row for row in rows if row["ahead"] not in ahead[row["of"]]]
    lines = [
        (SHORT[row["of"]], row["ahead"], row["behind"], f"{row['ratio']:.3g} x", f"{row['low']:.3g} to {row['high']:.3g}",
         "beyond the ranges" if row["beyond_ranges"] else "within the ranges")
        for row in rows
    ]  # fmt: skip
    return table("who is ahead, each at its own batch", ("", "ahead", "of", "by", "range", ""), lines, 3)


def _changes(rows: Sequence[Mapping[str, Any]], y: str, x: str) -> RenderableType:
    if y == COST:
        return _crossovers("crossovers of cost over the batches that fit", rows, "tokens/s/user")
    return _crossovers(f"crossovers of {SHORT.get(y, y)}", rows, SHORT.get(x, x), "ahead")


SHORT = {USER: "tokens/s/user", CHIP: "tokens/s/chip", COST: "USD/Mtok", BATCH: "batch"}  # fmt: skip


def _crossovers(title: str, rows: Sequence[Mapping[str, Any]], unit: str, best: str = "cheaper") -> RenderableType:
    lines = [
        (row["between"][0], row["between"][1], number(row["at"]),
         _around(row["low"], row["high"]))
        for row in rows
    ]  # fmt: skip
    return table(title, (f"{best} below", f"{best} above", unit, "range"), lines, 2)


def _cell(value: Any, how: str) -> str:
    return "-" if value is None else format(value, how)


def _around(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "-" if low == high else f"up to {number(high)}" if high is not None else f"from {number(low or 0.0)}"
    return f"{number(low)} to {number(high)}"


def number(value: float) -> str:
    """Whole numbers in full, others with four digits."""
    return f"{value:,.0f}" if value == int(value) and value >= 1000 else f"{value:,.4g}"


FEW = 2
"""Scenarios whose costs, ranges and batches stand in one table."""


def _along(found: Along) -> RenderableType:
    """Cost by value and scenario, with its range, and the batch that each serves."""
    short = ".".join(found.x.split(".")[-2:])
    parts: list[RenderableType] = [Text(f"USD/Mtok (range of the step) over {found.x}", style="bold")]
    if len(found.names) <= FEW:
        heads = [text for name in found.names for text in (name, "batch")]
        lines = [
            (value, *(text for cell in row for text in (_cost(cell), _batch(cell))), found.cheapest(n) or "none")
            for n, (value, row) in enumerate(_rows(found))
        ]
        parts.append(table("", (short, *heads, "cheapest"), lines, 1))
    else:
        lines = [(value, *map(_plain, row), found.cheapest(n) or "none") for n, (value, row) in enumerate(_rows(found))]
        lines += [("last / first", *_growth(found), "")] if found.numbers else []
        parts += [_folding(table("", (short, *found.names, "cheapest"), lines, 1))]
        for title, said in (("range of the step", _range), ("sequences", _batch)):
            parts += ["", _folding(table(title, (short, *found.names), [(v, *map(said, row)) for v, row in _rows(found)], 1))]
    if found.crossovers:
        head = f"{short}, {found.unit}" if found.unit else short
        parts += ["", _crossovers("where the cheapest changes", found.crossovers, head)]
    reasons = dict.fromkeys(
        f"{name} at {value}: {cell.reason}"
        for value, row in zip(found.values, found.cells, strict=True)
        for name, cell in zip(found.names, row, strict=True) if cell.reason
    )  # fmt: skip
    return Group(*parts, *(Text(f"note: {text}", style="dim") for text in list(reasons)[:REASONS]))


def _rows(found: Along) -> list[tuple[str, Sequence[Cell]]]:
    values = [f"{int(value):,}" if value.isdigit() else value for value in found.values]
    return list(zip(values, found.cells, strict=True))


def _growth(found: Along) -> list[str]:
    ends = zip(found.cells[0], found.cells[-1], strict=True)
    return [f"{last.cost / first.cost:,.3g} x" if max(last.cost, first.cost) < math.inf else "-" for first, last in ends]


def _folding(grid: Table) -> Table:
    """Long names of scenarios go on in the next line."""
    for column in grid.columns[1:]:
        column.overflow = "fold"
    return grid


def _plain(cell: Cell) -> str:
    return usd(cell.usd_per_million_tokens)


def _range(cell: Cell) -> str:
    return "-" if cell.low is None or cell.high is None else f"{usd(cell.low)}-{usd(cell.high)}"


def _batch(cell: Cell) -> str:
    return "-" if cell.batch is None or cell.reason else f"{cell.batch:,}"


def _cost(cell: Cell) -> str:
    return "-" if cell.low is None else f"{_plain(cell)} ({_range(cell)})"
