"""A fleet of instances serves a list of requests: arrays in, kernel, arrays out, and what must hold at the end of every run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving, Unshared
from hwmodel.kernels.serving_follow import followers
from hwmodel.kernels.serving_loop import serve
from hwmodel.serve.kv import LEAST_RECENT, POLICIES, Eviction, Tier
from hwmodel.serve.requests import Requests
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.scratch import CHUNK, column, filled, parts, release, untouched, whole_sum
from hwmodel.serve.steps import Steps, stacked
from hwmodel.spec.errors import InputError, InternalError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
ROLES = {"mixed": c.MIXED, "prefill": c.PREFILL_ONLY, "decode": c.DECODE_ONLY}
ROUTING = {"round_robin": c.ROUND_ROBIN, "least_loaded": c.LEAST_LOADED, "prefix": c.PREFIX_AWARE}
SERIES = 4096
"""Most rows of the time series, an even number."""
UNITS_SMALL = 1 << 26
"""Bytes of the state of all units of the prefix cache up to which it is ordinary memory: it is used all over, and often."""
REASONS = {
    c.TOO_LONG: "does not fit the KV cache even alone",
    c.OVER_BUDGET: "prompt longer than the tokens of an iteration, and prompts are not cut",
    c.NOT_PRECEDED: "waits for a request that was rejected",
}


@dataclass(frozen=True)
class Wire:
    """From prefill to decode, of one prefill instance: s per token of KV, and s before the first."""

    token_s: float = 0.0
    latency_s: float = 0.0


@dataclass(frozen=True)
class Group:
    """Equal instances."""

    name: str
    instances: int
    steps: Steps
    scheduler: Scheduler
    pages: int
    role: str = "mixed"
    tiers: tuple[Tier, ...] = ()
    token_bytes: float = 1.0
    wire: Wire = Wire()


@dataclass(frozen=True)
class Fleet:
    """All instances of a service."""

    groups: tuple[Group, ...]
    page: int = 16
    """Tokens of a page of KV."""
    routing: str = "round_robin"
    prefix_cache: bool = True
    eviction: Eviction = LEAST_RECENT


@dataclass(frozen=True)
class Run:
    """What happened."""

    requests: Requests
    fleet: Fleet
    req: NDArray[np.int32] = field(repr=False)
    """(requests, N_ENDED), see `hwmodel.kernels.serving_columns`."""
    when: Array = field(repr=False)
    """(requests, N_TIME) s."""
    inst: Ints = field(repr=False)
    """(instances, N_INSTANCE)."""
    meter: Array = field(repr=False)
    """(instances, N_METER)."""
    tier: Ints = field(repr=False)
    """(instances, tiers, N_TIER)."""
    tier_s: Array = field(repr=False)
    """(instances, tiers, N_TIER_S) s."""
    series: Array = field(repr=False)
    """(rows, N_SERIES) state of all instances over time."""
    gaps: Ints = field(repr=False)
    """Histogram of gaps between tokens."""
    total: Array = field(repr=False)
    group: Ints = field(repr=False)
    """(instances,) index into the fleet's groups."""
    iterations: int = 0

    most_inside: int = 0
    """Requests there at once, at most."""

    def __len__(self) -> int:
        return len(self.req)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """(requests,)."""
        return self._in_state(c.FINISHED)

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """(requests,)."""
        return self._in_state(c.REJECTED)

    def _in_state(self, state: int) -> NDArray[np.bool_]:
        return filled(len(self), lambda part: self.req[part, c.STATE] == state, self.req, dtype=np.bool_)


def simulate(requests: Requests, fleet: Fleet) -> Run:
    """Serve the requests.

    Raises
    ------
    InputError
        When the fleet cannot serve anything: no instance takes prompts, pages that do not divide the trace's blocks.
    InternalError
        When a request or a page got lost, or nothing progressed.
    """
    state = _state(requests, fleet)
    work = sum(whole_sum(tokens) for tokens in (requests.prompt, requests.output))
    limit, until = 100 * (work + len(requests)) + 1000, CHUNK
    while (left := serve(state, ROUTING[fleet.routing], limit, until)) > 0:
        until += CHUNK
        release(*state)
    release(*state)
    if left < 0:
        raise InternalError("serving makes no progress: more iterations than any schedule of these requests needs")
    _refuse_followers(state, requests)
    group = np.repeat(np.arange(len(fleet.groups)), [g.instances for g in fleet.groups])
    run = Run(
        requests, fleet, state.ended, state.ended_s, state.inst, state.meter, state.tier, state.tier_s,
        state.series[: int(state.total[c.SERIES])], state.gaps, state.total, group, int(state.counts[c.ITERATED]),
        int(state.counts[c.USED_SLOTS]),
    )  # fmt: skip
    conserved(run, state)
    return run


