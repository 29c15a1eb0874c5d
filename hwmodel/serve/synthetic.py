"""Workloads made from distributions: requests that come at random, sessions of agents; the same seed gives the same ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from hwmodel.model.block import Count, Size
from hwmodel.serve.readers.closed import Call, Calls, closed_loop
from hwmodel.serve.readers.gather import open_loop
from hwmodel.serve.readers.prefix import begun
from hwmodel.serve.requests import Array, Ints, Requests
from hwmodel.serve.scratch import column, filled, parts, same
from hwmodel.serve.trace import Trace
from hwmodel.spec.schema import PerSecond, Seconds, Spec

Sigma = Annotated[float, Field(ge=0, le=5)]
"""Standard deviation of the logarithm; 0 makes all equal."""


class Tokens(Spec):
    """Log-normal numbers, of tokens or of calls."""

    mean: Annotated[float, Field(ge=1, le=1e8)]
    sigma: Sigma = 0.0
    max: Size | None = None
    """Larger ones are cut to it, which lowers the mean."""

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """(count,) whole numbers, at least 1."""
        drawn = rng.lognormal(math.log(self.mean) - self.sigma**2 / 2, self.sigma, count)
        return np.clip(np.rint(drawn), 1, self.max or 1e9).astype(np.int64)


class Pause(Spec):
    """Log-normal pauses."""

    mean_s: Seconds
    sigma: Sigma = 0.0
    max_s: Seconds | None = None
    """Longer ones are cut to it, which lowers the mean."""

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """(count,) s."""
        if not self.mean_s:
            return np.zeros(count)
        drawn = rng.lognormal(math.log(self.mean_s) - self.sigma**2 / 2, self.sigma, count)
        return np.minimum(drawn, math.inf if self.max_s is None else float(self.max_s))


class SubAgents(Spec):
    """Agents that a call starts and the next call waits for; their contexts are their own."""

    share: Annotated[float, Field(ge=0, le=1)]
    """Of the calls that use a tool, how many start one."""
    calls: Tokens
    prompt: Tokens


class Agents(Spec):
    """What happens inside a session: calls, tools, people, a growing context."""

    calls: Tokens
    """Calls of the main agent per session."""
    tool: Pause
    """From the end of a call to the next one."""
    appended: Tokens
    """Tokens that a tool or a person adds to the context, which also holds all before: prompts and answers."""
    human: Pause | None = None
    """The pause after the end of a turn; the tool's when absent."""
    turn: Annotated[float, Field(ge=1, le=1e6)] = 1e6
    """Mean calls of a turn, after which a person is waited for."""
    context_max: Size | None = None
    """A context that would be longer starts anew: the session's first prompt and what is added."""
    sub_agents: SubAgents | None = None


