"""What measurements add to the physical model: imperfect overlap, and a smooth factor on the time of an op from a grid."""

import math

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import overlap

N_AXES = 4
"""Most axes of a grid."""
FADE = 2.0
"""Octaves past the last knot after which a correction is half gone."""


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
    """Lengthen TIME and its parts (s) as `overlap` does, and by exp(g(log2 features)) where a device row names a correction.

    g is multilinear between knots. Before the first knot of an axis it is held (there an op is all launch); past the last
    one it fades to the physical model as 1 / (1 + (d / 2)^2), d in octaves.

    features : (points, ops, N_AXES) sizes, at least 1; knots : (corrections, N_AXES, most) ascending log2 sizes;
    lengths : (corrections, N_AXES) knots of each axis, 0 where there is none; starts : (corrections,) into values;
    values : natural logarithms, the last axis running fastest; where, device, out as in gemm.
    """
    whole, parts = np.zeros((3, 1 << N_AXES), np.int64), np.zeros((4, 1 << N_AXES))
    factor = np.zeros((2, features.shape[0]))
    corrected(features, where, device, knots, lengths, starts, values, whole, parts, factor, out)


@bare
def corrected(
    features: np.ndarray, where: np.ndarray, device: np.ndarray, knots: np.ndarray, lengths: np.ndarray, starts: np.ndarray,
    values: np.ndarray, whole: np.ndarray, parts: np.ndarray, factor: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """As `correct`, times in s, in room that is given: whole, parts : (3 and 4, 2^N_AXES); factor : (2, points)."""
    overlap(where, device, out, factor[0], factor[1])
    _multiply(
        features, where, device, knots, lengths, starts, values, whole[0], whole[1], whole[2], parts[0], parts[1], parts[2],
        parts[3], factor[0], out,
    )  # fmt: skip


@bare
def _multiply(
    features: np.ndarray, where: np.ndarray, device: np.ndarray, knots: np.ndarray, lengths: np.ndarray, starts: np.ndarray,
    values: np.ndarray, low: np.ndarray, strides: np.ndarray, corner: np.ndarray, sizes: np.ndarray, part: np.ndarray,
    fades: np.ndarray, cell: np.ndarray, factor: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """As `correct`, in room that is given: (N_AXES,) of the size met last along each axis, (2^N_AXES,) of a cell's corners.

    One op after the other over all points: most sizes of an op are those of the point before, and so is what follows from
    them. The first axis is the last to be read, for it changes most. No number depends on the points before.
    """
    last, axes, near, far, value = -1, 0, 0.0, 0.0, 0.0
    for j in range(features.shape[1]):
        row = where[j, c.ROW]
        for q in range(features.shape[0]):
            which = int(device[q if device.shape[0] > 1 else 0, row, c.CORRECTION]) - 1
            if which < 0:
                factor[q] = 0.0
                continue
            other = which != last
            new, moved = other, other
            if other:
                last, axes = which, _grid(lengths[which], low, strides, corner)
            for axis in range(axes):
                size = features[q, j, axis]
                if other or size != sizes[axis]:
                    sizes[axis], before, new = size, low[axis], True
                    fades[axis] = _locate(size, knots[which, axis], lengths[which, axis], axis, low, part)
                    moved = moved or axis > 0 or low[axis] != before
            if moved:
                near, far = _edge(starts[which], axes, low, strides, corner, values, part, cell)
            if new:
                fade = 1.0
                for axis in range(axes):
                    fade *= fades[axis]
                value = fade * (near + part[0] * (far - near))
            factor[q] = value
        for q in range(features.shape[0]):
            factor[q] = math.exp(factor[q])
        for q in range(features.shape[0]):
            o = out[q, j]
            o[c.TIME] *= factor[q]
            o[c.COMPUTE] *= factor[q]
            o[c.MEMORY] *= factor[q]
            o[c.WIRE] *= factor[q]
            o[c.OVERHEAD] *= factor[q]


@bare
def _grid(lengths: np.ndarray, low: np.ndarray, strides: np.ndarray, corner: np.ndarray) -> int:
    """Axes of a grid; writes the first cell, and the strides of values and the corners of a cell from the lowest, no unit.

    lengths, low, strides : (N_AXES,); corner : (2^N_AXES,), bit 0 says whether it is the upper one along the last axis
    """
    axes = 0
    while axes < N_AXES and lengths[axes] > 0:
        low[axes] = 0
        axes += 1
    corner[0], corners, stride = 0, 1, 1
    for axis in range(axes - 1, -1, -1):
        strides[axis] = stride
        for i in range(corners):
            corner[corners + i] = corner[i] + (stride if lengths[axis] > 1 else 0)  # an axis may have a single knot
        corners *= 2
        stride *= lengths[axis]
    return axes


@bare
def _locate(size: float, knots: np.ndarray, length: int, axis: int, low: np.ndarray, part: np.ndarray) -> float:
    """Write the cell of a size and its share of it; the factor by which the correction has faded there."""
    x = math.log2(max(size, 1.0))
    if length == 1 or x <= knots[0]:
        low[axis], part[axis] = 0, 0.0
        return 1.0
    if x >= knots[length - 1]:
        low[axis], part[axis] = length - 2, 1.0
        beyond = (x - knots[length - 1]) / FADE
        return 1.0 / (1.0 + beyond * beyond)
    i = low[axis]  # mostly the cell of the size before
    while knots[i + 1] <= x:
        i += 1
    while knots[i] > x:
        i -= 1
    low[axis], part[axis] = i, (x - knots[i]) / (knots[i + 1] - knots[i])
    return 1.0


@bare
def _edge(
    start: int, axes: int, low: np.ndarray, strides: np.ndarray, corner: np.ndarray, values: np.ndarray, part: np.ndarray,
    cell: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """The multilinear means of a cell at both ends of its first axis; cell : (2^N_AXES,) room."""
    at, corners = start, 1 << axes
    for axis in range(axes):
        at += low[axis] * strides[axis]
    for i in range(corners):
        cell[i] = values[at + corner[i]]
    for axis in range(axes - 1, 0, -1):
        corners //= 2
        for i in range(corners):
            cell[i] = cell[2 * i] + part[axis] * (cell[2 * i + 1] - cell[2 * i])
    return cell[0], cell[1]
