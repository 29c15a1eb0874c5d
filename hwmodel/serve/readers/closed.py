"""Closed loops: calls that wait for calls, made into a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.serve.readers.prefix import rebuilt
from hwmodel.serve.requests import Requests
from hwmodel.serve.trace import Trace


@dataclass
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


def closed_loop(calls: Sequence[Call], block_tokens: int, source: str, tiers: tuple[str, ...] = ("all",),
                midnight_s: float = float("nan"), shared: int = 0) -> Trace:  # fmt: skip
    """The trace; a waiting call arrives when the traced system had answered the other one and the gap was over.

    With several `tiers` (classes of service) a call's is its depth, the last one for all that are deeper. The first prompts of
    all sessions begin with the same `shared` tokens.
    """
    end: list[float] = []
    for call in calls:
        if call.after >= 0:
            call.arrival_s = end[call.after] + call.gap_s
        end.append(call.arrival_s + call.took_s)

    def ints(name: str) -> np.ndarray:
        return np.array([getattr(call, name) for call in calls], np.int64)

    prompt, session, chain = ints("prompt"), ints("session"), ints("chain")
    starts, blocks = rebuilt(prompt, ints("cached"), session, chain, block_tokens, shared)
    steps = tuple(dict.fromkeys(call.step for call in calls))
    number = {name: i for i, name in enumerate(steps)}
    requests = Requests(
        arrival_s=np.array([call.arrival_s for call in calls]), prompt=prompt, output=ints("output"), starts=starts,
        blocks=blocks, block_tokens=block_tokens, session=session, after=ints("after"),
        gap_s=np.array([call.gap_s for call in calls]), tier=np.minimum(ints("depth"), len(tiers) - 1), tiers=tiers,
        source=source,
    )  # fmt: skip
    step = np.array([number[call.step] for call in calls], np.int64)
    return Trace(requests, np.array(end), chain, ints("depth"), step, steps, midnight_s)
