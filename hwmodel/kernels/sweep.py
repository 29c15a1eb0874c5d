"""Many points of one structure: every op that differs is priced once a point, and only what a table needs is kept.

Arrays of a structure (U ops that differ, T tasks, S segments)
--------------------------------------------------------------
Ops: kind (U,) index into KINDS; slot (U, 6) which value each dimension is; consts (U, 10); where (U, N_WHERE); bin (U,) which
bins of a routing, 0 for none.
Sums: task_op, task_repeats (T,), blocks (B + 1,) first task of each block; the chain as in `tokens`; held_op, held_pool,
held_stage, held_beside, held_times: executions of an op by one chip of a pool in one stage per micro-batch; step_times (U,) by
a micro-batch on its way through all layers; bound_name (U, N_TIERS + 1) what an op bound by tier -1, 0, 1, ... is called;
layer_op, layer_row, layer_times: executions in one layer of a row of layers; expert_op: the op whose loads are told, -1.
Uses: op, column (E,) what is counted; slot, spilled (E,) into which sum, and where it does not fit the cache of device row
`row` (E,); times (E,) per micro-batch.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from hwmodel.kernels import (
    attention_decode,
    attention_prefill,
    collective,
    experts,
    gemm,
    load,
    scan,
    stream,
    transfer,
)
from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.routing import known_distinct, routed_tokens
from hwmodel.kernels.tokens import N_STATE, steady

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
_WORK = (c.FLOPS, c.WEIGHT_BYTES, c.ACTIVATION_BYTES)
_ATTENTION = (c.FLOPS, c.KV_BYTES, c.ACTIVATION_BYTES)
_SENT = (c.WIRE_BYTES,)
FILLED = {
    "gemm": _WORK, "stream": (c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES), "attention_decode": _ATTENTION,
    "attention_prefill": _ATTENTION, "collective": _SENT, "transfer": _SENT, "load": _SENT, "scan": _ATTENTION,
    "experts": _WORK,
}  # fmt: skip
"""FLOP and bytes that a kind may have; its other amounts are always 0."""
N_DIMS, N_CONSTS = 6, 10
COMPUTE, LINK, OVERHEAD, MEMORY = 0, 1, 2, 3
"""Codes of what bounds a step or a layer; MEMORY + i is memory tier number i by name."""
N_POOL = 7
"""Columns of a pool: seconds by compute, memory, link, overhead and idle, share busy, index of the longest of the five."""

_gemm, _stream, _decode, _prefill = gemm.one, stream.one, attention_decode.one, attention_prefill.one
_collective, _transfer, _load, _scan, _experts = collective.one, transfer.one, load.one, scan.one, experts.product


class Ops(NamedTuple):
    """The ops that differ."""

    kind: np.ndarray
    slot: np.ndarray
    consts: np.ndarray
    where: np.ndarray
    bin: np.ndarray


class Sums(NamedTuple):
    """How priced ops add up to a step."""

    task_op: np.ndarray
    task_repeats: np.ndarray
    blocks: np.ndarray
    first: np.ndarray
    lane: np.ndarray
    segment: np.ndarray
    stage: np.ndarray
    layers: np.ndarray
    inner: np.ndarray
    edge: np.ndarray
    own: np.ndarray
    held_op: np.ndarray
    held_pool: np.ndarray
    held_stage: np.ndarray
    held_beside: np.ndarray
    held_times: np.ndarray
    step_times: np.ndarray
    bound_name: np.ndarray
    layer_op: np.ndarray
    layer_row: np.ndarray
    layer_times: np.ndarray


class Uses(NamedTuple):
    """What uses energy."""

    op: np.ndarray
    column: np.ndarray
    slot: np.ndarray
    spilled: np.ndarray
    row: np.ndarray
    times: np.ndarray


class Room(NamedTuple):
    """Room to work in for one point after the other."""

    device: np.ndarray
    values: np.ndarray
    dims: np.ndarray
    one: np.ndarray
    seconds: np.ndarray
    chips: np.ndarray
    total: np.ndarray
    rows: np.ndarray
    lanes: np.ndarray
    state: np.ndarray
    times: np.ndarray
    lanes_free: np.ndarray
    skip: np.ndarray
    ends: np.ndarray
    used: np.ndarray


class Sizes(NamedTuple):
    """How much there is of everything."""

    lanes: int
    alone: int
    pools: int
    stages: int
    names: int
    rows: int
    expert_op: int
    prefill: int
    rounds: int
    many: int
    slots: int


@bare
def price_point(
    ops: Ops, values: np.ndarray, bins: np.ndarray, logs: np.ndarray, device: np.ndarray, dims: np.ndarray, out: np.ndarray
) -> None:
    """Price every op at one point; times in s.

    values : dimensions by slot; bins, logs : (bins, N_BINS, 2) and (bins, N_BINS) of the point's routing, log1p(-p);
    device : (rows, N_DEVICE); dims : (N_DIMS,) room; out : (U, N_OUT). What memory hides is not computed to the end.
    """
    tokens, which, distinct, routed = -1.0, -1, 0.0, 0.0
    for u in range(ops.kind.shape[0]):
        for k in range(N_DIMS):
            dims[k] = values[ops.slot[u, k]]
        chip, where, consts, own, o = device[ops.where[u, c.ROW]], ops.where[u], ops.consts[u], bins[ops.bin[u]], out[u]
        kind = ops.kind[u]
        if kind == 0:
            _gemm(dims, consts, where, own, chip, o, True)
        elif kind == 1:
            _stream(dims, consts, where, own, chip, o, True)
        elif kind == 2:
            _decode(dims, consts, where, own, chip, o, True)
        elif kind == 3:
            _prefill(dims, consts, where, own, chip, o, True)
        elif kind == 4:
            _collective(dims, consts, where, own, chip, o, True)
        elif kind == 5:
            _transfer(dims, consts, where, own, chip, o, True)
        elif kind == 6:
            _load(dims, consts, where, own, chip, o, True)
        elif kind == 7:
            _scan(dims, consts, where, own, chip, o, True)
        else:
            if dims[0] != tokens or ops.bin[u] != which:
                tokens, which = dims[0], ops.bin[u]
                distinct, routed = known_distinct(tokens, own, logs[which]), routed_tokens(tokens, own)
            _experts(dims, consts, where, own, chip, o, routed, distinct, True)


@bare
def chips(priced: np.ndarray, sums: Sums, sizes: Sizes, parts: float, host: float, time: float, room: np.ndarray,
          out: np.ndarray, at: int, q: int) -> None:  # fmt: skip
    """Write N_POOL columns (s, share) of every pool from column `at`: one chip over one step, on its busiest stage.

    room : (pools, stages, 2, 4) work space; links beside compute count as far as compute leaves room.
    """
    room[:] = 0.0
    for e in range(sums.held_op.shape[0]):
        p = priced[sums.held_op[e]]
        if p[c.TIME] > 0.0:
            own = room[sums.held_pool[e], sums.held_stage[e], sums.held_beside[e]]
            times = sums.held_times[e]
            if p[c.COMPUTE] > p[c.MEMORY]:
                own[0] += p[c.COMPUTE] * times
            else:
                own[1] += p[c.MEMORY] * times
            own[2] += p[c.WIRE] * times
            own[3] += p[c.OVERHEAD] * times
    for pool in range(sizes.pools):
        best, most = 0, -1.0
        for stage in range(sizes.stages):
            total = 0.0
            for k in range(4):
                total += room[pool, stage, 0, k] + room[pool, stage, 1, k]
            if total > most:
                best, most = stage, total
        held, beside = room[pool, best, 0], room[pool, best, 1]
        held_s = (held[0] + held[1] + held[2] + held[3]) * parts + host
        beside_s = (beside[0] + beside[1] + beside[2] + beside[3]) * parts
        shown = min(1.0, max(0.0, time - held_s) / beside_s) if beside_s > 0.0 else 0.0
        busy, longest, code = 0.0, -1.0, 0
        for k in range(4):
            value = (held[k] + shown * beside[k]) * parts + (host if k == 3 else 0.0)
            out[at + pool * N_POOL + k, q] = value
            busy += value
            if value > longest:
                longest, code = value, k
        idle = max(0.0, time - busy)
        out[at + pool * N_POOL + 4, q] = idle
        out[at + pool * N_POOL + 5, q] = min(1.0, busy / time)
        out[at + pool * N_POOL + 6, q] = 4.0 if idle > longest else float(code)


@bare
def bound_code(p: np.ndarray, names: np.ndarray) -> int:
    """Code of what takes longest (s) in one execution; names : (N_TIERS + 1,) of the op's memory tiers."""
    if p[c.COMPUTE] >= p[c.MEMORY] and p[c.COMPUTE] >= p[c.WIRE] and p[c.COMPUTE] >= p[c.OVERHEAD]:
        return COMPUTE
    if p[c.MEMORY] >= p[c.WIRE] and p[c.MEMORY] >= p[c.OVERHEAD]:
        return int(names[int(p[c.BOUND_TIER]) + 1])
    return LINK if p[c.WIRE] >= p[c.OVERHEAD] else OVERHEAD


