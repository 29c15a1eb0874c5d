"""TraceLab: rounds of coding agents, one JSON object each, with the provider's cache hits and the times of every event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwmodel.serve.readers.azure import DAY_S, clock_ns
from hwmodel.serve.readers.closed import Call, Calls, closed_loop
from hwmodel.serve.readers.lines import Faults, field, json_rows, whole
from hwmodel.serve.readers.table import Table, grouped, picked
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import shortened

NAME = "tracelab"
SAYS = "TraceLab: session_id, round_index, input_tokens_total, prefix_tokens, output_tokens, timing_events"
FORM = "jsonl"
NEEDS = (frozenset({"session_id", "round_index", "input_tokens_total", "prefix_tokens", "output_tokens", "timing_events"}),)
BLOCK_TOKENS = 16
_INPUTS = ("user_message", "tool_result")
COLUMNS = ("session", "line", "index", "start_ns", "end_ns", "prompt", "output", "cached", "called")
"""Line, index, start and end in ns, and the call."""


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file as closed loops, one a session; see https://tracelab.cs.washington.edu .

    A round starts at the last of its inputs (the user's message, the tools' results) and ends at the last of its outputs. It
    waits for the round before it; the gap is the tool's or the user's time. Sessions start when they did, from the first of
    all. What the first round of a session found in the provider's cache came from outside the trace and is no prefix here, nor
    is what it had of an answer: only prompts have blocks.
    """
    faults, rounds = Faults(path), Table(**dict.fromkeys(COLUMNS, "q"))
    sessions: dict[str, int] = {}
    zero = begin = 0  # ns since the year 1 are too many for 64 bits: they count from the first round of the file
    for line, row in json_rows(path, faults):
        with faults.at(line):
            name, (index, start, end, *tokens) = str(field(row, "session_id")), _round(row)
            zero = zero or start
            begin = min(begin or start, start)
            if max(abs(start - zero), abs(end - zero)) >= 2**63:
                raise ValueError("timing_events: more than 292 years from the first round of the file")
            rounds.add(sessions.setdefault(name, len(sessions)), line, index, start - zero, end - zero, *tokens)
    faults.stop(len(sessions))
    made, calls = rounds.columns(), Calls()
    for number, which in enumerate(grouped(made["session"])):
        last_end: int | None = None
        last = -1
        for line, index, start, end, prompt, output, cached, called in sorted(picked(made, which), key=lambda found: found[1]):
            call = Call(prompt, output, cached, "tool_use" if called else "end_turn", number, number)
            if last_end is None:
                call.arrival_s = (start + zero - begin) / 1e9
            else:
                call.after, call.gap_s = len(calls) - 1, max(0, start - last_end) / 1e9
            call.took_s, last_end = max(0, end - start) / 1e9, end
            calls.append(call)
            if index == last:
                faults.at(line).add(f"round_index: {index} of this session is there twice")
            last = index
    faults.stop()
    return closed_loop(calls, BLOCK_TOKENS, f"{path.name} (TraceLab)", midnight_s=math.fmod(begin / 1e9, DAY_S))


def _round(row: dict[str, Any]) -> tuple[int, ...]:
    """Index, start and end (ns), tokens of prompt, answer and prefix, and whether it called a tool."""
    prompt = whole(field(row, "input_tokens_total"), "input_tokens_total")
    cached = whole(field(row, "prefix_tokens"), "prefix_tokens", 0)
    if cached > prompt:
        raise ValueError(f"prefix_tokens: {cached} is more than the {prompt} of input_tokens_total")
    output = max(1, whole(field(row, "output_tokens"), "output_tokens", 0))
    inputs: list[int] = []
    outputs: list[int] = []
    events = field(row, "timing_events")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise ValueError(f"timing_events: expected a list of objects, got {shortened(str(events), 40)}")
    for event in events:
        stamp = clock_ns(str(field(event, "timestamp")))
        (inputs if field(event, "event_type") in _INPUTS else outputs).append(stamp)
    if not inputs and not outputs:
        raise ValueError("timing_events: expected at least one event, for the time of the round")
    start = max(inputs or outputs[:1])
    called = any(event["event_type"] == "tool_call" for event in events)
    return whole(field(row, "round_index"), "round_index", 0), start, max([*outputs, start]), prompt, output, cached, called
