"""What measurements add to an op's time, as kernels: imperfect overlap, and the factor from a grid of sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from hwmodel.kernels import columns as c
from hwmodel.kernels import correction
from hwmodel.kernels.correction import N_AXES, correct
from hwmodel.kernels.memory import overlap

NO_GRID = (np.zeros((0, N_AXES, 1)), np.zeros((0, N_AXES), np.int64), np.zeros(0, np.int64), np.zeros(0))
"""knots, lengths, starts, values of no correction at all."""


def lengthened(compute: list[float], memory: list[float], sharpness: list[float], launch: float = 3.0) -> np.ndarray:
    """Ops of one point each, (points, N_OUT), as `finish` leaves them and `correct` lengthens them."""
    points = len(compute)
    out = np.zeros((points, 1, c.N_OUT))
    out[:, 0, c.COMPUTE], out[:, 0, c.MEMORY], out[:, 0, c.OVERHEAD] = compute, memory, launch
    out[:, 0, c.TIME] = np.maximum(compute, memory) + launch
    device = np.zeros((len(sharpness), 1, c.N_DEVICE))
    device[:, 0, c.SHARPNESS] = sharpness
    correct(np.ones((points, 1, N_AXES)), np.zeros((1, c.N_WHERE), np.int64), device, *NO_GRID, out)
    return out[:, 0]


def test_overlap_of_sharpness_one_adds_of_two_is_a_diagonal_and_of_zero_hides() -> None:
    assert lengthened([3.0], [4.0], [1.0])[0, c.TIME] == pytest.approx(7 + 3, rel=1e-15)
    assert lengthened([3.0], [4.0], [2.0])[0, c.TIME] == pytest.approx(5 + 3, rel=1e-15)
    assert lengthened([4.0], [3.0], [2.0])[0, c.TIME] == pytest.approx(5 + 3, rel=1e-15)
    assert lengthened([3.0], [4.0], [0.0])[0, c.TIME] == 4 + 3
    assert lengthened([4.0], [4.0], [3.0])[0, c.TIME] == pytest.approx(4 * 2 ** (1 / 3) + 3, rel=1e-15)


def test_what_fails_to_overlap_lengthens_both_parts_alike() -> None:
    found = lengthened([3.0], [4.0], [2.0])[0]
    assert found[c.MEMORY] + found[c.OVERHEAD] == pytest.approx(found[c.TIME], rel=1e-15)
    assert found[c.COMPUTE] / found[c.MEMORY] == pytest.approx(3 / 4, rel=1e-15)
    assert found[c.OVERHEAD] == 3.0


def test_every_point_has_its_own_overlap_and_nothing_beside_nothing_stays() -> None:
    compute, memory, power = [0.0, 3.0, 0.0, 5.0, 1e-200, 3.0], [2.0, 0.0, 0.0, 12.0, 1.0, 4.0], [3.0, 2.0, 2.0, 2.0, 1.1, 0.0]
    found = lengthened(compute, memory, power)
    assert found[:, c.TIME] - 3 == pytest.approx([2, 3, 0, 13, 1, 4], rel=1e-15)
    assert found[[0, 1, 2, 5], c.MEMORY].tolist() == [2, 0, 0, 4]
    assert lengthened(compute, memory, [2.0])[3, c.TIME] == pytest.approx(16, rel=1e-15)  # one device row for all points


def test_overlap_is_the_norm_of_its_parts() -> None:
    rng = np.random.default_rng(0)
    compute, memory = rng.lognormal(0, 4, (2, 500))
    for p in (1.02, 1.729, 3.0, 31.0, 100.0):
        longer = np.maximum(compute, memory)
        exact = longer * ((compute / longer) ** p + (memory / longer) ** p) ** (1 / p)
        found = lengthened(compute.tolist(), memory.tolist(), [p], 0.0)[:, c.TIME]
        np.testing.assert_allclose(found, exact, rtol=2e-15)


def grids() -> tuple[tuple[np.ndarray, ...], list[tuple[list[np.ndarray], np.ndarray]]]:
    """Grids of one to four axes, an axis of one knot among them: as `correct` takes them, and as (knots, values)."""
    rng = np.random.default_rng(1)
    shapes = [(4,), (3, 2), (4, 1, 3), (3, 2, 2, 4)]
    found = [([np.cumsum(rng.uniform(0.5, 2, n)) for n in shape], rng.normal(0, 0.3, shape)) for shape in shapes]
    knots, lengths = np.zeros((4, N_AXES, 4)), np.zeros((4, N_AXES), np.int64)
    for index, (axes, _) in enumerate(found):
        for axis, own in enumerate(axes):
            knots[index, axis, : len(own)], lengths[index, axis] = own, len(own)
    starts = np.cumsum([0, *(values.size for _, values in found)])[:-1]
    return (knots, lengths, starts, np.concatenate([values.ravel() for _, values in found])), found


def factors(sizes: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Logarithm of the factor of every op, (points, ops); sizes : (points, ops, N_AXES) log2; which : (ops,) grids."""
    device = np.zeros((1, 5, c.N_DEVICE))
    device[0, :, c.CORRECTION] = np.arange(5)
    where = np.zeros((len(which), c.N_WHERE), np.int64)
    where[:, c.ROW] = which + 1
    out = np.ones((*sizes.shape[:2], c.N_OUT))
    correct(2.0**sizes, where, device, *grids()[0], out)
    for column in (c.COMPUTE, c.MEMORY, c.WIRE, c.OVERHEAD):
        np.testing.assert_array_equal(out[..., column], out[..., c.TIME])
    assert (out[..., c.FLOPS :] == 1).all()
    return np.asarray(np.log(out[..., c.TIME]))


