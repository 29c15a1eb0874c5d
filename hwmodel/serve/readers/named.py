"""A CSV of one's own: columns named by the user, of arrival (s), prompt and output tokens, and perhaps of the session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import Faults, csv_rows, real, whole
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError

NAME = "csv"
SAYS = "a CSV of one's own: name the columns of arrival (s), prompt, output and perhaps session"
FORM = "csv"
NEEDS: tuple[frozenset[str], ...] = ()


def read(path: Path, columns: Sequence[str] = (), says: str = "csv") -> Trace:
    """The trace of a file: open loop, without prefixes. Of a session any text is the name; an empty one is none."""
    if len(columns) not in (3, 4):
        raise InputError(f"columns: expected the names of arrival, prompt and output (and session), got {len(columns)}")
    faults, rows = Faults(path), Gathered()
    sessions: dict[str, int] = {}
    for line, (arrival, prompt, output, *named) in csv_rows(path, columns, faults):
        with faults.at(line):
            own = sessions.setdefault(named[0], len(sessions)) if named and named[0] else -1
            rows.add(real(arrival, columns[0]), whole(prompt, columns[1]), whole(output, columns[2]), own)
    return rows.made(path, faults, says)
