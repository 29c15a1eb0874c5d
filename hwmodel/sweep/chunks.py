"""A run of points priced and reduced: what is the same whoever does it, and whatever else is done beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.hardware import with_number
from hwmodel.routing import Routing
from hwmodel.spec.errors import InputError, Problem, did_you_mean
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep.constraints import Constraint, ConstraintError, read_constraint
from hwmodel.sweep.evaluate import Columns, columns
from hwmodel.sweep.interval import Fitted, exact, fit, share_names, with_ends
from hwmodel.sweep.names import FEASIBLE, POINT, REASON, TIME, with_range
from hwmodel.sweep.numbers import Numbers, parts_of
from hwmodel.sweep.pareto import best, front
from hwmodel.sweep.point import with_field
from hwmodel.sweep.space import Space
from hwmodel.sweep.structures import Structure, structure
from hwmodel.timing import Array, Ints

CHUNK = 32_768
"""Points of a chunk: its columns stay in the caches, and no more is lost when a process dies."""
Words = tuple[NDArray[np.int64], tuple[str, ...]]
"""Codes, and the word of each; code -1 is none."""
MAX_BENT = 4096
"""Values of numbers that the packed table does not follow in proportion, each of which is packed by itself."""


@dataclass(frozen=True)
class Table:
    """Columns of a run of points, in the order of the points."""

    point: Ints
    numbers: dict[str, Array]
    words: dict[str, Words]
    feasible: NDArray[np.bool_]

    def taken(self, where: Ints | NDArray[np.bool_]) -> Table:
        """Those of some points."""
        return Table(
            self.point[where], {k: v[where] for k, v in self.numbers.items()},
            {k: (v[0][where], v[1]) for k, v in self.words.items()}, self.feasible[where],
        )  # fmt: skip

    def row(self, index: int) -> dict[str, Any]:
        """One point as plain data; None for what is not known or does not apply."""
        return self.taken(np.array([index])).rows()[0]

    def rows(self) -> list[dict[str, Any]]:
        """Every point as plain data; whole numbers as such."""
        columns = [[*map(_plain, column)] if name in self.numbers else column for name, column in self.columns().items()]
        return [dict(zip(self.names, values, strict=True)) for values in zip(*columns, strict=True)]

    @property
    def inner(self) -> tuple[str, ...]:
        """Names of the columns of inputs and answers: numbers, then words."""
        return tuple(dict.fromkeys((*self.numbers, *self.words)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, in the order of rows and files."""
        return (POINT, *self.inner, FEASIBLE)

    def columns(self) -> dict[str, list[Any]]:
        """All columns, each a list of one value per point, None where nothing is known."""
        found: dict[str, list[Any]] = {POINT: self.point.tolist()}
        for name in self.inner:
            if name in self.words:
                codes, words = self.words[name]
                known = [*words, None]
                found[name] = [known[code] for code in codes.tolist()]
            else:
                found[name] = [None if math.isnan(value) else value for value in self.numbers[name].tolist()]
        return {**found, FEASIBLE: self.feasible.tolist()}


def _plain(value: float | None) -> float | int | None:
    return int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value


@dataclass(frozen=True)
class Reduced:
    """What a chunk leaves behind."""

    index: int
    evaluated: int
    feasible: int
    rejected: dict[str, int]
    """How many points each reason took out."""
    pareto: tuple[tuple[tuple[float, ...], dict[str, Any]], ...]
    """(objectives, the larger the better; row) of the points that no other of the chunk beats."""
    top: tuple[tuple[float, dict[str, Any]], ...]
    text: bytes = b""
    """Its part of the file, where one is written."""


