"""A CSV of one's own: columns named by the user, of arrival (s), prompt and output tokens, perhaps of session and class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import CLASSES, Faults, csv_rows, label, real, whole
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError

NAME = "csv"
SAYS = "a CSV of one's own: name the columns of arrival (s), prompt, output and perhaps session, class"
FORM = "csv"
NEEDS: tuple[frozenset[str], ...] = ()


def read(path: Path, columns: Sequence[str] = (), says: str = "csv") -> Trace:
    """The trace of a file: open loop, without prefixes. Of a session any text is the name; an empty one is none.

    The fifth column, or one of `CLASSES` where none is named, says the class of a request; the name of a column may be empty.
    """
    if not 3 <= len(columns) <= 5:
        raise InputError(f"columns: expected the names of arrival, prompt and output (and session, class), got {len(columns)}")
    kinds = columns[4:] or CLASSES
    asked = [name for name in (*columns[:4], *columns[4:]) if name]
    faults, rows = Faults(path), Gathered()
    sessions: dict[str, int] = {}
    for line, (arrival, prompt, output, *more) in csv_rows(path, asked, faults, ((columns[3:4] or ("",))[0], *kinds)):
        with faults.at(line):
            session, *kind = more[len(asked) - 3 :]
            own = sessions.setdefault(session, len(sessions)) if session else -1
            rows.add(real(arrival, columns[0]), whole(prompt, columns[1]), whole(output, columns[2]), own, tier=label(kind))
    return rows.made(path, faults, says)
