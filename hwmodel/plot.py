"""Pictures of a result, each drawn from plain data that a small function beside it computes.

The only file that imports matplotlib, and only when a picture is drawn. The same result gives the same bytes. Colours are
those of Okabe and Ito (2008), which colour-blind readers tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel import __version__
from hwmodel.graph import Op
from hwmodel.kernels import columns as c
from hwmodel.run import Result, bound_of, parts_of
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show
from hwmodel.timeline import Event

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442"
GREY, PALE, INK = "#999999", "#ECECEC", "#222222"
CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW)
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True, "grid.color": "#DDDDDD", "grid.linewidth": 0.6, "legend.frameon": False,
    "legend.fontsize": 8.5, "svg.hashsalt": "hwmodel", "path.simplify": False, "savefig.dpi": 150, "figure.dpi": 150,
}  # fmt: skip
FIXED = {
    ".png": {"Software": f"hwmodel {__version__}"},
    ".svg": {"Date": None, "Creator": f"hwmodel {__version__}"},
    ".pdf": {"CreationDate": None, "Creator": f"hwmodel {__version__}", "Producer": None},
}
"""Metadata of a file by suffix: without dates, so that equal pictures are equal files."""


# --- the sheet: what every picture has --------------------------------------------------------------------------------
@contextmanager
def _sheet(result: Result, path: str | Path, what: str, size: tuple[float, float], panels: int = 1, **options: Any) -> Iterator[list[Axes]]:
    """Panels side by side under a title, above a footer; written to `path` when the block ends."""
    import matplotlib as mpl  # noqa: PLC0415 - slow to load, needed only when something is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415

    target = Path(path)
    if target.suffix.lower() not in FIXED:
        raise InputError(f"{target}: a picture is written as {', '.join(FIXED)}")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        top, bottom = 0.62 / size[1], 0.30 / size[1]
        figure.get_layout_engine().set(rect=(0, bottom, 1, 1 - top - bottom), w_pad=0.12, wspace=0.02)  # type: ignore[union-attr, call-arg]
        figure.text(0.012, 1 - 0.10 / size[1], title_of(result), size=12, weight="bold", va="top", color=INK)
        figure.text(0.012, 1 - 0.36 / size[1], what, size=9.5, va="top", color="#555555")
        figure.text(0.012, 0.09 / size[1], footer_of(result), size=8, color="#555555")
        if not result.feasible:
            figure.text(0.988, 1 - 0.12 / size[1], "INFEASIBLE", size=10, weight="bold", color=RED, va="top", ha="right")
        yield list(figure.subplots(1, panels, squeeze=False, **options).flat)
        figure.savefig(target, metadata=FIXED[target.suffix.lower()])


def title_of(result: Result) -> str:
    """The scenario's title, its name when it has none."""
    return result.placed.scenario.title or result.scenario


def footer_of(result: Result) -> str:
    """What was asked: model, chips, phase, batch, context, and the version that answered."""
    scenario, work = result.placed.scenario, result.placed.scenario.workload
    chips = " + ".join(f"{pool.name}: {pool.count:,} × {pool.chip.name}" for pool in scenario.cluster.pools)
    said = [scenario.model.name, chips, work.phase, f"batch {work.batch:,}"]
    said += [f"context {work.context:,}"] if work.phase != "prefill" else []
    said += [f"new tokens {work.new_tokens:,}"] if work.phase != "decode" else []
    said += [f"step {show(result.step.time_s, 's', 4)}", "physical floor" if result.placed.ideal else ""]
    return "  ·  ".join([part for part in said if part] + [f"hwmodel {__version__}"])


def short(op: Op) -> str:
    """An op's name without its segment."""
    return op.name.partition(".")[2] or op.name


def unit_of(seconds: float) -> tuple[float, str]:
    """(factor, unit) in which a time of that size is between 1 and 1000."""
    return next(((1 / scale, name) for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if seconds >= scale), (1e9, "ns"))


