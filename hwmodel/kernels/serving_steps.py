"""Time of one iteration, interpolated in tables that the packed model filled.

step (s) = linear[tokens of a rank] + shared[tokens] + head[sequences of a rank] + decode[sequences of a rank, mean context]
         + mean over chunks prefill[chunks of a rank, new, cached] + host
"""

import numpy as np
from numba import njit

from hwmodel.kernels import serving_columns as c
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
def along(s: Serving, kind: int, table: int, x: float, axis: int) -> float:
    """Value (s) at x of a table over one axis."""
    i, part = place(x, s.axes[axis], s.axis[axis])
    i += s.axis[table, 0]
    return s.table[kind, i] + (s.table[kind, i + 1] - s.table[kind, i]) * part


@inner
def across(s: Serving, kind: int, start: int, x: float, y: float, first: int, second: int) -> float:
    """Value (s) at (x, y) of a table over two axes that begins at `start`."""
    i, part = place(x, s.axes[first], s.axis[first])
    j, share = place(y, s.axes[second], s.axis[second])
    width = s.axis[second, 2]
    a = start + i * width + j
    b = a + width
    low = s.table[kind, a] + (s.table[kind, a + 1] - s.table[kind, a]) * share
    high = s.table[kind, b] + (s.table[kind, b + 1] - s.table[kind, b]) * share
    return low + (high - low) * part


@inner
def chunk_s(s: Serving, k: int, chunks: int, new: int, cached: int) -> float:
    """Attention (s) of `chunks` prompt chunks of `new` tokens behind `cached` ones, as a rank computes its share of them."""
    kind = s.inst[k, c.STEPS]
    own = -(-chunks // s.inst[k, c.RANKS])
    i, part = place(float(own), s.axes[c.BY_CHUNKS], s.axis[c.BY_CHUNKS])
    plane = s.axis[c.BY_NEW, 2] * s.axis[c.BY_CACHED, 2]
    start = s.axis[c.PREFILL_TABLE, 0] + i * plane
    low = across(s, kind, start, float(new), float(cached), c.BY_NEW, c.BY_CACHED)
    if part == 0.0:
        return low
    return low + (across(s, kind, start + plane, float(new), float(cached), c.BY_NEW, c.BY_CACHED) - low) * part


@inner
def step_s(s: Serving, k: int, rows: int, context: float, new: int, chunks: int, chunked_s: float, ends: int) -> float:
    """Seconds of an iteration of instance k.

    rows, context : decoding sequences and the sum of their contexts
    new, chunks, chunked_s : prompt tokens, in how many chunks, and the mean of `chunk_s` over them
    ends : prompts that give their first token
    """
    ranks = s.inst[k, c.RANKS]
    rows_here, chunks_here = -(-rows // ranks), -(-chunks // ranks)
    time = 0.0
    if rows > 0:
        nodes = float(-(-rows // s.inst[k, c.DECODE_UNIT]))
        start = s.axis[c.DECODE_TABLE, 0]
        time = across(s, s.inst[k, c.STEPS], start, nodes, context / rows, c.BY_SEQUENCES, c.BY_CONTEXT)
        time += layers_s(s, k, float(rows_here), float(rows), float(rows_here)) + s.meter[k, c.SEQUENCE_S] * rows_here
    if chunks > 0:
        own = rows_here + chunks_here * new / chunks
        more = layers_s(s, k, own, float(rows + new), float(rows_here + chunks_here)) + chunked_s
        if rows > 0:
            more -= layers_s(s, k, float(rows_here), float(rows), float(rows_here))
        time += more * s.meter[k, c.STRETCH] + s.meter[k, c.PROMPT_S] * ends
    return time


@inner
def layers_s(s: Serving, k: int, own: float, tokens: float, sequences: float) -> float:
    """Seconds of everything but attention: `own` tokens of a rank, `tokens` of all, the head on so many sequences of a rank."""
    kind = s.inst[k, c.STEPS]
    time = along(s, kind, c.LINEAR, own, c.BY_TOKENS) + along(s, kind, c.SHARED, tokens, c.BY_TOKENS)
    return time + along(s, kind, c.HEAD_TABLE, sequences, c.BY_SEQUENCES)


@njit(cache=True, error_model="numpy")
def steps_s(s: Serving, points: np.ndarray, out: np.ndarray) -> None:
    """Seconds at many points of instance 0: rows, mean context, prompts, new and cached tokens of each prompt.

    points : (points, 5); out : (points,), s
    """
    for i in range(points.shape[0]):
        rows, chunks, new = int(points[i, 0]), int(points[i, 2]), int(points[i, 3])
        chunked = chunk_s(s, 0, chunks, new, int(points[i, 4])) if chunks > 0 else 0.0
        out[i] = step_s(s, 0, rows, points[i, 1] * rows, chunks * new, chunks, chunked, 0)


@inner
def gap_bin(gap: float) -> int:
    """Bin of a gap (s) between two tokens."""
    place_ = int((np.log2(gap) + 20.0) * c.BINS_PER_OCTAVE) if gap > 0 else 0
    return max(0, min(place_, c.BINS_PER_OCTAVE * c.OCTAVES - 1))
