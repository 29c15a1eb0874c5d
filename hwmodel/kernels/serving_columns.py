"""Columns of the serving arrays: requests, instances, tiers of the KV cache, and the codes that stand in them.

Pages are blocks of the paged KV cache; units are blocks of the trace that prefixes are shared in, a whole number of pages.
"""

from typing import NamedTuple

import numpy as np

# what is known of a request at its end, whole numbers: (requests, N_ENDED)
MADE, HIT, LOADED, PREEMPTED, AT, RANK, STATE, REASON = 0, 1, 2, 3, 4, 5, 6, 7
"""Tokens made; prompt tokens found in the cache when first admitted, -1 when never, those of lower tiers among them; how often
preempted; its instance, and which attention data parallel rank there; a state below; why rejected."""
N_ENDED = 8

# requests while they are there, whole numbers: (slots, N_REQUEST); first those above
PROMPT, OUTPUT, COMPUTED = 8, 9, 10
"""Tokens: of the prompt, to be made, in the KV cache."""
PAGES, UNITS, SHARABLE = 11, 12, 13
"""Pages of its own; units of its prompt that it holds; units of its prompt that others can share."""
NEXT, TAKE, ORIGIN = 14, 15, 16
"""The request behind it in a list; tokens it computes in the running iteration; where it was prefilled."""
GOAL, ORIGIN_UNITS, ORIGIN_PAGES = 17, 18, 19
"""Tokens after which this instance is done with it: OUTPUT, or 1 where it only prefills; what it still holds at its origin."""
NUMBER, BASE, FORECAST = 20, 21, 22
"""Its place in the trace; its first unit in `blocks`; kind of forecast of its conversation."""
N_REQUEST = 23

# requests, times in s: (requests or slots, N_TIME)
ARRIVAL, SCHEDULED, FIRST, LAST, FINISH = 0, 1, 2, 3, 4
"""Arrived; first scheduled; first token; latest token; answer complete. -1: not yet."""
LOADING_S, TRANSFER_S, BEGUN = 5, 6, 7
"""Spent on reading KV from lower tiers before it was first scheduled; from the end of its prefill to the end of its KV
transfer; when the computing began that led to its first token: later than it was first scheduled if that was lost to a
preemption."""
N_TIME = 8

# states
PENDING, WAITING, RUNNING, LOADING, STAGED, MOVING, FINISHED, REJECTED = 0, 1, 2, 3, 4, 5, 6, 7
"""Not arrived; in a queue; in a batch; its KV on the way from a lower tier; prefilled, waits for a decode instance; its KV on
the way there; answered; refused."""

# reasons
TOO_LONG, OVER_BUDGET, NOT_PRECEDED = 1, 2, 3
"""Does not fit the KV cache even alone; prompt above the token budget without chunks; what it waits for was rejected."""

# instances, whole numbers: (instances, N_INSTANCE)
ROLE, RULE, STEPS, MAX_SEQS, BUDGET, CHUNKED = 0, 1, 2, 3, 4, 5
"""A role and a rule below; which step tables; most sequences of a batch; most tokens of an iteration; whether prompts may be
cut into chunks."""
CAPACITY, WATERMARK, RESERVE = 6, 7, 8
"""Pages; pages that admission leaves free; tokens reserved at admission: 0 none (paged), -1 the final length, else so many."""
FREE, EVICTABLE, BATCH, QUEUED, HEAD, TAIL = 9, 10, 11, 12, 13, 14
"""Pages; units no request holds; sequences running and waiting; first and last of the queue."""
BUSY, TOUCHED, ITERATIONS, ALLOCATED, FREED, PREEMPTIONS = 15, 16, 17, 18, 19, 20
ROWS, SLOTS, LOAD, INCOMING, INCOMING_TAIL, LIVE = 21, 22, 23, 24, 25, 26
"""Decode rows that made a token, rows computed; prompt tokens of requests without a first token; queue of prefilled
requests; requests here."""
PEAK, LONGEST_PREFIX, PREFILLS, DECODES, INFLIGHT = 27, 28, 29, 30, 31
"""Most pages in use; 1: the longest cached prefix is admitted first; prompt tokens and decode tokens computed; sequences
whose KV is on the way here."""
PAGE, PER_UNIT, RANKS, MICRO_BATCHES = 32, 33, 34, 35
"""Tokens of a page; pages of a unit; ranks that share the sequences of a step; micro-batches of a step at most."""
HELD_BACK, COMPUTES = 36, 37
"""1: the first waiting request waits for room to read its KV into; the waiting request that is to compute its prompt although
lower tiers have some of it, -1 for none."""
N_INSTANCE = 38

