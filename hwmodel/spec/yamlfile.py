"""YAML and JSON text to plain values, with the place of every value.

The only file that imports yaml. Nothing in a file is executed: values are built from the parser's events, anchors and
aliases are refused (they allow exponential blow-up), and size and depth are bounded. Scalars follow YAML 1.2: ``1e12``
is a number, ``off`` and ``12:30`` are strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from hwmodel.spec.errors import InputError, Problem, shortened

MAX_BYTES = 4_000_000
MAX_DEPTH = 60
MAX_NODES = 400_000
MAX_PROBLEMS = 50

Path_ = tuple[str | int, ...]
_INT = re.compile(r"[-+]?\d[\d_]*")
_FLOAT = re.compile(r"[-+]?(\d[\d_]*)?\.?\d+([eE][-+]?\d+)?|[-+]?\d[\d_]*\.([eE][-+]?\d+)?")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".nan": float("nan"), ".NaN": float("nan"), "NaN": float("nan"),
    ".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"), "Infinity": float("inf"),
}  # fmt: skip


@dataclass(frozen=True)
class Document:
    """The value of a file and where each part of it stands."""

    file: str
    value: Any
    marks: dict[Path_, tuple[int, int]] = field(repr=False)
    """Path to 1-based (line, column)."""
    lines: tuple[str, ...] = field(repr=False)
    given: dict[Path_, str] = field(default_factory=dict)
    """Values put in from outside the file by path, as the command line gave them: ``--set workload.batch=64``."""

    json_text: str = field(default="", repr=False)
    """Text of a JSON file, whose places are looked up when an error needs them."""

    def moved(self, moves: Mapping[Path_, Path_]) -> Document:
        """The document with the places of values that now stand at another path."""
        if all(old == new for old, new in moves.items()):
            return self
        old = sorted(moves, key=len, reverse=True)

        def now(path: Path_) -> Path_:
            start = next((o for o in old if path[: len(o)] == o), None)
            return path if start is None else (*moves[start], *path[len(start) :])

        marks = {now(path): mark for path, mark in self.places.items()}
        return replace(self, marks=marks, given={now(path): text for path, text in self.given.items()}, json_text="")

    @cached_property
    def places(self) -> dict[Path_, tuple[int, int]]:
        """The marks, those of JSON found by reading it once more as YAML, which it is but for tabs."""
        if not self.json_text:
            return self.marks
        try:
            return parse_yaml(self.json_text.replace("\t", " "), self.file).marks
        except InputError:
            return {path: (line, 1) for path, line in _json_lines(self.value, self.lines).items()}

    def problem(self, path: Path_, message: str, *, at_key: bool = False) -> Problem:
        """A problem at `path`, placed on the nearest known ancestor when the path itself is not in the text."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.given:
                return Problem(message, dotted(path), self.given[path[:length]])
        below = [text for place, text in self.given.items() if path and place[: len(path)] == path]
        if below and (path not in self.places or not self.lines):
            return Problem(message, dotted(path), below[-1])
        if below:
            message += f" (with {below[-1]})"
        spot: Path_ = path
        while spot and spot not in self.places:
            spot = spot[:-1]
        mark = self.places.get((*spot, "\0key") if at_key and (*spot, "\0key") in self.places else spot)
        if mark is None:
            return Problem(message, dotted(path), self.file)
        line, column = mark
        excerpt = self.lines[line - 1] if line <= len(self.lines) else ""
        return Problem(message, dotted(path), self.file, line, column, excerpt)


