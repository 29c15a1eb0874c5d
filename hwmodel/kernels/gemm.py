"""One dense matrix product, y[m, n] = x[m, k] W[n, k]."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time
from hwmodel.kernels.tiles import product_time

KIND = "gemm"
MATRIX = True
DIMS = ("m", "n", "k", "groups")
CONSTS = ("weight_bytes", "input_bytes", "output_bytes")
"""Bytes per element of the weights (scales included), inputs and outputs."""


FEATURES = ("m", "n", "k")
"""Sizes that a measured correction goes by; of grouped products n is that of all groups."""


@bare
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            found[q, j, 0] = dims[q, j, 0]
            found[q, j, 1] = dims[q, j, 1] * dims[q, j, 3]
            found[q, j, 2] = dims[q, j, 2]


@bare
def amounts(
    m: float, n: float, k: float, groups: float, weight: float, read: float, written: float
) -> tuple[float, float, float]:
    """(weight bytes, activation bytes (B), FLOP) of one product; weight, read, written : CONSTS."""
    weights = groups * n * k * weight if m > 0.0 else 0.0
    return weights, groups * (m * k * read + m * n * written), 2.0 * m * n * k * groups


@bare
def one(dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray) -> None:
    """One product at one point; fills `out` as price does (TIME in s)."""
    m, n, k, groups = dims[0], dims[1], dims[2], dims[3]
    peak = chip[c.PEAK + where[c.DTYPE]] * chip[c.COMPUTE_EFFICIENCY]
    weights, activations, flops = amounts(m, n, k, groups, consts[0], consts[1], consts[2])
    memory = memory_time(weights, 0.0, activations, where, chip, out)
    compute = product_time(m, n, k, groups, peak, chip, -1.0)
    out[c.FLOPS] = flops
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s), FLOP and bytes of GEMMs on one chip each.

    t = max(tiles and waves at the reached peak, bytes at the reached bandwidth) + launch.

    dims : (points, ops, 4) m rows, n columns, k inner, groups independent products; consts : (ops, 3) B per element;
    where : (ops, N_WHERE); device : (1 or points, rows, N_DEVICE); out : (points, ops, N_OUT).
    Williams et al., Roofline, CACM 2009; tiles and waves as in the CUDA matrix multiplication guide.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j])
