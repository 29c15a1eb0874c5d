"""The KV cache of an instance: pages, shared units of prompts, lists by last use, and the tiers below.

A request holds whole units of its prompt that others may share (in order from the front), and pages of its own for the rest.
A unit nobody holds stays in the first tier until its pages are wanted; the least recently used goes first, and a chain from its
end. It then moves to the tier below, as in Mooncake (FAST 2025, section 5); every tier evicts in the same way.
"""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def unlink(s: Serving, k: int, tier: int, unit: int) -> None:
    """Take a unit out of its list by last use."""
    before, after = s.cache[c.OLDER, k, tier, unit], s.cache[c.NEWER, k, tier, unit]
    s.cache[c.NEWER, k, tier, before] = after
    s.cache[c.OLDER, k, tier, after] = before


@inner
def link(s: Serving, k: int, tier: int, unit: int) -> None:
    """Put a unit at the recent end of the list."""
    anchor = s.cache.shape[3] - 1
    last = s.cache[c.OLDER, k, tier, anchor]
    s.cache[c.NEWER, k, tier, last] = unit
    s.cache[c.OLDER, k, tier, unit] = last
    s.cache[c.NEWER, k, tier, unit] = anchor
    s.cache[c.OLDER, k, tier, anchor] = unit


@inner
def demote(s: Serving, k: int, tier: int, unit: int) -> None:
    """A unit leaves tier - 1: the tier keeps it, and passes its own oldest on when it is full."""
    while tier < s.tier.shape[1] and s.tier[k, tier, c.ROOM] > 0:
        if s.cache[c.HOLDERS, k, tier, unit] >= 0:  # it never left: only fresh again
            unlink(s, k, tier, unit)
            link(s, k, tier, unit)
            return
        s.cache[c.HOLDERS, k, tier, unit] = 0
        link(s, k, tier, unit)
        s.tier[k, tier, c.WRITES] += 1
        s.tier[k, tier, c.HELD] += 1
        if s.tier[k, tier, c.HELD] <= s.tier[k, tier, c.ROOM]:
            s.tier[k, tier, c.MOST] = max(s.tier[k, tier, c.MOST], s.tier[k, tier, c.HELD])
            return
        unit = s.cache[c.NEWER, k, tier, s.cache.shape[3] - 1]
        unlink(s, k, tier, unit)
        s.cache[c.HOLDERS, k, tier, unit] = -1
        s.tier[k, tier, c.HELD] -= 1
        tier += 1


@inner
def allocate(s: Serving, k: int, pages: int, spare: int) -> bool:
    """Take pages for a request if that leaves `spare` ones; units nobody holds make room, oldest first."""
    per_unit = s.inst[k, c.PER_UNIT]
    if s.inst[k, c.FREE] + s.inst[k, c.EVICTABLE] * per_unit < pages + spare:
        return False
    while s.inst[k, c.FREE] < pages:
        unit = s.cache[c.NEWER, k, 0, s.cache.shape[3] - 1]
        unlink(s, k, 0, unit)
        s.cache[c.HOLDERS, k, 0, unit] = -1
        s.inst[k, c.EVICTABLE] -= 1
        s.inst[k, c.FREE] += per_unit
        s.inst[k, c.FREED] += per_unit
        demote(s, k, 1, unit)
    s.inst[k, c.FREE] -= pages
    s.inst[k, c.ALLOCATED] += pages
    used = s.inst[k, c.CAPACITY] - s.inst[k, c.FREE] - s.inst[k, c.EVICTABLE] * per_unit
    s.inst[k, c.PEAK] = max(s.inst[k, c.PEAK], used)
    return True


@inner
def give_back(s: Serving, k: int, pages: int) -> None:
    """Return pages to the free list."""
    s.inst[k, c.FREE] += pages
    s.inst[k, c.FREED] += pages


@inner
def hold(s: Serving, k: int, unit: int) -> None:
    """One more request holds a unit that is in the first tier."""
    if s.cache[c.HOLDERS, k, 0, unit] == 0:
        unlink(s, k, 0, unit)
        s.inst[k, c.EVICTABLE] -= 1
    s.cache[c.HOLDERS, k, 0, unit] += 1


