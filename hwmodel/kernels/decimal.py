"""Numbers as text: the fewest decimal digits that read back as the same double, written as Python's `repr` writes them."""

import math
from typing import Any

import numpy as np

from hwmodel.kernels.bare import bare

U64 = Any
"""A uint64; a checker takes what numpy makes of two of them for something else."""
WIDEST = 24
"""Characters of the longest number: -1.7976931348623157e+308."""
LEAST, MOST = -292, 324
"""Powers of ten that scale a double to a whole number of 16 or 17 digits."""
LOG10_2, LOG10_4_3 = math.floor(math.log10(2) * 2**22), math.floor(math.log10(4 / 3) * 2**22)
LOG2_10 = math.floor(math.log2(10) * 2**19)
"""Logarithms as whole numbers over 2^22 and 2^19; exact floors for every exponent of a double (tests/test_decimal.py)."""
ZERO, POINT, MINUS, PLUS, E = ord("0"), ord("."), ord("-"), ord("+"), ord("e")
_0, _1, _2, _4, _10, _40 = (np.uint64(n) for n in (0, 1, 2, 4, 10, 40))
_32, _52, _63, _HALF = (np.uint64(n) for n in (32, 52, 63, 2**32 - 1))
_FRACTION, _EXPONENT, _HIDDEN = np.uint64(2**52 - 1), np.uint64(2**11 - 1), np.uint64(2**52)


def powers() -> np.ndarray:
    """Powers of ten from LEAST to MOST as 128 bits without unit, rounded up, high and low halves; (powers, 2) uint64."""
    found = np.empty((MOST - LEAST + 1, 2), dtype=np.uint64)
    for e in range(LEAST, MOST + 1):
        ten = 10 ** abs(e)
        if e >= 0:
            g = ten << 128 - ten.bit_length() if ten.bit_length() <= 128 else (ten >> ten.bit_length() - 128) + 1
        else:
            g = (1 << 127 + ten.bit_length()) // ten + 1
        found[e - LEAST] = g >> 64, g & (2**64 - 1)
    return found


@bare
def high(a: U64, b: U64) -> U64:
    """Upper 64 bits of the product of two uint64, no unit."""
    a1, a0, b1, b0 = a >> _32, a & _HALF, b >> _32, b & _HALF
    middle = a1 * b0 + ((a0 * b0) >> _32)
    return a1 * b1 + (middle >> _32) + ((a0 * b1 + (middle & _HALF)) >> _32)


@bare
def scaled(g1: U64, g0: U64, c: U64) -> U64:
    """Upper 64 of 192 bits of (g1 2^64 + g0) c, uint64; the last bit is set where anything was cut off ("round to odd")."""
    low = g1 * c
    rest = low + high(g0, c)
    top = high(g1, c) + (_1 if rest < low else _0)
    return top | (_1 if rest > _1 else _0)


@bare
def shortest(bits: U64, tens: np.ndarray) -> tuple[U64, Any]:
    """(s, k): s 10^k is the decimal of fewest digits that rounds to a positive finite double, of those the closest; no unit.

    Among the multiples of 10^k and 10^(k + 1) around v = c 2^q, with 10^k just below the distance of neighbouring doubles,
    the one that lies in the interval rounding to v (R. Giulietti, The Schubfach way to render doubles, 2020, section 9).

    bits : the double as uint64; tens : `powers`
    """
    fraction, exponent = bits & _FRACTION, np.int64((bits >> _52) & _EXPONENT)
    c, q = (fraction | _HIDDEN, exponent - 1075) if exponent > 0 else (fraction, np.int64(-1074))
    if -53 < q <= 0 and c & ((_1 << np.uint64(-q)) - _1) == _0:  # a whole number
        return c >> np.uint64(-q), 0
    uneven = fraction == _0 and exponent > 1  # a power of two: the next double below is twice as near
    k = (q * LOG10_2 - (LOG10_4_3 if uneven else 0)) >> 22
    shift = np.uint64(q + ((-k * LOG2_10) >> 19) + 1)
    g1, g0 = tens[-k - LEAST, 0], tens[-k - LEAST, 1]
    odd = c & _1
    middle = scaled(g1, g0, (_4 * c) << shift)  # 4 v 10^-k
    lower = scaled(g1, g0, (_4 * c - (_1 if uneven else _2)) << shift) + odd
    upper = scaled(g1, g0, (_4 * c + _2) << shift) - odd
    s = middle >> _2
    if s >= _10:
        tenth = s // _10
        below, above = lower <= _40 * tenth, _40 * tenth + _40 <= upper
        if below != above:
            return tenth + (_1 if above else _0), k + 1
    below, above = lower <= _4 * s, _4 * s + _4 <= upper
    if below != above:
        return s + (_1 if above else _0), k
    half = _4 * s + _2
    return s + (_1 if middle > half or (middle == half and s & _1 == _1) else _0), k