# instances, s and tokens: (instances, N_METER)
START, END, BUSY_S, WASTE, WASTED, LINK_FREE = 0, 1, 2, 3, 4, 5
"""Of the running iteration; sum of iterations; tokens of pages that finished sequences had not filled, and how many sequences
those were; until when the outgoing link is busy."""
TOKEN_SEND_S, SEND_LATENCY_S, HELD_TOKEN_S, USED_TOKEN_S, SENT_TOKENS = 6, 7, 8, 9, 10
"""s per KV token to send and s before the first; integrals over iterations of the tokens that running sequences hold room
for and of those they use; tokens sent."""
SEQUENCE_S, PROMPT_S, STRETCH, HOST_S = 11, 12, 13, 14
"""Host time of a step per decoding sequence and per prompt that ends; what prompts add to a step, in units of its price; host
time of every step."""
N_METER = 15

RANK_ROWS, RANK_CONTEXT, RANK_CHUNKS, RANK_NEW, RANK_CHUNKED_S, RANK_ENDS = 0, 1, 2, 3, 4, 5
"""What a rank does in the step being timed: decoding sequences and the sum of their contexts; prompt chunks, their tokens, the
mean of their attention (s); prompts that give their first token."""
N_RANK = 6

# roles
MIXED, PREFILL_ONLY, DECODE_ONLY = 0, 1, 2

# rules
STATIC, ITERATION_LEVEL, BUDGETED, SARATHI, PREFILL_FIRST = 0, 1, 2, 3, 4

# routing
ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE = 0, 1, 2

# tiers, the first of them index 0: whole numbers (instances, tiers, N_TIER), times (instances, tiers, N_TIER_S)
ROOM, HELD, MOST, HITS, READS, WRITES, COUNTED = 0, 1, 2, 3, 4, 5, 6
"""Units: capacity, held, most held, found by requests, read and written; and a place to count in."""
OWNER, EVICTS, DUPLEX, UNWRITTEN, DROPPED, EXPIRED = 7, 8, 9, 10, 11, 12
"""Instance whose lists hold what is there: another one's where a pool is shared; a policy below; 1: reads and writes have a
way each; units that were not kept because the way down was too far behind, because all that was there was worth more or no
return was expected, and by their age."""
LENGTHS = 13
"""ARC: how many units are in each of its four lists, from here on."""
N_TIER = 17
READ_S, LATENCY_S, FREE_AT, WRITE_S, WRITE_FREE_AT, BEHIND_S = 0, 1, 2, 3, 4, 5
"""s per unit to read; s before the first; until when the way up is busy; s per unit to write; until when the way down is; by
how many s it may be behind before units are not kept."""
TARGET, TTL_S, WRITING_S = 6, 7, 8
"""ARC: units that those used once should have; s after which an idle unit is gone, 0 for never; s spent writing."""
N_TIER_S = 9

HOLDERS, OLDER, NEWER, LIST = 0, 1, 2, 3
"""Of a unit in a tier: -1 not there, else how many requests hold it; its neighbours in its list by last use of units that
nobody holds, whose anchor stands behind the ids; which list that is."""

