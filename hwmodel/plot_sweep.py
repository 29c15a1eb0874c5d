"""Pictures of sweeps, from the columns of their files: fronts with crossovers, what bounds where, any two columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hwmodel.compare.crossing import Crossing, crossings
from hwmodel.plot_axes import cells, label_of, labelled, named, scaled
from hwmodel.plot_page import BLUE, CYCLE, GREEN, GREY, INK, ORANGE, PINK, RED, SKY, SOFT, YELLOW, page
from hwmodel.spec.errors import InputError, shortened
from hwmodel.sweep.names import BATCH, BOUND, CHIP, CONTEXT, COST, POINT, TIME, USER, chosen, layers
from hwmodel.sweep.pareto import front
from hwmodel.sweep.read import Points
from hwmodel.timing import Array, Ints

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (8.6, 5.4)
"""Width and height of a picture, inches."""
MOST_LABELS, MOST_ROWS, MOST_PRICES = 6, 4, 3
"""Points of a front that are labelled; kinds of layers that are drawn; prices of a chip that iso-cost lines are drawn for."""
FROM_THE_RIGHT, ON_A_LINE = (0.0, 0.12, 0.25, 0.37, 0.5, 0.62, 0.75), ((-3, 2, "right"),)
"""Shares of the width at which the name of a horizontal line is tried, and where it stands: on it, to the left."""
FEW_CELLS = 32
"""Cells across up to which they are set apart by lines."""
DASHES = ("-", "--", ":", "-.")
Found = list[Crossing]


@dataclass(frozen=True)
class Part:
    """Points that are drawn alike."""

    label: str
    points: Points
    where: Ints
    colour: str
    dash: str = "-"

    def number(self, name: str) -> Array:
        """Their values in a column."""
        return self.points.number(name)[self.where]


def parts_of(files: Sequence[Points], by: str) -> list[Part]:
    """Points of every file and every value of columns (``by`` with commas), in the order of the files and of the words."""
    found: list[tuple[str, Points, Ints]] = []
    for points in files:
        labels, code = [""], np.zeros(len(points.number(POINT)), dtype=np.int64)
        for name in filter(None, by.split(",")):
            own, words = points.codes(name.strip())
            labels = [", ".join(filter(None, (label, word))) for label in labels for word in words]
            code = code * len(words) + own
        front_ = f"{points.path.stem}: " if len(files) > 1 else ""
        for label, k in sorted((labels[k], k) for k in np.unique(code).tolist()):
            found.append(((front_ + label).removesuffix(": ") or points.name, points, np.nonzero(code == k)[0]))
    return [
        Part(*each, CYCLE[n % len(CYCLE)], DASHES[n // len(CYCLE) % len(DASHES)]) for n, each in enumerate(found)
    ]  # fmt: skip


def varied(files: Sequence[Points]) -> str:
    """The columns of scenarios, models, plans, chips and formats that differ somewhere in a file, with commas."""
    return ",".join(
        name for name in dict.fromkeys(name for points in files for name in chosen(points.names))
        if all(name in points.names for points in files) and any(len(points.codes(name)[1]) > 1 for points in files)
    )  # fmt: skip


def _title(files: Sequence[Points]) -> str:
    """The files, and which of their points are drawn."""
    only = [shortened(text, 60) for text in files[0].comparisons]
    return ", ".join([" and ".join(points.name for points in files), *only])


def _known(points: Points, x: str, y: str) -> None:
    """Whether both columns of a picture say something of some point, best of one and the same."""
    if np.isnan(points.known(x) + points.known(y)).all():
        raise InputError(f"{points.name}: no point has both '{x}' and '{y}'")


def draw_pareto(files: Sequence[Points], path: str | Path, x: str = "", y: str = "", by: str = "") -> Found:
    """The front of every scenario, plan and chip (or of the columns `by`), y over x; the points where they cross come back."""
    x, y, by = x or USER, y or CHIP, by or varied(files)
    for points in files:
        points.load(x, y, COST, BATCH, *by.split(","))
        _known(points, x, y)
    parts = [part for part in parts_of(files, by) if not np.isnan(part.number(x) + part.number(y)).all()]
    what = f"Pareto front: {label_of(y)} against {label_of(x)}"
    what += "; B: sequences in the batch" if all(BATCH in points.names for points in files) else ""
    lines, bests = {}, []
    for part in parts:
        best = part.where[front(np.array([part.number(x), part.number(y)]).T)]
        bests.append(best[np.argsort(part.points.number(x)[best])])
        lines[part.label] = part.points.number(x)[bests[-1]], part.points.number(y)[bests[-1]]
    found = crossings(lines)
    with page(path, _title(files), what, _foot(found, lines), SIZE) as (_, [axes]):
        from matplotlib.transforms import Bbox  # noqa: PLC0415

        walked = [_line(axes, part, *lines[part.label]) for part in parts]
        scaled(axes, x, y, *(np.concatenate([line[k] for line in lines.values()]) for k in (0, 1)))
        key = axes.legend(loc="lower left")
        axes.figure.draw_without_rendering()  # type: ignore[union-attr]
        spots = axes.transData.transform(np.concatenate(walked))
        taken: list[object] = [key.get_window_extent(), *(Bbox.from_bounds(a - 3, b - 3, 6, 6) for a, b in spots.tolist())]
        _iso_costs(axes, parts, x, y, taken)
        _marked(axes, found, lines, taken)
        for part, best in zip(parts, bests, strict=True):
            _labels(axes, part, best, (x, y), taken)
    return found


def _line(axes: Axes, part: Part, across: Array, up: Array) -> Array:
    """Draw a front, straight between its points as it is read, which bends on axes in logarithms; places it goes through."""
    fine = np.unique(np.concatenate([across, *(np.linspace(a, b, 9) for a, b in pairwise(across))]))
    axes.plot(fine, np.interp(fine, across, up), color=part.colour, linewidth=1.4, linestyle=part.dash)
    axes.plot(across, up, color=part.colour, marker="o", markersize=3, linestyle="")
    axes.plot([], [], color=part.colour, marker="o", markersize=3, linewidth=1.4, linestyle=part.dash, label=part.label)
    return np.array([fine, np.interp(fine, across, up)]).T


def _leads(crossing: Crossing, lines: Mapping[str, tuple[Array, Array]]) -> bool:
    """Whether the best of all changes there: no other line has more at its x or beyond."""
    over = [np.interp(crossing.at, *line) for line in lines.values() if crossing.at <= line[0][-1]]
    return bool(crossing.value >= max(over, default=0.0) * (1 - 1e-9))


def _foot(found: Sequence[Crossing], lines: Mapping[str, tuple[Array, Array]]) -> str:
    first = sorted(found, key=lambda c: not _leads(c, lines))
    said = [f"{c.between[1]} overtakes {c.between[0]} at {c.at:.3g}" for c in first[:2]]
    return "✕ " + "; ".join(said) + (f"; and {len(found) - 2} more" if len(found) > 2 else "") if found else ""


def _marked(axes: Axes, found: Sequence[Crossing], lines: Mapping[str, tuple[Array, Array]], taken: list[object]) -> None:
    """Crossings: a cross with its place where the best of all changes, a small one elsewhere."""
    for crossing in found:
        best = _leads(crossing, lines)
        axes.plot(
            [crossing.at], [crossing.value], marker="X", color=INK if best else SOFT, markersize=9 if best else 4, zorder=5
        )
        if best:
            labelled(axes, f"{crossing.at:.3g}", (crossing.at, crossing.value), INK, taken, size=9)


def _labels(axes: Axes, part: Part, best: Ints, of: tuple[str, str], taken: list[object]) -> None:
    """The batch of some points of a front, evenly spread over the picture."""
    batch = BATCH in part.points.names
    said, across, up = (part.points.number(name) for name in (BATCH if batch else POINT, *of))
    spots = axes.transData.transform(np.array([across[best], up[best]]).T)
    walked = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(spots, axis=0).T))])
    wanted = np.linspace(0, walked[-1], min(MOST_LABELS, len(best)))
    for k in np.unique([int(np.argmin(abs(walked - far))) for far in wanted]).tolist():
        text = f"B {said[best[k]]:,.0f}" if batch else f"#{said[best[k]]:.0f}"
        labelled(axes, text, (across[best[k]], up[best[k]]), part.colour, taken)


def _iso_costs(axes: Axes, parts: Sequence[Part], x: str, y: str, taken: list[object]) -> None:
    """Lines of equal dollars per million tokens: horizontal for chips of one price; for each price one set."""
    if y != CHIP or any(COST not in part.points.names for part in parts):
        return
    prices: dict[float, Part] = {}
    for part in parts:
        worth = part.number(COST) * part.number(CHIP)
        worth = worth[~np.isnan(worth)]
        if not len(worth) or worth.max() > worth.min() * (1 + 1e-9):
            return
        prices.setdefault(float(f"{worth[0]:.9g}"), part)
    (low, high), sides = axes.get_ylim(), axes.get_xlim()
    if len(prices) > MOST_PRICES:
        return
    for price, part in prices.items():
        colour, owner = (part.colour, f" at {price * 3600 / 1e6:.3g} USD/h") if len(prices) > 1 else (SOFT, "")
        steps = [d * 10.0**p for p in range(-4, 6) for d in ((1, 2, 5) if len(prices) == 1 else (1,))]
        for usd in steps:
            if low < price / usd < high:
                axes.axhline(price / usd, color=colour, linewidth=0.6, linestyle=(0, (2, 3)), zorder=0.8)
                text, level = f"{usd:g} USD/Mtok{owner}", price / usd
                for share in FROM_THE_RIGHT:
                    at, _ = axes.transData.inverted().transform(axes.transAxes.transform((1 - share, 0)))
                    if labelled(axes, text, (float(at), level), colour, taken, places=ON_A_LINE):
                        break
    axes.set(xlim=sides, ylim=(low, high))


def draw_xy(files: Sequence[Points], path: str | Path, x: str = "", y: str = "", by: str = "") -> Found:
    """Any two columns against each other, coloured by a column of words."""
    x, y, by = x or BATCH, y or TIME, by or BOUND
    for points in files:
        points.load(x, y, *by.split(","))
        _known(points, x, y)
    what = f"{named(y)} against {named(x)}, coloured by {by}"
    with page(path, _title(files), what, "", SIZE) as (_, [axes]):
        parts = parts_of(files, by)
        for part in parts:
            axes.plot(part.number(x), part.number(y), linestyle="", marker=".", markersize=4, color=_colour(part), alpha=0.7,
                      label=part.label, rasterized=len(part.where) > 5000)  # fmt: skip
        scaled(axes, x, y, *(np.concatenate([part.number(name) for part in parts]) for name in (x, y)))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), markerscale=2)
    return []


BOUNDS = {"compute": BLUE, "memory": ORANGE, "link": GREEN, "overhead": GREY, "dependency": SKY, "idle": "#E4E4E4"}
OTHERS = (ORANGE, RED, YELLOW, PINK)


def colours_of(words: Sequence[str]) -> dict[str, str]:
    """Colours of words: those of what bounds a step the same in every picture, others in turn."""
    tiers = sorted(word for word in words if word.startswith("memory:"))
    found = {word: BOUNDS.get(word, CYCLE[n % len(CYCLE)]) for n, word in enumerate(words)}
    return found | {tier: OTHERS[n % len(OTHERS)] for n, tier in enumerate(tiers)}


def _colour(part: Part) -> str:
    word = part.label.rpartition(": ")[2] if not part.label.startswith("memory:") else part.label
    return colours_of([word])[word] if word in BOUNDS or word.startswith("memory:") else part.colour


def draw_heatmap(files: Sequence[Points], path: str | Path, x: str = "", y: str = "", by: str = "") -> Found:
    """What bounds most points of every cell of two columns, batch and context unless said; a panel a file."""
    x, y, by = x or BATCH, y or CONTEXT, by or BOUND
    for points in files:
        points.load(x, y, by)
        _known(points, x, y)
    words = sorted({word for points in files for word in points.codes(by)[1]})
    colours = colours_of(words)
    what = f"{label_of(by)} over {named(x)} and {named(y)}: the most frequent of every cell; white: no point that can run"
    size = (SIZE[0] + 5.5 * (len(files) - 1), SIZE[1])
    with page(path, _title(files), what, "", size, len(files)) as (_, panels):
        from matplotlib.colors import ListedColormap  # noqa: PLC0415

        seen: set[str] = set()
        for axes, points in zip(panels, files, strict=True):
            own, known = points.codes(by)
            code = np.array([words.index(word) for word in known])[own]
            across, up = points.number(x), points.number(y)
            edges = cells(across), cells(up)
            counts = np.stack([np.histogram2d(across[code == k], up[code == k], edges)[0] for k in range(len(words))])
            most = np.where(counts.sum(axis=0) > 0, counts.argmax(axis=0), -1)
            shown, palette = np.ma.masked_less(most.T, 0), ListedColormap([colours[word] for word in words])
            axes.pcolormesh(*edges, shown, cmap=palette, vmin=-0.5, vmax=len(words) - 0.5, edgecolor="white",
                            linewidth=0.3 if max(counts.shape[1:]) <= FEW_CELLS else 0.0)  # fmt: skip
            seen |= {words[k] for k in np.unique(most[most >= 0]).tolist()}
            scaled(axes, x, y, *edges)
            axes.grid(False)
            axes.set_title(points.path.stem if len(files) > 1 else "")
        for word in sorted(seen):
            panels[-1].plot([], [], marker="s", markersize=8, linestyle="", color=colours[word], label=word or "none")
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return []


def draw_layers(files: Sequence[Points], path: str | Path, x: str = "", y: str = "", by: str = "") -> Found:
    """What bounds every kind of layer along a column, the batch unless said: mean time of one layer, split by its bound.

    Where a file has several points of a value, each adds its time to what bounds it. Exact shares inside a layer: `plot_along`.
    """
    points, x = files[0], x or BATCH
    rows = layers(points.names)
    points.load(x, *(f"{row}.{what}" for row in rows for what in (TIME, BOUND)))
    rows = sorted(rows, key=lambda row: -np.nansum(points.number(f"{row}.{TIME}")))[:MOST_ROWS]
    if not rows:
        raise InputError(f"{points.name} has no columns 'LAYER.time_s' and 'LAYER.bound'")
    edges = cells(points.known(x))
    words = sorted({word for row in rows for word in points.codes(f"{row}.{BOUND}")[1]})
    colours = colours_of(words)
    with page(path, _title(files[:1]), f"Mean time of one layer over the points of each {named(x)}, by what bounds it", "",
              (max(SIZE[0], 1.6 + 4.4 * len(rows)), SIZE[1]), len(rows), sharey=True) as (_, panels):  # fmt: skip
        top = 0.0
        for axes, row in zip(panels, rows, strict=True):
            times, (code, known) = points.number(f"{row}.{TIME}"), points.codes(f"{row}.{BOUND}")
            good = ~np.isnan(times)
            count = np.maximum(1, np.histogram(points.number(x)[good], edges)[0])
            below = np.zeros(len(edges) - 1)
            for word in words:
                mine = good & (code == (known.index(word) if word in known else -1))
                above = below + np.histogram(points.number(x)[mine], edges, weights=times[mine])[0] / count
                axes.stairs(above, edges, baseline=below, fill=True, color=colours[word])
                below = above
            top = max(top, 1.05 * float(below.max()))
            scaled(axes, x, TIME, edges, np.array([0.0, top]), sharing=True)
            axes.set(title=row, ylabel="time of one layer" if row == rows[0] else "")
        for word in words:
            panels[-1].plot([], [], marker="s", markersize=8, linestyle="", color=colours[word], label=word)
        panels[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return []


KINDS: dict[str, Callable[..., Found]] = {
    "pareto": draw_pareto, "xy": draw_xy, "heatmap": draw_heatmap, "layers": draw_layers,
}  # fmt: skip
"""Pictures of a sweep by the name of their kind."""
