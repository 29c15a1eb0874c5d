"""One op at a strip of points: the formulas of the kinds of op in loops over points that the machine works on several at once.

Arrays of a strip have the points last: a size, a number of a chip and an amount of an op are rows of (STRIP,). What differs
between kinds of op is not known to a loop over points; what is searched (tiles, groups of experts) is searched point by point,
and once for equal sizes.
"""

from typing import NamedTuple

import numpy as np

from hwmodel.kernels import attention_decode, attention_prefill, collective, experts, gemm, load, scan, stream
from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.memory import served
from hwmodel.kernels.tiles import product_time, tiled_time

KINDS = (
    "gemm",
    "stream",
    "attention_decode",
    "attention_prefill",
    "collective",
    "transfer",
    "load",
    "scan",
    "experts",
)
"""Kinds of op that are priced here; tables with others (a user's own) go the general way."""
GEMM, STREAM, DECODE, PREFILL, COLLECTIVE, TRANSFER, LOAD, SCAN, EXPERTS = range(len(KINDS))
"""Their numbers."""
N_DIMS, N_CONSTS = 6, 10
STRIP = 128
"""Points of a strip: its rows stay in the first caches."""
MOST_KNOWN = 4096
"""Rows of a product up to which its time of compute is kept."""

_gemm, _stream, _decode, _experts = gemm.amounts, stream.amounts, attention_decode.amounts, experts.amounts
_exchanged = collective.exchanged
_positions, _bounds, _all_tiles = attention_decode.positions, experts.grouped_bounds, experts.all_tiles
_prefill, _load, _scan = attention_prefill.one, load.one, scan.one
NEAR = experts.NEAR


class Ops(NamedTuple):
    """The ops that differ."""

    kind: np.ndarray
    slot: np.ndarray
    consts: np.ndarray
    where: np.ndarray
    bin: np.ndarray


class Strip(NamedTuple):
    """The points of a strip, and room to work in."""

    values: np.ndarray
    """(slots, STRIP) sizes."""
    device: np.ndarray
    """(rows, N_DEVICE, STRIP)."""
    varies: np.ndarray
    """(m, 2) row and column of the device numbers that vary."""
    still: np.ndarray
    """(rows,) 1 where none of them moves the time of a product."""
    flat: np.ndarray
    """(rows, N_DEVICE) of one point."""
    routing: np.ndarray
    """(STRIP,) int."""
    bins: np.ndarray
    """(routings, bins, N_BINS, 2)."""
    logs: np.ndarray
    """(routings, bins, N_BINS) log1p(-p)."""
    shares: np.ndarray
    """(routings, bins) token-expert pairs of a chip per token."""
    keeps: np.ndarray
    """(U,) 1 for products that differ in their rows only."""
    known: np.ndarray
    """(U, most rows + 1) s, compute of those by their rows; nan where not known yet."""
    chosen: np.ndarray
    """(3,) int: which size, bins and device row `loads` and `tiles` are of."""
    loads: np.ndarray
    """(4, STRIP) token-expert pairs, experts hit, and room for a logarithm and a number."""
    tiles: np.ndarray
    """(N_TILES, STRIP) expected tiles of every shape of tile, nan where not known yet."""
    dims: np.ndarray
    one: np.ndarray
    """(N_OUT,) an op at one point."""
    out: np.ndarray
    """(N_OUT, STRIP) an op at every point."""


@bare
def memory_of(where: np.ndarray, chip: np.ndarray, out: np.ndarray, n: int) -> None:
    """Fill MEMORY (s) and BOUND_TIER of n points from their bytes; chip, out : (N_DEVICE or N_OUT, STRIP)."""
    one, other, warm = where[c.WEIGHT_TIER], where[c.CACHE_TIER], where[c.WARM]
    weights, kv, moved, time, tier = (
        out[c.WEIGHT_BYTES],
        out[c.KV_BYTES],
        out[c.ACTIVATION_BYTES],
        out[c.MEMORY],
        out[c.BOUND_TIER],
    )
    free, size, rate, ramp = chip[c.FREE_ACTIVATIONS], chip[c.CACHE_BYTES], chip[c.CACHE_BANDWIDTH], chip[c.RAMP]
    first, second = chip[c.TIER + one], chip[c.TIER + other]
    for q in range(n):
        activations = 0.0 if free[q] == 1.0 else moved[q]
        took, which = served(weights[q], kv[q], activations, first[q], second[q], one == other, size[q], rate[q], ramp[q], warm)
        time[q] = took
        tier[q] = -1.0 if which < 0.0 else (float(one) if which == 0.0 else float(other))


