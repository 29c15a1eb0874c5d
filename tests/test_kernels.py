"""Kernels: compiled equals interpreted, and every formula against closed forms, brute force and published figures."""

from __future__ import annotations

import math
from types import ModuleType

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel import routing
from hwmodel.graph import OpGraph
from hwmodel.hardware import Chip, load_chip, with_number
from hwmodel.kernels import announce_compiling, attention, collective, kinds, memory, tiles
from hwmodel.kernels import columns as c
from hwmodel.kernels import resolve as resolving
from hwmodel.kernels import routing as tokens_to_experts
from hwmodel.lower.decoder import Formats, lower
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError
from hwmodel.spec.number import Number
from hwmodel.timing import device_row, operand_type

CHIPS = ("h100_sxm", "rubin", "groq3_lpu", "hyperaccel_lpu", "xeon_host")
POINTS, OPS = 3, 8

# --- drawing inputs -------------------------------------------------------------------------------------------------
DIM_RANGES = {
    "m": (1, 4096), "n": (1, 16384), "k": (64, 16384), "groups": (1, 64), "rows": (1, 4096), "width": (1, 16384),
    "tokens": (1, 4096), "experts": (1, 64), "elements": (1, 10**8), "chips": (1, 72), "sequences": (0, 64),
    "queries": (1, 5), "context": (8, 131072), "heads": (1, 128), "kv_heads": (1, 16), "shards": (1, 4),
    "new": (1, 4096), "cached": (0, 8192),
}  # fmt: skip
CONST_RANGES = {
    "window": (0, 4096), "topk": (0, 2048), "ratio": (0, 4), "softmax": (0, 1), "chunked": (0, 1),
    "operation": (0, len(collective.OPERATIONS) - 1),
}  # fmt: skip
"""Whole numbers; other dimensions lie in 1 .. 1,000, other constants in 0.5 .. 512."""


def _devices(chips: tuple[str, ...]) -> tuple[np.ndarray, list[Chip]]:
    known = [load_chip(name) for name in chips]
    return np.array([[device_row(chip) for chip in known]] * POINTS), known


def _inputs(module: ModuleType, seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    device, known = _devices(CHIPS)
    dims = np.empty((POINTS, OPS, len(module.DIMS)))
    for column, name in enumerate(module.DIMS):
        low, high = DIM_RANGES.get(name, (1, 1000))
        dims[:, :, column] = np.floor(np.exp(rng.uniform(np.log(max(low, 0.5)), np.log(high + 1), (POINTS, OPS))))
    consts = np.empty((OPS, len(module.CONSTS)))
    for column, name in enumerate(module.CONSTS):
        if name in CONST_RANGES:
            low, high = CONST_RANGES[name]
            consts[:, column] = rng.integers(low, high + 1, OPS)
        else:
            consts[:, column] = rng.uniform(0.5, 4.0, OPS) if name.endswith("bytes") else rng.uniform(0.5, 512.0, OPS)
    where = np.zeros((OPS, c.N_WHERE), dtype=np.int64)
    for op in range(OPS):
        row = int(rng.integers(len(known)))
        chip = known[row]
        tiers = sum(not tier.cache for tier in chip.memory)
        where[op, c.ROW] = row
        where[op, c.DTYPE] = c.DTYPES.index(str(rng.choice(sorted(chip.peaks.by_dtype()))))
        where[op, c.WEIGHT_TIER], where[op, c.CACHE_TIER] = rng.integers(tiers, size=2)
        where[op, c.LINK_SLOT] = rng.integers(min(2, len(chip.links)))
        where[op, c.WARM] = rng.integers(2)
    laws = [routing.Routing(kind="zipf", s=float(rng.uniform(0.1, 1.2)), seed=op) for op in range(OPS)]
    bins = np.array([law.bins(64, 8, 64, int(rng.choice([1, 2, 8]))) for law in laws])
    return dims, consts, where, bins, device


@pytest.mark.parametrize("kind", sorted(kinds()))
@pytest.mark.parametrize("seed", [1, 2])
def test_compiled_equals_interpreted(kind: str, seed: int) -> None:
    module = kinds()[kind]
    inputs = _inputs(module, seed)
    compiled = np.zeros((POINTS, OPS, c.N_OUT))
    plain = np.zeros_like(compiled)
    module.price(*inputs, compiled)
    module.price.py_func(*inputs, plain)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12, atol=0)
    assert (compiled[..., c.TIME] >= 0).all()
    assert (compiled[..., c.TIME] > 0).any()


