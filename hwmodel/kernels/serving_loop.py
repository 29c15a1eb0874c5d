"""The event loop of serving: instances on one clock. Deterministic: ties go by kind of event, then by number."""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.reference import by_reference
from hwmodel.kernels.schedule import pop, push
from hwmodel.kernels.serving_admit import join
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_iteration import answer, finish, start
from hwmodel.kernels.serving_jit import inner
from hwmodel.kernels.serving_kv import allocate, let_go, publish
from hwmodel.kernels.serving_queue import put_last, take_first, wait_first, wait_last
from hwmodel.kernels.serving_routing import decoder, entry, refusal
from hwmodel.kernels.serving_series import end_series, note_state, pass_time
from hwmodel.kernels.serving_slots import come_in, go_out, receive, send
from hwmodel.kernels.serving_tiers import came_back

NEVER = np.inf


@inner
def arrive(s: Serving, number: int, now: float, routing: int, pairs: bool) -> int:
    """A request is there: the instance it waits at, or -1 when it is refused."""
    r = come_in(s, number, now)
    k = entry(s, r, routing)
    why = refusal(s, r, k)
    if why == 0 and pairs and s.inst[k, c.ROLE] == c.PREFILL_ONLY and s.req[r, c.OUTPUT] > 1:
        why = refusal(s, r, decoder(s))
    if why > 0:
        s.req[r, c.STATE] = c.REJECTED
        s.req[r, c.REASON] = why
        go_out(s, r)
        return -1
    s.noted[s.inst.shape[0], c.INSIDE] += 1.0
    if s.noted[s.inst.shape[0], c.INSIDE] > s.total[c.FULLEST]:
        s.total[c.FULLEST], s.total[c.FULLEST_S] = s.noted[s.inst.shape[0], c.INSIDE], now
    s.req[r, c.AT] = k
    s.req[r, c.GOAL] = 1 if s.inst[k, c.ROLE] == c.PREFILL_ONLY else s.req[r, c.OUTPUT]
    s.inst[k, c.LIVE] += 1
    s.inst[k, c.LOAD] += s.req[r, c.PROMPT]
    wait_last(s, k, r)
    if s.tier[k, 0, c.EVICTS] == c.RETURN:
        came_back(s, k, r)
    return k


@inner
def call_children(s: Serving, number: int, now: float) -> None:
    """Requests that wait for the end of one arrive after their gap."""
    if s.follow.shape[0] > 0:
        for i in range(s.follow[number], s.follow[number + 1]):
            child = s.follow[i]
            send(s, now + s.gap_s[child], child, -1)


@inner
def stage(s: Serving, k: int, r: int, now: float) -> int:
    """A prefilled request waits for the memory of a decode instance, and keeps that of its own until its KV has moved."""
    to = decoder(s)
    s.req[r, c.STATE] = c.STAGED
    s.req[r, c.ORIGIN] = k
    s.req[r, c.ORIGIN_UNITS] = s.req[r, c.UNITS]
    s.req[r, c.ORIGIN_PAGES] = s.req[r, c.PAGES]
    s.req[r, c.UNITS] = 0
    s.req[r, c.PAGES] = 0
    s.req[r, c.AT] = to
    s.req[r, c.GOAL] = s.req[r, c.OUTPUT]
    s.req[r, c.TAKE] = 0
    s.when[r, c.TRANSFER_S] = -now
    s.inst[to, c.LIVE] += 1
    put_last(s, to, r, c.INCOMING, c.INCOMING_TAIL)
    return to


