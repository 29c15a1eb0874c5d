"""What every scheduler does with one request: let it in, let it grow, preempt it."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner, sharing
from hwmodel.kernels.serving_kv import allocate, found, hold, pages_for, release
from hwmodel.kernels.serving_queue import leave_queue, wait_first
from hwmodel.kernels.serving_slots import send
from hwmodel.kernels.serving_steps import along, chunk_s
from hwmodel.kernels.serving_tiers import read_s, worth_reading

BLOCKED = -1
"""The first waiting request cannot be let in now."""
AT_MOST = 8192
"""Tokens of an iteration by which the cost of computing a unit again is judged, when there is no budget."""


@inner
def wanted(s: Serving, r: int) -> int:
    """Tokens a request has yet to compute before its next output: 1 while it decodes."""
    return s.req[r, c.PROMPT] + s.req[r, c.MADE] - s.req[r, c.COMPUTED]


@inner
def decodes(s: Serving, r: int) -> bool:
    """Whether a request only needs its latest token computed."""
    return s.req[r, c.MADE] > 0 and wanted(s, r) == 1


@inner
def reserved(s: Serving, k: int, r: int, tokens: int) -> int:
    """Tokens that an admitted request gets room for."""
    mode = s.inst[k, c.RESERVE]
    if mode == 0:
        return tokens
    return max(tokens, s.req[r, c.PROMPT] + s.req[r, c.OUTPUT] - 1 if mode < 0 else mode)


@inner
def preempt_last(s: Serving, k: int) -> int:
    """The latest of the batch gives up its KV and waits before all others, to be computed again (vLLM); which one it was."""
    last = s.inst[k, c.BATCH] - 1
    r = s.batch[k, last]
    s.inst[k, c.BATCH] = last
    release(s, k, r)
    s.req[r, c.TAKE] = 0
    if s.req[r, c.MADE] == 0:
        s.when[r, c.BEGUN] = -1.0
    s.req[r, c.PREEMPTED] += 1
    s.inst[k, c.PREEMPTIONS] += 1
    wait_first(s, k, r)
    return r


@inner
def unpin(s: Serving, k: int, r: int) -> bool:
    """Waiting requests from r on that hold KV read for them give it up; whether any did."""
    freed = False
    while r >= 0:
        if s.req[r, c.UNITS] > 0 or s.req[r, c.PAGES] > 0:
            release(s, k, r)
            if s.when[r, c.SCHEDULED] < 0:
                s.req[r, c.LOADED] = 0
            freed = True
        r = s.req[r, c.NEXT]
    return freed


@inner
def grow(s: Serving, k: int, r: int, take: int) -> bool:
    """Room for `take` more tokens of a running request; the latest are preempted for it. False: it was the latest itself."""
    if pages_for(s, k, r, s.req[r, c.COMPUTED] + take) > s.req[r, c.PAGES] and not more_pages(s, k, r, take):
        return False
    s.req[r, c.TAKE] = take
    return True


@inner
def more_pages(s: Serving, k: int, r: int, take: int) -> bool:
    """Pages for `take` more tokens of a running request; False when it gave up its own."""
    while True:
        pages = pages_for(s, k, r, s.req[r, c.COMPUTED] + take) - s.req[r, c.PAGES]
        if allocate(s, k, pages, 0):
            s.req[r, c.PAGES] += pages
            return True
        if unpin(s, k, s.inst[k, c.HEAD]):
            continue
        if preempt_last(s, k) == r:
            return False


@inner
def unit_s(s: Serving, k: int, r: int, units: int) -> float:
    """Seconds that computing one more unit of a prompt takes behind `units` of them."""
    tokens = s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]
    kind = s.inst[k, c.STEPS]
    most = max(tokens, min(s.inst[k, c.BUDGET], AT_MOST))
    flat = along(s, kind, c.LINEAR, float(most), c.BY_TOKENS) + along(s, kind, c.SHARED, float(most), c.BY_TOKENS)
    return flat * tokens / most + chunk_s(s, k, 1, 1, 1, float(tokens), float(units * tokens))


@sharing(lambda s, k, now: False)
def start_reading(s: Serving, k: int, now: float) -> bool:
    """Send the first waiting request to read KV from lower tiers if that pays and fits; whether it was."""
    r = s.inst[k, c.HEAD]
    if s.req[r, c.UNITS] > 0 or s.inst[k, c.BATCH] + s.inst[k, c.INFLIGHT] >= s.inst[k, c.MAX_SEQS]:
        return False
    units, idle = found(s, k, r)
    counts = s.tier[k, :, c.COUNTED]
    more = worth_reading(s, k, r, units, unit_s(s, k, r, units), counts)
    pages = more * s.inst[k, c.PER_UNIT]
    if more == 0:
        return False
    if s.inst[k, c.FREE] + (s.inst[k, c.EVICTABLE] - idle) * s.inst[k, c.PER_UNIT] < pages + s.inst[k, c.WATERMARK]:
        s.inst[k, c.HELD_BACK] = s.inst[k, c.BATCH] > 0  # what runs will make room
        s.inst[k, c.COMPUTES] = r
        return False
    for j in range(units):
        hold(s, k, s.blocks[s.req[r, c.BASE] + j])
    done = read_s(s, k, r, units, more, counts, now)
    allocate(s, k, pages, 0)
    s.req[r, c.PAGES] = pages
    s.req[r, c.UNITS] = units
    s.req[r, c.COMPUTED] = (units + more) * s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]
    if s.when[r, c.SCHEDULED] < 0:
        s.req[r, c.LOADED] = more * s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]
        s.when[r, c.LOADING_S] += done - now
    leave_queue(s, k)
    s.inst[k, c.INFLIGHT] += 1
    s.req[r, c.STATE] = c.LOADING
    send(s, done, s.req[r, c.NUMBER], r)
    return True


@inner
def let_in(s: Serving, k: int, limit: int) -> int:
    """Admit the first waiting request with at most `limit` tokens of work; the tokens it computes, or BLOCKED."""
    r = s.inst[k, c.HEAD]
    full = s.inst[k, c.BATCH] + s.inst[k, c.INFLIGHT] >= s.inst[k, c.MAX_SEQS]
    if full or limit <= 0 or s.inst[k, c.HELD_BACK] == 1:
        return BLOCKED
    per_unit = s.inst[k, c.PER_UNIT]
    units, idle, have = s.req[r, c.UNITS], 0, s.req[r, c.COMPUTED]
    fresh = have == 0
    if fresh:
        units, idle = found(s, k, r)
        have = units * s.inst[k, c.PAGE] * per_unit
        if s.tier.shape[1] > 1 and s.inst[k, c.COMPUTES] != r:
            counts = s.tier[k, :, c.COUNTED]
            if worth_reading(s, k, r, units, unit_s(s, k, r, units), counts) > 0:
                return BLOCKED  # it is sent to read when it is the first at the start of an iteration
    work = s.req[r, c.PROMPT] + s.req[r, c.MADE] - have
    if work > limit and s.inst[k, c.CHUNKED] == 0:
        return BLOCKED
    take = min(work, limit)
    pages = max(0, -(-reserved(s, k, r, have + take) // s.inst[k, c.PAGE]) - units * per_unit - s.req[r, c.PAGES])
    spare = s.inst[k, c.WATERMARK] if s.inst[k, c.BATCH] > 0 else 0
    needed = pages
    if s.inst[k, c.RULE] == c.PREFILL_FIRST:  # decodes stand still until a prompt is done: all of it must fit
        needed = max(pages, -(-(have + work) // s.inst[k, c.PAGE]) - units * per_unit - s.req[r, c.PAGES])
    if s.inst[k, c.FREE] + (s.inst[k, c.EVICTABLE] - idle) * per_unit < needed + spare:
        return BLOCKED
    if fresh:
        for j in range(units):
            hold(s, k, s.blocks[s.req[r, c.BASE] + j])
        s.req[r, c.UNITS] = units
        s.req[r, c.COMPUTED] = have
    allocate(s, k, pages, 0)
    s.req[r, c.PAGES] += pages
    if s.req[r, c.HIT] < 0:
        s.req[r, c.HIT] = have
    leave_queue(s, k)
    s.req[r, c.STATE] = c.RUNNING
    s.req[r, c.TAKE] = take
    join(s, k, r)
    return take


@inner
def join(s: Serving, k: int, r: int) -> None:
    """Put a request on the batch of instance k, on the rank with the fewest sequences."""
    ranks, rows = s.inst[k, c.RANKS], s.inst[k, c.BATCH]
    s.req[r, c.RANK] = 0
    if ranks > 1:
        s.rank[k, :ranks, c.RANK_ROWS] = 0.0
        for i in range(rows):
            s.rank[k, s.req[s.batch[k, i], c.RANK], c.RANK_ROWS] += 1.0
        for rank in range(1, ranks):
            if s.rank[k, rank, c.RANK_ROWS] < s.rank[k, s.req[r, c.RANK], c.RANK_ROWS]:
                s.req[r, c.RANK] = rank
    s.batch[k, rows] = r
    s.inst[k, c.BATCH] = rows + 1


@inner
def fill(s: Serving, k: int, budget: int, preempted: int) -> None:
    """Let requests in for what is left of the tokens, unless instance k has preempted more than `preempted` by now."""
    if s.inst[k, c.PREEMPTIONS] > preempted:
        return
    while s.inst[k, c.HEAD] >= 0:
        took = let_in(s, k, budget)
        if took == BLOCKED:
            return
        budget -= took
