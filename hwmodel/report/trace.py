"""A step as a Chrome trace, for ui.perfetto.dev and chrome://tracing.

One process per pool or way between pools, one thread per lane and pipeline stage, one complete event per op, layer and
micro-batch. The format is that of the Trace Event Format document (Google, 2016): times in microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from hwmodel import __version__
from hwmodel.kernels import columns as c
from hwmodel.result import Result, bound_of
from hwmodel.timeline import Event

LIMIT = 200_000
"""Events of the largest trace: viewers become slow beyond it."""


def chrome_trace(result: Result, limit: int = LIMIT) -> dict[str, Any]:
    """The step as trace events, sorted by time; whole layers up to `limit` events (one layer at least).

    Times are whole nanoseconds, written in microseconds, so that neighbours meet exactly.
    """
    line = result.placed.timeline
    kept, layers = _kept(line.events(), limit)
    used = {(event.lane, event.stage) for event in kept}
    threads = sorted(used, key=lambda pair: (_rank(result, pair[0]), *pair))
    processes = {name: number for number, name in enumerate(dict.fromkeys(process_of(lane) for lane, _ in threads), 1)}
    ids = {pair: (processes[process_of(pair[0])], number) for number, pair in enumerate(threads, 1)}
    index = result.placed.table.index
    facts = [_facts(result, position) for position in range(len(result.placed.table.ops))]
    places = {segment.name: segment.first >= 0 for segment in result.placed.graph.segments}
    events = [
        _event(event, ids[event.lane, event.stage], facts[index[event.op.name]], inside=places[event.op.segment])
        for event in kept
    ]
    total = len(line.program.segment)
    return {
        "traceEvents": _names(result, processes, ids) + sorted(events, key=lambda event: (event["ts"], event["tid"])),
        "displayTimeUnit": "ns",
        "otherData": {
            "scenario": result.scenario,
            "title": result.placed.scenario.title,
            "model": result.placed.scenario.model.name,
            "phase": result.step.phase,
            "step_time_s": result.step.time_s,
            "makespan_s": line.makespan_s,
            "micro_batches": result.step.micro_batches,
            "layers": f"all {total}" if layers == total else f"first {layers} of {total}, for at most {limit:,} events",
            "version": __version__,
        },
    }


def write(result: Result, path: str | Path) -> None:
    """Write the trace as a JSON file."""
    Path(path).write_text(json.dumps(chrome_trace(result), separators=(",", ":")) + "\n", encoding="utf-8")


def process_of(lane: str) -> str:
    """Name the pool or way that a lane belongs to."""
    return lane.removesuffix(".link")


def _kept(events: Iterator[Event], limit: int) -> tuple[list[Event], int]:
    """Events of the first whole layers, and how many layers those are (embedding and head count as one each)."""
    kept: list[Event] = []
    layers = 0
    for _, group in groupby(events, key=lambda event: event.layer):
        layer = list(group)
        if kept and len(kept) + len(layer) > limit:
            break
        kept += layer
        layers += 1
    return kept, layers


def _rank(result: Result, lane: str) -> int:
    """Pools in the order of the scenario, then the ways between them."""
    pools = [pool.name for pool in result.placed.scenario.cluster.pools]
    name = process_of(lane)
    return pools.index(name) if name in pools else len(pools)


def _facts(result: Result, position: int) -> dict[str, Any]:
    """What an event says about its op: bound, work and bytes on one chip, all executions in the layer."""
    op, priced = result.placed.table.ops[position], result.placed.priced[position]
    times = op.repeats.value({})
    moved = priced[c.WEIGHT_BYTES] + priced[c.KV_BYTES] + priced[c.ACTIVATION_BYTES]
    return {
        "role": op.role,
        "bound": bound_of(op, priced, result.placed.scenario.cluster),
        "flops": float(priced[c.FLOPS]) * times,
        "bytes": float(moved) * times,
        "wire_bytes": float(priced[c.WIRE_BYTES]) * times,
    }


def _event(event: Event, ids: tuple[int, int], facts: dict[str, Any], *, inside: bool) -> dict[str, Any]:
    start, finish = round(event.start_s * 1e9), round(event.finish_s * 1e9)
    where: int | str = event.layer - 1 if inside else event.op.segment  # the embedding comes before layer 0
    return {
        "name": event.op.name.partition(".")[2] or event.op.name,
        "cat": event.op.part,
        "ph": "X",
        "ts": start / 1000,
        "dur": (finish - start) / 1000,
        "pid": ids[0],
        "tid": ids[1],
        "args": {"layer": where, "micro_batch": event.batch, **facts},
    }


def _names(result: Result, processes: dict[str, int], ids: dict[tuple[str, int], tuple[int, int]]) -> list[dict[str, Any]]:
    """Metadata events: what processes and threads are called and how they are ordered."""
    cluster, stages = result.placed.scenario.cluster, result.placed.timeline.program.stages
    said = {pool.name: f"{pool.name}: {pool.count:,} x {pool.chip.name}" for pool in cluster.pools}
    found = []
    for name, pid in processes.items():
        found.append(_meta("process_name", pid, 0, {"name": said.get(name, name)}))
        found.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
    for (lane, stage), (pid, tid) in ids.items():
        what = "links" if lane.endswith(".link") else "chip" if lane in said else "way"
        label = f"{what}, stage {stage}" if stages > 1 else what
        found.append(_meta("thread_name", pid, tid, {"name": label}))
        found.append(_meta("thread_sort_index", pid, tid, {"sort_index": tid}))
    return found


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}
