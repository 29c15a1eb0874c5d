"""What is set side by side: a row per answer, and for every two of a phase who is ahead and whether beyond their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hwmodel.sweep.names import BATCH, CHIP, COST, HIGH, LOW, POINT, TIME, USER, inputs
from hwmodel.sweep.read import Points

COLUMNS = (
    "scenario", "feasible", "phase", "chips", "batch", "step_s", "step_low_s", "step_high_s", "tokens_per_s",
    "tokens_per_s_per_user", "tokens_per_s_per_chip", "usd_per_million_tokens", "usd_low", "usd_high", "joules_per_token",
    "bound", "reasons",
)  # fmt: skip
NAMED = {"batch": BATCH, "step_s": TIME, "step_low_s": LOW, "step_high_s": HIGH}
"""Columns that a sweep's file calls otherwise."""
MEASURES = {USER: True, CHIP: True, COST: False}
"""What one may be ahead in, and whether more is better."""


def of_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The row of an answer as ``hwmodel run --json`` prints it."""
    step, cost = answer["step"], answer.get("cost") or {}
    usd = cost.get("usd_per_million_output_tokens")
    values = (
        answer["scenario"], answer["feasible"], step["phase"], sum(pool["count"] for pool in answer["asked"]["pools"]),
        answer["asked"]["workload"].get("batch", 1), step["time_s"],
        step["time_low_s"], step["time_high_s"], step["tokens_per_s"],
        step["tokens_per_s_per_user"], step[CHIP],
        cost.get("usd_per_million_input_tokens") if usd is None else usd,
        cost.get("usd_per_million_low"), cost.get("usd_per_million_high"), cost.get("joules_per_token"), step["bound"],
        list(answer["reasons"]),
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def of_points(points: Points, name: str) -> dict[str, Any]:
    """The row of a file of points: of the one with most tokens/s per chip; None where the file has no such column.

    Raises
    ------
    InputError
        For a file without tokens/s per chip, or without a number of them.
    """
    known = {column: NAMED.get(column, column) for column in COLUMNS}
    points.load(*known.values(), "tpot_s")
    best = _best(points)
    row: dict[str, Any] = {column: points.plain(own, best) if own in points.names else None for column, own in known.items()}
    phase = "mixed" if {"tpot_s", "ttft_s"} <= set(points.names) else "decode" if "tpot_s" in points.names else "prefill"
    return row | {"scenario": name, "feasible": True, "phase": phase, "reasons": []}


def place(points: Points) -> dict[str, Any]:
    """Which point the row of a file is, and the values that the sweep's axes have there; None where one does not apply."""
    names = inputs(points.names)
    points.load(*names)
    best = _best(points)
    return {POINT: int(points.number(POINT)[best])} | {name: points.plain(name, best) for name in names}


def _best(points: Points) -> int:
    return int(np.nanargmax(points.known(CHIP)))


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every two that run and have the same phase, by measure: who is ahead, by which factor, and its range.

    The low end is that of the worse end of the one ahead against the better end of the other: above 1 the ranges lie apart.
    Inputs that both share move both: there the range is too wide. Both at their own batch.
    """
    found = []
    for one, other in combinations([row for row in rows if row["feasible"]], 2):
        if one["phase"] != other["phase"]:
            continue
        for measure, more in MEASURES.items():
            if not one[measure] or not other[measure]:
                continue
            good = [score if more else 1 / score for score in (one[measure], other[measure])]
            first, second = (one, other) if good[0] >= good[1] else (other, one)
            ratio = max(good) / min(good)
            (first_low, first_high), (second_low, second_high) = (_range(row) for row in (first, second))
            low, high = ratio * first_low / second_high, ratio * first_high / second_low
            found.append({
                "of": measure, "ahead": first["scenario"], "behind": second["scenario"], "ratio": ratio,
                "low": low, "high": high, "beyond_ranges": low > 1,
            })  # fmt: skip
    return found


def _range(row: Mapping[str, Any]) -> tuple[float, float]:
    """What the range of the step leaves of a rate or of what a dollar buys, and makes of it."""
    step = row["step_s"] or 0.0
    return step / (row["step_high_s"] or step or 1.0) if step else 1.0, step / (row["step_low_s"] or step) if step else 1.0