class Synthetic(Spec):
    """A workload from distributions."""

    kind: Literal["poisson", "gamma", "sessions"] = "poisson"
    """poisson, gamma: requests on their own; sessions: agents in closed loops, whose sessions arrive at random."""
    rate_per_s: PerSecond
    """Requests, or sessions, per second."""
    cv: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Coefficient of variation of the times between arrivals; 1 is Poisson, more is bursts."""
    requests: Size | None = None
    """How many, of poisson and gamma."""
    sessions: Size | None = None
    """How many, of sessions."""
    prompt: Tokens
    """Input tokens; of sessions those of the first call."""
    output: Tokens
    shared: Count = 0
    """Tokens that the prompts of all sessions begin with: the system prompt."""
    agents: Agents | None = None
    block: Size = 64
    """Tokens of a prefix block."""
    seed: Count = 0

    @model_validator(mode="after")
    def _complete(self) -> Synthetic:
        if not self.rate_per_s:
            raise ValueError("rate must be more than 0")
        wanted, other = ("sessions", "requests") if self.kind == "sessions" else ("requests", "sessions")
        if getattr(self, wanted) is None:
            raise ValueError(f"kind {self.kind} needs '{wanted}', how many of them")
        if getattr(self, other) is not None:
            raise ValueError(f"kind {self.kind} takes '{wanted}', not '{other}'")
        if (self.agents is not None) != (self.kind == "sessions"):
            raise ValueError("kind sessions needs 'agents', what happens in them; the other kinds take none")
        if self.kind == "poisson" and self.cv != 1:
            raise ValueError("cv of poisson is 1; kind gamma takes others")
        return self


def generate(spec: Synthetic) -> Trace:
    """The workload as a trace.

    Arrivals and lengths are drawn apart, so that another rate gives the same requests, nearer together (common random
    numbers).
    """
    when, what = (np.random.default_rng(seed) for seed in np.random.SeedSequence(spec.seed).spawn(2))
    count = spec.sessions if spec.kind == "sessions" else spec.requests
    arrival = arrivals(when, int(count or 0), float(spec.rate_per_s), spec.cv)
    source = f"synthetic ({spec.kind}, seed {spec.seed})"
    if spec.agents is not None:
        calls = Calls()
        chains = itertools.count()
        for session in range(len(arrival)):
            _session(spec, spec.agents, what, session, float(arrival[session]), calls, chains)
        tiers = ("agent", "sub-agent") if spec.agents.sub_agents else ("agent",)
        return closed_loop(calls, spec.block, source, tiers, shared=spec.shared)
    n = len(arrival)
    prompt = filled(n, lambda part: spec.prompt.draw(what, part.stop - part.start) + spec.shared, dtype=np.int64)
    output = filled(n, lambda part: spec.output.draw(what, part.stop - part.start), dtype=np.int64)
    starts, blocks = same(0, n + 1), np.empty(0, np.int64)
    if spec.shared:
        starts, blocks = begun(prompt, spec.block, spec.shared)
    return open_loop(arrival, prompt=prompt, output=output, session=same(-1, n), tier=same(0, n), starts=starts,
                     blocks=blocks, block_tokens=spec.block, source=source)  # fmt: skip


def arrivals(rng: np.random.Generator, count: int, rate_per_s: float, cv: float = 1.0) -> Array:
    """(count,) s: arrivals of a renewal process with Gamma times between them, from the first at 0."""
    shape, found = cv**-2, column(count)
    first = last = 0.0
    for part in parts(count, found):
        gaps = rng.gamma(shape, 1 / shape, part.stop - part.start)
        first = first or float(gaps[0])
        gaps[0] += last
        times = np.cumsum(gaps)
        found[part], last = (times - first) / rate_per_s, float(times[-1])
    return found


def started(trace: Trace, sessions_per_s: float, seed: int = 0, cv: float = 1.0) -> Trace:
    """The trace with its sessions begun at random instead of as recorded: for runs whose own times all start at 0.

    Requests of no session keep their times.
    """
    session = trace.requests.session
    first = np.full(int(session.max(initial=-1)) + 1, np.inf)
    own = session >= 0
    np.minimum.at(first, session[own], trace.requests.arrival_s[own])
    drawn = arrivals(np.random.default_rng(seed), len(first), sessions_per_s, cv)
    shift = np.where(own, (drawn - first)[session], 0.0) if len(first) else np.zeros(len(session))
    moved = {**vars(trace.requests), "arrival_s": trace.requests.arrival_s + shift}
    return replace(trace, requests=Requests(**moved), end_s=trace.end_s + shift)


def _session(spec: Synthetic, agents: Agents, rng: np.random.Generator, session: int, start_s: float, calls: Calls,
             chains: Iterator[int]) -> None:  # fmt: skip
    """Append the calls of one session."""
    count = int(agents.calls.draw(rng, 1)[0])
    first = int(spec.prompt.draw(rng, 1)[0]) + spec.shared
    output, appended = spec.output.draw(rng, count), agents.appended.draw(rng, count)
    ends = rng.random(count) < 1 / agents.turn
    ends[-1] = True
    tool = agents.tool.draw(rng, count)
    pause = np.where(ends, agents.human.draw(rng, count), tool) if agents.human else tool
    begun = (rng.random(count) < (agents.sub_agents.share if agents.sub_agents else 0.0)) & ~ends
    chain = next(chains)
    prompt, cached, after, gap_s = first, 0, -1, 0.0
    for k in range(count):
        step = "end_turn" if ends[k] else "tool_use"
        calls.append(Call(prompt, int(output[k]), cached, step, session, chain, 0, after, gap_s, 0.0, start_s))
        if agents.sub_agents and begun[k]:
            _below(agents.sub_agents, agents, spec, rng, calls, session, next(chains))
        after, gap_s = (len(calls) - 1, float(pause[k]))
        grown = prompt + int(output[k] + appended[k])
        over = agents.context_max is not None and grown > agents.context_max
        anew = min(first + int(appended[k]), max(first, agents.context_max or 0))
        cached, prompt = (first, anew) if over else (prompt, grown)


def _below(sub: SubAgents, agents: Agents, spec: Synthetic, rng: np.random.Generator, calls: Calls, session: int,
           chain: int) -> None:  # fmt: skip
    """Append the calls of one sub-agent, which starts when the last call ends."""
    count = int(sub.calls.draw(rng, 1)[0])
    output, appended, pause = spec.output.draw(rng, count), agents.appended.draw(rng, count), agents.tool.draw(rng, count)
    prompt, cached, gap_s = int(sub.prompt.draw(rng, 1)[0]), 0, 0.0
    for k in range(count):
        step = "end_turn" if k == count - 1 else "tool_use"
        calls.append(Call(prompt, int(output[k]), cached, step, session, chain, 1, len(calls) - 1, gap_s))
        cached, prompt, gap_s = prompt, prompt + int(output[k] + appended[k]), float(pause[k])