@bare
def finish(chip: np.ndarray, out: np.ndarray, n: int) -> None:
    """Fill TIME (s) and its parts from COMPUTE and MEMORY, as `memory.finish` does at one point."""
    compute, memory, time, launch, over = out[c.COMPUTE], out[c.MEMORY], out[c.TIME], chip[c.LAUNCH], out[c.OVERHEAD]
    for q in range(n):
        time[q], over[q] = max(compute[q], memory[q]) + launch[q], launch[q]
    out[c.WIRE, :n] = 0.0
    out[c.WIRE_BYTES, :n] = 0.0


@bare
def chip_at(s: Strip, row: int, q: int) -> None:
    """Put the numbers of one point into a row of `flat`, SI (s, B, FLOP)."""
    for e in range(s.varies.shape[0]):
        if s.varies[e, 0] == row:
            s.flat[row, s.varies[e, 1]] = s.device[row, s.varies[e, 1], q]


@bare
def gemm_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Products at n points, times in s; those with as many rows take as long to compute."""
    slot, where, out = ops.slot[u], ops.where[u], s.out
    row = where[c.ROW]
    chip = s.device[row]
    m, cols, inner, groups = s.values[slot[0]], s.values[slot[1]], s.values[slot[2]], s.values[slot[3]]
    weight, read, written = ops.consts[u, 0], ops.consts[u, 1], ops.consts[u, 2]
    weights, moved, flops, compute = out[c.WEIGHT_BYTES], out[c.ACTIVATION_BYTES], out[c.FLOPS], out[c.COMPUTE]
    for q in range(n):
        weights[q], moved[q], flops[q] = _gemm(m[q], cols[q], inner[q], groups[q], weight, read, written)
    out[c.KV_BYTES, :n] = 0.0
    memory_of(where, chip, out, n)
    known, keep, own = s.known[u], s.keeps[u] == 1, s.flat[row]
    for q in range(n):
        at = int(m[q])
        keeps = keep and 0 <= at < known.shape[0] and float(at) == m[q]
        if keeps and known[at] == known[at]:
            compute[q] = known[at]
            continue
        if s.still[row] == 0:
            chip_at(s, row, q)
        peak = own[c.PEAK + where[c.DTYPE]] * own[c.COMPUTE_EFFICIENCY]
        enough = -1.0 if keeps else out[c.MEMORY, q]  # what memory hides bounds nothing
        compute[q] = product_time(m[q], cols[q], inner[q], groups[q], peak, own, enough)
        if keeps:
            known[at] = compute[q]
    finish(chip, out, n)


@bare
def stream_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Elementwise work at n points, times in s."""
    slot, where, out = ops.slot[u], ops.where[u], s.out
    chip = s.device[where[c.ROW]]
    rows, width, vector, free = s.values[slot[0]], s.values[slot[1]], chip[c.VECTOR], chip[c.FREE_ACTIVATIONS]
    moved, work, cached, held = ops.consts[u, 0], ops.consts[u, 1], ops.consts[u, 2], ops.consts[u, 3]
    compute, weights, kv, activations = out[c.COMPUTE], out[c.WEIGHT_BYTES], out[c.KV_BYTES], out[c.ACTIVATION_BYTES]
    for q in range(n):
        compute[q], weights[q], kv[q], activations[q] = _stream(
            rows[q], width[q], moved, work, cached, held, vector[q], free[q] == 1.0
        )
    out[c.FLOPS, :n] = 0.0
    memory_of(where, chip, out, n)
    finish(chip, out, n)


