"""What lanes that work side by side lose in each other's way, or save by forks: the schedule over its simple bound.

Where an op's followers go to several lanes at once and join again (hot experts on one pool, cold ones on another), a step is
shorter than the sum of its ops, and what is served first come, first served leaves gaps in the busiest lane. Both depend on the
number of micro-batches, on the tokens of one, and on the share of its time that its own ranks take beyond those tokens: the
schedule is run for each of a grid of them, and its time over max(sum, micro-batches x busiest lane) is kept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import columns as c
from hwmodel.kernels.serving_columns import BEYOND
from hwmodel.serve.pricing import Priced
from hwmodel.timeline import Program, period
from hwmodel.timing import price

Array = NDArray[np.float64]
COARSE, FLAT = 8, 0.01
"""Nodes between two that are always asked for, and the difference between two up to which nothing is asked in between."""
TYPICAL = 4096
"""Context (tokens) whose ops stand for attention: how it is spread over a layer."""


def crowding(mixed: Priced, tokens: Array, ranks: int) -> Array:
    """The schedule over its bound, (micro-batches, tokens, BEYOND + 1).

    Parameters
    ----------
    tokens
        (nodes,) of one micro-batch, all ranks together.
    ranks
        That share them.
    """
    whole, own = np.maximum(tokens, 1), np.maximum(1, np.ceil(tokens / ranks))
    shared, linear, decode = (
        np.where(mixed.part == name, _rows(mixed, points), 0.0)
        for name, points in (("shared", _prompt(whole)), ("linear", _prompt(own)), ("decode", _decode(own * ranks)))
    )
    found = np.ones((mixed.most, len(tokens), BEYOND + 1))
    for parts in range(1, mixed.most + 1):
        order = mixed.laid.order(parts)
        for i in range(len(tokens)):
            base = shared[i] + linear[i]
            bare, attended = float(base @ mixed.way), float(decode[i] @ mixed.way)
            more = decode[i] * (bare / attended if attended else 0.0)

            def at(node: int, base: Array = base, more: Array = more, parts: int = parts, order: Program = order) -> float:
                ops = base + node / BEYOND * (more - base)
                bound = max(float(ops @ mixed.way), parts * float((mixed.lanes @ ops).max(initial=0.0)))
                return period(order, ops[order.order] * order.repeats) / bound if bound > 0 else 1.0

            found[parts - 1, i] = followed(at, BEYOND)
    return found


def followed(at: Callable[[int], float], last: int) -> Array:
    """(last + 1,) values of a function at 0, 1, ... last: asked for where it jumps or bends, a straight line in between."""
    known = {node: at(node) for node in range(0, last + 1, COARSE)}
    open_ = [(node, node + COARSE) for node in range(0, last, COARSE)]
    while open_:
        low, high = open_.pop()
        if high - low > 1 and abs(known[high] - known[low]) > FLAT:
            middle = (low + high) // 2
            known[middle] = at(middle)
            open_ += [(low, middle), (middle, high)]
    nodes = sorted(known)
    return np.interp(np.arange(last + 1), nodes, [known[node] for node in nodes])


def _rows(mixed: Priced, points: Array) -> Array:
    """(points, ops) s of one execution of every op, what the stack adds included."""
    return np.maximum(0.0, price(mixed.table, mixed.symbols(points), mixed.device)[:, :, c.TIME] + mixed.added)


def _prompt(tokens: Array) -> Array:
    return np.column_stack(np.broadcast_arrays(0, 1, 1, tokens, 0)).astype(np.float64)


def _decode(sequences: Array) -> Array:
    return np.column_stack(np.broadcast_arrays(sequences, TYPICAL, 0, 1, 0)).astype(np.float64)
