"""One matrix of a mixture-of-experts layer as a grouped product over the experts of one chip."""

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import finish, memory_time
from hwmodel.kernels.routing import distinct_experts, expected_tiles, routed_tokens
from hwmodel.kernels.tiles import tiled_time

KIND = "experts"
MATRIX = True
DIMS = ("tokens", "experts", "n", "k")
CONSTS = ("weight_bytes", "input_bytes", "output_bytes", "topk")
"""Bytes per element of weights (scales included), inputs and outputs; experts that a token chooses among all chips."""
FEATURES = ("each", "hit", "matrix", "entering")
"""Sizes that a measured correction goes by: token-expert pairs per expert hit, experts hit on the chip, elements of one
expert's matrix, pairs of all chips per pair of this one."""


@bare
def features(dims: np.ndarray, consts: np.ndarray, out: np.ndarray, found: np.ndarray) -> None:
    """Write FEATURES of every op. dims, consts, out as in price; found : (points, ops, N_AXES)."""
    for q in range(dims.shape[0]):
        for j in range(dims.shape[1]):
            area = dims[q, j, 2] * dims[q, j, 3]
            hit = out[q, j, c.WEIGHT_BYTES] / max(area * consts[j, 0], 1e-9)
            pairs = out[q, j, c.FLOPS] / max(2.0 * area, 1e-9)
            found[q, j, 0] = pairs / max(hit, 1e-9)
            found[q, j, 1] = hit
            found[q, j, 2] = area
            found[q, j, 3] = dims[q, j, 0] * consts[j, 3] / max(pairs, 1e-9)


@bare
def all_tiles(tokens: float, bins: np.ndarray, rows: float) -> float:
    """Expected tiles of so many rows, one column of tiles, over all experts of a chip; tokens that choose among them."""
    tiles = 0.0
    for b in range(c.N_BINS):
        if bins[b, 1] <= 0.0:
            break
        tiles += bins[b, 1] * expected_tiles(tokens, bins[b, 0], rows)
    return tiles


@bare
def grouped_time(tokens: float, n: float, k: float, peak: float, bins: np.ndarray, device: np.ndarray) -> float:
    """Seconds (s) of compute for the grouped product: expected tiles of every expert, then waves over the cores."""
    cores = device[c.CORES]
    if cores <= 0.0:
        return 2.0 * routed_tokens(tokens, bins) * n * k / peak
    best, before, tiles = np.inf, 0.0, 0.0
    for j in range(c.N_TILES):
        rows, cols = device[c.TILES + 2 * j], device[c.TILES + 2 * j + 1]
        if rows <= 0.0:
            break
        if rows != before:
            before, tiles = rows, all_tiles(tokens, bins, rows)
        if tiles > 0.0:
            best = min(best, tiled_time(tiles * np.ceil(n / cols - 1e-9), rows, cols, k, peak, cores, device[c.SPLIT_K]))
    return best if best < np.inf else 0.0


@bare
def grouped_bounds(routed: float, distinct: float, n: float, k: float, peak: float, device: np.ndarray, enough: float) -> float:
    """An upper bound (s) of `grouped_time` without any sum over loads: E ceil(X / r) <= (E X + (r - 1) P(X > 0)) / r.

    routed : token-expert pairs; distinct : experts hit; enough : s, a bound below which the other tiles need no look
    """
    cores = device[c.CORES]
    if cores <= 0.0:
        return 2.0 * routed * n * k / peak
    best = np.inf
    for j in range(c.N_TILES):
        rows, cols = device[c.TILES + 2 * j], device[c.TILES + 2 * j + 1]
        if rows <= 0.0:
            break
        tiles = min(routed, (routed + (rows - 1.0) * distinct) / rows) * np.ceil(n / cols - 1e-9)
        if tiles > 0.0:
            best = min(best, tiled_time(tiles, rows, cols, k, peak, cores, device[c.SPLIT_K]))
        if best < enough:
            break
    return best if best < np.inf else 0.0


NEAR = 1.05
"""The normal law of `expected_tiles` errs by less: what memory hides by more than this share needs no exact sum."""


@bare
def amounts(
    routed: float, distinct: float, n: float, k: float, weight: float, read: float, written: float
) -> tuple[float, float, float]:
    """(weight bytes, activation bytes (B), FLOP) of one product; weight, read, written : CONSTS."""
    return distinct * n * k * weight, routed * (k * read + n * written), 2.0 * routed * n * k


@bare
def one(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, chip: np.ndarray, out: np.ndarray, lazy: bool
) -> None:
    """One product of one chip's experts at one point; fills `out` as price does (TIME in s)."""
    tokens, n, k = dims[0], dims[2], dims[3]
    routed, distinct = routed_tokens(tokens, bins), distinct_experts(tokens, bins, where[c.WARM] > 0)
    weights, activations, flops = amounts(routed, distinct, n, k, consts[0], consts[1], consts[2])
    memory = memory_time(weights, 0.0, activations, where, chip, out)
    peak = chip[c.PEAK + where[c.DTYPE]] * chip[c.COMPUTE_EFFICIENCY]
    compute = np.inf
    if lazy and chip[c.SHARPNESS] == 0.0:
        compute = grouped_bounds(routed, distinct, n, k, peak, chip, memory / NEAR)
    if compute * NEAR >= memory:
        compute = grouped_time(tokens, n, k, peak, bins, chip)
    out[c.FLOPS] = flops
    finish(compute, memory, chip, out)


@bare
def price(
    dims: np.ndarray, consts: np.ndarray, where: np.ndarray, bins: np.ndarray, device: np.ndarray, out: np.ndarray
) -> None:
    """Times (s), FLOP and bytes of the expert products of one chip.

    FLOP use the routed tokens; weight bytes use the expected distinct experts E (1 - (1 - k/E)^B), between k and E; in a
    benchmark (WARM), which lays its loads out, min(E, B k).

    dims : (points, ops, 4) tokens that choose among these experts, experts on the chip, n, k of one expert's matrix;
    consts : (ops, 4); bins : (ops, N_BINS, 2); device, where, out as in gemm.
    """
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            one(dims[q, j], consts[j], where[j], bins[j], device[dq, where[j, c.ROW]], out[q, j], False)
