"""Tiers of the KV cache below the first: what comes down, what it costs to write, what goes up again.

A unit that leaves the first tier is written to the one below, as in Mooncake (FAST 2025, section 5); what leaves that one goes
on down. Writes wait in a buffer for the way down, one after the other; when it is behind by more than the buffer holds the unit
is not kept. Reads wait for one another, and for writes where both share a way (an SSD). What waits in the buffer can be read.
"""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner, sharing
from hwmodel.kernels.serving_lists import above, arc_insert, back, gone, least_worth, link, oldest, relist, unlink, worth


@inner
def write(s: Serving, k: int, tier: int, now: float) -> bool:
    """Queue a unit on the way down; False when it is too far behind."""
    begin = max(now, s.tier_s[k, tier, c.WRITE_FREE_AT])
    if s.tier[k, tier, c.DUPLEX] == 0:
        begin = max(begin, s.tier_s[k, tier, c.FREE_AT])
    if begin - now > s.tier_s[k, tier, c.BEHIND_S]:
        s.tier[k, tier, c.UNWRITTEN] += 1
        return False
    end = begin + s.tier_s[k, tier, c.WRITE_S]
    s.tier_s[k, tier, c.WRITE_FREE_AT] = end
    if s.tier[k, tier, c.DUPLEX] == 0:
        s.tier_s[k, tier, c.FREE_AT] = end
    s.tier_s[k, tier, c.WRITING_S] += s.tier_s[k, tier, c.WRITE_S]
    s.tier[k, tier, c.WRITES] += 1
    return True


@inner
def put(s: Serving, o: int, tier: int, unit: int, which: int, now: float) -> int:
    """A unit comes into the tier of instance o; the one that leaves for it, -1 for none."""
    s.cache[c.HOLDERS, o, tier, unit] = 0
    policy, leaves = s.tier[o, tier, c.EVICTS], -1
    if policy == c.ARC:
        leaves = arc_insert(s, o, tier, unit)
    else:
        link(s, o, tier, unit, which)
        if s.tier[o, tier, c.HELD] == s.tier[o, tier, c.ROOM]:
            leaves = least_worth(s, o, tier, now) if policy == c.RETURN else oldest(s, o, tier, 0)
            unlink(s, o, tier, leaves)
    if leaves < 0:
        s.tier[o, tier, c.HELD] += 1
        s.tier[o, tier, c.MOST] = max(s.tier[o, tier, c.MOST], s.tier[o, tier, c.HELD])
    else:
        s.cache[c.HOLDERS, o, tier, leaves] = -1
    return leaves


@inner
def welcome(s: Serving, o: int, tier: int, value: float, now: float) -> bool:
    """Whether a tier takes a unit of such a worth: a full one only for one that is worth less."""
    if value == -np.inf:
        return False
    if s.tier[o, tier, c.HELD] < s.tier[o, tier, c.ROOM]:
        return True
    unit = least_worth(s, o, tier, now)
    return value > worth(s, s.cache[c.LIST, o, tier, unit], now - s.used[o, tier, unit])


@inner
def demote(s: Serving, k: int, tier: int, unit: int, which: int, used: float, now: float) -> None:
    """A unit of a kind of forecast, last used at `used` (s), leaves tier - 1: the tier keeps it and passes another one on."""
    while tier < s.tier.shape[1]:
        o = s.tier[k, tier, c.OWNER]
        if s.tier[o, tier, c.ROOM] == 0:
            return
        policy = s.tier[o, tier, c.EVICTS]
        if s.cache[c.HOLDERS, o, tier, unit] >= 0:  # it never left: only fresh again
            unlink(s, o, tier, unit)
            link(s, o, tier, unit, s.cache[c.LIST, o, tier, unit] if policy == c.ARC else which)
            s.used[o, tier, unit] = used
            return
        if policy == c.RETURN and not welcome(s, o, tier, worth(s, which, now - used), now):
            s.tier[k, tier, c.DROPPED] += 1
            tier += 1
            continue
        if not write(s, k, tier, now):
            return
        s.used[o, tier, unit] = used
        unit = put(s, o, tier, unit, which, now)
        if unit < 0:
            return
        which, used = s.cache[c.LIST, o, tier, unit], s.used[o, tier, unit]
        if policy == c.ARC:
            which = 0
        tier += 1


@sharing(lambda s, k, now: None)
def expire(s: Serving, k: int, now: float) -> None:
    """Units that have been idle for too long leave instance k and its tiers."""
    for tier in range(s.tier.shape[1]):
        o = s.tier[k, tier, c.OWNER]
        while s.tier_s[o, tier, c.TTL_S] > 0:
            unit = oldest(s, o, tier, 0)
            if unit == s.cache.shape[3] - s.worth.shape[0] or not gone(s, o, tier, unit, now):
                break
            unlink(s, o, tier, unit)
            s.cache[c.HOLDERS, o, tier, unit] = -1
            s.tier[k, tier, c.EXPIRED] += 1
            if tier > 0:
                s.tier[o, tier, c.HELD] -= 1
            else:
                s.inst[k, c.EVICTABLE] -= 1
                s.inst[k, c.FREE] += s.inst[k, c.PER_UNIT]
                s.inst[k, c.FREED] += s.inst[k, c.PER_UNIT]