@bare
def largest(values: np.ndarray) -> int:
    """Index of the largest of some times (s); the first of equal ones."""
    found = 0
    for k in range(1, values.shape[0]):
        if values[k] > values[found]:
            found = k
    return found


@bare
def bounds(priced: np.ndarray, sums: Sums, host: float, total: np.ndarray) -> int:
    """Code of what most of a micro-batch's way through all layers is (s); total : (names,) work space."""
    total[:] = 0.0
    total[OVERHEAD] = host
    for u in range(priced.shape[0]):
        p, times = priced[u], sums.step_times[u]
        if p[c.TIME] > 0.0:
            if p[c.COMPUTE] > p[c.MEMORY]:
                total[COMPUTE] += p[c.COMPUTE] * times
            else:
                total[sums.bound_name[u, int(p[c.BOUND_TIER]) + 1]] += p[c.MEMORY] * times
            total[LINK] += p[c.WIRE] * times
            total[OVERHEAD] += p[c.OVERHEAD] * times
    return largest(total)


@bare
def layers(priced: np.ndarray, sums: Sums, sizes: Sizes, parts: float, room: np.ndarray, out: np.ndarray, at: int,
           q: int) -> None:  # fmt: skip
    """Write time (s) and bound of one layer of every row of layers, all micro-batches; room : (rows, names)."""
    room[:] = 0.0
    for e in range(sums.layer_op.shape[0]):
        u = sums.layer_op[e]
        room[sums.layer_row[e], bound_code(priced[u], sums.bound_name[u])] += priced[u, c.TIME] * sums.layer_times[e]
    for row in range(sizes.rows):
        whole = 0.0
        for k in range(sizes.names):
            whole += room[row, k]
        out[at + 2 * row, q] = whole * parts
        out[at + 2 * row + 1, q] = float(largest(room[row]))


