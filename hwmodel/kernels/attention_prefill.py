"""Causal attention of many new tokens per sequence: bound by compute."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.attention import ATTENTION_CONSTS, causal_pairs, chunk_reach, visible
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time

KIND = "attention_prefill"
MATRIX = True
DIMS = ("sequences", "new", "cached", "heads", "kv_heads", "shards")
CONSTS = ATTENTION_CONSTS


FEATURES = ("heads", "new", "window", "width")
"""Sizes that a measured correction goes by: query heads of all sequences, new tokens of each, the window (1: none),
elements of a key. Windows and wide heads often run another kernel."""


@bare
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            found[q, j, 0] = dims[q, j, 0] * dims[q, j, 3]
            found[q, j, 1] = dims[q, j, 1]
            found[q, j, 2] = max(consts[j, 5], 1.0)
            found[q, j, 3] = consts[j, 0]


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One op at one point; fills `out` as price does (TIME in s)."""
    b, s, cached = dims[0], dims[1], dims[2]
    heads, kv_heads, shards = dims[3], dims[4], dims[5]
    pairs = b * heads * causal_pairs(cached, s, consts[5], consts[6], consts[7], consts[9]) / shards
    flops = 2.0 * pairs * (consts[0] + consts[1])
    compute = flops / (chip[c.PEAK + where[c.DTYPE]] * chip[c.ATTENTION_EFFICIENCY])
    if chip[c.EXPONENTIALS] > 0.0:
        compute = max(compute, pairs * consts[8] / chip[c.EXPONENTIALS])
    # the window of every new token: at most all positions, each read once from memory
    chunk = consts[5] if consts[9] == 1.0 else 0.0
    read = visible(cached + s, consts[5] - chunk, consts[6], 0.0) + (s if consts[5] - chunk > 0.0 else 0.0)
    if chunk > 0.0:  # from the start of the first token's chunk
        read += chunk_reach(cached, s, chunk)
    read = min(cached + s, read)
    kv = b * kv_heads * read * consts[2] * consts[3]
    activations = b * s * heads * (consts[0] + consts[1]) * consts[4] / shards
    memory = memory_time(0.0, kv, activations, where, chip, out)
    out[c.FLOPS] = flops
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s), FLOP and bytes of prefill attention on one chip.

    FLOP = 2 B heads (key + value width) (S cached + S (S + 1) / 2); the exponentials run beside the products and set the
    pace when slower (FlashAttention-3, section 3.1: 49.5 % of the matrix time on H100 at width 128).

    dims : (points, ops, 6) sequences, new tokens each, tokens cached before them, query heads, KV heads, and over how many
    chips the pairs are split; consts : (ops, 10); others as in gemm.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
