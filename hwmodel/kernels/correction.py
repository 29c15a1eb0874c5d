"""What measurements add to the physical model: a smooth factor on the time of an op, read from a grid."""

import math

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

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
    low, part = np.zeros(N_AXES, np.int64), np.zeros(N_AXES)
    at, cell = np.zeros(1 << N_AXES, np.int64), np.zeros(1 << N_AXES)
    _multiply(features, where, device, knots, lengths, starts, values, low, part, at, cell, out)


@bare
def _multiply(
    features: np.ndarray, where: np.ndarray, device: np.ndarray, knots: np.ndarray, lengths: np.ndarray, starts: np.ndarray,
    values: np.ndarray, low: np.ndarray, part: np.ndarray, at: np.ndarray, cell: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """As `correct`, in room that is given: low, part : (N_AXES,) cell of a size along each axis and its share of the cell."""
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
            factor = math.exp(fade * _between(low, part, axes, lengths[which], values, starts[which], at, cell))
            o = out[q, j]
            o[c.TIME] *= factor
            o[c.COMPUTE] *= factor
            o[c.MEMORY] *= factor
            o[c.WIRE] *= factor
            o[c.OVERHEAD] *= factor


@bare
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


@bare
def _between(
    low: np.ndarray, part: np.ndarray, axes: int, lengths: np.ndarray, values: np.ndarray, start: int, at: np.ndarray,
    cell: np.ndarray,
) -> float:  # fmt: skip
    """The multilinear mean of the corners of a cell; at, cell : (2^N_AXES,) room for their places and values."""
    at[0], stride, corners = start, 1, 1
    for axis in range(axes - 1, -1, -1):
        at[0] += low[axis] * stride
        stride *= lengths[axis]
    stride = 1
    for axis in range(axes - 1, -1, -1):
        step = stride if part[axis] > 0.0 else 0  # an axis may have a single knot
        for i in range(corners):
            at[corners + i] = at[i] + step
        corners *= 2
        stride *= lengths[axis]
    for i in range(corners):
        cell[i] = values[at[i]]
    for axis in range(axes):
        corners //= 2
        for i in range(corners):
            cell[i] += part[axis] * (cell[corners + i] - cell[i])
    return float(cell[0])
