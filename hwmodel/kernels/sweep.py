"""Many points of one structure: every op that differs is priced once a point, and only what a table needs is kept.

Points are worked on in strips, with arrays that have the points last: one op is priced at all points of a strip (`strip`) and
added to the sums it counts in before the next is priced, so that a strip's sums and one op's amounts stay in the first caches.

Arrays of a structure (U ops that differ)
-----------------------------------------
Ops: kind (U,) index into KINDS; slot (U, 6) which value each dimension is; consts (U, 10); where (U, N_WHERE); bin (U,) which
bins of a routing, 0 for none.
Entries: at (U + 1,) first entry of each op; into (E,) which sum an op counts in, times (E,) how often.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.strip import KINDS, N_DIMS, STRIP, Ops, Strip, price_op
from hwmodel.kernels.tokens import N_STATE, Way, steady

_WORK = (c.FLOPS, c.WEIGHT_BYTES, c.ACTIVATION_BYTES)
_ATTENTION = (c.FLOPS, c.KV_BYTES, c.ACTIVATION_BYTES)
_SENT = (c.WIRE_BYTES,)
FILLED = {
    "gemm": _WORK, "stream": (c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES), "attention_decode": _ATTENTION,
    "attention_prefill": _ATTENTION, "collective": _SENT, "transfer": _SENT, "load": _SENT, "scan": _ATTENTION,
    "experts": _WORK,
}  # fmt: skip
"""FLOP and bytes that a kind may have; its other amounts are always 0."""
MOVES = np.array([kind in ("collective", "transfer", "load") for kind in KINDS])
"""Kinds that take time on links only."""
COMPUTE, LINK, OVERHEAD, MEMORY = 0, 1, 2, 3
"""Codes of what bounds a step or a layer; MEMORY + i is memory tier number i by name."""
N_POOL = 7
"""Columns of a pool: seconds by compute, memory, link, overhead and idle, share busy, index of the longest of the five."""


class Entries(NamedTuple):
    """Which sums ops count in, and how often."""

    at: np.ndarray
    into: np.ndarray
    times: np.ndarray


class Sums(NamedTuple):
    """How priced ops add up to a step."""

    blocks: Entries
    """Executions in a block of the chain."""
    lanes: Entries
    """Blocks of each lane of each stage (at: stages x lanes + 1), and layers of a step that have them."""
    groups: Entries
    """Executions by one chip in (pool, stage, on its lane or beside it) per micro-batch; the last group is the rest of a
    micro-batch's way through all layers."""
    layers: Entries
    """Executions in one layer of a row of layers."""
    names: np.ndarray
    """(U, N_TIERS + 1) what an op bound by tier -1, 0, 1, ... is called."""
    wanted: np.ndarray
    """(U, names) whether an op may be bound by it."""


class Uses(NamedTuple):
    """What uses energy."""

    at: np.ndarray
    column: np.ndarray
    """What is counted."""
    slot: np.ndarray
    """Into which sum."""
    spilled: np.ndarray
    """And into which where it does not fit the cache."""
    times: np.ndarray
    """Per micro-batch."""


class Sizes(NamedTuple):
    """How much there is of everything."""

    lanes: int
    pools: int
    stages: int
    names: int
    """What a step or a layer may be bound by."""
    rows: int
    """Of layers."""
    expert_op: int
    """The op whose loads are told; -1 for none."""
    prefill: int
    """1 where a step is all of a prefill, its makespan."""
    rounds: int
    """Steps that are walked to find a period."""
    many: int
    """Steps that are walked where those do not settle."""
    slots: int
    """Sums of what uses energy."""


class Room(NamedTuple):
    """Room to work in for one strip after the other; (..., STRIP) but for those of a walk."""

    seconds: np.ndarray
    groups: np.ndarray
    rows: np.ndarray
    used: np.ndarray
    parts: np.ndarray
    state: np.ndarray
    times: np.ndarray
    lanes_free: np.ndarray
    made: np.ndarray
    skip: np.ndarray
    ends: np.ndarray
    one: np.ndarray
    out: np.ndarray


@bare
def put(target: np.ndarray, source: np.ndarray, n: int) -> None:
    """Copy (STRIP,), any unit (s)."""
    for q in range(n):
        target[q] = source[q]


