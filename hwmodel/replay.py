"""Measured rows priced as their benchmark ran them: one operation again and again, its operands warm in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwmodel.calibration import Calibration
from hwmodel.graph import Op
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.kernels.correction import correct
from hwmodel.measured import Rows, form_of
from hwmodel.operation import bench, over_nodes
from hwmodel.routing import Routing
from hwmodel.shapes import KINDS, Bare, operand
from hwmodel.timing import Array, device_array, features

PLAIN = {"default": "bf16"}
"""What a table means by words that name no format."""


@dataclass(frozen=True)
class Part:
    """One op of every row."""

    op: Op
    out: Array
    """(rows, N_OUT), SI; see `hwmodel.kernels.columns`."""
    features: Array
    """(rows, N_AXES): the sizes that a correction goes by, where the op can have one."""


def replay(rows: Rows, chip: Chip, calibration: Calibration | None) -> list[Part]:
    """The ops of every row, priced on one chip.

    Raises
    ------
    InputError
        When the chip multiplies none of the types the rows can run in.
    """
    nodes = rows.columns.get("nodes")
    if nodes is None or len(np.unique(nodes)) == 1:
        return _replay(rows, chip, calibration)
    parts: list[Part] = []
    for number in np.unique(nodes):  # how many chips the first link joins is a number of the chip
        chosen = nodes == number
        found = _replay(rows.pick(chosen), chip, calibration)
        if not parts:
            parts = [Part(p.op, np.zeros((len(rows), c.N_OUT)), np.ones((len(rows), p.features.shape[1]))) for p in found]
        for whole, part in zip(parts, found, strict=True):
            whole.out[chosen], whole.features[chosen] = part.out, part.features
    return parts


def _replay(rows: Rows, chip: Chip, calibration: Calibration | None) -> list[Part]:
    sizes = rows.sizes
    first = {key: float(sizes[key][0]) for key in ("nodes", "ep") if key in sizes}
    pool = Pool("chip", over_nodes(chip, {key: int(value) for key, value in first.items()}), 1, 0.0, calibration=calibration)
    cluster = Cluster((pool,))
    bares = KINDS[rows.kind].make(sizes, operand(PLAIN.get(rows.dtype, rows.dtype)))
    bares = [replace(bare, format=form_of(rows)) if bare.family else bare for bare in bares]
    table = bench(bares, cluster, Routing(), 1, warm=KINDS[rows.kind].sets)
    device = device_array(table, cluster)
    by_name = {bare.name: bare for bare in bares}
    parts = []
    for group in table.groups:
        for place, position in enumerate(group.rows):
            op = table.ops[position]
            bare = by_name[op.name]
            where = np.repeat(group.where[place : place + 1], len(rows), axis=0)
            dims, consts = (_stacked(part, names, len(rows)) for part, names in (
                (bare.dims, kinds()[bare.kind].DIMS), (bare.consts, kinds()[bare.kind].CONSTS),
            ))  # fmt: skip
            bins = _bins(bare, len(rows))
            out = np.zeros((1, len(rows), c.N_OUT))
            kinds()[bare.kind].price(dims[None], consts, where, bins, device, out)
            found = np.ones((1, len(rows), 1))
            if op.family:
                found = features(bare.kind, dims[None], consts, out)
                correct(found, where, device, *table.corrections, out)
            parts.append(Part(op, out[0], found[0]))
    return sorted(parts, key=lambda part: table.index[part.op.name])


def _stacked(values: Mapping[str, Any], names: tuple[str, ...], rows: int) -> Array:
    return np.stack([np.broadcast_to(np.asarray(values[name], dtype=np.float64), rows) for name in names], axis=1)


def _bins(bare: Bare, rows: int) -> Array:
    if not bare.routed:
        return np.zeros((rows, c.N_BINS, 2))
    return bare.bins(rows)


def times(parts: list[Part]) -> Array:
    """Seconds of every row, its ops one after the other; shape (rows,)."""
    return np.asarray(sum(part.out[:, c.TIME] for part in parts))