def colour_of(bound: str, tiers: Sequence[str] = ()) -> str:
    """The colour of a bound; memory tiers by their place in `tiers`."""
    if bound.startswith("memory:"):
        place = list(tiers).index(bound.partition(":")[2]) if tiers else 0
        return (ORANGE, RED, YELLOW, PINK)[place % 4]
    return {"compute": BLUE, "link": GREEN, "overhead": GREY}[bound]


def _tiers(result: Result) -> list[str]:
    """Names of the memory tiers that take longest in some op: the main ones first, caches last."""
    placed = result.placed
    tiers = sorted((tier for pool in placed.scenario.cluster.pools for tier in pool.chip.memory), key=lambda tier: tier.cache)
    used = {tier_of(result, op, priced) for op, priced in zip(placed.table.ops, placed.priced, strict=True) if priced[c.MEMORY] > 0}
    return [name for name in dict.fromkeys(tier.tier for tier in tiers) if name in used]


def _on(colour: str) -> str:
    """Black or white, whichever reads better on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 135 else "#FFFFFF"


def _tint(colour: str, share: float = 0.55) -> str:
    """A colour mixed with white."""
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * (1 - share) + 255 * share):02X}" for i in (1, 3, 5))


def _fits(axes: Axes, width: float, size: float, *texts: str) -> str:
    """The first text that fits in `width` data units of a laid-out linear axis, in two lines if need be; empty if none does."""
    low, high = axes.get_xlim()
    points = width / (high - low) * axes.get_window_extent().width / axes.figure.dpi * 72
    broken = [text.replace("_", "\n", 1) for text in texts]
    for text in (*texts, *broken):
        if points > max(len(line) for line in text.split("\n")) * 0.58 * size + 4:
            return text
    return ""


def _legend(axes: Axes, columns: int) -> None:
    """A legend below the axis label."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=4.6, ncols=columns, columnspacing=1.6)


# --- layers -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class LayerBar:
    """One layer of a segment, all micro-batches, in s."""

    label: str
    count: int
    by_op: dict[str, float]
    by_bound: dict[str, float]
    share: float
    """Of the step, all `count` layers; of one chip's step in a pipeline."""

    @property
    def time_s(self) -> float:
        """Ops one after the other."""
        return sum(self.by_op.values())


def layer_bars(result: Result) -> list[LayerBar]:
    """What `layers` draws: every segment of the model, from the bottom up."""
    graph, table, stages = result.placed.graph, result.placed.table, max(1, len(result.placed.graph.stages))
    found = []
    for index, segment in enumerate(graph.segments):
        by_op: dict[str, float] = {}
        by_bound: dict[str, float] = {}
        for op, priced in zip(table.ops, result.placed.priced, strict=True):
            if op.segment != segment.name or segment.count == 0 or priced[c.TIME] <= 0:
                continue
            times = op.repeats.value({}) * result.step.micro_batches
            by_op[short(op)] = by_op.get(short(op), 0.0) + float(priced[c.TIME]) * times
            for name, seconds in parts_of(priced).items():
                key = f"memory:{tier_of(result, op, priced)}" if name == "memory" else name
                if seconds > 0:
                    by_bound[key] = by_bound.get(key, 0.0) + seconds * times
        if by_op:
            places = [place for place, number in enumerate(graph.sequence) if number == index]
            where = f"\n{_ranges(places)}" if places else ""
            share = sum(by_op.values()) * segment.count / stages / result.step.time_s
            found.append(LayerBar(f"{segment.kind}{where}", segment.count, by_op, by_bound, share))
    return found


def tier_of(result: Result, op: Op, priced: Any) -> str:
    """The memory tier that takes longest in an op."""
    tiers = result.placed.scenario.cluster.pool(op.pool).chip.memory
    slot = int(priced[c.BOUND_TIER])
    return [tier.tier for tier in tiers if tier.cache == (slot < 0)][max(slot, 0)]


