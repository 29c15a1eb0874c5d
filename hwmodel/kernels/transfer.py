"""Activations from one pool of chips to another over the links that join them."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

KIND = "transfer"
MATRIX = False
DIMS = ("elements",)
CONSTS = ("bytes",)


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One transfer at one point; fills `out` as price does (TIME in s)."""
    size = dims[0] * consts[0]
    out[c.WIRE_BYTES] = size
    out[c.WIRE] = size / chip[c.LINK] if size > 0.0 else 0.0
    out[c.OVERHEAD] = chip[c.LINK + 1] if size > 0.0 else 0.0
    out[c.TIME] = out[c.WIRE] + out[c.OVERHEAD]


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s) and bytes of transfers: latency + bytes / aggregate bandwidth; one latency per transfer, one way.

    dims : (points, ops, 1) elements of the whole tensor, all chips together; consts : (ops, 1) B per element;
    device rows of links hold the aggregate bandwidth (B/s) and the latency (s) in link slot 0.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
