"""Elementwise work: norms, rotary embedding, activation functions, gathers, cache appends, sampling."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time

KIND = "stream"
MATRIX = False
DIMS = ("rows", "width")
CONSTS = ("activation_bytes", "vector_flops", "kv_bytes", "weight_bytes")
"""Per element of rows x width: activation bytes moved, vector FLOP, KV cache bytes written; weight bytes per column."""


@bare
def amounts(
    rows: float, width: float, moved: float, work: float, cached: float, held: float, vector: float, free: bool
) -> tuple[float, float, float, float]:
    """(seconds (s) of compute, weight, KV and activation bytes (B)) of one op; moved, work, cached, held : CONSTS.

    vector : FLOP/s; free : on the ideal floor a new token's keys and values count once, where attention reads its whole context
    """
    elements = rows * width
    return (
        elements * work / vector if vector > 0.0 else 0.0, width * held if elements > 0.0 else 0.0,
        0.0 if free else elements * cached, elements * moved,
    )  # fmt: skip


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One elementwise op at one point; fills `out` as price does (TIME in s)."""
    compute, weights, kv, activations = amounts(
        dims[0], dims[1], consts[0], consts[1], consts[2], consts[3], chip[c.VECTOR], chip[c.FREE_ACTIVATIONS] == 1.0
    )
    memory = memory_time(weights, kv, activations, where, chip, out)
    out[c.FLOPS] = 0.0
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s) and bytes of elementwise ops on one chip: max(vector FLOP / vector peak, bytes / bandwidth) + launch.

    dims : (points, ops, 2) rows (tokens) and width; consts : (ops, 4); others as in gemm. FLOPS counts matrix work: 0 here.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
