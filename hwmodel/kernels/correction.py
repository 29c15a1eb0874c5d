"""What measurements add to the physical model: a smooth factor on the time of an op, read from a grid."""

import math

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c

N_AXES = 4
"""Most axes of a grid."""
FADE = 2.0
"""Octaves past the last knot after which a correction is half gone."""


@njit(cache=True, nogil=True)
def correct(
    features: np.ndarray,
    where: np.ndarray,
    device: np.ndarray,
    knots: np.ndarray,
    lengths: np.ndarray,
    starts: np.ndarray,
    values: np.ndarray,
    out: np.ndarray,
) -> None:
    """Multiply TIME and its parts (s) by exp(g(log2 features)) where the op's device row names a correction.

    g is multilinear between knots. Before the first knot of an axis it is held (there an op is all launch); past the last
    one it fades to the physical model as 1 / (1 + (d / 2)^2), d in octaves.

    features : (points, ops, N_AXES) sizes, at least 1; knots : (corrections, N_AXES, most) ascending log2 sizes;
    lengths : (corrections, N_AXES) knots of each axis, 0 where there is none; starts : (corrections,) into values;
    values : natural logarithms, the last axis running fastest; where, device, out as in gemm.
    """
    low = np.zeros(N_AXES, np.int64)
    part = np.zeros(N_AXES)
    for q in range(features.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(features.shape[1]):
            which = int(device[dq, where[j, c.ROW], c.CORRECTION]) - 1
            if which < 0:
                continue
            axes, fade = 0, 1.0
            while axes < N_AXES and lengths[which, axes] > 0:
                fade *= _locate(features[q, j, axes], knots[which, axes], lengths[which, axes], axes, low, part)
                axes += 1
            factor = math.exp(fade * _between(low, part, axes, lengths[which], values, starts[which]))
            o = out[q, j]
            o[c.TIME] *= factor
            o[c.COMPUTE] *= factor
            o[c.MEMORY] *= factor
            o[c.WIRE] *= factor
            o[c.OVERHEAD] *= factor


@njit(cache=True)
def _locate(size: float, knots: np.ndarray, length: int, axis: int, low: np.ndarray, part: np.ndarray) -> float:
    """Write the cell of a size and its share of it; the factor by which the correction has faded there."""
    x = math.log2(max(size, 1.0))
    low[axis], part[axis] = 0, 0.0
    if length == 1 or x <= knots[0]:
        return 1.0
    if x >= knots[length - 1]:
        low[axis], part[axis] = length - 2, 1.0
        beyond = (x - knots[length - 1]) / FADE
        return 1.0 / (1.0 + beyond * beyond)
    i = 0
    while knots[i + 1] <= x:
        i += 1
    low[axis], part[axis] = i, (x - knots[i]) / (knots[i + 1] - knots[i])
    return 1.0


@njit(cache=True)
def _between(low: np.ndarray, part: np.ndarray, axes: int, lengths: np.ndarray, values: np.ndarray, start: int) -> float:
    """The multilinear mean of the corners of a cell."""
    total = 0.0
    for corner in range(1 << axes):
        weight, at = 1.0, 0
        for axis in range(axes):
            up = (corner >> axis) & 1
            weight *= part[axis] if up == 1 else 1.0 - part[axis]
            at = at * lengths[axis] + min(low[axis] + up, lengths[axis] - 1)
        if weight > 0.0:
            total += weight * values[start + at]
    return total
