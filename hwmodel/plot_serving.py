"""Pictures of traces and of serving, drawn from plain data; matplotlib is loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.plot_axes import ticked, unit_of
from hwmodel.plot_page import CYCLE, GREY, page
from hwmodel.serve.offline import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from hwmodel.serve.profile import Arrivals

TIMES = ((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h"))
"""Ticks of an axis of time."""
UNITS = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def draw_timeouts(curves: Mapping[str, Curve], path: str | Path, foot: str = "") -> None:
    """Hit rate, and tokens held on average, over the time after which an idle block is evicted; one line a trace."""
    what = "Share of input tokens that a prefix cache of any size serves, and what it holds"
    with page(path, "Prefix cache over eviction timeout", what, foot, (9.6, 4.2), 2) as (_, (left, right)):
        for (name, curve), colour in zip(curves.items(), CYCLE * 8, strict=False):
            left.plot(curve.limit, 100 * curve.hit, color=colour, marker="o", markersize=3.5, label=name)
            left.axhline(100 * curve.unlimited, color=colour, linewidth=0.9, linestyle=(0, (4, 3)))
            right.plot(curve.limit, curve.held_tokens, color=colour, marker="o", markersize=3.5, label=name)
        left.plot([], [], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="never evicted")
        left.set_ylabel("Hit rate (% of input tokens)")
        left.set_ylim(0, 100)
        right.set_ylabel("Tokens held, mean over the trace")
        right.set_yscale("log")
        low = min(float(curve.limit.min()) for curve in curves.values())
        high = max(float(curve.limit.max()) for curve in curves.values())
        ticks = [(at, text) for at, text in TIMES if low <= at <= high]
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
            axes.set_xticks([], minor=True)
            axes.set_xlabel("Eviction timeout")
            axes.grid(visible=True)
        right.legend(*left.get_legend_handles_labels(), loc="upper left")  # the lines rise: this corner is empty


def draw_arrivals(arrivals: Arrivals, path: str | Path, foot: str = "") -> None:
    """Requests, and tokens of prompts and answers, per second over the time of a trace."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    times = arrivals.edges_s
    part = times[1] - times[0]
    with page(path, "Arrivals over time", f"Means over {_span(part)} each", foot, (9.6, 4.2), 2) as (_, (left, right)):
        size, unit = next((size, unit) for size, unit in UNITS if times[-1] - times[0] >= 3 * size or size == 1)
        left.stairs(arrivals.requests_per_s, times / size, color=CYCLE[0], fill=True, alpha=0.85)
        left.axhline(float(arrivals.requests_per_s.mean()), color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="mean")
        left.set_ylabel("Requests per second")
        for values, colour, name in (
            (arrivals.prompt_per_s, CYCLE[0], "prompts"),
            (arrivals.output_per_s, CYCLE[1], "answers"),
        ):
            right.stairs(
                np.where(values > 0, values, np.nan), times / size, color=colour, linewidth=1.2, label=name, baseline=None
            )
        right.set_ylabel("Tokens per second")
        low = min(float(rate[rate > 0].min()) for rate in (arrivals.prompt_per_s, arrivals.output_per_s))
        right.set_yscale("log")
        right.set_ylim(low / 2, 8 * float(arrivals.prompt_per_s.max()))
        ticked(right.yaxis, "", np.array(right.get_ylim()))
        left.set_ylim(0, 1.2 * float(arrivals.requests_per_s.max()))
        for axes in (left, right):
            axes.set_xlabel(f"Time ({unit})")
            axes.set_xlim(times[0] / size, times[-1] / size)
            axes.grid(visible=True)
            axes.legend(loc="upper right", ncols=2)


