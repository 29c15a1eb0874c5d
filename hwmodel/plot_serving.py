"""Pictures of traces and of serving, drawn from plain data; matplotlib is loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.plot_page import CYCLE, GREY, page
from hwmodel.serve.offline import Curve

if TYPE_CHECKING:
    pass

TIMES = ((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (36000.0, "10 h"))
"""Ticks of an axis of time."""


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
            axes.minorticks_off()
            axes.set_xlabel("Eviction timeout")
            axes.grid(visible=True)
        right.legend(*left.get_legend_handles_labels(), loc="upper left")  # the lines rise: this corner is empty


def draw_over_time(series: Mapping[str, Any], path: str | Path, title: str, foot: str = "") -> None:
    """Requests running and waiting, and KV used and idle, over time; arrays by name, tokens in `capacity_tokens`."""
    what = "All instances together, at the ends of iterations"
    with page(path, title, what, foot, (9.6, 4.2), 2) as (_, (left, right)):
        time = series["time_s"]
        for name, colour in zip(("running", "waiting"), CYCLE, strict=False):
            left.step(time, series[name], where="post", color=colour, linewidth=1.0, label=name)
        left.set_ylabel("Requests")
        right.fill_between(time, 0, series["used_tokens"], step="post", color=CYCLE[0], linewidth=0, label="held by requests")
        top = series["used_tokens"] + series["idle_tokens"]
        right.fill_between(time, series["used_tokens"], top, step="post", color=CYCLE[0], alpha=0.3, linewidth=0, label="idle")
        right.axhline(series["capacity_tokens"], color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="capacity")
        right.set_ylabel("Tokens of KV in the first tier")
        right.set_ylim(0, 1.22 * series["capacity_tokens"])
        for axes in (left, right):
            axes.set_xlabel("Time (s)")
            axes.set_xlim(float(time[0]), float(time[-1]) if time[-1] > time[0] else float(time[0]) + 1)
            axes.grid(visible=True)
            axes.legend(loc="upper right", ncols=3)
        left.set_ylim(0, 1.22 * max(1.0, float(series["running"].max()), float(series["waiting"].max())))


def draw_percentiles(latencies: Mapping[str, Any], path: str | Path, title: str, foot: str = "") -> None:
    """Share of the requests up to each latency: s by name, one panel each; targets as `NAME target`."""
    import numpy as np  # noqa: PLC0415 - with the drawing

    names = [name for name in latencies if not name.endswith(" target")]
    what = "Latency that a share of the requests stays below"
    with page(path, title, what, foot, (9.6, 4.2), len(names)) as (_, panels):
        for axes, name in zip(panels, names, strict=True):
            values = np.sort(latencies[name])
            share = 100 * (np.arange(len(values)) + 1) / max(1, len(values))
            axes.step(share, values, where="pre", color=CYCLE[0])
            if limit := latencies.get(f"{name} target"):
                axes.axhline(limit, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), label="target")
                axes.legend(loc="lower right")  # the curve rises there
            if len(values) and values[0] > 0:
                axes.set_yscale("log")
            axes.set_xlim(0, 100)
            axes.set_xlabel("Requests (%)")
            axes.set_ylabel(f"{name} (s)")
            axes.grid(visible=True)
