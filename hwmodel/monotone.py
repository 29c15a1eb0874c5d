"""More work never takes less time: corrections are bent where they would undo the growth of the physical form.

From knot to knot of a grid the time grows along every size; inside a cell, where the physical form curves, as between the steps
of tiles and waves, it may dip by a little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.features import GRIDS
from hwmodel.gridfit import growing
from hwmodel.hardware import with_number
from hwmodel.sample import Sample, part_times, sample_of

Array = NDArray[np.float64]


def _gemm(at: Array) -> dict[str, Array]:
    return {"m": at[:, 0], "n": at[:, 1], "k": at[:, 2]}


def _decode(at: Array) -> dict[str, Array]:
    one = np.ones(len(at))
    return {
        "batch": at[:, 0],
        "heads": np.rint(at[:, 2]),
        "kv_heads": one,
        "head_dim": at[:, 3],
        "window": 0 * one,
        "kv_len": at[:, 1],
    }


def _prefill(at: Array) -> dict[str, Array]:
    one = np.ones(len(at))
    window = np.where(at[:, 2] > 1.5, at[:, 2], 0.0)
    return {"batch": at[:, 0], "heads": one, "kv_heads": one, "head_dim": at[:, 3], "window": window, "seq": at[:, 1]}


def _mla_decode(at: Array) -> dict[str, Array]:
    return {"batch": at[:, 0], "seq": np.ones(len(at)), "kv_len": at[:, 1], "heads": at[:, 2]}


def _mla_prefill(at: Array) -> dict[str, Array]:
    return {"batch": at[:, 0], "seq": at[:, 1], "kv_len": at[:, 1], "heads": np.ones(len(at))}


def _collective(at: Array) -> dict[str, Array]:
    return {"bytes": at[:, 0], "chips": at[:, 1]}


SIZES: dict[str, tuple[Callable[[Array], dict[str, Array]], tuple[int, ...]]] = {
    "gemm": (_gemm, (0, 1, 2)),
    "attention_decode": (_decode, (0, 1)),
    "attention_prefill": (_prefill, (0, 1)),
    "mla_decode": (_mla_decode, (0, 1)),
    "mla_prefill": (_mla_prefill, (0, 1)),
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), (_collective, (0,))),
}
"""A shape at the knots of a grid, and the axes along which its time may not fall. Expert layers and exchanges have no
single size to go by: there the stiffness of the grid is all that keeps it in bounds."""


def sensible(values: Array, theta: Array, like: Sample) -> Array:
    """Values near the given ones under which the time of an op falls along none of its sizes, from knot to knot."""
    kind = like.rows.kind
    if kind not in SIZES:
        return values
    lattice = GRIDS[kind].lattice
    shape, axes = SIZES[kind]
    here = _logs(shape(2.0**lattice.knots), theta, like).reshape(lattice.shape)
    growth = []
    for axis in range(len(lattice.axes)):
        steps = np.zeros(lattice.shape)
        np.moveaxis(steps, axis, 0)[:-1] = np.diff(np.moveaxis(here, axis, 0), axis=0)
        growth.append(np.maximum(steps, 0.0).ravel() if axis in axes else np.zeros(0))
    return growing(values, lattice, growth)


def _logs(columns: dict[str, Array], theta: Array, like: Sample) -> Array:
    """Logarithm of the physical time without tiles and waves, (knots,)."""
    own = like.rows
    count = len(next(iter(columns.values())))
    words = {key: np.array([value[0]] * count) for key, value in own.columns.items() if value.dtype.kind != "f"}
    rows = replace(own, columns={**columns, **words}, measured_s=np.ones(count))
    smooth = sample_of(rows, with_number(like.chip, "execution.cores", 0.0))
    return np.log(part_times(theta, smooth, np.ones(count, dtype=bool))[:, 0])
