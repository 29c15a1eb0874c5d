"""Time of one iteration, interpolated in tables that the packed model filled.

step (s) = linear[tokens of a rank] + shared[tokens] + head[sequences of a rank] + decode[sequences of a rank, mean context]
         + mean over chunks prefill[chunks of a rank, new, cached] + host
"""

import numpy as np
from numba import njit

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving


@njit(cache=True)
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


@njit(cache=True)
def along(table: np.ndarray, x: float, nodes: np.ndarray, spacing: np.ndarray) -> float:
    """Value (s) at x of a table over one axis."""
    i, part = place(x, nodes, spacing)
    return table[i] + (table[i + 1] - table[i]) * part


@njit(cache=True)
def across(table: np.ndarray, x: float, y: float, s: Serving, first: int, second: int) -> float:
    """Value (s) at (x, y) of a table over two axes."""
    i, part = place(x, s.axes[first], s.axis[first])
    j, share = place(y, s.axes[second], s.axis[second])
    low = table[i, j] + (table[i, j + 1] - table[i, j]) * share
    high = table[i + 1, j] + (table[i + 1, j + 1] - table[i + 1, j]) * share
    return low + (high - low) * part


@njit(cache=True)
def chunk_s(s: Serving, kind: int, chunks: int, new: int, cached: int) -> float:
    """Attention (s) of `chunks` prompt chunks of `new` tokens behind `cached` ones, as a rank computes its share of them."""
    ranks = s.ranks[kind, 0]
    i, part = place(float(-(-chunks // ranks)), s.axes[c.BY_CHUNKS], s.axis[c.BY_CHUNKS])
    low = across(s.prefill[kind, i], float(new), float(cached), s, c.BY_NEW, c.BY_CACHED)
    if part == 0.0:
        return low
    return low + (across(s.prefill[kind, i + 1], float(new), float(cached), s, c.BY_NEW, c.BY_CACHED) - low) * part


@njit(cache=True)
def step_s(s: Serving, kind: int, rows: int, context: float, new: int, chunks: int, chunked_s: float, ends: int) -> float:
    """Seconds of an iteration.

    rows, context : decoding sequences and the sum of their contexts
    new, chunks, chunked_s : prompt tokens, in how many chunks, and the mean of `chunk_s` over them
    ends : prompts that give their first token
    """
    ranks, unit = s.ranks[kind, 0], s.ranks[kind, 1]
    own = float(-(-rows // ranks))
    if chunks > 0:
        own += (-(-chunks // ranks)) * new / chunks
    time = along(s.linear[kind], own, s.axes[c.BY_TOKENS], s.axis[c.BY_TOKENS])
    time += along(s.shared[kind], float(rows + new), s.axes[c.BY_TOKENS], s.axis[c.BY_TOKENS])
    heads = -(-rows // ranks) + (-(-chunks // ranks))
    time += along(s.head[kind], float(heads), s.axes[c.BY_SEQUENCES], s.axis[c.BY_SEQUENCES])
    if rows > 0:
        time += across(s.decode[kind], float(-(-rows // unit)), context / rows, s, c.BY_SEQUENCES, c.BY_CONTEXT)
    return time + chunked_s + s.host[kind, 0] * (-(-rows // ranks)) + s.host[kind, 1] * ends


@njit(cache=True)
def steps_s(s: Serving, kind: int, points: np.ndarray, out: np.ndarray) -> None:
    """Seconds at many points: rows, mean context, prompts, new and cached tokens of each; points : (points, 5), out : (points,)."""
    for i in range(points.shape[0]):
        rows, chunks, new = int(points[i, 0]), int(points[i, 2]), int(points[i, 3])
        chunked = chunk_s(s, kind, chunks, new, int(points[i, 4])) if chunks > 0 else 0.0
        out[i] = step_s(s, kind, rows, points[i, 1] * rows, chunks * new, chunks, chunked, 0)


@njit(cache=True)
def gap_bin(gap: float) -> int:
    """Bin of a gap (s) between two tokens."""
    place_ = int((np.log2(gap) + 20.0) * c.BINS_PER_OCTAVE) if gap > 0 else 0
    return max(0, min(place_, c.BINS_PER_OCTAVE * c.OCTAVES - 1))
