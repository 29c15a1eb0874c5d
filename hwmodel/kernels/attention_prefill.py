"""Causal attention of many new tokens per sequence: bound by compute."""

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c
from hwmodel.kernels.attention import ATTENTION_CONSTS, causal_pairs, chunk_reach, visible
from hwmodel.kernels.memory import finish, memory_time

KIND = "attention_prefill"
MATRIX = True
DIMS = ("sequences", "new", "cached", "heads", "kv_heads", "shards")
CONSTS = ATTENTION_CONSTS


FEATURES = ("heads", "new", "window", "width")
"""Sizes that a measured correction goes by: query heads of all sequences, new tokens of each, the window (1: none),
elements of a key. Windows and wide heads often run another kernel."""


@njit(cache=True, nogil=True)
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            found[q, j, 0] = dims[q, j, 0] * dims[q, j, 3]
            found[q, j, 1] = dims[q, j, 1]
            found[q, j, 2] = max(consts[j, 5], 1.0)
            found[q, j, 3] = consts[j, 0]


@njit(cache=True, nogil=True)
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
            b, s, cached = dims[q, j, 0], dims[q, j, 1], dims[q, j, 2]
            heads, kv_heads, shards = dims[q, j, 3], dims[q, j, 4], dims[q, j, 5]
            a = consts[j]
            chip = device[dq, where[j, c.ROW]]
            o = out[q, j]
            pairs = b * heads * causal_pairs(cached, s, a[5], a[6], a[7], a[9]) / shards
            flops = 2.0 * pairs * (a[0] + a[1])
            compute = flops / (chip[c.PEAK + where[j, c.DTYPE]] * chip[c.ATTENTION_EFFICIENCY])
            if chip[c.EXPONENTIALS] > 0.0:
                compute = max(compute, pairs * a[8] / chip[c.EXPONENTIALS])
            # the window of every new token: at most all positions, each read once from memory
            chunk = a[5] if a[9] == 1.0 else 0.0
            read = visible(cached + s, a[5] - chunk, a[6], 0.0) + (s if a[5] - chunk > 0.0 else 0.0)
            if chunk > 0.0:  # from the start of the first token's chunk
                read += chunk_reach(cached, s, chunk)
            read = min(cached + s, read)
            kv = b * kv_heads * read * a[2] * a[3]
            activations = b * s * heads * (a[0] + a[1]) * a[4] / shards
            memory = memory_time(0.0, kv, activations, where[j], chip, o)
            o[c.FLOPS] = flops
            finish(compute, memory, chip, o)
