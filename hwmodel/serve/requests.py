"""Requests of a trace as columns: when they arrive, how long they are, what they share, what they wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.serve.scratch import filled, parts

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
TARGETS = ("ttft", "tpot", "e2e")
"""What a request may have a target of."""


@dataclass(frozen=True)
class Worth:
    """What idle KV is worth, by kind of forecast and age."""

    table: Array
    """(kinds, ages) -inf: not worth a place below the first tier; ages as log2(1 + s) in eighths."""
    auc: float = float("nan")
    """Of the predictor that said it, over all calls of the trace."""


@dataclass(frozen=True)
class Requests:
    """n requests in order of arrival; of a closed loop, in an order in which none comes before what it waits for."""

    arrival_s: Array
    """(n,) s from the start of the trace; of a request that waits for another one, what the trace says (not used)."""
    prompt: Ints
    """(n,) input tokens, >= 1."""
    output: Ints
    """(n,) output tokens, >= 1."""
    starts: Ints
    """(n + 1,) first prefix block of every request in `blocks`; all zero where a trace has none."""
    blocks: Ints
    """Chained hashes (dense ids) of the prompt's blocks: equal ids mean an equal prefix up to and with that block."""
    block_tokens: int
    """Tokens of one block; the last block of a prompt may be partly filled."""
    session: Ints
    """(n,) number of the session, -1 for none."""
    after: Ints
    """(n,) index of the request whose end this one waits for (closed loop), -1: it arrives at `arrival_s`."""
    gap_s: Array
    """(n,) s from the end of `after` to this request: the tool's or the human's time; 0 where it waits for none."""
    tier: Ints
    """(n,) class of service, index into `tiers`."""
    tiers: tuple[str, ...] = ("all",)
    source: str = ""
    """Where they come from, for the report."""
    forecast: Ints | None = None
    """(n,) kind of forecast that a predictor made of the conversation's return as the call ended; row of `worth`."""
    worth: Worth | None = None
    limits: Array | None = None
    """(tiers, targets) s: each class's own targets, in the order of `TARGETS`; NaN where that of all requests holds."""

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def waits(self) -> Ints:
        """Which wait for another one."""
        found = [part.start + np.flatnonzero(self.after[part] >= 0) for part in parts(len(self), self.after)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    @property
    def distinct_blocks(self) -> int:
        """Ids of blocks, from 0."""
        return 1 + max((int(self.blocks[part].max()) for part in parts(len(self.blocks), self.blocks)), default=-1)

    def first(self, n: int) -> Requests:
        """The first n of them."""
        keep: dict[str, Any] = {k: v[:n] if isinstance(v, np.ndarray) else v for k, v in vars(self).items()}
        keep["limits"] = self.limits
        keep["starts"], keep["blocks"] = self.starts[: n + 1], self.blocks[: self.starts[min(n, len(self))]]
        return Requests(**keep)

    def scaled(self, rate: float) -> Requests:
        """The same requests arriving `rate` times as often; the gaps of closed loops stay."""
        arrival = filled(len(self), lambda part: self.arrival_s[part] / rate, self.arrival_s)
        return Requests(**{**vars(self), "arrival_s": arrival})