@pytest.mark.parametrize("kind", sorted(kinds()))
def test_one_device_row_serves_every_point(kind: str) -> None:
    dims, consts, where, bins, device = _inputs(kinds()[kind], 3)
    many, one = np.zeros((POINTS, OPS, c.N_OUT)), np.zeros((POINTS, OPS, c.N_OUT))
    kinds()[kind].price(dims, consts, where, bins, device, many)
    kinds()[kind].price(dims, consts, where, bins, device[:1], one)
    np.testing.assert_array_equal(many, one)


def test_pieces_compiled_equal_interpreted() -> None:
    rng = np.random.default_rng(4)
    row = device_row(load_chip("h100_sxm"))
    for _ in range(50):
        a, b, d = rng.integers(1, 5000, 3).astype(float)
        p, n = float(rng.uniform(1e-3, 0.5)), float(rng.integers(1, 72))
        cases = [
            (tiles.product_time, (a, b, d, 2.0, 1e15, row)), (tiles.tiled_time, (a, 64.0, 128.0, b, 1e15, 132.0, 1.0)),
            (tokens_to_experts.expected_tiles, (a, p, 64.0)), (attention.chunk_reach, (a, b, d)),
            (attention.chunk_pairs, (a, d)),
            (attention.visible, (a, b, 4.0, d)), (attention.sum_of_min, (a, b, d)),
            (attention.causal_pairs, (a, b, d, 4.0, 128.0, 0.0)),
            (attention.causal_pairs, (a, b, d, 4.0, 128.0, 1.0)), (memory.stream_time, (a, b, d)),
            (collective.reached, (a, b, n)), (collective.one_level, (0.0, a, n, 4.5e11, 3e-6, 0.0, 0.0, 0.0)),
        ]  # fmt: skip
        for function, arguments in cases:
            assert function(*arguments) == pytest.approx(function.py_func(*arguments), rel=1e-12), function


def test_resolve_compiled_equals_interpreted_and_rounds_the_share_up() -> None:
    symbols = np.array([[64.0, 3.0], [1.0, 16.0]])
    unit, count = np.array([[[128.0, 0.0]]]), np.array([[[8.0, 0.0]]])
    which = np.full((1, 1, resolving.TERMS, resolving.FACTORS), -1)
    power = np.zeros_like(which)
    which[0, 0, 0, 0], power[0, 0, 0, 0] = 1, -1
    which[0, 0, 0, 1], power[0, 0, 0, 1] = 0, 1
    each = np.zeros_like(which)
    each[0, 0, 0, 1] = 1
    found, plain = np.zeros((2, 1, 1)), np.zeros((2, 1, 1))
    resolving.resolve(symbols, unit, count, which, power, each, found)
    resolving.resolve.py_func(symbols, unit, count, which, power, each, plain)
    # 8 sequences of 128 x 64 and 128 x 1 over 3 and 16 chips: 3 of them, and 1
    assert found[:, 0, 0].tolist() == plain[:, 0, 0].tolist() == [3 * 128 * 64, 128]


