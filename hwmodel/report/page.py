"""The plain data of a page: an answer, and what can be drawn or explained of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwmodel.compare.tradeoff import tradeoff
from hwmodel.explain import explain_all
from hwmodel.figures import ceilings, dots, lanes_of, window
from hwmodel.report.document import BROKEN, broken
from hwmodel.result import Result
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError, Problem

Data = Mapping[str, Any]
NEEDED = ("scenario", "feasible", "reasons", "step", "memory", "pools", "links", "layers", "ops", "version")
MOST_EVENTS = 4000


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    answer: Data
    """As ``hwmodel run --json`` prints it."""
    explanations: tuple[Data, ...]
    """As ``hwmodel explain --json`` prints them; none of a saved answer."""
    rooflines: tuple[Data, ...]
    timeline: Data | None
    """None of a saved answer, which does not hold the schedule."""
    file: str = ""
    """Of a saved answer."""
    tradeoff: Data | None = None
    """Curves of plans and where they cross; None of a saved answer, no curves and a reason where there is nothing to draw."""
    unexplained: str = ""
    """Why a saved answer has no formulas."""
    commands: tuple[str, ...] = ()
    """That give them."""

    @property
    def explained(self) -> frozenset[str]:
        """Names of what is explained."""
        return frozenset(str(each["of"]) for each in self.explanations)


def page_of(result: Result, against: Sequence[Scenario] = ()) -> Page:
    """Everything about a result, its front beside those of other scenarios.

    Raises
    ------
    InputError
        When a scenario it is set against is a step of another phase, or the step is mixed or a floor.
    """
    explained = tuple(each.to_dict() for each in explain_all(result, ops=True))
    return Page(result.to_dict(), explained, tuple(_rooflines(result)), _timeline(result), tradeoff=_tradeoff(result, against))


def _tradeoff(result: Result, against: Sequence[Scenario]) -> Data:
    why = ""
    if result.placed.ideal:
        why = "A floor has no other plans: nothing but bytes and arithmetic counts."
    elif result.step.phase == "mixed":
        why = "A mixed step is not one of many batches: its prompts and its tokens grow apart."
    if why and against:
        raise InputError(f"--against compares decode or prefill steps; {why[0].lower()}{why[1:]}")
    return {"curves": [], "crossovers": [], "reason": why} if why else tradeoff(result.placed, against).to_dict()


def page_from(path: str | Path) -> Page:
    """A page of an answer that ``hwmodel run --json`` wrote.

    Raises
    ------
    InputError
        When the file is no such answer.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(Problem(f"is no JSON: {error}", file=str(path))) from None
    missing = [key for key in NEEDED if not isinstance(found, dict) or key not in found]
    if missing:
        message = f"is no answer of 'hwmodel run --json': it has no {', '.join(missing)}"
        raise InputError(Problem(message, file=str(path)))
    try:
        return Page(found, (), tuple(_from_rows(found)), None, str(path))
    except BROKEN as error:
        raise broken(error, str(path)) from None


def _rooflines(result: Result) -> list[Data]:
    found: list[Data] = []
    for pool in result.placed.scenario.cluster.pools:
        drawn = [dot for dot in dots(result, pool.name) if math.isfinite(dot.intensity)]
        if not drawn:
            continue
        tiers, peaks = ceilings(result, pool.name)
        rows = [
            {"op": dot.op.name, "intensity": dot.intensity, "flops_per_s": dot.flops_per_s, "share": dot.share,
             "bound": dot.bound, "dtype": dot.dtype}
            for dot in drawn
        ]  # fmt: skip
        found.append({"pool": pool.name, "chip": pool.chip.name, "tiers": tiers, "peaks": peaks, "dots": rows})
    return found


def _from_rows(answer: Data) -> list[Data]:
    """Rooflines of a saved answer: intensity over all bytes of an op."""
    found: list[Data] = []
    for pool in answer.get("asked", {}).get("pools", ()):
        rows = [
            {"op": str(op["op"]), "intensity": op["flops"] / op["bytes"], "flops_per_s": op["flops"] / op["time_s"],
             "share": op["time_s"] * op["count"] / answer["step"]["time_s"], "bound": str(op["bound"]), "dtype": ""}
            for op in answer["ops"]
            if op["pool"] == pool["pool"] and op["flops"] > 0 and op["bytes"] > 0 and op["time_s"] > 0
        ]  # fmt: skip
        if rows:
            tiers, peaks = dict(pool["bandwidth_bytes_per_s"]), dict(pool["peaks_flops_per_s"])
            found.append({"pool": pool["pool"], "chip": pool["chip"], "tiers": tiers, "peaks": peaks, "dots": rows})
    return found


def _timeline(result: Result) -> Data:
    start, end, events = window(result)
    used = {(event.lane, event.stage) for event in events}
    lanes = [pair for pair in lanes_of(result) if pair in used][:24]
    place = {pair: index for index, pair in enumerate(lanes)}
    stages = result.placed.timeline.program.stages
    inside = [event for event in events if (event.lane, event.stage) in place]
    return {
        "start_s": start,
        "end_s": end,
        "lanes": [f"{lane}, stage {stage}" if stages > 1 else lane for lane, stage in lanes],
        "left_out": max(0, len(inside) - MOST_EVENTS),
        "events": [
            {"lane": place[event.lane, event.stage], "op": event.op.name, "role": event.op.role, "part": event.op.part,
             "layer": event.layer, "batch": event.batch, "start_s": max(start, event.start_s),
             "end_s": min(end, event.finish_s)}
            for event in inside[:MOST_EVENTS]
        ],
    }  # fmt: skip
