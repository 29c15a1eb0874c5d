"""A structure: one model under one plan on kinds of chips, packed once, whose points differ in numbers only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwmodel.chain import Chain, chain, unchained
from hwmodel.graph import Op, OpGraph
from hwmodel.kernels import columns as c
from hwmodel.kernels.resolve import FACTORS, TERMS, resolve
from hwmodel.kernels.sizes import sizes_of
from hwmodel.kernels.strip import KINDS, N_CONSTS, N_DIMS, Ops
from hwmodel.kernels.sweep import COMPUTE, LINK, MEMORY, MOVES, OVERHEAD, Entries, Sizes, Sums, Uses
from hwmodel.kernels.tokens import Way
from hwmodel.partition.data import Data, data_degrees
from hwmodel.placing import place
from hwmodel.routing import Routing
from hwmodel.scenario import Scenario
from hwmodel.stages import executions, stage_counts
from hwmodel.sweep.devices import Devices, Ends, devices
from hwmodel.sweep.energy import Slot, pack_uses
from hwmodel.sweep.footprint import Footprint, footprint
from hwmodel.timeline import MANY_ROUNDS, ROUNDS, Program, lane_of, program
from hwmodel.timing import Array, Ints, OpTable, pack, pack_dims
from hwmodel.workload import Workload

Spec = tuple[int, float, int, int, int, int, tuple[int, ...], bool]
"""Arguments of `Routing.bins` of an op with experts."""


@dataclass(frozen=True)
class Laws:
    """Dimensions to be resolved at every point, as `kernels.sizes` takes them."""

    symbols: tuple[str, ...]
    """Those that some size depends on; `which` counts them."""
    unit: Array
    coefficient: Array
    which: Ints
    power: Ints
    each: Ints

    @classmethod
    def of(cls, dims: list[tuple[Array, ...]], symbols: tuple[str, ...]) -> Laws:
        """From packed dimensions in terms of `symbols`."""
        if not dims:
            empty = np.zeros((0, TERMS)), np.zeros((0, TERMS, FACTORS), dtype=np.int64)
            return cls((), empty[0], empty[0], empty[1], empty[1], empty[1])
        unit, coefficient, which, power, each = (np.array(part) for part in zip(*dims, strict=True))
        used = np.unique(which[which >= 0])
        place = np.full(len(symbols) + 1, -1, dtype=np.int64)
        place[used] = np.arange(len(used))
        return cls(tuple(symbols[k] for k in used), unit, coefficient, place[which], power, each)

    def resolved(self, symbols: Array) -> Array:
        """Sizes at every point, (sizes, points); symbols : (symbols, points)."""
        out = np.empty((len(self.unit), symbols.shape[1]))
        sizes_of(symbols, self.unit, self.coefficient, self.which, self.power, self.each, out)
        return out


@dataclass(frozen=True)
class Structure:
    """What the points of one structure share."""

    scenario: Scenario
    graph: OpGraph
    table: OpTable
    order: Program
    chain: Chain | None
    ops: Ops
    sums: Sums
    uses: Uses
    way: Way
    slots: tuple[Slot, ...]
    """Sums of what uses energy."""
    sizes: Sizes
    laws: Laws
    """Of the sizes that vary; they come first in `constant`."""
    constant: Array
    specs: tuple[Spec, ...]
    """Bins of the ops with experts; number 0 of a routing's bins is none."""
    footprint: Footprint
    memory_laws: Laws
    devices: Devices
    names: tuple[str, ...]
    """What bounds are called, by code."""
    rows: tuple[str, ...]
    """Layer rows: segments with layers."""
    reasons: tuple[str, ...]
    """Why the plan cannot run at any number."""
    groups: tuple[tuple[str, int, str], ...]
    """(pool, chips of a group, what they are): a pool's count must be a multiple."""
    stated: tuple[tuple[str, int], ...]
    """(pool, data degree) that the plan states."""
    unique: Ints
    """Which of the ops that differ each op of the table is."""
    general: bool
    """Ops are priced by `timing.price`: some are corrected by measurements, or of a user's own kind."""
    _bins: dict[int, tuple[Array, Array, Array]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def reached(self) -> Ints:
        """An op of the table for each of those that differ."""
        return np.unique(self.unique, return_index=True)[1]

    def bins(self, routings: tuple[Routing, ...]) -> tuple[Array, Array, Array]:
        """Bins of every routing, (routings, bins, N_BINS, 2), log1p(-p) of each, and token-expert pairs of a token."""
        key = id(routings)
        if key not in self._bins:
            found = np.zeros((len(routings), 1 + len(self.specs), c.N_BINS, 2))
            for index, routing in enumerate(routings):
                for number, spec in enumerate(self.specs):
                    found[index, number + 1] = routing.bins(*spec)
            with np.errstate(divide="ignore"):
                self._bins[key] = found, np.log1p(-np.minimum(found[..., 0], 1.0)), found.prod(axis=-1).sum(axis=-1)
        return self._bins[key]


def structure(scenario: Scenario, ends: Ends | None = None) -> Structure:
    """Place, pack and take apart a scenario; `ends` are the ranges of the numbers of chips that vary.

    Raises
    ------
    InputError
        When the question cannot be priced at all.
    """
    graph = place(scenario)
    table = pack(graph, scenario.cluster, scenario.workload.routing)
    order = program(graph, table, 1)
    links = chain(order)
    blocks = links or unchained(order)
    general = bool(table.fits) or any(op.kind not in KINDS for op in table.ops)
    packed = _Packing(graph, table, scenario.workload, general)
    names = _names(scenario)
    derived = data_degrees(graph.degrees, scenario.cluster)[1]
    stated = tuple(
        (s.pool or scenario.cluster.pools[0].name, s.degree) for s in scenario.plan if isinstance(s, Data) and s.degree
    )
    reasons = tuple(r for r in graph.reasons if r not in derived and ": data degree " not in r)
    feet = footprint(graph, scenario)
    column = {name: index for index, name in enumerate(table.symbols)}
    rows = tuple(segment.name for segment in graph.segments if segment.first >= 0)
    ops, sums = packed.ops(), packed.sums(order, blocks, scenario, names, rows)
    slots, uses = pack_uses(graph, table, scenario.cluster, packed.unique)
    sizes = Sizes(
        len(order.lanes), len(scenario.cluster.pools), order.stages, len(names), len(rows),
        packed.expert_op, int(scenario.workload.phase == "prefill"), ROUNDS, MANY_ROUNDS, len(slots),
    )  # fmt: skip
    return Structure(
        scenario, graph, table, order, links, ops, sums, uses, blocks.way, slots, sizes, packed.laws(), packed.constant(),
        tuple(packed.specs), feet,
        Laws.of(list(zip(*pack_dims(feet.sizes, column), strict=True)) if feet.sizes else [], table.symbols),
        devices(table, scenario.cluster, ends or {}), names, rows, reasons,
        _groups(scenario, graph), stated,
        packed.unique, general,
    )  # fmt: skip


def with_routing(of: Structure, routing: Routing) -> OpTable:
    """The table of a structure under another routing."""
    bins = np.concatenate([np.zeros((1, c.N_BINS, 2)), *(routing.bins(*spec)[None] for spec in of.specs)])
    groups = tuple(
        replace(group, bins=bins[of.ops.bin[of.unique[group.rows]]]) if group.kind in ("experts", "load") else group
        for group in of.table.groups
    )
    return replace(of.table, groups=groups)


def _names(scenario: Scenario) -> tuple[str, ...]:
    tiers = dict.fromkeys(tier.tier for pool in scenario.cluster.pools for tier in pool.chip.memory)
    return ("compute", "link", "overhead", *(f"memory:{tier}" for tier in tiers))


def _groups(scenario: Scenario, graph: OpGraph) -> tuple[tuple[str, int, str], ...]:
    found = []
    for pool in scenario.cluster.pools:
        tp, cp, pp, ep, etp = (graph.degrees[f"{pool.name}.{kind}"] for kind in ("tp", "cp", "pp", "ep", "etp"))
        found.append((pool.name, tp * cp * pp, "tensor x context x pipeline"))
        if ep * etp > 1:
            found.append((pool.name, pp * ep * etp, "expert x tensor-in-expert x pipeline"))
    return tuple(group for group in found if group[1] > 1)


class _Packing:
    """Finds which ops of a table differ, and which sizes vary."""

    def __init__(self, graph: OpGraph, table: OpTable, workload: Workload, general: bool) -> None:
        self.graph, self.table, self.workload, self.general = graph, table, workload, general
        by_layer = workload.routing.kind == "measured"
        self.specs: dict[Spec, int] = {}
        self.dims: dict[tuple[bytes, ...], tuple[tuple[Array, ...], bool]] = {}
        self.rows: list[tuple[int, list[tuple[bytes, ...]], Array, Ints, int]] = []
        self.unique = np.zeros(len(table.ops), dtype=np.int64)
        varying = [index for index, name in enumerate(table.symbols) if name.endswith((".dp", ".edp")) or index in _NUMBERS]
        known: dict[tuple[object, ...], int] = {}
        place_ = {int(row): (group, j) for group in table.groups for j, row in enumerate(group.rows)}
        for position, op in enumerate(table.ops):
            group, j = place_[position]
            keys = []
            for d in range(group.unit.shape[1]):
                parts = (group.unit[j, d], group.coefficient[j, d], group.which[j, d], group.power[j, d], group.each[j, d])
                key = tuple(part.tobytes() for part in parts)
                self.dims.setdefault(key, (parts, bool(np.isin(group.which[j, d], varying).any())))
                keys.append(key)
            bin_ = self._bin(op, by_layer)
            same = (op.kind, tuple(keys), group.consts[j].tobytes(), group.where[j].tobytes(), bin_)
            key_ = (*same, position) if general else same
            if key_ not in known:
                known[key_] = len(known)
                kind = KINDS.index(op.kind) if op.kind in KINDS else 0
                self.rows.append((kind, keys, group.consts[j], group.where[j], bin_))
            self.unique[position] = known[key_]
        told = [position for position, op in enumerate(table.ops) if op.kind == "experts"]
        self.expert_op = int(self.unique[told[0]]) if told else -1

    def _bin(self, op: Op, by_layer: bool) -> int:
        if op.experts is None:
            return 0
        of, groups = op.experts, self.graph.degrees.get(f"{op.pool}.ep", 1)
        layers = tuple(n for n, which in enumerate(self.graph.sequence) if self.graph.segments[which].name == op.segment)
        spec = (of.total, of.topk, of.held, groups, of.first, of.redundant, layers if by_layer else (), of.ranked)
        return 1 + self.specs.setdefault(spec, len(self.specs))

    @property
    def _ordered(self) -> list[tuple[bytes, ...]]:
        """Varying sizes first."""
        return sorted(self.dims, key=lambda key: not self.dims[key][1])

    def laws(self) -> Laws:
        """The sizes that vary."""
        return Laws.of([self.dims[key][0] for key in self._ordered if self.dims[key][1]], self.table.symbols)

    def constant(self) -> Array:
        """Values of all sizes (those that vary: 0), and a zero for dimensions that a kind has not."""
        known = {**self.workload.symbols(), **self.graph.degrees}
        symbols = [float(known.get(name, 1)) for name in self.table.symbols]
        found = []
        for key in self._ordered:
            parts, varies = self.dims[key]
            found.append(0.0 if varies else _resolved(parts, symbols))
        return np.array([*found, 0.0])

    def ops(self) -> Ops:
        """The ops that differ, for the kernel."""
        slots = {key: index for index, key in enumerate(self._ordered)}
        slot = np.full((len(self.rows), N_DIMS), len(slots), dtype=np.int64)
        consts = np.zeros((len(self.rows), N_CONSTS))
        for index, (_, keys, own, _, _) in enumerate(self.rows):
            slot[index, : min(len(keys), N_DIMS)] = [slots[key] for key in keys[:N_DIMS]]
            consts[index, : min(len(own), N_CONSTS)] = own[:N_CONSTS]
        where = np.array([row[3] for row in self.rows])
        return Ops(np.array([row[0] for row in self.rows]), slot, consts, where, np.array([row[4] for row in self.rows]))

    def sums(self, order: Program, links: Chain, scenario: Scenario, names: tuple[str, ...], rows: tuple[str, ...]) -> Sums:
        """How they add up to a step."""
        graph, table, count = self.graph, self.table, len(self.rows)
        pools = [pool.name for pool in scenario.cluster.pools]
        held, layer, block = (dict[tuple[int, int], float]() for _ in range(3))
        rest = np.zeros(count)
        bound = np.full((count, c.N_TIERS + 1), MEMORY, dtype=np.int64)
        for position, op in enumerate(table.ops):
            u = int(self.unique[position])
            rest[u] += graph.segment(op.segment).count * op.repeats.value({})
            if op.segment in rows:
                _more(layer, (u, rows.index(op.segment)), op.repeats.value({}))
            if op.kind in ("transfer", "load"):
                continue
            for stage, counts in enumerate(stage_counts(graph)):
                beside = int(lane_of(op, graph.overlap) != op.pool)
                times = executions(graph, op, counts)
                _more(held, (u, (pools.index(op.pool) * order.stages + stage) * 2 + beside), times)
                rest[u] -= times
            for slot in range(-1, c.N_TIERS):
                of = [tier.tier for tier in scenario.cluster.pool(op.pool).chip.memory if tier.cache == (slot < 0)]
                if max(slot, 0) < len(of):
                    bound[u, slot + 1] = names.index(f"memory:{of[max(slot, 0)]}")
        for u in np.nonzero(np.abs(rest) > 1e-9)[0].tolist():
            held[u, 2 * len(pools) * order.stages] = float(rest[u])
        for task, times in enumerate(order.repeats.tolist()):
            into = int(np.searchsorted(links.blocks, task, side="right")) - 1
            _more(block, (int(self.unique[order.order[task]]), into), times)
        return Sums(
            _entries(block, count), _lanes(links, order.stages), _entries(held, count), _entries(layer, count), bound,
            self._wanted(bound, len(names)),
        )  # fmt: skip

    def _wanted(self, bound: Ints, names: int) -> NDArray[np.bool_]:
        """Which names an op may be bound by."""
        found = np.zeros((len(self.rows), names), dtype=bool)
        for u, (kind, _, _, where, _) in enumerate(self.rows):
            own = [LINK, OVERHEAD] if MOVES[kind] else [
                COMPUTE, OVERHEAD, *bound[u, [0, 1 + where[c.WEIGHT_TIER], 1 + where[c.CACHE_TIER]]].tolist(),
            ]  # fmt: skip
            found[u, range(names) if self.general else own] = True
        return found


def _more(found: dict[tuple[int, int], float], key: tuple[int, int], times: float) -> None:
    found[key] = found.get(key, 0.0) + times


def _entries(found: Mapping[tuple[int, int], float], count: int) -> Entries:
    """Entries from times by (op, sum)."""
    ordered = sorted(found)
    at = np.searchsorted(np.array([op for op, _ in ordered], dtype=np.int64), np.arange(count + 1))
    into = np.array([into for _, into in ordered], dtype=np.int64)
    return Entries(at, into, np.array([found[key] for key in ordered], dtype=np.float64))


def _lanes(of: Chain, stages: int) -> Entries:
    """Which blocks every lane of every stage runs, and in how many layers of a step."""
    found: dict[tuple[int, int], float] = {}
    for run, segment in enumerate(of.segment.tolist()):
        for block in range(of.first[segment], of.first[segment + 1]):
            _more(found, (int(of.stage[run]) * of.lanes + int(of.lane[block]), block), float(of.count[run]))
    return _entries(found, stages * of.lanes)


_NUMBERS = frozenset({0, 2, 3, 4, 5})
"""Positions of the workload symbols that vary: all but the new tokens of a decoding sequence."""


def _resolved(parts: tuple[Array, ...], symbols: list[float]) -> float:
    out = np.zeros((1, 1, 1))
    resolve(
        np.array([symbols]),
        parts[0][None, None],
        parts[1][None, None],
        parts[2][None, None],
        parts[3][None, None],
        parts[4][None, None],
        out,
    )
    return float(out[0, 0, 0])
