"""Requests gathered row by row, in compact columns, and made into a trace."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.serve.readers.lines import Faults
from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.trace import Trace


def _longs() -> array[int]:
    return array("q")


@dataclass
class Gathered:
    """Columns of an open-loop trace while its rows are read: 8 bytes a number."""

    arrival_s: array[float] = field(default_factory=lambda: array("d"))
    prompt: array[int] = field(default_factory=_longs)
    output: array[int] = field(default_factory=_longs)
    session: array[int] = field(default_factory=_longs)
    tier: array[int] = field(default_factory=_longs)
    starts: array[int] = field(default_factory=lambda: array("q", [0]))
    blocks: array[int] = field(default_factory=_longs)
    names: dict[str, int] = field(default_factory=dict)
    """Classes of service in the order of their first row."""

    def add(
        self, arrival_s: float, prompt: int, output: int, session: int = -1, blocks: Sequence[int] = (), tier: str = "all"
    ) -> None:
        """One request; tokens and s from the start of the trace."""
        self.arrival_s.append(arrival_s)
        self.prompt.append(prompt)
        self.output.append(output)
        self.session.append(session)
        self.tier.append(self.names.setdefault(tier, len(self.names)))
        self.blocks.extend(blocks)
        self.starts.append(len(self.blocks))

    def made(self, path: Path, faults: Faults, says: str, block_tokens: int = 16, midnight_s: float = float("nan")) -> Trace:
        """The trace, in order of arrival (rows of one time in the order of the file).

        Raises
        ------
        InputError
            With what was wrong in the rows, or because there are none.
        """
        faults.stop(len(self.prompt))
        arrival, starts = np.array(self.arrival_s), np.array(self.starts)
        ids = (
            np.unique(np.array(self.blocks), return_inverse=True)[1].astype(np.int64) if self.blocks else np.empty(0, np.int64)
        )
        columns: dict[str, Any] = {
            name: np.array(getattr(self, name)) for name in ("prompt", "output", "session", "tier")
        }  # fmt: skip
        blocks = chained(starts, ids)
        if (np.diff(arrival) < 0).any():
            order = np.argsort(arrival, kind="stable")
            arrival = arrival[order]
            columns = {name: values[order] for name, values in columns.items()}
            starts, blocks = picked(starts, blocks, order)
        return open_loop(arrival, **columns, starts=starts, blocks=blocks, block_tokens=block_tokens,
                         tiers=tuple(self.names), source=f"{path.name} ({says})", midnight_s=midnight_s)  # fmt: skip


def open_loop(arrival_s: Array, *, midnight_s: float = float("nan"), **columns: Any) -> Trace:
    """A trace whose requests come when they come: nothing waits, nothing is known of how they were answered."""
    n = len(arrival_s)
    none = np.zeros(n, np.int64)
    requests = Requests(arrival_s=arrival_s, after=np.full(n, -1, np.int64), gap_s=np.zeros(n), **columns)
    return Trace(requests, arrival_s, requests.session, none, none, midnight_s=midnight_s)


def picked(starts: Ints, blocks: Ints, order: Ints) -> tuple[Ints, Ints]:
    """`starts` and `blocks` with the requests in another order."""
    sizes = np.diff(starts)[order]
    moved = np.concatenate(([0], np.cumsum(sizes)))
    where = np.arange(moved[-1]) + np.repeat(starts[:-1][order] - moved[:-1], sizes)
    return moved, blocks[where]


def chained(starts: Ints, ids: Ints) -> Ints:
    """Dense ids that stand for a block and all before it.

    Ids that are chained hashes already, so that each follows always the same one, come back as they are; others, that stand
    for the content of a block alone, are chained here.
    """
    if not len(ids):
        return ids
    before = np.concatenate(([-1], ids[:-1]))
    before[starts[:-1][starts[:-1] < starts[1:]]] = -1
    usual = np.empty(ids.max() + 1, np.int64)
    usual[ids] = before
    if (usual[ids] == before).all():
        return ids
    known: dict[tuple[int, int], int] = {}
    out = np.empty_like(ids)
    first = set(starts[:-1].tolist())
    parent = -1
    for place, block in enumerate(ids.tolist()):
        parent = known.setdefault((-1 if place in first else parent, block), len(known))
        out[place] = parent
    return out
