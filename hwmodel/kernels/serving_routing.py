"""Which instance a request goes to."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner
from hwmodel.kernels.serving_kv import found


@inner
def entry(s: Serving, r: int, rule: int) -> int:
    """The instance that computes a request's prompt.

    Round robin; least loaded: fewest requests; prefix-aware: fewest prompt tokens to compute, those queued there and those of
    the request that its cache does not have (Mooncake's conductor, FAST 2025, section 6, without transfers between caches).
    """
    n = s.inst.shape[0]
    if rule == c.ROUND_ROBIN:
        k = int(s.total[c.NEXT_ENTRY])
        while s.inst[k, c.ROLE] == c.DECODE_ONLY:
            k = (k + 1) % n
        s.total[c.NEXT_ENTRY] = (k + 1) % n
        return k
    best, least = -1, 0
    for k in range(n):
        if s.inst[k, c.ROLE] == c.DECODE_ONLY:
            continue
        cost = s.inst[k, c.LIVE]
        if rule == c.PREFIX_AWARE:
            cost = s.inst[k, c.LOAD] + s.req[r, c.PROMPT] - found(s, k, r)[0] * s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]
        if best < 0 or cost < least:
            best, least = k, cost
    return best


@inner
def decoder(s: Serving) -> int:
    """The decode instance with the fewest requests."""
    best = -1
    for k in range(s.inst.shape[0]):
        if s.inst[k, c.ROLE] == c.DECODE_ONLY and (best < 0 or s.inst[k, c.LIVE] < s.inst[best, c.LIVE]):
            best = k
    return best


@inner
def refusal(s: Serving, r: int, k: int) -> int:
    """Why instance k can never run a request, 0 when it can."""
    last = s.req[r, c.OUTPUT] if s.inst[k, c.ROLE] != c.PREFILL_ONLY else 1
    tokens = s.req[r, c.PROMPT] + last - 1
    room = max(tokens, s.inst[k, c.RESERVE])
    if -(-room // s.inst[k, c.PAGE]) > s.inst[k, c.CAPACITY] or 0 < s.inst[k, c.RESERVE] < tokens:
        return c.TOO_LONG
    if s.inst[k, c.CHUNKED] == 0 and s.req[r, c.PROMPT] + last - 1 > s.inst[k, c.BUDGET]:
        return c.OVER_BUDGET
    return 0
