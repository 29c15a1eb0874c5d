"""A light model that learns from the trace's own past: logistic regression on what a scheduler sees of a call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from hwmodel.serve.logistic import fit
from hwmodel.serve.predictors.predictor import Predictor
from hwmodel.serve.requests import Array, Ints
from hwmodel.serve.returns import Returns
from hwmodel.serve.trace import Trace

DAY_S = 86_400.0
"""s of a day."""


class Learned(Predictor):
    """Logistic regression, one for each way a call ends, fitted from time to time on calls whose fate is known by then.

    Before the first fit it says the rate of the calls whose fate is known, and 1 while there are none.
    """

    kind: ClassVar[str] = "learned"
    growth: Annotated[float, Field(gt=1, le=100)] = 1.1
    """It is fitted anew whenever there are so many times as many calls as before, from 32 on."""
    ridge: Annotated[float, Field(gt=0, le=1e9)] = 10.0
    """Strength of the pull of the weights to 0."""
    least: Annotated[int, Field(ge=2)] = 50
    """Calls of known fate before the first fit."""

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """The probability that the model of the time gave to each call."""
        n, came = len(returns), returns.came
        what = features(trace, returns)
        known_s = returns.end_s + np.minimum(returns.gap_s, returns.horizon_s)  # a return is known as it comes
        chances = np.ones(n)
        edges = _edges(n, self.growth)
        for begin, end in pairwise(edges):
            past = np.flatnonzero(known_s[:begin] <= returns.end_s[begin])
            for step in np.unique(returns.step[begin:end]):
                own, now = past[returns.step[past] == step], begin + np.flatnonzero(returns.step[begin:end] == step)
                if len(own) >= self.least and 0 < came[own].sum() < len(own):
                    chances[now] = fit(what[own], came[own], self.ridge).predict(what[now])
                else:
                    chances[now] = (came[own].sum() + 1) / (len(own) + 1)
        return chances


def _edges(count: int, growth: float) -> list[int]:
    """Numbers of calls at which the model changes: 0, 32 and on, and all of them."""
    edges, size = [0], 32.0
    while size < count:
        edges.append(int(size))
        size = max(size * growth, size + 1)
    return [*edges, count]


def features(trace: Trace, returns: Returns) -> Array:
    """(n, features) what is known as a call ends: its length, its end, the conversation's gaps so far, the time of day."""
    call, requests = returns.call, trace.requests
    gaps = _history(trace, returns)
    clock = (
        (trace.midnight_s + returns.end_s) * (2 * math.pi / DAY_S) if math.isfinite(trace.midnight_s) else np.zeros(len(call))
    )
    return np.column_stack((
        np.log1p(requests.prompt[call] + requests.output[call]), np.log1p(requests.output[call]), *gaps.T, trace.depth[call],
        np.sin(clock), np.cos(clock),
    ))  # fmt: skip


@dataclass
class _Past:
    """What is known of a conversation; gaps as log(1 + s)."""

    begun_s: float
    calls: int = 0
    turn: int = 0
    """Calls since the last that ended a turn."""
    total: float = 0.0
    last: float = 0.0
    longest: float = 0.0


def _history(trace: Trace, returns: Returns) -> Array:
    """(n, 6) log of: calls so far, last gap, mean of log gaps, longest gap, age, calls of the turn; of the conversation."""
    out = np.zeros((len(returns), 6))
    ends_turn = [step != "tool_use" for step in trace.steps]
    chains: dict[int, _Past] = {}
    chain: Ints = trace.chain[returns.call]
    for i, (own, end, gap, step) in enumerate(zip(chain.tolist(), returns.end_s, returns.gap_s, returns.step, strict=True)):
        past = chains.setdefault(own, _Past(float(end)))
        mean = past.total / past.calls if past.calls else 0.0
        age = math.log1p(max(0.0, end - past.begun_s))
        out[i] = math.log1p(past.calls), past.last, mean, past.longest, age, math.log1p(past.turn)
        past.last = math.log1p(gap) if math.isfinite(gap) else 0.0
        past.longest, past.total, past.calls = max(past.longest, past.last), past.total + past.last, past.calls + 1
        past.turn = 0 if ends_turn[step] else past.turn + 1
    return out
