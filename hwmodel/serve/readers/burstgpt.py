"""BurstGPT traces: time, session, elapsed time, model and tokens of calls to a hosted model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import Faults, csv_rows, real, whole
from hwmodel.serve.trace import Trace

NAME = "burstgpt"
SAYS = "BurstGPT: Timestamp (s), Request tokens, Response tokens, and perhaps Session ID, Log Type"
FORM = "csv"
NEEDS = (frozenset({"Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens"}),)


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file: open loop, without prefixes; classes of service are the log types.

    A response of 0 tokens is a call that failed (says the publisher, https://github.com/HPMLL/BurstGPT); such rows are left out
    and counted in the source.
    """
    faults, rows = Faults(path), Gathered()
    sessions: dict[str, int] = {}
    failed = 0
    asked = ("Timestamp", "Request tokens", "Response tokens")
    for line, (stamp, prompt, output, session, kind) in csv_rows(path, asked, faults, ("Session ID", "Log Type")):
        with faults.at(line):
            arrival, made = real(stamp, "Timestamp"), whole(output, "Response tokens", 0)
            if not made:
                failed += 1
                continue
            own = sessions.setdefault(session, len(sessions)) if session.strip() else -1
            rows.add(arrival, whole(prompt, "Request tokens"), made, own, tier=kind.strip() or "all")
    trace = rows.made(path, faults, "BurstGPT")
    if not failed:
        return trace
    source = f"{trace.requests.source}, {failed} failed calls left out"
    return replace(trace, requests=replace(trace.requests, source=source))
