"""The file of a sweep, read back: the columns that are asked for, of the points that can run."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.sweep.constraints import ConstraintError, read_constraint
from hwmodel.sweep.names import FEASIBLE, POINT
from hwmodel.sweep.store import FORMATS, polars
from hwmodel.timing import Array

Column = Array | tuple[NDArray[np.int64], tuple[str, ...]]
"""Numbers, or codes and the word of each."""


def is_points(name: str) -> bool:
    """Whether a name is that of a file of points."""
    return name.endswith(FORMATS)


class Points:
    """A file of points: columns of numbers where all cells are, else of words; a column is read when it is asked for."""

    def __init__(self, path: Path) -> None:
        """Look at the columns' names.

        Raises
        ------
        InputError
            For a file that is none.
        """
        self.path, self.name = path, path.name
        with self._readable():
            self.names = self._header()
        if not {POINT, FEASIBLE} <= set(self.names):
            raise InputError(Problem("is no file of points: it has no columns 'point' and 'feasible'", file=str(path)))
        self._held: dict[str, Column] = {}
        self._kept: NDArray[np.bool_] | None = None
        self.comparisons: list[str] = []
        """What the points that are kept meet."""

    def load(self, *names: str) -> None:
        """Read columns in one pass; those that are not there, or held already, are left out."""
        wanted = [name for name in dict.fromkeys((POINT, *names)) if name in self.names and name not in self._held]
        if not wanted:
            return
        with self._readable():
            found = self._of_csv(wanted) if self.path.suffix == ".csv" else self._of_parquet(wanted)
        if not all(len(cells) for cells in found):
            raise InputError(Problem("holds no point that can run", file=str(self.path)))
        self._held |= {name: _taken(_column(cells), self._kept) for name, cells in zip(wanted, found, strict=True)}

    def only(self, constraints: Sequence[str]) -> None:
        """Keep the points that meet comparisons of columns, as a sweep's `where` has them.

        Raises
        ------
        InputError
            For a comparison that cannot be read, and when no point is left.
        """
        for text in constraints:
            try:
                read = read_constraint(text, self.names)
            except ConstraintError as error:
                raise InputError(f"{self.name}: {error}") from None
            self.load(*read.columns)
            met = read.holds({name: self.number(name) for name in read.columns})
            if not met.any():
                raise InputError(f"{self.name}: no point that can run meets '{shortened(text, 80)}'")
            self._held = {name: _taken(column, met) for name, column in self._held.items()}
            self.comparisons.append(text)
            if self._kept is None:
                self._kept = met
            else:
                self._kept[self._kept] = met

    def column(self, name: str) -> Column:
        """A column.

        Raises
        ------
        InputError
            When there is none of that name.
        """
        if name not in self.names:
            raise InputError(f"{self.name} has no column '{shortened(name)}'{did_you_mean(name, self.names)}")
        self.load(name)
        return self._held[name]

    def number(self, name: str) -> Array:
        """A column of numbers.

        Raises
        ------
        InputError
            When there is none of that name, or it is one of words.
        """
        column = self.column(name)
        if isinstance(column, tuple):
            raise InputError(f"{self.name}: column '{name}' holds words, no numbers")
        return column

    def known(self, name: str) -> Array:
        """A column of numbers that says something of some point.

        Raises
        ------
        InputError
            As `number`, and when the column is empty.
        """
        found = self.number(name)
        if np.isnan(found).all():
            raise InputError(f"{self.name}: column '{name}' is empty")
        return found

    def codes(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """A column as words: the code of every point, and the word of each code; numbers in short, in rising order."""
        column = self.column(name)
        if isinstance(column, tuple):
            return column
        values, code = np.unique(column, return_inverse=True)
        return code.reshape(-1).astype(np.int64), tuple("" if np.isnan(value) else f"{value:.6g}" for value in values)

    def words(self, name: str) -> list[str]:
        """A column as words, one a point."""
        code, known = self.codes(name)
        return [known[k] for k in code.tolist()]

    def plain(self, name: str, index: int) -> float | str | None:
        """One cell; None where nothing is known."""
        column = self.column(name)
        if isinstance(column, tuple):
            return column[1][column[0][index]] or None
        return None if np.isnan(column[index]) else float(column[index])

    @contextmanager
    def _readable(self) -> Iterator[None]:
        wrong: tuple[type[Exception], ...] = (OSError, UnicodeDecodeError, csv.Error)
        if self.path.suffix == ".parquet":
            wrong = (*wrong, polars().exceptions.PolarsError)
        try:
            yield
        except wrong as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0]
            raise InputError(Problem(f"cannot be read: {said}", file=str(self.path))) from None

    def _header(self) -> tuple[str, ...]:
        if self.path.suffix == ".parquet":
            return tuple(polars().read_parquet_schema(self.path))
        with self.path.open(newline="", encoding="utf-8") as file:
            return tuple(next(csv.reader(file), []))

    def _of_csv(self, names: Sequence[str]) -> list[list[str]]:
        """Cells by column; rows that are cut short, as the last one of a sweep that is at work may be, are left out."""
        at, good, wide = [self.names.index(name) for name in names], self.names.index(FEASIBLE), len(self.names)
        found: list[list[str]] = [[] for _ in names]
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = csv.reader(file)
            next(rows, None)
            for row in rows:
                if len(row) == wide and row[good] == "true":
                    for cells, k in zip(found, at, strict=True):
                        cells.append(row[k])
        return found

    def _of_parquet(self, names: Sequence[str]) -> list[Array | list[str]]:
        frame = polars().read_parquet(self.path, columns=list(dict.fromkeys((*names, FEASIBLE))))
        frame = frame.filter(polars().col(FEASIBLE))
        plain = {True: "true", False: "false"}
        return [
            frame[name].to_numpy()
            if frame[name].dtype.is_numeric()
            else [plain.get(cell, cell) for cell in frame[name].to_list()]
            for name in names
        ]


def _taken(column: Column, kept: NDArray[np.bool_] | None) -> Column:
    if kept is None:
        return column
    return (column[0][kept], column[1]) if isinstance(column, tuple) else column[kept]


def _column(cells: Array | list[str]) -> Column:
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64)
    try:
        return np.array([float(cell) if cell else np.nan for cell in cells])
    except (ValueError, TypeError):
        known: dict[str, int] = {}
        codes = np.array([known.setdefault(str(cell), len(known)) for cell in cells], dtype=np.int64)
        return codes, tuple(known)