@bare
def lanes(sums: Sums, sizes: Sizes, seconds: np.ndarray, parts: float, room: np.ndarray, out: np.ndarray, at: int,
          q: int) -> None:  # fmt: skip
    """Write the seconds (s) that work takes on every lane per step, in its busiest stage; room : (stages, lanes)."""
    room[:] = 0.0
    for r in range(sums.segment.shape[0]):
        for k in range(sums.first[sums.segment[r]], sums.first[sums.segment[r] + 1]):
            room[sums.stage[r], sums.lane[k]] += seconds[k] * sums.layers[r]
    for lane in range(sizes.lanes):
        most = 0.0
        for stage in range(sizes.stages):
            most = max(most, room[stage, lane])
        out[at + lane, q] = most * parts


@bare
def used(priced: np.ndarray, uses: Uses, device: np.ndarray, parts: float, room: np.ndarray, out: np.ndarray, at: int,
         q: int) -> None:  # fmt: skip
    """Write the sums (FLOP, B) of what uses energy, all micro-batches; room : (slots,).

    Activations stay in a cache that they fit.
    """
    room[:] = 0.0
    for e in range(uses.op.shape[0]):
        amount, slot = priced[uses.op[e], uses.column[e]], uses.slot[e]
        if slot != uses.spilled[e] and amount > device[uses.row[e], c.CACHE_BYTES]:
            slot = uses.spilled[e]
        room[slot] += amount * uses.times[e]
    for slot in range(room.shape[0]):
        out[at + slot, q] = room[slot] * parts