def test_a_benchmark_of_several_sets_finds_in_the_cache_what_fits_it_so_often() -> None:
    """96 MB of an L40S hold five sets of 18 MB, not five of 21: from there on the bytes come from memory."""
    chip = load_chip("l40s")
    row, out = device_row(chip), np.zeros(c.N_OUT)
    where = np.zeros(c.N_WHERE, dtype=np.int64)
    times = {}
    for sets in (0, 1, 5):
        where[c.WARM] = sets
        times[sets] = [memory.memory_time(size, 0.0, 0.0, where, row, out) for size in (18e6, 21e6, 97e6)]
    cache, main, ramp = chip.memory[0].bandwidth_bytes_per_s, row[c.TIER], row[c.RAMP]
    assert times[5] == pytest.approx([18e6 / cache + ramp, 21e6 / main + ramp, 97e6 / main + ramp])
    assert times[1] == pytest.approx([18e6 / cache + ramp, 21e6 / cache + ramp, 97e6 / main + ramp])
    assert times[0] == pytest.approx([size / main + ramp for size in (18e6, 21e6, 97e6)])


# --- tiles and waves ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("m", "n", "tile", "expected"),
    [(4096, 4096, (128, 256), 0.9697), (64, 8192, (64, 128), 0.485),
     (64, 28672, (64, 128), 0.848), (128, 4096, (128, 128), 0.242)],
)  # fmt: skip
def test_wave_efficiency(m: int, n: int, tile: tuple[int, int], expected: float) -> None:
    """Share of 132 cores that are busy on average, in the time of one product without split-K."""
    row = np.zeros(c.N_DEVICE)
    row[c.CORES], row[c.TILES : c.TILES + 2] = 132, tile
    busy = 2.0 * m * n * 4096 / 1e15 / tiles.product_time(float(m), float(n), 4096.0, 1.0, 1e15, row)
    assert busy == pytest.approx(expected, abs=5e-4)


def test_sharing_tiles_along_k_fills_the_cores() -> None:
    """64 tiles on 132 cores: stream-K gives every core 64/132 of a tile; of a short one no less than 256 of k."""
    alone = tiles.tiled_time(64.0, 64.0, 128.0, 8192.0, 1e15, 132.0, 0.0)
    shared = tiles.tiled_time(64.0, 64.0, 128.0, 8192.0, 1e15, 132.0, 1.0)
    assert alone / shared == pytest.approx(132 / 64)
    flops = 2 * 64 * 8192 * 8192
    assert flops / 1e15 == pytest.approx(shared)
    assert tiles.tiled_time(2.0, 64.0, 128.0, 2048.0, 1e15, 132.0, 0.0) == pytest.approx(
        8 * tiles.tiled_time(2.0, 64.0, 128.0, 2048.0, 1e15, 132.0, 1.0)
    )


@given(st.integers(1, 200), st.integers(32, 100_000), st.integers(1, 1000))
def test_more_tiles_or_deeper_ones_never_take_less_time(count: int, k: int, more: int) -> None:
    base = tiles.tiled_time(float(count), 64.0, 64.0, float(k), 1e15, 132.0, 1.0)
    assert tiles.tiled_time(float(count + 1), 64.0, 64.0, float(k), 1e15, 132.0, 1.0) >= base * (1 - 1e-12)
    assert tiles.tiled_time(float(count), 64.0, 64.0, float(k + more), 1e15, 132.0, 1.0) >= base * (1 - 1e-12)


def test_compute_is_monotone_and_never_faster_than_the_peak() -> None:
    row = device_row(load_chip("h100_sxm"))
    times = [tiles.product_time(float(m), 8192.0, 8192.0, 1.0, 1e15, row) for m in range(1, 2000, 37)]
    for m, time in zip(range(1, 2000, 37), times, strict=True):
        assert time >= 2 * m * 8192 * 8192 / 1e15 * (1 - 1e-12)
    # up to tile steps: a larger product may take a better tile, never less time than one a whole tile smaller
    assert all(later >= earlier for earlier, later in zip(times, times[4:], strict=False))


@pytest.mark.parametrize(
    ("rows", "mean", "expected"),
    [(128, 96, 0.7495), (128, 128, 0.6773), (128, 32, 0.25), (128, 64, 0.50),
     (64, 16, 0.250), (64, 32, 0.500), (64, 64, 0.682), (64, 128, 0.808), (64, 256, 0.892)],
)  # fmt: skip
def test_tile_efficiency_over_random_groups(rows: int, mean: int, expected: float) -> None:
    p = 8 / 256
    found = mean / (tokens_to_experts.expected_tiles(mean / p, p, float(rows)) * rows)
    assert found == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize("rows", [1, 8, 16, 64, 128])
