"""Pictures of a result, each drawn from plain data that a small function of `hwmodel.figures` computes.

matplotlib is loaded when one is drawn. The same result gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.figures import (
    Dot,
    LayerBar,
    ceilings,
    cut_off,
    dots,
    footer_of,
    lanes_of,
    layer_bars,
    memory_bars,
    short,
    tiers_of,
    title_of,
    unit_of,
    window,
)
from hwmodel.plot_page import BLUE, CYCLE, GREEN, GREY, INK, ORANGE, PALE, PINK, RED, SKY, SOFT, YELLOW, page
from hwmodel.result import Result
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show
from hwmodel.timeline import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]
"""Left, bottom, right, top in pixels."""


# --- the sheet: what every picture has --------------------------------------------------------------------------------
@contextmanager
def sheet(
    result: Result, path: str | Path, what: str, size: tuple[float, float], panels: int = 1, **options: Any
) -> Iterator[list[Axes]]:
    """The page of a run, which says when its plan cannot run."""
    with page(path, title_of(result), what, footer_of(result), size, panels, **options) as (figure, axes):
        if not result.feasible:
            where = (0.988, 1 - 0.12 / size[1])
            figure.text(*where, "INFEASIBLE", size=10, weight="bold", color=RED, va="top", ha="right")
        yield axes


def colour_of(bound: str, tiers: Sequence[str] = ()) -> str:
    """Give the colour of a bound; memory tiers by their place in `tiers`."""
    if bound.startswith("memory:"):
        place = list(tiers).index(bound.partition(":")[2]) if tiers else 0
        return (ORANGE, RED, YELLOW, PINK)[place % 4]
    return {"compute": BLUE, "link": GREEN, "overhead": GREY}[bound]


def _on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 135 else "#FFFFFF"


def _tint(colour: str, share: float = 0.55) -> str:
    """Mix a colour with white."""
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * (1 - share) + 255 * share):02X}" for i in (1, 3, 5))


def _fits(axes: Axes, width: float, size: float, *texts: str) -> str:
    """Pick the first text that fits in `width` data units of a laid-out linear axis, in two lines if need be."""
    low, high = axes.get_xlim()
    points = width / (high - low) * axes.get_window_extent().width / axes.figure.dpi * 72
    broken = [text.replace("_", "\n", 1) for text in texts]
    for text in (*texts, *broken):
        if points > max(len(line) for line in text.split("\n")) * 0.62 * size + 4:
            return text
    return ""


def _legend(axes: Axes, columns: int) -> None:
    """Put a legend below the axis label."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4.6, ncols=columns, columnspacing=1.6)


# --- layers -----------------------------------------------------------------------------------------------------------
def layers(result: Result, path: str | Path) -> None:
    """Draw the time of one layer of every kind, by op and by what bounds it."""
    bars = sorted(layer_bars(result), key=lambda bar: -bar.share)[:12]
    widest: dict[str, float] = {}
    for bar in bars:
        for name, seconds in bar.by_op.items():
            widest[name] = max(widest.get(name, 0.0), seconds)
    costly = sorted(widest, key=lambda name: -widest[name])[: len(CYCLE)]
    ops = {**dict(zip(costly, CYCLE, strict=False)), "other": GREY}
    tiers = tiers_of(result)
    named = ["compute", *(f"memory:{tier}" for tier in tiers), "link", "overhead"]
    bounds = {name: colour_of(name, tiers) for name in named}
    factor, unit = unit_of(max(bar.time_s for bar in bars))
    longest = max(bar.time_s for bar in bars) * factor
    beyond = "; shares exceed 100 % where work overlaps" if sum(bar.share for bar in layer_bars(result)) > 1.005 else ""
    what = f"Time of one layer, all micro-batches, ops in a row; at each bar: time and share of the step{beyond}"
    with sheet(result, path, what, (12.5, 2.3 + 0.62 * len(bars)), 2, sharey=True) as panels:
        for axes, title, colours in ((panels[0], "by op", ops), (panels[1], "by what bounds it", bounds)):
            stacks = [_named(bar.by_op, costly) if colours is ops else bar.by_bound for bar in bars]
            axes.set(title=title, xlabel=f"time ({unit})", xlim=(0, longest * 1.32), ylim=(len(bars) - 0.45, -0.55))
            axes.set_yticks(range(len(bars)), [_times(bar) for bar in bars])
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
            _stack(axes, [{k: v * factor for k, v in stack.items()} for stack in stacks], colours)
            for row, bar in enumerate(bars):
                share = f"{bar.share:.1%}" if bar.share >= 0.0005 else "<0.1%"
                text = f"  {show(bar.time_s, 's', 3)} · {share}"
                axes.text(bar.time_s * factor, row, text, va="center", size=8.5)
            _legend(axes, 4)


