"""The file of a sweep, read back."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwmodel.spec.errors import InputError, Problem, did_you_mean
from hwmodel.timing import Array


@dataclass(frozen=True)
class Points:
    """Columns of a file of points: numbers where all cells are, else words."""

    name: str
    columns: dict[str, Array | list[str]]

    def number(self, name: str) -> Array:
        """A column of numbers.

        Raises
        ------
        InputError
            When there is none of that name.
        """
        column = self.columns.get(name)
        if column is None or isinstance(column, list):
            known = [key for key, values in self.columns.items() if not isinstance(values, list)]
            raise InputError(f"{self.name} has no column of numbers '{name}'{did_you_mean(name, known)}")
        return column

    def words(self, name: str) -> list[str]:
        """A column as words."""
        column = self.columns.get(name)
        if column is None:
            raise InputError(f"{self.name} has no column '{name}'{did_you_mean(name, self.columns)}")
        return column if isinstance(column, list) else [f"{value:.4g}" for value in column]


def read_points(path: Path) -> Points:
    """The points of ``FILE.csv`` as `hwmodel sweep --out` writes it; those that can run.

    Raises
    ------
    InputError
        For a file that is none.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            if not {"point", "feasible"} <= set(header):
                raise InputError(Problem("is no file of points: it has no columns 'point' and 'feasible'", file=str(path)))
            good = header.index("feasible")
            cells = [row for row in rows if len(row) == len(header) and row[good] == "true"]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None
    if not cells:
        raise InputError(Problem("holds no point that can run", file=str(path)))
    return Points(path.name, {name: _column([row[k] for row in cells]) for k, name in enumerate(header)})


def _column(cells: list[str]) -> Array | list[str]:
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except ValueError:
        return cells