@pytest.mark.parametrize("p", [0.003, 0.03125, 0.25, 0.5, 0.9, 0.99999])
@pytest.mark.parametrize("tokens", [1, 2, 16, 20, 64, 128, 576, 2000])
def test_expected_tiles_against_the_exact_binomial(tokens: int, p: float, rows: int) -> None:
    log = [math.lgamma(tokens + 1) - math.lgamma(x + 1) - math.lgamma(tokens - x + 1) for x in range(tokens + 1)]
    chance = [math.exp(a + x * math.log(p) + (tokens - x) * math.log1p(-p)) for x, a in enumerate(log)]
    exact = sum(one * -(-x // rows) for x, one in enumerate(chance))
    assert tokens_to_experts.expected_tiles(float(tokens), p, float(rows)) == pytest.approx(exact, rel=2e-3)


# --- routing --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("experts", "topk", "tokens", "expected"),
    [(256, 8, 32, 163.31), (256, 8, 128, 251.60), (128, 8, 32, 111.77), (128, 4, 64, 111.22), (8, 2, 4, 5.469),
     (384, 8, 128, 358.06), (256, 8, 8, 57.42), (256, 8, 64, 222.44), (256, 8, 1, 8.0), (8, 2, 16, 7.920),
     (256, 8, 16, 102.0), (256, 8, 256, 255.9)],
)  # fmt: skip
def test_distinct_experts(experts: int, topk: int, tokens: int, expected: float) -> None:
    bins = routing.Routing().bins(experts, topk, experts, 1)
    digits = 5 * 10.0 ** -(len(str(expected).partition(".")[2]) + 1)
    assert tokens_to_experts.distinct_experts(float(tokens), bins) == pytest.approx(expected, abs=digits * 1.01)


def test_distinct_experts_by_simulation() -> None:
    rng = np.random.default_rng(0)
    drawn = [len(np.unique([rng.permutation(64)[:6] for _ in range(20)])) for _ in range(400)]
    bins = routing.Routing().bins(64, 6, 64, 1)
    assert tokens_to_experts.distinct_experts(20.0, bins) == pytest.approx(np.mean(drawn), rel=0.01)


@pytest.mark.parametrize(("experts", "groups", "topk"), [(64, 8, 6), (64, 64, 6), (8, 2, 2), (16, 1, 4), (16, 4, 16)])
def test_reached_groups_by_simulation(experts: int, groups: int, topk: int) -> None:
    rng = np.random.default_rng(1)
    drawn = [len(np.unique(rng.permutation(experts)[:topk] // (experts // groups))) for _ in range(4000)]
    assert routing.reached_groups(routing.Experts(experts, topk), groups) == pytest.approx(np.mean(drawn), rel=0.01)


@pytest.mark.parametrize("skew", [0.0, 0.63, 1.2])
def test_tokens_are_conserved_and_all_experts_is_dense(skew: float) -> None:
    law = routing.Routing(kind="zipf", s=skew)
    whole = law.bins(256, 8, 256, 1)
    assert (whole[:, 0] * whole[:, 1]).sum() == pytest.approx(8)
    assert tokens_to_experts.routed_tokens(77.0, whole) == pytest.approx(77 * 8)
    busiest = law.bins(256, 8, 256, 8)
    assert (busiest[:, 0] * busiest[:, 1]).sum() >= 1 - 1e-9  # at least the mean of 8 / 8
    full = law.bins(16, 16, 16, 1)
    assert tokens_to_experts.distinct_experts(1.0, full) == 16
    assert tokens_to_experts.expected_tiles(100.0, 1.0, 64.0) == 2


# --- attention ------------------------------------------------------------------------------------------------------
def _one(kind: str, dims: dict[str, float], consts: dict[str, float], **device: float) -> np.ndarray:
    """Outputs of one op on a plain device: 1 TFLOP/s, 1 TB/s, no overheads; `device` by column name."""
    module = kinds()[kind]
    row = np.zeros((1, 1, c.N_DEVICE))
    row[..., c.PEAK : c.PEAK + len(c.DTYPES)] = 1e12
    row[..., c.TIER : c.TIER + c.N_TIERS] = 1e12
    row[..., [c.COMPUTE_EFFICIENCY, c.ATTENTION_EFFICIENCY]] = 1
    for name, value in device.items():
        row[..., getattr(c, name)] = value
    out = np.zeros((1, 1, c.N_OUT))
    bins = routing.Routing().bins(8, 2, 8, 1)[None]
    d = np.array([[[dims[name] for name in module.DIMS]]], dtype=float)
    k = np.array([[consts[name] for name in module.CONSTS]], dtype=float)
    module.price(d, k, np.zeros((1, c.N_WHERE), dtype=np.int64), bins, row, out)
    return out[0, 0]


def _on(row: np.ndarray, kind: str, dims: list[float], consts: list[float]) -> np.ndarray:
    """Outputs of one op on the device of that row."""
    out = np.zeros((1, 1, c.N_OUT))
    where, bins = np.zeros((1, c.N_WHERE), dtype=np.int64), np.zeros((1, c.N_BINS, 2))
    kinds()[kind].price(np.array([[dims]]), np.array([consts]), where, bins, row[None, None], out)
    return out[0, 0]


WIDTHS = {"kv_bytes": 2.0, "activation_bytes": 0.0, "window": 0, "ratio": 1, "topk": 0, "softmax": 1, "chunked": 0}


def test_mla_per_cached_token() -> None:
    context = 4096
    consts = {**WIDTHS, "key_width": 576, "value_width": 512, "read_width": 576}
    dims = {"sequences": 1, "queries": 1, "context": context, "heads": 128, "kv_heads": 1, "shards": 1}
    out = _one("attention_decode", dims, consts)
    assert out[c.KV_BYTES] / context == 1152
    assert out[c.FLOPS] / context == 2 * 128 * (576 + 512) == 278_528
    assert out[c.FLOPS] / out[c.KV_BYTES] == pytest.approx(241.8, abs=0.05)  # 483.6 FLOP per element of FP8
    # values read again (C30): 2,176 B
    assert _one("attention_decode", dims, {**consts, "read_width": 1088})[c.KV_BYTES] / context == 2176


def test_gqa_intensity_does_not_depend_on_the_batch() -> None:
    consts = {**WIDTHS, "key_width": 128, "value_width": 128, "read_width": 256}
    for batch in (1, 64):
        dims = {"sequences": batch, "queries": 1, "context": 4096, "heads": 64, "kv_heads": 8, "shards": 1}
        out = _one("attention_decode", dims, consts)
        assert out[c.FLOPS] / out[c.KV_BYTES] == 8  # 2 g / b (theory, claim 6)
        assert out[c.KV_BYTES] == batch * 4096 * 2 * 8 * 128 * 2


@pytest.mark.parametrize("window", [0, 5, 64, 4096])
@pytest.mark.parametrize(("ratio", "topk"), [(0, 0), (1, 0), (1, 7), (1, 300), (4, 0), (4, 16), (128, 0)])
@pytest.mark.parametrize(("cached", "new"), [(0, 1), (0, 100), (33, 50), (1000, 3)])
def test_causal_pairs_against_brute_force(window: int, ratio: int, topk: int, cached: int, new: int) -> None:
    brute = 0.0
    for position in range(cached + 1, cached + new + 1):
        if window:
            brute += min(position, window)
        if ratio:
            entries = position / ratio
            brute += min(entries, topk) if topk else entries
    found = attention.causal_pairs(*map(float, (cached, new, window, ratio, topk)), 0.0)
    assert found == pytest.approx(brute)


@pytest.mark.parametrize("chunk", [1, 5, 64, 8192])
@pytest.mark.parametrize(("cached", "new"), [(0, 1), (0, 100), (33, 50), (63, 2), (64, 1), (1000, 3), (8190, 5)])
def test_fixed_chunks_against_brute_force(chunk: int, cached: int, new: int) -> None:
    sees = [(position - 1) % chunk + 1 for position in range(cached + 1, cached + new + 1)]
    reads = {past for last, n in enumerate(sees, cached + 1) for past in range(last - n + 1, last + 1)}
    assert attention.causal_pairs(float(cached), float(new), float(chunk), 0.0, 0.0, 1.0) == sum(sees)
    assert attention.chunk_reach(float(cached), float(new), float(chunk)) == len(reads)
    consts = {**WIDTHS, "key_width": 128, "value_width": 128, "read_width": 256, "window": chunk, "ratio": 0, "chunked": 1}
    common = {"sequences": 1, "heads": 1, "kv_heads": 1, "shards": 1}
    prefill = _one("attention_prefill", {**common, "new": new, "cached": cached}, consts)
    decode = _one("attention_decode", {**common, "queries": new, "context": cached + new}, consts)
    for out in (prefill, decode):
        assert out[c.FLOPS] == pytest.approx(2 * 256 * sum(sees))
        assert out[c.KV_BYTES] == len(reads) * 256 * 2


def test_a_decode_step_sees_its_own_chunk() -> None:
    consts = {**WIDTHS, "key_width": 1, "value_width": 0, "read_width": 1, "window": 8192, "ratio": 0, "chunked": 1}
    dims = {"sequences": 1, "queries": 1, "heads": 1, "kv_heads": 1, "shards": 1}
    for position, sees in ((1, 1), (8192, 8192), (8193, 1), (100_000, 1696), (1_048_576, 8192)):
        out = _one("attention_decode", {**dims, "context": position}, consts)
        assert out[c.KV_BYTES] / 2 == out[c.FLOPS] / 2 == sees


def test_llama_4_attends_in_chunks() -> None:
    ops = {op.name: op for op in lowered("llama-4-scout").ops() if op.kind.startswith("attention_")}
    assert {op.consts["chunked"] for op in ops.values() if op.consts["window"]} == {1.0}
    assert {op.consts["chunked"] for op in ops.values() if not op.consts["window"]} == {0.0}
    sliding = [op for op in lowered("gemma-3-12b").ops() if op.kind.startswith("attention_")]
    assert {op.consts["chunked"] for op in sliding} == {0.0}


def lowered(model: str) -> OpGraph:
    """A mixed step of a model, in bf16."""
    return lower(load_model(model), "mixed", Formats(fmt("bf16"), fmt("bf16")))


def test_prefill_is_the_sum_of_decodes() -> None:
    consts = {**WIDTHS, "key_width": 128, "value_width": 128, "read_width": 256}
    common = {"sequences": 1, "heads": 16, "kv_heads": 2, "shards": 1}
    whole = _one("attention_prefill", {**common, "new": 40, "cached": 7}, consts)[c.FLOPS]
    steps = [_one("attention_decode", {**common, "queries": 1, "context": 7 + i}, consts)[c.FLOPS] for i in range(1, 41)]
    assert whole == pytest.approx(sum(steps))
    # several new tokens at once, as in verification: the mean of their contexts
    several = _one("attention_decode", {**common, "queries": 4, "context": 47}, consts)[c.FLOPS]
    assert several == pytest.approx(sum(steps[-4:]))


def test_softmax_share_of_the_matrix_time() -> None:
    consts = {**WIDTHS, "key_width": 128, "value_width": 128, "read_width": 256}
    dims = {"sequences": 1, "new": 8192, "cached": 0, "heads": 64, "kv_heads": 8, "shards": 1}
    matrix = _one("attention_prefill", dims, consts, PEAK=989e12)[c.COMPUTE]
    exponentials = _one("attention_prefill", dims, consts, PEAK=1e30, EXPONENTIALS=3.9e12)[c.COMPUTE]
    assert exponentials / matrix == pytest.approx(0.495, abs=5e-4)
    fp8 = _one("attention_prefill", dims, consts, PEAK=2 * 989e12)[c.COMPUTE]
    assert exponentials / fp8 == pytest.approx(0.99, abs=1e-3)
    both = _one("attention_prefill", dims, consts, PEAK=989e12, EXPONENTIALS=3.9e12)[c.COMPUTE]
    assert both == matrix  # they run side by side


# --- collectives and links ------------------------------------------------------------------------------------------
def test_one_shot_to_two_shot_crossing() -> None:
    n, bandwidth, alpha = 8.0, 450e9, 3e-6
    crossing = alpha * bandwidth / ((n - 1) * (1 - 2 / n))
    assert crossing == pytest.approx(257e3, rel=1e-3)
    _, below = collective.one_level(0.0, crossing * 0.999, n, bandwidth, alpha, 0.0, 0.0, 0.0)
    _, above = collective.one_level(0.0, crossing * 1.001, n, bandwidth, alpha, 0.0, 0.0, 0.0)
    assert (below, above) == (alpha, 2 * alpha)


def test_one_megabyte_over_one_terabyte_per_second_with_one_latency() -> None:
    out = _one("transfer", {"elements": 1e6}, {"bytes": 1.0}, LINK=1e12)
    assert out[c.TIME] == pytest.approx(1e-6)
    row = np.zeros(c.N_DEVICE)
    row[c.LINK : c.LINK + 2] = 1e12, 1e-6
    assert _on(row, "transfer", [1e6], [1.0])[c.TIME] == pytest.approx(2e-6)
    assert sum(collective.one_level(4.0, 1e6, 2.0, 1e12, 1e-6, 0.0, 0.0, 0.0)) == pytest.approx(2e-6)


@pytest.mark.parametrize("operation", range(len(collective.OPERATIONS)))
@pytest.mark.parametrize("topology", range(len(c.TOPOLOGIES)))
@pytest.mark.parametrize("reduces", [0.0, 1.0])
def test_collectives_grow_with_size_and_one_chip_is_free(operation: int, topology: int, reduces: float) -> None:
    def time(size: float, n: float) -> float:
        return float(sum(collective.one_level(float(operation), size, n, 450e9, 3e-6, reduces, float(topology), 0.0)))

    assert time(1e6, 1.0) == 0
    for n in (2.0, 4.0, 8.0, 64.0):
        times = [time(size, n) for size in np.geomspace(1, 1e9, 60)]
        assert times == sorted(times)
        # no chip receives its missing part faster than its links carry it
        least = {0: 1.0 if reduces else 2 * (n - 1) / n, 4: 1.0}.get(operation, (n - 1) / n)
        assert time(1e9, n) >= least * 1e9 / 450e9 * (1 - 1e-12)


def test_ring_and_switch_reductions() -> None:
    wire, alpha = collective.one_level(0.0, 1e9, 8.0, 450e9, 3e-6, 0.0, 2.0, 0.0)
    assert wire == pytest.approx(2 * 7 / 8 * 1e9 / 450e9)
    assert alpha == pytest.approx(2 * 7 * 3e-6)
    wire, alpha = collective.one_level(0.0, 1e9, 8.0, 450e9, 3e-6, 1.0, 0.0, 0.0)
    assert (wire, alpha) == (pytest.approx(1e9 / 450e9), 3e-6)
    # lanes to fixed peers: one peer of 15 gives one fifteenth of the bandwidth
    near, _ = collective.one_level(1.0, 1e9, 2.0, 750e9, 1e-6, 0.0, 1.0, 50e9)
    assert near == pytest.approx(0.5 * 1e9 / 50e9)


def test_past_the_domain_a_second_level_is_added() -> None:
    row = device_row(load_chip("h100_sxm"))
    out = [_on(row, "collective", [1e8, chips], [1.0, 0.0]) for chips in (8.0, 16.0, 32.0)]
    assert out[0][c.TIME] < out[1][c.TIME] < out[2][c.TIME]
    far = row[c.LINK + c.LINK_WIDTH]
    # an eighth of the buffer crosses between two nodes, one-shot or two-shot: S / 8 either way for n = 2
    assert out[1][c.WIRE] - out[0][c.WIRE] == pytest.approx(1e8 / 8 / far)
    # reduced in the switch a chip sends the buffer once, and its share once more to the other node
    assert out[1][c.WIRE_BYTES] == pytest.approx(1e8 + 1e8 / 8)


# --- the device row ---------------------------------------------------------------------------------------------------
def test_a_cache_reaches_its_stated_share_of_the_bandwidth() -> None:
    chip = load_chip("h100_sxm")
    index = next(i for i, tier in enumerate(chip.memory) if tier.cache)
    stated = chip.memory[index].model_copy(update={"efficiency": Number(0.5)})
    other = chip.model_copy(update={"memory": (*chip.memory[:index], stated, *chip.memory[index + 1 :])})
    assert chip.memory[index].efficiency is None
    assert device_row(chip)[c.CACHE_BANDWIDTH] == chip.memory[index].bandwidth_bytes_per_s
    assert device_row(other)[c.CACHE_BANDWIDTH] == 0.5 * chip.memory[index].bandwidth_bytes_per_s


def test_a_product_runs_in_a_wider_type_or_says_what_to_choose() -> None:
    host, card = load_chip("xeon_host"), load_chip("corsair")
    wide = host.model_copy(update={"peaks": host.peaks.model_copy(update={"bf16_flops_per_s": None})})
    notes: list[str] = []
    assert operand_type(wide, ("bf16", "fp16"), notes) == "fp32"
    assert notes == ["chip xeon_host has no bf16 units: such products run in fp32"]
    with pytest.raises(InputError, match=r"op layer0.qkv: chip corsair multiplies int8, int4; .*bf16, fp16.*dtypes.attention"):
        operand_type(card, ("bf16", "fp16"), notes, "layer0.qkv")


# --- number formats -------------------------------------------------------------------------------------------------
BOTH = [name for name in catalog.names("chips") if {"fp8", "bf16"} <= set(load_chip(name).peaks.by_dtype())]


@pytest.mark.parametrize("name", BOTH)
def test_fp8_is_never_slower_than_bf16(name: str) -> None:
    row = device_row(load_chip(name))[None, None]
    shapes = np.array([[m, n, k, 1.0] for m in (1, 7, 64, 300, 4096) for n in (576, 8192, 28672) for k in (512, 8192)])
    bins = np.repeat(routing.Routing().bins(8, 2, 8, 1)[None], len(shapes), axis=0)
    for kind in ("gemm", "experts"):
        times = []
        for dtype, width in (("bf16", 2.0), ("fp8", 1.0)):
            where = np.zeros((len(shapes), c.N_WHERE), dtype=np.int64)
            where[:, c.DTYPE] = c.DTYPES.index(dtype)
            out = np.zeros((1, len(shapes), c.N_OUT))
            dims = shapes if kind == "gemm" else shapes[:, [0, 3, 1, 2]]
            consts = np.repeat([[width, 2.0, 2.0]], len(shapes), axis=0)
            kinds()[kind].price(dims[None], consts, where, bins, row, out)
            times.append(out[0, :, c.TIME])
        assert (times[1] <= times[0] * (1 + 1e-12)).all()


def test_small_ops_are_launches() -> None:
    chip = load_chip("h100_sxm")
    out = _on(device_row(with_number(chip, "execution.launch", 2e-6)), "stream", [1.0, 128.0], [4.0, 5.0, 0.0, 0.0])
    assert out[c.OVERHEAD] / out[c.TIME] > 0.5


def test_compiling_is_announced_once() -> None:
    told: list[str] = []
    announce_compiling(lambda: told.append("compiling"))
    for _ in range(2):
        numba.njit(lambda x: x + 1)(1)
    assert told == ["compiling"]
