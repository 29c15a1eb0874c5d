"""Runs of coding agents, call by call, with what an unlimited cache of the run had of each prompt (WEKA's kv-cache-tester)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hwmodel.serve.readers.closed import Call, Calls, closed_loop
from hwmodel.serve.readers.lines import Faults, csv_rows, real, whole
from hwmodel.serve.readers.table import Table, grouped, picked
from hwmodel.serve.selection import kept, median
from hwmodel.serve.trace import Trace

NAME = "agentic"
SAYS = "agent runs: trace_id, idx, depth, t_s, in_tokens, out_tokens, cached_prefix_tokens, stop, api_time_s, think_time_s"
FORM = "csv"
COLUMNS = (
    "trace_id",
    "idx",
    "depth",
    "t_s",
    "in_tokens",
    "out_tokens",
    "cached_prefix_tokens",
    "stop",
    "api_time_s",
    "think_time_s",
)
NEEDS = (frozenset(COLUMNS),)
BLOCK_TOKENS = 64
WHOLE = ("idx", "depth", "prompt", "output", "cached", "stop")
REAL = ("t_s", "api_s", "think_s")


@dataclass
class _Row:
    """One row: seconds and tokens, NaN for a time that is not stated."""

    idx: int
    depth: int
    t_s: float
    call: Call
    api_s: float
    think_s: float


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file as closed loops: a call starts when the one it waits for has ended and its pause is over.

    Every run begins at 0. A run's calls are in the order of the file. A call waits for the previous one of its own agent. A
    sub-agent (calls of a greater depth, `idx` anew from 0) starts when the agent above it has answered; `t_s` counts from
    there. The agent's next call waits for the longest of the sub-agents started before it whose recorded time fits into the
    agent's pause, for the rest of the pause; one that does not fit ran beside the agent.

    Where a call's duration is not stated, the think time of the next one counts from the last call whose duration is (seen in
    the file: it grows from row to row as `t_s` does). There the starts hold, and the unstated duration is the median of the
    stated ones, or the whole time between the starts if that is shorter. A call without output counts as one token.
    """
    faults, rows = Faults(path), Table(run="q", **dict.fromkeys(WHOLE, "q"), **dict.fromkeys(REAL, "d"))
    runs: dict[str, int] = {}
    stops: dict[str, int] = {}
    for line, (name, idx, depth, at, prompt, output, cached, stop, api, think) in csv_rows(path, COLUMNS, faults):
        with faults.at(line):
            tokens = whole(prompt, "in_tokens")
            had = whole(cached, "cached_prefix_tokens", 0)
            if had > tokens:
                raise ValueError(f"cached_prefix_tokens: {had} is more than the {tokens} of the prompt")
            made, number, deep = max(1, whole(output, "out_tokens", 0)), whole(idx, "idx", 0), whole(depth, "depth", 0)
            times = real(at, "t_s"), _time(api, "api_time_s"), _time(think, "think_time_s")
            rows.add(runs.setdefault(name, len(runs)), number, deep, tokens, made, had,
                     stops.setdefault(stop.strip(), len(stops)), *times)  # fmt: skip
    faults.stop(len(runs))
    table = rows.columns()
    stated = kept(len(rows), lambda part: table["api_s"][part], table["api_s"])
    usual = median(stated) if len(stated) else 0.0
    calls, chain, names = Calls(), 0, list(stops)
    for session, which in enumerate(grouped(table["run"])):
        run = [_Row(number, deep, at, Call(tokens, made, had, names[stop]), api, think)
               for number, deep, tokens, made, had, stop, at, api, think in picked(table, which)]  # fmt: skip
        chain = _linked(run, session, chain, len(calls), usual)
        for row in run:
            calls.append(row.call)
    return closed_loop(calls, BLOCK_TOKENS, f"{path.name} (agent runs)", ("agent", "sub-agent"))


def _time(text: str, name: str) -> float:
    return real(text, name) if text.strip() else math.nan


@dataclass
class _Agent:
    """An agent at work: its calls, and the sub-agents that it started since the last of them; by place in the run."""

    calls: list[int]
    below: list[_Agent]


def _linked(rows: list[_Row], session: int, chain: int, offset: int, usual_s: float) -> int:
    """Set what every call of a run waits for, its gap and its duration; the next free number of a chain comes back."""
    working: list[_Agent] = []  # by depth
    for i, row in enumerate(rows):
        depth = min(row.depth, len(working))
        call = row.call
        call.session, call.depth = session, row.depth
        if depth == len(working) or (depth > 0 and row.idx <= rows[working[depth].calls[-1]].idx):
            del working[depth:]
            working.append(_Agent([i], []))
            call.chain, chain = chain, chain + 1
            if depth:
                working[depth - 1].below.append(working[depth])
                call.after, call.gap_s = offset + working[depth - 1].calls[-1], _zero(row.think_s)
            continue
        agent = working[depth]
        last = agent.calls[-1]
        _timed(rows[last], row, usual_s)
        call.chain, call.after, call.gap_s = rows[last].call.chain, offset + last, row.think_s
        _wait_for(agent.below, rows, call, offset)
        agent.calls.append(i)
        agent.below = []
        del working[depth + 1 :]
    for row in rows:
        row.call.took_s = _zero(row.api_s)
    return chain


def _timed(last: _Row, row: _Row, usual_s: float) -> None:
    """Fill in the duration of a call and the pause after it, where not stated, from the start of the agent's next call."""
    between = row.t_s - last.t_s
    if math.isnan(last.api_s):
        last.api_s = min(max(0.0, between), usual_s)
        row.think_s = math.nan
    if math.isnan(row.think_s):
        row.think_s = max(0.0, between - last.api_s)


def _wait_for(below: list[_Agent], rows: list[_Row], call: Call, offset: int) -> None:
    """Let a call wait for the longest sub-agent whose time fits into its pause."""
    fitting: list[tuple[float, int]] = []
    for agent in below:
        first, last = rows[agent.calls[0]], rows[agent.calls[-1]]
        span = first.call.gap_s + last.t_s - first.t_s + _zero(last.api_s)
        if 0 <= span <= call.gap_s:
            fitting.append((span, agent.calls[-1]))
    if fitting:
        span, last_call = max(fitting)
        call.after, call.gap_s = offset + last_call, call.gap_s - span


def _zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
