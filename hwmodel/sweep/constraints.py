"""Constraints of a sweep: comparisons of named columns, read by a grammar of its own; nothing is evaluated as code.

constraint = sum (("<" | "<=" | ">" | ">=" | "==" | "!=") sum)
sum        = product (("+" | "-") product)*
product    = value (("*" | "/") value)*
value      = number [unit] | column | "(" sum ")" | "-" value
"""

from __future__ import annotations

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
Columns = Mapping[str, Array]
Node = Callable[[Columns], Any]


class ConstraintError(ValueError):
    """What is wrong with a constraint, and where in it."""

    def __init__(self, text: str, at: int, message: str) -> None:
        super().__init__(f"{message} (at character {at + 1} of '{shortened(text, 80)}')")


@dataclass(frozen=True)
class Constraint:
    """A comparison; `columns` are those it reads."""

    text: str
    columns: tuple[str, ...]
    _holds: Node

    def holds(self, columns: Columns) -> NDArray[np.bool_]:
        """Where it is met; nowhere for a value that is not known (nan). columns : (points,) each."""
        with np.errstate(all="ignore"):
            return np.asarray(self._holds(columns), dtype=bool)


def read_constraint(text: str, known: Iterable[str]) -> Constraint:
    """A constraint from its text.

    Raises
    ------
    ConstraintError
        With the character where reading stopped, and the nearest known column for an unknown one.
    """
    return _Reader(text, frozenset(known)).constraint()


class _Reader:
    def __init__(self, text: str, known: frozenset[str]) -> None:
        self.text, self.known = text, known
        names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
        self.name = re.compile(rf"(?:{names})(?![\w.])") if known else _NEVER
        self.tokens: list[tuple[str, str, int]] = []
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
                    word, end = self.quantity(word, end)
                self.tokens.append((kind, word, place))
                return end
        raise ConstraintError(self.text, place, f"cannot read {shortened(repr(self.text[place]))}")

    def quantity(self, word: str, end: int) -> tuple[str, int]:
        """A number in SI with the unit that may follow it, and where it ends."""
        unit = _UNIT.match(self.text, end)
        if unit is None or self.name.match(self.text, unit.start(1)):
            return word, end
        for spelling, stop in ((unit[1] + (unit[2] or ""), unit.end()), (unit[1], unit.end(1))):
            for known in units.UNITS.values():
                if spelling in known:
                    return repr(float(word) * known[spelling]), stop
        raise ConstraintError(self.text, unit.start(1), f"'{shortened(unit[1], 40)}' is neither a unit nor a column")

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
        right = self.sum(0)
        if self.tokens[self.at][0] != "end":
            raise self.wrong(f"expected the end, got '{shortened(self.tokens[self.at][1], 30)}'; one comparison a line")
        compare = _COMPARE[sign]
        if not self.used:
            raise ConstraintError(self.text, 0, "compares no column")
        known = tuple(dict.fromkeys(self.used))

        def holds(columns: Columns) -> Any:
            one, other = left(columns), right(columns)
            return compare(one, other) & ~np.isnan(one) & ~np.isnan(other)

        return Constraint(self.text, known, holds)

    def sum(self, depth: int) -> Node:
        node = self.product(depth)
        while sign := self.take("+", "-"):
            node = _both(operator.add if sign == "+" else operator.sub, node, self.product(depth))
        return node

    def product(self, depth: int) -> Node:
        node = self.value(depth)
        while sign := self.take("*", "/"):
            node = _both(operator.mul if sign == "*" else operator.truediv, node, self.value(depth))
        return node

    def value(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.wrong("is nested too deeply")
        if self.take("-"):
            inner = self.value(depth + 1)
            return lambda columns: -inner(columns)
        if self.take("("):
            inner = self.sum(depth + 1)
            if not self.take(")"):
                raise self.wrong("expected ')'")
            return inner
        kind, word, _ = self.tokens[self.at]
        if kind == "number":
            self.at += 1
            number = np.float64(word)
            return lambda columns: number
        if kind == "name":
            if word not in self.known:
                raise self.wrong(f"no column '{shortened(word, 40)}'{did_you_mean(word, self.known)}")
            self.at += 1
            self.used.append(word)
            return lambda columns: columns[word]
        raise self.wrong("expected a number or a column")


def _both(make: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    return lambda columns: make(left(columns), right(columns))
