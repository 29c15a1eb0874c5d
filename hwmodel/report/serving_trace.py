"""A window of a simulation as a Chrome trace: what each request waits for and does, by instance.

One process per instance, one thread per request at a time, complete events in microseconds (Trace Event Format, Google, 2016).
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.engine import Run
from hwmodel.serve.metrics import done_in
from hwmodel.serve.scratch import parts

REQUESTS = 500
"""In a window that nobody chose: around the moment with most requests, of as many requests on average."""


def window(run: Run) -> tuple[float, float]:
    """From and to (s), around the moment with the most requests inside."""
    first, last, count = np.inf, -np.inf, 0
    for part in parts(len(run), run.when, run.req):
        when, done = run.when[part], done_in(run, part)
        first = min(first, float(when[done, c.ARRIVAL].min(initial=np.inf)))
        last, count = max(last, float(when[done, c.FINISH].max(initial=-np.inf))), count + int(done.sum())
    if not count:
        return 0.0, 0.0
    span = last - first
    size = span * min(1.0, REQUESTS / count)
    at = min(max(float(run.total[c.FULLEST_S]) - size / 2, first), first + span - size)
    return at, at + size


def serving_trace(run: Run, start_s: float, end_s: float) -> dict[str, Any]:
    """Requests that are inside between two times, each on a lane of its instance; waiting, reading, prefill, moving, decode."""
    when, found = run.when, []
    for part in parts(len(run), when, run.req):
        there = done_in(run, part) & (when[part, c.FINISH] >= start_s) & (when[part, c.ARRIVAL] <= end_s)
        found.append(part.start + np.flatnonzero(there))
    inside = np.concatenate(found)
    inside = inside[np.argsort(when[inside, c.ARRIVAL], kind="stable")]
    lanes: dict[int, tuple[list[tuple[float, int]], list[int]]] = {}
    events: list[dict[str, Any]] = []
    for r in inside.tolist():
        busy, free = lanes.setdefault(int(run.req[r, c.AT]), ([], []))
        while busy and busy[0][0] <= when[r, c.ARRIVAL]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy) + 1
        heapq.heappush(busy, (float(when[r, c.FINISH]), lane))
        events += _spans(run, r, lane)
    names = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": k + 1, "tid": 0, "args": {"name": _name(run, k)}}
        for k in sorted(lanes)
    ]
    return {
        "traceEvents": names + sorted(events, key=lambda event: (event["ts"], event["pid"], event["tid"])),
        "displayTimeUnit": "ms",
        "otherData": {"from_s": start_s, "to_s": end_s, "requests": len(inside), "trace": run.requests.source},
    }  # fmt: skip


def _name(run: Run, k: int) -> str:
    return f"{run.fleet.groups[int(run.group[k])].name} {k}"


def _spans(run: Run, r: int, lane: int) -> list[dict[str, Any]]:
    """The times of one request, one behind the other."""
    when = run.when[r]
    read = min(float(when[c.LOADING_S]), float(when[c.SCHEDULED] - when[c.ARRIVAL]))
    first, moved = float(when[c.FIRST]), max(0.0, float(when[c.TRANSFER_S]))
    edges = (
        ("wait", when[c.ARRIVAL], when[c.SCHEDULED] - read), ("read KV", when[c.SCHEDULED] - read, when[c.SCHEDULED]),
        ("prefill", when[c.SCHEDULED], first), ("move KV", first, first + moved), ("decode", first + moved, when[c.FINISH]),
    )  # fmt: skip
    said = {
        "request": r, "prompt": int(run.requests.prompt[r]), "output": int(run.requests.output[r]),
        "cached": max(0, int(run.req[r, c.HIT])), "read": int(run.req[r, c.LOADED]), "preempted": int(run.req[r, c.PREEMPTED]),
        "session": int(run.requests.session[r]),
    }  # fmt: skip
    return [
        {"name": name, "cat": "request", "ph": "X", "ts": round(float(begin) * 1e9) / 1000,
         "dur": (round(float(end) * 1e9) - round(float(begin) * 1e9)) / 1000, "pid": int(run.req[r, c.AT]) + 1, "tid": lane,
         "args": said}
        for name, begin, end in edges if end > begin
    ]  # fmt: skip