@dataclass(frozen=True)
class Priced:
    """Points of a chunk as they were priced, structure by structure; put together as far as is asked for."""

    found: Table
    """Their inputs; no column of an answer."""
    parts: list[tuple[Ints, Columns]]
    """Which of the points, and their columns."""
    names: tuple[str, ...]
    words: tuple[str, ...]

    def column(self, name: str) -> Array:
        """A column of numbers, of an input or an answer; nan where it does not apply."""
        if name in self.found.numbers:
            return self.found.numbers[name]
        column = np.full(len(self.found.point), np.nan)
        for where, own in self.parts:
            if name in own.numbers:
                column[where] = own.numbers[name]
        return column

    def feasible(self) -> NDArray[np.bool_]:
        """Which points can run."""
        found = np.zeros(len(self.found.point), dtype=bool)
        for where, own in self.parts:
            found[where] = own.feasible
        return found

    def taken(self, points: Ints) -> Priced:
        """Those of some points."""
        place = np.full(len(self.found.point), -1, dtype=np.int64)
        place[points] = np.arange(len(points))
        parts = []
        for where, own in self.parts:
            inner = np.nonzero(place[where] >= 0)[0]
            if len(inner):
                parts.append((place[where[inner]], own.taken(inner)))
        return Priced(self.found.taken(points), parts, self.names, self.words)

    def table(self) -> Table:
        """All columns of all points."""
        found = Table(self.found.point, dict(self.found.numbers), dict(self.found.words), self.feasible())
        for name in self.names:
            found.numbers[name] = self.column(name)
        for name in self.words:
            found.words[name] = self._codes([(where, own.codes.get(name)) for where, own in self.parts], {}, -1)
        found.words[REASON] = self._codes([(where, own.reason) for where, own in self.parts], {"": 0}, 0)
        return found

    def _codes(self, parts: Sequence[tuple[Ints, Words | None]], known: dict[str, int], none: int) -> Words:
        codes = np.full(len(self.found.point), none, dtype=np.int64)
        for where, own in parts:
            if own is not None:
                codes[where] = np.array([known.setdefault(word, len(known)) for word in own[1]], dtype=np.int64)[own[0]]
        return codes, tuple(known)