@bare
def add(total: np.ndarray, amount: np.ndarray, times: float, n: int) -> None:
    """Total += amount times; (STRIP,), one unit (s, B or FLOP)."""
    for q in range(n):
        total[q] += amount[q] * times


@bare
def add_where(total: np.ndarray, amount: np.ndarray, times: float, code: np.ndarray, wanted: float, n: int) -> None:
    """Total += amount times where a code is the one that is wanted; (STRIP,), one unit (s)."""
    for q in range(n):
        total[q] += amount[q] * times if code[q] == wanted else 0.0


@bare
def add_fitting(total: np.ndarray, amount: np.ndarray, times: float, cache: np.ndarray, fits: bool, n: int) -> None:
    """Total += amount times where it fits a cache, or where it does not; (STRIP,) B."""
    for q in range(n):
        total[q] += amount[q] * times if (amount[q] <= cache[q]) == fits else 0.0


@bare
def take_apart(out: np.ndarray, names: np.ndarray, parts: np.ndarray, n: int) -> None:
    """Write what one execution counts as: rows COMPUTE, LINK, OVERHEAD, MEMORY (s), name of its tier, what bounds it.

    Of compute and memory only the longer counts, and nothing of what is hidden behind other work; parts : (6, STRIP)
    """
    compute, memory, wire, over, time, tier = (
        out[c.COMPUTE], out[c.MEMORY], out[c.WIRE], out[c.OVERHEAD], out[c.TIME], out[c.BOUND_TIER],
    )  # fmt: skip
    cached, first, second, third, fourth = float(names[0]), float(names[1]), float(names[2]), float(names[3]), float(names[4])
    own, bound = parts[4], parts[5]
    for q in range(n):
        t = tier[q]
        own[q] = cached if t < 0.0 else first if t == 0.0 else second if t == 1.0 else third if t == 2.0 else fourth
    for q in range(n):
        longest = LINK if wire[q] >= over[q] else OVERHEAD
        most = max(wire[q], over[q])
        bound[q] = COMPUTE if compute[q] >= memory[q] and compute[q] >= most else own[q] if memory[q] >= most else longest
    for q in range(n):
        parts[COMPUTE, q] = compute[q] if compute[q] > memory[q] and time[q] > 0.0 else 0.0
    for q in range(n):
        parts[MEMORY, q] = 0.0 if compute[q] > memory[q] or time[q] <= 0.0 else memory[q]
    for q in range(n):
        parts[LINK, q] = wire[q] if time[q] > 0.0 else 0.0
    for q in range(n):
        parts[OVERHEAD, q] = over[q] if time[q] > 0.0 else 0.0


@bare
def count(u: int, ops: Ops, sums: Sums, uses: Uses, s: Strip, room: Room, n: int) -> None:
    """Add a priced op (s, B, FLOP) to all that it counts in."""
    time, parts = s.out[c.TIME], room.parts
    for e in range(sums.blocks.at[u], sums.blocks.at[u + 1]):
        add(room.seconds[sums.blocks.into[e]], time, sums.blocks.times[e], n)
    take_apart(s.out, sums.names[u], parts, n)
    wanted = sums.wanted[u]
    for e in range(sums.groups.at[u], sums.groups.at[u + 1]):
        group, times = room.groups[sums.groups.into[e]], sums.groups.times[e]
        for name in range(MEMORY):
            if wanted[name]:
                add(group[name], parts[name], times, n)
        for name in range(MEMORY, wanted.shape[0]):
            if wanted[name]:
                add_where(group[name], parts[MEMORY], times, parts[4], float(name), n)
    for e in range(sums.layers.at[u], sums.layers.at[u + 1]):
        row, times = room.rows[sums.layers.into[e]], sums.layers.times[e]
        for name in range(wanted.shape[0]):
            if wanted[name]:
                add_where(row[name], time, times, parts[5], float(name), n)
    for e in range(uses.at[u], uses.at[u + 1]):
        amount, slot, times = s.out[uses.column[e]], room.used[uses.slot[e]], uses.times[e]
        if uses.slot[e] == uses.spilled[e]:
            add(slot, amount, times, n)
        else:
            cache = s.device[ops.where[u, c.ROW], c.CACHE_BYTES]
            add_fitting(slot, amount, times, cache, True, n)
            add_fitting(room.used[uses.spilled[e]], amount, times, cache, False, n)


