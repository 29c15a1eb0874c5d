"""Pictures of what could be better: tokens per expert on every device, and a tornado."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwmodel.figures import unit_of
from hwmodel.optimize.expert_batch import WITHIN, Curve, curve, pool_batches, tokens_of_step, whole
from hwmodel.optimize.expert_layout import layouts
from hwmodel.optimize.whatif import Bar, tornado
from hwmodel.plot import Box, sheet
from hwmodel.plot_page import BLUE, CYCLE, INK, ORANGE, RED, SOFT
from hwmodel.result import Result
from hwmodel.spec.units import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 0.1
"""Tokens per expert from which lines are drawn."""
MOST_BARS = 12
LEAST_SPAN = 1e-3
"""Of the step: shorter bars are left out."""


# --- tokens per expert ------------------------------------------------------------------------------------------------
def batch(result: Result, path: str | Path, chips: Sequence[str] = ()) -> None:
    """Draw throughput and TPOT over tokens per expert: the plan itself, and the experts alone on every device.

    chips : further chips, by name; as few of each as hold the experts
    """
    scenario, parts = result.placed.scenario, result.step.micro_batches
    slo = None if scenario.goal.slo.tpot_s is None else float(scenario.goal.slo.tpot_s)
    found = [curve(one, scenario, parts) for one in layouts(scenario, scenario.plan, _holders(result), chips)]
    plan = whole(scenario)
    target = "" if slo is None else f" under {show(slo, 's', 4)}"
    what = (
        f"Lines: routed experts alone, attention and transfers keeping pace; black: the whole plan, micro-batches: {parts}"
        f".  ◆ knee   ★ fewest tokens within {WITHIN:.0%} of the best cost{target}"
    )
    with sheet(result, path, what, (12.5, 5.4), 2) as (left, right):
        left.set(ylabel="tokens/s per chip", title="Throughput")
        right.set(ylabel="TPOT (ms)", title="Time per output token")
        lines = [*zip(found, CYCLE * 8, strict=False), *([(plan, INK)] if plan is not None else [])]
        for one, colour in lines:
            _line(left, right, one, colour)
        for axes in (left, right):
            axes.set(xscale="log", yscale="log", xlabel="tokens per expert, mean of a micro-batch")
            axes.grid(which="major")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(_plain)
                low, high = axis.get_view_interval()
                axis.set_minor_formatter(_plain if high < 10 * low else "")
        left.set_ylim(top=left.get_ylim()[1] * 8)  # the legend stands above the lines
        left.legend(loc="upper left", ncols=2, fontsize=8, handlelength=1.6)
        if slo is not None:
            right.axhline(slo * 1e3, color=RED, linewidth=1.0, linestyle=(0, (4, 3)))
            right.annotate(f"target {show(slo, 's', 4)}", (0.01, slo * 1e3), xycoords=("axes fraction", "data"),
                           xytext=(0, 3), textcoords="offset points", color=RED, size=8.5)  # fmt: skip
        left.figure.draw_without_rendering()  # type: ignore[union-attr]
        taken: list[Box] = [_around(*spot) for one, _ in lines for spot in _spots(left, one)]
        _asked(left, right, result, taken)
        for one, colour in reversed(lines):
            _marks(left, right, one, colour, slo, taken)


def _plain(value: float, _: float = 0.0) -> str:
    return f"{value:,g}" if value < 1e6 else f"{value / 1e6:,g} M"


def _holders(result: Result) -> set[str]:
    return {row.pool for row in pool_batches(result)}


def _line(left: Axes, right: Axes, one: Curve, colour: str) -> None:
    """A device on both panels."""
    name = one.label if one.fits else f"{one.label} (does not fit)"
    style: Any = {"color": colour, "linewidth": 2.2 if one.knee is None else 1.6, "linestyle": "-" if one.fits else (0, (2, 2))}
    shown = one.tokens_per_expert >= FEWEST
    left.plot(one.tokens_per_expert[shown], one.tokens_per_s_per_chip[shown], label=name, **style)
    right.plot(one.tokens_per_expert[shown], one.tpot_s[shown] * 1e3, **style)


def _marks(left: Axes, right: Axes, one: Curve, colour: str, slo: float | None, taken: list[Box]) -> None:
    """The knee and the optimum of a device."""
    best, inside = one.optimum(slo), one.tokens_per_expert
    for axes, values in ((left, one.tokens_per_s_per_chip), (right, one.tpot_s * 1e3)):
        if one.knee is not None and FEWEST <= one.knee <= inside[-1]:
            at = float(np.exp(np.interp(np.log(one.knee), np.log(inside), np.log(values))))
            axes.plot([one.knee], [at], marker="D", ms=6, color=colour, markeredgecolor="white", zorder=4)
            if axes is left:
                _note(axes, f"knee {one.knee:,.3g}", one.knee, at, colour, taken)
        if best is not None and best.tokens_per_expert >= FEWEST:
            at = best.tokens_per_s_per_chip if axes is left else best.tpot_s * 1e3
            axes.plot([best.tokens_per_expert], [at], marker="*", ms=13, color=colour, markeredgecolor="white", zorder=5)
            if axes is left:
                text = f"{_few(best.tokens_per_expert)} each, batch {best.batch:,}"
                _note(axes, text, best.tokens_per_expert, at, colour, taken)


def _few(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _spots(axes: Axes, one: Curve) -> list[tuple[float, float]]:
    """Pixels along a line of the left panel, close together."""
    shown = one.tokens_per_expert >= FEWEST
    points = np.column_stack([one.tokens_per_expert[shown], one.tokens_per_s_per_chip[shown]])
    pixels = axes.transData.transform(points)
    steps = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(pixels, axis=0).T))])
    every = np.arange(0.0, steps[-1] + 1, 6.0)
    x, y = (np.interp(every, steps, pixels[:, axis]).tolist() for axis in (0, 1))
    return list(zip(x, y, strict=True))


def _around(x: float, y: float, reach: float = 3.0) -> Box:
    return x - reach, y - reach, x + reach, y + reach


def _note(axes: Axes, text: str, x: float, y: float, colour: str, taken: list[Box]) -> None:
    """Write beside a point, where neither a line nor another text is; farther away when it must be."""
    scale, frame = axes.figure.dpi / 72, axes.get_window_extent()
    px, py = axes.transData.transform((x, y))
    wide, tall = len(text) * 0.60 * 8 * scale, 11 * scale
    for turn in range(64):
        reach, direction = (9 + 8 * (turn // 8)) * scale, (7 - turn % 8) * np.pi / 4
        dx = reach * np.cos(direction) - wide * (1 - np.cos(direction)) / 2
        dy = reach * np.sin(direction) - tall / 2
        box = (px + dx, py + dy, px + dx + wide, py + dy + tall)
        inside = frame.x0 < box[0] and box[2] < frame.x1 and frame.y0 < box[1] and box[3] < frame.y1
        if inside and not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            arrow = {"arrowstyle": "-", "lw": 0.5, "color": colour} if turn >= 16 else None
            note = axes.annotate(text, (x, y), (dx / scale, dy / scale), textcoords="offset points", size=8, color=colour,
                                 arrowprops=arrow, va="bottom", zorder=6)  # fmt: skip
            note.set_in_layout(False)
            taken.append(box)
            return


def _asked(left: Axes, right: Axes, result: Result, taken: list[Box]) -> None:
    """Where the scenario itself stands."""
    scenario = result.placed.scenario
    routed = next(op.experts for op in result.placed.table.ops if op.experts)
    each = -(-scenario.workload.batch // result.step.micro_batches) * tokens_of_step(scenario) / scenario.workload.batch
    x = each * routed.topk / routed.total
    for axes, y in ((left, result.step.tokens_per_s_per_chip), (right, (result.step.tpot_s or result.step.time_s) * 1e3)):
        axes.plot([x], [y], marker="o", ms=7, color="white", markeredgecolor=INK, markeredgewidth=1.6, zorder=5)
        if axes is left:
            _note(axes, "the scenario", x, y, INK, taken)


# --- tornado ----------------------------------------------------------------------------------------------------------
def draw_tornado(result: Result, path: str | Path) -> None:
    """Draw how far the step moves when inputs move: over their stated ranges, and all by the same 20 %."""
    found = tornado(result.placed.scenario)
    factor, unit = unit_of(found.step_s)
    sides = [
        (title, [bar for bar in bars if bar.span_s > LEAST_SPAN * found.step_s][:MOST_BARS])
        for title, bars in (("stated ranges of inputs", found.ranges), ("every number 20 % lower and higher", found.even))
    ]
    rows = max(1, *(len(bars) for _, bars in sides))
    what = "Step time when one number moves and the plan stays; at each end the value that it takes there"
    with sheet(result, path, what, (13.5, 2.2 + 0.36 * rows), 2) as panels:
        ends = [end * factor for _, bars in sides for bar in bars for end in (bar.low_s, bar.high_s)]
        low, high = min([*ends, found.step_s * factor]), max([*ends, found.step_s * factor])
        room = 0.30 * (high - low or 1.0)
        for axes, (title, bars) in zip(panels, sides, strict=True):
            axes.set(title=title, xlabel=f"step time ({unit})", xlim=(low - room, high + room), ylim=(rows + 0.6, -0.7))
            axes.set_yticks(range(len(bars)), [bar.parameter for bar in bars], size=8.5)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
            axes.axvline(found.step_s * factor, color=INK, linewidth=1.0)
            for row, bar in enumerate(bars):
                _bar(axes, row, bar, found.step_s * factor, factor)
        panels[1].barh([0], [0], color=BLUE, label="at the lower value")
        panels[1].barh([0], [0], color=ORANGE, label="at the higher value")
        panels[1].legend(loc="lower right", ncols=2, frameon=True, framealpha=1, edgecolor="none")  # below the last bar


def _bar(axes: Axes, row: int, bar: Bar, middle: float, factor: float) -> None:
    """Both ends of a number; where both lie on one side, the value of the nearer one stands on the other."""
    ends = [(bar.low_s * factor, bar.low, BLUE), (bar.high_s * factor, bar.high, ORANGE)]
    ends.sort(key=lambda end: -abs(end[0] - middle))
    (far, _, _), (near, _, _) = ends
    for at, text, colour in ends:
        axes.barh(row, at - middle, 0.62, middle, color=colour, zorder=2)
        left = at < middle if at == far or (near - middle) * (far - middle) < 0 else far > middle
        place = at if (at < middle) == left else middle
        if abs(at - middle) > 1e-9 * middle:
            axes.annotate(text, (place, row), (-4 if left else 4, 0), textcoords="offset points", size=7.5, va="center",
                          ha="right" if left else "left", color=SOFT)  # fmt: skip


KINDS: dict[str, Callable[[Result, str | Path], None]] = {"batch": batch, "tornado": draw_tornado}
"""Pictures of what could be better, by the name the command line gives them."""
