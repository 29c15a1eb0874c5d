"""Depth of every block in an LRU stack when it is asked for: one pass gives the hit rate of every cache size."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def stack_depths(starts: np.ndarray, blocks: np.ndarray, order: np.ndarray, distinct: int) -> np.ndarray:
    """Depth (blocks) of each block in the LRU stack as its request arrives: 1 for the most recent, 0 for one never seen.

    A cache of C blocks hits those of depth 1 to C (Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems
    Journal 9(2), 1970). A request looks all its blocks up, then touches them last block first, so that the beginning of a
    prefix outlives its end. Counted with a Fenwick tree over touches, O(log n) a block; the tree is packed anew when full.

    starts : (n + 1,) int64 first block of each request; blocks : (m,) int64 ids from 0; order : (n,) int64 the requests in
    order of time; distinct : number of ids. Returns (m,) int64, by place in `blocks`.
    """
    room = 2 * distinct + 2
    for i in range(order.size):
        room = max(room, distinct + starts[i + 1] - starts[i] + 2)
    tree = np.zeros(room + 1, np.int64)
    held = np.full(room + 1, -1, np.int64)  # block last touched at a place
    place = np.zeros(distinct, np.int64)  # place of a block's last touch, 0 for none
    depth = np.zeros(blocks.size, np.int64)
    top, live = 0, 0
    for r in range(order.size):
        begin, end = starts[order[r]], starts[order[r] + 1]
        for k in range(begin, end):
            at = place[blocks[k]]
            if at > 0:
                below = 0
                while at > 0:
                    below += tree[at]
                    at -= at & -at
                depth[k] = live - below + 1
        if top + end - begin > room:
            top = _packed(tree, held, place, top)
        for k in range(end - 1, begin - 1, -1):
            block = blocks[k]
            at = place[block]
            if at > 0:
                held[at] = -1
                _add(tree, at, -1)
            else:
                live += 1
            top += 1
            place[block] = top
            held[top] = block
            _add(tree, top, 1)
    return depth


@njit(cache=True, nogil=True)
def _add(tree: np.ndarray, at: int, value: int) -> None:
    """Add `value` (blocks) at one place of a Fenwick tree."""
    while at < tree.size:
        tree[at] += value
        at += at & -at


@njit(cache=True, nogil=True)
def _packed(tree: np.ndarray, held: np.ndarray, place: np.ndarray, top: int) -> int:
    """Move the live touches to the first places, in their order; the number of them (blocks) comes back."""
    new = 0
    for at in range(1, top + 1):
        block = held[at]
        if block >= 0:
            new += 1
            held[at] = -1
            held[new] = block
            place[block] = new
    tree[:] = 0
    for at in range(1, new + 1):
        _add(tree, at, 1)
    return new
