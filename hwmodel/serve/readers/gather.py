"""Requests gathered row by row, in compact columns, and made into a trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.serve.readers.lines import Faults
from hwmodel.serve.readers.prefix import FEW
from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.scratch import CHUNK, Anys, Growing, column, filled, parts, release, same
from hwmodel.serve.trace import Trace

COLUMNS = ("prompt", "output", "session", "tier")
MERGED = 1 << 20
"""Ids that are sorted at once."""


def _longs() -> Growing:
    return Growing("q")


@dataclass
class Gathered:
    """Columns of an open-loop trace while its rows are read: 8 bytes a number, on disk where there are many."""

    arrival_s: Growing = field(default_factory=lambda: Growing("d"))
    prompt: Growing = field(default_factory=_longs)
    output: Growing = field(default_factory=_longs)
    session: Growing = field(default_factory=_longs)
    tier: Growing = field(default_factory=_longs)
    ends: Growing = field(default_factory=_longs)
    blocks: Growing = field(default_factory=_longs)
    names: dict[str, int] = field(default_factory=dict)
    """Classes of service in the order of their first row."""
    first_s: float = math.inf
    """Earliest arrival."""

    def __len__(self) -> int:
        return len(self.prompt)

    def add(
        self, arrival_s: float, prompt: int, output: int, session: int = -1, blocks: Sequence[int] = (), tier: str = "all"
    ) -> None:
        """One request; tokens and s from the start of the trace."""
        self.first_s = min(self.first_s, arrival_s)
        self.arrival_s.last.append(arrival_s)
        self.prompt.last.append(prompt)
        self.output.last.append(output)
        self.session.last.append(session)
        self.tier.last.append(self.names.setdefault(tier, len(self.names)))
        self.blocks.last.extend(blocks)
        self.ends.last.append(len(self.blocks))
        if len(self.prompt.last) == CHUNK or len(self.blocks.last) >= CHUNK:
            self.blocks.settle()
            for name in ("arrival_s", "ends", *COLUMNS):
                getattr(self, name).settle()

    def made(self, path: Path, faults: Faults, says: str, block_tokens: int = 16, midnight_s: float = float("nan"),
             zero_s: float = 0.0) -> Trace:  # fmt: skip
        """The trace, in order of arrival (rows of one time in the order of the file), its times counted from `zero_s`.

        Raises
        ------
        InputError
            With what was wrong in the rows, or because there are none.
        """
        n = len(self)
        faults.stop(n)
        arrival, columns = self.arrival_s.column(), {name: getattr(self, name).column() for name in COLUMNS}
        if zero_s:
            for part in parts(n, arrival):
                arrival[part] -= zero_s
        starts, blocks = same(0, n + 1), np.empty(0, np.int64)
        if len(self.blocks):
            starts = column(n + 1, np.int64)
            starts[1:] = self.ends.column()
            blocks = chained(starts, dense(self.blocks.column()))
        if any((np.diff(arrival[part.start : part.stop + 1]) < 0).any() for part in parts(n, arrival)):
            order = np.argsort(arrival, kind="stable")
            arrival, columns = _moved(arrival, order), {name: _moved(values, order) for name, values in columns.items()}
            if len(blocks):
                starts, blocks = picked(starts, blocks, order)
        return open_loop(arrival, **columns, starts=starts, blocks=blocks, block_tokens=block_tokens,
                         tiers=tuple(self.names), source=f"{path.name} ({says})", midnight_s=midnight_s)  # fmt: skip


def open_loop(arrival_s: Array, *, midnight_s: float = float("nan"), **columns: Any) -> Trace:
    """A trace whose requests come when they come: nothing waits, nothing is known of how they were answered."""
    n = len(arrival_s)
    none = same(0, n)
    requests = Requests(arrival_s=arrival_s, after=same(-1, n), gap_s=same(0.0, n, np.float64), **columns)
    return Trace(requests, arrival_s, requests.session, none, none, midnight_s=midnight_s)


def picked(starts: Ints, blocks: Ints, order: Ints) -> tuple[Ints, Ints]:
    """`starts` and `blocks` with the requests in another order."""
    n, total = len(order), 0
    moved, found = column(n + 1, np.int64), column(len(blocks), np.int64)
    for part in parts(n, moved, found, starts, blocks, rows=FEW):
        begin = starts[order[part]]
        sizes = starts[order[part] + 1] - begin
        ends = np.cumsum(sizes)
        moved[part.start + 1 : part.stop + 1] = total + ends
        count = int(ends[-1])
        found[total : total + count] = blocks[np.arange(count) + np.repeat(begin - ends + sizes, sizes)]
        total += count
    return moved, found


def _moved(values: Anys, order: Ints) -> Anys:
    return filled(len(order), lambda part: values[order[part]], values, dtype=values.dtype)


def dense(ids: Ints) -> Ints:
    """(n,) the rank of every id among those that there are.

    Ids that are counted through (no more than four times as many as blocks) are marked in a column; of others, hashes, those
    that there are stand in memory, sorted.
    """
    pieces = [(int(ids[part].min()), int(ids[part].max())) for part in parts(len(ids), ids)]
    low, high = min(piece[0] for piece in pieces), max(piece[1] for piece in pieces)
    if high - low < 4 * len(ids):
        rank, total = column(high - low + 1, np.int64), 0
        for part in parts(len(ids), ids, rank):
            rank[ids[part] - low] = 1
        for part in parts(len(rank), rank):
            rank[part] = np.cumsum(rank[part]) + total
            total = int(rank[part.stop - 1])
        return filled(len(ids), lambda part: rank[ids[part] - low] - 1, ids, rank, dtype=np.int64)
    known = np.empty(0, np.int64)
    for start in range(0, len(ids), MERGED):
        known = np.union1d(known, ids[start : start + MERGED])
        release(ids)
    return filled(len(ids), lambda part: np.searchsorted(known, ids[part]), ids, dtype=np.int64)


def chained(starts: Ints, ids: Ints) -> Ints:
    """Dense ids that stand for a block and all before it.

    Ids that are chained hashes already, so that each follows always the same one, come back as they are; others, that stand
    for the content of a block alone, are chained here.
    """
    if not len(ids):
        return ids
    most = max(int(ids[part].max()) for part in parts(len(ids), ids))
    usual = column(most + 1, np.int64)  # the one before each, plus 2; 0: none yet
    alike = True
    for part in parts(len(starts) - 1, starts, ids, usual, rows=FEW):
        begin, end = int(starts[part.start]), int(starts[part.stop])
        own = ids[begin:end]
        before = np.concatenate(([-1], own[:-1]))[: len(own)]
        first = starts[part] - begin
        before[first[first < starts[part.start + 1 : part.stop + 1] - begin]] = -1
        usual[own] = np.where(usual[own] == 0, before + 2, usual[own])
        alike = alike and bool((usual[own] == before + 2).all())
    if alike:
        return ids
    known: dict[tuple[int, int], int] = {}
    out = column(len(ids), np.int64)
    for part in parts(len(starts) - 1, starts, ids, out, rows=FEW):
        for begin, end in pairwise(starts[part.start : part.stop + 1].tolist()):
            parent = -1
            for place, block in enumerate(ids[begin:end].tolist(), begin):
                parent = known.setdefault((parent, block), len(known))
                out[place] = parent
    return out