def draw_lengths(classes: Mapping[str, tuple[Any, Any]], path: str | Path, foot: str = "") -> None:
    """Share of the requests up to each length of prompt and answer; sorted tokens by class, the classes with most requests."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    shown = dict(list(classes.items())[: len(CYCLE)])
    what = "Share of the requests up to a length; marked are the median, the 90th and the 99th percentile"
    with page(path, "Lengths of prompts and answers", what, foot, (9.6, 4.2), 2) as (_, panels):
        for which, (axes, name) in enumerate(zip(panels, ("Prompt", "Answer"), strict=True)):
            for (kind, values), colour in zip(shown.items(), CYCLE, strict=False):
                _share(axes, values[which], colour, kind)
            axes.set_xscale("log")
            ticked(axes.xaxis, "", np.array(axes.get_xlim()))
            axes.set_xlabel(f"{name} (tokens)")
            axes.set_ylabel("Requests (%)")
            axes.set_ylim(0, 140)  # the legend stands above the lines
            axes.set_yticks(range(0, 101, 20))
            axes.grid(visible=True)
            axes.legend(loc="upper left", title="50 / 90 / 99 %", title_fontsize=8.5, alignment="left")


def _share(axes: Axes, values: Any, colour: str, name: str) -> None:
    """The distribution of sorted values as a line, with three percentiles marked, and named in the legend."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    share = 100 * (np.arange(len(values)) + 1) / len(values)
    marks = np.percentile(values, [50, 90, 99])
    label = f"{name}: {' / '.join(f'{mark:,.0f}' for mark in marks)}"
    axes.step(values, share, where="post", color=colour, linewidth=1.3, label=label)
    axes.plot(marks, [50, 90, 99], "o", color=colour, markersize=4)


def draw_reuse(curve: Curve, pauses: Mapping[str, Any], path: str | Path, foot: str = "") -> None:
    """Hit rate over the size of one LRU cache; and where there are sessions, the share of calls that came back by a time."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    what = "What a prefix cache of a size serves, and how long sessions pause"
    with page(path, "Reuse of prompts", what if pauses else what.partition(",")[0], foot, (9.6, 4.2), 1 + bool(pauses)) as (
        _,
        panels,
    ):
        left = panels[0]
        left.plot(curve.limit, 100 * curve.hit, color=CYCLE[0], marker="o", markersize=3.5, label="LRU")
        left.axhline(100 * curve.unlimited, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="without limit")
        left.set_xscale("log")
        left.set_ylim(0, 100)
        left.set_xlabel("Size of the cache (tokens)")
        left.set_ylabel("Hit rate (% of input tokens)")
        left.legend(loc="lower right" if curve.hit[0] > 0.4 else "upper left")
        left.grid(visible=True)
        if not pauses:
            return
        right = panels[1]
        longest = max((float(np.max(v[np.isfinite(v)], initial=1.0)) for v in pauses.values()), default=1.0)
        for (name, values), colour in zip(pauses.items(), CYCLE, strict=False):
            come = np.maximum(values[np.isfinite(values)], 0.1)
            share = 100 * (np.arange(len(come)) + 1) / len(values)
            right.step(come, share, where="post", color=colour, linewidth=1.3, label=f"{name} ({len(values):,} calls)")
        ticks = [(at, text) for at, text in ((0.1, "0.1 s"), *TIMES, (86_400.0, "1 day")) if at <= longest]
        right.set_xscale("log")
        right.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
        right.set_xticks([], minor=True)
        right.set_ylim(0, 100)
        right.set_xlabel("From the end of a call to the next one of its session")
        right.set_ylabel("Calls that came back (%)")
        right.legend(loc="lower right", title="The call ended with", title_fontsize=8.5, alignment="left")
        right.grid(visible=True)


def _span(seconds: float) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size or size == 1)
    return f"{seconds / size:.3g} {unit}"


def draw_over_time(series: Mapping[str, Any], path: str | Path, title: str, foot: str = "") -> None:
    """Requests running and waiting, and KV used and idle, over time; arrays by name, tokens in `capacity_tokens`."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    what = "All instances together, means over time"
    with page(path, title, what, foot, (9.6, 4.2), 2) as (_, (left, right)):
        time = series["time_s"]
        for name, colour in zip(("running", "waiting"), CYCLE, strict=False):
            left.step(time, series[name], where="post", color=colour, linewidth=1.0, label=name)
        left.set_ylabel("Requests")
        right.fill_between(time, 0, series["used_tokens"], step="post", color=CYCLE[0], linewidth=0, label="held by requests")
        top = series["used_tokens"] + series["idle_tokens"]
        right.fill_between(time, series["used_tokens"], top, step="post", color=CYCLE[0], alpha=0.3, linewidth=0, label="idle")
        capacity = float(np.max(series["capacity_tokens"]))
        right.axhline(capacity, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="capacity")
        right.set_ylabel("Tokens of KV in the first tier")
        right.set_ylim(0, 1.22 * capacity)
        ticked(right.yaxis)
        for axes in (left, right):
            axes.set_xlabel("Time (s)")
            axes.set_xlim(float(time[0]), float(time[-1]) if time[-1] > time[0] else float(time[0]) + 1)
            axes.grid(visible=True)
            axes.legend(loc="upper right", ncols=3)
        left.set_ylim(0, 1.22 * max(1.0, float(series["running"].max()), float(series["waiting"].max())))