def _ranges(places: Sequence[int]) -> str:
    """``layers 0-2``; the first few runs of a long list."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][1] + 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    said = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs[:3]) + (", …" if len(runs) > 3 else "")
    return f"layer {said}" if len(places) == 1 else f"layers {said}"


def layers(result: Result, path: str | Path) -> None:
    """Draw the time of one layer of every kind, by op and by what bounds it."""
    bars = sorted(layer_bars(result), key=lambda bar: -bar.share)[:12]
    widest: dict[str, float] = {}
    for bar in bars:
        for name, seconds in bar.by_op.items():
            widest[name] = max(widest.get(name, 0.0), seconds)
    costly = sorted(widest, key=lambda name: -widest[name])[: len(CYCLE)]
    ops = {**dict(zip(costly, CYCLE, strict=False)), "other": GREY}
    tiers = _tiers(result)
    bounds = {name: colour_of(name, tiers) for name in ["compute", *(f"memory:{tier}" for tier in tiers), "link", "overhead"]}
    longest = max(bar.time_s for bar in bars)
    factor, unit = unit_of(longest)
    beyond = "; shares exceed 100 % where pools overlap" if sum(bar.share for bar in layer_bars(result)) > 1.005 else ""
    what = f"Time of one layer, all micro-batches, ops one after the other; right of each bar: total and share of the step{beyond}"
    with _sheet(result, path, what, (12.5, 2.3 + 0.62 * len(bars)), 2, sharey=True) as panels:
        for axes, title, colours in ((panels[0], "by op", ops), (panels[1], "by what bounds it", bounds)):
            stacks = [{name: bar.by_op.get(name, 0.0) for name in costly} | {"other": sum(
                seconds for name, seconds in bar.by_op.items() if name not in costly)} if colours is ops else bar.by_bound
                for bar in bars]  # fmt: skip
            axes.set(title=title, xlabel=f"time ({unit})", xlim=(0, longest * factor * 1.32), ylim=(len(bars) - 0.45, -0.55))
            axes.set_yticks(range(len(bars)), [_times(bar) for bar in bars])
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
            _stack(axes, [{k: v * factor for k, v in stack.items()} for stack in stacks], colours)
            for row, bar in enumerate(bars):
                axes.text(bar.time_s * factor, row, f"  {show(bar.time_s, 's', 3)} · {bar.share:.1%}", va="center", size=8.5, color=INK)
            _legend(axes, 4)


def _times(bar: LayerBar) -> str:
    return f"{bar.count} × {bar.label}" if bar.count > 1 else bar.label


def _stack(
    axes: Axes, stacks: Sequence[Mapping[str, float]], colours: Mapping[str, str], said: Callable[[int, str], str] = lambda _, name: ""
) -> None:
    """Horizontal stacked bars, row 0 first; inside a part stands what `said` says, or its name, where it fits."""
    left = [0.0] * len(stacks)
    for name, colour in colours.items():
        values = [stack.get(name, 0.0) for stack in stacks]
        visible = max(values) > 0.002 * axes.get_xlim()[1]
        axes.barh(range(len(stacks)), values, 0.62, left, color=colour, edgecolor="white", linewidth=0.6, label=name if visible else "_")
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    for row, stack in enumerate(stacks):
        at = 0.0
        for name, colour in colours.items():
            width, amount = stack.get(name, 0.0), said(row, name)
            text = _fits(axes, width, 8, *([f"{name} {amount}", amount] if amount else [name]))
            axes.text(at + width / 2, row, text, size=8, ha="center", va="center", color=_on(colour), zorder=5)
            at += width


# --- roofline ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Dot:
    """An op on one chip."""

    op: Op
    intensity: float
    """FLOP per byte that passes the memory tier which takes longest."""
    flops_per_s: float
    share: float
    """Of the step, all executions."""
    bound: str
    tier: str
    dtype: str


def dots(result: Result, pool: str) -> list[Dot]:
    """What `roofline` draws for a pool: every op with matrix FLOP, the costliest first."""
    placed, stages = result.placed, max(1, len(result.placed.graph.stages))
    types = {int(row): c.DTYPES[int(w[c.DTYPE])] for group in placed.table.groups for row, w in zip(group.rows, group.where, strict=True)}
    found = []
    for row, (op, priced) in enumerate(zip(placed.table.ops, placed.priced, strict=True)):
        if op.pool != pool or priced[c.FLOPS] <= 0 or priced[c.TIME] <= 0:
            continue
        tier = tier_of(result, op, priced)
        moved = bytes_through(result, op, priced)
        times = op.repeats.value({}) * placed.graph.segment(op.segment).count * result.step.micro_batches / stages
        found.append(
            Dot(op, float(priced[c.FLOPS]) / moved if moved else math.inf, float(priced[c.FLOPS] / priced[c.TIME]),
                float(priced[c.TIME]) * times / result.step.time_s, bound_of(op, priced, placed.scenario.cluster), tier, types[row])
        )  # fmt: skip
    return sorted(found, key=lambda dot: -dot.share)


def bytes_through(result: Result, op: Op, priced: Any) -> float:
    """Bytes of an op that pass the tier which takes longest: all of them in a cache; activations that fit a cache stay there."""
    weights, kv, activations = (float(priced[at]) for at in (c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES))
    if priced[c.BOUND_TIER] < 0:
        return weights + kv + activations
    device = result.placed.device[0, result.placed.table.device_rows.index(op.pool)]
    if activations <= device[c.CACHE_BYTES] or device[c.FREE_ACTIVATIONS] == 1:
        activations = 0.0
    main, tier = result.placed.scenario.cluster.pool(op.pool).chip.main.tier, tier_of(result, op, priced)
    return (weights + activations) * ((op.tier or main) == tier) + kv * ((op.kv_tier or main) == tier)


def ceilings(result: Result, pool: str) -> tuple[dict[str, float], dict[str, float]]:
    """(bandwidth in B/s by memory tier, peak in FLOP/s by dtype in use) of one chip of a pool, as the chip's file has them."""
    chip = result.placed.scenario.cluster.pool(pool).chip
    used = {dot.dtype for dot in dots(result, pool)}
    peaks = {name: float(peak) for name, peak in chip.peaks.by_dtype().items() if name in used}
    return {tier.tier: float(tier.bandwidth_bytes_per_s) for tier in chip.memory}, peaks


