"""Constraints of a sweep: comparisons of named columns, read by a grammar of its own; nothing is evaluated as code.

constraint = sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)
sum        = product (("+" | "-") product)*
product    = value (("*" | "/") value)*
value      = number [unit] | column | "(" sum ")" | "-" value

Both sides of a comparison and of a sum have one dimension, as far as units and the names of columns tell it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.spec import units
from hwmodel.spec.errors import did_you_mean, shortened
from hwmodel.timing import Array

MAX_DEPTH = 20
_NEVER = re.compile(r"(?!)")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_UNIT = re.compile(r"\s*([A-Za-z%$µ]+)(/[A-Za-z]+)?")
_WORD = re.compile(r"[A-Za-z_][\w.]*")
_SIGN = re.compile(r"<=|>=|==|!=|[<>+*/()-]")
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
MEANT = {"=": "==", "≤": "<=", "≥": ">=", "≠": "!=", "×": "*", "÷": "/"}
JOINED = ("and", "or", "not")
DIMENSIONS = {"_bytes": "bytes", "bandwidth": "bytes_per_s", "capacity": "bytes", "latency": "s", "watts": "watts"}
"""Of columns, by how their names end; those that end in _s and not in per_s are times."""
Columns = Mapping[str, Array]


@dataclass(frozen=True)
class Node:
    """A part of a comparison: what it is worth at every point, and its dimension, empty when not known."""

    of: Callable[[Columns], Any]
    dimension: str = ""
    fixed: bool = False
    """Whether it reads no column."""


class ConstraintError(ValueError):
    """What is wrong with a constraint, and where in it."""

    def __init__(self, text: str, at: int, message: str) -> None:
        plain = "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in text)
        super().__init__(f"{message} (at character {at + 1} of '{shortened(plain, 80)}')")


@dataclass(frozen=True)
class Constraint:
    """A comparison; `columns` are those it reads."""

    text: str
    columns: tuple[str, ...]
    _holds: Callable[[Columns], Any]

    def holds(self, columns: Columns) -> NDArray[np.bool_]:
        """Where it is met; nowhere for a value that is not known (nan). columns : (points,) each."""
        with np.errstate(all="ignore"):
            return np.asarray(self._holds(columns), dtype=bool)


def read_constraint(text: str, known: Iterable[str], words: Iterable[str] = ()) -> Constraint:
    """A constraint from its text.

    known : columns of numbers; words : other columns, which no comparison reads

    Raises
    ------
    ConstraintError
        With the character where reading stopped, and the nearest known column for an unknown one.
    """
    return _Reader(text, frozenset(known), frozenset(words)).constraint()


class _Reader:
    def __init__(self, text: str, known: frozenset[str], words: frozenset[str]) -> None:
        self.text, self.known, self.words = text, known, words
        names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
        self.name = re.compile(rf"(?:{names})(?![\w.])") if known else _NEVER
        self.tokens: list[tuple[str, str, int]] = []
        self.dimensions: dict[int, str] = {}
        """Of numbers with a unit, by the place of their token."""
        self.at = 0
        self.used: list[str] = []
        place = 0
        while text[place:].strip():
            place += len(text[place:]) - len(text[place:].lstrip())
            place = self.token(place)
        self.tokens.append(("end", "", len(text)))

    def token(self, place: int) -> int:
        """Read the token that starts at a place; where the next one may start."""
        for kind, pattern in (("name", self.name), ("number", _NUMBER), ("name", _WORD), ("op", _SIGN)):
            if found := pattern.match(self.text, place):
                word, end = found[0], found.end()
                if kind == "number":
                    word, end, self.dimensions[place] = self.quantity(word, end)
                    if not math.isfinite(float(word)):
                        raise ConstraintError(self.text, place, "is no finite number")
                self.tokens.append((kind, word, place))
                return end
        sign = self.text[place]
        meant = f", did you mean '{MEANT[sign]}'?" if sign in MEANT else ""
        quoted = "; names of columns stand without quotes, and words are not compared" if sign in "'\"`" else ""
        raise ConstraintError(self.text, place, f"cannot read {shortened(repr(sign))}{meant}{quoted}")

    def quantity(self, word: str, end: int) -> tuple[str, int, str]:
        """A number in SI with the unit that may follow it, where it ends, and its dimension."""
        unit = _UNIT.match(self.text, end)
        if unit is None or self.name.match(self.text, unit.start(1)):
            return word, end, ""
        for spelling, stop in ((unit[1] + (unit[2] or ""), unit.end()), (unit[1], unit.end(1))):
            for dimension, known in units.UNITS.items():
                if spelling in known:
                    return repr(float(word) * known[spelling]), stop, dimension.replace("number", "")
        joined = "; one comparison a line" if unit[1] in JOINED else ""
        raise ConstraintError(self.text, unit.start(1), f"'{shortened(unit[1], 40)}' is neither a unit nor a column{joined}")

    def wrong(self, message: str) -> ConstraintError:
        return ConstraintError(self.text, self.tokens[self.at][2], message)

    def take(self, *words: str) -> str:
        kind, word, _ = self.tokens[self.at]
        if kind == "op" and word in words:
            self.at += 1
            return word
        return ""

    def constraint(self) -> Constraint:
        left = self.sum(0)
        sign = self.take(*_COMPARE)
        if not sign:
            raise self.wrong("expected a comparison: <, <=, >, >=, == or !=")
        at = self.at
        right = self.sum(0)
        if self.tokens[self.at][0] != "end":
            raise self.wrong(f"expected the end, got '{shortened(self.tokens[self.at][1], 30)}'; one comparison a line")
        compare = _COMPARE[sign]
        if not self.used:
            raise ConstraintError(self.text, 0, "compares no column")
        self.alike(left, right, at)
        for side, place in ((left, 0), (right, at)):
            with np.errstate(all="ignore"):
                if side.fixed and not np.isfinite(side.of({})):
                    raise ConstraintError(self.text, self.tokens[place][2], "is no finite number")
        known = tuple(dict.fromkeys(self.used))

        def holds(columns: Columns) -> Any:
            one, other = left.of(columns), right.of(columns)
            return compare(one, other) & ~np.isnan(one) & ~np.isnan(other)

        return Constraint(self.text, known, holds)

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while sign := self.take("+", "-"):
            at, other = self.at, self.product(depth)
            node = _both(operator.add if sign == "+" else operator.sub, node, other, self.alike(node, other, at))
        return node

    def alike(self, one: Node, other: Node, at: int) -> str:
        """The dimension that two sides share, the second from the token `at`; ConstraintError when they have not the same."""
        if one.dimension and other.dimension and one.dimension != other.dimension:
            pair = f"{_UNIT_OF[one.dimension]} and {_UNIT_OF[other.dimension]}"
            raise ConstraintError(self.text, self.tokens[at][2], f"{pair} cannot be compared or added")
        return one.dimension or other.dimension

    def product(self, depth: int) -> Node:
        node = self.value(depth)
        while sign := self.take("*", "/"):
            other = self.value(depth)
            plain = other.fixed and not other.dimension  # three times a time is a time
            node = _both(operator.mul if sign == "*" else operator.truediv, node, other, node.dimension if plain else "")
        return node

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.wrong("is nested too deeply")
        if self.take("-"):
            inner = self.value(depth + 1)
            return Node(lambda columns: -inner.of(columns), inner.dimension, inner.fixed)
        if self.take("("):
            inner = self.sum(depth + 1)
            if not self.take(")"):
                raise self.wrong("expected ')'")
            return inner
        kind, word, _ = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            number = np.float64(word)
            return Node(lambda columns: number, self.dimensions[self.tokens[self.at - 1][2]], fixed=True)
        if kind == "name":
            if word in self.words and word not in self.known:
                raise self.wrong(f"column '{shortened(word, 40)}' holds words; only numbers are compared")
            if word not in self.known:
                raise self.wrong(f"no column '{shortened(word, 40)}'{did_you_mean(word, self.known)}")
            self.at += 1
            self.used.append(word)
            return Node(lambda columns: columns[word], dimension_of(word))
        raise self.wrong("expected a number or a column")


def _both(make: Callable[[Any, Any], Any], left: Node, right: Node, dimension: str) -> Node:
    return Node(lambda columns: make(left.of(columns), right.of(columns)), dimension, left.fixed and right.fixed)


_UNIT_OF = {"bytes": "bytes", "bytes_per_s": "bytes per second", "s": "a time", "watts": "a power"}


def dimension_of(column: str) -> str:
    """The dimension of a column as far as its name tells it; empty when it does not."""
    last = column.rpartition(".")[2]
    if last.endswith("_s") and not last.endswith("per_s"):
        return "s"
    return next((dimension for end, dimension in DIMENSIONS.items() if last.endswith(end)), "")
