"""Rows of a sweep as CSV: every number reads back to the last bit, words are quoted, what is not known is empty."""

from __future__ import annotations

import csv
import io
import math

import numpy as np

from hwmodel.sweep.chunks import Table
from hwmodel.sweep.store import csv_bytes, header

NUMBERS = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 2 / 3, 1e16, 1e-7, 123456789012345680.0, math.nan, math.inf, -math.inf]


def test_numbers_read_back_to_the_last_bit() -> None:
    rng = np.random.default_rng(4)
    drawn = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    first = np.concatenate([NUMBERS, drawn])
    second = np.exp(rng.normal(size=len(first)) * 20)
    codes = rng.integers(-1, 2, len(first))
    words = ('8 chips, "tp"', "plain")
    table = table_of(first, second, codes, words)
    rows = list(csv.reader(io.StringIO((header(table) + csv_bytes(table)).decode())))
    names = rows[0]
    assert names[0] == "point"
    assert names[-1] == "feasible"
    assert [row[0] for row in rows[1:4]] == ["7", "8", "9"]
    for name, column in (("a", first), ("b", second)):
        cells = [row[names.index(name)] for row in rows[1:]]
        read = np.array([float(cell) if cell else math.nan for cell in cells])
        assert np.array_equal(read, column, equal_nan=True)
        assert all((cell == "") == math.isnan(value) for cell, value in zip(cells, column.tolist(), strict=True))
    assert [row[names.index("plan")] for row in rows[1:]] == [("" if code < 0 else words[code]) for code in codes.tolist()]
    assert {row[-1] for row in rows[1:]} == {"true", "false"}


def table_of(first: np.ndarray, second: np.ndarray, codes: np.ndarray, words: tuple[str, str]) -> Table:
    rows = len(first)
    return Table(np.arange(7, 7 + rows), {"a": first, "b": second}, {"plan": (codes, words)}, np.arange(rows) % 2 == 0)
