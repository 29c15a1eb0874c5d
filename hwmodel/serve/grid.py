"""Where the step tables have their nodes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

LONGEST = 1 << 20
"""Tokens of context to which the tables reach; beyond them their last slope goes on."""


@dataclass(frozen=True)
class Axis:
    """Nodes 0, 1, ... `dense`, then `per_octave` to a doubling, up to `last`; whole numbers."""

    dense: int
    per_octave: int
    last: int

    @property
    def nodes(self) -> NDArray[np.float64]:
        """Where the tables are priced."""
        octaves = np.log2(max(2, self.last / self.dense))
        above = self.dense * 2 ** (np.arange(1, int(np.ceil(octaves * self.per_octave)) + 1) / self.per_octave)
        return np.concatenate([np.arange(self.dense + 1.0), np.round(above)])


@dataclass(frozen=True)
class Grid:
    """The axes of the step tables, in the order of the kernel; sequences, chunks and new tokens are those of a rank."""

    tokens: Axis
    sequences: Axis
    context: Axis
    chunks: Axis
    new: Axis
    cached: Axis

    @property
    def axes(self) -> tuple[Axis, ...]:
        """In order."""
        return tuple(getattr(self, item.name) for item in fields(self))

    @property
    def crowd(self) -> Axis:
        """Tokens of a micro-batch for which schedules are run."""
        return Axis(16, 8, max(32, self.tokens.last))


def fine(tokens: int, sequences: int) -> Grid:
    """Every count of tokens to 8,192, then 0.5 % apart."""
    return Grid(Axis(8192, 128, max(16384, tokens)), Axis(64, 16, max(128, sequences)), Axis(16, 4, LONGEST),
                Axis(4, 2, 64), Axis(16, 6, max(32, tokens)), Axis(6, 4, LONGEST))  # fmt: skip


def coarse(tokens: int, sequences: int) -> Grid:
    """For plans whose steps must be scheduled one by one."""
    return Grid(Axis(4, 1, max(8, tokens)), Axis(12, 8, max(24, sequences)), Axis(4, 1, LONGEST),
                Axis(2, 1, max(4, sequences)), Axis(4, 2, max(8, tokens)), Axis(4, 1, LONGEST))  # fmt: skip
