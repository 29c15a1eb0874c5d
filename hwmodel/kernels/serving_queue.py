"""Queues of an instance: requests waiting for admission, and prefilled requests waiting for a decode instance's memory."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner, sharing
from hwmodel.kernels.serving_kv import found

LOOKED_AT = 128
"""Waiting requests whose cached prefixes are compared; SGLang gives up on more, and serves first come, first served."""


@inner
def put_last(s: Serving, k: int, r: int, first: int, last: int) -> None:
    """Put a request at the end of the queue whose ends are the columns `first` and `last`."""
    s.req[r, c.NEXT] = -1
    if s.inst[k, first] < 0:
        s.inst[k, first] = r
    else:
        s.req[s.inst[k, last], c.NEXT] = r
    s.inst[k, last] = r


@inner
def wait_last(s: Serving, k: int, r: int) -> None:
    """A request waits behind all others."""
    s.req[r, c.STATE] = c.WAITING
    put_last(s, k, r, c.HEAD, c.TAIL)
    s.inst[k, c.QUEUED] += 1


@inner
def wait_first(s: Serving, k: int, r: int) -> None:
    """A request waits before all others."""
    s.req[r, c.STATE] = c.WAITING
    s.req[r, c.NEXT] = s.inst[k, c.HEAD]
    s.inst[k, c.HEAD] = r
    if s.inst[k, c.TAIL] < 0:
        s.inst[k, c.TAIL] = r
    s.inst[k, c.QUEUED] += 1


@inner
def take_first(s: Serving, k: int, first: int, last: int) -> int:
    """Take the first request off a queue."""
    r = s.inst[k, first]
    s.inst[k, first] = s.req[r, c.NEXT]
    if s.inst[k, first] < 0:
        s.inst[k, last] = -1
    s.req[r, c.NEXT] = -1
    return r


@inner
def leave_queue(s: Serving, k: int) -> int:
    """The first waiting request stops waiting."""
    s.inst[k, c.QUEUED] -= 1
    return take_first(s, k, c.HEAD, c.TAIL)


@sharing(lambda s, k: None)
def best_first(s: Serving, k: int) -> None:
    """Bring the waiting request with the longest cached prefix to the front, the earliest of equals."""
    if s.inst[k, c.QUEUED] < 2 or s.inst[k, c.QUEUED] > LOOKED_AT:
        return
    best, best_before, most, before = -1, -1, -1, -1
    r = s.inst[k, c.HEAD]
    while r >= 0:
        units = max(found(s, k, r)[0], s.req[r, c.UNITS])
        if units > most:
            best, best_before, most = r, before, units
        before, r = r, s.req[r, c.NEXT]
    if best_before < 0:
        return
    s.req[best_before, c.NEXT] = s.req[best, c.NEXT]
    if s.inst[k, c.TAIL] == best:
        s.inst[k, c.TAIL] = best_before
    s.req[best, c.NEXT] = s.inst[k, c.HEAD]
    s.inst[k, c.HEAD] = best
