"""Pieces of a page: numbers as people read them, tables, legends. Every text is escaped here."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from hwmodel.spec.units import show

Data = Mapping[str, Any]


class Markup(str):
    """Text of the page itself, escaped already."""

    __slots__ = ()


def why(name: str, said: str, explained: Container[str]) -> str:
    """A text that leads to the explanation of a number, where there is one."""
    return Markup(f'<a href="#why-{escape(name)}">{escape(said)}</a>') if name in explained else said


def text_of(cell: str) -> str:
    """A cell as it stands in the page."""
    return cell if isinstance(cell, Markup) else escape(str(cell))


def seconds(value: float) -> str:
    """A time with the unit that reads best."""
    return show(float(value), "s", 4)


def size(value: float) -> str:
    """Bytes with the decimal unit that reads best."""
    return show(float(value), "bytes", 4) if value else "0"


def work(value: float) -> str:
    """FLOP with the prefix that reads best."""
    return show(float(value), "flops_per_s", 3).replace("/s", "") if value else "0"


def number(value: float, digits: int = 4) -> str:
    """A plain number with thousands."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def percent(value: float) -> str:
    """A share."""
    return "<0.1 %" if 0 < value < 0.0005 else f"{100 * value:.3g} %"


def tile(name: str, value: str, below: str = "", why: str = "") -> str:
    """A headline number that leads to its explanation."""
    parted = value.replace(":", ":\u200b")  # a line may end behind a colon
    inside = f"<span>{escape(name)}</span><b>{escape(parted)}</b><span>{escape(below)}</span>"
    return f'<a class="tile" href="#why-{escape(why)}">{inside}</a>' if why else f'<div class="tile">{inside}</div>'


def legend(parts: Mapping[str, str]) -> str:
    """Names and the classes of their colours."""
    items = "".join(f'<li><i class="{kind}"></i>{escape(name)}</li>' for name, kind in parts.items())
    return f'<ul class="legend">{items}</ul>'


def listed(lines: Iterable[str]) -> str:
    """A plain list."""
    return '<ul class="plain">' + "".join(f"<li>{escape(str(each))}</li>" for each in lines) + "</ul>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, wide: Sequence[int] = ()) -> str:
    """A table of text, escaped where it is no `Markup`; the first `left` columns and the `wide` ones are text, not numbers."""

    def kind(at: int) -> str:
        return ' class="l w"' if at in wide else ' class="l"' if at < left else ""

    head = "".join(f'<th scope="col"{kind(at)}>{escape(name)}</th>' for at, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(at)}>{text_of(cell)}</td>" for at, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


MOVES = 0.005
"""Per cent below which what an input moves is printed as nothing, and so is left out."""


def movers(each: Data) -> list[tuple[str, float]]:
    """Inputs that move a total, and per cent by 1 % more of each."""
    pairs = [(str(row["input"]), float(row["elasticity"])) for row in each["most_sensitive"]]
    return [(name, value) for name, value in pairs if abs(value) >= MOVES]


def explanation(each: Data) -> str:
    """Formula, terms and what moves it."""
    rows = [
        (term["symbol"], f"{float(term['value']):.10g}", term["unit"], term["status"], term["source"]) for term in each["terms"]
    ]
    note = f'<p class="faint">{escape(str(each["note"]))}</p>' if each.get("note") else ""
    moved = ", ".join(f"{name} {value:+.2f} %" for name, value in movers(each))
    moves = f"<p>Per 1 % more of an input, it moves most by: {escape(moved)}</p>" if moved else ""
    table = grid(("term", "value", "unit", "status", "source"), rows, 1, (4,))
    return f'<code class="formula">{escape(str(each["formula"]))}</code>{note}{table}{moves}'


MEMORY = ("c-mem0", "c-mem1", "c-mem2", "c-mem3")


def colours(bounds: Iterable[str]) -> dict[str, str]:
    """Classes of the bounds that occur; memory tiers in the order they come."""
    found = {"compute": "c-compute", "link": "c-link", "overhead": "c-overhead", "idle": "c-idle", "memory": "c-mem0"}
    tiers = [name for name in dict.fromkeys(bounds) if name.startswith("memory:")]
    return {**found, **{name: MEMORY[at % len(MEMORY)] for at, name in enumerate(tiers)}}


def zoomed(key: str, picture: str, order: bool = False) -> str:
    """A picture with buttons that zoom it and, where asked, sort its columns."""
    buttons = "".join(
        f'<button type="button" data-of="{key}" data-zoom="{factor}" aria-label="{said}">{sign}</button>'
        for factor, said, sign in (("2", "zoom in", "+"), ("0.5", "zoom out", "−"), ("0", "whole", "whole"))
    )
    if order:
        buttons += "".join(
            f'<button type="button" data-of="{key}" data-order="{by}" aria-pressed="{pressed}">{said}</button>'
            for by, said, pressed in (("place", "in order", "true"), ("value", "slowest first", "false"))
        )
    return f'<div class="tools">{buttons}</div><div class="zoom" id="{key}">{picture}</div>'
