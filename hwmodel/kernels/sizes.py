"""Symbolic dimensions to numbers at many points, with the points last: `resolve` in loops over points."""

import numpy as np
from numba import njit

from hwmodel.kernels.bare import bare
from hwmodel.kernels.resolve import FACTORS, TERMS

BLOCK = 512
"""Points at once, so that the rows in work stay in the first cache."""


@bare
def multiply(target: np.ndarray, x: np.ndarray, power: int, begin: int, n: int) -> None:
    """Multiply n values (no unit) by x^power, x from place `begin` on."""
    for _ in range(abs(power)):
        for q in range(n):
            target[q] *= x[begin + q] if power > 0 else 1.0 / x[begin + q]


@bare
def size_of(
    symbols: np.ndarray, unit: np.ndarray, coefficient: np.ndarray, which: np.ndarray, power: np.ndarray, each: np.ndarray,
    begin: int, n: int, inside: np.ndarray, outside: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """One size (no unit) at n points from `begin` on; unit, coefficient : (TERMS,); which, power, each : (TERMS, FACTORS)."""
    for q in range(n):
        out[begin + q] = 0.0
    for t in range(TERMS):
        if coefficient[t] == 0.0:
            continue
        inside[:n], outside[:n] = coefficient[t], unit[t]
        for f in range(FACTORS):
            if which[t, f] < 0:
                break
            multiply(outside if each[t, f] == 1 else inside, symbols[which[t, f]], power[t, f], begin, n)
        for q in range(n):
            out[begin + q] += outside[q] * np.ceil(inside[q] - 1e-9)


@njit(cache=True, nogil=True)
def sizes_of(
    symbols: np.ndarray, unit: np.ndarray, coefficient: np.ndarray, which: np.ndarray, power: np.ndarray, each: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Sizes (no unit) as `resolve.resolve` finds them.

    symbols : (symbols, points); unit, coefficient : (sizes, TERMS); which, power, each : (sizes, TERMS, FACTORS), which = -1
    where unused; out : (sizes, points)
    """
    inside, outside = np.empty(BLOCK), np.empty(BLOCK)
    for begin in range(0, symbols.shape[1], BLOCK):
        n = min(BLOCK, symbols.shape[1] - begin)
        for j in range(unit.shape[0]):
            size_of(symbols, unit[j], coefficient[j], which[j], power[j], each[j], begin, n, inside, outside, out[j])
