"""Rows of text files, plain or gzipped, with every mistake told by its line."""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened

MOST = 20
"""Problems of one file that are told."""
LONGEST = 1 << 24
"""Characters of one line."""
CLASSES = ("class", "tenant", "priority", "type")
"""Columns that say the class of a request; the first that has something does."""
MOST_TOKENS = 100_000_000
"""Tokens of one request: beyond it a number is no length."""


class Faults:
    """Collects the mistakes of a file; a ``with faults.at(line)`` block turns a ValueError into one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[Problem] = []
        self.line = 0

    def at(self, line: int) -> Faults:
        """The same, for a line."""
        self.line = line
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        if not isinstance(error, ValueError):
            return False
        self.add(str(error))
        return True

    def add(self, message: str) -> None:
        """One more mistake, on the current line.

        Raises
        ------
        InputError
            When there are enough of them.
        """
        self.found.append(Problem(message, file=f"{self.path}:{self.line}"))
        if len(self.found) >= MOST:
            self.found.append(Problem(f"more problems may follow: reading stopped after {MOST}", file=str(self.path)))
            self.stop()

    def stop(self, rows: int = 1) -> None:
        """Raise what was found; a file without rows is a mistake, too."""
        if not rows and not self.found:
            self.found.append(Problem("holds no requests", file=str(self.path)))
        if self.found:
            raise InputError(self.found)


def _opened(path: Path) -> TextIO:
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        return (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="") if zipped else path.open(encoding="utf-8-sig", newline="")
        )
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror or error}", file=str(path))) from None


def _lines(path: Path) -> Iterator[str]:
    """Lines of a text file; what cannot be decoded or unpacked, or is far too long for a row, is told with its line."""
    count = 0
    try:
        with _opened(path) as file:
            while text := file.readline(LONGEST):
                count += 1
                if len(text) >= LONGEST:
                    raise InputError(Problem(f"a line of {LONGEST} characters or more is no row", file=f"{path}:{count}"))
                yield text
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {shortened(str(error), 200)}", file=f"{path}:{count + 1}")) from None


def header(path: Path) -> tuple[str, frozenset[str]]:
    """What a file is, "jsonl" or "csv", and the names of its columns, from its first row."""
    text = next((line for line in _lines(path) if line.strip()), "")
    if not text:
        raise InputError(Problem("is empty", file=str(path)))
    if text.lstrip().startswith(("{", "[")):
        row = next(json_rows(path, Faults(path)), (0, {}))[1]
        return "jsonl", frozenset(row)
    try:
        return "csv", frozenset(name.strip() for name in next(csv.reader([text]), []))
    except csv.Error as error:
        raise InputError(Problem(f"no CSV header: {error}", file=f"{path}:1")) from None


def csv_rows(
    path: Path, columns: Sequence[str], faults: Faults, optional: Sequence[str] = ()
) -> Iterator[tuple[int, list[str]]]:
    """Line number and the values of the asked columns of every row; an optional column that is absent reads empty."""
    reader = csv.reader(_lines(path))
    try:
        names = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if name not in names]
        if missing:
            texts = [f"missing column '{shortened(name)}'{did_you_mean(name, names)}" for name in missing]
            raise InputError([Problem(text, file=f"{path}:1") for text in texts])
        places = [names.index(name) if name in names else len(names) for name in (*columns, *optional)]
        for row in reader:
            if len(row) != len(names):
                if row:
                    faults.at(reader.line_num).add(f"expected {len(names)} values, got {len(row)}")
                continue
            row.append("")
            yield reader.line_num, [row[place] for place in places]
    except csv.Error as error:
        raise InputError([*faults.found, Problem(f"no CSV: {error}", file=f"{path}:{reader.line_num}")]) from None


def json_rows(path: Path, faults: Faults) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line that holds one."""
    for line, text in enumerate(_lines(path), 1):
        if text.isspace():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            faults.at(line).add(f"no JSON: {shortened(str(error), 120)}")
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            faults.at(line).add(f"expected an object with keys, got {shortened(text.strip(), 40)}")


def label(values: Iterable[Any]) -> str:
    """The class of a request: the first value that is not empty."""
    return next((shortened(text, 40) for value in values if value is not None and (text := str(value).strip())), "all")


def field(row: Mapping[str, Any], name: str) -> Any:
    """A key that a row must have."""
    if name not in row:
        raise ValueError(f"missing key '{name}'{did_you_mean(name, row)}")
    return row[name]


def real(value: Any, name: str, least: float = 0.0) -> float:
    """A finite number of at least `least`, from text or JSON; ValueError says what was wrong."""
    try:
        wrong = value.__class__ is bool or value is None or (value.__class__ is str and "_" in value)
        number = float("" if wrong else value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: expected a number, got {shortened(repr(value), 40)}") from None
    if not math.isfinite(number) or number < least:
        raise ValueError(f"{name}: expected a number of at least {least:g}, got {shortened(str(value), 40)}")
    return number


def whole(value: Any, name: str, least: int = 1) -> int:
    """A whole number of at least `least`, from text or JSON; ValueError says what was wrong."""
    if value.__class__ is str and len(value) < 9 and value.isdecimal() and value.isascii() and int(value) >= least:
        return int(value)  # almost all of them
    number = real(value, name, least)
    if number != int(number) or number > MOST_TOKENS:
        raise ValueError(f"{name}: expected a whole number up to {MOST_TOKENS}, got {shortened(str(value), 40)}")
    return int(number)
