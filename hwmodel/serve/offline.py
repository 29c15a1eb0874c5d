"""What can be known of a trace without an engine: how much of its prompts a prefix cache would hold, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels.stack_distance import stack_depths
from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.scratch import column, parts
from hwmodel.serve.trace import Trace

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Share of input tokens that a cache serves, over a limit of the cache."""

    limit: Array
    """Eviction timeout in s, or size in tokens."""
    hit: Array
    """Share of all input tokens, 0 to 1."""
    unlimited: float
    """The share at no limit: no cache does better."""
    held_tokens: Array
    """Tokens in the cache: the mean over the trace under a timeout, the size itself under a size."""


@dataclass(frozen=True)
class Statistics:
    """A trace at a glance; tokens and seconds."""

    requests: int
    sessions: int
    span_s: float
    """From the first arrival to the last."""
    rate_per_s: float
    prompt_mean: float
    prompt_median: float
    prompt_max: int
    output_mean: float
    output_median: float
    output_max: int
    distinct_blocks: int
    calls_per_session: float
    """Mean; NaN without sessions."""
    unlimited_hit: float


def statistics(requests: Requests) -> Statistics:
    """The figures of a trace that a report shows first."""
    sessions = len(np.unique(requests.session[requests.session >= 0]))
    calls = int((requests.session >= 0).sum())
    blocks = int(np.count_nonzero(np.bincount(requests.blocks)))
    span = float(requests.arrival_s.max() - requests.arrival_s.min())
    return Statistics(
        len(requests), sessions, span, len(requests) / span if span > 0 else float("nan"),
        float(requests.prompt.mean()), float(np.median(requests.prompt)), int(requests.prompt.max()),
        float(requests.output.mean()), float(np.median(requests.output)), int(requests.output.max()),
        blocks, calls / sessions if sessions else float("nan"), unlimited_hit(requests),
    )  # fmt: skip


def unlimited_hit(requests: Requests, counted: Flags | None = None) -> float:
    """Share of input tokens that a prefix cache of unlimited size has when the requests run one by one, as they are listed.

    counted : (requests,) those whose tokens count, although all leave theirs in the cache; all when absent
    """
    hits, had, total = hit_tokens(requests), 0, 0
    for part in parts(len(requests), hits, requests.prompt, counted):
        which = slice(None) if counted is None else counted[part]
        had, total = had + int(hits[part][which].sum()), total + int(requests.prompt[part][which].sum())
    return had / total


def hit_tokens(requests: Requests) -> Ints:
    """(n,) tokens of every prompt that an earlier request began with, in whole blocks (of the last one, what is filled)."""
    blocks, starts = requests.blocks, requests.starts
    if not len(blocks):
        return np.zeros(len(requests), np.int64)
    known = np.zeros(requests.distinct_blocks, bool)
    found = column(len(requests), np.int64)
    for part in parts(len(requests), found, blocks, starts, requests.prompt):
        for i, (begin, end) in enumerate(pairwise(starts[part.start : part.stop + 1].tolist()), part.start):
            own = blocks[begin:end]
            found[i] = np.count_nonzero(known[own])
            known[own] = True
        found[part] = np.minimum(found[part] * requests.block_tokens, requests.prompt[part])
    return found


def _per_request(starts: Ints, hits: np.ndarray) -> Ints:
    """(n,) how many blocks of every request are hits; all before a hit are, too, for blocks stand for prefixes."""
    total = np.concatenate(([0], np.cumsum(hits)))
    return np.asarray(total[starts[1:]] - total[starts[:-1]], np.int64)


def hit_over_timeout(trace: Trace, timeout_s: Sequence[float]) -> Curve:
    """Hit rate of a cache of any size that drops a block when it was not in use for a time.

    Times are the trace's own: a block is in use from a request's arrival to the end of its answer. Where a trace says nothing
    of answers, they take no time.

    Parameters
    ----------
    timeout_s
        Timeouts in s, ascending.
    """
    requests = trace.requests
    limits = np.asarray(timeout_s, float)
    arrival, block_tokens = requests.arrival_s, requests.block_tokens
    last = np.full(int(requests.blocks.max(initial=-1)) + 1, -np.inf)
    hits = np.zeros(len(limits))
    idle_token_s = np.zeros(len(limits))
    busy_token_s = 0.0
    for i in np.argsort(arrival, kind="stable"):
        ids = requests.blocks[requests.starts[i] : requests.starts[i + 1]]
        if not len(ids):
            continue
        idle = np.maximum(arrival[i] - last[ids], 0.0)  # ascending: a block is used whenever one behind it is
        counts = np.searchsorted(idle, limits, "right")
        hits += np.minimum(counts * block_tokens, requests.prompt[i])
        old = idle[: np.searchsorted(idle, np.inf)]
        sums = np.concatenate(([0.0], np.cumsum(old)))
        counts = np.minimum(counts, len(old))
        idle_token_s += (sums[counts] + (len(old) - counts) * limits) * block_tokens
        used = np.maximum(last[ids], trace.end_s[i])
        busy_token_s += float((used - np.maximum(last[ids], arrival[i])).sum()) * block_tokens
        last[ids] = used
    left = trace.end_s.max(initial=0.0) - last[last > -np.inf]
    idle_token_s += [np.minimum(left, limit).sum() * block_tokens for limit in limits]  # after its last use, or to the end
    span = float(trace.end_s.max(initial=0.0) - arrival.min(initial=0.0))
    held = (busy_token_s + idle_token_s) / span if span > 0 else np.full(len(limits), np.nan)
    total = float(requests.prompt.sum())
    return Curve(limits, hits / total, unlimited_hit(requests), held)


def hit_over_size(requests: Requests, size_tokens: Sequence[float]) -> Curve:
    """Hit rate of one cache of a size under LRU, the requests one by one in order of arrival, from stack distances.

    Parameters
    ----------
    size_tokens
        Sizes in tokens.
    """
    limits = np.asarray(size_tokens, float)
    order = np.argsort(requests.arrival_s, kind="stable")
    depth = stack_depths(requests.starts, requests.blocks, order, int(requests.blocks.max(initial=-1)) + 1)
    hits = np.zeros(len(limits))
    for place, limit in enumerate(limits):
        fits = (depth > 0) & (depth <= limit // requests.block_tokens)
        hits[place] = np.minimum(_per_request(requests.starts, fits) * requests.block_tokens, requests.prompt).sum()
    return Curve(limits, hits / float(requests.prompt.sum()), unlimited_hit(requests), limits)


def coarser(requests: Requests, factor: int) -> Requests:
    """The same requests with blocks of `factor` blocks: a whole one is known by its last; the rest of a prompt is its own.

    Less memory and time for a trace of long prompts; a hit loses at most a block of the new size.
    """
    whole = np.diff(requests.starts) // factor
    rest = requests.prompt > whole * requests.block_tokens * factor
    sizes = whole + rest
    starts = np.concatenate(([0], np.cumsum(sizes)))
    blocks = np.empty(starts[-1], np.int64)
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    full = place < np.repeat(whole, sizes)
    blocks[full] = requests.blocks[(np.repeat(requests.starts[:-1], sizes) + (place + 1) * factor - 1)[full]]
    blocks[~full] = int(requests.blocks.max(initial=-1)) + 1 + np.arange(int((~full).sum()))
    ids = np.zeros(int(blocks.max(initial=-1)) + 1, np.int64)
    ids[blocks] = 1
    dense = (np.cumsum(ids) - 1)[blocks]
    values = {**vars(requests), "starts": starts, "blocks": dense, "block_tokens": requests.block_tokens * factor}
    return Requests(**values)