@bare
def decode_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Decode attention at n points, times in s."""
    slot, where, out, v = ops.slot[u], ops.where[u], s.out, s.values
    chip = s.device[where[c.ROW]]
    sequences, queries, length = v[slot[0]], v[slot[1]], v[slot[2]]
    heads, kv_heads, shards = v[slot[3]], v[slot[4]], v[slot[5]]
    key, value, read_width, kv_bytes, moved = (
        ops.consts[u, 0], ops.consts[u, 1], ops.consts[u, 2], ops.consts[u, 3], ops.consts[u, 4],
    )  # fmt: skip
    window, ratio, topk, softmax, chunked = (
        ops.consts[u, 5], ops.consts[u, 6], ops.consts[u, 7], ops.consts[u, 8], ops.consts[u, 9] == 1.0,
    )  # fmt: skip
    peak, efficiency, exponentials = chip[c.PEAK + where[c.DTYPE]], chip[c.ATTENTION_EFFICIENCY], chip[c.EXPONENTIALS]
    flops, compute, kv, activations = out[c.FLOPS], out[c.COMPUTE], out[c.KV_BYTES], out[c.ACTIVATION_BYTES]
    for q in range(n):
        seen, read = _positions(queries[q], length[q], shards[q], window, ratio, topk, chunked)
        asked = sequences[q] * queries[q] * heads[q]
        flops[q], compute[q] = _decode(asked * seen, key, value, softmax, peak[q] * efficiency[q], exponentials[q])
        kv[q] = sequences[q] * kv_heads[q] * read * read_width * kv_bytes
        activations[q] = asked * (key + value) * moved
    out[c.WEIGHT_BYTES, :n] = 0.0
    memory_of(where, chip, out, n)
    finish(chip, out, n)


@bare
def sent(out: np.ndarray, n: int) -> None:
    """Clear what an op on links has not (TIME stays, s)."""
    for k in (c.COMPUTE, c.MEMORY, c.FLOPS, c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES, c.BOUND_TIER):
        out[k, :n] = 0.0


@bare
def collective_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Collectives at n points, times in s."""
    slot, where, out = ops.slot[u], ops.where[u], s.out
    chip = s.device[where[c.ROW]]
    elements, chips, bytes_, operation = s.values[slot[0]], s.values[slot[1]], ops.consts[u, 0], ops.consts[u, 1]
    i = c.LINK + where[c.LINK_SLOT] * c.LINK_WIDTH
    last = where[c.LINK_SLOT] + 1 >= c.N_LINKS
    near, far = (
        chip[i : i + c.LINK_WIDTH],
        chip[i : i + c.LINK_WIDTH] if last else chip[i + c.LINK_WIDTH : i + 2 * c.LINK_WIDTH],
    )
    hidden, fixed = chip[c.HIDDEN_COLLECTIVES], chip[c.EXCHANGE]
    time, wire, latency, moved = out[c.TIME], out[c.WIRE], out[c.OVERHEAD], out[c.WIRE_BYTES]
    for q in range(n):
        size = elements[q] * bytes_
        took, alpha, moved[q] = _exchanged(
            operation, size, chips[q], near[0, q], near[1, q], near[2, q], near[3, q], near[4, q], near[5, q],
            0.0 if last else far[0, q], far[1, q], far[3, q], far[4, q], far[5, q],
        )  # fmt: skip
        alpha += fixed[q] if chips[q] > 1.0 and size > 0.0 else 0.0
        wire[q], latency[q] = took, alpha
        time[q] = 0.0 if hidden[q] == 1.0 else took + alpha
    sent(out, n)