@bare
def largest(values: np.ndarray, found: np.ndarray, most: np.ndarray, n: int) -> None:
    """Write the index of the largest of some times (s), the first of equal ones; values : (several, STRIP)."""
    for q in range(n):
        most[q], found[q] = values[0, q], 0.0
    for k in range(1, values.shape[0]):
        own, code = values[k], float(k)
        for q in range(n):
            found[q] = code if own[q] > most[q] else found[q]
            most[q] = max(own[q], most[q])


@bare
def bounds(sizes: Sizes, host: np.ndarray, room: Room, bound: np.ndarray, n: int) -> None:
    """Write the code of what most of a micro-batch's way through all layers is (s); the last group is used up."""
    total = room.groups[room.groups.shape[0] - 1]
    for g in range(room.groups.shape[0] - 1):
        for name in range(sizes.names):
            add(total[name], room.groups[g, name], 1.0, n)
    add(total[OVERHEAD], host, 1.0, n)
    largest(total, bound, room.parts[0], n)


@bare
def fullest(pool: int, sizes: Sizes, room: Room, n: int) -> None:
    """Write into `parts` what a chip does in its busiest stage: compute, memory, link, overhead (s), and beside them."""
    parts = room.parts
    for stage in range(sizes.stages):
        whole = parts[16]
        whole[:n] = 0.0
        for beside in range(2):
            group, at = room.groups[(pool * sizes.stages + stage) * 2 + beside], 8 + 4 * beside
            put(parts[at], group[COMPUTE], n)
            parts[at + 1, :n] = 0.0
            for name in range(MEMORY, sizes.names):
                add(parts[at + 1], group[name], 1.0, n)
            put(parts[at + 2], group[LINK], n)
            put(parts[at + 3], group[OVERHEAD], n)
            for k in range(4):
                add(whole, parts[at + k], 1.0, n)
        if stage == 0:
            for k in range(8):
                put(parts[k], parts[k + 8], n)
            put(parts[17], whole, n)
        else:
            for k in range(8):
                for q in range(n):
                    parts[k, q] = parts[k + 8, q] if whole[q] > parts[17, q] else parts[k, q]
            for q in range(n):
                parts[17, q] = max(whole[q], parts[17, q])


@bare
def pools(sizes: Sizes, cut: float, host: np.ndarray, time: np.ndarray, room: Room, out: np.ndarray, n: int) -> None:
    """Write N_POOL rows (s, share) of every pool: one chip over one step of `cut` micro-batches, on its busiest stage.

    Links beside compute count as far as compute leaves room. out : (pools x N_POOL, STRIP)
    """
    for pool in range(sizes.pools):
        fullest(pool, sizes, room, n)
        p, o = room.parts, out[pool * N_POOL : (pool + 1) * N_POOL]
        for q in range(n):
            held = (p[0, q] + p[1, q] + p[2, q] + p[3, q]) * cut + host[q]
            beside = (p[4, q] + p[5, q] + p[6, q] + p[7, q]) * cut
            p[8, q] = min(1.0, max(0.0, time[q] - held) / beside) * cut if beside > 0.0 else 0.0
        for k in range(4):
            for q in range(n):
                o[k, q] = p[k, q] * cut + p[k + 4, q] * p[8, q]
        add(o[3], host, 1.0, n)
        for q in range(n):
            busy = o[0, q] + o[1, q] + o[2, q] + o[3, q]
            p[9, q], p[10, q] = busy, max(0.0, time[q] - busy)
        for q in range(n):
            o[4, q] = p[10, q]
        for q in range(n):
            o[5, q] = min(1.0, p[9, q] / time[q])
        largest(o[:4], o[6], p[9], n)
        for q in range(n):
            o[6, q] = 4.0 if p[10, q] > p[9, q] else o[6, q]


@bare
def rows_of(sizes: Sizes, cut: float, room: Room, out: np.ndarray, n: int) -> None:
    """Write time (s) and bound of one layer of every row of layers, all micro-batches; out : (2 rows, STRIP)."""
    for row in range(sizes.rows):
        whole = out[2 * row]
        whole[:n] = 0.0
        for name in range(sizes.names):
            add(whole, room.rows[row, name], cut, n)
        largest(room.rows[row], out[2 * row + 1], room.parts[0], n)


