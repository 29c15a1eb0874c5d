"""More work never takes less time: how far a correction may fall before it undoes the growth of the physical form.

From knot to knot of a grid the time then grows along every size. Inside a cell, where the form is a stair of tiles, waves and
caches and the correction a ramp, it may dip by a little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.features import GRIDS
from hwmodel.gridfit import Lattice
from hwmodel.hardware import Chip, with_number
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


STAIRS = ("gemm",)
"""Kinds whose form is a stair between knots: of them growth is asked over half a cell around every knot. The others grow from
knot to knot; between knots up to 5 % of the doublings of attention take over 1 % less time, 19 % less at the most. To ask as
much of decode attention costs 0.9 points of its median on rows held out, and 6 of its p90."""


def growths(theta: Array, like: Sample) -> tuple[Array, ...]:
    """How much the logarithm of the physical time surely grows along each axis, from a knot to the next: (knots,) each.

    Empty along axes where it may fall. Between the steps of tiles a time with tiles stands still, and below them one without
    tiles grows less: what surely grows is the smaller of the two, and of a stair the least of it over half a cell around.
    """
    kind = like.rows.kind
    if kind not in SIZES:
        return ()
    lattice = GRIDS[kind].lattice
    shape, axes = SIZES[kind]
    halved = axes if kind in STAIRS else ()
    fine = Lattice(tuple(_halved(knots) if axis in halved else knots for axis, knots in enumerate(lattice.axes)))
    columns = shape(2.0**fine.knots)
    forms = [_logs(columns, theta, like, chip).reshape(fine.shape) for chip in _with_and_without_tiles(like.chip)]
    found = []
    for axis in range(len(lattice.axes)):
        if axis not in axes:
            found.append(np.zeros(0))
            continue
        cell = 2 if halved else 1
        rise = np.min([_moved(form, axis)[cell:] - _moved(form, axis)[:-cell] for form in forms], axis=0)
        rise = _moved(np.maximum(rise, 0.0), axis)
        for other in halved:
            rise = _least_around(rise, other)
        steps = np.zeros(lattice.shape)
        _moved(steps, axis)[:-1] = _moved(rise, axis)
        found.append(steps.ravel())
    return tuple(found)


def _halved(knots: tuple[float, ...]) -> tuple[float, ...]:
    """Knots with the middle of every cell between them."""
    return tuple(np.interp(np.arange(2 * len(knots) - 1) / 2, np.arange(len(knots)), knots).tolist())


def _moved(values: Array, axis: int) -> Array:
    """The same values with an axis in first place; done twice it is as it was."""
    return np.swapaxes(values, 0, axis)


def _least_around(values: Array, axis: int) -> Array:
    """From the knots and the middles between them to the knots: the least of each and of its two neighbours."""
    walled = np.pad(_moved(values, axis), [(1, 1)] + [(0, 0)] * (values.ndim - 1), constant_values=np.inf)
    return _moved(np.minimum(np.minimum(walled[:-2:2], walled[1:-1:2]), walled[2::2]), axis)


def _with_and_without_tiles(chip: Chip) -> tuple[Chip, Chip]:
    return chip, with_number(chip, "execution.cores", 0.0)


def _logs(columns: dict[str, Array], theta: Array, like: Sample, chip: Chip) -> Array:
    """Logarithm of the physical time of shapes, (shapes,)."""
    own = like.rows
    count = len(next(iter(columns.values())))
    words = {key: np.array([value[0]] * count) for key, value in own.columns.items() if value.dtype.kind != "f"}
    rows = replace(own, columns={**columns, **words}, measured_s=np.ones(count))
    return np.log(part_times(theta, sample_of(rows, chip), np.ones(count, dtype=bool))[:, 0])
