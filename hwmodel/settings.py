"""Values set from the command line over those of a scenario's file: ``--set key.path=value``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hwmodel.spec import yamlfile
from hwmodel.spec.errors import InputError, Problem, shortened
from hwmodel.spec.yamlfile import Document, Path_

_DIGITS = re.compile(r"[0-9]{1,6}")
_LONGEST = 20
"""Parts of a key path."""


def override(document: Document, settings: Sequence[str]) -> Document:
    """The document with ``key.path=value`` settings over it; lists are indexed by number.

    Raises
    ------
    InputError
        For every setting that is no ``key.path=value``, no YAML, or leads where nothing can be.
    """
    value = document.value
    marks = dict(document.places)
    given = dict(document.given)
    problems: list[Problem] = []
    for text in settings:
        where = f"--set {shortened(text, 80)}"
        key, equals, raw = text.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts) or len(parts) > _LONGEST:
            problems.append(Problem("expected key.path=value, such as workload.batch=64", file=where))
            continue
        path: Path_ = tuple(int(part) if _DIGITS.fullmatch(part) else part for part in parts)
        try:
            new = yamlfile.parse_yaml(raw, where).value
            value, path = _put(value, path, new, where)
        except InputError as error:
            problems += [Problem(problem.message, problem.path, where) for problem in error.problems]
            continue
        marks = {place: mark for place, mark in marks.items() if place[: len(path)] != path}
        given[path] = where
    if problems:
        raise InputError(problems)
    return Document(document.file, value, marks, document.lines, given)


def put(document: Document, key: str, new: Any, where: str) -> Document:
    """The document with a value at a dotted path; `where` names it in messages.

    Raises
    ------
    InputError
        When the path leads where nothing can be.
    """
    path: Path_ = tuple(int(part) if _DIGITS.fullmatch(part) else part for part in key.split("."))
    value, path = _put(document.value, path, new, where)
    marks = {place: mark for place, mark in document.places.items() if place[: len(path)] != path}
    return Document(document.file, value, marks, document.lines, {**document.given, path: where})


def _put(value: Any, path: Path_, new: Any, text: str, done: Path_ = ()) -> tuple[Any, Path_]:
    """`value` with `new` at `path`, copied along the way; and the path as it was found."""
    if not path:
        return new, done
    head, rest = path[0], path[1:]
    where = yamlfile.dotted(done) or "the file"
    if isinstance(value, list):
        if not isinstance(head, int):
            raise InputError(Problem(f"{where} is a list: index it by number, not '{shortened(head)}'", file=text))
        if head >= len(value):
            size = "1 entry" if len(value) == 1 else f"{len(value)} entries"
            raise InputError(Problem(f"{where} has {size}, the first is number 0; got {head}", file=text))
        inner, found = _put(value[head], rest, new, text, (*done, head))
        return [*value[:head], inner, *value[head + 1 :]], found
    if not isinstance(value, dict | None):
        raise InputError(Problem(f"{where} is a single value, it has no key '{shortened(str(head))}'", file=text))
    if value is None and isinstance(head, int):
        message = f"{where} is not in the file; set the whole list, such as {where}=[...]"
        raise InputError(Problem(message, file=text))
    table = value or {}
    inner, found = _put(table.get(str(head)), rest, new, text, (*done, str(head)))
    return {**table, str(head): inner}, found
