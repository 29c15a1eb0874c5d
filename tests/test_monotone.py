"""More work never takes less time: fits under that condition, and every shipped calibration on dense sets of shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hwmodel.calibration import Calibration, load_calibration
from hwmodel.features import GRIDS
from hwmodel.gridfit import Lattice, Smoothness, growing
from hwmodel.hardware import load_chip
from hwmodel.measured import Rows
from hwmodel.monotone import growths
from hwmodel.replay import replay, times
from hwmodel.sample import sample_of, start_of
from hwmodel.spec import catalog

Array = NDArray[np.float64]
MEASURED = [name for name in catalog.names("chips/calibrations") if not load_calibration(name).prior]


def with_op(op: str) -> list[str]:
    return [name for name in MEASURED if any(fit.op == op for fit in load_calibration(name).fits)]


def mesh(**sizes: Array) -> dict[str, Array]:
    """Every combination of sizes as columns."""
    return dict(zip(sizes, (part.ravel() for part in np.meshgrid(*sizes.values(), indexing="ij")), strict=True))


def octaves(low: float, high: float, step: float) -> Array:
    return np.unique(np.rint(2.0 ** np.arange(low, high + step / 2, step)))


def rows_of(found: Calibration, op: str, dtype: str, sizes: Mapping[str, Array], **words: str) -> Rows:
    plain = {"bf16": "bfloat16"}.get(dtype, dtype)
    count = len(next(iter(sizes.values())))
    return Rows(op, op, found.chip, found.stack, plain, tuple(words.items()), "", sizes, np.ones(count), ())


# --- the fit under a condition -----------------------------------------------------------------------------------------


def test_a_fit_that_may_not_fall_is_nearer_than_one_that_is_bent_afterwards() -> None:
    """Noise of 10 % on a function that stands still along one axis: the condition averages it, bending takes its extremes."""
    rng = np.random.default_rng(0)
    lattice = Lattice((tuple(map(float, range(12))), tuple(map(float, range(6)))))
    points = rng.uniform([0, 0], [11, 5], (600, 2))
    values = 0.1 * points[:, 1] + rng.normal(0, 0.1, 600)
    still = [np.zeros(72), np.zeros(72)]
    how = Smoothness(1e-3, 1e-6)
    truth = 0.1 * lattice.knots[:, 1]
    free = lattice.fit(points, values, np.ones(600), how)
    held = lattice.fit(points, values, np.ones(600), how, growth=still)
    bent = growing(free, lattice, still)
    grid = held.reshape(12, 6)
    assert (np.diff(grid, axis=0) >= -1e-9).all()
    assert (np.diff(grid, axis=1) >= -1e-9).all()
    assert np.abs(held - truth).mean() < 0.7 * np.abs(bent - truth).mean()


def test_a_condition_that_holds_anyway_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    lattice = Lattice(((0.0, 1.0, 2.0, 3.0),))
    points = rng.uniform(0, 3, (50, 1))
    how = Smoothness(0.01, 1e-6, robust=10.0)
    free = lattice.fit(points, points[:, 0], np.ones(50), how)
    assert lattice.fit(points, points[:, 0], np.ones(50), how, growth=[np.zeros(4)]) == pytest.approx(free, abs=1e-9)


def test_what_surely_grows_is_the_least_of_stairs_and_ramp() -> None:
    """Rows of an H100 product within one tile of 64 grow by nothing with tiles, past every tile by as much as the bytes do."""
    chip = load_chip("h100_sxm")
    sizes = mesh(m=octaves(0, 12, 1), n=np.array([4096.0]), k=np.array([4096.0]))
    rows = Rows("gemm", "gemm", "h100_sxm", "mine", "bfloat16", (), "", sizes, np.full(13, 1e-5), ())
    sample = sample_of(rows, chip)
    shape = GRIDS["gemm"].lattice.shape
    growth = growths(start_of(sample, np.ones(13, dtype=bool)), sample)
    assert [part.size for part in growth] == [int(np.prod(shape))] * 3
    along = growth[0].reshape(shape)
    assert along.min() == 0
    assert (along[:5, -1, 2] < 0.01).all()  # a few rows of a wide, shallow product: all weights
    assert along[12, -1, -1] == pytest.approx(np.log(2), abs=0.02)  # thousands of rows: all work
    assert not along[-1].any()  # nothing lies past the last knot


# --- shipped calibrations ----------------------------------------------------------------------------------------------

LEAST_GEMM = 0.99
"""What a doubling leaves of a time: files hold thousandths, so that two neighbours may differ by one that they should not."""


@pytest.mark.parametrize("name", with_op("gemm"))
def test_twice_the_rows_columns_or_depth_of_a_product_never_take_less_time(name: str) -> None:
    """On 29 x 19 x 19 shapes; the physical form alone falls nowhere."""
    found = load_calibration(name)
    chip = load_chip(found.chip)
    columns = octaves(6, 15, 0.5)
    sizes = mesh(m=octaves(0, 14, 0.5), n=columns, k=columns)
    bare = found.model_copy(update={"fits": tuple(fit.model_copy(update={"correction": None}) for fit in found.fits)})
    for fit in (fit for fit in found.fits if fit.op == "gemm"):
        rows = rows_of(found, "gemm", fit.dtype, sizes)
        base, form = times(replay(rows, chip, found)), times(replay(rows, chip, bare))
        for key in sizes:
            twice = replace(rows, columns={**sizes, key: 2 * sizes[key]})
            ratio = times(replay(twice, chip, found)) / base
            assert ratio.min() > LEAST_GEMM, (fit.key, key)
            assert (times(replay(twice, chip, bare)) / form).min() > 1 - 1e-9


LEAST_ATTENTION, MOST_FALLS = 0.80, 0.06
"""Attention grows from knot to knot, not between them; see `hwmodel.monotone`."""
LENGTHS = {"attention_decode": ("kv_len", octaves(4, 16, 0.5)), "attention_prefill": ("seq", octaves(4, 15, 0.5))}


@pytest.mark.parametrize("op", LENGTHS)
@pytest.mark.parametrize("name", with_op("attention_decode"))
def test_twice_the_sequences_or_their_length_seldom_take_less_time(name: str, op: str) -> None:
    found = load_calibration(name)
    chip = load_chip(found.chip)
    key, lengths = LENGTHS[op]
    sizes = mesh(**{"batch": octaves(0, 9, 0.5), key: lengths, "heads": np.array([8.0, 32.0, 64.0])})
    count = len(sizes["batch"])
    sizes |= {"kv_heads": np.full(count, 8.0), "head_dim": np.full(count, 128.0), "window": np.zeros(count)}
    for fit in (fit for fit in found.fits if fit.op == op):
        own, kv = fit.dtype.split("/")
        rows = rows_of(found, op, own, sizes, kv_dtype=kv)
        base = times(replay(rows, chip, found))
        for doubled in ("batch", key):
            twice = replace(rows, columns={**sizes, doubled: 2 * sizes[doubled]})
            ratio = times(replay(twice, chip, found)) / base
            assert ratio.min() > LEAST_ATTENTION, (fit.key, doubled)
            assert np.mean(ratio < 0.99) < MOST_FALLS