@inner
def accept(s: Serving, k: int, now: float) -> None:
    """Start the transfers of prefilled requests that instance k has room for."""
    while s.inst[k, c.INCOMING] >= 0 and s.inst[k, c.BATCH] + s.inst[k, c.INFLIGHT] < s.inst[k, c.MAX_SEQS]:
        r = s.inst[k, c.INCOMING]
        tokens = s.req[r, c.PROMPT] + 1
        if s.inst[k, c.RESERVE] != 0:
            tokens = max(tokens, s.inst[k, c.RESERVE], s.req[r, c.PROMPT] + s.req[r, c.OUTPUT] - 1)
        idle = s.inst[k, c.BATCH] + s.inst[k, c.INFLIGHT] == 0
        pages = min(-(-tokens // s.inst[k, c.PAGE]), s.inst[k, c.CAPACITY])
        if not allocate(s, k, pages, 0 if idle else s.inst[k, c.WATERMARK]):
            break
        take_first(s, k, c.INCOMING, c.INCOMING_TAIL)
        s.req[r, c.PAGES] = pages
        s.req[r, c.STATE] = c.MOVING
        s.inst[k, c.INFLIGHT] += 1
        origin = s.req[r, c.ORIGIN]
        begin = max(now, s.meter[origin, c.LINK_FREE])
        sent = s.req[r, c.PROMPT]
        there = begin + s.meter[origin, c.SEND_LATENCY_S] + sent * s.meter[origin, c.TOKEN_SEND_S]
        s.meter[origin, c.LINK_FREE] = begin + sent * s.meter[origin, c.TOKEN_SEND_S]
        s.meter[origin, c.SENT_TOKENS] += sent
        send(s, there, s.req[r, c.NUMBER], r)


@inner
def moved(s: Serving, r: int, now: float) -> tuple[int, int]:
    """The KV of a request has arrived: it joins the batch of its decode instance; (that, where it came from)."""
    k, origin = s.req[r, c.AT], s.req[r, c.ORIGIN]
    let_go(s, origin, r, s.req[r, c.ORIGIN_UNITS], s.req[r, c.ORIGIN_PAGES], s.req[r, c.FORECAST])
    s.inst[origin, c.LIVE] -= 1
    s.req[r, c.ORIGIN_UNITS] = s.req[r, c.ORIGIN_PAGES] = 0
    s.req[r, c.COMPUTED] = s.req[r, c.PROMPT]
    s.req[r, c.STATE] = c.RUNNING
    s.when[r, c.TRANSFER_S] += now
    publish(s, k, r)
    join(s, k, r)
    s.inst[k, c.INFLIGHT] -= 1
    return k, origin


@inner
def loaded(s: Serving, r: int) -> int:
    """The KV that a request waited for is in the first tier: it waits before all others at its instance."""
    k = s.req[r, c.AT]
    s.inst[k, c.INFLIGHT] -= 1
    publish(s, k, r)
    wait_first(s, k, r)
    return k


@inner
def end_iteration(s: Serving, k: int, now: float, touched: np.ndarray, hit: int) -> int:
    """An iteration of instance k is over; how many instances are touched."""
    hit = touch(s, k, touched, hit)
    for i in range(finish(s, k, now, s.done)):
        r = s.done[i]
        if s.req[r, c.MADE] >= s.req[r, c.OUTPUT]:
            answer(s, k, r, now)
            call_children(s, s.req[r, c.NUMBER], now)
            go_out(s, r)
        else:
            hit = touch(s, stage(s, k, r, now), touched, hit)
    return hit


@inner
def reach(s: Serving, now: float, touched: np.ndarray, hit: int, routing: int, pairs: bool) -> int:
    """Requests on their way that are there now; how many instances are touched."""
    while s.counts[c.ON_WAY] > 0 and s.soon_s[0] <= now:
        number, r = receive(s)
        if r < 0:
            k = arrive(s, number, now, routing, pairs)
            if k >= 0:
                hit = touch(s, k, touched, hit)
        elif s.req[r, c.STATE] == c.MOVING:
            k, origin = moved(s, r, now)
            hit = touch(s, k, touched, touch(s, origin, touched, hit))
        else:
            hit = touch(s, loaded(s, r), touched, hit)
    return hit


@inner
def opening(s: Serving) -> int:
    """The next request that arrives by itself, -1 after the last."""
    at = s.counts[c.OPENED]
    if s.opening.shape[0] > 0:
        return s.opening[at] if at < s.opening.shape[0] else -1
    return at if at < s.prompt.shape[0] else -1


@bare
def serve(s: Serving, routing: int, limit: int, until: int) -> int:
    """Run until nothing is left to happen: 0; or until so many requests have arrived: 1, call it again to go on.

    -1 after more than `limit` iterations: no progress.
    """
    s = by_reference(s)
    ends, running, rank, touched = s.ends, s.running[0], s.running[1], s.running[2]
    pairs = False
    for k in range(s.inst.shape[0]):
        pairs = pairs or s.inst[k, c.ROLE] == c.DECODE_ONLY
    busy, iterations, number = s.counts[c.RUNNING_NOW], s.counts[c.ITERATED], opening(s)
    coming, now = s.arrival[number] if number >= 0 else NEVER, 0.0
    while s.counts[c.ARRIVED] < until:
        now = min(coming, s.soon_s[0] if s.counts[c.ON_WAY] > 0 else NEVER, ends[running[0]] if busy > 0 else NEVER)
        if now == NEVER:
            end_series(s)
            break
        if now < s.total[c.CLOCK]:
            s.total[c.BACKWARDS] += 1
        pass_time(s, now)
        s.total[c.CLOCK] = now
        hit = 0
        while coming <= now:
            k = arrive(s, number, now, routing, pairs)
            if k >= 0:
                hit = touch(s, k, touched, hit)
            s.counts[c.OPENED] += 1
            number = opening(s)
            coming = s.arrival[number] if number >= 0 else NEVER
        if s.counts[c.ON_WAY] > 0:
            hit = reach(s, now, touched, hit, routing, pairs)
        while busy > 0 and ends[running[0]] <= now:
            k = pop(running, busy, ends, rank)
            busy -= 1
            iterations += 1
            hit = end_iteration(s, k, now, touched, hit)
        if iterations > limit:
            return -1
        for i in range(hit):
            k = touched[i]
            s.inst[k, c.TOUCHED] = 0
            if pairs:
                accept(s, k, now)
            if s.inst[k, c.BUSY] == 0:
                start(s, k, now)
                if s.inst[k, c.BUSY] == 1:
                    ends[k] = s.meter[k, c.END]
                    busy = push(running, busy, ends, rank, k)
            note_state(s, k)
    s.counts[c.RUNNING_NOW], s.counts[c.ITERATED] = busy, iterations
    return 0 if now == NEVER else 1


@inner
def touch(s: Serving, k: int, touched: np.ndarray, hit: int) -> int:
    """Note that something changed for an instance; how many are noted."""
    if s.inst[k, c.TOUCHED] == 0:
        s.inst[k, c.TOUCHED] = 1
        touched[hit] = k
        return hit + 1
    return hit