@bare
def table(
    ops: Ops, sums: Sums, uses: Uses, sizes: Sizes, room: Room, bins: np.ndarray, logs: np.ndarray, varied: np.ndarray,
    routing: np.ndarray, over_at: np.ndarray, over: np.ndarray, parts: np.ndarray, host: np.ndarray, priced: np.ndarray,
    given: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill the columns of many points (times in s); arrays as in `evaluate`, room to work in given."""
    values, device, seconds = room.values, room.device, room.seconds
    at_rows = 3 + N_POOL * sizes.pools
    at_lanes = at_rows + 2 * sizes.rows
    at_uses = at_lanes + sizes.lanes
    for q in range(varied.shape[0]):
        for k in range(varied.shape[1]):
            values[k] = varied[q, k]
        for k in range(over_at.shape[0]):
            device[over_at[k, 0], over_at[k, 1]] = over[k, q]
        one = room.one
        if priced.shape[0] > 0:
            one = priced[q]
        else:
            price_point(ops, values, bins[routing[q]], logs[routing[q]], device, room.dims, one)
        for k in range(seconds.shape[0]):
            seconds[k] = 0.0
            for t in range(sums.blocks[k], sums.blocks[k + 1]):
                seconds[k] += one[sums.task_op[t], c.TIME] * sums.task_repeats[t]
        if given.shape[0] > 0:
            makespan, period = given[q, 0], given[q, 1]
        else:
            makespan, period = steady(
                parts[q],
                sizes.alone,
                sizes.lanes,
                sums.first,
                sums.lane,
                sums.segment,
                sums.stage,
                sums.layers,
                sums.inner,
                sums.edge,
                sums.own,
                seconds,
                sizes.rounds,
                room.state,
                room.times,
                room.lanes_free,
                room.skip,
                room.ends,
            )
        time = host[q] + (makespan if sizes.prefill == 1 else period)
        out[0, q], out[1, q] = time, host[q] + makespan
        out[2, q] = float(bounds(one, sums, host[q], room.total))
        cut = float(parts[q])
        chips(one, sums, sizes, cut, host[q], time, room.chips, out, 3, q)
        layers(one, sums, sizes, cut, room.rows, out, at_rows, q)
        lanes(sums, sizes, seconds, cut, room.lanes, out, at_lanes, q)
        used(one, uses, device, cut, room.used, out, at_uses, q)
        u = sizes.expert_op
        if u >= 0:  # pairs and experts hit, as the op counted them
            own, here = bins[routing[q], ops.bin[u]], 0.0
            for k in range(own.shape[0]):
                here += own[k, 1]
            area = values[ops.slot[u, 2]] * values[ops.slot[u, 3]]
            out[at_uses + sizes.slots, q] = one[u, c.FLOPS] / (2.0 * area * here)
            out[at_uses + sizes.slots + 1, q] = one[u, c.WEIGHT_BYTES] / (area * ops.consts[u, 0])


@njit(cache=True, nogil=True)
def evaluate(
    ops: Ops, sums: Sums, uses: Uses, sizes: Sizes, constant: np.ndarray, varied: np.ndarray, bins: np.ndarray,
    logs: np.ndarray, routing: np.ndarray, base: np.ndarray, over_at: np.ndarray, over: np.ndarray, parts: np.ndarray,
    host: np.ndarray, priced: np.ndarray, given: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill the columns of many points: step, makespan (s), bound, pools, layers, lanes, uses, tokens per expert, experts hit.

    constant : values of all slots, the first of which `varied` (points, n) replaces; bins : (routings, bins, N_BINS, 2);
    logs : (routings, bins, N_BINS); routing : (points,) int; base : (rows, N_DEVICE); over_at : (m, 2) row and column of the
    device numbers that vary; over : (m, points); parts : (points,) int micro-batches; host : (points,) s;
    priced : (points, U, N_OUT) where priced elsewhere, else empty; given : (points, 2) makespan and period (s) where scheduled
    elsewhere, else empty; out : (columns, points).
    """
    tokens = parts.max() if parts.shape[0] > 0 else 1
    room = Room(
        base.copy(), constant.copy(), np.zeros(N_DIMS), np.zeros((ops.kind.shape[0], c.N_OUT)),
        np.zeros(sums.blocks.shape[0] - 1), np.zeros((sizes.pools, sizes.stages, 2, 4)), np.zeros(sizes.names),
        np.zeros((sizes.rows, sizes.names)), np.zeros((sizes.stages, sizes.lanes)), np.zeros((4, tokens, N_STATE), np.int64),
        np.zeros((4, tokens)), np.zeros((4, sizes.stages * sizes.lanes)),
        np.zeros(sums.lane.shape[0], np.int64), np.zeros(sizes.many),
        np.zeros(sizes.slots),
    )  # fmt: skip
    table(ops, sums, uses, sizes, room, bins, logs, varied, routing, over_at, over, parts, host, priced, given, out)
