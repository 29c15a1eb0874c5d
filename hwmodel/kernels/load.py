"""Weights streamed from a slower memory into the chip before an op uses them."""

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c
from hwmodel.kernels.routing import distinct_experts

KIND = "load"
MATRIX = False
DIMS = ("tokens", "experts", "elements")
CONSTS = ("weight_bytes",)
"""Bytes per element."""


@njit(cache=True, nogil=True)
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
            copies = distinct_experts(dims[q, j, 0], bins[j]) if bins[j, 0, 1] > 0.0 else dims[q, j, 1]
            size = copies * dims[q, j, 2] * consts[j, 0]
            way = device[dq, where[j, c.ROW]]
            o = out[q, j]
            o[c.WIRE_BYTES] = size
            if size > 0.0:
                o[c.WIRE] = size / way[c.LINK]
                o[c.OVERHEAD] = way[c.LINK + 1]
            o[c.TIME] = o[c.WIRE] + o[c.OVERHEAD]
