"""Weights streamed from a slower memory into the chip before an op uses them."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.routing import distinct_experts

KIND = "load"
MATRIX = False
DIMS = ("tokens", "experts", "elements")
CONSTS = ("weight_bytes",)
"""Bytes per element."""


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One load at one point; fills `out` as price does (TIME in s)."""
    copies = distinct_experts(dims[0], bins) if bins[0, 1] > 0.0 else dims[1]
    size = copies * dims[2] * consts[0]
    out[c.WIRE_BYTES] = size
    out[c.WIRE] = size / chip[c.LINK] if size > 0.0 else 0.0
    out[c.OVERHEAD] = chip[c.LINK + 1] if size > 0.0 else 0.0
    out[c.TIME] = out[c.WIRE] + out[c.OVERHEAD]


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s) and bytes of weight streaming: latency + distinct experts x elements x b / bandwidth of the way.

    Without bins (dense weights) all `experts` copies move. The device row is that of the way: slot 0 holds the smaller of
    the link's and the far memory's bandwidth (B/s), and the latency (s).

    dims : (points, ops, 3) tokens that choose, experts kept for this chip, elements of one; consts : (ops, 1).
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
