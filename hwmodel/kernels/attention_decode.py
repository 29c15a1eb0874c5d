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
def one(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray, lazy: bool
) -> None:
    """One op at one point; fills `out` as price does (TIME in s)."""
    b, s, length = dims[0], dims[1], dims[2]
    heads, kv_heads = dims[3], dims[4]
    # the mean over the s new tokens: the last sees `length`, the first s - 1 fewer
    chunk = consts[5] if consts[9] == 1.0 else 0.0
    window = consts[5] - chunk
    seen = visible(length - (s - 1.0) / 2.0, window, consts[6], consts[7])
    read = visible(length, window, consts[6], consts[7])
    if chunk > 0.0:
        before = max(length - s, 0.0)
        seen += causal_pairs(before, s, chunk, 0.0, 0.0, 1.0) / s
        read += min(length, chunk_reach(before, s, chunk))
    seen, read = seen / dims[5], read / dims[5]
    kv = b * kv_heads * read * consts[2] * consts[3]
    activations = b * s * heads * (consts[0] + consts[1]) * consts[4]
    flops = 2.0 * b * s * heads * seen * (consts[0] + consts[1])
    compute = flops / (chip[c.PEAK + where[c.DTYPE]] * chip[c.ATTENTION_EFFICIENCY])
    if chip[c.EXPONENTIALS] > 0.0:
        compute = max(compute, b * s * heads * seen * consts[8] / chip[c.EXPONENTIALS])
    memory = memory_time(0.0, kv, activations, where, chip, out)
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
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j], False)
