"""Single published figures of whole systems against the model: each row of published.csv as a scenario, run as a user would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.published_rows import Note, Question, Row, question, read_notes, read_published
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import scenario_from
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document

TABLE = "published"
LAYER = "attention_layer_us"
"""The one metric that is of a layer and not of a whole model."""
FAR = 0.4
"""Error from which a figure is explained in a sentence."""
NODE = 8
"""Chips of a node, where a figure is per node."""


@dataclass(frozen=True)
class Figure:
    """One published figure and its prediction, both in the row's unit."""

    system: str
    model: str
    precision: str
    phase: str
    metric: str
    measured: float
    predicted: float
    note: str
    """Why it is missed, where it is missed by more than FAR; else what the row says."""
    chip: str
    layout: str
    context: int
    """Tokens that a sequence attends to, or of a prompt."""
    calibrated: str
    """The stack whose calibration was used; no where the chip's stated efficiencies were."""
    source: str
    reasons: tuple[str, ...] = ()
    """Why the plan would not run, if the model finds so."""

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the error in per cent."""
        return {**vars(self), "reasons": list(self.reasons), "error": 100 * self.error}


@dataclass(frozen=True)
class LeftOut:
    """A row that does not say enough, or something else than the model predicts."""

    system: str
    model: str
    precision: str
    phase: str
    metric: str
    reason: str


@dataclass(frozen=True)
class Published:
    """What was compared, and what could not be."""

    figures: tuple[Figure, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def median(self, what: str = "") -> float | None:
        """Median error; of ``layers`` (times of one layer), of ``systems`` (whole models), or of all. None without figures."""
        wanted = {"layers": (True,), "systems": (False,)}.get(what, (True, False))
        errors = [figure.error for figure in self.figures if (figure.metric == LAYER) in wanted]
        return float(np.median(errors)) if errors else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, errors in per cent."""
        medians = {key: self.median(key) for key in ("all", "systems", "layers")}
        return {
            "published": [figure.to_dict() for figure in self.figures],
            "published_left_out": [vars(item) for item in self.left_out],
            "published_median": {key: None if value is None else 100 * value for key, value in medians.items()},
        }


NONE = Published()
"""Nothing compared."""


def published(folder: Path, *, device: str = "", calibrated: bool = True) -> Published:
    """Compare the rows of a folder's published.csv; nothing where there is none.

    Raises
    ------
    InputError
        When the file lacks a column or a row has no figure.
    """
    path = folder / f"{TABLE}.csv"
    if not path.is_file():
        return NONE
    notes = read_notes()
    figures: list[Figure] = []
    left: list[LeftOut] = []
    for row in read_published(path):
        asked = question(row, notes, calibrated=calibrated)
        if isinstance(asked, Question):
            if device and asked.chip != device:
                continue
            try:
                figures.append(_figure(row, asked, notes))
                continue
            except InputError as error:
                asked = error.problems[0].message
        if not device:
            left.append(LeftOut(row["system"], row["model"], row["precision"], row["phase"], row["metric"], asked))
    return Published(tuple(figures), tuple(left))


def _figure(row: Row, asked: Question, notes: Sequence[Note]) -> Figure:
    found = run(scenario_from(Document("published", asked.scenario, {}, ()), row["system"]))
    measured, predicted = float(row["value"]), predicted_of(row["metric"], found)
    whole = row["metric"] != LAYER  # the chips of a layer's test need not hold the model
    note = row["note"]
    if abs(predicted / measured - 1) > FAR:
        note = next((item.why for item in notes if item.why and item.of(row)), "") or _unexplained(row, found)
    return Figure(
        row["system"], row["model"], row["precision"], row["phase"], row["metric"], measured, predicted, note, asked.chip,
        asked.layout, asked.context, asked.stack or "no", row["source"], tuple(found.reasons) if whole else (),
    )  # fmt: skip


def predicted_of(metric: str, found: Result) -> float:
    """A step in the unit of a published metric."""
    step = found.step
    if metric == LAYER:
        return 1e6 * attention_s(found)
    return {
        "tok_s_per_gpu": step.tokens_per_s_per_chip, "tok_s_per_npu": step.tokens_per_s_per_chip,
        "tok_s_per_chip": step.tokens_per_s_per_chip, "tokens_per_s_per_node": NODE * step.tokens_per_s_per_chip,
        "tok_s_per_user": step.tokens_per_s_per_user, "tok_s": step.tokens_per_s,
        "tpot_ms": 1e3 * step.time_s, "ms_per_token": 1e3 * step.time_s,
    }[metric]  # fmt: skip


def attention_s(found: Result) -> float:
    """Seconds of the attention part of the layer that the model has most of, projections and norm included."""
    graph, table = found.placed.graph, found.placed.table
    most = max((part for part in graph.segments if "attention" in part.kind or "mla" in part.kind), key=lambda part: part.count)
    times = zip(table.ops, found.placed.priced[:, c.TIME], strict=True)
    return float(sum(time * op.repeats.value({}) for op, time in times if (op.segment, op.part) == (most.name, "attention")))


def _unexplained(row: Row, found: Result) -> str:
    """What the model and the row say of a miss whose reason is not known."""
    busiest = max(found.pools, key=lambda pool: pool.busy_fraction)
    said = f"; the row says: {row['note']}" if row["note"] else ""
    return (
        f"no reason is known; the model takes {1e3 * found.step.time_s:.3g} ms a step, most of it {busiest.bound} on "
        f"{busiest.chip}{said}"
    )