@bare
def transfer_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Transfers at n points, times in s."""
    slot, where, out = ops.slot[u], ops.where[u], s.out
    chip = s.device[where[c.ROW]]
    elements, bytes_, rate, fixed = s.values[slot[0]], ops.consts[u, 0], chip[c.LINK], chip[c.LINK + 1]
    time, wire, latency, moved = out[c.TIME], out[c.WIRE], out[c.OVERHEAD], out[c.WIRE_BYTES]
    for q in range(n):
        size = elements[q] * bytes_
        moved[q] = size
        wire[q] = size / rate[q] if size > 0.0 else 0.0
        latency[q] = fixed[q] if size > 0.0 else 0.0
        time[q] = wire[q] + latency[q]
    sent(out, n)


@bare
def hit(x: float) -> float:
    """1 - exp(x) for x <= 0 (no unit), to a few units in the last place: a polynomial at x / 1024, doubled ten times.

    expm1(2 y) = expm1(y) (expm1(y) + 2). Plain arithmetic: loops over points work on several at once.
    """
    y = max(x, -50.0) / 1024.0
    z = y * (1.0 + y / 2.0 * (1.0 + y / 3.0 * (1.0 + y / 4.0 * (1.0 + y / 5.0 * (1.0 + y / 6.0 * (1.0 + y / 7.0))))))
    for _ in range(10):
        z = z * (z + 2.0)
    return -z


@bare
def load_experts(tokens: np.ndarray, slot: int, bin_: int, row: int, s: Strip, n: int) -> None:
    """Write the loads of experts at n points: pairs and experts hit of so many tokens (no unit); none of the tiles is known."""
    if s.chosen[0] == slot and s.chosen[1] == bin_ and s.chosen[2] == row:
        return
    s.chosen[0], s.chosen[1], s.chosen[2] = slot, bin_, row
    routed, distinct, log, number = s.loads[0], s.loads[1], s.loads[2], s.loads[3]
    for q in range(n):
        routed[q] = tokens[q] * s.shares[s.routing[q], bin_]
        distinct[q] = 0.0
    s.tiles[:, :n] = np.nan
    for j in range(c.N_BINS):
        some = 0.0
        for q in range(n):
            number[q], log[q] = s.bins[s.routing[q], bin_, j, 1], s.logs[s.routing[q], bin_, j]
            some += number[q]
        if some == 0.0:
            break
        for q in range(n):
            distinct[q] += number[q] * hit(tokens[q] * log[q]) if tokens[q] > 0.0 and number[q] > 0.0 else 0.0


@bare
def grouped_at(
    tokens: float, cols: float, inner: float, peak: float, bins: np.ndarray, chip: np.ndarray, s: Strip, q: int
) -> float:
    """Seconds (s) of compute of a grouped product at point q, as `experts.grouped_time`; all products share the tiles."""
    if chip[c.CORES] <= 0.0:
        return 2.0 * s.loads[0, q] * cols * inner / peak
    best, first = np.inf, 0
    for j in range(c.N_TILES):
        rows, wide = chip[c.TILES + 2 * j], chip[c.TILES + 2 * j + 1]
        if rows <= 0.0:
            break
        first = first if rows == chip[c.TILES + 2 * first] else j
        if s.tiles[first, q] != s.tiles[first, q]:
            s.tiles[first, q] = _all_tiles(tokens, bins, rows)
        tiles = s.tiles[first, q] * np.ceil(cols / wide - 1e-9)
        if tiles > 0.0:
            best = min(best, tiled_time(tiles, rows, wide, inner, peak, chip[c.CORES], chip[c.SPLIT_K]))
    return best if best < np.inf else 0.0


@bare
def experts_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Grouped products of experts at n points, times in s."""
    slot, where, out = ops.slot[u], ops.where[u], s.out
    row, bin_ = where[c.ROW], ops.bin[u]
    chip = s.device[row]
    tokens, cols, inner = s.values[slot[0]], s.values[slot[2]], s.values[slot[3]]
    load_experts(tokens, slot[0], bin_, row, s, n)
    weight, read, written = ops.consts[u, 0], ops.consts[u, 1], ops.consts[u, 2]
    routed, distinct = s.loads[0], s.loads[1]
    weights, moved, flops, compute = out[c.WEIGHT_BYTES], out[c.ACTIVATION_BYTES], out[c.FLOPS], out[c.COMPUTE]
    for q in range(n):
        weights[q], moved[q], flops[q] = _experts(routed[q], distinct[q], cols[q], inner[q], weight, read, written)
    out[c.KV_BYTES, :n] = 0.0
    memory_of(where, chip, out, n)
    own = s.flat[row]
    for q in range(n):
        if s.still[row] == 0:
            chip_at(s, row, q)
        peak = own[c.PEAK + where[c.DTYPE]] * own[c.COMPUTE_EFFICIENCY]
        took = _bounds(routed[q], distinct[q], cols[q], inner[q], peak, own, out[c.MEMORY, q] / NEAR)
        if took * NEAR >= out[c.MEMORY, q]:
            took = grouped_at(tokens[q], cols[q], inner[q], peak, s.bins[s.routing[q], bin_], own, s, q)
        compute[q] = took
    finish(chip, out, n)


@bare
def others_at(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Prefill attention, loads and recurrences at n points one by one, times in s."""
    where, kind, one = ops.where[u], ops.kind[u], s.one
    one[:] = 0.0
    for q in range(n):
        chip_at(s, where[c.ROW], q)
        chip, bins = s.flat[where[c.ROW]], s.bins[s.routing[q], ops.bin[u]]
        for k in range(N_DIMS):
            s.dims[k] = s.values[ops.slot[u, k], q]
        if kind == PREFILL:
            _prefill(s.dims, ops.consts[u], where, bins, chip, one)
        elif kind == LOAD:
            _load(s.dims, ops.consts[u], where, bins, chip, one)
        else:
            _scan(s.dims, ops.consts[u], where, bins, chip, one)
        for k in range(c.N_OUT):
            s.out[k, q] = one[k]


@bare
def price_op(ops: Ops, u: int, s: Strip, n: int) -> None:
    """Price op u at the first n points of a strip into its `out`; times in s. What memory hides is not computed to the end."""
    kind = ops.kind[u]
    if kind == GEMM:
        gemm_at(ops, u, s, n)
    elif kind == STREAM:
        stream_at(ops, u, s, n)
    elif kind == DECODE:
        decode_at(ops, u, s, n)
    elif kind == COLLECTIVE:
        collective_at(ops, u, s, n)
    elif kind == TRANSFER:
        transfer_at(ops, u, s, n)
    elif kind == EXPERTS:
        experts_at(ops, u, s, n)
    else:
        others_at(ops, u, s, n)
