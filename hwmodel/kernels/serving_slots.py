"""Requests come into a slot when they arrive and leave it at their end, so that memory grows with those that are there.

What becomes of a request is written down once, at its end. Requests on their way (that wait for a gap, or whose KV moves) stand
in a heap by time, then by number.
"""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def come_in(s: Serving, number: int, now: float) -> int:
    """A request arrives: the slot it has from now on."""
    if s.counts[c.FREE_SLOTS] > 0:
        s.counts[c.FREE_SLOTS] -= 1
        r = s.slots[s.counts[c.FREE_SLOTS]]
    else:
        r = s.counts[c.USED_SLOTS]
        s.counts[c.USED_SLOTS] += 1
    s.counts[c.ARRIVED] += 1
    for j in range(c.N_REQUEST):
        s.req[r, j] = 0
    for j in range(c.N_TIME):
        s.when[r, j] = -1.0
    s.req[r, c.NUMBER] = number
    s.req[r, c.PROMPT] = s.prompt[number]
    s.req[r, c.OUTPUT] = s.req[r, c.GOAL] = s.output[number]
    s.req[r, c.NEXT] = s.req[r, c.AT] = s.req[r, c.HIT] = s.req[r, c.ORIGIN] = -1
    if s.starts.shape[0] > 0:
        s.req[r, c.BASE] = s.starts[number]
        tokens = s.inst[0, c.PAGE] * s.inst[0, c.PER_UNIT]
        s.req[r, c.SHARABLE] = min(s.starts[number + 1] - s.starts[number], s.prompt[number] // tokens)
    if s.forecast.shape[0] > 0:
        s.req[r, c.FORECAST] = s.forecast[number]
    s.when[r, c.ARRIVAL] = now
    s.when[r, c.LOADING_S] = s.when[r, c.TRANSFER_S] = 0.0
    return r


@inner
def go_out(s: Serving, r: int) -> None:
    """A request has ended: what became of it is written down, its slot is free."""
    number = s.req[r, c.NUMBER]
    for j in range(c.N_ENDED):
        s.ended[number, j] = s.req[r, j]
    for j in range(c.N_TIME):
        s.ended_s[number, j] = s.when[r, j]
    held = s.req[r, c.PAGES] + s.req[r, c.UNITS] + s.req[r, c.ORIGIN_PAGES] + s.req[r, c.ORIGIN_UNITS]
    s.counts[c.HOLDING] += held != 0
    s.slots[s.counts[c.FREE_SLOTS]] = r
    s.counts[c.FREE_SLOTS] += 1


@inner
def before(s: Serving, i: int, time: float, number: int) -> bool:
    """Whether what stands at i of the heap comes before, or is, a request at a time (s)."""
    return s.soon_s[i] < time or (s.soon_s[i] == time and s.soon[i, 0] <= number)


@inner
def send(s: Serving, time: float, number: int, r: int) -> None:
    """A request is on its way until a time (s); r is its slot, -1 of one that has not arrived."""
    i = s.counts[c.ON_WAY]
    s.counts[c.ON_WAY] += 1
    while i > 0 and not before(s, (i - 1) // 2, time, number):
        up = (i - 1) // 2
        s.soon_s[i], s.soon[i, 0], s.soon[i, 1] = s.soon_s[up], s.soon[up, 0], s.soon[up, 1]
        i = up
    s.soon_s[i], s.soon[i, 0], s.soon[i, 1] = time, number, r


@inner
def receive(s: Serving) -> tuple[int, int]:
    """The request whose time is next comes off the heap: number and slot."""
    number, r = s.soon[0, 0], s.soon[0, 1]
    s.counts[c.ON_WAY] -= 1
    last = s.counts[c.ON_WAY]
    time, item, slot = s.soon_s[last], s.soon[last, 0], s.soon[last, 1]
    i = 0
    while 2 * i + 1 < last:
        child = 2 * i + 1
        if child + 1 < last and before(s, child + 1, s.soon_s[child], s.soon[child, 0]):
            child += 1
        if not before(s, child, time, item):
            break
        s.soon_s[i], s.soon[i, 0], s.soon[i, 1] = s.soon_s[child], s.soon[child, 0], s.soon[child, 1]
        i = child
    s.soon_s[i], s.soon[i, 0], s.soon[i, 1] = time, item, slot
    return number, r
