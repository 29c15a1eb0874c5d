"""How many cached positions a query sees: causal, windowed, in chunks, compressed, top-k."""

import numpy as np

from hwmodel.kernels.bare import bare

ATTENTION_CONSTS = (
    "key_width",
    "value_width",
    "read_width",
    "kv_bytes",
    "activation_bytes",
    "window",
    "ratio",
    "topk",
    "softmax",
    "chunked",
)
"""Widths per head in elements; read_width: elements read per cached position and KV head (a latent is read once);
chunked: 1 when the window is a fixed chunk of the text instead of one that slides."""


@bare
def chunk_reach(cached: float, new: float, window: float) -> float:
    """Positions from the start of the chunk of the first of `new` tokens behind `cached` ones to the last token.

    cached + new - W floor(cached / W); of one token at position L = cached + 1: ((L - 1) mod W) + 1. The exact position
    counts, not the mean over a chunk: a step at the start of a chunk is short.
    """
    return cached + new - window * np.floor(cached / window)


@bare
def visible(length: float, window: float, ratio: float, topk: float) -> float:
    """Positions that the last token of a sequence of `length` attends to.

    A sliding window sees min(length, window); a compressed or plain cache sees length / ratio entries, at most topk of
    them (0: all). ratio = 0: no such part; window = 0: no window part. Fixed chunks: see chunk_reach.
    """
    seen = 0.0
    if window > 0.0:
        seen += min(length, window)
    if ratio > 0.0:
        entries = length / ratio
        seen += min(entries, topk) if topk > 0.0 else entries
    return seen


@bare
def sum_of_min(first: float, count: float, limit: float) -> float:
    """Sum of min(first + i, limit) for i = 1 .. count."""
    rising = min(max(limit - first, 0.0), count)
    rising = np.floor(rising)
    return rising * first + rising * (rising + 1.0) / 2.0 + (count - rising) * limit


@bare
def chunk_pairs(length: float, window: float) -> float:
    """Pairs of the first `length` tokens in chunks of W: q W (W + 1) / 2 + r (r + 1) / 2 with length = q W + r."""
    whole = np.floor(length / window)
    rest = length - whole * window
    return whole * window * (window + 1.0) / 2.0 + rest * (rest + 1.0) / 2.0


@bare
def causal_pairs(cached: float, new: float, window: float, ratio: float, topk: float, chunked: float) -> float:
    """Query-key pairs of `new` tokens behind `cached` ones: new cached + new (new + 1) / 2 without window."""
    pairs = 0.0
    if window > 0.0:
        if chunked == 1.0:
            pairs += chunk_pairs(cached + new, window) - chunk_pairs(cached, window)
        else:
            pairs += sum_of_min(cached, new, window)
    if ratio > 0.0:
        limit = topk * ratio if topk > 0.0 else np.inf
        if limit == np.inf:
            pairs += (new * cached + new * (new + 1.0) / 2.0) / ratio
        else:
            pairs += sum_of_min(cached, new, limit) / ratio
    return pairs
