"""What moves an answer, as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.report.tables import seconds, table

if TYPE_CHECKING:
    from hwmodel.optimize.least import Least
    from hwmodel.optimize.racks import Need
    from hwmodel.optimize.whatif import Elasticity, Relief, WhatIf

SHOWN = 0.0005
"""Elasticity from which a number is printed."""


def answer(found: WhatIf, asked: Sequence[Least]) -> RenderableType:
    """Inverse questions first, where some were asked; elasticities; what binds next."""
    lines: list[RenderableType] = [Text(found.scenario.name, style="bold")]
    if found.scenario.title:
        lines.append(Text(found.scenario.title))
    usd = "" if found.usd_per_mtok is None else f", {found.usd_per_mtok:.3g} USD/Mtok"
    said = "step" if found.scenario.workload.phase == "prefill" else "TPOT"
    lines += [Text(f"{said} {seconds(found.tpot_s)}{usd}, bound by {found.bound}; the plan and the batch stay"), ""]
    lines += [Text(f"does not run as planned (priced all the same): {reason}", style="red") for reason in found.reasons]
    for one in asked:
        lines += [Text(f"{one.parameter} for TPOT {seconds(one.tpot_slo_s)}: {one.note}", style="bold"), ""]
    lines += [_elasticities(found.elasticities, found.largest_batch), ""]
    return Group(*lines, _relieved(found.relieved))


def _elasticities(rows: Sequence[Elasticity], largest: int) -> RenderableType:
    shown = [row for row in rows if max(abs(row.time), abs(row.usd_per_mtok or 0), abs(row.tokens_per_s_per_chip or 0)) > SHOWN]
    cells = [
        (row.parameter, row.shown, _signed(row.time), _signed(row.usd_per_mtok), _signed(row.tokens_per_s_per_chip))
        for row in shown
    ]
    title = "elasticities: 1 % more of a number moves these by so many %"
    said = f"capacities move tokens/s/chip at the largest batch that fits, {largest:,} sequences" if largest else ""
    grid = table("", ("number", "now", "TPOT", "USD/Mtok", "tokens/s/chip"), cells, 1)
    return Group(Text(f"{title}; {said}" if said else title, style="bold"), grid)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}" if abs(value) > SHOWN else "0"


def _relieved(rows: Sequence[Relief]) -> RenderableType:
    cells = [
        (
            row.parameter, "no limit" if row.factor is None else f"{row.factor:g} x better", seconds(row.tpot_s),
            f"{-row.falls:.1%}", row.bound, row.pool, row.next or "-",
        )
        for row in rows
    ]  # fmt: skip
    columns = ("relieved", "", "TPOT", "change", "bound then", "busiest pool", "moves most then")
    return table("what binds next", columns, cells, 2)


def racks_answer(name: str, needs: Sequence[tuple[str, str, Need]], said: Sequence[str]) -> RenderableType:
    """How many racks hold the experts, and how many chips attend: (what, of which unit, need)."""
    rows = [
        (
            what, f"{need.count:,} {unit}", need.limit, f"{need.head_room:.1%}",
            *(f"{need.loads[key]:.2f}" for key in ("capacity", "bandwidth", "compute")),
        )
        for what, unit, need in needs
    ]  # fmt: skip
    columns = ("for", "needed", "limit", "memory left", "by capacity", "by bandwidth", "by compute")
    return Group(Text(name, style="bold"), *(Text(text) for text in said), "", table("", columns, rows, 3))