def _refuse_followers(s: Serving, requests: Requests) -> None:
    """What waits for a refused request is refused; nobody waits for a later one."""
    if not len(s.follow) or not any((s.ended[part, c.STATE] == c.REJECTED).any() for part in parts(len(requests), s.ended)):
        return
    for part in parts(len(requests), requests.after, s.ended, s.ended_s, requests.arrival_s):
        for r in part.start + np.flatnonzero(requests.after[part] >= 0):
            if s.ended[requests.after[r], c.STATE] == c.REJECTED:
                s.ended[r, [c.AT, c.HIT]], s.ended[r, [c.STATE, c.REASON]] = -1, (c.REJECTED, c.NOT_PRECEDED)
                s.ended_s[r], s.ended_s[r, c.ARRIVAL] = -1.0, requests.arrival_s[r]
                s.ended_s[r, [c.LOADING_S, c.TRANSFER_S]] = 0.0


def conserved(run: Run, s: Serving) -> None:
    """Requests in = finished + rejected; pages allocated = freed; no token lost, none twice; time only goes forward.

    Raises
    ------
    InternalError
        When one of them does not hold.
    """
    inst = run.inst
    per_unit = inst[:, c.PER_UNIT]
    held = inst[:, c.CAPACITY] - inst[:, c.FREE] - per_unit * inst[:, c.EVICTABLE]
    lost = gaps = 0
    exact = ordered = True
    steps = [c.ARRIVAL, c.SCHEDULED, c.BEGUN, c.FIRST, c.LAST, c.FINISH]
    for part in parts(len(run), run.req, run.when, run.requests.output):
        state, output = run.req[part, c.STATE], run.requests.output[part]
        done = state == c.FINISHED
        lost += int((~done & (state != c.REJECTED)).sum())
        exact &= bool((run.req[part, c.MADE] == output)[done].all())
        gaps += int((output - 1)[done].sum())
        times = run.when[part]
        ordered &= all(bool((times[done, a] <= times[done, b]).all()) for a, b in pairwise(steps))
    facts = {
        f"{lost} requests neither finished nor rejected": not lost,
        "a finished request made more or fewer tokens than asked": exact,
        "a request holds pages after its end": not s.counts[c.HOLDING],
        "a request is still there": s.counts[c.USED_SLOTS] == s.counts[c.FREE_SLOTS] and not s.counts[c.ON_WAY],
        "pages are held by nobody": not held.any(),
        "pages allocated are not pages freed": bool(
            (inst[:, c.ALLOCATED] == inst[:, c.FREED] + per_unit * inst[:, c.EVICTABLE]).all()
        ),
        "an instance still has work": not inst[:, [c.BATCH, c.QUEUED, c.LIVE, c.INFLIGHT, c.LOAD, c.BUSY]].any(),
        "a request was served before its time": ordered,
        "the clock went back": not run.total[c.BACKWARDS],
        **_tiers_hold(s),
        "tokens and gaps differ": int(run.total[c.GAPS]) == gaps == int(run.gaps.sum()),
    }
    broken = [text for text, holds in facts.items() if not holds]
    if broken:
        raise InternalError("serving: " + "; ".join(broken))


def _tiers_hold(s: Serving) -> dict[str, bool]:
    """What must hold of the tiers below the first."""
    tier = s.tier[:, 1:]
    there = np.zeros(tier.shape[:2], np.int64)
    for part in parts(s.cache.shape[3] - s.worth.shape[0], s.cache):
        there += (s.cache[c.HOLDERS, :, 1:, part] >= 0).sum(axis=2)
    arc = tier[:, :, c.EVICTS] == c.ARC
    listed = tier[:, :, [c.LENGTHS + c.ONCE, c.LENGTHS + c.OFTEN]].sum(axis=2)
    return {
        "a tier holds other units than it counts": bool((there == tier[:, :, c.HELD]).all() and (listed == there)[arc].all()),
        "a tier holds more than its room": bool((tier[:, :, c.MOST] <= tier[:, :, c.ROOM]).all()),
        "ARC remembers more than twice its room": bool(
            (tier[:, :, c.LENGTHS :].sum(axis=2) <= 2 * tier[:, :, c.ROOM])[arc].all()
        ),
    }


