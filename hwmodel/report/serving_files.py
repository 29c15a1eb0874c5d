"""Columns of the CSV files that a simulation leaves in a folder."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from hwmodel.spec.errors import InputError, Problem


def saved_columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name: numbers where all that is there is one (NaN where nothing is), else words.

    Raises
    ------
    InputError
        When there is no such file, or nothing in it.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file)
    except (OSError, ValueError, csv.Error):
        raise InputError(Problem("cannot be read: a simulation leaves it with --out DIR", file=str(path))) from None
    return {name: _column([row[i] if i < len(row) else "" for row in rows]) for i, name in enumerate(names)}


def _column(texts: list[str]) -> np.ndarray:
    try:
        return np.array([float(text) if text else np.nan for text in texts])
    except ValueError:
        return np.array(texts)
