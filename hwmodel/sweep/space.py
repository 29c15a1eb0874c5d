"""A design space: which scenarios it holds, how many points, and the numbers of any run of points."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from hwmodel.hardware import unfit
from hwmodel.routing import Routing
from hwmodel.scenario import Scenario, scenario_from
from hwmodel.settings import put
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, Problem, shortened
from hwmodel.spec.schema import build
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.axes import Axis, SweepSpec, grouped, read_axis
from hwmodel.sweep.numbers import WORKLOAD_FIELDS, Numbers
from hwmodel.timing import Array, Ints

MAX_POINTS = 10**10
"""Three hours at a million a second."""
MAX_COMBINATIONS, MAX_ROUTINGS = 4096, 4096
"""Of values that change what is packed; of routings."""
MICRO = re.compile(r"plan\.(\d+)\.(?:disaggregate\.micro_batches|micro_batch\.count)")
WIRES = {"bandwidth": "bandwidth_bytes_per_s", "latency": "latency_s", "efficiency": "efficiency"}


@dataclass(frozen=True)
class Field:
    """What a number of a point is: workload, count, reserve, chip, wire or micro, and which."""

    kind: str
    of: str = ""
    path: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return self.kind in ("workload", "count", "micro")


def field_of(path: str) -> Field | None:
    """The number that a path names; None for what changes the structure or the routing."""
    parts = path.split(".")
    if parts[0] == "workload" and len(parts) == 2 and parts[1] in WORKLOAD_FIELDS:
        return Field("workload", parts[1])
    if parts[:2] == ["cluster", "pools"] and len(parts) >= 4:
        if parts[3] in ("count", "memory_reserve") and len(parts) == 4:
            return Field("count" if parts[3] == "count" else "reserve", parts[2])
        if parts[3] == "override" and len(parts) > 4:
            return Field("chip", parts[2], ".".join(parts[4:]))
    if parts[:2] == ["cluster", "links"] and len(parts) == 4 and parts[2].isdigit() and parts[3] in WIRES:
        return Field("wire", parts[2], WIRES[parts[3]])
    return Field("micro", found[1]) if (found := MICRO.fullmatch(path)) else None


@dataclass(frozen=True)
class Combination:
    """One value of everything that changes what is packed."""

    scenario: Scenario
    fields: Mapping[str, Field]
    """The axes of numbers that this scenario has, by path."""


@dataclass(frozen=True)
class Space:
    """A sweep with everything in it resolved."""

    name: str
    spec: SweepSpec
    text: str
    """What the sweep is, for its fingerprint: all of its files' contents that matter."""
    axes: Mapping[str, Axis]
    groups: tuple[tuple[str, ...], ...]
    fields: Mapping[str, Field]
    combinations: tuple[Combination, ...]
    routings: tuple[Routing, ...]
    points: int
    _steps: Mapping[str, int] = field(default_factory=dict)

    @property
    def structural(self) -> tuple[int, ...]:
        """Groups with an axis that changes what is packed."""
        return tuple(g for g, group in enumerate(self.groups) if any(_structural(path) for path in group))

    def places(self, chunk: int, start: int, stop: int) -> list[Ints | Array]:
        """For each group the index of its value at every point, or a share of the range it is drawn from.

        Of the points from `start` to `stop`; the same for the same chunk wherever it is made.
        """
        count = stop - start
        if self.spec.random is not None:
            draw = np.random.default_rng([self.spec.random.seed, chunk])
            return [
                draw.random(count) if self.axes[group[0]].drawn else draw.integers(0, self.size(group), count)
                for group in self.groups
            ]
        found: list[Ints | Array] = []
        index, below = np.arange(start, stop, dtype=np.int64), self.points
        for group in self.groups:
            below //= self.size(group)
            found.append(index // below % self.size(group))
        return found

    def sample(self, combination: int, count: int) -> list[Ints | Array]:
        """Some points of one combination, drawn at random: always the same."""
        draw = np.random.default_rng([combination, 2**40])
        left, own = combination, dict[int, int]()
        for g in reversed(self.structural):
            left, own[g] = divmod(left, self.size(self.groups[g]))
        return [
            np.full(count, own[g]) if g in own
            else draw.random(count) if self.axes[group[0]].drawn else draw.integers(0, self.size(group), count)
            for g, group in enumerate(self.groups)
        ]  # fmt: skip

    def size(self, group: tuple[str, ...]) -> int:
        """Values of a group of axes."""
        return len(self.axes[group[0]].values)

    def values(self, places: Sequence[Ints | Array]) -> dict[str, Array]:
        """The numbers of every axis, (points,); of an axis of words the index of its value."""
        found: dict[str, Array] = {}
        for group, place in zip(self.groups, places, strict=True):
            for path in group:
                axis = self.axes[path]
                if axis.drawn:
                    found[path] = axis.draw(np.asarray(place, dtype=np.float64))
                elif axis.numeric:
                    found[path] = np.array(axis.values, dtype=np.float64)[place]
                else:
                    found[path] = place.astype(np.float64)
        return {path: found[path] for path in self.axes}

    def combination(self, places: Sequence[Ints | Array]) -> Ints:
        """Which combination every point has."""
        return self._mixed(places, self.structural)

    def routing(self, places: Sequence[Ints | Array]) -> Ints:
        """Which routing every point has."""
        return self._mixed(places, _routing_groups(self.groups))

    def _mixed(self, places: Sequence[Ints | Array], groups: Sequence[int]) -> Ints:
        found = np.zeros(len(places[0]), dtype=np.int64)
        for g in groups:
            found = found * self.size(self.groups[g]) + places[g].astype(np.int64)
        return found

    def numbers(self, which: int, values: Mapping[str, Array], routing: Ints) -> Numbers:
        """The numbers of points of one combination."""
        tables: dict[str, dict[Any, Array]] = {kind: {} for kind in ("workload", "count", "reserve", "chip", "wire")}
        micro = None
        for path, own in self.combinations[which].fields.items():
            if own.kind == "micro":
                micro = values[path] if micro is None else np.maximum(micro, values[path])
            else:
                key: Any = (own.of, own.path) if own.kind == "chip" else own.of
                tables[own.kind][(int(own.of), own.path) if own.kind == "wire" else key] = values[path]
        return Numbers(
            len(routing), tables["workload"], tables["count"], tables["reserve"], tables["chip"], tables["wire"], micro, routing
        )


def _structural(path: str) -> bool:
    return field_of(path) is None and not path.startswith("workload.routing.")


def _routing_groups(groups: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    return tuple(g for g, group in enumerate(groups) if any(path.startswith("workload.routing.") for path in group))


def load_space(name: str) -> Space:
    """A sweep by name or path.

    Raises
    ------
    InputError
        Every problem of the file and of its scenarios, each with its place; more points than can be priced.
    """
    document = yamlfile.load(catalog.find("sweeps", name))
    return space_from(document, name.rpartition("/")[2].removesuffix(".yaml"))


def space_from(document: Document, name: str) -> Space:
    """A sweep from a parsed document."""
    spec = build(SweepSpec, document)
    random = spec.random is not None
    problems: list[Problem] = []
    first: dict[str, Axis] = {}
    for path, raw in spec.axes.items():
        own = field_of(path)
        if own is None:
            try:
                number = path == "workload.routing.s"
                first[path] = read_axis(path, raw, "number" if number else None, document, whole=False, random=False)
            except InputError as error:
                problems += error.problems
    if problems:
        raise InputError(problems)
    made = _combinations(spec, first, document)
    axes: dict[str, Axis] = {}
    for path, raw in spec.axes.items():
        try:
            axes[path] = first.get(path) or _number_axis(path, raw, made, document, random=random)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    groups = grouped(spec, axes, document)
    sizes = [len(axes[group[0]].values) for group in groups]
    points = spec.random.points if spec.random else prod(sizes)
    if points > MAX_POINTS:
        raise InputError(document.problem(("random", "points") if random else ("axes",), _too_many(points)))
    ordered = _ordered(spec, axes, groups, made, document)
    fields = {path: own for path in axes if (own := field_of(path))}
    return Space(
        name, spec, repr((spec.model_dump(), [repr(c.scenario) for c in ordered])), axes, groups, fields, ordered,
        _routings(axes, groups, ordered, document), points,
    )  # fmt: skip


def _too_many(points: int) -> str:
    digits = len(str(points))
    shown = f"{points:,}" if digits < 20 else f"10^{digits - 1}"
    points = min(points, 10**300)
    hours = points / 1e6 / 3600
    long = f"{hours / 8760:,.3g} years" if hours > 1e5 else f"{hours:,.0f} hours"
    return (
        f"{shown} points would take about {long} at a million a second and {points * 400 / 1e12:,.3g} TB on disk; "
        f"at most {MAX_POINTS:,}: take fewer values, or draw some with 'random: {{points: 1000000}}'"
    )


Made = dict[tuple[int, ...], Scenario]


def _combinations(spec: SweepSpec, axes: Mapping[str, Axis], document: Document) -> Made:
    """The scenario of every combination of values of the axes that change what is packed (in the order of the axes)."""
    structural = [path for path in axes if _structural(path)]
    zipped = [tuple(p for p in group if p in structural) for group in spec.zip]
    groups = [g for g in zipped if g] + [(path,) for path in structural if not any(path in g for g in zipped)]
    count = prod(min(len(axes[path].values) for path in group) for group in groups)
    if count > MAX_COMBINATIONS:
        message = f"{count:,} combinations of {', '.join(structural)} are packed one by one; at most {MAX_COMBINATIONS:,}"
        raise InputError(document.problem(("axes",), message))
    found: Made = {}
    problems: list[Problem] = []
    for choice in product(*(range(min(len(axes[path].values) for path in group)) for group in groups)):
        index = {path: k for group, k in zip(groups, choice, strict=True) for path in group}
        try:
            found[tuple(index[path] for path in structural)] = _scenario(spec, axes, index, document)
        except InputError as error:
            problems += [p for p in error.problems if p not in problems]
            if len(problems) > 20:
                break
    if problems:
        raise InputError(problems)
    return found


def _scenario(spec: SweepSpec, axes: Mapping[str, Axis], index: Mapping[str, int], document: Document) -> Scenario:
    name = axes["scenario"].values[index["scenario"]] if "scenario" in index else spec.scenario
    if not name or not isinstance(name, str):
        raise InputError(document.problem(("scenario",), "name the scenario that the axes vary"))
    try:
        base = yamlfile.load(catalog.find("scenarios", name))
    except InputError as error:
        at = ("axes", "scenario") if "scenario" in index else ("scenario",)
        raise InputError([p if p.line else document.problem(at, _plain(p)) for p in error.problems]) from None
    for path, value in spec.set.items():
        base = _put(base, path, value, document, ("set", path))
    for path, k in index.items():
        if path != "scenario" and _has(base.value, path):
            base = _put(base, path, axes[path].values[k], document, ("axes", path))
    try:
        return scenario_from(base, shortened(name, 60))
    except InputError as error:
        raise InputError([_placed(problem, spec, document) for problem in error.problems]) from None


def _placed(problem: Problem, spec: SweepSpec, document: Document) -> Problem:
    """A problem of a value that the sweep put into a scenario, at its place in the sweep's file."""
    for part, paths in (("axes", spec.axes), ("set", spec.set)):
        if problem.line is None and problem.file in paths:
            return document.problem((part, problem.file), problem.message)
    return problem


def _plain(problem: Problem) -> str:
    return ": ".join(text for text in (problem.file, problem.message) if text)


def _put(base: Document, path: str, value: Any, document: Document, at: tuple[str, ...]) -> Document:
    try:
        return put(base, path, value, path)
    except InputError as error:
        raise InputError(document.problem(at, error.problems[0].message)) from None


def _has(value: Any, path: str) -> bool:
    """Whether a scenario has the pool, link or strategy that a path is about."""
    parts = path.split(".")
    if parts[:2] == ["cluster", "pools"] and len(parts) > 2:
        return parts[2] in value.get("cluster", {}).get("pools", {})
    if parts[:2] == ["cluster", "links"] and len(parts) > 3:
        return int(parts[2]) < len(value.get("cluster", {}).get("links") or ()) if parts[2].isdigit() else True
    if parts[0] == "plan" and len(parts) > 2 and parts[1].isdigit():
        plan = value.get("plan") or []
        return int(parts[1]) < len(plan) and isinstance(plan[int(parts[1])], dict) and parts[2] in plan[int(parts[1])]
    return True


def _number_axis(path: str, raw: Any, made: Made, document: Document, *, random: bool) -> Axis:
    own = field_of(path) or Field("")
    dimension = _dimension(own, made)
    if dimension is None:
        message = f"no scenario of the sweep has {_said(own)}"
        raise InputError(document.problem(("axes", path), message, at_key=True))
    axis = read_axis(path, raw, dimension, document, whole=own.whole, random=random)
    for end in axis.ends:
        if wrong := _wrong(own, end):
            raise InputError(document.problem(("axes", path), f"{wrong}, got {end:g}"))
    return axis


def _said(own: Field) -> str:
    if own.kind == "chip":
        return f"a pool '{own.of}' whose chip has a number '{shortened(own.path)}'"
    if own.kind == "wire":
        return f"a link number {own.of}"
    return f"strategy number {own.of} of that kind" if own.kind == "micro" else f"a pool '{shortened(own.of)}'"


def _dimension(own: Field, made: Made) -> str | None:
    """The dimension of a number; None when no scenario has it."""
    known = [scenario for scenario in made.values() if applies(own, scenario)]
    if not known:
        return None
    if own.kind == "chip":
        return known[0].cluster.pool(own.of).chip.dimension(own.path)
    return {"bandwidth_bytes_per_s": "bytes_per_s", "latency_s": "s"}.get(own.path, "number")


def applies(own: Field, scenario: Scenario) -> bool:
    """Whether a scenario has a number."""
    pools = {pool.name: pool for pool in scenario.cluster.pools}
    if own.kind in ("count", "reserve"):
        return own.of in pools
    if own.kind == "chip":
        return own.of in pools and own.path in dict(pools[own.of].chip.numbers())
    if own.kind == "wire":
        return int(own.of) < len(scenario.cluster.wires)
    if own.kind == "micro":
        return int(own.of) < len(scenario.plan) and scenario.plan[int(own.of)].kind in ("disaggregate", "micro_batch")
    return True


def _wrong(own: Field, value: float) -> str:
    """What is wrong with a value of a number; empty when nothing."""
    if own.kind == "chip":
        return unfit(own.path, value) or ("must not be negative" if value < 0 else "")
    if own.kind == "wire":
        return unfit(own.path.removesuffix("_bytes_per_s"), value) or ("must not be negative" if value < 0 else "")
    if own.kind == "reserve":
        return "" if 0 <= value < 1 else "must be a share of the memory, less than 100 %"
    low, high = (0 if own.of == "cached" else 1), (128 if own.kind == "micro" else 10**9)
    return "" if low <= value <= high else f"must be from {low} to {high:,}"


def _ordered(
    spec: SweepSpec, axes: Mapping[str, Axis], groups: Sequence[tuple[str, ...]], made: Made, document: Document
) -> tuple[Combination, ...]:
    """Combinations as `Space.combination` counts them."""
    structural = [path for path in spec.axes if _structural(path)]
    own = [group for group in groups if any(path in structural for path in group)]
    fields = {path: f for path in axes if (f := field_of(path))}
    found = []
    for choice in product(*(range(len(axes[group[0]].values)) for group in own)):
        index = {path: k for group, k in zip(own, choice, strict=True) for path in group}
        scenario = made[tuple(index[path] for path in structural)]
        here = {path: f for path, f in fields.items() if applies(f, scenario)}
        if any(f.kind == "micro" for f in here.values()):
            scenario = _uncut(scenario, [int(f.of) for f in here.values() if f.kind == "micro"])
        found.append(Combination(scenario, here))
    return tuple(found)


def _uncut(scenario: Scenario, strategies: list[int]) -> Scenario:
    """The scenario whose varied strategies cut the batch into one part: the points say how many."""
    plan = [
        one.model_copy(update={"count" if one.kind == "micro_batch" else "micro_batches": 1}) if n in strategies else one
        for n, one in enumerate(scenario.plan)
    ]
    return replace(scenario, plan=tuple(plan))


def _routings(
    axes: Mapping[str, Axis], groups: Sequence[tuple[str, ...]], made: Sequence[Combination], document: Document
) -> tuple[Routing, ...]:
    """Every routing, as `Space.routing` counts them."""
    own = [groups[g] for g in _routing_groups(groups)]
    if not own:
        return ()
    count = prod(len(axes[group[0]].values) for group in own)
    if count > MAX_ROUTINGS:
        raise InputError(document.problem(("axes",), f"{count:,} routings are too many; at most {MAX_ROUTINGS:,}"))
    base = made[0].scenario.workload.routing.model_dump()
    found = []
    for choice in product(*(range(len(axes[group[0]].values)) for group in own)):
        values = {
            path.removeprefix("workload.routing."): axes[path].values[k]
            for group, k in zip(own, choice, strict=True) for path in group if path.startswith("workload.routing.")
        }  # fmt: skip
        found.append(build(Routing, Document(document.file, {**base, **values}, {}, ())))
    return tuple(found)
