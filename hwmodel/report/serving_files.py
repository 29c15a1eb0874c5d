"""What a simulation left in a folder, read back: its answer, and columns of its CSV files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hwmodel.report.document import BROKEN, broken
from hwmodel.serve.readers.lines import Faults, csv_rows, header
from hwmodel.spec.errors import InputError, Problem


def saved_columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name: numbers where all that is there is one (NaN where nothing is), else words.

    Raises
    ------
    InputError
        When there is no such file, nothing in it, or a row that is cut short, with its line.
    """
    if not path.is_file():
        raise InputError(Problem("cannot be read: a simulation leaves it with --out DIR", file=str(path)))
    names, faults = sorted(header(path)[1]), Faults(path)
    rows = [values for _, values in csv_rows(path, names, faults)]
    faults.stop(len(rows))
    return {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}


def saved_slos(path: Path) -> dict[str, dict[str, float]]:
    """Targets (s) of every class of requests of a saved answer, by the column of the latency."""
    try:
        return slos_of(json.loads(path.read_text(encoding="utf-8")))
    except BROKEN as error:
        raise broken(error, str(path), "simulate") from None


def slos_of(told: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The same of an answer as ``hwmodel simulate --json`` prints it."""
    return {str(each["class"]): {str(name): float(limit) for name, limit in each["slo"].items()}
            for each in told["goodput"]["classes"]}  # fmt: skip


def _column(texts: list[str]) -> np.ndarray:
    try:
        return np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return np.array(texts)
