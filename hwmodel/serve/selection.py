"""Sums and percentiles of long columns, part by part: to the last bit what numpy gives of the whole, without a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hwmodel.serve.requests import Array
from hwmodel.serve.scratch import CHUNK, Anys, column, parts, release

DIGIT, BITS = 16, 64
"""Bits of a number that one pass over a column decides, and all of them."""


def kept(count: int, make: Callable[[slice], Array], *columns: Anys | None) -> Array:
    """What is finite of a column of up to `count` values that is made slice by slice, in order."""
    found, size = column(count), 0
    for part in parts(count, found, *columns):
        values = make(part)
        values = values[np.isfinite(values)]
        found[size : size + len(values)] = values
        size += len(values)
    return found[:size]


def real_sum(values: Array) -> float:
    """The sum of a column: halves of halves, cut where numpy's pairwise summation cuts them."""
    if len(values) <= CHUNK:
        found = float(np.add.reduce(values))
        release(values)
        return found
    half = len(values) // 2
    half -= half % 8
    return real_sum(values[:half]) + real_sum(values[half:])


def mean(values: Array) -> float:
    """Of a column that is not empty."""
    return real_sum(values) / len(values)


def percentiles(values: Array, asked: Sequence[float]) -> Array:
    """(asked,) as ``np.percentile`` says, between two values in proportion (Hyndman and Fan's seventh)."""
    if len(values) <= CHUNK:
        return np.asarray(np.percentile(values, asked))
    at = np.true_divide(asked, 100) * (len(values) - 1)
    low = np.floor(at)
    share, ranks = at - low, low.astype(np.int64)
    found = ranked(values, np.unique(np.concatenate((ranks, np.minimum(ranks + 1, len(values) - 1)))))
    first, second = (np.array([found[int(r)] for r in which]) for which in (ranks, np.minimum(ranks + 1, len(values) - 1)))
    step = second - first
    return np.asarray(np.where(share < 0.5, first + step * share, second - step * (1 - share)))


def median(values: Array) -> float:
    """The middle one, or half of the sum of the two in the middle."""
    middle = np.array([(len(values) - 1) // 2, len(values) // 2])
    found = ranked(values, middle)
    return sum(found[int(rank)] for rank in middle) / 2


def ranked(values: Array, ranks: NDArray[np.int64]) -> dict[int, float]:
    """What stands at places of the sorted column; values of numbers, none NaN.

    The bits of a float, the sign turned round, are in the order of the numbers. Each pass counts the next digit of those values
    that begin as the wanted one does, until so few are left that they can be sorted.
    """
    found: dict[int, float] = {}
    open_ = {(0, 0): [(int(rank), int(rank)) for rank in ranks]}  # (leading bits, how many): (rank, rank among their values)
    while open_:
        counts = _counted(values, list(open_))
        following: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for key, wanted in open_.items():
            below = np.concatenate(([0], np.cumsum(counts[key])))
            for rank, among in wanted:
                digit = int(np.searchsorted(below, among, "right")) - 1
                following.setdefault(((key[0] << DIGIT) | digit, key[1] + DIGIT), []).append((rank, among - int(below[digit])))
        open_ = {}
        for (begin, size), wanted in following.items():
            if size == BITS:
                found |= {rank: float(_floats(np.array([begin], np.uint64))[0]) for rank, _ in wanted}
            elif counts[begin >> DIGIT, size - DIGIT][begin % (1 << DIGIT)] <= CHUNK:
                numbers = _floats(np.sort(_beginning(values, (begin, size))))
                found |= {rank: float(numbers[among]) for rank, among in wanted}
            else:
                open_[begin, size] = wanted
    return found


def _counted(values: Array, keys: list[tuple[int, int]]) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Of each beginning, how many of its values go on with which digit."""
    counts = {key: np.zeros(1 << DIGIT, np.int64) for key in keys}
    for part in parts(len(values), values):
        bits = _ordered(values[part])
        for key in keys:
            own = bits if not key[1] else bits[bits >> np.uint64(BITS - key[1]) == np.uint64(key[0])]
            digit = (own >> np.uint64(BITS - key[1] - DIGIT)) & np.uint64((1 << DIGIT) - 1)
            counts[key] += np.bincount(digit.astype(np.int64), minlength=1 << DIGIT)
    return counts


def _beginning(values: Array, key: tuple[int, int]) -> NDArray[np.uint64]:
    """Bits of the values that begin so."""
    found = []
    for part in parts(len(values), values):
        bits = _ordered(values[part])
        found.append(bits[bits >> np.uint64(BITS - key[1]) == np.uint64(key[0])])
    return np.concatenate(found)


def _ordered(values: Array) -> NDArray[np.uint64]:
    """Bits in the order of the numbers: of those below zero all turned round, else the sign."""
    bits = np.ascontiguousarray(values).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _floats(bits: NDArray[np.uint64]) -> Array:
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, bits ^ sign, ~bits).view(np.float64)
