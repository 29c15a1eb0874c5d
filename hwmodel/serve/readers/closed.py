"""Closed loops: calls that wait for calls, made into a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hwmodel.serve.readers.prefix import rebuilt
from hwmodel.serve.readers.table import Table
from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.scratch import column, filled, parts
from hwmodel.serve.trace import Trace

WHOLE = ("prompt", "output", "cached", "session", "chain", "depth", "after")
REAL = ("gap_s", "took_s", "arrival_s")


@dataclass(slots=True)
class Call:
    """One call of a session; it comes in the list after the call that it waits for."""

    prompt: int
    output: int
    cached: int
    """Tokens of the prompt that an earlier call of the session had."""
    step: str = ""
    """How it ended."""
    session: int = -1
    chain: int = -1
    depth: int = 0
    after: int = -1
    """Place in the list of the call it waits for; -1 for none."""
    gap_s: float = 0.0
    took_s: float = 0.0
    """s the traced system took to answer."""
    arrival_s: float = 0.0
    """s from the start of the trace, of a call that waits for none; of the others it follows."""


class Calls:
    """Calls as they come, kept as columns."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self.table = Table(**dict.fromkeys((*WHOLE, "step"), "q"), **dict.fromkeys(REAL, "d"))
        self.steps: dict[str, int] = {}
        for call in calls:
            self.append(call)

    def __len__(self) -> int:
        return len(self.table)

    def append(self, call: Call) -> None:
        """One more, which does not change any more."""
        step = self.steps.setdefault(call.step, len(self.steps))
        self.table.add(
            call.prompt, call.output, call.cached, call.session, call.chain, call.depth, call.after, step,
            call.gap_s, call.took_s, call.arrival_s,
        )  # fmt: skip


def closed_loop(calls: Calls | Iterable[Call], block_tokens: int, source: str, tiers: tuple[str, ...] = ("all",),
                midnight_s: float = float("nan"), shared: int = 0) -> Trace:  # fmt: skip
    """The trace; a waiting call arrives when the traced system had answered the other one and the gap was over.

    With several `tiers` (classes of service) a call's is its depth, the last one for all that are deeper. The first prompts of
    all sessions begin with the same `shared` tokens.
    """
    found = calls if isinstance(calls, Calls) else Calls(calls)
    made = found.table.columns()
    arrival, end = _times(made["after"], made["gap_s"], made["took_s"], made["arrival_s"])
    depth = made["depth"]
    starts, blocks = rebuilt(made["prompt"], made["cached"], made["session"], made["chain"], block_tokens, shared)
    tier = filled(len(depth), lambda part: np.minimum(depth[part], len(tiers) - 1), depth, dtype=np.int64)
    requests = Requests(
        arrival_s=arrival, prompt=made["prompt"], output=made["output"], starts=starts, blocks=blocks,
        block_tokens=block_tokens, session=made["session"], after=made["after"], gap_s=made["gap_s"], tier=tier, tiers=tiers,
        source=source,
    )  # fmt: skip
    return Trace(requests, end, made["chain"], depth, made["step"], tuple(found.steps), midnight_s)


def _times(after: Ints, gap_s: Array, took_s: Array, given_s: Array) -> tuple[Array, Array]:
    """(n,) s of arrivals and ends in the traced system, those that wait for none as given."""
    arrival, end = column(len(after)), column(len(after))
    for part in parts(len(after), after, gap_s, took_s, given_s, arrival, end):
        rows = zip(after[part].tolist(), gap_s[part].tolist(), took_s[part].tolist(), given_s[part].tolist(), strict=True)
        for i, (last, gap, took, given) in enumerate(rows, part.start):
            at = float(end[last]) + gap if last >= 0 else given
            arrival[i], end[i] = at, at + took
    return arrival, end
