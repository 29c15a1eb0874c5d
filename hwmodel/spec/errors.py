"""Two exception classes: one for users' mistakes, one for ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One mistake in an input, with its place as far as it is known."""

    message: str
    path: str = ""
    """Dotted path inside the file, such as ``memory[0].bandwidth``."""
    file: str = ""
    line: int | None = None
    """1-based line; ``None`` when the place in the text is unknown."""
    column: int | None = None
    excerpt: str = ""
    """The source line the problem is on."""

    def __str__(self) -> str:
        place = shortened(self.file, 300)
        if place and self.line is not None:
            place += f":{self.line}:{self.column}"
        text = ": ".join(part for part in (place, shortened(self.path, 300), shortened(self.message, 2000)) if part)
        if self.excerpt and self.column is not None:
            shown, start = _window(self.excerpt, self.column - 1)
            text += f"\n    {shown}\n    {' ' * start}^"
        return text


def shortened(text: str, width: int = 60) -> str:
    """The text on one line, without control characters, its middle cut out beyond `width`."""
    if len(text) > 5 * width:
        text = text[: 4 * width] + text[-width:]
    text = "".join(ch if ch.isprintable() else " " if ch in "\n\t" else "\N{REPLACEMENT CHARACTER}" for ch in text)
    return text if len(text) <= width else f"{text[: width * 2 // 3]}...{text[-(width // 4) :]}"


def _window(line: str, column: int, width: int = 110) -> tuple[str, int]:
    """Cut a long source line to the part around `column`."""
    far = max(0, column - 2 * width)  # lines of a megabyte are cut before anything else
    line, column = line[far : far + 4 * width], column - far
    line = "".join(ch if ch.isprintable() else " " for ch in line)
    if len(line) <= width:
        return line, column
    left = max(0, min(column - width // 2, len(line) - width))
    return line[left : left + width], column - left


class InputError(Exception):
    """A user's mistake: every problem found in the input, each with its place.

    Never raised for a broken invariant of the program itself.
    """

    def __init__(self, problems: Problem | str | Iterable[Problem]) -> None:
        if isinstance(problems, str):
            problems = Problem(problems)
        found = [problems] if isinstance(problems, Problem) else list(problems)
        if len({problem.file for problem in found}) == 1 and all(problem.line is not None for problem in found):
            found.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        self.problems: tuple[Problem, ...] = tuple(found)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InternalError(Exception):
    """A broken invariant: a bug of this program, never the user's fault."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """``, did you mean 'x'?`` for the nearest known word, else the list of known words (short lists only)."""
    names = sorted(set(known))
    said = str(word)[:200]
    begun = [name for name in names if len(said) > 2 and name.startswith(said)]  # h200: h200_sxm rather than gh200
    begun = begun or [name for name in names if len(said) > 2 and name.endswith(f".{said}")]  # batch: workload.batch
    near = [min(begun, key=len)] if begun else difflib.get_close_matches(said, names, n=1, cutoff=0.6)
    if near:
        return f", did you mean '{near[0]}'?"
    if names and len(names) <= 24:
        return f" (known: {', '.join(names)})"
    return ""
