"""What a sweep found: counts, the Pareto front and the best, summed up chunk by chunk; or all of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hwmodel.answered import ROWS, Answered, html_table
from hwmodel.spec.errors import InputError, did_you_mean
from hwmodel.sweep.chunks import Reduced, Table, merged
from hwmodel.sweep.names import POINT


@dataclass(frozen=True)
class Answer(Answered):
    """The answer of ``hwmodel sweep``."""

    name: str
    points: int
    evaluated: int = 0
    feasible: int = 0
    """Points that can run and meet every constraint."""
    seconds: float = 0.0
    names: tuple[str, ...] = ()
    """Of the columns of a point."""
    objectives: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    """How many points each reason took out, the most frequent first."""
    pareto: tuple[dict[str, Any], ...] = ()
    top: tuple[dict[str, Any], ...] = ()
    interval_error: float | None = None
    """time_low_s and time_high_s are fitted: 95 % of them are off by at most this share of the time; None without them."""
    stopped: bool = False
    """Ended before its end."""

    @property
    def points_per_s(self) -> float:
        """Points priced a second, all threads together."""
        return self.evaluated / self.seconds if self.seconds > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel sweep --json`` prints it."""
        return {
            "sweep": self.name, "points": self.points, "evaluated": self.evaluated, "feasible": self.feasible,
            "seconds": self.seconds, "points_per_s": self.points_per_s, "columns": list(self.names),
            "objectives": dict(self.objectives), "pareto": list(self.pareto), "top": list(self.top),
            "rejected": dict(self.rejected), "interval_error": self.interval_error, "stopped": self.stopped,
        }  # fmt: skip


class Total:
    """The reduction of chunks that come in order."""

    def __init__(self, top: int, state: Mapping[str, Any]) -> None:
        """Keep so many of the best; `state` is where another one, whose `state` it was, had stopped."""
        self.top = top
        self.evaluated, self.feasible = int(state.get("evaluated", 0)), int(state.get("feasible", 0))
        self.rejected: dict[str, int] = dict(state.get("rejected", {}))
        self.front: list[tuple[tuple[float, ...], dict[str, Any]]] = [(tuple(v), row) for v, row in state.get("front", ())]
        self.best: list[tuple[float, dict[str, Any]]] = [(value, row) for value, row in state.get("best", ())]

    def add(self, part: Reduced) -> None:
        """Take in the next chunk."""
        self.evaluated += part.evaluated
        self.feasible += part.feasible
        for reason, count in part.rejected.items():
            self.rejected[reason] = self.rejected.get(reason, 0) + count
        self.front = merged([*self.front, *part.pareto])
        self.best = sorted([*self.best, *part.top], key=lambda item: (-item[0], item[1][POINT]))[: self.top]

    def state(self) -> dict[str, Any]:
        """Plain data to go on from."""
        return {
            "evaluated": self.evaluated, "feasible": self.feasible, "rejected": self.rejected,
            "front": self.front, "best": self.best,
        }  # fmt: skip

    def found(self) -> dict[str, Any]:
        """The fields of an answer."""
        return {
            "evaluated": self.evaluated, "feasible": self.feasible,
            "rejected": dict(sorted(self.rejected.items(), key=lambda item: (-item[1], item[0]))),
            "pareto": tuple(row for _, row in self.front), "top": tuple(row for _, row in self.best),
        }  # fmt: skip


@dataclass(frozen=True)
class Swept(Table, Answered):
    """All points of a sweep as columns: ``hw.sweep``; `numbers` and `words` by column, each (points,), SI units; read-only."""

    def __post_init__(self) -> None:
        """Nothing is written into an answer."""
        for column in (self.point, self.feasible, *self.numbers.values(), *(codes for codes, _ in self.words.values())):
            column.flags.writeable = False

    def to_dict(self) -> dict[str, Any]:
        """Counts, and a row per point as plain data."""
        return {"points": len(self.point), "feasible": int(self.feasible.sum()), "rows": self.rows()}

    def tables(self) -> list[str]:
        """Names of the parts that are tables."""
        return ["rows"] if len(self.point) else []

    def columns(self, table: str = "") -> dict[str, list[Any]]:
        """The points by columns, each a list of one value per point, None where nothing is known; ready for a data frame."""
        if table not in ("", "rows"):
            raise InputError(f"the answer has no table '{table}'{did_you_mean(table, ['rows'])}")
        return Table.columns(self)

    def _repr_html_(self) -> str:
        """Counts and the first rows; every text is escaped."""
        first = Swept(**{name: getattr(self.taken(np.arange(min(ROWS, len(self.point)))), name) for name in _FIELDS})
        counts = {"points": len(self.point), "feasible": int(self.feasible.sum())}
        return html_table(counts, "rows" if len(self.point) else "", first.columns(), len(self.point))


_FIELDS = ("point", "numbers", "words", "feasible")
