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
from hwmodel.kernels.serving_tiers import came_back

NEVER = np.inf


@inner
def arrive(s: Serving, r: int, now: float, routing: int, pairs: bool) -> int:
    """A request is there: the instance it waits at, or -1 when it is refused."""
    s.when[r, c.ARRIVAL] = now
    k = entry(s, r, routing)
    why = refusal(s, r, k)
    if why == 0 and pairs and s.inst[k, c.ROLE] == c.PREFILL_ONLY and s.req[r, c.OUTPUT] > 1:
        why = refusal(s, r, decoder(s))
    if why > 0:
        s.req[r, c.STATE] = c.REJECTED
        s.req[r, c.REASON] = why
        return -1
    s.noted[s.inst.shape[0], c.INSIDE] += 1.0
    s.req[r, c.AT] = k
    s.req[r, c.GOAL] = 1 if s.inst[k, c.ROLE] == c.PREFILL_ONLY else s.req[r, c.OUTPUT]
    s.inst[k, c.LIVE] += 1
    s.inst[k, c.LOAD] += s.req[r, c.PROMPT]
    wait_last(s, k, r)
    if s.tier[k, 0, c.EVICTS] == c.RETURN:
        came_back(s, k, r)
    return k


@inner
def call_children(s: Serving, r: int, now: float, heap: np.ndarray, length: int, ready: np.ndarray, order: np.ndarray) -> int:
    """Requests that wait for the end of r arrive after their gap; the heap's new length."""
    for i in range(s.follow[r], s.follow[r + 1]):
        child = s.follow[i]
        ready[child] = now + s.when[child, c.GAP_S]
        length = push(heap, length, ready, order, child)
    return length


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
def accept(s: Serving, k: int, now: float, heap: np.ndarray, length: int, ready: np.ndarray, order: np.ndarray) -> int:
    """Start the transfers of prefilled requests that instance k has room for; the heap's new length."""
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
        ready[r] = begin + s.meter[origin, c.SEND_LATENCY_S] + sent * s.meter[origin, c.TOKEN_SEND_S]
        s.meter[origin, c.LINK_FREE] = begin + sent * s.meter[origin, c.TOKEN_SEND_S]
        s.meter[origin, c.SENT_TOKENS] += sent
        length = push(heap, length, ready, order, r)
    return length


@inner
def moved(s: Serving, r: int, now: float) -> tuple[int, int]:
    """The KV of a request has arrived: it joins the batch of its decode instance; (that, where it came from)."""
    k, origin = s.req[r, c.AT], s.req[r, c.ORIGIN]
    let_go(s, origin, r, s.req[r, c.ORIGIN_UNITS], s.req[r, c.ORIGIN_PAGES], s.forecast[r])
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


def serve(s: Serving, arrivals: np.ndarray, routing: int, limit: int) -> int:
    """Run until nothing is left to happen; the number of iterations, -1 when there were more than `limit` (no progress).

    arrivals : (open,) int, requests that arrive at their own time (``when[:, ARRIVAL]``, s), in order of it
    """
    n, instances = s.req.shape[0], s.inst.shape[0]
    queues = np.zeros(n), np.zeros(n, np.int64), np.arange(n)
    clocks = np.zeros(instances), np.zeros(instances, np.int64), np.arange(instances)
    touched, done = np.zeros(instances, np.int64), np.zeros(s.batch.shape[1], np.int64)
    return int(loop(s, arrivals, routing, limit, *queues, *clocks, touched, done))


@bare
def loop(
    s: Serving, arrivals: np.ndarray, routing: int, limit: int, ready: np.ndarray, heap: np.ndarray, order: np.ndarray,
    ends: np.ndarray, running: np.ndarray, rank: np.ndarray, touched: np.ndarray, done: np.ndarray,
) -> int:  # fmt: skip
    """As `serve`, in room that is given.

    ready (s), heap, order : (requests,) zeros, zeros and 0, 1, ...; ends (s), running, rank : the same of instances; touched :
    (instances,) int; done : (sequences of a batch,) int
    """
    s = by_reference(s)
    instances = s.inst.shape[0]
    pairs = False
    for k in range(instances):
        pairs = pairs or s.inst[k, c.ROLE] == c.DECODE_ONLY
    length = busy = at = iterations = 0
    while True:
        now = s.when[arrivals[at], c.ARRIVAL] if at < arrivals.shape[0] else NEVER
        now = min(now, ready[heap[0]] if length > 0 else NEVER, ends[running[0]] if busy > 0 else NEVER)
        if now == NEVER:
            end_series(s)
            return iterations
        if now < s.total[c.CLOCK]:
            s.total[c.BACKWARDS] += 1
        pass_time(s, now)
        s.total[c.CLOCK] = now
        hit = 0
        while at < arrivals.shape[0] and s.when[arrivals[at], c.ARRIVAL] <= now:
            k = arrive(s, arrivals[at], now, routing, pairs)
            if k >= 0:
                hit = touch(s, k, touched, hit)
            at += 1
        while length > 0 and ready[heap[0]] <= now:
            r = pop(heap, length, ready, order)
            length -= 1
            state = s.req[r, c.STATE]
            if state == c.MOVING:
                k, origin = moved(s, r, now)
                hit = touch(s, k, touched, touch(s, origin, touched, hit))
            elif state == c.LOADING:
                hit = touch(s, loaded(s, r), touched, hit)
            else:
                k = arrive(s, r, now, routing, pairs)
                if k >= 0:
                    hit = touch(s, k, touched, hit)
        while busy > 0 and ends[running[0]] <= now:
            k = pop(running, busy, ends, rank)
            busy -= 1
            hit = touch(s, k, touched, hit)
            iterations += 1
            for i in range(finish(s, k, now, done)):
                r = done[i]
                if s.req[r, c.MADE] >= s.req[r, c.OUTPUT]:
                    answer(s, k, r, now)
                    length = call_children(s, r, now, heap, length, ready, order)
                else:
                    hit = touch(s, stage(s, k, r, now), touched, hit)
        if iterations > limit:
            return -1
        for i in range(hit):
            k = touched[i]
            s.inst[k, c.TOUCHED] = 0
            if pairs:
                length = accept(s, k, now, heap, length, ready, order)
            if s.inst[k, c.BUSY] == 0:
                length = start(s, k, now, heap, length, ready, order)
                if s.inst[k, c.BUSY] == 1:
                    ends[k] = s.meter[k, c.END]
                    busy = push(running, busy, ends, rank, k)
            note_state(s, k)


@inner
def touch(s: Serving, k: int, touched: np.ndarray, hit: int) -> int:
    """Note that something changed for an instance; how many are noted."""
    if s.inst[k, c.TOUCHED] == 0:
        s.inst[k, c.TOUCHED] = 1
        touched[hit] = k
        return hit + 1
    return hit
