"""One iteration of an instance: what it computes, how long that takes, and what is there when it ends."""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels import (
    serving_orca,
    serving_prefill_first,
    serving_sarathi,
    serving_static,
    serving_vllm,
)
from hwmodel.kernels.serving_admit import decodes, start_reading, unpin
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner
from hwmodel.kernels.serving_kv import publish, release
from hwmodel.kernels.serving_queue import best_first
from hwmodel.kernels.serving_steps import chunk_s, gap_bin, parts_of, step_s
from hwmodel.kernels.serving_tiers import expire

orca, prefill_first, sarathi = serving_orca.schedule, serving_prefill_first.schedule, serving_sarathi.schedule
static, vllm = serving_static.schedule, serving_vllm.schedule


@inner
def schedule(s: Serving, k: int) -> None:
    """Let the instance's scheduler choose."""
    rule = s.inst[k, c.RULE]
    if rule == c.BUDGETED:
        vllm(s, k)
    elif rule == c.SARATHI:
        sarathi(s, k)
    elif rule == c.PREFILL_FIRST:
        prefill_first(s, k)
    elif rule == c.ITERATION_LEVEL:
        orca(s, k)
    else:
        static(s, k)


@inner
def measure(s: Serving, k: int, now: float) -> float:
    """Seconds of the iteration that the batch was given; 0 when it has nothing to compute."""
    rows = active = new = chunks = ends = made = context = 0
    ranks = s.inst[k, c.RANKS]
    if ranks > 1:
        s.rank[k, :ranks] = 0.0
    for i in range(s.inst[k, c.BATCH]):
        r = s.batch[k, i]
        take = s.req[r, c.TAKE]
        active += take > 0
        if decodes(s, r) if take > 0 else s.inst[k, c.RULE] == c.STATIC:  # a row that has ended is computed all the same
            rows += 1
            context += s.req[r, c.COMPUTED]
            made += take > 0
            if ranks > 1:
                s.rank[k, s.req[r, c.RANK], c.RANK_ROWS] += 1.0
                s.rank[k, s.req[r, c.RANK], c.RANK_CONTEXT] += s.req[r, c.COMPUTED]
        elif take > 0:
            if s.when[r, c.BEGUN] < 0:
                s.when[r, c.BEGUN] = now
                if s.when[r, c.SCHEDULED] < 0:
                    s.when[r, c.SCHEDULED] = now
            new += take
            chunks += 1
            last = s.req[r, c.COMPUTED] + take == s.req[r, c.PROMPT] + s.req[r, c.MADE]
            ends += last
            if ranks > 1:
                s.rank[k, s.req[r, c.RANK], c.RANK_NEW] += take
                s.rank[k, s.req[r, c.RANK], c.RANK_CHUNKS] += 1.0
                s.rank[k, s.req[r, c.RANK], c.RANK_ENDS] += last
    if active == 0:
        return 0.0
    if ranks == 1:
        s.rank[k, 0, c.RANK_ROWS], s.rank[k, 0, c.RANK_CONTEXT] = rows, context
        s.rank[k, 0, c.RANK_NEW], s.rank[k, 0, c.RANK_CHUNKS], s.rank[k, 0, c.RANK_ENDS] = new, chunks, ends
        s.rank[k, 0, c.RANK_CHUNKED_S] = 0.0
    if chunks > 0:
        attend(s, k, chunks, parts_of(s, k, rows, chunks))
    s.inst[k, c.ROWS] += made
    s.inst[k, c.SLOTS] += rows
    s.inst[k, c.PREFILLS] += new
    s.inst[k, c.DECODES] += rows
    return step_s(s, k, rows, new, chunks)


@inner
def attend(s: Serving, k: int, chunks: int, parts: int) -> None:
    """Mean attention (s) of the prompt chunks of every rank."""
    left = chunks
    for i in range(s.inst[k, c.BATCH] - 1, -1, -1):  # prompts are the latest of a batch, as a rule
        r = s.batch[k, i]
        take = s.req[r, c.TAKE]
        if take > 0 and not decodes(s, r):
            rank = s.req[r, c.RANK]
            own = s.rank[k, rank, c.RANK_CHUNKS]
            each = chunk_s(s, k, int(own), chunks, parts, float(take), float(s.req[r, c.COMPUTED]))
            s.rank[k, rank, c.RANK_CHUNKED_S] += each / own
            left -= 1
            if left == 0:
                return