@bare
def whole(s: U64, count: int, out: np.ndarray, at: int) -> int:
    """Write the last `count` digits of a uint64 to out[at:]; the place behind them (characters)."""
    for place in range(at + count - 1, at - 1, -1):
        rest = s // _10
        out[place] = ZERO + np.int64(s - rest * _10)
        s = rest
    return at + count


@bare
def digits(s: U64) -> int:
    """How many decimal digits a uint64 has, no unit."""
    count = 1
    while s >= _10:
        s //= _10
        count += 1
    return count


@bare
def number(bits: U64, tens: np.ndarray, out: np.ndarray, at: int) -> int:
    """Write a double to out[at:] as `repr` does, nothing for nan; the place behind it (characters).

    bits : the double as uint64; tens : `powers`; out : (characters,) uint8, WIDEST free
    """
    if (bits >> _52) & _EXPONENT == _EXPONENT and bits & _FRACTION != _0:
        return at
    if bits >> _63:
        out[at] = MINUS
        at += 1
    bits &= ~(_1 << _63)
    if (bits >> _52) == _EXPONENT:
        out[at], out[at + 1], out[at + 2] = ord("i"), ord("n"), ord("f")
        return at + 3
    s, k = (_0, 0) if bits == _0 else shortest(bits, tens)
    while s >= _10 and s == s // _10 * _10:
        s //= _10
        k += 1
    count = digits(s)
    point = count + k  # digits before the decimal point
    if point > 16 or point < -3:
        return _scientific(s, count, point - 1, out, at)
    if point <= 0:
        out[at], out[at + 1] = ZERO, POINT
        for place in range(at + 2, at + 2 - point):
            out[place] = ZERO
        return whole(s, count, out, at + 2 - point)
    if k >= 0:
        at = whole(s, count, out, at)
        for place in range(at, at + k):
            out[place] = ZERO
        out[at + k], out[at + k + 1] = POINT, ZERO
        return at + k + 2
    return _split(s, count, point, out, at)


@bare
def _split(s: U64, count: int, point: int, out: np.ndarray, at: int) -> int:
    """Write `count` digits of a uint64 with the decimal point behind the first `point`; the place behind (characters)."""
    for place in range(at + count, at + point, -1):
        rest = s // _10
        out[place] = ZERO + np.int64(s - rest * _10)
        s = rest
    out[at + point] = POINT
    whole(s, point, out, at)
    return at + count + 1


@bare
def _scientific(s: U64, count: int, exponent: int, out: np.ndarray, at: int) -> int:
    """Write d.ddde+XX; the place behind it (characters)."""
    at = whole(s, 1, out, at) if count == 1 else _split(s, count, 1, out, at)
    out[at], out[at + 1] = E, MINUS if exponent < 0 else PLUS
    size = abs(exponent)
    return whole(np.uint64(size), 3 if size >= 100 else 2, out, at + 2)


@bare
def lines(
    first: np.ndarray, numbers: np.ndarray, words: np.ndarray, order: np.ndarray, text: np.ndarray, ends: np.ndarray,
    tens: np.ndarray, out: np.ndarray,
) -> int:  # fmt: skip
    """Write rows of cells with commas between them and a line feed behind; how many characters.

    first : (rows,) uint64, the first cell of every row; numbers : (columns, rows or more) doubles as uint64; words :
    (columns, rows) int, number of a word; order : (cells behind the first,) int, a row of `numbers`, or -1 - a row of `words`;
    text : (characters,) uint8 of all words; ends : (words + 1,) int, where each ends, after a 0; tens : `powers`;
    out : (characters,) uint8, wide enough
    """
    at = 0
    for row in range(first.shape[0]):
        at = whole(first[row], digits(first[row]), out, at)
        for cell in range(order.shape[0]):
            out[at] = ord(",")
            at += 1
            column = order[cell]
            if column >= 0:
                at = number(numbers[column, row], tens, out, at)
            else:
                word = words[-1 - column, row]
                for place in range(ends[word], ends[word + 1]):
                    out[at] = text[place]
                    at += 1
        out[at] = ord("\n")
        at += 1
    return at
