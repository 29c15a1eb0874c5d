"""What users feel and what operators pay for, from a run: latencies, goodput, utilisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.engine import Run
from hwmodel.serve.requests import TARGETS

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quantiles:
    """Of one latency; s."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


def quantiles(values: Array) -> Quantiles | None:
    """Mean, percentiles and maximum; None of nothing."""
    if not len(values):
        return None
    found = np.percentile(values, [50, 90, 99])
    return Quantiles(float(values.mean()), float(found[0]), float(found[1]), float(found[2]), float(values.max()))


def ttft_s(run: Run) -> Array:
    """(requests,) s from arrival to the first token; NaN of those that were rejected."""
    return _between(run, c.ARRIVAL, c.FIRST)


def tpot_s(run: Run) -> Array:
    """(requests,) s per output token after the first; NaN of those with one token."""
    after = run.requests.output - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(after > 0, _between(run, c.FIRST, c.LAST) / after, np.nan)


def e2e_s(run: Run) -> Array:
    """(requests,) s from arrival to the answer."""
    return _between(run, c.ARRIVAL, c.FINISH)


def queue_s(run: Run) -> Array:
    """(requests,) s from arrival to the iteration in which it first computes."""
    return _between(run, c.ARRIVAL, c.SCHEDULED)


def _between(run: Run, first: int, last: int) -> Array:
    return np.where(run.finished, run.when[:, last] - run.when[:, first], np.nan)


def itl(run: Run) -> Quantiles | None:
    """Gaps between tokens of all requests; percentiles from a histogram whose bins are 0.5 % wide."""
    count = int(run.total[c.GAPS])
    if not count:
        return None
    below = np.cumsum(run.gaps)
    edges = 2.0 ** (np.arange(len(run.gaps) + 1) / c.BINS_PER_OCTAVE - 20)
    longest = float(run.total[c.LONGEST_GAP_S])

    def at(share: float) -> float:
        i = int(np.searchsorted(below, share * count))
        inside = (share * count - (below[i - 1] if i else 0)) / run.gaps[i]
        return min(longest, float(edges[i] + inside * (edges[i + 1] - edges[i])))

    return Quantiles(float(run.total[c.TOTAL_GAP_S]) / count, at(0.5), at(0.9), at(0.99), longest)


def within(run: Run, slo: Mapping[str, float]) -> NDArray[np.bool_]:
    """(requests,) whether all targets of a request are met: its own, else those of `slo` (ttft, tpot, e2e; s)."""
    met = run.finished.copy()
    for i, (name, values) in enumerate(zip(TARGETS, (ttft_s(run), tpot_s(run), e2e_s(run)), strict=True)):
        limit = np.full(len(met), slo.get(name, np.inf))
        if run.requests.limits is not None:
            own = run.requests.limits[:, i]
            limit = np.where(np.isnan(own), limit, own)
        with np.errstate(invalid="ignore"):
            met &= np.isnan(values) | (values <= limit)
    return met


def makespan_s(run: Run) -> float:
    """From the first arrival to the last answer."""
    done = run.finished
    return float(run.when[done, c.FINISH].max() - run.when[done, c.ARRIVAL].min()) if done.any() else 0.0


def hit_rate(run: Run) -> float:
    """Share of the input tokens of finished requests that were in the cache when they were first admitted."""
    done = run.finished
    return float(np.maximum(run.req[done, c.HIT], 0).sum() / max(1, run.req[done, c.PROMPT].sum()))


def slot_utilisation(run: Run) -> float:
    """Decode rows that made a token, of those computed: less than 1 where a static batch computes rows that have ended."""
    return float(run.inst[:, c.ROWS].sum() / max(1, run.inst[:, c.SLOTS].sum()))


def waste_tokens(run: Run) -> float:
    """Tokens of its pages that a sequence leaves empty at its end, mean."""
    return float(run.meter[:, c.WASTE].sum() / max(1.0, run.meter[:, c.WASTED].sum()))


def kv_use(run: Run) -> float:
    """Tokens in the cache over the tokens that running sequences hold room for, over time."""
    return float(run.meter[:, c.USED_TOKEN_S].sum() / max(1e-30, run.meter[:, c.HELD_TOKEN_S].sum()))


PARTS = ("queue", "load", "prefill", "transfer", "preemption")
"""Of a time to first token."""


def ttft_parts(run: Run) -> dict[str, Array]:
    """What TTFT consists of, (requests,) s each, which add up to it; NaN of those that were rejected.

    queue: before the first iteration that computes for it, reading of KV aside; load: KV from lower tiers; preemption: from
    that iteration to the one in which the computing that came to an end began, 0 for who was not preempted before its first
    token; prefill: from there to the first token; transfer: 0, since the instance that computes the prompt gives the first
    token and the KV moves behind it (see `transfer_s`).
    """
    load = np.where(run.finished, np.minimum(run.when[:, c.LOADING_S], queue_s(run)), np.nan)
    return {
        "queue": queue_s(run) - load, "load": load, "prefill": _between(run, c.BEGUN, c.FIRST), "transfer": 0.0 * load,
        "preemption": _between(run, c.SCHEDULED, c.BEGUN),
    }  # fmt: skip


def slowest_parts(run: Run) -> dict[str, float] | None:
    """Mean TTFT (s) of the slowest hundredth of the requests, and where it went."""
    first = ttft_s(run)
    known = np.isfinite(first)
    if not known.any():
        return None
    slow = np.flatnonzero(known & (first >= np.percentile(first[known], 99)))
    parts = ttft_parts(run)
    return {"ttft_s": float(first[slow].mean()), **{f"{name}_s": float(parts[name][slow].mean()) for name in PARTS}}


def transfer_s(run: Run) -> Array:
    """(requests,) s from the end of the prompt to the KV's arrival where it is decoded; NaN of those that never moved."""
    moved = run.finished & (run.when[:, c.TRANSFER_S] > 0)
    return np.where(moved, run.when[:, c.TRANSFER_S], np.nan)


def session_s(run: Run) -> Array:
    """(sessions,) s from a session's first arrival to its last answer, of sessions of which nothing was rejected."""
    session = run.requests.session
    count = int(session.max(initial=-1)) + 1
    begin, end, whole = np.full(count, np.inf), np.full(count, -np.inf), np.ones(count, dtype=bool)
    own = session >= 0
    np.minimum.at(begin, session[own], run.when[own, c.ARRIVAL])
    np.maximum.at(end, session[own], run.when[own, c.FINISH])
    np.logical_and.at(whole, session[own], run.finished[own])
    return np.asarray((end - begin)[whole & np.isfinite(end)])


def over_time(run: Run) -> dict[str, Array | float]:
    """The time series of a run: s, requests running (those whose KV is on its way among them) and waiting, tokens of KV."""
    rows, page = run.series, run.fleet.page
    return {
        "time_s": rows[:, c.AT_S], "running": rows[:, c.RUNNING_] + rows[:, c.LOADING_], "waiting": rows[:, c.WAITING_],
        "used_tokens": rows[:, c.USED_PAGES] * page, "idle_tokens": rows[:, c.IDLE_PAGES] * page,
        "capacity_tokens": float(run.inst[:, c.CAPACITY].sum() * page),
    }  # fmt: skip
