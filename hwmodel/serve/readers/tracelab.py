"""TraceLab: rounds of coding agents, one JSON object each, with the provider's cache hits and the times of every event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwmodel.serve.readers.azure import DAY_S, clock_ns
from hwmodel.serve.readers.closed import Call, closed_loop
from hwmodel.serve.readers.lines import Faults, field, json_rows, whole
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import shortened

NAME = "tracelab"
SAYS = "TraceLab: session_id, round_index, input_tokens_total, prefix_tokens, output_tokens, timing_events"
FORM = "jsonl"
NEEDS = (frozenset({"session_id", "round_index", "input_tokens_total", "prefix_tokens", "output_tokens", "timing_events"}),)
BLOCK_TOKENS = 16
_INPUTS = ("user_message", "tool_result")
_Round = tuple[int, int, int, int, Call]
"""Line, index, start and end in ns, and the call."""


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file as closed loops, one a session; see https://tracelab.cs.washington.edu .

    A round starts at the last of its inputs (the user's message, the tools' results) and ends at the last of its outputs. It
    waits for the round before it; the gap is the tool's or the user's time. Sessions start when they did, from the first of
    all. What the first round of a session found in the provider's cache came from outside the trace and is no prefix here, nor
    is what it had of an answer: only prompts have blocks.
    """
    faults = Faults(path)
    sessions: dict[str, list[_Round]] = {}
    for line, row in json_rows(path, faults):
        with faults.at(line):
            sessions.setdefault(str(field(row, "session_id")), []).append(_round(line, row))
    faults.stop(len(sessions))
    begin = min(start for rounds in sessions.values() for _, _, start, _, _ in rounds)
    calls: list[Call] = []
    for number, rounds in enumerate(sessions.values()):
        rounds.sort(key=lambda found: found[1])
        end_ns = last = -1
        for line, index, start, end, call in rounds:
            call.session = call.chain = number
            if end_ns >= 0:
                call.after, call.gap_s = len(calls) - 1, max(0, start - end_ns) / 1e9
            else:
                call.arrival_s = (start - begin) / 1e9
            call.took_s, end_ns = max(0, end - start) / 1e9, end
            calls.append(call)
            if index == last:
                faults.at(line).add(f"round_index: {index} of this session is there twice")
            last = index
    faults.stop()
    return closed_loop(calls, BLOCK_TOKENS, f"{path.name} (TraceLab)", midnight_s=math.fmod(begin / 1e9, DAY_S))


def _round(line: int, row: dict[str, Any]) -> _Round:
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
    call = Call(prompt, output, cached, "tool_use" if called else "end_turn")
    return line, whole(field(row, "round_index"), "round_index", 0), start, max([*outputs, start]), call