def roofline(result: Result, path: str | Path) -> None:
    """Draw FLOP per byte against FLOP/s of every op, under the ceilings of its chip, one panel per pool."""
    pools = [pool for pool in result.placed.scenario.cluster.pools if dots(result, pool.name)]
    if not pools:
        raise InputError("no op of this scenario multiplies matrices: there is no roofline to draw")
    what = "A dot: one op on one chip; area: share of the step; bytes: through the tier that takes longest; ceilings: peaks"
    with _sheet(result, path, what, (max(9.0, 7.2 * len(pools)), 6.4), len(pools)) as panels:
        for axes, pool in zip(panels, pools, strict=True):
            _roof_axes(result, axes, pool.name)
        panels[0].figure.draw_without_rendering()  # type: ignore[union-attr]
        for axes, pool in zip(panels, pools, strict=True):
            taken = _roofs(result, axes, pool.name)
            _dots(axes, [dot for dot in dots(result, pool.name) if math.isfinite(dot.intensity)], taken, _tiers(result))


def _roof_axes(result: Result, axes: Axes, name: str) -> None:
    """Scales that hold every dot and every ridge; title and legend."""
    pool, found = result.placed.scenario.cluster.pool(name), dots(result, name)
    (tiers, peaks), main = ceilings(result, name), pool.chip.main.tier
    ridge = max(peaks.values()) / tiers[main]
    xs = [dot.intensity for dot in found if math.isfinite(dot.intensity)] + [ridge]
    ys = [dot.flops_per_s for dot in found]
    axes.set(xscale="log", yscale="log", xlabel="FLOP per byte", ylabel="FLOP/s per chip", xlim=(min(xs) / 5, max(xs) * 6),
             ylim=(min(*ys, max(peaks.values()) / 100) / 4, max(peaks.values()) * 2))  # fmt: skip
    rest = 1 - sum(dot.share for dot in found)
    axes.set_title(f"{name}: {pool.count:,} × {pool.chip.name} (matrix ops {1 - rest:.1%} of the step)")
    axes.grid(which="major")
    for bound in dict.fromkeys(dot.bound for dot in found):
        axes.scatter([], [], s=45, color=colour_of(bound, _tiers(result)), label=f"bound by {bound}")
    _legend(axes, 4)


