"""How wrong the model is, as tables that people read."""

from __future__ import annotations

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from hwmodel.report.tables import table
from hwmodel.validate import Group, Validation, summary


def accuracy(found: Validation) -> RenderableType:
    """The answer of ``hwmodel validate``."""
    parts: list[RenderableType] = []
    if found.groups:
        parts += [_groups(found.groups), "", _summary(found.groups)]
    parts += [Text(f"left out: {count:,} rows: {reason}", style="dim") for reason, count in found.skipped.items()]
    if not found.groups:
        parts.insert(0, "no rows to compare")
    return Lines(*parts)


def _groups(groups: tuple[Group, ...]) -> RenderableType:
    rows = [
        (g.op, g.device, g.stack, g.dtype, g.rows, _pct(g.q25), _pct(g.median), _pct(g.q75), _pct(g.p90), _signed(g.bias),
         _pct(g.roofline_median), g.calibrated, _pct(g.inside_80))
        for g in groups
    ]  # fmt: skip
    columns = ("op", "device", "stack", "dtype", "rows", "q25", "median", "q75", "p90", "bias", "roofline", "fit", "inside 80")
    return table("error of the predicted time, |predicted / measured - 1|", columns, rows, 4)


def _summary(groups: tuple[Group, ...]) -> RenderableType:
    rows = [
        (name, count, _pct(median), _pct(p90), _pct(worst), where)
        for name, (count, median, p90, worst, where) in summary(groups).items()
    ]
    return table("medians over the groups", ("op", "groups", "median", "p90", "worst median", "worst group"), rows)


def _pct(value: float) -> str:
    return f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %"
