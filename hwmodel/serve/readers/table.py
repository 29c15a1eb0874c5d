"""Rows of numbers gathered as columns, and given back group by group: no object for every row of a long file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from hwmodel.serve.requests import Ints
from hwmodel.serve.scratch import Anys, Growing, parts, release


class Table:
    """Columns by name, "q" of whole numbers and "d" of real ones."""

    def __init__(self, **codes: str) -> None:
        self.growing = {name: Growing(code) for name, code in codes.items()}

    def __len__(self) -> int:
        return len(next(iter(self.growing.values())))

    def add(self, *values: float) -> None:
        """One row, a value for each column."""
        for one, value in zip(self.growing.values(), values, strict=True):
            one.last.append(value)
            one.settle()

    def columns(self) -> dict[str, Anys]:
        """All of it; no more rows come."""
        return {name: one.column() for name, one in self.growing.items()}


def picked(columns: Mapping[str, Anys], which: Ints) -> Iterator[tuple[Any, ...]]:
    """Rows at some places, without the first column: the group."""
    rows = zip(*(values[which].tolist() for values in list(columns.values())[1:]), strict=True)
    release(*columns.values())
    return rows


def grouped(number: Ints) -> Iterator[Ints]:
    """Places of the rows of every number from 0 on, as they come; rows of one number need not follow one another."""
    counts = np.zeros(1 + max((int(number[part].max()) for part in parts(len(number), number)), default=-1), np.int64)
    ascending = True
    for part in parts(len(number), number):
        counts += np.bincount(number[part], minlength=len(counts))
        ascending = ascending and bool((np.diff(number[part.start : part.stop + 1]) >= 0).all())
    order = None if ascending else np.argsort(number, kind="stable")
    for begin, end in pairwise([0, *np.cumsum(counts).tolist()]):
        yield np.arange(begin, end) if order is None else order[begin:end]
