"""Recurrent mixers: linear attention and state-space layers, whose state replaces the KV cache."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time

KIND = "scan"
MATRIX = True
DIMS = ("sequences", "new", "heads")
CONSTS = ("state_bytes", "state_flops", "chunk_flops", "activation_bytes")
"""Per head: bytes of the state; FLOP per token in the recurrent form; FLOP per token in the chunked form; bytes per token."""


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One recurrence at one point; fills `out` as price does (TIME in s)."""
    b, s, heads = dims[0], dims[1], dims[2]
    if s > 1.0:
        flops = b * s * heads * consts[2]
        compute = flops / (chip[c.PEAK + where[c.DTYPE]] * chip[c.ATTENTION_EFFICIENCY])
    else:
        flops = b * s * heads * consts[1]
        compute = flops / chip[c.VECTOR] if chip[c.VECTOR] > 0.0 else 0.0
    memory = memory_time(0.0, 2.0 * b * heads * consts[0], b * s * heads * consts[3], where, chip, out)
    out[c.FLOPS] = flops
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s), FLOP and bytes of a recurrence over `new` tokens per sequence on one chip.

    The state is read and written once per step. A single token runs the recurrence on vector units; more tokens run in
    chunks on the matrix units.

    dims : (points, ops, 3) sequences, new tokens each, heads on the chip; consts : (ops, 4); others as in gemm.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