@bare
def lanes_of(sums: Sums, sizes: Sizes, cut: float, room: Room, out: np.ndarray, n: int) -> None:
    """Write the seconds (s) that work takes on every lane per step, in its busiest stage; out : (lanes, STRIP)."""
    out[: sizes.lanes] = 0.0
    whole = room.parts[0]
    for stage in range(sizes.stages):
        for lane in range(sizes.lanes):
            most, at = out[lane], stage * sizes.lanes + lane
            whole[:n] = 0.0
            for e in range(sums.lanes.at[at], sums.lanes.at[at + 1]):
                add(whole, room.seconds[sums.lanes.into[e]], sums.lanes.times[e] * cut, n)
            for q in range(n):
                most[q] = max(most[q], whole[q])


@bare
def schedule(way: Way, sizes: Sizes, tokens: int, room: Room, makespan: np.ndarray, period: np.ndarray, n: int) -> None:
    """Write makespan and period (s) of `tokens` micro-batches at n points."""
    if tokens == 1 or way.alone == 1:
        makespan[:n] = 0.0
        for k in range(way.times.shape[0]):
            add(makespan, room.seconds[k], float(tokens) * way.times[k], n)
        put(period, makespan, n)
        return
    for q in range(n):
        for k in range(room.one.shape[0]):
            room.one[k] = room.seconds[k, q]
        makespan[q], period[q] = steady(
            tokens, way, room.one, sizes.rounds, room.made, room.skip, room.state, room.times, room.lanes_free, room.ends
        )


@bare
def start(s: Strip, room: Room, varied: np.ndarray, routing: np.ndarray, over: np.ndarray, begin: int, n: int) -> None:
    """Put the numbers of n points into a strip and clear its sums (s, B, FLOP); arrays as in `evaluate`."""
    for k in range(varied.shape[0]):
        target, source = s.values[k], varied[k]
        for q in range(n):
            target[q] = source[begin + q]
    for e in range(over.shape[0]):
        target, source = s.device[s.varies[e, 0], s.varies[e, 1]], over[e]
        for q in range(n):
            target[q] = source[begin + q]
    for q in range(n):
        s.routing[q] = routing[begin + q]
    s.chosen[:] = -1
    room.seconds[:] = 0.0
    room.groups[:] = 0.0
    room.rows[:] = 0.0
    room.used[:] = 0.0


@bare
def loads_told(ops: Ops, u: int, s: Strip, out: np.ndarray, n: int) -> None:
    """Write tokens per expert and experts hit of op u, as the op counted them (no unit); out : (2, STRIP)."""
    first, second = s.values[ops.slot[u, 2]], s.values[ops.slot[u, 3]]
    for q in range(n):
        here = 0.0
        for k in range(c.N_BINS):
            here += s.bins[s.routing[q], ops.bin[u], k, 1]
        area = first[q] * second[q]
        out[0, q] = s.out[c.FLOPS, q] / (2.0 * area * here)
        out[1, q] = s.out[c.WEIGHT_BYTES, q] / (area * ops.consts[u, 0])


