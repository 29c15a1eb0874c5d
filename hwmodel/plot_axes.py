"""Axes of pictures whose columns a user chooses: names, units, scales, cells, and labels that keep apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hwmodel.sweep.names import (
    BATCH,
    BOUND,
    CHIP,
    CONTEXT,
    COST,
    HIGH,
    JOULES,
    LOW,
    NEW,
    TIME,
    TOKENS,
    TPOT,
    TTFT,
    USER,
    WATTS,
)  # fmt: skip
from hwmodel.timing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

NAMES = {
    USER: "tokens/s per user", CHIP: "tokens/s per chip", TOKENS: "tokens/s", TPOT: "TPOT", TTFT: "TTFT",
    TIME: "step time", LOW: "step time, low end", HIGH: "step time, high end", BOUND: "what bounds the step",
    COST: "USD per million tokens", JOULES: "energy per token (J)", WATTS: "power (W)",
    BATCH: "batch (sequences)", CONTEXT: "context (tokens)", NEW: "new tokens",
}  # fmt: skip
"""Columns by what they are called in a picture; others by their own name."""
WIDE = 8
"""A column whose values span more than this, relative, is drawn in logarithms."""


def label_of(name: str) -> str:
    """What an axis is called: with its unit, in words where they are known."""
    return NAMES.get(name, name)


def named(name: str) -> str:
    """A column in a sentence: without its unit."""
    return label_of(name).partition(" (")[0]


def unit_of(name: str) -> str:
    """The unit in which a column's ticks are written with prefixes (ms, GB/s); empty for plain numbers."""
    last = name.rpartition(".")[2]
    if last.endswith("_bytes"):
        return "B"
    if last == "bandwidth":
        return "B/s"
    if (last.endswith("_s") and not last.endswith("per_s")) or last in ("latency", "launch", "ramp"):
        return "s"
    return ""


def scaled(axes: Axes, x: str, y: str, across: Array, up: Array, *, sharing: bool = False) -> None:
    """Scales, limits, ticks and labels of both axes; sharing : y from zero, in even steps."""
    for name, values, axis, scale in ((x, across, axes.xaxis, axes.set_xscale), (y, up, axes.yaxis, axes.set_yscale)):
        good = values[np.isfinite(values)]
        span = bool(len(good)) and good.min() > 0 and good.max() > WIDE * good.min()
        if span:
            scale("log")
        ticked(axis, unit_of(name), good if span else None)
        axis.set_label_text(label_of(name))
    if sharing:
        axes.set_ylim(0.0, float(np.nanmax(up)))
    axes.grid(True)


def ticked(axis: Axis, unit: str = "", log: Array | None = None) -> None:
    """Ticks as numbers with the unit's prefixes, no powers of ten; log : what a logarithmic axis spans."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    form: Any = EngFormatter(unit=unit) if unit else FuncFormatter(lambda value, _: plain(value))
    axis.set_major_formatter(form)
    if log is not None:
        decades = math.log10(log.max() / log.min())
        subs = (1.0, 2.0, 3.0, 5.0, 7.0) if decades < 1 else (1.0, 2.0, 5.0) if decades < 4 else (1.0,)
        axis.set_major_locator(LogLocator(10, subs=subs, numticks=16))
        axis.set_minor_formatter(NullFormatter())


def plain(value: float) -> str:
    """A tick's number without an exponent while it is short: 0.02, 5,000, 20k, 3M."""
    if 1e4 <= abs(value) < 1e9:
        size, letter = (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / size:.4g}{letter}"
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def cells(values: Array) -> Array:
    """Edges of cells: around every value when there are few, else 48 of equal width, in logarithms where they span decades."""
    known = np.unique(values[~np.isnan(values)])
    wide = len(known) > 1 and known[0] > 0 and known[-1] > WIDE * known[0]
    points = np.log(known) if wide else known
    if len(known) == 1:
        edges = np.array([points[0] - 0.5, points[0] + 0.5])
    elif len(known) <= 48:
        middle = (points[1:] + points[:-1]) / 2
        edges = np.concatenate([[2 * points[0] - middle[0]], middle, [2 * points[-1] - middle[-1]]])
    else:
        edges = np.linspace(points[0], points[-1], 49)
    edges = np.exp(edges) if wide else edges
    edges[-1] = max(edges[-1], known[-1])
    return np.asarray(edges)


PLACES = ((4, 3, "left"), (4, -10, "left"), (-4, 3, "right"), (-4, -10, "right"), (0, 8, "center"), (0, -15, "center"))
"""Around a point, in points of type: right above, right below, left above and so on."""


def labelled(
    axes: Axes, text: str, at: tuple[float, float], colour: str, taken: list[object], *, size: float = 7.5,
    places: tuple[tuple[int, int, str], ...] = PLACES,
) -> bool:  # fmt: skip
    """Write beside a point where no other label stands, or not at all (False); `taken` : their boxes, this one added.

    places : where to try, one after the other, see `PLACES`
    """
    for dx, dy, side in places:
        note = axes.annotate(text, at, (dx, dy), textcoords="offset points", size=size, color=colour, ha=side, zorder=6)
        note.set(in_layout=False)
        box = note.get_window_extent().padded(1.0)
        frame = axes.get_window_extent()
        outside = box.x0 < frame.x0 or box.x1 > frame.x1 + 2 or box.y0 < frame.y0 or box.y1 > frame.y1
        if not outside and not any(box.overlaps(other) for other in taken):  # type: ignore[arg-type]
            taken.append(box)
            return True
        note.remove()
    return False