@dataclass
class Pricer:
    """Prices chunks of a space; keeps what was packed."""

    space: Space
    constraints: tuple[Constraint, ...] = ()
    names: tuple[str, ...] = ()
    """Columns of numbers, in order."""
    words: tuple[str, ...] = ()
    intervals: dict[int, Fitted] = field(default_factory=dict)
    """Of every combination, where ranges are asked for."""
    _packed: dict[tuple[Any, ...], Structure] = field(default_factory=dict, repr=False)

    def table(self, chunk: int) -> tuple[Table, dict[str, int]]:
        """Columns of the points of a chunk that its inputs do not rule out, and how many they rule out by which reason."""
        priced, rejected = self.priced(chunk)
        return priced.table(), rejected

    def priced(self, chunk: int) -> tuple[Priced, dict[str, int]]:
        """As `table`, before the columns of its structures are put together."""
        space = self.space
        start, stop = chunk * CHUNK, min((chunk + 1) * CHUNK, space.points)
        places = space.places(chunk, start, stop)
        values = space.values(places)
        rejected: dict[str, int] = {}
        point = np.arange(start, stop, dtype=np.int64)
        for constraint in self.constraints:
            if all(name in values for name in constraint.columns):
                met = constraint.holds(values)
                if not met.all():
                    rejected[constraint.text] = int((~met).sum())
                    places = [place[met] for place in places]
                    values = {path: column[met] for path, column in values.items()}
                    point = point[met]
        which, routing = space.combination(places), space.routing(places)
        parts: list[tuple[Ints, Columns]] = []
        for combination in np.nonzero(np.bincount(which))[0].tolist():
            where = np.nonzero(which == combination)[0]
            parts += self._priced(combination, space.numbers(combination, values, routing), where)
        for _, own in parts:
            counts = np.bincount(own.reason[0], minlength=len(own.reason[1]))
            for word, count in zip(own.reason[1][1:], counts[1:].tolist(), strict=True):
                if count:
                    rejected[word] = rejected.get(word, 0) + count
        return Priced(self._inputs(point, values, which), parts, self.names, self.words), rejected

    def _inputs(self, point: Ints, values: Mapping[str, Array], which: Ints) -> Table:
        """The inputs of points of these combinations."""
        found = Table(point, dict(values), {}, np.zeros(len(point), dtype=bool))
        for path in values:
            if not self.space.axes[path].numeric:
                found.numbers.pop(path)
                found.words[path] = (values[path].astype(np.int64), self.space.axes[path].labels)
        for path in self.space.fields:
            applies = np.array([path in c.fields for c in self.space.combinations])
            if not applies.all():
                found.numbers[path] = np.where(applies[which], found.numbers[path], np.nan)
        return found

    def _priced(self, combination: int, own: Numbers, where: Ints) -> list[tuple[Ints, Columns]]:
        """Those points of one combination by structure."""
        routings = self.space.routings or (self.space.combinations[combination].scenario.workload.routing,)
        fitted = self.intervals.get(combination)
        found = []
        for place, of, part in self.grouped(combination, own, where):
            priced = columns(of, part, routings)
            found.append((place, replace(priced, numbers=with_ends(priced.numbers, fitted))))
        return found

    def grouped(self, combination: int, own: Numbers, among: Ints) -> list[tuple[Ints, Structure, Numbers]]:
        """Points of one combination by structure: more or fewer chips may exchange tokens another way.

        Of each structure those with equally many micro-batches stand together: the kernel takes them side by side.
        """
        base = self._structure(combination, (), {}, {})
        own_parts = own.cuts(among)
        parts = parts_of(own_parts, base.scenario, base.graph)
        code = np.zeros(len(among), dtype=np.int64)
        for pool, count in own_parts.counts.items():
            code = 4 * code + _sign(base, pool, count)
        bent = [own.chips[key][among] for key in base.devices.bends]
        if bent:
            kinds, inverse = np.unique(np.array([code, *bent]).T, axis=0, return_inverse=True)
            code = inverse.reshape(-1)
            if len(kinds) > MAX_BENT:
                said = ", ".join(f"{pool}: {path}" for pool, path in base.devices.bends)
                raise InputError(
                    f"numbers that bend a time ({said}) are packed one by one: list fewer than {MAX_BENT:,} values"
                )
        # those of one structure by micro-batches: small whole numbers are sorted in one pass
        most = int(parts.max(initial=1.0)) + 1
        key = code * most + parts.astype(np.int64)
        order = np.argsort(key.astype(np.uint16) if key.max(initial=0) < 2**16 else key, kind="stable")
        found = []
        for inner in np.split(order, np.cumsum(np.bincount(code))[:-1]):
            if not len(inner):
                continue
            where = among[inner]
            part = own.taken(where)
            counts = {pool: int(values[0]) for pool, values in part.counts.items()}
            chips = {key: float(part.chips[key][0]) for key in base.devices.bends}
            signs = (float(_sign(base, pool, values[:1])[0]) for pool, values in part.counts.items())
            found.append((where, self._structure(combination, (*signs, *chips.values()), counts, chips), part))
        return found

    def _structure(
        self, combination: int, key: tuple[float, ...], counts: Mapping[str, int], chips: Mapping[tuple[str, str], float]
    ) -> Structure:
        own = (combination, key)
        if own not in self._packed:
            scenario = self.space.combinations[combination].scenario
            ends = {
                (f.of, f.path): self.space.axes[path].ends
                for path, f in self.space.combinations[combination].fields.items()
                if f.kind == "chip" and (f.of, f.path) not in chips
            }  # fmt: skip
            self._packed[own] = structure(_counted(scenario, counts, chips), ends)
        return self._packed[own]

    def reduced(self, chunk: int, write: Any = None) -> Reduced:
        """Price a chunk and keep what counts; `write` makes bytes of its table."""
        priced, rejected = self.priced(chunk)
        good = priced.feasible()
        for constraint in self.constraints:
            if not all(name in self.space.axes for name in constraint.columns):
                met = constraint.holds({name: priced.column(name) for name in constraint.columns})
                if (good & ~met).any():
                    rejected[constraint.text] = int((good & ~met).sum())
                good &= met
        objectives = self.space.spec.objectives
        count, where = len(priced.found.point), np.nonzero(good)[0]
        values = np.empty((len(where), len(objectives)))
        for k, (name, way) in enumerate(objectives.items()):
            values[:, k] = priced.column(name)[where] * (1.0 if way == "max" else -1.0)
        fronts, tops = front(values), best(values[:, -1], self.space.spec.top)
        kept = np.unique(np.concatenate([fronts, tops]))
        rows = dict(zip(kept.tolist(), priced.taken(where[kept]).table().rows(), strict=True))
        return Reduced(
            chunk, count, len(where), rejected, tuple((tuple(values[k].tolist()), rows[k]) for k in fronts.tolist()),
            tuple((float(values[k, -1]), rows[k]) for k in tops.tolist()), b"" if write is None else write(priced.table()),
        )  # fmt: skip


def _sign(of: Structure, pool: str, count: Array) -> Ints:
    """What of a pool's size changes the plan: whether tokens and experts are spread over groups of its chips."""
    tp, cp, pp, ep, etp = (of.graph.degrees[f"{pool}.{kind}"] for kind in ("tp", "cp", "pp", "ep", "etp"))
    dense, expert = tp * cp * pp, pp * (ep * etp if ep * etp > 1 else tp * cp)
    return (count >= 2 * dense).astype(np.int64) + 2 * (count >= 2 * expert)


