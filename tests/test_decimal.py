"""Numbers as text: the same characters as Python's `repr`, which is the oracle."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.kernels import decimal

TENS = decimal.powers()


def said(values: np.ndarray) -> list[str]:
    """A column of doubles as the kernel writes them."""
    count = len(values)
    out = np.zeros(count * (decimal.WIDEST + 25), dtype=np.uint8)
    none = np.zeros((0, count), dtype=np.int64)
    size = decimal.lines(
        np.arange(count, dtype=np.uint64), np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)[None], none,
        np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64), TENS, out,
    )  # fmt: skip
    return [line.partition(",")[2] for line in out[:size].tobytes().decode().split("\n")[:-1]]


HARD = [
    0.0, -0.0, 1.0, -1.0, 0.1, 0.3, 2 / 3, 5e-324, -5e-324, 1e-323, 2.2250738585072014e-308, 2.225073858507201e-308,
    1.7976931348623157e308, 9007199254740991.0, 9007199254740992.0, 9007199254740993.0, 1e15, 1e16, 1e17, 123456789012345680.0,
    9999999999999998.0, 0.0001, 0.00001, 0.00012345, 1e22, 1e23, 9.5e-5, 2.0**-44, 8.41e21, 2.98023223876953125e-8,
    5.764607523034235e39, 1.152921504606847e40, 2.305843009213694e40, 4.35, 1e100, 1.5e-100, math.inf, -math.inf,
]  # fmt: skip


def test_hard_numbers_are_written_as_python_does() -> None:
    """Ends of the range, subnormal numbers, powers of two, halves between two decimals, whole numbers past 2^53."""
    every = np.array(HARD + [2.0**n for n in range(-1074, 1024)] + [10.0**n for n in range(-323, 309)])
    with np.errstate(over="ignore"):
        every = np.concatenate([every, np.nextafter(every, np.inf), np.nextafter(every, -np.inf)])
    for value, text in zip(every.tolist(), said(every), strict=True):
        assert text == repr(value)


@pytest.mark.parametrize("kind", ["bits", "decimals", "whole", "near"])
def test_random_numbers_are_written_as_python_does(kind: str) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**64, 100_000, dtype=np.uint64).view(np.float64)
    values = {
        "bits": bits[~np.isnan(bits)],
        "decimals": np.round(rng.uniform(0, 1000, 50_000), 3) * 10.0 ** rng.integers(-12, 12, 50_000),
        "whole": np.floor(10.0 ** rng.uniform(0, 20, 50_000)),
        "near": 10.0 ** rng.uniform(-8, 14, 100_000),
    }[kind]
    assert said(values) == list(map(repr, values.tolist()))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False))
def test_any_number_is_written_as_python_does(value: float) -> None:
    assert said(np.array([value])) == [repr(value)]


def test_what_is_not_known_is_empty() -> None:
    assert said(np.array([np.nan, 1.5, -np.nan])) == ["", "1.5", ""]


def test_logarithms_are_exact_floors() -> None:
    """floor(log10 2^q), floor(log10 (3/4) 2^q) and floor(log2 10^e) of every exponent of a double, against whole numbers."""

    def floor_log10(above: int, below: int) -> int:
        k = math.floor(math.log10(above) - math.log10(below))
        while above * 10 ** max(0, -k) < below * 10 ** max(0, k):
            k -= 1
        while above * 10 ** max(0, -k - 1) >= below * 10 ** max(0, k + 1):
            k += 1
        return k

    for q in range(-1074, 972):
        two = (2 ** max(0, q), 2 ** max(0, -q))
        assert (q * decimal.LOG10_2) >> 22 == floor_log10(*two)
        assert (q * decimal.LOG10_2 - decimal.LOG10_4_3) >> 22 == floor_log10(3 * two[0], 4 * two[1])
    for e in range(decimal.LEAST, decimal.MOST + 1):
        exact = (10**e).bit_length() - 1 if e >= 0 else -((10**-e).bit_length())
        assert (e * decimal.LOG2_10) >> 19 == exact
        g = int(TENS[e - decimal.LEAST, 0]) << 64 | int(TENS[e - decimal.LEAST, 1])
        assert g >> 127 == 1
        assert (
            0
            <= g * 10 ** max(0, -e) * 2 ** max(0, exact - 127) - 10 ** max(0, e) * 2 ** max(0, 127 - exact)
            <= 10 ** max(0, -e) * 2 ** max(0, exact - 127)
        )


def test_compiled_equals_interpreted() -> None:
    bits = struct.unpack("<Q", struct.pack("<d", 6.02e23))[0]
    with np.errstate(over="ignore"):
        for value in (bits, bits + 1, 1, 2**52, 0x7FEFFFFFFFFFFFFF):
            assert decimal.shortest.py_func(np.uint64(value), TENS) == decimal.shortest(np.uint64(value), TENS)
