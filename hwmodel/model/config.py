"""Reading a config's keys: types and ranges checked, alternatives tried, every problem kept, unread keys known."""

from __future__ import annotations

from typing import Any

from hwmodel.spec.errors import InputError, Problem, did_you_mean
from hwmodel.spec.yamlfile import Document, Path_

MAX_LAYERS = 2_000
MAX_WIDTH = 10_000_000
MAX_VOCAB = 100_000_000
MAX_EXPERTS = 100_000
MAX_KINDS = 400
"""Different layers, each lowered and placed on its own."""
_MOST = 100
_REQUIRED: Any = object()
_USUAL = ("intermediate_size", "num_experts")
"""Of keys with many names, the ones to ask for."""


class Config:
    """The keys of a config.json, or of its text part first and its top level second.

    A wrong value is noted as a problem and a harmless stand-in is returned, so that one reading finds every mistake;
    `check` raises them.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self._read: set[str] = set()
        top = document.value
        if not isinstance(top, dict):
            got = "nothing" if top is None else f"a {type(top).__name__}"
            raise InputError(document.problem((), f"expected an object of keys to values (a config.json), got {got}"))
        self.levels: list[tuple[Path_, dict[str, Any]]] = [((), top)]
        """Path and keys of each level, the text part first."""
        for name in ("text_config", "llm_config", "language_config"):
            inner = top.get(name)
            if isinstance(inner, dict):
                self.levels.insert(0, ((name,), inner))
                self._read.add(name)

    def find(self, *names: str) -> tuple[Path_, Any]:
        """Path and value of the first of these keys that is there and not null; the value is None when none is."""
        self._read.update(names)
        for name in names:
            for path, level in self.levels:
                if level.get(name) is not None:
                    return (*path, name), level[name]
        return (names[0],), None

    def has(self, *names: str) -> bool:
        """Whether any of these keys is there and not null."""
        return self.find(*names)[1] is not None

    def place(self, name: str) -> Path_:
        """Path of a key, at whichever level it is."""
        return self.find(name)[0]

    def problem(self, path: Path_, message: str) -> None:
        """Note a mistake; the first hundred are kept."""
        if len(self.problems) < _MOST:
            self.problems.append(self.document.problem(path, message))

    def warn(self, message: str) -> None:
        """Note something the reader of the counts should know."""
        if message not in self.warnings:
            self.warnings.append(message)

    def check(self) -> None:
        """Raise the problems found so far, if any."""
        if self.problems:
            raise InputError(list(dict.fromkeys(self.problems)))

    def number(self, *names: str, default: int = _REQUIRED, low: int = 1, high: int = MAX_WIDTH) -> int:
        """Read a whole number between `low` and `high` under the first of these names; required without a default."""
        path, value = self.find(*names)
        if value is None:
            if default is not _REQUIRED:
                return default
            usual = next((name for name in names if name in _USUAL), names[0])
            others = [name for name in names if name != usual][:4]
            also = f" (or {', '.join(repr(name) for name in others)})" if others else ""
            self.problem((), f"missing key '{usual}'{also}")
            return low
        return self.whole(path, value, low, high)

    def optional(self, *names: str, low: int = 1, high: int = MAX_WIDTH) -> int | None:
        """Read a whole number, or None when the key is absent or null."""
        path, value = self.find(*names)
        return None if value is None else self.whole(path, value, low, high)

    def whole(self, path: Path_, value: Any, low: int, high: int) -> int:
        """Check one value: a whole number in range, or a problem and `low`."""
        if isinstance(value, bool) or not isinstance(value, int):
            self.problem(path, f"expected a whole number, got {_shown(value)}")
            return low
        if not low <= value <= high:
            self.problem(path, f"expected a whole number from {low:,} to {high:,}, got {_shown(value)}")
            return low
        return value

    def flag(self, *names: str, default: bool = False) -> bool:
        """Read true or false."""
        path, value = self.find(*names)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.problem(path, f"expected true or false, got {_shown(value)}")
            return default
        return value

    def text(self, *names: str, default: str = "") -> str:
        """Read a word."""
        path, value = self.find(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            self.problem(path, f"expected a word in quotes, got {_shown(value)}")
            return default
        return value

    def items(self, name: str, length: int | None = None, at_least: bool = False) -> list[Any] | None:
        """Read a list, of `length` entries (or more) when given; None when the key is absent."""
        path, value = self.find(name)
        if value is None:
            return None
        if not isinstance(value, list):
            self.problem(path, f"expected a list, got {_shown(value)}")
            return None
        if length is not None and len(value) != length and not (at_least and len(value) > length):
            self.problem(path, f"has {len(value)} entries for {length} layers")
            return None
        return value

    def whole_items(
        self, name: str, length: int | None = None, low: int = 0, high: int = MAX_WIDTH, at_least: bool = False
    ) -> list[int] | None:
        """Read a list of whole numbers."""
        found = self.items(name, length, at_least)
        path = self.find(name)[0]
        return None if found is None else [self.whole((*path, i), v, low, high) for i, v in enumerate(found)]

    def mapping(self, name: str) -> dict[str, Any]:
        """Read an object; empty when the key is absent."""
        path, value = self.find(name)
        if value is not None and not isinstance(value, dict):
            self.problem(path, f"expected an object of keys to values, got {_shown(value)}")
        return value if isinstance(value, dict) else {}

    def unread(self) -> list[tuple[Path_, str]]:
        """Keys that nothing has asked for, with their places."""
        return [((*path, key), key) for path, level in self.levels for key in level if key not in self._read]

    def nearest(self, key: str) -> str:
        """``, did you mean 'x'?`` when a key that was asked for is spelt almost alike and absent."""
        absent = [name for name in self._read if all(name not in level for _, level in self.levels)]
        hint = did_you_mean(key, absent)
        return hint if "did you mean" in hint else ""

    def ignore(self, *names: str) -> None:
        """Mark keys as understood although their values do not matter here."""
        self._read.update(names)


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a number of over 40 digits"
    return text if len(text) <= 60 else text[:57] + "..."