def _counted(scenario: Any, counts: Mapping[str, int], chips: Mapping[tuple[str, str], float]) -> Any:
    """The scenario with other pool sizes and chip numbers."""
    pools = []
    for pool in scenario.cluster.pools:
        chip = pool.chip
        for (name, path), value in chips.items():
            if name == pool.name:
                chip = with_number(chip, path, value)
        pools.append(replace(pool, count=counts.get(pool.name, pool.count), chip=chip))
    return replace(scenario, cluster=replace(scenario.cluster, pools=tuple(pools)))


def fitted_intervals(made: Pricer) -> dict[int, Fitted]:
    """Ranges of time of every combination, fitted to points drawn for it."""
    space = made.space
    found = {}
    for combination in range(len(space.combinations) if space.spec.interval else 0):
        places = space.sample(combination, space.spec.interval)
        values, routing = space.values(places), space.routing(places)
        fields = space.combinations[combination].fields
        shares: dict[int, list[float]] = {}
        logs: dict[int, tuple[float, float]] = {}
        routings = space.routings or (space.combinations[combination].scenario.workload.routing,)
        names: tuple[str, ...] = ()
        for where, of, part in made.grouped(combination, space.numbers(combination, values, routing), np.arange(len(routing))):
            priced = columns(of, part, routings).numbers
            names = names or share_names(priced, tuple(pool.name for pool in of.scenario.cluster.pools))
            for k, point in enumerate(where.tolist()):
                scenario = space.combinations[combination].scenario
                for path, own in fields.items():
                    scenario = with_field(scenario, own, float(values[path][point]))
                one = part.taken(np.array([k]))
                parts = int(priced["micro_batches"][k])
                logs[point] = exact(of, scenario, one, routings[int(routing[point])], parts)
                shares[point] = [float(priced[name][k] / priced[TIME][k]) if name in priced else 0.0 for name in names]
        order = sorted(logs)
        found[combination] = fit(names, np.array([shares[k] for k in order]), np.array([logs[k] for k in order]))
    return found


def pricer(space: Space, document: Document | None = None, intervals: dict[int, Fitted] | None = None) -> Pricer:
    """A pricer that knows its columns, with the constraints read; `intervals` where they are fitted already.

    Raises
    ------
    InputError
        For a constraint that cannot be read, and an objective that is no column.
    """
    made = Pricer(space)
    names: dict[str, None] = {}
    words: dict[str, None] = {}
    for combination in range(len(space.combinations)):
        of = made._structure(combination, (), {}, {})
        empty = columns(of, space.numbers(combination, _first(space), np.zeros(1, dtype=np.int64)), space.routings or _own(of))
        names.update(dict.fromkeys(with_range(empty.numbers) if space.spec.interval else empty.numbers))
        words.update(dict.fromkeys(empty.codes))
    made.names, made.words = tuple(names), tuple(words)
    document = document or Document(space.name, {}, {}, ())
    known = [*(path for path, axis in space.axes.items() if axis.numeric), *names]
    problems: list[Problem] = []
    found = []
    for index, text in enumerate(space.spec.where):
        try:
            found.append(read_constraint(text, known, [*made.words, *space.axes]))
        except ConstraintError as error:
            problems.append(document.problem(("where", index), str(error)))
    for name in space.spec.objectives:
        if name not in names:
            message = f"objective '{name}' is no column of numbers{did_you_mean(name, names)}"
            problems.append(document.problem(("objectives", name), message, at_key=True))
    if problems:
        raise InputError(problems)
    made.constraints = tuple(found)
    made.intervals = fitted_intervals(made) if intervals is None else intervals
    return made


def _own(of: Structure) -> tuple[Routing, ...]:
    return (of.scenario.workload.routing,)


def _first(space: Space) -> dict[str, Array]:
    return {path: np.array([axis.ends[0] if path in space.fields else 0.0]) for path, axis in space.axes.items()}


def merged(fronts: Iterable[tuple[tuple[float, ...], dict[str, Any]]]) -> list[tuple[tuple[float, ...], dict[str, Any]]]:
    """The front of several fronts, in the order of the points."""
    rows = sorted(fronts, key=lambda item: item[1][POINT])
    if not rows:
        return []
    return [rows[k] for k in front(np.array([values for values, _ in rows]))]