def _state(requests: Requests, fleet: Fleet) -> Serving:
    """Arrays of a run that has not begun. Slots are as many as requests, but only those that are used take memory."""
    n = len(requests)
    members = [g for g in fleet.groups for _ in range(g.instances)]
    roles = {g.role for g in fleet.groups}
    if not roles & {"mixed", "prefill"} or ("prefill" in roles) != ("decode" in roles):
        raise InputError("prefill instances need decode instances and the other way round; or take mixed ones")
    shared = shares(requests, fleet.prefix_cache)
    if shared and requests.block_tokens % fleet.page:
        message = f"pages of {fleet.page} tokens do not divide the trace's prefix blocks of {requests.block_tokens}"
        raise InputError(f"{message}; choose serving.block among its divisors")
    per_unit = requests.block_tokens // fleet.page if shared else 1
    tiers, worth = 1 + max(len(g.tiers) for g in fleet.groups), _worth(requests, fleet.eviction)
    cache, used = _cache(len(members), tiers, requests.distinct_blocks if shared else 0, len(worth))
    most = max(min(n, g.scheduler.max_sequences) for g in fleet.groups)
    kinds: list[Steps] = [g.steps for g in fleet.groups]
    none, busy = np.zeros(0, np.int64), np.zeros((3, len(members)), np.int64)
    busy[1] = np.arange(len(members))
    state = (Serving if shared else Unshared)(
        req=untouched((n, c.N_REQUEST), np.int64), when=untouched((n, c.N_TIME)), inst=_instances(fleet, members, per_unit),
        meter=_meters(members), batch=np.full((len(members), most), -1),
        rank=np.zeros((len(members), max(kind.ranks for kind in kinds), c.N_RANK)),
        starts=_whole(requests.starts) if shared else none, blocks=_whole(requests.blocks) if shared else none,
        cache=cache, used=used, worth=worth, forecast=none if requests.forecast is None else _whole(requests.forecast),
        series=np.zeros((SERIES + 1, c.N_SERIES)), noted=np.zeros((len(members) + 2, c.N_SERIES)),
        gaps=np.zeros(c.BINS_PER_OCTAVE * c.OCTAVES, np.int64), total=np.zeros(c.N_TOTAL),
        arrival=np.ascontiguousarray(requests.arrival_s, np.float64), prompt=_whole(requests.prompt),
        output=_whole(requests.output), ended=column((n, c.N_ENDED), np.int32), ended_s=column((n, c.N_TIME)),
        soon_s=untouched(n), soon=untouched((n, 2), np.int64), slots=untouched(n, np.int64), ends=np.zeros(len(members)),
        running=busy, done=np.zeros(most, np.int64), counts=np.zeros(c.N_COUNT, np.int64), **_order(requests), **stacked(kinds),
        **_tiers(members, tiers, fleet.page * per_unit, fleet.eviction),
    )  # fmt: skip
    state.total[c.ROW_BEGUN] = -1.0
    return state


def shares(requests: Requests, prefix_cache: bool) -> bool:
    """Whether requests use what the cache has of the prompts of others."""
    return prefix_cache and len(requests.blocks) > 0


def _whole(values: Ints) -> Ints:
    return np.ascontiguousarray(values, np.int64)