def _named(parts: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Keep the parts of those names; the rest is `other`."""
    rest = sum(value for name, value in parts.items() if name not in names)
    return {**{name: value for name, value in parts.items() if name in names}, "other": rest}


def _times(bar: LayerBar) -> str:
    return f"{bar.count} × {bar.label}" if bar.count > 1 else bar.label


def _plain(_: int, __: str) -> str:
    return ""


def _stack(
    axes: Axes,
    stacks: Sequence[Mapping[str, float]],
    colours: Mapping[str, str],
    said: Callable[[int, str], str] = _plain,
) -> None:
    """Horizontal stacked bars, row 0 first; inside a part stands what `said` says, or its name, where it fits."""
    left = [0.0] * len(stacks)
    for name, colour in colours.items():
        values = [stack.get(name, 0.0) for stack in stacks]
        label = name if max(values) > 0.002 * axes.get_xlim()[1] else "_"
        axes.barh(range(len(stacks)), values, 0.62, left, color=colour, edgecolor="white", linewidth=0.6, label=label)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    for row, stack in enumerate(stacks):
        at = 0.0
        for name, colour in colours.items():
            width, amount = stack.get(name, 0.0), said(row, name)
            seen = max(0.0, min(at + width, axes.get_xlim()[1]) - at)
            text = _fits(axes, seen, 8, *([f"{name} {amount}", amount] if amount else [name]))
            if text:
                axes.text(at + seen / 2, row, text, size=8, ha="center", va="center", color=_on(colour), zorder=5)
            at += width


# --- roofline ---------------------------------------------------------------------------------------------------------
def roofline(result: Result, path: str | Path) -> None:
    """Draw FLOP per byte against FLOP/s of every op, under the ceilings of its chip, one panel per pool."""
    pools = [pool.name for pool in result.placed.scenario.cluster.pools if dots(result, pool.name)]
    if not pools:
        raise InputError("no op of this scenario multiplies matrices: there is no roofline to draw")
    what = "Dots: ops on one chip; area: share of the step; bytes through the tier that takes longest; ceilings: peaks"
    with sheet(result, path, what, (max(9.0, 7.2 * len(pools)), 6.4), len(pools)) as panels:
        for axes, pool in zip(panels, pools, strict=True):
            _roof_axes(result, axes, pool)
        panels[0].figure.draw_without_rendering()  # type: ignore[union-attr]
        for axes, pool in zip(panels, pools, strict=True):
            drawn = [dot for dot in dots(result, pool) if math.isfinite(dot.intensity)]
            taken = _dots(axes, drawn, tiers_of(result))
            _roofs(result, axes, pool, taken)
            _names(axes, drawn, taken)


def _roof_axes(result: Result, axes: Axes, name: str) -> None:
    """Scales that hold every dot and every ridge; title and legend."""
    pool, found = result.placed.scenario.cluster.pool(name), dots(result, name)
    (tiers, peaks), main = ceilings(result, name), pool.chip.main.tier
    top = max(peaks.values())
    xs = [dot.intensity for dot in found if math.isfinite(dot.intensity)] + [top / tiers[main]]
    low = min(top / 100, *(dot.flops_per_s for dot in found)) / 4
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="FLOP/s per chip")
    axes.set(xlim=(min(xs) / 5, max(xs) * 6), ylim=(low, top * 2))
    share = sum(dot.share for dot in found)
    axes.set_title(f"{name}: {pool.count:,} × {pool.chip.name} (matrix ops {share:.1%} of the step)")
    axes.grid(which="major")
    for bound in dict.fromkeys(dot.bound for dot in found):
        axes.scatter([], [], s=45, color=colour_of(bound, tiers_of(result)), label=f"bound by {bound}")
    _legend(axes, 4)


def _roofs(result: Result, axes: Axes, name: str, taken: list[Box]) -> None:
    """Slanted and flat ceilings with their labels; adds the boxes that names of dots must not cover to `taken`."""
    tiers, peaks = ceilings(result, name)
    main = result.placed.scenario.cluster.pool(name).chip.main.tier
    top, (left, right), low = max(peaks.values()), axes.get_xlim(), axes.get_ylim()[0]
    lines = []
    for dtype, peak in peaks.items():
        ridge = peak / tiers[main]
        lines += [((peak / max(tiers.values()), peak), (right, peak)), ((ridge, low), (ridge, peak))]
        axes.plot([peak / max(tiers.values()), right], [peak, peak], color=INK, lw=1.4, zorder=1)
        axes.plot([ridge, ridge], [low, peak], color=INK, lw=0.8, ls=":", zorder=1)
        axes.plot([ridge], [peak], marker="D", ms=4, color=INK)
        flat = f"{dtype} {show(peak, 'flops_per_s', 3)}"
        taken.append(_box(axes.text(right / 1.1, peak * 1.04, flat, ha="right", va="bottom", size=8.5)))
        said = f"ridge {main}, {dtype}: {ridge:.3g}"
        taken.append(_box(axes.text(ridge / 1.05, low * 1.15, said, rotation=90, ha="right", va="bottom", size=8)))
    for tier, bandwidth in tiers.items():
        colour, width = (INK, 1.4) if tier == main else (GREY, 1.0)
        axes.plot([left, top / bandwidth], [left * bandwidth, top], color=colour, lw=width, zorder=1)
        lines.append(((max(left, low / bandwidth), max(left * bandwidth, low)), (top / bandwidth, top)))
        _slanted(axes, f"{tier} {show(bandwidth, 'bytes_per_s', 3)}", bandwidth, colour, taken, below=tier == main)
    for begin, end in lines:
        (x0, y0), (x1, y1) = axes.transData.transform([begin, end])
        steps = max(1, round(max(abs(x1 - x0), abs(y1 - y0)) / 8))
        spots = [(x0 + (x1 - x0) * n / steps, y0 + (y1 - y0) * n / steps) for n in range(steps + 1)]
        taken += [(x - 3, y - 3, x + 3, y + 3) for x, y in spots]


def _slanted(axes: Axes, text: str, slope: float, colour: str, taken: list[Box], *, below: bool) -> None:
    """Write along the line y = slope x, as far left as there is room, if there is any."""
    (left, right), (low, high), frame = axes.get_xlim(), axes.get_ylim(), axes.get_window_extent()
    zero, far = axes.transData.transform([(left, low), (left * 10, low * 10)])
    angle = math.degrees(math.atan2(far[1] - zero[1], far[0] - zero[0]))
    for step in range(1, 30):
        x = max(left, low / slope) * (right / left) ** (0.03 * step)
        label = axes.text(x, x * slope * (1 / 1.12 if below else 1.12), text, rotation=angle, color=colour, size=8.5,
                          rotation_mode="anchor", va="top" if below else "bottom")  # fmt: skip
        box = _box(label)
        if box[2] < frame.x1 and x * slope < high / 4 and not _hits(box, taken):
            taken.append(box)
            return
        label.remove()


def _box(text: Any) -> Box:
    box = text.get_window_extent()
    return box.x0, box.y0, box.x1, box.y1


def _hits(box: Box, taken: Sequence[Box]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)


def _dots(axes: Axes, found: Sequence[Dot], tiers: Sequence[str]) -> list[Box]:
    """Draw the dots; returns their boxes in pixels."""
    xs, ys = [dot.intensity for dot in found], [dot.flops_per_s for dot in found]
    areas = [max(14.0, 1600 * dot.share) for dot in found]  # points squared; small ones stay visible
    colours = [colour_of(dot.bound, tiers) for dot in found]
    axes.scatter(xs, ys, areas, colours, alpha=0.85, zorder=3, edgecolor="white", linewidth=0.7)
    places = axes.transData.transform(list(zip(xs, ys, strict=True)))
    radii = [math.sqrt(area / math.pi) * axes.figure.dpi / 72 for area in areas]
    return [(float(x - r), float(y - r), float(x + r), float(y + r)) for (x, y), r in zip(places, radii, strict=True)]


def _names(axes: Axes, found: Sequence[Dot], taken: list[Box]) -> None:
    """Name the dots, the biggest first, where there is room beside them; equal dots of several layer kinds once."""
    scale, frame, named = axes.figure.dpi / 72, axes.get_window_extent(), set()
    for dot, (left, low, right, high) in zip(found, list(taken), strict=False):
        key = (short(dot.op), round(math.log(dot.intensity), 2), round(math.log(dot.flops_per_s), 2))
        text = f"{short(dot.op)} {dot.share:.0%}" if dot.share >= 0.01 else short(dot.op)
        wide, tall, radius = (len(text) * 0.63 * 8 + 3) * scale, 10 * scale, (right - left) / 2
        for turn in range(0 if key not in named else 64, 64):  # around the dot, then farther out
            reach, direction = radius + (4 + 9 * (turn // 8)) * scale, (turn % 8) * math.pi / 4
            dx = reach * math.cos(direction) - wide * (1 - math.cos(direction)) / 2
            dy = reach * math.sin(direction) - tall / 2
            x0, y0 = (left + right) / 2 + dx, (low + high) / 2 + dy
            box = (x0, y0, x0 + wide, y0 + tall)
            if frame.x0 < x0 and box[2] < frame.x1 and frame.y0 < y0 and box[3] < frame.y1 and not _hits(box, taken):
                arrow = {"arrowstyle": "-", "lw": 0.5, "color": GREY} if turn >= 8 else None
                at, offset = (dot.intensity, dot.flops_per_s), (dx / scale, dy / scale)
                note = axes.annotate(text, at, offset, textcoords="offset points", size=8, arrowprops=arrow)
                note.set(in_layout=False, zorder=4, va="bottom")
                taken.append(box)
                break
        named.add(key)


# --- memory -----------------------------------------------------------------------------------------------------------
USES = {"weights": BLUE, "KV": ORANGE, "activations": GREEN, "reserve": GREY, "free": PALE}


def memory(result: Result, path: str | Path) -> None:
    """Draw what fills every memory tier of one chip of every pool, in shares of its capacity."""
    bars = memory_bars(result)
    end = min(4.0, max(1.0, *(sum(uses.values()) / capacity for _, capacity, uses in bars)))
    what = "Bytes on the fullest chip of every pool, by memory tier"
    with sheet(result, path, what, (11, 2.1 + 0.72 * len(bars))) as (axes,):
        axes.set(xlabel="share of the tier's capacity (%)", ylim=(len(bars) - 0.4, -0.6))
        axes.set_xlim(0, end * (122 if end > 1 else 102))
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.axvline(100, color=INK, lw=1.2, zorder=0.9)
        shares = [{name: value / capacity * 100 for name, value in uses.items()} for _, capacity, uses in bars]
        shown = [cut_off(share, end * 100) for share in shares]
        _stack(axes, shown, USES, lambda row, name: show(bars[row][2][name], "bytes", 3))
        for row, ((_, capacity, uses), share) in enumerate(zip(bars, shown, strict=True)):
            over = sum(uses.values()) - capacity
            if over > capacity * 1e-9:
                wide = sum(share.values())
                axes.barh(row, wide, 0.66, fill=False, edgecolor=RED, linewidth=2.2, zorder=4)
                times, cut = over / capacity + 1, ", bar cut" if over / capacity + 1 > end else ""
                text = f"  does not fit:\n  {show(over, 'bytes', 3)} too much\n  ({times:.3g} × capacity{cut})"
                back = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                axes.text(wide, row, text, color=RED, weight="bold", va="center", bbox=back)
        _legend(axes, 5)


# --- timeline ---------------------------------------------------------------------------------------------------------
ROLES = {
    "attention": BLUE, "ffn": ORANGE, "experts": ORANGE, "shared": YELLOW, "router": PINK, "norm": SKY,
    "communication": GREEN, "embedding": RED, "head": RED,
}  # fmt: skip


def timeline(result: Result, path: str | Path) -> None:
    """Draw lanes against time: a few layers from the middle of the step, or all of it where layers are pipelined."""
    start, end, events = window(result)
    used = {(event.lane, event.stage) for event in events}
    rows = [lane for lane in lanes_of(result) if lane in used][:24]
    stages, parts = result.placed.timeline.program.stages, result.step.micro_batches
    colours = _colours(events, parts, tinted=stages == 1 and parts <= 3)
    factor, unit = unit_of(end)
    what = f"{show(end - start, 's', 3)} of a step, steady state" if start else "One step from start to end"
    what += "; grey: idle; right: share of this time that a lane is busy"
    what += "; the floor itself assumes that all of it overlaps" if result.placed.ideal else ""
    with sheet(result, path, what, (13, 2.1 + 0.62 * len(rows))) as (axes,):
        axes.set(xlabel=f"time since the step began ({unit})", ylim=(len(rows) - 0.4, -0.6))
        axes.set_xlim(start * factor, (end + (end - start) * 0.06) * factor)
        axes.set_yticks(range(len(rows)), [f"{lane}, stage {stage}" if stages > 1 else lane for lane, stage in rows])
        axes.tick_params(axis="y", length=0)
        axes.barh(range(len(rows)), (end - start) * factor, 0.66, start * factor, color=PALE, label="idle")
        axes.figure.draw_without_rendering()  # type: ignore[union-attr]
        for row, lane in enumerate(rows):
            inside = [event for event in events if (event.lane, event.stage) == lane]
            _lane(axes, row, inside, (start, end, factor), colours)
        if start:
            _marks(axes, events, start, factor)
        for name, colour in colours.items():
            axes.barh([0], [0], left=start * factor, color=colour, label=name)
        _legend(axes, 8)


def _name(event: Event, colours: Mapping[str, str]) -> str:
    """Which legend entry an event belongs to: its micro-batch where there are several, else its role."""
    batch = f"micro-batch {event.batch}"
    if batch in colours and event.op.part != "attention" and f"{batch}, not attention" in colours:
        return f"{batch}, not attention"
    return batch if batch in colours else event.op.role if event.op.role in colours else "other"


def _colours(events: Sequence[Event], parts: int, *, tinted: bool) -> dict[str, str]:
    """Legend entries and their colours; past seven micro-batches colours repeat."""
    if parts == 1:
        roles = {event.op.role for event in events}
        rest = {"other": GREY} if roles - set(ROLES) else {}
        return {role: colour for role, colour in ROLES.items() if role in roles} | rest
    found = {}
    for batch in range(parts):
        found[f"micro-batch {batch}"] = CYCLE[batch % len(CYCLE)]
        if tinted:
            found[f"micro-batch {batch}, not attention"] = _tint(CYCLE[batch % len(CYCLE)])
    return found


def _marks(axes: Axes, events: Sequence[Event], start: float, factor: float) -> None:
    """Where each layer begins, for the first micro-batch."""
    begins: dict[int, float] = {}
    for event in events:
        if event.batch == 0 and event.start_s >= start:
            begins.setdefault(event.layer, event.start_s)
    for layer, at in begins.items():
        axes.axvline(at * factor, color=INK, lw=0.7, ls=":", zorder=0.5)
        axes.text(at * factor, -0.42, f" layer {layer - 1}", size=7.5, color=SOFT, va="bottom")  # 0 is the embedding


def _lane(axes: Axes, row: int, events: Sequence[Event], scale: tuple[float, float, float], colours: Mapping[str, str]) -> None:
    """Draw the events of one lane; `scale`: start and end (s), units per s. Among many, equal neighbours are one."""
    start, end, factor = scale
    many, busy = len(events) > 400, 0.0
    shapes: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for event in events:
        a, b = max(start, event.start_s), min(end, event.finish_s)
        busy += b - a
        colour = colours[_name(event, colours)]
        same = shapes.setdefault((colour, many or b - a < (end - start) * 0.004), [])
        if many and same and a - sum(same[-1]) <= (end - start) * 1e-4:
            same[-1] = (same[-1][0], b - same[-1][0])
        else:
            same.append((a, b - a))
        text = _fits(axes, (b - a) * factor, 7.5, short(event.op))
        if text:
            axes.text((a + b) / 2 * factor, row, text, size=7.5, ha="center", va="center", color=_on(colour), zorder=5)
    for (colour, narrow), spans in shapes.items():
        axes.broken_barh([(a * factor, wide * factor) for a, wide in spans], (row - 0.325, 0.65), facecolor=colour,
                         edgecolor=colour if narrow else "white", linewidth=0.5, zorder=3 if narrow else 2)  # fmt: skip
    axes.text(end * factor, row, f"  {busy / (end - start):.1%}", va="center", size=8.5)


KINDS: dict[str, Callable[[Result, str | Path], None]] = {
    "layers": layers,
    "roofline": roofline,
    "memory": memory,
    "timeline": timeline,
}
"""Every picture of a result, by the name the command line gives it."""
