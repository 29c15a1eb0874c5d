"""What users feel and what operators pay for, from a run: latencies, goodput, utilisation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.engine import Run
from hwmodel.serve.requests import TARGETS, Array
from hwmodel.serve.scratch import filled, parts
from hwmodel.serve.selection import kept, mean, percentiles

SHOWN = 20_000
"""Points of a curve beyond which nobody sees more."""


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
    found = percentiles(values, [50, 90, 99])
    most = max(float(values[part].max()) for part in parts(len(values), values))
    return Quantiles(mean(values), float(found[0]), float(found[1]), float(found[2]), most)


def ttft_s(run: Run) -> Array:
    """(requests,) s from arrival to the first token; NaN of those that were rejected."""
    return _column(run, _ttft_s)


def tpot_s(run: Run) -> Array:
    """(requests,) s per output token after the first; NaN of those with one token."""
    return _column(run, _tpot_s)


def e2e_s(run: Run) -> Array:
    """(requests,) s from arrival to the answer."""
    return _column(run, _e2e_s)


def queue_s(run: Run) -> Array:
    """(requests,) s from arrival to the iteration in which it first computes."""
    return _column(run, _queue_s)


def finite(run: Run, name: str, chosen: NDArray[np.bool_] | None = None) -> Array:
    """What is known of a latency of `LATENCIES`, s, in the order of the trace; of the (requests,) chosen ones."""
    value = LATENCIES[name]

    def some(part: slice) -> Array:
        found = value(run, part)
        return found if chosen is None else found[chosen[part]]

    return kept(len(run), some, run.when, run.req, run.requests.output, chosen)


def done_in(run: Run, part: slice) -> NDArray[np.bool_]:
    """Which of a part of the requests finished."""
    return np.asarray(run.req[part, c.STATE] == c.FINISHED)


def _ttft_s(run: Run, part: slice) -> Array:
    return _between(run, part, c.ARRIVAL, c.FIRST)


def _tpot_s(run: Run, part: slice) -> Array:
    after = run.requests.output[part] - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(after > 0, _between(run, part, c.FIRST, c.LAST) / after, np.nan)


def _e2e_s(run: Run, part: slice) -> Array:
    return _between(run, part, c.ARRIVAL, c.FINISH)


def _queue_s(run: Run, part: slice) -> Array:
    return _between(run, part, c.ARRIVAL, c.SCHEDULED)


def _transfer_s(run: Run, part: slice) -> Array:
    time = run.when[part, c.TRANSFER_S]
    return np.where(done_in(run, part) & (time > 0), time, np.nan)


LATENCIES: dict[str, Callable[[Run, slice], Array]] = {
    "ttft_s": _ttft_s, "tpot_s": _tpot_s, "e2e_s": _e2e_s, "queue_s": _queue_s, "transfer_s": _transfer_s,
}  # fmt: skip
"""Of a part of the requests, s; NaN where there is none."""


def _between(run: Run, part: slice, first: int, last: int) -> Array:
    when = run.when[part]
    return np.where(done_in(run, part), when[:, last] - when[:, first], np.nan)


def _column(run: Run, value: Callable[[Run, slice], Array]) -> Array:
    return filled(len(run), lambda part: value(run, part), run.when, run.req, run.requests.output)


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
    """(requests,) whether all targets of a request are met: its class's own, else those of `slo` (ttft, tpot, e2e; s)."""
    own = run.requests.limits

    def met(part: slice) -> NDArray[np.bool_]:
        found = done_in(run, part)
        for i, name in enumerate(TARGETS):
            values, limit = LATENCIES[f"{name}_s"](run, part), np.asarray(slo.get(name, np.inf))
            if own is not None:
                limit = np.where(np.isnan(own[:, i]), limit, own[:, i])[run.requests.tier[part]]
            with np.errstate(invalid="ignore"):
                found &= np.isnan(values) | (values <= limit)
        return found

    return filled(len(run), met, run.when, run.req, run.requests.output, run.requests.tier, dtype=np.bool_)


def makespan_s(run: Run) -> float:
    """From the first arrival to the last answer."""
    first, last = np.inf, -np.inf
    for part in parts(len(run), run.when, run.req):
        done = done_in(run, part)
        first = min(first, float(run.when[part, c.ARRIVAL][done].min(initial=np.inf)))
        last = max(last, float(run.when[part, c.FINISH][done].max(initial=-np.inf)))
    return last - first if np.isfinite(last) else 0.0


def hit_rate(run: Run) -> float:
    """Share of the input tokens of finished requests that were in the cache when they were first admitted."""
    had = total = 0
    for part in parts(len(run), run.req, run.requests.prompt):
        done = done_in(run, part)
        had += int(np.maximum(run.req[part, c.HIT][done], 0).sum())
        total += int(run.requests.prompt[part][done].sum())
    return had / max(1, total)