def dotted(path: Path_) -> str:
    """``('memory', 0, 'bandwidth')`` as ``memory[0].bandwidth``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


def read_text(path: Path) -> str:
    """The text of a file, or an `InputError` that says why not (missing, a folder, too large, not UTF-8)."""
    shown = str(path)
    try:
        if path.is_dir():
            raise InputError(Problem("is a folder, expected a file", file=shown))
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise InputError(Problem("is no regular file", file=shown))
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(Problem(f"is {size:,} bytes; files over {MAX_BYTES:,} bytes are not read", file=shown))
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem(f"cannot be read: {reason}", file=shown)) from None
    if len(data) > MAX_BYTES:
        raise InputError(Problem(f"is over {MAX_BYTES:,} bytes, which are not read", file=shown))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(f"byte {error.start} is not UTF-8 text", "", shown, line, 1)) from None


def load(path: Path) -> Document:
    """Read a YAML or JSON file (by its suffix)."""
    text = read_text(path)
    return parse_json(text, str(path)) if path.suffix == ".json" else parse_yaml(text, str(path))


def parse_yaml(text: str, file: str) -> Document:
    """Parse one YAML document."""
    builder = _Builder(file, tuple(text.splitlines()))
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.feed(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        context = getattr(error, "context", None)
        message = f"not valid YAML: {what}" + (f" {context}" if context else "")
        raise InputError(builder.problem_at(mark, message)) from None
    if builder.problems:
        raise InputError(builder.problems)
    return Document(file, builder.root, builder.marks, builder.lines)


def parse_json(text: str, file: str) -> Document:
    """Parse JSON (with bare NaN and Infinity, as Python writes it)."""
    lines = tuple(text.splitlines())
    problems: list[Problem] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            seen: set[str] = set()
            for key, _ in pairs:
                if key in seen and len(problems) < MAX_PROBLEMS:
                    problems.append(_twice(key, file, lines))
                seen.add(key)
        return value

    try:
        value = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        excerpt = lines[error.lineno - 1] if error.lineno <= len(lines) else ""
        message = f"not valid JSON: {error.msg}"
        raise InputError(Problem(message, "", file, error.lineno, error.colno, excerpt)) from None
    except RecursionError:
        raise InputError(Problem("is nested too deeply", file=file)) from None
    except ValueError:  # Python's own limit
        raise InputError(Problem("has a whole number of thousands of digits", file=file)) from None
    _bounded(value, file)
    if problems:
        raise InputError(problems)
    return Document(file, value, {}, lines, json_text=text)


def _twice(key: str, file: str, lines: tuple[str, ...]) -> Problem:
    """The second of two equal keys; its line only when the whole text has just these two."""
    spots = [(number, found.start() + 1) for number, line in enumerate(lines, 1)
             for found in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", line)]  # fmt: skip
    message = f"key '{shortened(key)}' is given twice in one object"
    if len(spots) != 2:
        return Problem(message, "", file)
    return Problem(f"{message} (first on line {spots[0][0]})", "", file, *spots[1], lines[spots[1][0] - 1])


def _bounded(value: Any, file: str) -> None:
    """Refuse JSON that is nested too deeply or holds half of a surrogate pair, which no terminal can show."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.keys()
                inner += item.values()
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str) and not item.isascii() and any("\ud800" <= ch <= "\udfff" for ch in item):
                raise InputError(Problem(f"{shortened(ascii(item))} is no text: half of a surrogate pair", file=file))
        level = inner
        if not level:
            return
    raise InputError(Problem(f"is nested more than {MAX_DEPTH} deep", file=file))


def _json_lines(value: Any, lines: tuple[str, ...]) -> dict[Path_, int]:
    """Line of each top-level (and second-level) key, found by its quoted name: enough to point an error at."""
    places: dict[Path_, int] = {}
    if not isinstance(value, dict):
        return places
    first: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        for key in re.findall(r'"([^"\\]{1,80})"\s*:', line):
            first.setdefault(key, number)
    for key, inner in value.items():
        if key in first:
            places[(key,)] = first[key]
        if isinstance(inner, dict):
            places.update({(key, name): first[name] for name in inner if name in first})
    return places