def _roofs(result: Result, axes: Axes, name: str) -> list[tuple[float, float, float, float]]:
    """Slanted and flat ceilings with their labels; returns the boxes (pixels) that dots' labels must not cover."""
    tiers, peaks = ceilings(result, name)
    main = result.placed.scenario.cluster.pool(name).chip.main.tier
    top, (left, right), low = max(peaks.values()), axes.get_xlim(), axes.get_ylim()[0]
    zero, far = axes.transData.transform([(left, low), (left * 10, low * 10)])
    angle = math.degrees(math.atan2(far[1] - zero[1], far[0] - zero[0]))
    taken = []
    for tier, bandwidth in tiers.items():
        colour = INK if tier == main else GREY
        axes.plot([left / 10, top / bandwidth], [left / 10 * bandwidth, top], color=colour, lw=1.4 if tier == main else 1.0, zorder=1)
        for step in range(12):  # along the line until there is room
            x = max(left, low / bandwidth) * (right / left) ** (0.03 + 0.03 * step)
            text = axes.text(x, x * bandwidth * 1.12, f"{tier} {show(bandwidth, 'bytes_per_s', 3)}", rotation=angle, color=colour,
                             rotation_mode="anchor", size=8.5, va="bottom")  # fmt: skip
            box, frame = _box(text), axes.get_window_extent()
            if box[2] < frame.x1 and x * bandwidth < top and not _hits(box, taken):
                taken.append(box)
                break
            text.remove()
    for dtype, peak in peaks.items():
        axes.plot([peak / max(tiers.values()), right], [peak, peak], color=INK, lw=1.4, zorder=1)
        text = axes.text(right / 1.1, peak * 1.04, f"{dtype} {show(peak, 'flops_per_s', 3)}", ha="right", va="bottom", size=8.5)
        ridge = peak / tiers[main]
        axes.plot([ridge, ridge], [low, peak], color=INK, lw=0.8, ls=":", zorder=1)
        mark = axes.text(ridge / 1.05, low * 1.15, f"ridge {main}, {dtype}: {ridge:.3g}", rotation=90, ha="right", va="bottom", size=8)
        axes.plot([ridge], [peak], marker="D", ms=4, color=INK)
        taken += [_box(text), _box(mark)]
    return taken


def _box(text: Any) -> tuple[float, float, float, float]:
    box = text.get_window_extent()
    return box.x0, box.y0, box.x1, box.y1


def _hits(box: tuple[float, ...], taken: Sequence[tuple[float, ...]]) -> bool:
    return any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)