def finished_tokens(run: Run) -> int:
    """Output tokens of the requests that finished."""
    return _of_finished(run, run.requests.output)


def finished_inputs(run: Run) -> int:
    """Input tokens of the requests that finished, those found in caches too."""
    return _of_finished(run, run.requests.prompt)


def _of_finished(run: Run, column: NDArray[Any]) -> int:
    return sum(int(column[p][done_in(run, p)].sum()) for p in parts(len(run), run.req, column))


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


def ttft_parts(run: Run, part: slice = slice(None)) -> dict[str, Array]:
    """What TTFT consists of, (requests,) s each, which add up to it; NaN of those that were rejected.

    queue: before the first iteration that computes for it, reading of KV aside; load: KV from lower tiers; preemption: from
    that iteration to the one in which the computing that came to an end began, 0 for who was not preempted before its first
    token; prefill: from there to the first token; transfer: 0, since the instance that computes the prompt gives the first
    token and the KV moves behind it (see `transfer_s`).
    """
    queue = _queue_s(run, part)
    load = np.where(done_in(run, part), np.minimum(run.when[part, c.LOADING_S], queue), np.nan)
    return {
        "queue": queue - load, "load": load, "prefill": _between(run, part, c.BEGUN, c.FIRST), "transfer": 0.0 * load,
        "preemption": _between(run, part, c.SCHEDULED, c.BEGUN),
    }  # fmt: skip


def slowest_parts(run: Run) -> dict[str, float] | None:
    """Mean TTFT (s) of the slowest hundredth of the requests, and where it went."""
    first = finite(run, "ttft_s")
    if not len(first):
        return None
    limit = percentiles(first, [99])[0]

    def slow(name: str) -> float:
        def own(part: slice) -> Array:
            time = _ttft_s(run, part)
            values = time if name == "ttft" else ttft_parts(run, part)[name]
            return np.asarray(values[time >= limit])

        return mean(kept(len(run), own, run.when, run.req))

    return {f"{name}_s": slow(name) for name in ("ttft", *PARTS)}


def transfer_s(run: Run) -> Array:
    """(requests,) s from the end of the prompt to the KV's arrival where it is decoded; NaN of those that never moved."""
    return _column(run, _transfer_s)


def session_s(run: Run) -> Array:
    """(sessions,) s from a session's first arrival to its last answer, of sessions of which nothing was rejected."""
    session = run.requests.session
    count = 1 + max(int(session[part].max()) for part in parts(len(run), session)) if len(run) else 0
    if not count:
        return np.zeros(0)
    begin, end = filled(count, lambda _: np.array(np.inf)), filled(count, lambda _: np.array(-np.inf))
    whole = filled(count, lambda _: np.array(True), dtype=np.bool_)
    for part in parts(len(run), session, run.when, run.req, begin, end, whole):
        own = session[part] >= 0
        number, when = session[part][own], run.when[part][own]
        np.minimum.at(begin, number, when[:, c.ARRIVAL])
        np.maximum.at(end, number, when[:, c.FINISH])
        np.logical_and.at(whole, number, done_in(run, part)[own])
    return kept(count, lambda part: np.where(whole[part], end[part] - begin[part], np.nan), begin, end, whole)


def over_time(run: Run) -> dict[str, Array | float]:
    """The time series of a run: s, requests running (those whose KV is on its way among them) and waiting, tokens of KV."""
    rows, page = run.series, run.fleet.page
    return {
        "time_s": rows[:, c.AT_S], "running": rows[:, c.RUNNING_] + rows[:, c.LOADING_], "waiting": rows[:, c.WAITING_],
        "used_tokens": rows[:, c.USED_PAGES] * page, "idle_tokens": rows[:, c.IDLE_PAGES] * page,
        "capacity_tokens": float(run.inst[:, c.CAPACITY].sum() * page),
    }  # fmt: skip


def curves(run: Run, names: Sequence[str]) -> dict[str, dict[str, Array]]:
    """Sorted values (s) of latencies that any request has, by name and class of requests, those with most first.

    Of more than `SHOWN` they are so many of them, each as far from the next in rank.
    """
    requests = run.requests
    counts = np.zeros(len(requests.tiers), np.int64)
    for part in parts(len(requests), requests.tier):
        counts += np.bincount(requests.tier[part], minlength=len(counts))
    order = [int(tier) for tier in np.argsort(-counts, kind="stable") if counts[tier]]
    found: dict[str, dict[str, Array]] = {}
    for name in names:
        own = {requests.tiers[tier]: _thinned(finite(run, name, requests.tier == tier)) for tier in order}
        if any(len(values) for values in own.values()):
            found[name] = own
    return found


def _thinned(values: Array) -> Array:
    values.sort()
    return values if len(values) <= SHOWN else values[np.linspace(0, len(values) - 1, SHOWN).astype(np.int64)]
