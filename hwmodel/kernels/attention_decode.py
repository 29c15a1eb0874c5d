"""Attention of a few new tokens per sequence over a long cache: bound by reading the cache."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.attention import ATTENTION_CONSTS, causal_pairs, chunk_reach, visible
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time

KIND = "attention_decode"
MATRIX = True
DIMS = ("sequences", "queries", "context", "heads", "kv_heads", "shards")
CONSTS = ATTENTION_CONSTS


FEATURES = ("caches", "seen", "group", "width")
"""Sizes that a measured correction goes by: caches read side by side (sequences x KV heads), positions seen in each, query
rows that share one (of all new tokens), elements of a key."""


@bare
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            found[q, j, 0] = dims[q, j, 0] * dims[q, j, 4]
            found[q, j, 1] = visible(dims[q, j, 2], consts[j, 5], consts[j, 6], consts[j, 7]) / dims[q, j, 5]
            found[q, j, 2] = dims[q, j, 1] * dims[q, j, 3] / dims[q, j, 4]
            found[q, j, 3] = consts[j, 0]


@bare
def positions(
    queries: float, length: float, shards: float, window: float, ratio: float, topk: float, chunked: bool
) -> tuple[float, float]:
    """(positions that a query sees in the mean, positions read from memory) by one chip of `shards`; lengths in tokens.

    The mean is over the new tokens: the last sees `length`, those before it fewer; no more of them are than `length`.
    """
    chunk = window if chunked else 0.0
    slides = window - chunk
    seen = visible(length - (min(queries, length) - 1.0) / 2.0, slides, ratio, topk)
    read = visible(length, slides, ratio, topk)
    if chunk > 0.0:
        before = max(length - queries, 0.0)
        seen += causal_pairs(before, queries, chunk, 0.0, 0.0, 1.0) / queries
        read += min(length, chunk_reach(before, queries, chunk))
    return seen / shards, read / shards


@bare
def amounts(pairs: float, key: float, value: float, softmax: float, rate: float, exponentials: float) -> tuple[float, float]:
    """(FLOP, seconds (s) of compute) of query-key pairs; key, value, softmax : CONSTS; rate : FLOP/s; exponentials : 1/s."""
    flops = 2.0 * pairs * (key + value)
    compute = flops / rate
    return flops, max(compute, pairs * softmax / exponentials) if exponentials > 0.0 else compute


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One op at one point; fills `out` as price does (TIME in s)."""
    b, s, heads = dims[0], dims[1], dims[3]
    seen, read = positions(s, dims[2], dims[5], consts[5], consts[6], consts[7], consts[9] == 1.0)
    rate = chip[c.PEAK + where[c.DTYPE]] * chip[c.ATTENTION_EFFICIENCY]
    flops, compute = amounts(b * s * heads * seen, consts[0], consts[1], consts[8], rate, chip[c.EXPONENTIALS])
    activations = b * s * heads * (consts[0] + consts[1]) * consts[4]
    memory = memory_time(0.0, b * dims[4] * read * consts[2] * consts[3], activations, where, chip, out)
    out[c.FLOPS] = flops
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s), FLOP and bytes of decode attention on one chip.

    bytes = B kv_heads positions read_width b; FLOP = 2 B queries heads positions (key + value width), intensity 2 g / b
    independent of the batch; exponentials = B queries heads positions. In fixed chunks of W tokens a query at position L
    sees ((L - 1) mod W) + 1 positions: that of the exact `context`, not the expected value over a chunk.

    dims : (points, ops, 6) sequences on the chip, new tokens per sequence, context (new tokens included), query heads, KV
    heads, and over how many chips the positions are split; consts : (ops, 10); others as in gemm.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