def _dots(axes: Axes, found: Sequence[Dot], taken: list[tuple[float, float, float, float]], tiers: Sequence[str]) -> None:
    """The dots, and the names of the biggest where there is room beside them."""
    scale = axes.figure.dpi / 72
    areas = [max(14.0, 1600 * dot.share) for dot in found]
    places = axes.transData.transform([(dot.intensity, dot.flops_per_s) for dot in found])
    axes.scatter([dot.intensity for dot in found], [dot.flops_per_s for dot in found], s=areas, alpha=0.85, zorder=3,
                 color=[colour_of(dot.bound, tiers) for dot in found], edgecolor="white", linewidth=0.7)  # fmt: skip
    radii = [math.sqrt(area / math.pi) * scale for area in areas]
    taken += [(x - r, y - r, x + r, y + r) for (x, y), r in zip(places, radii, strict=True)]
    frame, named = axes.get_window_extent(), set()
    for dot, (x, y), radius in zip(found, places, radii, strict=True):
        text = f"{short(dot.op)} {dot.share:.0%}" if dot.share >= 0.01 else short(dot.op)
        wide, high = (len(text) * 0.56 * 8 + 2) * scale, 10 * scale
        if (short(dot.op), round(math.log(dot.intensity), 2), round(math.log(dot.flops_per_s), 2)) in named:
            continue
        for turn in range(40):  # around the dot, then farther out
            reach, direction = radius + (4 + 9 * (turn // 8)) * scale, (turn % 8) * math.pi / 4
            dx, dy = reach * math.cos(direction), reach * math.sin(direction)
            x0, y0 = x + dx - wide * (1 - math.cos(direction)) / 2, y + dy - high / 2
            box = (x0, y0, x0 + wide, y0 + high)
            inside = box[0] > frame.x0 and box[2] < frame.x1 and box[1] > frame.y0 and box[3] < frame.y1
            if inside and not _hits(box, taken):
                axes.annotate(text, axes.transData.inverted().transform((x, y)), ((x0 - x) / scale, (y0 - y) / scale),
                              textcoords="offset points", size=8, va="bottom", zorder=4, bbox={"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.6},
                              arrowprops={"arrowstyle": "-", "lw": 0.5, "color": GREY} if turn >= 8 else None).set_in_layout(False)  # fmt: skip
                taken.append(box)
                break
        named.add((short(dot.op), round(math.log(dot.intensity), 2), round(math.log(dot.flops_per_s), 2)))


# --- memory -----------------------------------------------------------------------------------------------------------
USES = {"weights": BLUE, "KV": ORANGE, "activations": GREEN, "reserve": GREY, "free": PALE}


def memory_bars(result: Result) -> list[tuple[str, float, dict[str, float]]]:
    """What `memory` draws: (label, capacity in bytes, bytes by use) of every tier of every pool; free is never negative."""
    return [
        (f"{row.pool} · {row.tier}\n{show(row.capacity_bytes, 'bytes', 4)} per chip", row.capacity_bytes, {
            "weights": row.weights_bytes, "KV": row.kv_bytes, "activations": row.activation_bytes, "reserve": row.reserve_bytes,
            "free": max(0.0, row.free_bytes)})
        for row in result.memory
    ]  # fmt: skip


def memory(result: Result, path: str | Path) -> None:
    """Draw what fills every memory tier of one chip of every pool, in shares of its capacity."""
    bars = memory_bars(result)
    end = min(4.0, max(1.0, *(sum(uses.values()) / capacity for _, capacity, uses in bars)))
    with _sheet(result, path, "Bytes on the fullest chip of every pool, by memory tier", (11, 2.1 + 0.72 * len(bars))) as (axes,):
        axes.set(xlabel="share of the tier's capacity (%)", xlim=(0, end * (118 if end > 1 else 102)), ylim=(len(bars) - 0.4, -0.6))
        axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.axvline(100, color=INK, lw=1.2, zorder=3)
        shown = [{name: value / capacity * 100 for name, value in uses.items()} for _, capacity, uses in bars]
        _stack(axes, shown, USES, lambda row, name: show(bars[row][2][name], "bytes", 3))
        for row, ((_, capacity, uses), share) in enumerate(zip(bars, shown, strict=True)):
            over = sum(uses.values()) - capacity
            if over > capacity * 1e-9:
                wide = min(sum(share.values()), end * 100)
                axes.barh(row, wide, 0.66, fill=False, edgecolor=RED, linewidth=2.2, zorder=4)
                text = f"  does not fit:\n  {show(over, 'bytes', 3)} too much"
                axes.text(wide, row, text, color=RED, weight="bold", va="center", bbox={"fc": "white", "ec": "none", "pad": 1})
        _legend(axes, 5)


# --- timeline ---------------------------------------------------------------------------------------------------------
ROLES = {"attention": BLUE, "ffn": ORANGE, "experts": ORANGE, "shared": YELLOW, "router": PINK, "norm": SKY, "communication": GREEN,
         "embedding": RED, "head": RED}  # fmt: skip


def window(result: Result, count: int = 3) -> tuple[float, float, list[Event]]:
    """(start, end, events) that `timeline` draws: `count` layers in the middle of the step; all of a short or pipelined step."""
    line = result.placed.timeline
    events = [event for event in line.events() if event.finish_s > event.start_s]
    depth = 1 + max(event.layer for event in events)
    if line.program.stages > 1 or depth <= count + 2:
        return 0.0, max(event.finish_s for event in events), events
    first = (depth - count) // 2
    chosen = [event for event in events if first <= event.layer < first + count]
    start, end = min(event.start_s for event in chosen), max(event.finish_s for event in chosen)
    return start, end, [event for event in events if event.finish_s > start and event.start_s < end]


def lanes_of(result: Result) -> list[tuple[str, int]]:
    """(lane, pipeline stage) from top to bottom: each pool, its links, the ways that leave it."""
    program = result.placed.timeline.program
    order = [pool.name for pool in result.placed.scenario.cluster.pools]

    def rank(lane: str) -> tuple[int, int]:
        return order.index(lane.removeprefix("load:").partition(">")[0].partition(".link")[0]), (">" in lane) * 2 + (".link" in lane)

    return [(lane, stage) for stage in range(program.stages) for lane in sorted(program.lanes, key=rank)]


def timeline(result: Result, path: str | Path) -> None:
    """Draw lanes against time: a few layers from the middle of the step, or the whole step where layers are pipelined."""
    start, end, events = window(result)
    used = {(event.lane, event.stage) for event in events}
    rows = [lane for lane in lanes_of(result) if lane in used][:24]
    stages, parts = result.placed.timeline.program.stages, result.step.micro_batches
    colours = _colours(events, parts, tinted=stages == 1 and parts <= 3)
    factor, unit = unit_of(end)
    what = f"{show(end - start, 's', 3)} of a step, steady state" if start else "One step from start to end"
    with _sheet(result, path, f"{what}; grey: idle; right: share of the time that a lane is busy", (13, 2.1 + 0.62 * len(rows))) as (axes,):
        axes.set(xlabel=f"time since the step began ({unit})", xlim=(start * factor, (end + (end - start) * 0.06) * factor),
                 ylim=(len(rows) - 0.4, -0.6))  # fmt: skip
        axes.set_yticks(range(len(rows)), [f"{lane}, stage {stage}" if stages > 1 else lane for lane, stage in rows])
        axes.tick_params(axis="y", length=0)
        axes.barh(range(len(rows)), (end - start) * factor, 0.66, start * factor, color=PALE, label="idle")
        axes.figure.draw_without_rendering()  # type: ignore[union-attr]
        for row, lane in enumerate(rows):
            _lane(axes, row, [event for event in events if (event.lane, event.stage) == lane], (start, end), factor, colours)
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
        return {role: colour for role, colour in ROLES.items() if role in roles} | ({"other": GREY} if roles - set(ROLES) else {})
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
        axes.text(at * factor, -0.42, f" layer {layer - 1}", size=7.5, color="#555555", va="bottom")  # the embedding is 0 there


def _lane(
    axes: Axes, row: int, events: Sequence[Event], span: tuple[float, float], factor: float, colours: Mapping[str, str]
) -> None:  # fmt: skip
    """The events of one lane inside the span; neighbours of one colour are one shape when they are many."""
    start, end = span
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
        axes.broken_barh([(a * factor, wide * factor) for a, wide in spans], (row - 0.33, 0.66), facecolor=colour,
                         edgecolor=colour if narrow else "white", linewidth=0.5, zorder=3 if narrow else 2)  # fmt: skip
    axes.text(end * factor, row, f"  {busy / (end - start):.1%}", va="center", size=8.5)


KINDS: dict[str, Callable[[Result, str | Path], None]] = {"layers": layers, "roofline": roofline, "memory": memory, "timeline": timeline}
"""Every picture of a result, by the name the command line gives it."""
