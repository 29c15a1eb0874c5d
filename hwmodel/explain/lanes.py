"""How busy pools and links are, as formulas."""

from __future__ import annotations

import math

from hwmodel.explain.sheet import Sheet, total
from hwmodel.explain.totals import Formula
from hwmodel.graph import Op, OpGraph
from hwmodel.kernels import columns as c
from hwmodel.result import BOUNDS, LinkRow, PoolRow, Result
from hwmodel.stages import executions, stage_counts

ROUNDING = 1e-9
"""A share of the step below which a pool waits by the rounding of sums alone."""


def pool_name(row: PoolRow) -> str:
    """As ``--op`` takes it."""
    return f"pool:{row.pool}"


def link_name(row: LinkRow) -> str:
    """As ``--op`` takes it; inside a pool both ends are the same."""
    return f"link:{row.source}>{row.target}"


def pool_formula(result: Result, row: PoolRow, sheet: Sheet) -> Formula:
    """Share of the step in which one chip of a pool, the busiest, works."""
    parts = [
        sheet.add(key, row.bound_s[key], "s", f"what bounds the ops of one chip, the busiest: {key}; host work is overhead")
        for key in BOUNDS if row.bound_s[key] > 0
    ]  # fmt: skip
    step = sheet.add("step", result.step.time_s, "s", "hwmodel explain --op step")
    idle = row.bound_s["idle"] / result.step.time_s
    note = f"idle for {idle:.3g} of the step" if idle > ROUNDING else "never idle"
    return f"busy = min(1, ({total(parts)}) / {step})", row.busy_fraction, "", note


def _crossings(graph: OpGraph, op: Op) -> float:
    return graph.segment(op.segment).count * op.repeats.value({})


def link_formula(result: Result, row: LinkRow, sheet: Sheet) -> Formula:
    """Time that bytes take on a way: messages times bytes over bandwidth, latencies apart."""
    placed, parts = result.placed, result.step.micro_batches
    inside = row.source == row.target
    best, found = Sheet(), "0"
    for counts in stage_counts(placed.graph):
        own, terms, sent = Sheet(), list[str](), 0.0
        for op, priced in zip(placed.table.ops, placed.priced, strict=True):
            crosses = op.kind in ("transfer", "load")
            mine = op.pool == row.source and not crosses if inside else crosses and op.way == f"{row.source}>{row.target}"
            if not mine or priced[c.WIRE] <= 0:
                continue
            times = parts * (executions(placed.graph, op, counts) if inside else _crossings(placed.graph, op))
            sent += times * float(priced[c.WIRE])
            said = f"op {op.name}: {priced[c.WIRE_BYTES]:,.6g} B over the bandwidth of the way: hwmodel explain --op {op.name}"
            one = own.add(f"{op.name} wire", float(priced[c.WIRE]), "s", said)
            terms.append(one if times == 1 else f"{times:.16g} * {one}")
        if math.isclose(sent, row.time_s, rel_tol=1e-9):
            best, found = own, total(terms)
            break
    sheet.replace(best)
    note = "of one chip, the busiest" if inside else "all bytes of the way, one after the other"
    return f"time = {found}", row.time_s, "s", f"{note}; latencies and launches apart"
