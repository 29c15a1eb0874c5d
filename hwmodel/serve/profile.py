"""What a trace is like over time: how much comes when, how long it is, how long sessions pause."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwmodel.serve.requests import Array, Requests
from hwmodel.serve.returns import returns_of
from hwmodel.serve.trace import Trace

BINS = 100
"""Of the time of a trace; fewer where there are few requests."""


@dataclass(frozen=True)
class Arrivals:
    """What comes in each part of a trace's time; rates are means over a part."""

    edges_s: Array
    """(parts + 1,) s."""
    requests_per_s: Array
    prompt_per_s: Array
    output_per_s: Array
    """(parts,) tokens per s."""


def arrivals_over_time(requests: Requests, bins: int = BINS) -> Arrivals:
    """How many requests and tokens come, over the time of the trace in equal parts."""
    at = requests.arrival_s
    first, last = float(at.min()), float(at.max())
    edges = np.linspace(first, last if last > first else first + 1.0, max(1, min(bins, len(requests) // 4)) + 1)
    width = edges[1] - edges[0]
    counts = [np.histogram(at, edges, weights=weights)[0] / width for weights in (None, requests.prompt, requests.output)]
    return Arrivals(edges, *counts)


def lengths(requests: Requests) -> dict[str, tuple[Array, Array]]:
    """(prompt, output) tokens of the requests of every class, sorted; classes in order of their number of requests."""
    found = {}
    for i in np.argsort(-np.bincount(requests.tier, minlength=len(requests.tiers)), kind="stable"):
        own = requests.tier == i
        if own.any():
            found[requests.tiers[i]] = (np.sort(requests.prompt[own]), np.sort(requests.output[own]))
    return found


def pauses_s(trace: Trace) -> dict[str, Array]:
    """Sorted s from the end of a call to its conversation's next one, by how the call ended; infinite where none comes."""
    returns = returns_of(trace)
    found = {}
    for i, name in enumerate(trace.steps):
        own = returns.step == i
        if own.any():
            found[name or "not stated"] = np.sort(returns.gap_s[own])
    return found
