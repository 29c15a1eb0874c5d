"""Whether and when a conversation comes back: what a KV policy wants to know when a call ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.serve.requests import Array, Ints
from hwmodel.serve.trace import Trace

Flags = NDArray[np.bool_]
HORIZON_S = 600.0
"""Within which a return counts, when nothing else is said."""


@dataclass(frozen=True)
class Returns:
    """Of n finished calls of conversations, in the order of their ends: the next call of the conversation."""

    call: Ints
    """(n,) index of the call in the trace; calls of no conversation are not here."""
    next: Ints
    """(n,) index in the trace of the conversation's next call, -1 for none."""
    end_s: Array
    """(n,) s from the start of the trace: the end of the call."""
    gap_s: Array
    """(n,) s from there to the next call; infinite for none."""
    context: Ints
    """(n,) tokens of the call's prompt, whose KV is kept or not."""
    reused: Ints
    """(n,) tokens of the next call's prompt that this call's prompt began with, in whole blocks."""
    step: Ints
    """(n,) how the call ended, index into the trace's `steps`."""
    horizon_s: float
    prompt_tokens: int
    """Input tokens of all calls of the trace."""

    @property
    def came(self) -> Flags:
        """(n,) whether the conversation came back within the horizon: what is predicted."""
        return np.asarray(self.gap_s <= self.horizon_s)

    def __len__(self) -> int:
        return len(self.call)


def returns_of(trace: Trace, horizon_s: float = HORIZON_S) -> Returns:
    """Next calls of every conversation of a trace, in its own times."""
    requests, n = trace.requests, len(trace)
    following = np.full(n, -1, np.int64)
    order = np.lexsort((requests.arrival_s, trace.chain))
    same = (trace.chain[order[1:]] == trace.chain[order[:-1]]) & (trace.chain[order[1:]] >= 0)
    following[order[:-1][same]] = order[1:][same]
    gap = np.full(n, np.inf)
    has = following >= 0
    gap[has] = np.maximum(requests.arrival_s[following[has]] - trace.end_s[has], 0.0)
    reused = np.zeros(n, np.int64)
    for i in np.flatnonzero(has).tolist():
        j = int(following[i])
        reused[i] = min(_common(requests.blocks, requests.starts, i, j) * requests.block_tokens, requests.prompt[j])
    call = np.flatnonzero(trace.chain >= 0)
    call = call[np.argsort(trace.end_s[call], kind="stable")]
    return Returns(call, following[call], trace.end_s[call], gap[call], requests.prompt[call], reused[call], trace.step[call],
                   horizon_s, int(requests.prompt.sum()))  # fmt: skip


def _common(blocks: Ints, starts: Ints, i: int, j: int) -> int:
    """How many blocks two prompts begin with in common: blocks stand for prefixes, so the last common one tells (bisection)."""
    size = int(min(starts[i + 1] - starts[i], starts[j + 1] - starts[j]))
    first, second = blocks[starts[i] : starts[i] + size], blocks[starts[j] : starts[j] + size]
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first[middle - 1] == second[middle - 1] else (low, middle - 1)
    return low


def auc(came: Flags, score: Array) -> float:
    """Area under the ROC curve: the chance that a return scores higher than another call, ties half (Mann and Whitney, 1947).

    NaN when there are only returns, or none.
    """
    positive = int(came.sum())
    negative = len(came) - positive
    if not positive or not negative:
        return float("nan")
    _, where, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[where]  # the mean rank of equal scores
    return float((rank[came].sum() - positive * (positive + 1) / 2) / (positive * negative))


def rates(returns: Returns) -> Array:
    """(n,) share of calls that return, among those that ended the same way: what is known without a predictor."""
    count = np.bincount(returns.step)
    return np.asarray((np.bincount(returns.step, returns.came) / np.maximum(count, 1))[returns.step])


def break_even_s(prefill_s_per_token: float, free_bytes: float, kv_bytes_per_token: float) -> float:
    """How long (s) KV may lie in an instance's memory before computing it again is cheaper: T C_free / kv.

    Memory that holds the KV of `free_bytes` rents as much as the instance; a token's KV takes its share of it.
    """
    return prefill_s_per_token * free_bytes / kv_bytes_per_token