@inner
def start(s: Serving, k: int, now: float) -> None:
    """Start an iteration if there is something to compute."""
    if s.tier_s[k, 0, c.TTL_S] > 0:
        expire(s, k, now)
    if s.tier.shape[1] > 1:
        s.inst[k, c.HELD_BACK] = 0
        s.inst[k, c.COMPUTES] = -1
        while s.inst[k, c.HEAD] >= 0:
            if s.inst[k, c.LONGEST_PREFIX] == 1:
                best_first(s, k)
            if not start_reading(s, k, now):
                break
    time = 0.0
    for attempt in range(2):  # again when what waits behind the first has given up its memory
        schedule(s, k)
        time = measure(s, k, now)
        if time > 0.0 or attempt == 1 or s.inst[k, c.HEAD] < 0 or s.inst[k, c.BATCH] > 0:
            break
        if not unpin(s, k, s.req[s.inst[k, c.HEAD], c.NEXT]):
            break
    if time > 0.0:
        s.inst[k, c.BUSY] = 1
        s.meter[k, c.START] = now
        s.meter[k, c.END] = now + time


@inner
def note_gap(s: Serving, gap: float, times: int) -> None:
    """Count `times` gaps of so many seconds between two tokens."""
    s.gaps[gap_bin(gap)] += times
    s.total[c.TOTAL_GAP_S] += gap * times
    s.total[c.GAPS] += times
    s.total[c.LONGEST_GAP_S] = max(s.total[c.LONGEST_GAP_S], gap)


@inner
def finish(s: Serving, k: int, now: float, done: np.ndarray) -> int:
    """End an iteration: tokens are made; requests that the instance is done with go to `done` (sequences,). How many."""
    begun, spent = s.meter[k, c.START], now - s.meter[k, c.START]
    steady = kept = ended = 0
    held = used = 0
    for i in range(s.inst[k, c.BATCH]):
        r = s.batch[k, i]
        take = s.req[r, c.TAKE]
        used += s.req[r, c.COMPUTED]
        held += s.req[r, c.PAGES] + s.req[r, c.UNITS] * s.inst[k, c.PER_UNIT]
        if take > 0:
            s.req[r, c.COMPUTED] += take
            if s.req[r, c.UNITS] < s.req[r, c.SHARABLE]:
                publish(s, k, r)
            if s.req[r, c.COMPUTED] == s.req[r, c.PROMPT] + s.req[r, c.MADE]:
                s.req[r, c.MADE] += 1
                if s.req[r, c.MADE] == 1:
                    s.when[r, c.FIRST] = now
                    s.inst[k, c.LOAD] -= s.req[r, c.PROMPT]
                elif s.when[r, c.LAST] == begun:
                    steady += 1
                else:
                    note_gap(s, now - s.when[r, c.LAST], 1)
                s.when[r, c.LAST] = now
                if s.req[r, c.MADE] >= s.req[r, c.GOAL] and s.inst[k, c.RULE] != c.STATIC:
                    done[ended] = r
                    ended += 1
                    continue
        s.batch[k, kept] = r
        kept += 1
    s.inst[k, c.BATCH] = kept
    if s.inst[k, c.RULE] == c.STATIC:
        ended = end_static(s, k, done)
    if steady > 0:
        note_gap(s, spent, steady)
    s.inst[k, c.BUSY] = 0
    s.inst[k, c.ITERATIONS] += 1
    s.meter[k, c.BUSY_S] += spent
    s.meter[k, c.USED_TOKEN_S] += used * spent
    s.meter[k, c.HELD_TOKEN_S] += held * s.inst[k, c.PAGE] * spent
    return ended


@inner
def end_static(s: Serving, k: int, done: np.ndarray) -> int:
    """A static batch ends when all of it has; how many those are."""
    n = s.inst[k, c.BATCH]
    for i in range(n):
        if s.req[s.batch[k, i], c.MADE] < s.req[s.batch[k, i], c.GOAL]:
            return 0
    for i in range(n):
        done[i] = s.batch[k, i]
    s.inst[k, c.BATCH] = 0
    return n


@inner
def answer(s: Serving, k: int, r: int, now: float) -> None:
    """A request is complete: it leaves its instance."""
    held = (s.req[r, c.PAGES] + s.req[r, c.UNITS] * s.inst[k, c.PER_UNIT]) * s.inst[k, c.PAGE]
    s.meter[k, c.WASTE] += held - s.req[r, c.COMPUTED]
    s.meter[k, c.WASTED] += 1
    release(s, k, r)
    s.when[r, c.FINISH] = now
    s.req[r, c.STATE] = c.FINISHED
    s.noted[s.inst.shape[0], c.INSIDE] -= 1.0
    s.inst[k, c.LIVE] -= 1
