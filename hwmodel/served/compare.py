"""Served rows against the model: TTFT and TPOT of every group, and fits of the stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.served.engines import engine
from hwmodel.served.fitting import fit_stack, fitted_rows, held_out
from hwmodel.served.rows import Key, Served, read_served
from hwmodel.served.stack import Stack, load_stack, stack_names
from hwmodel.served.step import Loads, loads, predict
from hwmodel.spec.errors import InputError

Array = NDArray[np.float64]
TABLES = ("e2e_agg", "e2e_disagg")


@dataclass(frozen=True)
class EndToEnd:
    """Errors of one model on one device under one stack, as shares of the measured times."""

    model: str
    device: str
    stack: str
    precision: str
    mode: str
    rows: int
    tpot_median: float
    tpot_p90: float
    tpot_bias: float
    ttft_median: float
    ttft_p90: float
    ttft_bias: float
    skipped: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, errors in per cent; None where no row could be compared."""
        errors = ("tpot_median", "tpot_p90", "tpot_bias", "ttft_median", "ttft_p90", "ttft_bias")
        return {
            key: (100 * value if self.rows else None) if key in errors else value for key, value in vars(self).items()
        }  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The rows of one file that can be priced, with their prices."""

    rows: list[Served]
    load: Loads | None
    skipped: dict[Key, Counter[str]]


def tables(folder: Path, calibrated: bool = True, stacks: Sequence[str] = ()) -> Iterator[Table]:
    """Every end-to-end table of a folder; of these stacks only, when given."""
    for name in TABLES:
        path = folder / f"{name}.csv"
        if not path.is_file():
            continue
        rows, skipped = read_served(path)
        kept = []
        for row in rows:
            unknown = stacks and row.group[2] not in stacks
            reason = f"no stack named {row.group[2]} in stacks/" if unknown else _reason(row, calibrated)
            if reason:
                skipped.setdefault(row.key, Counter())[reason] += 1
            else:
                kept.append(row)
        yield Table(kept, loads(kept, calibrated) if kept else None, skipped)


def _reason(row: Served, calibrated: bool) -> str:
    """Why a row cannot be priced."""
    try:
        for what in (row.deployment, *((row.prefill,) if row.prefill else ())):
            for phase in ("decode", "prefill"):
                engine(what, phase, calibrated)
    except InputError as error:
        return error.problems[0].message
    return ""


def end_to_end(folder: Path, *, device: str = "", calibrated: bool = True) -> list[EndToEnd]:
    """Compare the served rows of a folder with the shipped (or local) parameters of their stacks."""
    found: list[EndToEnd] = []
    for table in tables(folder, calibrated, stack_names()):
        ttft, tpot = np.zeros((2, len(table.rows)))
        for stack in sorted({row.group[2] for row in table.rows}):
            own = np.array([i for i, row in enumerate(table.rows) if row.group[2] == stack], dtype=np.int64)
            if table.load is not None:
                ttft[own], tpot[own] = predict(table.load.pick(own), load_stack(stack))
        found += groups(table, ttft, tpot, device)
    return found


def groups(table: Table, ttft: Array, tpot: Array, device: str = "") -> list[EndToEnd]:
    """Errors by what rows are reported under."""
    places: dict[Key, list[int]] = {key: [] for key in table.skipped}
    for index, row in enumerate(table.rows):
        places.setdefault(row.key, []).append(index)
    found = []
    for key, where in places.items():
        if device and key[1] != device:
            continue
        each = np.array([tpot[i] / table.rows[i].tpot_s for i in where]) - 1
        first = np.array([ttft[i] / table.rows[i].ttft_s for i in where]) - 1
        found.append(EndToEnd(*key, len(where), *_errors(each), *_errors(first), dict(table.skipped.get(key, {}))))
    return found


def _errors(signed: Array) -> tuple[float, float, float]:
    if not len(signed):
        return 0.0, 0.0, 0.0
    return float(np.median(np.abs(signed))), float(np.quantile(np.abs(signed), 0.9)), float(np.median(signed))


@dataclass(frozen=True)
class StackFits:
    """Stacks fitted to the aggregated rows of a folder, and the errors on configurations that were held out."""

    stacks: tuple[Stack, ...]
    held_out: tuple[EndToEnd, ...]


def fit_stacks(folder: Path, date: str, data: str) -> StackFits:
    """Fit every stack of ``e2e_agg.csv``.

    Raises
    ------
    InputError
        When there is no such table.
    """
    table = next(tables(folder), None)
    if table is None or table.load is None:
        raise InputError(f"{folder}: holds no served rows ({', '.join(f'{name}.csv' for name in TABLES)})")
    unseen = groups(table, *held_out(table.rows, table.load))
    made = []
    for name in sorted({row.group[2] for row in table.rows}):
        said = {"date": date, "data": data, "note": _note([item for item in unseen if item.stack == name])}
        made.append(fit_stack(name, table.rows, table.load, fitted_rows(table.rows, name), **said))
    return StackFits(tuple(made), tuple(unseen))


def _note(found: Sequence[EndToEnd]) -> str:
    """What a stack's file says of its errors."""
    known = summary(found).get("agg")
    if known is None:
        return "too few rows to say how wrong it is"
    count, tpot, worst, ttft, most = known
    return (
        f"configurations held out, {count} groups: TPOT median {tpot:.1%}, worst {worst:.1%}; TTFT median {ttft:.1%}, "
        f"worst {most:.1%}"
    )


MANY = 20
"""Rows from which a group counts in the summary."""


def kind_of(model: str, mode: str) -> str:
    """What rows are summed up under; those of DeepSeek stand apart: whether tokens were drafted is not recorded."""
    return f"{mode}, DeepSeek" if "DeepSeek" in model else mode


def summary(found: Sequence[EndToEnd], least: int = MANY) -> dict[str, tuple[int, float, float, float, float]]:
    """By kind of rows: groups, median over them of the median TPOT error, the worst, and the same of TTFT.

    Groups of (model, device, stack) with `least` rows or more count.
    """
    merged: dict[tuple[str, str, str, str], list[EndToEnd]] = {}
    for item in found:
        merged.setdefault((item.model, item.device, item.stack, item.mode), []).append(item)
    sets: dict[str, list[tuple[float, float]]] = {}
    for (model, _, _, mode), parts in merged.items():
        rows = sum(part.rows for part in parts)
        if rows >= least:
            pair = tuple(sum(getattr(part, key) * part.rows for part in parts) / rows for key in ("tpot_median", "ttft_median"))
            sets.setdefault(kind_of(model, mode), []).append((pair[0], pair[1]))
    result = {}
    for name, pairs in sets.items():
        tpot, ttft = np.array(pairs).T
        result[name] = (len(pairs), float(np.median(tpot)), float(tpot.max()), float(np.median(ttft)), float(ttft.max()))
    return result