class _Builder:
    """Builds plain values from YAML events, iteratively, noting the place of each."""

    def __init__(self, file: str, lines: tuple[str, ...]) -> None:
        self.file, self.lines = file, lines
        self.root: Any = None
        self.marks: dict[Path_, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self._stack: list[tuple[Any, Path_]] = []
        self._key: list[Any] = []
        self._documents = self._nodes = 0

    def problem_at(self, mark: Any, message: str, path: Path_ = ()) -> Problem:
        """A problem at a parser's mark."""
        if mark is None:
            return Problem(message, dotted(path), self.file)
        if mark.line >= len(self.lines) > 0:  # the end of the text
            return Problem(message, dotted(path), self.file, len(self.lines), len(self.lines[-1]) + 1, self.lines[-1])
        excerpt = self.lines[mark.line] if self.lines else ""
        return Problem(message, dotted(path), self.file, mark.line + 1, mark.column + 1, excerpt)

    def feed(self, event: Any) -> None:
        """Take the next event of the stream."""
        if isinstance(event, yaml.events.AliasEvent) or getattr(event, "anchor", None):
            raise InputError(self.problem_at(event.start_mark, "anchors and aliases are not read; write the value out"))
        if isinstance(event, yaml.events.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise InputError(self.problem_at(event.start_mark, "a second document ('---'); one per file is read"))
        elif isinstance(event, yaml.events.ScalarEvent):
            tag = event.tag
            if tag is not None and tag not in ("!", "tag:yaml.org,2002:str"):
                raise InputError(self.problem_at(event.start_mark, f"tags such as '{_tag(tag)}' are not read"))
            plain = event.implicit[0] and not event.style  # the C parser writes "", the Python one None
            self._place(_scalar(event.value) if plain else event.value, event)
        elif isinstance(event, yaml.events.MappingStartEvent | yaml.events.SequenceStartEvent):
            if event.tag is not None:
                raise InputError(self.problem_at(event.start_mark, f"tags such as '{_tag(event.tag)}' are not read"))
            container: Any = {} if isinstance(event, yaml.events.MappingStartEvent) else []
            path = self._place(container, event)
            if len(self._stack) >= MAX_DEPTH:
                raise InputError(self.problem_at(event.start_mark, f"is nested more than {MAX_DEPTH} deep"))
            self._stack.append((container, path))
            self._key.append(_NONE)
        elif isinstance(event, yaml.events.MappingEndEvent | yaml.events.SequenceEndEvent):
            self._stack.pop()
            self._key.pop()

    def _place(self, value: Any, event: Any) -> Path_:
        """Put a finished value (or an opened container) where it belongs; return its path."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InputError(self.problem_at(event.start_mark, f"more than {MAX_NODES:,} values"))
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        if not self._stack:
            self.root = value
            self.marks[()] = mark
            return ()
        parent, path = self._stack[-1]
        if isinstance(parent, list):
            parent.append(value)
            path = (*path, len(parent) - 1)
            self.marks[path] = mark
            return path
        if self._key[-1] is _NONE:
            if isinstance(value, dict | list):
                raise InputError(self.problem_at(event.start_mark, "a key must be a plain word", path))
            key = event.value if not isinstance(value, str) else value
            if key in parent and len(self.problems) < MAX_PROBLEMS:
                first = self.marks[(*path, key, "\0key")][0]
                message = f"key '{shortened(key)}' is given twice (first on line {first})"
                self.problems.append(self.problem_at(event.start_mark, message, path))
            self.marks[(*path, key, "\0key")] = mark
            self._key[-1] = key
            return path
        key = self._key[-1]
        self._key[-1] = _NONE
        parent[key] = value
        path = (*path, key)
        self.marks[path] = mark
        return path


_NONE = object()


def _tag(tag: str) -> str:
    return shortened(tag.replace("tag:yaml.org,2002:", "!!"), 50)


def _scalar(text: str) -> Any:
    """YAML 1.2 core schema of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) >= 40:  # no number of hardware; the patterns take long over a million digits
        return text
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text