@inner
def regard(s: Serving, k: int, tier: int, unit: int, which: int) -> bool:
    """A unit is of another kind of forecast from now on, in `tier` and below, and a mere copy below the first that has it.

    Whether any tier has it, the first tier included.
    """
    known = tier > 0 and s.cache[c.HOLDERS, k, 0, unit] >= 0
    for i in range(tier, s.tier.shape[1]):
        o = s.tier[k, i, c.OWNER]
        holders = s.cache[c.HOLDERS, o, i, unit]
        if holders == 0:
            unlink(s, o, i, unit)
            link(s, o, i, unit, above(s) if known else which)
            s.used[o, i, unit] = s.total[c.CLOCK]
        known = known or holders >= 0
    return known


@sharing(lambda s, k, r: None)
def came_back(s: Serving, k: int, r: int) -> None:
    """What a request that has arrived will use is worth most from now on, in every tier that has it."""
    for j in range(s.req[r, c.BASE], s.req[r, c.BASE] + s.req[r, c.SHARABLE]):
        if not regard(s, k, 0, s.blocks[j], back(s)):
            break


@inner
def where(s: Serving, k: int, unit: int, now: float) -> int:
    """The highest of the lower tiers that has a unit, 0 for none."""
    for tier in range(1, s.tier.shape[1]):
        o = s.tier[k, tier, c.OWNER]
        if s.cache[c.HOLDERS, o, tier, unit] >= 0 and not gone(s, o, tier, unit, now):
            return tier
    return 0


@sharing(lambda s, k, r, units, compute_s, counts: 0)
def worth_reading(s: Serving, k: int, r: int, units: int, compute_s: float, counts: np.ndarray) -> int:
    """How many units behind the first `units` of a prompt to read from lower tiers: as many as save most time.

    A unit saves `compute_s` and costs its reading; a tier's latency and the wait for its way up come once. counts : (tiers,)
    out, units by tier.
    """
    most = min(s.req[r, c.SHARABLE], (s.req[r, c.PROMPT] - 1) // (s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT])) - units
    base, now = s.req[r, c.BASE] + units, s.total[c.CLOCK]
    best, saved, gain = 0, 0.0, 0.0
    for tier in range(s.tier.shape[1]):
        counts[tier] = 0
    for more in range(most):
        unit = s.blocks[base + more]
        gain += compute_s
        if s.cache[c.HOLDERS, k, 0, unit] < 0:  # else behind a gap in the chain, but here
            tier = where(s, k, unit, now)
            if tier == 0:
                break
            if counts[tier] == 0:
                counts[tier] = 1
                gain -= s.tier_s[k, tier, c.LATENCY_S] + max(0.0, s.tier_s[k, tier, c.FREE_AT] - now)
            gain -= s.tier_s[k, tier, c.READ_S]
        if gain > saved:
            best, saved = more + 1, gain
    for tier in range(s.tier.shape[1]):
        counts[tier] = 0
    for more in range(best):
        unit = s.blocks[base + more]
        if s.cache[c.HOLDERS, k, 0, unit] < 0:
            counts[where(s, k, unit, now)] += 1
    return best


@inner
def read_s(s: Serving, k: int, r: int, units: int, more: int, counts: np.ndarray, now: float) -> float:
    """Queue the reading of `more` units behind `units`, counts by tier; the time (s) at which all are there."""
    base = s.req[r, c.BASE]
    for j in range(units, units + more):
        unit = s.blocks[base + j]
        tier = where(s, k, unit, now) if s.cache[c.HOLDERS, k, 0, unit] < 0 else 0
        if tier > 0:
            o = s.tier[k, tier, c.OWNER]
            s.used[o, tier, unit] = now
            if s.tier[o, tier, c.EVICTS] == c.ARC:
                relist(s, o, tier, unit, c.OFTEN)
            else:
                unlink(s, o, tier, unit)
                link(s, o, tier, unit, above(s) if s.tier[o, tier, c.EVICTS] == c.RETURN else 0)
    done = now
    for tier in range(1, s.tier.shape[1]):
        if counts[tier] > 0:
            start = max(now, s.tier_s[k, tier, c.FREE_AT])
            end = start + s.tier_s[k, tier, c.LATENCY_S] + counts[tier] * s.tier_s[k, tier, c.READ_S]
            s.tier_s[k, tier, c.FREE_AT] = end
            if s.tier[k, tier, c.DUPLEX] == 0:
                s.tier_s[k, tier, c.WRITE_FREE_AT] = max(end, s.tier_s[k, tier, c.WRITE_FREE_AT])
            done = max(done, end)
            s.tier[k, tier, c.HITS] += counts[tier]
            s.tier[k, tier, c.READS] += counts[tier]
    return done