def draw_percentiles(
    columns: Mapping[str, Any], names: Sequence[str], slos: Mapping[str, Mapping[str, float]], path: str | Path, title: str,
    foot: str = "",
) -> None:  # fmt: skip
    """Share of the requests up to each latency, a panel each, a line a class of requests with its target.

    Parameters
    ----------
    columns
        A value per request by name: s, not finite where there is none; and "class".
    names
        Those that are drawn.
    slos
        Targets (s) of every class by the column that they are of.
    """
    import numpy as np  # noqa: PLC0415 - with the drawing

    kinds = _classes(columns["class"])
    what = "Latency that a share of the requests stays below"
    with page(path, title, what, foot, (9.6, 4.2), len(names)) as (_, panels):
        for axes, name in zip(panels, names, strict=True):
            for kind, colour in zip(kinds, CYCLE, strict=False):
                values = columns[name][(columns["class"] == kind) & np.isfinite(columns[name])]
                share = 100 * (np.arange(len(values)) + 1) / max(1, len(values))
                axes.step(share, np.sort(values), where="pre", color=colour, label=kind if len(kinds) > 1 else None)
            if _targets(axes, [slos.get(kind, {}).get(name) for kind in kinds]) or len(kinds) > 1:
                axes.legend(loc="best")
            known = columns[name][np.isfinite(columns[name])]
            if len(known) and known.min() > 0:
                axes.set_yscale("log")
                ticked(axes.yaxis, "s", known)
            else:
                ticked(axes.yaxis, "s")
            axes.set_xlim(0, 100)
            axes.set_xlabel("Requests (%)")
            axes.set_ylabel(name.removesuffix("_s").upper())
            axes.grid(visible=True)


def _targets(axes: Axes, limits: Sequence[float | None]) -> bool:
    """Targets (s) of classes in their colours, dashes of several in turn; grey where all have the same one. Whether any has."""
    known = sorted({limit for limit in limits if limit is not None})
    colours: Sequence[str] = CYCLE
    if len(limits) == limits.count(known[0] if known else None):
        limits, colours = limits[:1], (GREY,)
    for limit in known:
        own = [colour for colour, each in zip(colours, limits, strict=False) if each == limit]
        for turn, colour in enumerate(own):
            axes.axhline(limit, color=colour, linewidth=0.9, linestyle=(-7 * turn, (4, 7 * len(own) - 4)))
    if known:
        label = "target" if len(limits) == 1 else "targets"
        axes.plot([], [], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label=label)
    return bool(known)


def _classes(column: Any) -> list[str]:
    """Classes of requests, those with most first, as many as there are colours."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    kinds, counts = np.unique(column, return_counts=True)
    found: list[str] = kinds[np.argsort(-counts, kind="stable")][: len(CYCLE)].tolist()
    return found


def draw_scatter(columns: Mapping[str, Any], x: str, y: str, path: str | Path, foot: str = "") -> None:
    """One number of every request over another; colours by its class."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    shown = _classes(columns["class"])
    with page(path, f"{y} over {x}", "Every point a request", foot, (6.4, 4.6)) as (_, (axes,)):
        for kind, colour in zip(shown, CYCLE, strict=False):
            own = columns["class"] == kind
            axes.plot(columns[x][own], columns[y][own], "o", color=colour, markersize=2.5, alpha=0.6, linewidth=0, label=kind)
        for scale, name in ((axes.set_xscale, x), (axes.set_yscale, y)):
            known = columns[name][np.isfinite(columns[name])]
            if span := len(known) > 0 and known.min() > 0:
                scale("log")
            ticked(axes.xaxis if name == x else axes.yaxis, unit_of(name), known if span else None)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(visible=True)
        if len(shown) > 1:
            axes.legend(loc="upper left")
