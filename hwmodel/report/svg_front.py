"""Lines of points on two logarithmic axes, as SVG text: fronts of plans, with marks where they change places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hwmodel.report.svg import chart, line, pct, tag, text

HEIGHT, TOP, FOOT = 340, 12, 22
LEFT, RIGHT = 9.0, 98.5
"""Per cent of the width between which points lie."""
APART = 0.012
"""Of the picture, between two dots of a line that can be pointed at; the line itself goes through every point."""
ROOM = 12.0, 18.0
"""That the number beside a crossing takes: per cent of the width, pixels; a nearer one is said under the pointer only."""


@dataclass(frozen=True)
class Dot:
    """A point, with what is said of it."""

    x: float
    y: float
    tip: str
    marked: bool = False
    label: str = ""


@dataclass(frozen=True)
class Line:
    """Points of one plan, rising in x, and the class of its colour."""

    kind: str
    strong: bool
    dots: tuple[Dot, ...]


class _Axes:
    """Positions in the picture, both axes logarithmic."""

    def __init__(self, dots: Sequence[Dot]) -> None:
        xs, ys = [dot.x for dot in dots], [dot.y for dot in dots]
        self.ends = (min(xs), max(xs), min(ys) / 1.15, max(ys) * 1.15)
        self._x, self._y = (math.log(self.ends[0]), math.log(self.ends[1])), (math.log(self.ends[2]), math.log(self.ends[3]))

    def across(self, value: float) -> float:
        """In per cent of the width."""
        return LEFT + (RIGHT - LEFT) * (math.log(value) - self._x[0]) / (self._x[1] - self._x[0] or 1.0)

    def down(self, value: float) -> float:
        """In pixels."""
        return TOP + (HEIGHT - TOP - FOOT) * (self._y[1] - math.log(value)) / (self._y[1] - self._y[0] or 1.0)


def front(lines: Sequence[Line], crossings: Sequence[Dot], label: str) -> str:
    """The picture; its dots and crossings are walked with the arrow keys, line by line."""
    axes = _Axes([dot for one in lines for dot in one.dots])
    drawn = _scales(axes)
    for one in sorted(lines, key=lambda one: one.strong):  # what was asked about lies on top
        kind = f"{one.kind} curve strong" if one.strong else f"{one.kind} curve"
        places = [(axes.across(dot.x), axes.down(dot.y)) for dot in one.dots]
        for a, b in pairwise(places):  # as stairs: between two points the quicker one serves
            drawn += [line(*a, a[0], b[1], kind), line(a[0], b[1], *b, kind)]
    for one in lines:
        last = (-math.inf, -math.inf)
        for at, dot in enumerate(one.dots):
            place = axes.across(dot.x), axes.down(dot.y)
            far = max(abs(place[0] - last[0]) / 100, abs(place[1] - last[1]) / HEIGHT) > APART
            if far or dot.marked or at == len(one.dots) - 1:
                last = place
                kind, radius = (
                    (f"{one.kind} here mark", 7.0) if dot.marked else (f"{one.kind} dot mark", 4.0 if one.strong else 3.2)
                )
                drawn.append(tag("circle", cx=pct(place[0]), cy=place[1], r=radius, class_=kind, data_tip=dot.tip))
    said = list[tuple[float, float]]()
    for dot in crossings:
        x, y = axes.across(dot.x), axes.down(dot.y)
        shape = tag("path", d="M0 -8L8 0L0 8L-8 0Z", class_="crossing")
        drawn.append(tag("svg", shape, x=pct(x), y=y, width=1, height=1, class_="mark at", data_tip=dot.tip))
        if all(abs(x - other) > ROOM[0] or abs(y - down) > ROOM[1] for other, down in said):
            drawn.append(text(x - 1.2 if x > 50 else x + 1.2, y - 11, dot.label, "t halo", "end" if x > 50 else "start"))
            said.append((x, y))
    return chart("".join(drawn), HEIGHT, label, "front")


def _scales(axes: _Axes) -> list[str]:
    """Lines and numbers of both axes."""
    low_x, high_x, low_y, high_y = axes.ends
    drawn, floor = [], float(HEIGHT - FOOT)
    for value in _round(low_x, high_x):
        x = axes.across(value)
        drawn.append(line(x, TOP, x, floor, "grid"))
        drawn.append(text(x, floor + 16, f"{value:,g}", "t faint", "start" if x < 6 else "end" if x > 94 else "middle"))
    for value in _round(low_y, high_y):
        drawn.append(line(0, axes.down(value), 100, axes.down(value), "grid"))
        drawn.append(text(0, axes.down(value) - 3, f"{value:,g}", "t faint"))
    return drawn


def _round(low: float, high: float) -> list[float]:
    """Round numbers between two ends: 1, 2, 5 of every power of ten, powers alone over more than three of them."""
    digits = (1, 2, 5) if math.log10(high / low) < 3 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [digit * 10.0**power for power in powers for digit in digits]
    return [value for value in found if low <= value <= high]
