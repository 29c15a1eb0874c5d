"""The file of a sweep, and its axes: lists, ranges, powers of two, values with labels, axes that move together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from hwmodel.spec import units
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.spec.schema import Spec, shown
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.names import OBJECTIVES
from hwmodel.timing import Array

MAX_VALUES = 1_000_000
"""Values of one axis that are listed; a range that is drawn from at random lists none."""
_SHAPES = {"linear", "log", "powers_of_two"}
_RANGE = _SHAPES | {"points", "step", "whole"}


def _both() -> dict[str, Literal["max", "min"]]:
    return dict.fromkeys(OBJECTIVES, "max")


class Random(Spec):
    """Points drawn at random instead of every combination."""

    points: Annotated[int, Field(ge=1)]
    """How many."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    """Of the drawing: the same points every time."""


class SweepSpec(Spec):
    """The file of a sweep."""

    title: str = ""
    question: str = ""
    scenario: str = ""
    """Name or path of the scenario that the axes vary; or an axis `scenario` with several."""
    set: Annotated[dict[str, Any], Field(max_length=100, default_factory=dict)]
    """Values over those of the scenario, by path."""
    axes: Annotated[dict[str, Any], Field(min_length=1, max_length=40)]
    """By path of a scenario's value (chip numbers: cluster.pools.POOL.override.PATH): a list; {LABEL: value}; {linear: [a, b],
    points: n} or step:, {log: [a, b], points: n}, {powers_of_two: [a, b]}, with `whole: true` rounded to whole numbers. With
    `random` a range needs no points. An axis of a pool, link or strategy that a scenario has not leaves it alone."""
    zip: Annotated[tuple[tuple[str, ...], ...], Field(max_length=20)] = ()
    """Axes that move together, equally many values each."""
    random: Random | None = None
    where: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=50)] = ()
    """What a point must meet: comparisons of columns, such as ``tokens_per_s_per_user >= 20``."""
    objectives: Annotated[dict[str, Literal["max", "min"]], Field(min_length=1, max_length=4, default_factory=_both)]
    """Columns of the Pareto front."""
    interval: Annotated[int, Field(ge=0, le=1000)] = 48
    """Points of every plan whose range of time is computed exactly, to fit that of the others; 0: no ranges."""
    top: Annotated[int, Field(ge=0, le=10_000)] = 10
    """Best points by the last objective to keep beside the front."""


@dataclass(frozen=True)
class Axis:
    """One axis: its values, or the range it is drawn from."""

    path: str
    values: tuple[Any, ...] = ()
    """SI numbers, or what a structural axis sets."""
    labels: tuple[str, ...] = ()
    """How values that are no numbers are called."""
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    whole: bool = False

    @property
    def drawn(self) -> bool:
        """Whether it is a range to draw from."""
        return not self.values

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.drawn or all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    @property
    def ends(self) -> tuple[float, float]:
        """Smallest and largest number."""
        return (min(self.values), max(self.values)) if self.values else (self.low, self.high)

    def draw(self, part: Array) -> Array:
        """Values at shares of the range, from [0, 1)."""
        if self.log:
            found = np.exp(math.log(self.low) + part * (math.log(self.high) - math.log(self.low)))
        else:
            found = self.low + part * (self.high - self.low)
        return np.rint(found) if self.whole else found


def read_axis(path: str, raw: Any, dimension: str | None, document: Document, *, whole: bool, random: bool) -> Axis:
    """An axis from its part of the file.

    Parameters
    ----------
    dimension
        Of its numbers; None for an axis of words or blocks.

    Raises
    ------
    InputError
        At the place of the axis.
    """
    try:
        return _read(path, raw, dimension, whole=whole, random=random)
    except ValueError as error:
        raise InputError(document.problem(("axes", path), str(error))) from None


def _read(path: str, raw: Any, dimension: str | None, *, whole: bool, random: bool) -> Axis:
    if isinstance(raw, dict) and raw and set(raw) & _SHAPES:
        if dimension is None:
            raise ValueError("is no number, so that it has no range; list its values")
        return _range(path, raw, dimension, whole=whole, random=random)
    if isinstance(raw, dict):
        ranges = [str(key) for key, value in raw.items() if isinstance(value, list)]
        if dimension is not None and ranges:
            raise ValueError(f"'{shortened(ranges[0])}' is no kind of range{did_you_mean(ranges[0], _SHAPES)}")
        values, labels = list(raw.values()), [str(key) for key in raw]
    elif isinstance(raw, list):
        values, labels = raw, [_label(value) for value in raw]
    else:
        raise ValueError(f"expected a list, a range such as {{log: [1, 1000], points: 10}}, or labels, got {shown(raw)}")
    if not values:
        raise ValueError("has no values: the sweep would be empty")
    if dimension is not None:
        numbers = tuple(_number(value, dimension) for value in values)
        if whole and any(value != int(value) for value in numbers):
            raise ValueError("takes whole numbers")
        return Axis(path, numbers, tuple(labels))
    return Axis(path, tuple(values), tuple(labels))


def _label(value: Any) -> str:
    return shortened(str(value), 80)


def _number(raw: Any, dimension: str) -> float:
    if isinstance(raw, bool) or raw is None:
        raise ValueError(f"expected a number, got {shown(raw)}")
    value = float(units.parse(raw, dimension))
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, got {shown(raw)}")
    return value


def _range(path: str, raw: Mapping[str, Any], dimension: str, *, whole: bool, random: bool) -> Axis:
    unknown = sorted(set(raw) - _RANGE)
    if unknown:
        raise ValueError(f"unknown key '{shortened(str(unknown[0]))}' in a range{did_you_mean(unknown[0], _RANGE)}")
    shape, *more = sorted(set(raw) & _SHAPES)
    if more:
        raise ValueError(f"is both {shape} and {more[0]}; choose one")
    ends = raw[shape]
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError(f"{shape} needs two ends, such as [1, 1000], got {shown(ends)}")
    low, high = (_number(end, dimension) for end in ends)
    if low > high:
        raise ValueError(f"{shape} has its ends the wrong way round")
    if shape != "linear" and low <= 0:
        raise ValueError(f"{shape} starts at more than zero")
    whole = bool(raw.get("whole", whole))
    if shape == "powers_of_two":
        first, last = math.ceil(math.log2(low) - 1e-12), math.floor(math.log2(high) + 1e-12)
        if last < first:
            raise ValueError("has no power of two between its ends: the sweep would be empty")
        return Axis(path, tuple(float(2.0**n) for n in range(first, last + 1)))
    if "step" in raw or "points" in raw:
        return Axis(path, _listed(raw, shape, low, high, dimension, whole=whole))
    if not random:
        raise ValueError(f"{shape} needs points: how many, or step: (only with 'random' a range is drawn from)")
    return Axis(path, (), (), low, high, shape == "log", whole)


def _listed(raw: Mapping[str, Any], shape: str, low: float, high: float, dimension: str, *, whole: bool) -> tuple[float, ...]:
    if "step" in raw:
        step = _number(raw["step"], dimension)
        if shape == "log" or "points" in raw or step <= 0:
            raise ValueError("step is a positive number and goes with linear, without points")
        count = math.floor((high - low) / step + 1e-9) + 1
        if count > MAX_VALUES:
            raise ValueError(f"would have {count:,} values; at most {MAX_VALUES:,} are listed")
        return tuple(low + step * k for k in range(count))
    count = raw["points"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError(f"points is a whole number of at least 1, got {shown(count)}")
    if count > MAX_VALUES:
        raise ValueError(f"would have {count:,} values; at most {MAX_VALUES:,} are listed")
    found = np.geomspace(low, high, count) if shape == "log" else np.linspace(low, high, count)
    if whole:
        found = np.unique(np.rint(found))
    return tuple(float(value) for value in found)


def grouped(spec: SweepSpec, axes: Mapping[str, Axis], document: Document) -> tuple[tuple[str, ...], ...]:
    """Axes by what moves together; each group in the order of the file.

    Raises
    ------
    InputError
        For zipped axes that are no axes, stand in two groups, or differ in length.
    """
    problems: list[Problem] = []
    used: dict[str, int] = {}
    for index, group in enumerate(spec.zip):
        for path in group:
            if path not in axes:
                problems.append(document.problem(("zip", index), f"'{shortened(path)}' is no axis{did_you_mean(path, axes)}"))
            elif path in used:
                problems.append(document.problem(("zip", index), f"'{shortened(path)}' is zipped twice"))
            elif axes[path].drawn:
                problems.append(document.problem(("zip", index), f"'{path}' is a range without points; list its values"))
            used[path] = index
        counts = {len(axes[path].values) for path in group if path in axes}
        if len(counts) > 1:
            said = ", ".join(f"{path} has {len(axes[path].values)}" for path in group if path in axes)
            problems.append(document.problem(("zip", index), f"axes that move together need equally many values: {said}"))
    if problems:
        raise InputError(problems)
    found: list[tuple[str, ...]] = []
    for path in axes:
        group = spec.zip[used[path]] if path in used else (path,)
        if group not in found:
            found.append(tuple(group))
    return tuple(found)
