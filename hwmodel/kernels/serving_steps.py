"""Time of one iteration, interpolated in tables that the packed model filled.

One micro-batch after the other would take, of the rank that has most to do (theory: attention data parallel ranks meet in
every layer that exchanges tokens, so that the fullest sets the pace),

    sum (s) = linear[tokens of a rank] + shared[tokens] + head[sequences of a rank] + decode[sequences of a rank, mean context]
            + mean over chunks prefill[chunks of a rank, new, cached]

and m micro-batches that pass lanes which work side by side take max(sum, m x the busiest lane's share of it): the period of the
ping-pong pipeline of MegaScale-Infer (arXiv 2504.02263, section 4), layer for layer.
"""

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.bare import bare
from hwmodel.kernels.reference import by_reference
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def place(x: float, nodes: np.ndarray, spacing: np.ndarray) -> tuple[int, float]:
    """Node below x on an axis and the share of the way to the next; beyond the last node the last interval goes on."""
    dense, per_octave, count = spacing[0], spacing[1], spacing[2]
    i = int(x) if x < dense else dense + int(per_octave * np.log2(x / dense))
    i = max(0, min(i, count - 2))
    while i > 0 and x < nodes[i]:  # nodes are rounded
        i -= 1
    while i < count - 2 and x >= nodes[i + 1]:
        i += 1
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


@inner
def value(s: Serving, kind: int, start: int, i: int, part: float) -> float:
    """Value (s) of a table over one axis that begins at `start`, at the share `part` of the way from node i to the next."""
    low = s.table[kind, start + i]
    return low + (s.table[kind, start + i + 1] - low) * part


@inner
def along(s: Serving, kind: int, table: int, x: float, axis: int) -> float:
    """Value (s) at x of a table over one axis."""
    i, part = place(x, s.axes[kind, axis], s.axis[kind, axis])
    return value(s, kind, s.axis[kind, table, 0], i, part)


@inner
def across(s: Serving, kind: int, start: int, x: float, y: float, first: int, second: int) -> float:
    """Value (s) at (x, y) of a table over two axes that begins at `start`."""
    i, part = place(x, s.axes[kind, first], s.axis[kind, first])
    j, share = place(y, s.axes[kind, second], s.axis[kind, second])
    a = start + i * s.axis[kind, second, 2]
    low = value(s, kind, a, j, share)
    return low + (value(s, kind, a + s.axis[kind, second, 2], j, share) - low) * part


