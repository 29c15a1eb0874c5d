"""Lists by last use of units that nobody holds, in every tier, and who leaves a full one: LRU, ARC, or least worth."""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def unlink(s: Serving, k: int, tier: int, unit: int) -> None:
    """Take a unit out of its list."""
    before, after = s.cache[c.OLDER, k, tier, unit], s.cache[c.NEWER, k, tier, unit]
    s.cache[c.NEWER, k, tier, before] = after
    s.cache[c.OLDER, k, tier, after] = before


@inner
def anchor(s: Serving, which: int) -> int:
    """Where a list begins and ends."""
    return s.cache.shape[3] - s.worth.shape[0] + which


@inner
def link(s: Serving, k: int, tier: int, unit: int, which: int) -> None:
    """Put a unit at the recent end of a list."""
    end = anchor(s, which)
    last = s.cache[c.OLDER, k, tier, end]
    s.cache[c.NEWER, k, tier, last] = unit
    s.cache[c.OLDER, k, tier, unit] = last
    s.cache[c.NEWER, k, tier, unit] = end
    s.cache[c.OLDER, k, tier, end] = unit
    s.cache[c.LIST, k, tier, unit] = which


@inner
def oldest(s: Serving, k: int, tier: int, which: int) -> int:
    """The unit that was not used for longest; the list's anchor when it is empty."""
    return s.cache[c.NEWER, k, tier, anchor(s, which)]


@inner
def worth(s: Serving, which: int, age: float) -> float:
    """What a unit of a kind of forecast is worth so long (s) after its last use; beyond the table the older the less."""
    place, last = int(c.AGES_PER_OCTAVE * np.log2(1.0 + max(age, 0.0))), s.worth.shape[1] - 1
    if place > last:
        return -1.0 - age if np.isfinite(s.worth[which, last]) else s.worth[which, last]
    return s.worth[which, place]


@inner
def least_worth(s: Serving, k: int, tier: int, now: float) -> int:
    """The unit to go, of the oldest of every list."""
    best, least = -1, 0.0
    for which in range(s.worth.shape[0]):
        unit = oldest(s, k, tier, which)
        if unit == anchor(s, which):
            continue
        value = worth(s, which, now - s.used[k, tier, unit])
        if best < 0 or value < least:
            best, least = unit, value
    return best


@inner
def back(s: Serving) -> int:
    """The kind of forecast of a conversation that has come back and waits: the last one."""
    return s.worth.shape[0] - 1


@inner
def above(s: Serving) -> int:
    """The kind of forecast of a copy of what a higher tier has: the last but one."""
    return s.worth.shape[0] - 2


@inner
def gone(s: Serving, k: int, tier: int, unit: int, now: float) -> bool:
    """Whether an idle unit is older than the tier keeps any."""
    limit = s.tier_s[k, tier, c.TTL_S]
    return limit > 0 and now - s.used[k, tier, unit] > limit


@inner
def relist(s: Serving, k: int, tier: int, unit: int, which: int) -> None:
    """Move a unit to the recent end of one of ARC's lists, their lengths kept."""
    s.tier[k, tier, c.LENGTHS + s.cache[c.LIST, k, tier, unit]] -= 1
    unlink(s, k, tier, unit)
    link(s, k, tier, unit, which)
    s.tier[k, tier, c.LENGTHS + which] += 1


@inner
def forget(s: Serving, k: int, tier: int, which: int) -> None:
    """Take the oldest off one of ARC's lists for good."""
    unit = oldest(s, k, tier, which)
    unlink(s, k, tier, unit)
    s.cache[c.LIST, k, tier, unit] = -1
    s.tier[k, tier, c.LENGTHS + which] -= 1


@inner
def arc_replace(s: Serving, k: int, tier: int, was_often: bool) -> int:
    """The unit that leaves for another one; its id is remembered (REPLACE of Megiddo and Modha, FAST 2003, figure 4)."""
    once, target = s.tier[k, tier, c.LENGTHS + c.ONCE], s.tier_s[k, tier, c.TARGET]
    from_once = once >= 1 and (once > target or (was_often and once == target))
    if s.tier[k, tier, c.LENGTHS + c.OFTEN] == 0:
        from_once = True
    unit = oldest(s, k, tier, c.ONCE if from_once else c.OFTEN)
    relist(s, k, tier, unit, c.WAS_ONCE if from_once else c.WAS_OFTEN)
    return unit


@inner
def arc_insert(s: Serving, k: int, tier: int, unit: int) -> int:
    """A unit comes into a tier that does not have it; the unit that leaves, -1 for none (ARC, cases II to IV)."""
    room, which = s.tier[k, tier, c.ROOM], s.cache[c.LIST, k, tier, unit]
    once, was_once = s.tier[k, tier, c.LENGTHS + c.ONCE], s.tier[k, tier, c.LENGTHS + c.WAS_ONCE]
    often, was_often = s.tier[k, tier, c.LENGTHS + c.OFTEN], s.tier[k, tier, c.LENGTHS + c.WAS_OFTEN]
    full = once + often >= room
    leaves = -1
    if which >= 0:
        if which == c.WAS_ONCE:
            s.tier_s[k, tier, c.TARGET] = min(float(room), s.tier_s[k, tier, c.TARGET] + max(was_often / was_once, 1.0))
        else:
            s.tier_s[k, tier, c.TARGET] = max(0.0, s.tier_s[k, tier, c.TARGET] - max(was_once / was_often, 1.0))
        if full:
            leaves = arc_replace(s, k, tier, which == c.WAS_OFTEN)
        relist(s, k, tier, unit, c.OFTEN)
        return leaves
    if once + was_once >= room:
        if once < room:
            forget(s, k, tier, c.WAS_ONCE)
            leaves = arc_replace(s, k, tier, False) if full else -1
        else:
            leaves = oldest(s, k, tier, c.ONCE)
            forget(s, k, tier, c.ONCE)
    elif full:
        if once + was_once + often + was_often >= 2 * room:
            forget(s, k, tier, c.WAS_OFTEN)
        leaves = arc_replace(s, k, tier, False)
    link(s, k, tier, unit, c.ONCE)
    s.tier[k, tier, c.LENGTHS + c.ONCE] += 1
    return leaves
