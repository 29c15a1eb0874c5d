"""One number of a scenario and the values it takes: ``workload.context=4096..131072``, ``model=llama-3.1-70b,qwen3-32b``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwmodel.scenario import Scenario, scenario_from
from hwmodel.settings import override
from hwmodel.spec import catalog, units, yamlfile
from hwmodel.spec.errors import InputError, did_you_mean, shortened
from hwmodel.spec.yamlfile import Document

POINTS = 8
"""Values of a range, evenly spaced in logarithms."""
MOST = 64
"""Values of a list."""
TPOT = "tpot"
"""The path that stands for the target itself."""
_NUMBER = re.compile(r"\s*(\d[\d_]*\.?\d*(?:[eE][-+]?\d+)?)\s*(.*?)\s*")


@dataclass(frozen=True)
class Axis:
    """A path and its values, as a command line gives them."""

    path: str
    values: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    """The values in the unit they are written in; empty when they are words."""
    unit: str = ""
    whole: bool = False
    """Whether only whole numbers are meant."""

    def text(self, number: float) -> str:
        """A number between two values as the file would state it."""
        return f"{number:.0f}" if self.whole else f"{number:.9g} {self.unit}".strip()


def axis(text: str) -> Axis:
    """Read ``PATH=LOW..HIGH`` (eight values, evenly spaced in logarithms) or ``PATH=A,B,C``.

    Raises
    ------
    InputError
        When there is no path, no value, or a range that is none.
    """
    path, equals, raw = text.partition("=")
    path = path.strip()
    where = f"'{shortened(text, 80)}'"
    if not equals or not path or not raw.strip():
        raise InputError(f"expected PATH=LOW..HIGH or PATH=A,B,C, such as workload.context=4096..131072; got {where}")
    if ".." in raw:
        return _range(path, raw, where)
    if re.fullmatch(r"\s*[\d.]+\s*-\s*[\d.]+.*", raw):
        raise InputError(f"{path}: a range is LOW..HIGH, with two dots: '{raw.strip().replace('-', '..', 1)}'; got {where}")
    values = tuple(part.strip() for part in raw.split(",") if part.strip())
    if len(values) > MOST:
        raise InputError(f"{path}: {len(values)} values are more than {MOST}")
    return _listed(path, values)


def _range(path: str, raw: str, where: str) -> Axis:
    ends = [_NUMBER.fullmatch(part) for part in raw.split("..")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise InputError(f"expected LOW..HIGH, two numbers with the same unit, such as 4096..131072; got {where}")
    low, high = (float(end[1].replace("_", "")) for end in ends if end)
    unit = ends[1][2] or ends[0][2]
    if ends[0][2] not in ("", unit):
        raise InputError(f"{path}: both ends of a range need the same unit, got '{ends[0][2]}' and '{unit}'")
    if not 0 < low < high:
        raise InputError(f"{path}: expected a range from a smaller to a larger number above 0, got {where}")
    whole = not unit and low == int(low) and high == int(high) and "." not in raw.replace("..", "")
    steps = [low * (high / low) ** (n / (POINTS - 1)) for n in range(POINTS)]
    numbers = list(dict.fromkeys(float(round(step)) if whole else float(f"{step:.4g}") for step in steps))
    numbers[0], numbers[-1] = low, high
    shape = Axis(path, (), tuple(numbers), unit, whole)
    return replace(shape, values=tuple(shape.text(number) for number in numbers))


def _listed(path: str, values: tuple[str, ...]) -> Axis:
    found = [_NUMBER.fullmatch(value) for value in values]
    if len({match[2] for match in found if match}) > 1 or not all(found):
        return Axis(path, values)
    numbers = tuple(float(match[1].replace("_", "")) for match in found if match)
    if list(numbers) != sorted(set(numbers)):
        return Axis(path, values)
    unit = next(match[2] for match in found if match)
    whole = not unit and all(number == int(number) for number in numbers) and not any("." in value for value in values)
    return Axis(path, values, numbers, unit, whole)


@dataclass(frozen=True)
class Question:
    """A scenario that is not read yet, so that settings can still be put over it."""

    name: str
    document: Document
    settings: tuple[str, ...] = ()

    def has(self, path: str) -> bool:
        """Whether a number of that path can be this scenario's: a pool of another one is not."""
        parts = path.split(".")
        return parts[:2] != ["cluster", "pools"] or len(parts) < 3 or parts[2] in self.pools

    @property
    def pools(self) -> list[str]:
        """Names of its pools, as its file states them."""
        value: Any = self.document.value
        for part in ("cluster", "pools"):
            value = value.get(part) if isinstance(value, Mapping) else None
        return [str(name) for name in value] if isinstance(value, Mapping) else []

    def scenario(self, settings: Sequence[str] = ()) -> Scenario:
        """The scenario, under its own name, with further settings over it.

        Raises
        ------
        InputError
            Every problem of the file and of the settings.
        """
        return scenario_from(override(self.document, [*self.settings, *settings]), self.name)

    def each(self, over: Axis) -> list[Question]:
        """One question for every value, named after it.

        Raises
        ------
        InputError
            When the path names a pool that the scenario does not have.
        """
        unknown_pool([self], over.path)
        return [replace(self, name=_stem(value), settings=(*self.settings, f"{over.path}={value}")) for value in over.values]


def unknown_pool(questions: Sequence[Question], path: str) -> None:
    """Refuse a path to a pool that none of the questions has: it would add one that nothing uses."""
    if not any(each.has(path) for each in questions):
        pool, known = path.split(".")[2], dict.fromkeys(name for each in questions for name in each.pools)
        names = ", ".join(each.name for each in questions)
        raise InputError(f"{path}: no pool '{shortened(pool)}' in {names}{did_you_mean(pool, known)}")


def question(name: str, settings: Sequence[str] = ()) -> Question:
    """A scenario by name or path, with settings over it."""
    return Question(_stem(name), yamlfile.load(catalog.find("scenarios", name)), tuple(settings))


def _stem(name: str) -> str:
    base = Path(name).name
    return next((base.removesuffix(suffix) for suffix in catalog.SUFFIXES if base.endswith(suffix)), base)


def seconds(text: str, option: str) -> float:
    """A time in s, more than 0.

    Raises
    ------
    InputError
        For anything else, naming the option.
    """
    try:
        found = float(units.parse(text.strip(), "s"))
    except ValueError as error:
        raise InputError(f"{option}: {str(error).replace(units.example('s'), '20 ms')}") from None
    if found <= 0:
        raise InputError(f"{option}: a target must be more than 0 s")
    return found


def targets(text: str, *names: str) -> dict[str, float]:
    """``tpot=20ms,ttft=1s`` in s, by name.

    Raises
    ------
    InputError
        For other names than these, and for what is no time.
    """
    found = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name.casefold() not in names or not value:
            forms = " or ".join(f"{each}=TIME" for each in names)
            raise InputError(f"--slo: expected {forms}, such as {names[0]}=20ms; got '{shortened(part)}'")
        found[name.casefold()] = seconds(value, "--slo")
    return found


def tpot_target(text: str) -> float:
    """``tpot=20ms`` in s; InputError for anything else."""
    return targets(text, "tpot")["tpot"]
