"""The KV cache of an instance: pages, shared units of prompts, and who makes room.

A request holds whole units of its prompt that others may share (in order from the front), and pages of its own for the rest.
A unit nobody holds stays in the first tier until its pages are wanted, for idle pages cost nothing before; the least recently
used, or the one of least worth, goes first, and a chain from its end. It then moves to the tier below, if it is worth that.
"""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner, sharing
from hwmodel.kernels.serving_lists import back, gone, least_worth, link, oldest, unlink
from hwmodel.kernels.serving_tiers import demote, regard


@inner
def allocate(s: Serving, k: int, pages: int, spare: int) -> bool:
    """Take pages for a request if that leaves `spare` ones; units nobody holds make room, oldest first."""
    per_unit = s.inst[k, c.PER_UNIT]
    if s.inst[k, c.FREE] + s.inst[k, c.EVICTABLE] * per_unit < pages + spare:
        return False
    while s.inst[k, c.FREE] < pages:
        evict(s, k)
    s.inst[k, c.FREE] -= pages
    s.inst[k, c.ALLOCATED] += pages
    used = s.inst[k, c.CAPACITY] - s.inst[k, c.FREE] - s.inst[k, c.EVICTABLE] * per_unit
    s.inst[k, c.PEAK] = max(s.inst[k, c.PEAK], used)
    return True


@sharing(lambda s, k: None)
def evict(s: Serving, k: int) -> None:
    """A unit that nobody holds leaves the first tier."""
    now = s.total[c.CLOCK]
    unit = least_worth(s, k, 0, now) if s.tier[k, 0, c.EVICTS] == c.RETURN else oldest(s, k, 0, 0)
    unlink(s, k, 0, unit)
    s.cache[c.HOLDERS, k, 0, unit] = -1
    s.inst[k, c.EVICTABLE] -= 1
    give_back(s, k, s.inst[k, c.PER_UNIT])
    demote(s, k, 1, unit, s.cache[c.LIST, k, 0, unit], s.used[k, 0, unit], now)


@inner
def give_back(s: Serving, k: int, pages: int) -> None:
    """Return pages to the free list."""
    s.inst[k, c.FREE] += pages
    s.inst[k, c.FREED] += pages


@sharing(lambda s, k, unit: None)
def hold(s: Serving, k: int, unit: int) -> None:
    """One more request holds a unit that is in the first tier."""
    if s.cache[c.HOLDERS, k, 0, unit] == 0:
        unlink(s, k, 0, unit)
        s.inst[k, c.EVICTABLE] -= 1
    s.cache[c.HOLDERS, k, 0, unit] += 1


@sharing(lambda s, k, r: (0, 0))
def found(s: Serving, k: int, r: int) -> tuple[int, int]:
    """Units of a request's prompt in the first tier, from the front; and how many of them nobody holds."""
    units = free = 0
    base = s.req[r, c.BASE]
    # the last token of a prompt is always computed: it gives the first output
    most = min(s.req[r, c.SHARABLE], (s.req[r, c.PROMPT] - 1) // (s.inst[k, c.PAGE] * s.inst[k, c.PER_UNIT]))
    while units < most:
        holders = s.cache[c.HOLDERS, k, 0, s.blocks[base + units]]
        if holders < 0 or (holders == 0 and gone(s, k, 0, s.blocks[base + units], s.total[c.CLOCK])):
            break
        if holders == 0:
            free += 1
        units += 1
    return units, free


@inner
def pages_for(s: Serving, k: int, r: int, tokens: int) -> int:
    """Pages of its own that a request needs for so many tokens, beside the units it holds."""
    return -(-tokens // s.inst[k, c.PAGE]) - s.req[r, c.UNITS] * s.inst[k, c.PER_UNIT]


@sharing(lambda s, k, r: None)
def publish(s: Serving, k: int, r: int) -> None:
    """Units of the prompt that are now complete can be shared; one that is there already is not kept twice."""
    per_unit = s.inst[k, c.PER_UNIT]
    tokens = s.inst[k, c.PAGE] * per_unit
    ready = min(s.req[r, c.SHARABLE], s.req[r, c.COMPUTED] // tokens)
    while s.req[r, c.UNITS] < ready:
        unit = s.blocks[s.req[r, c.BASE] + s.req[r, c.UNITS]]
        if s.cache[c.HOLDERS, k, 0, unit] >= 0:
            hold(s, k, unit)
            give_back(s, k, per_unit)
        else:
            s.cache[c.HOLDERS, k, 0, unit] = 1
        s.req[r, c.PAGES] -= per_unit
        s.req[r, c.UNITS] += 1


@inner
def let_go(s: Serving, k: int, r: int, units: int, pages: int, which: int) -> None:
    """Units and pages of a request are held no more; units stay until their pages are wanted, the end of a chain goes first.

    which : the kind of forecast they are kept by, where they are.
    """
    give_back(s, k, pages)
    let_go_units(s, k, s.req[r, c.BASE], units, which)


@sharing(lambda s, k, base, units, which: None)
def let_go_units(s: Serving, k: int, base: int, units: int, which: int) -> None:
    """Units from `base` of `blocks` on are held by one request less."""
    for j in range(units - 1, -1, -1):
        unit = s.blocks[base + j]
        s.cache[c.HOLDERS, k, 0, unit] -= 1
        if s.cache[c.HOLDERS, k, 0, unit] == 0:
            link(s, k, 0, unit, which if s.tier[k, 0, c.EVICTS] == c.RETURN else 0)
            s.used[k, 0, unit] = s.total[c.CLOCK]
            s.inst[k, c.EVICTABLE] += 1
            if s.tier[k, 0, c.EVICTS] == c.RETURN:
                regard(s, k, 1, unit, which)


@inner
def release(s: Serving, k: int, r: int) -> None:
    """A request gives up everything it holds on an instance; what it had computed is lost to it."""
    which = s.req[r, c.FORECAST] if s.req[r, c.MADE] >= s.req[r, c.GOAL] else back(s)
    let_go(s, k, r, s.req[r, c.UNITS], s.req[r, c.PAGES], which)
    s.req[r, c.PAGES] = 0
    s.req[r, c.UNITS] = 0
    s.req[r, c.COMPUTED] = 0
