"""A recorded trace: its requests, and what the traced system did with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.scratch import same


@dataclass(frozen=True)
class Trace:
    """Requests as recorded, n of them, with columns that only a recording has."""

    requests: Requests
    end_s: Array
    """(n,) s from the start of the trace: when the traced system had answered; the arrival where the trace does not say."""
    chain: Ints
    """(n,) number of the conversation a call continues: an agent or one of its sub-agents; -1 for none."""
    depth: Ints
    """(n,) 0 for the main agent, 1 for its sub-agents."""
    step: Ints
    """(n,) how the call ended, index into `steps`."""
    steps: tuple[str, ...] = ("",)
    """Names of ends: tool_use, end_turn; an empty one where the trace does not say."""
    midnight_s: float = float("nan")
    """s from midnight (UTC) to the start of the trace; NaN where the trace has no wall clock."""

    def __len__(self) -> int:
        return len(self.requests)


def bare(requests: Requests) -> Trace:
    """The requests alone as a trace; a session is one conversation and nothing is known of how a call ended."""
    none = same(0, len(requests))
    return Trace(requests, ended(requests), requests.session, none, none)


def ended(requests: Requests) -> Array:
    """(n,) s: the end of each request as those that wait for it tell: their arrival less their gap; else its own arrival."""
    end = requests.arrival_s.copy()
    waits = requests.waits
    np.maximum.at(end, requests.after[waits], requests.arrival_s[waits] - requests.gap_s[waits])
    return end
