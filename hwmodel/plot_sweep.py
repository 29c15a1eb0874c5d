"""Pictures of a sweep, from the columns of its file: fronts with crossovers, heat maps of what bounds, any two columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hwmodel.compare.crossing import Crossing, crossings
from hwmodel.plot_page import CYCLE, INK, SOFT, page
from hwmodel.sweep.pareto import front
from hwmodel.sweep.read import Points
from hwmodel.timing import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

USER, CHIP = "tokens_per_s_per_user", "tokens_per_s_per_chip"
SHOWN = {
    USER: "Tokens/s per user",
    CHIP: "Tokens/s per chip",
    "tpot_s": "TPOT (s)",
    "usd_per_million_tokens": "USD per million tokens",
}
SIZE = (8.0, 5.2)
"""Width and height of a picture, inches."""
MOST_LABELS = 6
"""Points of a front that are labelled."""


def parts_of(points: Points, by: str) -> dict[str, Ints]:
    """Indices of the points of every value of a column of words; all of them where there is none."""
    if by not in points.names:
        return {points.name: np.arange(len(points.number("point")))}
    words = points.words(by)
    return {word: np.array([k for k, own in enumerate(words) if own == word]) for word in sorted(set(words))}


def draw_pareto(points: Points, path: str | Path, x: str = "", y: str = "", by: str = "") -> list[Crossing]:
    """The fronts of every plan (or of the column `by`), y over x, with the points where they cross; those come back."""
    x, y = x or USER, y or CHIP
    by = by or next((name for name in ("scenario", "plan", "cluster.pools.gpu.chip") if name in points.names), "")
    across, up = points.number(x), points.number(y)
    lines: dict[str, tuple[Array, Array]] = {}
    with page(path, points.name, f"Pareto front of {y} against {x}", "", SIZE) as (_, [axes]):
        for (label, where), colour in zip(parts_of(points, by).items(), CYCLE * 20, strict=False):
            best = where[front(np.array([across[where], up[where]]).T)]
            best = best[np.argsort(across[best])]
            lines[label] = across[best], up[best]
            axes.plot(across[best], up[best], color=colour, marker="o", markersize=3, linewidth=1.2, label=label)
            _label(axes, points, best, across, up, colour)
        found = crossings(lines)
        for crossing in found:
            axes.plot([crossing.at], [crossing.value], marker="X", color=INK, markersize=9, zorder=5)
            axes.annotate(f"{crossing.at:.3g}", (crossing.at, crossing.value), (6, 6), textcoords="offset points", color=INK)
        _scales(axes, x, y, across, up)
        _iso_costs(axes, points, x, y)
        axes.legend()
    return found


def _label(axes: Axes, points: Points, best: Ints, across: Array, up: Array, colour: str) -> None:
    sign, column = ("B ", "workload.batch") if "workload.batch" in points.names else ("#", "point")
    said = points.number(column)
    for k in best[:: max(1, -(-len(best) // MOST_LABELS))].tolist():
        text, place = f"{sign}{said[k]:.0f}", (across[k], up[k])
        axes.annotate(text, place, (3, -9), textcoords="offset points", size=7, color=colour)


def _iso_costs(axes: Axes, points: Points, x: str, y: str) -> None:
    """Lines of equal dollars per million tokens: horizontal where all points pay the same for a chip."""
    if y != CHIP or "usd_per_hour" not in points.names or "chips" not in points.names:
        return
    each = points.number("usd_per_hour") / points.number("chips")
    if not np.nanmax(each) <= np.nanmin(each) * (1 + 1e-9):
        return
    low, high = axes.get_ylim()
    for power in range(-4, 5):
        for digit in (1, 2, 5):
            usd = digit * 10.0**power
            level = float(each[0]) / usd / 3600 * 1e6
            if low < level < high:
                axes.axhline(level, color=SOFT, linewidth=0.5, linestyle=(0, (2, 3)))
                place = (axes.get_xlim()[1], level)
                text = f"{usd:g} USD/M"
                axes.annotate(text, place, (-2, 2), textcoords="offset points", size=7, color=SOFT, ha="right")


def draw_xy(points: Points, path: str | Path, x: str = "", y: str = "", by: str = "") -> list[Crossing]:
    """Any two columns against each other, coloured by a column of words."""
    x, y, by = x or "workload.batch", y or "time_s", by or "bound"
    across, up = points.number(x), points.number(y)
    with page(path, points.name, f"{y} against {x}, coloured by {by}", "", SIZE) as (_, [axes]):
        for (label, where), colour in zip(parts_of(points, by).items(), CYCLE * 20, strict=False):
            axes.plot(across[where], up[where], linestyle="", marker=".", markersize=4, color=colour, label=label, alpha=0.7)
        _scales(axes, x, y, across, up)
        axes.legend()
    return []


def draw_heatmap(points: Points, path: str | Path, x: str = "", y: str = "", by: str = "") -> list[Crossing]:
    """What bounds most points of every cell of two columns, batch and context unless said."""
    x, y, by = x or "workload.batch", y or "workload.context", by or "bound"
    across, up, words = points.number(x), points.number(y), points.words(by)
    kinds = sorted(set(words))
    code = np.array([kinds.index(word) for word in words])
    with page(path, points.name, f"{by} over {x} and {y}: the most frequent of every cell", "", SIZE) as (_, [axes]):
        from matplotlib.colors import ListedColormap  # noqa: PLC0415

        columns, rows = _cells(across), _cells(up)
        counts = np.stack([np.histogram2d(across[code == k], up[code == k], (columns, rows))[0] for k in range(len(kinds))])
        most = np.where(counts.sum(axis=0) > 0, counts.argmax(axis=0), -1)
        shown = np.ma.masked_less(most.T, 0)
        colours = [*(CYCLE * 20)[: len(kinds)]]
        axes.pcolormesh(columns, rows, shown, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(kinds) - 0.5)
        for kind, colour in zip(kinds, colours, strict=True):
            axes.plot([], [], marker="s", linestyle="", color=colour, label=kind)
        _scales(axes, x, y, across, up)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return []


def _cells(values: Array) -> Array:
    """Edges of cells: around every value when there are few, else 48 of equal width, in logarithms where they span decades."""
    known = np.unique(values[~np.isnan(values)])
    wide = len(known) > 1 and known[0] > 0 and known[-1] > 20 * known[0]
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


def _scales(axes: Axes, x: str, y: str, across: Array, up: Array) -> None:
    for name, values, scale, label in (
        (x, across, axes.set_xscale, axes.set_xlabel),
        (y, up, axes.set_yscale, axes.set_ylabel),
    ):
        good = values[~np.isnan(values)]
        if len(good) and good.min() > 0 and good.max() > 8 * good.min():
            scale("log")
        label(SHOWN.get(name, name))
    axes.grid(True)


KINDS: dict[str, Callable[..., list[Crossing]]] = {"pareto": draw_pareto, "xy": draw_xy, "heatmap": draw_heatmap}
"""Pictures of a sweep by the name of their kind."""