@inner
def found(s: Serving, k: int, r: int) -> tuple[int, int]:
    """Units of a request's prompt in the first tier, from the front; and how many of them nobody holds."""
    units = free = 0
    base = s.starts[r]
    # the last token of a prompt is always computed: it gives the first output
    most = min(s.req[r, c.SHARABLE], (s.req[r, c.PROMPT] - 1) // (s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]))
    while units < most:
        holders = s.cache[c.HOLDERS, k, 0, s.blocks[base + units]]
        if holders < 0:
            break
        if holders == 0:
            free += 1
        units += 1
    return units, free


@inner
def pages_for(s: Serving, k: int, r: int, tokens: int) -> int:
    """Pages of its own that a request needs for so many tokens, beside the units it holds."""
    return -(-tokens // s.inst[k, c.PAGE]) - s.req[r, c.UNITS] * s.inst[k, c.PER_UNIT]


@inner
def publish(s: Serving, k: int, r: int) -> None:
    """Units of the prompt that are now complete can be shared; one that is there already is not kept twice."""
    per_unit = s.inst[k, c.PER_UNIT]
    tokens = s.inst[k, c.PAGE] * per_unit
    ready = min(s.req[r, c.SHARABLE], s.req[r, c.COMPUTED] // tokens)
    while s.req[r, c.UNITS] < ready:
        unit = s.blocks[s.starts[r] + s.req[r, c.UNITS]]
        if s.cache[c.HOLDERS, k, 0, unit] >= 0:
            hold(s, k, unit)
            give_back(s, k, per_unit)
        else:
            s.cache[c.HOLDERS, k, 0, unit] = 1
        s.req[r, c.PAGES] -= per_unit
        s.req[r, c.UNITS] += 1


@inner
def let_go(s: Serving, k: int, r: int, units: int, pages: int) -> None:
    """Units and pages of a request are held no more; units stay until their pages are wanted, the end of a chain goes first."""
    give_back(s, k, pages)
    base = s.starts[r]
    for j in range(units - 1, -1, -1):
        unit = s.blocks[base + j]
        s.cache[c.HOLDERS, k, 0, unit] -= 1
        if s.cache[c.HOLDERS, k, 0, unit] == 0:
            link(s, k, 0, unit)
            s.inst[k, c.EVICTABLE] += 1


@inner
def release(s: Serving, k: int, r: int) -> None:
    """A request gives up everything it holds on an instance; what it had computed is lost to it."""
    let_go(s, k, r, s.req[r, c.UNITS], s.req[r, c.PAGES])
    s.req[r, c.PAGES] = 0
    s.req[r, c.UNITS] = 0
    s.req[r, c.COMPUTED] = 0


@inner
def worth_reading(s: Serving, k: int, r: int, units: int, compute_s: float, counts: np.ndarray) -> int:
    """How many units behind the first `units` of a prompt to read from lower tiers.

    Unit by unit from the front: reading wins while all of it so far takes less than computing (`compute_s` each), the latency
    counted once. counts : (tiers,) out, units by tier.
    """
    most = min(s.req[r, c.SHARABLE], (s.req[r, c.PROMPT] - 1) // (s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]))
    base = s.starts[r]
    more = 0
    spent = 0.0
    for tier in range(s.tier.shape[1]):
        counts[tier] = 0
    while units + more < most:
        unit = s.blocks[base + units + more]
        if s.cache[c.HOLDERS, k, 0, unit] >= 0:  # behind a gap in the chain, but here
            more += 1
            continue
        where = 0
        for tier in range(1, s.tier.shape[1]):
            if s.cache[c.HOLDERS, k, tier, unit] >= 0:
                where = tier
                break
        if where == 0:
            break
        spent += s.tier_s[k, where, c.READ_S] + (s.tier_s[k, where, c.LATENCY_S] if counts[where] == 0 else 0.0)
        if spent > compute_s * (more + 1):
            break
        counts[where] += 1
        more += 1
    return more


@inner
def read_s(s: Serving, k: int, r: int, units: int, more: int, counts: np.ndarray, now: float) -> float:
    """Queue the reading of `more` units behind `units`, counts by tier; the time (s) at which all are there."""
    base = s.starts[r]
    for j in range(units, units + more):
        unit = s.blocks[base + j]
        for tier in range(1, s.tier.shape[1]):
            if s.cache[c.HOLDERS, k, 0, unit] < 0 and s.cache[c.HOLDERS, k, tier, unit] >= 0:
                unlink(s, k, tier, unit)
                link(s, k, tier, unit)
                break
    done = now
    for tier in range(1, s.tier.shape[1]):
        if counts[tier] > 0:
            start = max(now, s.tier_s[k, tier, c.FREE_AT])
            s.tier_s[k, tier, c.FREE_AT] = start + s.tier_s[k, tier, c.LATENCY_S] + counts[tier] * s.tier_s[k, tier, c.READ_S]
            done = max(done, s.tier_s[k, tier, c.FREE_AT])
            s.tier[k, tier, c.HITS] += counts[tier]
            s.tier[k, tier, c.READS] += counts[tier]
    return done