def test_inside_a_grid_the_factor_is_multilinear() -> None:
    rng = np.random.default_rng(2)
    for index, (axes, values) in enumerate(grids()[1]):
        if any(len(own) == 1 for own in axes):
            continue
        sizes = np.zeros((200, 1, N_AXES))
        for axis, own in enumerate(axes):
            sizes[:, 0, axis] = rng.uniform(own[0], own[-1], 200)
        exact = RegularGridInterpolator(axes, values)(sizes[:, 0, : len(axes)])
        assert factors(sizes, np.array([index]))[:, 0] == pytest.approx(exact, abs=1e-12)


def test_an_axis_of_one_knot_does_not_count() -> None:
    axes, values = grids()[1][2]
    sizes = np.zeros((50, 1, N_AXES))
    sizes[:, 0] = np.random.default_rng(3).uniform(1, 4, (50, N_AXES))
    inside = np.clip(sizes[:, 0][:, [0, 2]], [axes[0][0], axes[2][0]], None)
    held = (inside[:, 0] <= axes[0][-1]) & (inside[:, 1] <= axes[2][-1])
    exact = RegularGridInterpolator([axes[0], axes[2]], values[:, 0])(inside[held])
    assert held.sum() > 5
    assert factors(sizes, np.array([2]))[held, 0] == pytest.approx(exact, abs=1e-12)


def test_no_factor_depends_on_the_points_and_ops_before() -> None:
    rng = np.random.default_rng(4)
    which = np.array([3, -1, 0, 3, 1, 2, 2])
    sizes = rng.uniform(0, 9, (60, len(which), N_AXES))
    sizes[20:40, :, 1:] = sizes[20, :, 1:]  # as in a sweep: only the first size moves
    sizes[30:35] = sizes[30]
    found = factors(sizes, which)
    assert (found[:, 1] == 0).all()
    order, places = rng.permutation(60), rng.permutation(len(which))
    np.testing.assert_array_equal(factors(sizes[order][:, places], which[places]), found[order][:, places])
    for q in range(0, 60, 7):
        for j in range(len(which)):
            assert factors(sizes[q : q + 1, j : j + 1], which[j : j + 1])[0, 0] == found[q, j]


def test_compiled_equals_interpreted() -> None:
    rng = np.random.default_rng(5)
    where = np.zeros((6, c.N_WHERE), np.int64)
    where[:, c.ROW] = np.arange(6) % 5
    device = np.zeros((20, 5, c.N_DEVICE))
    device[..., c.CORRECTION], device[..., c.SHARPNESS] = np.arange(5), rng.choice([0.0, 1.0, 1.7], (20, 5))
    sizes, out = 2.0 ** rng.uniform(0, 9, (20, 6, N_AXES)), rng.uniform(0, 1, (20, 6, c.N_OUT))
    out[3] = 0.0
    found = [out.copy() for _ in range(3)]
    correct(sizes, where, device, *grids()[0], found[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correction, "corrected", correction.corrected.py_func)
        correct(sizes, where, device, *grids()[0], found[1])
    overlap.py_func(where, device, found[2], np.zeros(20), np.zeros(20))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
    plain = np.zeros((20, 5, c.N_DEVICE))
    plain[..., c.SHARPNESS] = device[..., c.SHARPNESS]
    overlapped = out.copy()
    correct(sizes, where, plain, *grids()[0], overlapped)
    np.testing.assert_allclose(overlapped, found[2], rtol=1e-12)
