"""Comparisons as tables that people read."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.compare import Comparison
from hwmodel.report.money import usd
from hwmodel.report.tables import seconds, table


def comparison(found: Comparison) -> RenderableType:
    """The answer of ``hwmodel compare``."""
    rows = [
        (str(row["scenario"]), "fits" if row["feasible"] else "does not run", seconds(row["step_s"]),
         f"{row['tokens_per_s']:,.0f}", f"{row['tokens_per_s_per_user']:,.1f}", f"{row['tokens_per_s_per_chip']:,.1f}",
         usd(row["usd_per_million_tokens"]), usd(row["joules_per_token"]), str(row["bound"]))
        for row in found.rows
    ]  # fmt: skip
    columns = ("scenario", "", "step", "tokens/s", "/user", "/chip", "USD/Mtok", "J/token", "bound")
    parts: list[RenderableType] = [table("side by side", columns, rows, 2)]
    if found.crossovers:
        lines = [
            (row["between"][0], row["between"][1], f"{row['at']:.4g}",
             "-" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}")
            for row in found.crossovers
        ]  # fmt: skip
        heads = ("cheaper below", "cheaper above", "tokens/s/user", "range")
        parts += ["", table("crossovers of cost over the batches that fit", heads, lines, 2)]
    return Group(*parts, *(Text(f"note: {text}", style="dim") for text in found.notes))
