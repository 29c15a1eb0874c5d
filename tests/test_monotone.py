"""More work never takes less time: fits under that condition, and every shipped calibration on dense sets of shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from hwmodel.bounded import Bound
from hwmodel.calibration import Calibration, Fit, load_calibration
from hwmodel.features import GRIDS
from hwmodel.gridfit import Lattice, Smoothness
from hwmodel.hardware import load_chip
from hwmodel.measured import Rows
from hwmodel.monotone import Doublings
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


def rows_like(found: Calibration, fit: Fit, sizes: Mapping[str, Array]) -> Rows:
    """Shapes in the format of a fit, which names a variant before it, or that of the cache behind."""
    first, _, second = fit.dtype.partition("/")
    variant, dtype, words = "", first, ()
    if fit.op.startswith("expert_"):
        variant, dtype = first, second
    elif second:
        words = (("kv_dtype", second),)
    plain = {"bf16": "bfloat16", "bytes": "bfloat16"}.get(dtype, dtype)
    count = len(next(iter(sizes.values())))
    return Rows(fit.op, fit.op, found.chip, found.stack, plain, words, variant, sizes, np.ones(count), ())


# --- the fit under a condition -----------------------------------------------------------------------------------------


def test_a_fit_that_may_not_fall_is_nearer_than_one_that_is_bent_afterwards() -> None:
    """Noise of 10 % on a function that stands still along one axis: the condition averages it, bending takes its extremes."""
    rng = np.random.default_rng(0)
    lattice = Lattice((tuple(map(float, range(12))), tuple(map(float, range(6)))))
    points = rng.uniform([0, 0], [11, 5], (600, 2))
    values = 0.1 * points[:, 1] + rng.normal(0, 0.1, 600)
    unit = np.eye(72).reshape(12, 6, 72)
    steps = np.concatenate([np.diff(unit, axis=axis).reshape(-1, 72) for axis in range(2)])
    still = Bound(csr_matrix(steps), np.zeros(len(steps)))
    how = Smoothness(1e-3, 1e-6)
    truth = 0.1 * lattice.knots[:, 1]
    free = lattice.fit(points, values, np.ones(600), how)
    held = lattice.fit(points, values, np.ones(600), how, bound=still)
    bent = np.maximum.accumulate(np.maximum.accumulate(free.reshape(12, 6), axis=0), axis=1).ravel()
    assert (steps @ held >= -0.001).all()
    assert np.abs(held - truth).mean() < 0.7 * np.abs(bent - truth).mean()


def test_a_condition_that_holds_anyway_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    lattice = Lattice(((0.0, 1.0, 2.0, 3.0),))
    points = rng.uniform(0, 3, (50, 1))
    how = Smoothness(0.01, 1e-6, robust=10.0)
    free = lattice.fit(points, points[:, 0], np.ones(50), how)
    still = Bound(csr_matrix(np.diff(np.eye(4), axis=0)), np.zeros(3))
    assert lattice.fit(points, points[:, 0], np.ones(50), how, bound=still) == pytest.approx(free, abs=1e-4)


def test_what_surely_grows_is_the_least_of_stairs_and_ramp() -> None:
    """Rows of an H100 product within one tile of 64 grow by nothing with tiles, past every tile by as much as the bytes do."""
    chip = load_chip("h100_sxm")
    sizes = mesh(m=octaves(0, 12, 1), n=np.array([4096.0]), k=np.array([4096.0]))
    rows = Rows("gemm", "gemm", "h100_sxm", "mine", "bfloat16", (), "", sizes, np.full(13, 1e-5), ())
    sample = sample_of(rows, chip)
    bound = Doublings("gemm").bound(start_of(sample, np.ones(13, dtype=bool)), sample)
    grows = -bound.least
    assert grows.min() == 0
    knots = np.array(GRIDS["gemm"].lattice.knots)
    change = bound.rows.toarray() @ knots  # octaves along m, n and k from the first shape to the second
    on = bound.rows.min(axis=1).toarray().ravel() == -1
    assert set(map(tuple, np.rint(change[on]).astype(int))) == {(0, 0, 1), (0, 1, 0), (1, 0, 0)}
    at = np.where(on[:, None], np.maximum(-bound.rows.toarray(), 0) @ knots, 0)
    few = on & (change[:, 0] > 0.9) & (at[:, 0] <= 3) & (at[:, 1] > 15) & (at[:, 2] == 7)
    many = on & (change[:, 0] > 0.9) & (at[:, 0] == 12) & (at[:, 1] > 15) & (at[:, 2] > 15)
    assert few.any()
    assert (grows[few] < 0.01).all()  # a few rows of a wide, shallow product: all weights
    assert grows[many] == pytest.approx(np.log(2), abs=0.02)  # thousands of rows: all work


# --- shipped calibrations ----------------------------------------------------------------------------------------------

LEAST_GEMM, MOST_GEMM = 0.92, 0.004
"""What a doubling leaves of a time at the least, and the share of doublings that leave under 0.99 at the most. Fits are held at
knots and half-way; between them 152 columns fill two tiles and twice as many three, as 128 and 256 do, one and two."""


HELD = octaves(6, 15, 0.5)
BETWEEN = octaves(6.25, 15, 0.5)


@pytest.mark.parametrize("name", with_op("gemm"))
@pytest.mark.parametrize(
    ("rows", "columns", "least", "most"), [(0.5, HELD, 0.99, 0.0), (1 / 3, BETWEEN, LEAST_GEMM, MOST_GEMM)]
)
def test_twice_the_rows_columns_or_depth_of_a_product_seldom_take_less_time(
    name: str, rows: float, columns: Array, least: float, most: float
) -> None:
    """Never where the fit was held, but for the thousandths of the file; seldom on 43 x 18 x 18 shapes between. The physical
    form alone falls nowhere.
    """
    found = load_calibration(name)
    chip = load_chip(found.chip)
    sizes = mesh(m=octaves(0, 14, rows), n=columns, k=columns)
    bare = found.model_copy(update={"fits": tuple(fit.model_copy(update={"correction": None}) for fit in found.fits)})
    for fit in (fit for fit in found.fits if fit.op == "gemm"):
        shapes = rows_like(found, fit, sizes)
        base, form = times(replay(shapes, chip, found)), times(replay(shapes, chip, bare))
        for key in sizes:
            twice = replace(shapes, columns={**sizes, key: 2 * sizes[key]})
            ratio = times(replay(twice, chip, found)) / base
            assert ratio.min() > least, (fit.key, key)
            assert np.mean(ratio < 0.99) <= most, (fit.key, key)
            assert (times(replay(twice, chip, bare)) / form).min() > 1 - 1e-9


def wholes(low: float, high: float) -> Array:
    """Whole numbers, four an octave, with the double of each up to the highest: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, ..."""
    found = {quarter * 2.0**octave for quarter in (4, 5, 6, 7) for octave in range(-2, 31)}
    return np.array(sorted(one for one in found if one == int(one) and low <= one <= high))


def _heads(**sizes: Array) -> dict[str, Array]:
    plain = np.ones(len(sizes["batch"]))
    return {**sizes, "kv_heads": 8 * plain, "head_dim": 128 * plain, "window": 0 * plain}


EXPERTS = np.array([
    [4096, 14336, 2, 8, 1, 1], [4096, 14336, 2, 8, 4, 1], [7168, 2048, 8, 256, 1, 8], [7168, 2048, 8, 256, 1, 64],
    [7168, 2048, 8, 256, 8, 1], [4096, 1536, 8, 128, 1, 4], [2048, 768, 8, 128, 1, 1], [2880, 2880, 4, 128, 1, 1],
], dtype=float)  # fmt: skip
"""hidden, inter, topk, experts, tp, ep: Mixtral 8x7B, DeepSeek-V3, Qwen3-235B and 30B, gpt-oss-120b."""
RANKS = np.array([[7168, 8, 256, n, n // 8] for n in (8, 16, 32, 64)] + [[4096, 8, 128, 8, 1]], dtype=float)
"""hidden, topk, experts, ep, nodes"""


def _experts(layer: Array, tokens: Array) -> dict[str, Array]:
    names = ("hidden", "inter", "topk", "experts", "tp", "ep")
    words = {"dist": np.full(len(layer), "balanced"), "gated": np.full(len(layer), "true")}
    return {**dict(zip(names, EXPERTS[layer.astype(int)].T, strict=True)), "tokens": tokens, **words}


def _ranks(layer: Array, tokens: Array) -> dict[str, Array]:
    sizes = RANKS[layer.astype(int)].T
    return {**dict(zip(("hidden", "topk", "experts", "ep", "nodes"), sizes, strict=True)), "tokens_per_rank": tokens}


def _links(bytes: Array, chips: Array) -> dict[str, Array]:
    return {"bytes": bytes, "chips": chips}


ATTENTION_HEADS, LATENT_HEADS = np.array([8.0, 32.0, 64.0]), np.array([8.0, 16.0, 64.0, 128.0])
LAYERS, TOKENS = np.arange(float(len(EXPERTS))), wholes(1, 2**16)
CASES: dict[str, tuple[Callable[..., dict[str, Array]], dict[str, Array], tuple[str, ...]]] = {
    "attention_decode": (
        _heads, {"batch": wholes(1, 1024), "kv_len": wholes(16, 2**17), "heads": ATTENTION_HEADS}, ("batch", "kv_len"),
    ),
    "attention_prefill": (
        _heads, {"batch": wholes(1, 256), "seq": wholes(16, 2**15), "heads": ATTENTION_HEADS}, ("batch", "seq"),
    ),
    "mla_decode": (
        lambda **sizes: {**sizes, "seq": np.ones(len(sizes["batch"]))},
        {"batch": wholes(1, 1024), "kv_len": wholes(16, 2**17), "heads": LATENT_HEADS}, ("batch", "kv_len"),
    ),
    "mla_prefill": (
        lambda **sizes: {**sizes, "kv_len": sizes["seq"]},
        {"batch": wholes(1, 64), "seq": wholes(16, 2**15), "heads": LATENT_HEADS}, ("batch", "seq"),
    ),
    "moe": (_experts, {"layer": LAYERS, "tokens": TOKENS}, ("tokens",)),
    **dict.fromkeys(
        ("expert_dispatch", "expert_combine"), (_ranks, {"layer": np.arange(float(len(RANKS))), "tokens": TOKENS}, ("tokens",))
    ),
    **dict.fromkeys(
        ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"),
        (_links, {"bytes": wholes(2**8, 2**30), "chips": np.array([2.0, 4.0, 8.0])}, ("bytes",)),
    ),
}  # fmt: skip
"""How shapes are made of sizes, the sizes, and those that are doubled."""
LEAST, MOST_FALLS = {"attention_decode": 0.94, "mla_decode": 0.92, "mla_prefill": 0.89}, 0.005
MEAN_FALLS = 3e-4
"""Between the sizes at which a fit is held a wave or a cache may end, and the form stand still where it was taken to grow."""


@pytest.mark.parametrize("op", CASES)
def test_twice_the_work_seldom_takes_less_time_and_never_much_less(op: str) -> None:
    """Of every shipped fit, four sizes an octave: the fits are held at knots and in the middles between them."""
    make, axes, doubled = CASES[op]
    sizes = make(**mesh(**axes))
    shape = tuple(len(axis) for axis in axes.values())
    names, shares = with_op(op), list[float]()
    assert names
    for name in names:
        found = load_calibration(name)
        for fit in (fit for fit in found.fits if fit.op == op):
            time = times(replay(rows_like(found, fit, sizes), load_chip(found.chip), found)).reshape(shape)
            for axis, (key, own) in enumerate(axes.items()):
                if key in doubled:
                    twice = np.searchsorted(own, 2 * own[2 * own <= own[-1]])
                    ratio = time.take(twice, axis) / time.take(np.arange(len(twice)), axis)
                    assert ratio.min() > LEAST.get(op, 0.97), (name, fit.key, key)
                    shares.append(float(np.mean(ratio < 0.99)))
                    assert shares[-1] < MOST_FALLS, (name, fit.key, key)
    assert np.mean(shares) < MEAN_FALLS