# who leaves a full tier
LRU, ARC, RETURN = 0, 1, 2
"""Least recently used (one list); adaptive replacement (four lists); least worth by the forecast of its last request (a list
for each kind of forecast)."""
ONCE, OFTEN, WAS_ONCE, WAS_OFTEN = 0, 1, 2, 3
"""ARC's lists: used once, more often, and the ids of those that left each."""
AGES_PER_OCTAVE = 8
"""Columns of `worth`: ages at which log2(1 + age in s) passes a whole number of eighths."""

BY_TOKENS, BY_SEQUENCES, BY_CONTEXT, BY_CHUNKS, BY_NEW, BY_CACHED = 0, 1, 2, 3, 4, 5
"""Axes of the step tables."""
LINEAR, SHARED, HEAD_TABLE, DECODE_TABLE, PREFILL_TABLE, LANES, CROWDING = 6, 7, 8, 9, 10, 11, 12
"""Rows of `axis` that say where the step tables begin; of LANES and CROWDING also how many there are: lanes, micro-batches."""
BY_CROWD = 13
"""The axis of tokens of the table of crowding: row of `axis`; in `axes` it is the one behind the first six."""
CROWD_NODES = 6
BEYOND = 64
"""Steps of the share of a micro-batch's time that is beyond its tokens, in the table of crowding."""

BINS_PER_OCTAVE, OCTAVES = 128, 40
"""Histogram of token gaps: bins a factor 2^(1/128) wide from 2^-20 s up."""

TOTAL_GAP_S, LONGEST_GAP_S, GAPS, NEXT_ENTRY, CLOCK, BACKWARDS = 0, 1, 2, 3, 4, 5
"""Totals of a run: gaps between tokens (sum, longest, number); whose turn it is; time of the last event, and how often the
clock went back (never)."""
SERIES, SPACING_S, ROW_BEGUN, FULLEST, FULLEST_S = 6, 7, 8, 9, 10
"""Rows of the time series; how long (s) each is at least; when the one that is open began, -1 before the first event; the most
requests that were there at once, and when they first were (s)."""
N_TOTAL = 11

OPENED, ARRIVED, ON_WAY, RUNNING_NOW, ITERATED, FREE_SLOTS, USED_SLOTS, HOLDING = 0, 1, 2, 3, 4, 5, 6, 7
"""Counts of a run: requests that have arrived by themselves, and all that have; those on their way (`soon`); instances that
compute; iterations; slots free again, and slots ever used: the most requests there at once; requests that held KV after their
end (none)."""
N_COUNT = 8

AT_S, RUNNING_, WAITING_, LOADING_, USED_PAGES, IDLE_PAGES, INSIDE = 0, 1, 2, 3, 4, 5, 6
"""Columns of the time series: when a row begins (s); then means over it, of all instances: requests in batches, in queues, with
KV on the way; pages that requests hold, pages of units that nobody holds; requests that have arrived and are not answered."""
N_SERIES = 7


