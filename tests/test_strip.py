"""Strips of points: every kind of op at many points at once equals its kernel point by point."""

from __future__ import annotations

import numpy as np
import pytest
from test_kernels import _inputs

from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.kernels.resolve import FACTORS, TERMS, resolve
from hwmodel.kernels.sizes import BLOCK, sizes_of
from hwmodel.kernels.strip import KINDS, N_CONSTS, N_DIMS, STRIP, Ops, Strip, hit, price_op


def strip_of(ops: Ops, values: np.ndarray, device: np.ndarray, bins: np.ndarray, *, keeps: bool) -> Strip:
    """A strip whose points have these values (slots, points) and one device array (rows, N_DEVICE)."""
    with np.errstate(divide="ignore"):
        logs = np.log1p(-np.minimum(bins[None, :, :, 0], 1.0))
    most = 4096 if keeps else 0
    return Strip(
        values, np.repeat(device[:, :, None], STRIP, axis=2), np.zeros((0, 2), dtype=np.int64),
        np.full(len(device), int(keeps)), device.copy(), np.zeros(STRIP, dtype=np.int64), bins[None], logs,
        bins.prod(axis=-1).sum(axis=-1)[None], np.full(len(ops.kind), int(keeps)), np.full((len(ops.kind), most + 1), np.nan),
        np.full(3, -1), np.zeros((4, STRIP)), np.full((c.N_TILES, STRIP), np.nan), np.zeros(N_DIMS), np.zeros(c.N_OUT),
        np.zeros((c.N_OUT, STRIP)),
    )  # fmt: skip


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_strip_equals_its_points(kind: str, keeps: bool) -> None:
    """What memory hides need not be computed to the end: of compute and memory the longer counts."""
    module = kinds()[kind]
    dims, consts, where, bins, device = _inputs(module, 5)
    count, own, width = dims.shape[1], dims.shape[2], consts.shape[1]
    ops = Ops(
        np.full(count, KINDS.index(kind)), np.zeros((count, N_DIMS), dtype=np.int64), np.zeros((count, N_CONSTS)), where,
        np.arange(count),
    )  # fmt: skip
    where[:, c.WARM] = 0  # loads that are laid out are those of a benchmark, not of a step
    ops.consts[:, :width] = consts
    values = np.zeros((count * own + 1, STRIP))
    ops.slot[:] = count * own
    n = 40
    rng = np.random.default_rng(6)
    several = np.repeat(dims[:1], n, axis=0)
    several[:, :, 0] = rng.integers(0, 3000, (n, count))
    for op in range(count):
        for d in range(own):
            ops.slot[op, d] = op * own + d
            values[op * own + d, :n] = several[:, op, d]
    expected = np.zeros((n, count, c.N_OUT))
    module.price(several, consts, where, bins, device[:1], expected)
    strip = strip_of(ops, values, device[0], bins, keeps=keeps)
    for op in range(count):
        price_op(ops, op, strip, n)
        found, right = strip.out[:, :n].T, expected[:, op]
        for column in set(range(c.N_OUT)) - {c.COMPUTE, c.MEMORY, c.BOUND_TIER}:
            np.testing.assert_allclose(found[:, column], right[:, column], rtol=1e-12, atol=0, err_msg=str(column))
        longer = np.maximum(right[:, c.COMPUTE], right[:, c.MEMORY])
        np.testing.assert_allclose(np.maximum(found[:, c.COMPUTE], found[:, c.MEMORY]), longer, rtol=1e-12)
        clear = np.abs(right[:, c.COMPUTE] - right[:, c.MEMORY]) > 1e-9 * longer
        assert ((found[:, c.COMPUTE] > found[:, c.MEMORY]) == (right[:, c.COMPUTE] > right[:, c.MEMORY]))[clear].all()
        if kind not in ("collective", "transfer", "load"):
            np.testing.assert_array_equal(found[:, c.BOUND_TIER], right[:, c.BOUND_TIER])


def test_share_hit_is_that_of_expm1() -> None:
    x = -np.concatenate([np.geomspace(1e-18, 60.0, 2000), [0.0, np.inf]])
    found = np.array([hit(value) for value in x])
    np.testing.assert_allclose(found, -np.expm1(x), rtol=1e-14, atol=0)


def test_sizes_equal_resolve() -> None:
    rng = np.random.default_rng(8)
    points, sizes = 2 * BLOCK + 17, 6
    symbols = rng.integers(1, 500, (4, points)).astype(float)
    unit, coefficient = rng.integers(0, 9, (sizes, TERMS)).astype(float), rng.integers(0, 3, (sizes, TERMS)).astype(float)
    which = rng.integers(-1, 4, (sizes, TERMS, FACTORS))
    power, each = rng.choice([-1, 1, 2], (sizes, TERMS, FACTORS)), rng.integers(0, 2, (sizes, TERMS, FACTORS))
    found, right = np.zeros((sizes, points)), np.zeros((points, 1, sizes))
    sizes_of(symbols, unit, coefficient, which, power, each, found)
    resolve(np.ascontiguousarray(symbols.T), unit[None], coefficient[None], which[None], power[None], each[None], right)
    np.testing.assert_array_equal(found, right[:, 0].T)