@bare
def table(
    ops: Ops, sums: Sums, uses: Uses, way: Way, sizes: Sizes, s: Strip, room: Room, varied: np.ndarray, routing: np.ndarray,
    over: np.ndarray, parts: np.ndarray, host: np.ndarray, priced: np.ndarray, given: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill the columns of many points (times in s); arrays as in `evaluate`, room to work in given."""
    at_rows = 3 + N_POOL * sizes.pools
    at_lanes = at_rows + 2 * sizes.rows
    at_uses = at_lanes + sizes.lanes
    at_loads = at_uses + sizes.slots
    begin = 0
    while begin < parts.shape[0]:
        tokens, end = parts[begin], begin + 1
        while end < parts.shape[0] and end < begin + STRIP and parts[end] == tokens:
            end += 1
        n, o, own = end - begin, room.out, host[begin:end]
        start(s, room, varied, routing, over, begin, n)
        for u in range(ops.kind.shape[0]):
            if priced.shape[0] > 0:
                for q in range(n):
                    for k in range(c.N_OUT):
                        s.out[k, q] = priced[begin + q, u, k]
            else:
                price_op(ops, u, s, n)
            count(u, ops, sums, uses, s, room, n)
            if u == sizes.expert_op:
                loads_told(ops, u, s, o[at_loads:], n)
        makespan, period, cut = room.parts[18], room.parts[19], float(tokens)
        if given.shape[0] > 0:
            for q in range(n):
                makespan[q], period[q] = given[begin + q, 0], given[begin + q, 1]
        else:
            schedule(way, sizes, tokens, room, makespan, period, n)
        for q in range(n):
            o[0, q], o[1, q] = own[q] + (makespan[q] if sizes.prefill == 1 else period[q]), own[q] + makespan[q]
        pools(sizes, cut, own, o[0], room, o[3:at_rows], n)
        bounds(sizes, own, room, o[2], n)
        rows_of(sizes, cut, room, o[at_rows:at_lanes], n)
        lanes_of(sums, sizes, cut, room, o[at_lanes:at_uses], n)
        for slot in range(sizes.slots):
            for q in range(n):
                o[at_uses + slot, q] = room.used[slot, q] * cut
        for k in range(o.shape[0]):
            target, source = out[k], o[k]
            for q in range(n):
                target[begin + q] = source[q]
        begin = end


@njit(cache=True, nogil=True)
def evaluate(
    ops: Ops, sums: Sums, uses: Uses, way: Way, sizes: Sizes, constant: np.ndarray, varied: np.ndarray, bins: np.ndarray,
    logs: np.ndarray, shares: np.ndarray, routing: np.ndarray, base: np.ndarray, still: np.ndarray, keeps: np.ndarray,
    most: int, over_at: np.ndarray, over: np.ndarray, parts: np.ndarray, host: np.ndarray, priced: np.ndarray,
    given: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Fill the columns of many points: step, makespan (s), bound, pools, layers, lanes, uses, tokens per expert, experts hit.

    Quick where points with equally many micro-batches stand together.

    constant : values of all slots, the first of which `varied` (n, points) replaces; bins : (routings, bins, N_BINS, 2);
    logs : (routings, bins, N_BINS); shares : (routings, bins); routing : (points,) int; base : (rows, N_DEVICE); still, keeps,
    most : of a Strip; over_at : (m, 2) row and column of the device numbers that vary; over : (m, points); parts : (points,)
    int micro-batches; host : (points,) s; priced : (points, U, N_OUT) where priced elsewhere, else empty; given : (points, 2)
    makespan and period (s) where scheduled elsewhere, else empty; out : (columns, points).
    """
    tokens = parts.max() if parts.shape[0] > 0 else 1
    count_, blocks, kinds = ops.kind.shape[0], way.times.shape[0], way.first.shape[0] - 1
    device, values = np.empty((base.shape[0], c.N_DEVICE, STRIP)), np.empty((constant.shape[0], STRIP))
    for k in range(constant.shape[0]):
        values[k] = constant[k]
    for row in range(base.shape[0]):
        for k in range(c.N_DEVICE):
            device[row, k] = base[row, k]
    strip = Strip(
        values, device, over_at, still, base.copy(), np.zeros(STRIP, np.int64), bins, logs, shares, keeps,
        np.full((count_, most + 1), np.nan), np.zeros(3, np.int64), np.empty((4, STRIP)), np.empty((c.N_TILES, STRIP)),
        np.zeros(N_DIMS), np.zeros(c.N_OUT), np.zeros((c.N_OUT, STRIP)),
    )  # fmt: skip
    room = Room(
        np.empty((blocks, STRIP)), np.empty((2 * sizes.pools * sizes.stages + 1, sizes.names, STRIP)),
        np.empty((sizes.rows, sizes.names, STRIP)), np.empty((sizes.slots, STRIP)), np.empty((20, STRIP)),
        np.zeros((4, N_STATE, tokens), np.int64), np.zeros((4, tokens)), np.zeros((4, way.places)),
        np.zeros(kinds), np.zeros(kinds, np.int64), np.zeros(sizes.many), np.zeros(blocks), np.empty((out.shape[0], STRIP)),
    )  # fmt: skip
    table(ops, sums, uses, way, sizes, strip, room, varied, routing, over, parts, host, priced, given, out)
