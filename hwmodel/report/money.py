"""Costs as tables that people read."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.offer import Offer
from hwmodel.report.tables import table


def cost_answer(found: Offer) -> RenderableType:
    """The answer of ``hwmodel cost``."""
    parts = [Text(found.scenario, style="bold"), _tokens(found), "", _pools(found), "", _energy(found), "", _session(found)]
    if found.fast:
        parts += ["", _fast(found)]
    return Group(*parts, "", *(Text(f"note: {text}", style="dim") for text in found.assumptions))


def usd(value: float | None) -> str:
    """Dollars with three digits."""
    return "-" if value is None else f"{value:,.3g}"


def share(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{value:.1%}"


def _tokens(found: Offer) -> RenderableType:
    rows = [
        (row.kind, usd(row.usd_per_million), f"{usd(row.usd_per_million_low)} to {usd(row.usd_per_million_high)}",
         usd(row.joules_per_token), usd(row.sold_usd_per_million), share(row.margin),
         usd(row.usd_per_million / 0.3), usd(row.usd_per_million / 0.2))
        for row in found.tokens
    ]  # fmt: skip
    columns = ("tokens", "USD/Mtok", "range", "J/token", "sold at", "margin", "70 % margin at", "80 % at")
    return table("cost", columns, rows)


def _pools(found: Offer) -> RenderableType:
    rows = [
        (row.pool, usd(row.usd_per_hour), usd(row.usd_per_million_tokens), usd(round(row.idle_usd_per_million_tokens, 9)),
         "-" if row.watts is None else f"{row.watts / 1e3:,.4g} kW", usd(row.joules_per_token))
        for row in found.step.pools
    ]  # fmt: skip
    columns = ("pool", "USD/h", "USD/Mtok output", "of it for waiting", "power", "J/token")
    return table("pools of the decode step", columns, rows)


def _energy(found: Offer) -> RenderableType:
    rows = [
        (f"{row['pool']}: {row['part']}", row["status"], row["source"], usd(row["joules_per_token"]))
        for row in sorted(found.step.energy, key=lambda row: -row["joules_per_token"])[:6]
    ]
    step = found.step
    title = "energy of an output token"
    if step.joules_per_token is not None:
        title += f": {usd(step.joules_per_token)} J, at least {usd(step.joules_per_token_low)}, at most "
        title += f"{usd(step.joules_per_token_high)} (every chip at TDP); at the wall {usd(step.joules_per_token_at_wall)}"
    return Group(Text(title, style="bold"), table("", ("use", "status", "source", "J/token"), rows, 3))


def _session(found: Offer) -> RenderableType:
    s = found.session
    rows = [
        (name.replace("_", " "), f"{s[f'{name}_tokens']:,.0f}", usd(s[f"{name}_usd"]))
        for name in ("input", "cached_input", "output")
    ]  # fmt: skip
    rows.append(("session", "", usd(s["usd"])))
    rows.append(("without reuse", "", usd(s["usd_without_reuse"])))
    return table(f"an agent's session of {s['calls']:,.0f} calls", ("tokens", "count", "USD"), rows)


def _fast(found: Offer) -> RenderableType:
    rows = [
        (f"{row.times:g} x", "past the end" if row.line_price is None else f"{row.line_price:.3g} x",
         "-" if row.batch is None else f"{row.batch:,}", "-" if row.times_found is None else f"{row.times_found:.3g} x",
         "-" if row.price_found is None else f"{row.price_found:.3g} x")
        for row in found.fast
    ]  # fmt: skip
    title = f"fast modes: X(s) = (1 - a s) / b; weights and fixed costs are a s = {found.streaming_share:.3f} of the step"
    columns = ("speed", "cost by the line", "batch", "speed in the model", "cost in the model")
    return Group(Text(title, style="bold"), table("", columns, rows))
