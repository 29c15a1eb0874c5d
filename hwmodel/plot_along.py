"""The layers of a scenario along a number of it: which share of a layer's time each bound and kind of op takes as it moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hwmodel.axis import Axis
from hwmodel.figures import LayerBar, layer_bars, short, tiers_of, title_of, unit_of
from hwmodel.plot import colour_of
from hwmodel.plot_axes import label_of, named, plain
from hwmodel.plot_page import CYCLE, GREY, INK, RED, page
from hwmodel.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_KINDS, MOST_KINDS_OF_OPS = 3, 7
"""Kinds of layers by their time, and of ops by their share, that are drawn; other ops are one."""


def layers(results: Sequence[Result], over: Axis, path: str | Path) -> None:
    """Draw shares of the time of one layer of every kind by bound and by op, a bar a value, with the time above it.

    results : of the scenario at every value of `over`; where its plan cannot run the value is marked
    """
    bars = [{bar.label: bar for bar in layer_bars(result)} for result in results]
    total: dict[str, float] = {}
    for row in bars:
        for label, bar in row.items():
            total[label] = total.get(label, 0.0) + bar.time_s * bar.count
    kinds = sorted(total, key=lambda label: -total[label])[:MOST_KINDS]
    tiers = list(dict.fromkeys(tier for result in results for tier in tiers_of(result)))
    kind_of = {short(op): op.kind.replace("_", " ") for result in results for op in result.placed.table.ops}
    bounds = {name: colour_of(name, tiers) for name in ("compute", *(f"memory:{tier}" for tier in tiers), "link", "overhead")}
    what = f"Share of the time of one layer along {named(over.path)}, by what bounds it and by kind of op; above: its time"
    foot = "† does not run as planned, priced all the same" if any(not result.feasible for result in results) else ""
    size = (max(9.0, 4.9 * len(kinds) + 1.0), 7.6)
    with page(path, title_of(results[0]), what, foot, size, len(kinds), rows=2) as (_, panels):
        for n, kind in enumerate(kinds):
            rows = [row.get(kind) for row in bars]
            parts = [None if row is None else _by_kind(row, kind_of) for row in rows]
            ops = _costliest(parts)
            colours = {**dict(zip(ops, CYCLE, strict=False)), "other": GREY}
            for axes, title, own in ((panels[n], "by bound", bounds), (panels[n + len(kinds)], "by kind of op", colours)):
                stacks = [None if row is None else row.by_bound for row in rows] if own is bounds else parts
                _bars(axes, [_shares(stack, own) for stack in stacks], own, rows)
                axes.set_title(f"{' '.join(kind.split())}: {title}", pad=26)
                _values(axes, over, results)
                axes.set_ylabel("share of the layer's time (%)" if n == 0 else "")
            axes.set_xlabel(label_of(over.path) + (f" ({over.unit})" if over.unit else ""))


Parts = Mapping[str, float]
"""Seconds by name."""


def _by_kind(row: LayerBar, kind_of: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in row.by_op.items():
        found[kind_of[name]] = found.get(kind_of[name], 0.0) + seconds
    return found


def _costliest(rows: Sequence[Parts | None]) -> list[str]:
    widest: dict[str, float] = {}
    for row in rows:
        for name, seconds in (row or {}).items():
            widest[name] = max(widest.get(name, 0.0), seconds / sum((row or {}).values()))
    return sorted(widest, key=lambda name: -widest[name])[:MOST_KINDS_OF_OPS]


def _shares(parts: Parts | None, named_: Mapping[str, str]) -> dict[str, float]:
    """Parts as shares of their sum, what has no name of its own as `other`."""
    whole = sum((parts or {}).values())
    found = {name: seconds / whole for name, seconds in (parts or {}).items() if name in named_}
    return found | ({"other": max(0.0, 1 - sum(found.values()))} if parts else {})


def _bars(
    axes: Axes, stacks: Sequence[Mapping[str, float]], colours: Mapping[str, str], rows: Sequence[LayerBar | None]
) -> None:
    below = np.zeros(len(stacks))
    for name, colour in colours.items():
        part = 100 * np.array([stack.get(name, 0.0) for stack in stacks])
        if part.max(initial=0.0) >= 0.5:
            axes.bar(range(len(stacks)), part, 0.86, below, color=colour, edgecolor="white", linewidth=0.4, label=name)
        below += part
    for at, row in enumerate(rows):
        if row is not None:
            factor, unit = unit_of(row.time_s)
            axes.text(
                at, 101.5, f"{row.time_s * factor:.3g}\n{unit.replace('us', 'µs')}", ha="center", va="bottom", size=7, color=INK
            )
    axes.set(ylim=(0, 100), xlim=(-0.6, len(stacks) - 0.4))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), reverse=True, handlelength=1.0)


def _texts(over: Axis) -> list[str]:
    """What stands under the bars: three digits of what is written with a k or M, which would run into its neighbour."""
    return [plain(float(f"{number:.3g}") if number >= 1e4 else number) for number in over.numbers] or list(over.values)


def _values(axes: Axes, over: Axis, results: Sequence[Result]) -> None:
    texts = _texts(over)
    marks = ["" if result.feasible else "\n†" for result in results]
    axes.set_xticks(range(len(texts)), [text + mark for text, mark in zip(texts, marks, strict=True)], size=8)
    for label, result in zip(axes.get_xticklabels(), results, strict=True):
        label.set_color(INK if result.feasible else RED)
    axes.tick_params(axis="x", length=0)