def _cache(members: int, tiers: int, ids: int, lists: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Units of prompts by tier, none of them there, and when each was last used."""
    cache = column((4, members, tiers, ids + lists), np.int32, UNITS_SMALL)
    for part in parts(ids, cache):
        cache[..., part] = -1
    cache[..., ids:] = -1
    cache[[c.OLDER, c.NEWER], :, :, ids:] = np.arange(ids, ids + lists)
    return cache, column(cache.shape[1:], np.float32, UNITS_SMALL)


def _order(requests: Requests) -> dict[str, Ints | Array]:
    """Which requests arrive by themselves, in order, and who waits for whom; nothing where that is all of them as they are."""
    n, arrival, after = len(requests), requests.arrival_s, requests.after
    waiting = sum(int((after[part] >= 0).sum()) for part in parts(n, after))
    if not waiting and all((np.diff(arrival[p.start : p.stop + 1]) >= 0).all() for p in parts(n, arrival)):
        return {}
    open_ = np.concatenate([part.start + np.flatnonzero(after[part] < 0) for part in parts(n, after)])
    found: dict[str, Ints | Array] = {"opening": open_[np.argsort(arrival[open_], kind="stable")]}
    if waiting:
        found["follow"], found["gap_s"] = column(n + 1 + waiting, np.int64), np.ascontiguousarray(requests.gap_s, np.float64)
        followers(_whole(after), found["follow"])
    return found


def _instances(fleet: Fleet, members: list[Group], per_unit: int) -> Ints:
    inst = np.zeros((len(members), c.N_INSTANCE), np.int64)
    for k, group in enumerate(members):
        rule = group.scheduler
        row = inst[k]
        row[c.ROLE], row[c.RULE], row[c.STEPS] = ROLES[group.role], rule.rule, fleet.groups.index(group)
        row[c.MAX_SEQS], row[c.BUDGET], row[c.CHUNKED] = rule.max_sequences, rule.budget, rule.chunked
        row[c.CAPACITY] = row[c.FREE] = group.pages
        row[c.WATERMARK], row[c.RESERVE] = int(rule.watermark * group.pages), rule.reserved_tokens
        row[c.PAGE], row[c.PER_UNIT] = fleet.page, per_unit
        row[c.RANKS], row[c.MICRO_BATCHES] = group.steps.ranks, group.steps.micro_batches
        row[c.LONGEST_PREFIX] = rule.longest_prefix
        row[[c.HEAD, c.TAIL, c.INCOMING, c.INCOMING_TAIL, c.COMPUTES]] = -1
    return inst


def _meters(members: list[Group]) -> Array:
    meter = np.zeros((len(members), c.N_METER))
    for k, group in enumerate(members):
        meter[k, [c.TOKEN_SEND_S, c.SEND_LATENCY_S]] = group.wire.token_s, group.wire.latency_s
        steps = group.steps
        added = steps.sequence_s, steps.prompt_s, steps.stretch, steps.host_s
        meter[k, [c.SEQUENCE_S, c.PROMPT_S, c.STRETCH, c.HOST_S]] = added
    return meter


def _worth(requests: Requests, eviction: Eviction) -> Array:
    """(lists, ages) what units are worth: the forecasts' table, or none, of as many lists as the policy has."""
    if eviction.policy != "return":
        return np.zeros((4 if eviction.policy == "arc" else 1, 1))
    if requests.worth is None:
        raise InputError("policy return needs a forecast of each request: see hwmodel.serve.forecast")
    return np.ascontiguousarray(requests.worth.table)


def _tiers(members: list[Group], count: int, unit_tokens: int, eviction: Eviction) -> dict[str, Ints | Array]:
    tier = np.zeros((len(members), count, c.N_TIER), np.int64)
    seconds = np.zeros((len(members), count, c.N_TIER_S))
    tier[:, :, c.OWNER] = np.arange(len(members))[:, None]
    tier[:, :, c.EVICTS] = POLICIES[eviction.policy]
    if eviction.policy == "arc":
        tier[:, 0, c.EVICTS] = c.LRU
    seconds[:, :, c.TTL_S] = eviction.ttl_s if eviction.policy == "ttl" else 0.0
    pools: dict[int, int] = {}
    for k, group in enumerate(members):
        size = group.token_bytes * unit_tokens
        for i, below in enumerate(group.tiers, start=1):
            owner = pools.setdefault(i, k) if below.pooled else k
            tier[k, i, [c.ROOM, c.OWNER, c.DUPLEX]] = below.capacity_bytes // size if owner == k else 0, owner, below.duplex
            seconds[k, i, [c.READ_S, c.LATENCY_S, c.WRITE_S, c.BEHIND_S]] = (
                size / below.read_bytes_per_s, below.latency_s, size / below.write_bytes_per_s,
                below.buffer_bytes / below.write_bytes_per_s if math.isfinite(below.write_bytes_per_s) else math.inf,
            )  # fmt: skip
    return {"tier": tier, "tier_s": seconds}