class Serving(NamedTuple):
    """Everything the event loop reads and writes."""

    req: np.ndarray
    """(slots, N_REQUEST) int: the requests that are there, each in a slot that it gives back at its end."""
    when: np.ndarray
    """(slots, N_TIME) s."""
    inst: np.ndarray
    """(instances, N_INSTANCE) int."""
    meter: np.ndarray
    """(instances, N_METER) float."""
    batch: np.ndarray
    """(instances, sequences) int: requests of the running batch, oldest first."""
    starts: np.ndarray
    """(requests + 1,) first unit of each request in `blocks`; none where nothing is shared."""
    blocks: np.ndarray
    """(units,) int ids."""
    cache: np.ndarray
    """(4, instances, tiers, ids + lists) int32: HOLDERS, OLDER, NEWER, LIST of every unit; then the anchors of the lists."""
    tier: np.ndarray
    """(instances, tiers, N_TIER) int."""
    tier_s: np.ndarray
    """(instances, tiers, N_TIER_S) s."""
    rank: np.ndarray
    """(instances, ranks, N_RANK) float: scratch of the step being timed."""
    table: np.ndarray
    """(kinds, values) s: the step tables of each kind of instance, one behind the other: over tokens of a rank, over tokens,
    over sequences, over (sequences, context), over (chunks, new, cached tokens); then, lane by lane, over tokens of a rank,
    over tokens, and the share that the lane has of the head, of decode and of prefill attention; last, where there is one, over
    (micro-batches, tokens, share) the schedule over its bound."""
    axes: np.ndarray
    """(kinds, 7, nodes) float: nodes of tokens, sequences, contexts, chunks, new and cached tokens of a chunk; of crowding."""
    axis: np.ndarray
    """(kinds, 14, 3) int: how each axis is spaced (dense nodes, nodes per octave, nodes), then where each table begins."""
    gaps: np.ndarray
    """(bins,) int: histogram of gaps between tokens."""
    total: np.ndarray
    """(N_TOTAL,) float."""
    used: np.ndarray = np.zeros((0, 0, 0), np.float32)
    """(instances, tiers, ids + lists) float32, s: when a request last let go of a unit; kept where a policy asks for it."""
    forecast: np.ndarray = np.zeros(0, np.int64)
    """(requests,) int: kind of forecast of each request's conversation; none where nothing is forecast."""
    worth: np.ndarray = np.zeros((1, 1))
    """(lists, ages): what a unit is worth, by forecast and the time since its last use; -inf: no place below the first tier.
    The last is that of conversations that have come back and wait, the one before of copies of what a higher tier has."""
    series: np.ndarray = np.zeros((0, N_SERIES))
    """(rows, N_SERIES) float: the state of all instances over time; the last row is the state at the end."""
    noted: np.ndarray = np.zeros((2, N_SERIES))
    """(instances + 2, N_SERIES) float: the state of each instance, of all of them, and the integral of it over the open row."""
    arrival: np.ndarray = np.zeros(0)
    """(requests,) s: when those arrive that wait for none."""
    prompt: np.ndarray = np.zeros(0, np.int64)
    output: np.ndarray = np.zeros(0, np.int64)
    """(requests,) tokens."""
    gap_s: np.ndarray = np.zeros(0)
    """(requests,) s from the end of what a request waits for to its arrival; none where nobody waits."""
    follow: np.ndarray = np.zeros(0, np.int64)
    """(requests + 1 + followers,) int: of each request, where those that wait for its end stand in this array; then they."""
    opening: np.ndarray = np.zeros(0, np.int64)
    """Requests that arrive by themselves, in order of arrival; none where that is all of them as they are numbered."""
    ended: np.ndarray = np.zeros((0, N_ENDED), np.int32)
    """(requests, N_ENDED) int32: what became of each request."""
    ended_s: np.ndarray = np.zeros((0, N_TIME))
    """(requests, N_TIME) s."""
    soon_s: np.ndarray = np.zeros(0)
    """A heap of requests on their way, by time and number: s."""
    soon: np.ndarray = np.zeros((0, 2), np.int64)
    """The same: number and slot of each, slot -1 of one that has not arrived."""
    slots: np.ndarray = np.zeros(0, np.int64)
    """Slots that are free again."""
    ends: np.ndarray = np.zeros(0)
    """(instances,) s: when the running iterations end."""
    running: np.ndarray = np.zeros((3, 0), np.int64)
    """(3, instances): a heap of the instances that compute, by `ends`; their order among equals; those touched by an event."""
    done: np.ndarray = np.zeros(0, np.int64)
    """(sequences,) requests that an iteration ended for."""
    counts: np.ndarray = np.zeros(N_COUNT, np.int64)
    """(N_COUNT,) int."""


class Unshared(Serving):
    """As `Serving`, of requests that share no units of prompts: the loop is compiled without all that is done with units."""