@inner
def parts_of(s: Serving, k: int, rows: int, chunks: int) -> int:
    """Micro-batches that a step fills: as many as the plan has, no more than its decoding sequences, else its chunks."""
    batch = rows if rows > 0 else chunks
    if batch == 0 or s.inst[k, c.MICRO_BATCHES] == 1:
        return 1
    size = -(-batch // min(s.inst[k, c.MICRO_BATCHES], batch))
    return -(-batch // size)


@inner
def chunk_s(s: Serving, k: int, chunks: int, all_chunks: int, parts: int, new: float, cached: float) -> float:
    """Attention (s) of a rank's `chunks` prompt chunks of `new` tokens behind `cached` ones, in one of `parts` micro-batches.

    Fewer chunks in the step (`all_chunks`) than micro-batches are cut into as many, each behind half of the others on average.
    """
    kind = s.inst[k, c.STEPS]
    own = -(-chunks // parts)
    if all_chunks < parts:
        share = all_chunks / parts
        cached = cached + new * (1.0 - share) / 2.0
        new = new * share
    i, part = place(float(own), s.axes[kind, c.BY_CHUNKS], s.axis[kind, c.BY_CHUNKS])
    plane = s.axis[kind, c.BY_NEW, 2] * s.axis[kind, c.BY_CACHED, 2]
    start = s.axis[kind, c.PREFILL_TABLE, 0] + i * plane
    low = across(s, kind, start, new, cached, c.BY_NEW, c.BY_CACHED)
    if part == 0.0:
        return low
    return low + (across(s, kind, start + plane, new, cached, c.BY_NEW, c.BY_CACHED) - low) * part


@inner
def step_s(s: Serving, k: int, rows: int, new: int, chunks: int) -> float:
    """Seconds of an iteration of instance k: that of its fullest rank; what each rank has to do stands in `rank`.

    rows, new, chunks : decoding sequences, prompt tokens and in how many chunks, all ranks together
    """
    parts = parts_of(s, k, rows, chunks)
    longest = 0.0
    for rank in range(s.inst[k, c.RANKS]):
        if s.rank[k, rank, c.RANK_ROWS] > 0 or s.rank[k, rank, c.RANK_CHUNKS] > 0:
            longest = max(longest, rank_s(s, k, rank, parts, rows, new, chunks))
    return longest


@inner
def rank_s(s: Serving, k: int, rank: int, parts: int, rows: int, new: int, chunks: int) -> float:
    """Seconds that an iteration of instance k would take if no rank had more to do than this one."""
    kind = s.inst[k, c.STEPS]
    mine, own_chunks = s.rank[k, rank, c.RANK_ROWS], s.rank[k, rank, c.RANK_CHUNKS]
    here, share = np.ceil(mine / parts), np.ceil(rows / parts)
    time = attention = alone = 0.0
    if rows > 0:
        if mine > 0:
            start = s.axis[kind, c.DECODE_TABLE, 0]
            context = s.rank[k, rank, c.RANK_CONTEXT] / mine
            attention = across(s, kind, start, here, context, c.BY_SEQUENCES, c.BY_CONTEXT)
        alone = period_s(s, k, parts, here, share, here, attention, 0.0)
        time = alone + s.meter[k, c.SEQUENCE_S] * mine
    if chunks > 0:
        count, fresh = np.ceil(own_chunks / parts), (s.rank[k, rank, c.RANK_NEW] / own_chunks if own_chunks > 0 else 0.0)
        whole = share + np.ceil(chunks / parts) * new / chunks
        if chunks < parts:  # cut into as many pieces as micro-batches
            fresh, whole = fresh * chunks / parts, share + new / parts
        own, whole = np.ceil(here + count * fresh - 1e-6), np.ceil(whole - 1e-6)  # tokens are whole
        both = period_s(s, k, parts, own, whole, here + count, attention, s.rank[k, rank, c.RANK_CHUNKED_S])
        time += (both - alone) * s.meter[k, c.STRETCH] + s.meter[k, c.PROMPT_S] * s.rank[k, rank, c.RANK_ENDS]
    return time + s.meter[k, c.HOST_S]


@inner
def period_s(
    s: Serving, k: int, parts: int, own: float, tokens: float, sequences: float, decode_s: float, prefill_s: float
) -> float:
    """Seconds between two steps of `parts` equal micro-batches.

    own, tokens, sequences : tokens of a rank, of all ranks, sequences of a rank that get a token, of one micro-batch
    decode_s, prefill_s : attention of one micro-batch
    """
    kind = s.inst[k, c.STEPS]
    i, part = place(own, s.axes[kind, c.BY_TOKENS], s.axis[kind, c.BY_TOKENS])
    j, share = i, part
    if tokens != own:  # several ranks
        j, share = place(tokens, s.axes[kind, c.BY_TOKENS], s.axis[kind, c.BY_TOKENS])
    head_s = along(s, kind, c.HEAD_TABLE, sequences, c.BY_SEQUENCES)
    time = value(s, kind, s.axis[kind, c.LINEAR, 0], i, part) + value(s, kind, s.axis[kind, c.SHARED, 0], j, share)
    time += head_s + decode_s + prefill_s
    own_s = time
    start, lanes, width = s.axis[kind, c.LANES, 0], s.axis[kind, c.LANES, 1], s.axis[kind, c.BY_TOKENS, 2]
    for lane in range(lanes):
        at = start + lane * (2 * width + 3)
        busy = value(s, kind, at, i, part) + value(s, kind, at + width, j, share)
        at += 2 * width
        busy += s.table[kind, at] * head_s + s.table[kind, at + 1] * decode_s + s.table[kind, at + 2] * prefill_s
        time = max(time, parts * busy)
    if s.axis[kind, c.CROWDING, 1] > 0:
        time *= crowded(s, kind, parts, tokens, s.inst[k, c.RANKS], value(s, kind, s.axis[kind, c.SHARED, 0], j, share), own_s)
    return time


@inner
def crowded(s: Serving, kind: int, parts: int, tokens: float, ranks: int, shared_s: float, all_s: float) -> float:
    """The schedule of `parts` micro-batches over its bound; all_s is the sum of one, shared_s that of its shared part."""
    least_s = shared_s + along(s, kind, c.LINEAR, np.ceil(tokens / ranks), c.BY_TOKENS)
    beyond = max(0.0, 1.0 - least_s / all_s) * c.BEYOND
    i, part = place(tokens, s.axes[kind, c.CROWD_NODES], s.axis[kind, c.BY_CROWD])
    nodes = s.axis[kind, c.BY_CROWD, 2]
    j = min(int(beyond), c.BEYOND - 1)
    at = s.axis[kind, c.CROWDING, 0] + ((parts - 1) * nodes + i) * (c.BEYOND + 1)
    low = value(s, kind, at, j, beyond - j)
    part = min(part, 1.0)  # beyond the last node it stays
    return low + (value(s, kind, at + c.BEYOND + 1, j, beyond - j) - low) * part


@bare
def steps_s(s: Serving, points: np.ndarray, out: np.ndarray) -> None:
    """Seconds at many points of instance 0: rows, mean context, prompts, new and cached tokens of each prompt.

    points : (points, 5); out : (points,), s
    """
    s = by_reference(s)
    ranks = s.inst[0, c.RANKS]
    for i in range(points.shape[0]):
        rows, chunks, new = int(points[i, 0]), int(points[i, 2]), int(points[i, 3])
        s.rank[0] = 0.0
        mine, own = -(-rows // ranks), -(-chunks // ranks)
        s.rank[0, 0, c.RANK_ROWS], s.rank[0, 0, c.RANK_CONTEXT] = mine, mine * points[i, 1]
        s.rank[0, 0, c.RANK_CHUNKS], s.rank[0, 0, c.RANK_NEW] = own, own * new
        if chunks > 0:
            parts = parts_of(s, 0, rows, chunks)
            s.rank[0, 0, c.RANK_CHUNKED_S] = chunk_s(s, 0, own, chunks, parts, float(new), points[i, 4])
        out[i] = step_s(s, 0, rows, chunks * new, chunks)


@inner
def gap_bin(gap: float) -> int:
    """Bin of a gap (s) between two tokens."""
    place_ = int((np.log2(gap) + 20.0) * c.BINS_PER_OCTAVE) if gap > 0 else 0
    return max(0, min(place_, c.BINS_PER_OCTAVE * c.OCTAVES - 1))
