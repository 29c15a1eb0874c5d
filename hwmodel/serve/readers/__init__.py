"""Traces in files, one format a file here. Importing the package finds them all.

A format is a module with ``NAME``, ``SAYS`` (one line), ``FORM`` ("csv" or "jsonl"), ``NEEDS`` (sets of columns, any one of
which marks a file as this format) and ``read(path, columns) -> Trace``. Modules without ``NAME`` are shared pieces. Files
may be gzipped; nothing in them is executed. Every mistake in a file is told with its line, up to a limit.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

from hwmodel.kernels import plugins
from hwmodel.serve.readers.lines import header
from hwmodel.serve.requests import Requests
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened

__all__ = ["formats", "read", "recorded"]


@cache
def formats() -> dict[str, ModuleType]:
    """Every format by name."""
    found = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return {module.NAME: module for module in [*found, *plugins("readers")] if hasattr(module, "NAME")}


def read(path: str | Path, format: str = "", columns: Sequence[str] = ()) -> Requests:
    """The requests of a trace file; see `recorded`."""
    return recorded(path, format, columns).requests


def recorded(path: str | Path, format: str = "", columns: Sequence[str] = ()) -> Trace:
    """A trace file: its requests and what the traced system did with them.

    Parameters
    ----------
    format
        Name of a format; found from the columns of the file when empty.
    columns
        For a CSV of one's own: the names of the columns of arrival (s), prompt and output tokens, and if it has one of the
        session.

    Raises
    ------
    InputError
        For a file of no known format, and for bad rows, each with its line.
    """
    path = Path(path)
    known = formats()
    if columns and format in ("", "csv"):
        return known["csv"].read(path, tuple(columns))  # type: ignore[no-any-return]
    if columns:
        raise InputError(f"columns are named for format csv only, not for {shortened(format)}")
    if format and format not in known:
        raise InputError(f"unknown trace format '{shortened(format)}'{did_you_mean(format, known)}")
    return known[format or _sniffed(path, known)].read(path, ())  # type: ignore[no-any-return]


def _sniffed(path: Path, known: dict[str, ModuleType]) -> str:
    """The format whose columns the file has; of several the one that asks for most."""
    form, names = header(path)
    fits = [(len(needs), name) for name, module in known.items() for needs in module.NEEDS
            if form == module.FORM and needs <= names]  # fmt: skip
    if fits:
        return max(fits)[1]
    lists = "; ".join(f"{name}: {', '.join(sorted(m.NEEDS[0]))}" for name, m in sorted(known.items()) if m.NEEDS)
    got = shortened(", ".join(sorted(names)), 200)
    message = f"no known trace format has its columns ({got}); name them (arrival,prompt,output) or use one of: {lists}"
    raise InputError(Problem(message, file=str(path)))
