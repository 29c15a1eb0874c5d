"""Pack a placed graph into arrays once, price it at many points.

This is the seam: objects stop here. A point is one row of symbols (workload and degrees) and, where chip parameters vary,
one slice of the device array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hwmodel import exchange
from hwmodel.calibration import Fit, corrections
from hwmodel.graph import WORKLOAD, Dim, Op, OpGraph
from hwmodel.hardware import Chip, Cluster, Link, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.kernels.correction import N_AXES, correct
from hwmodel.kernels.resolve import FACTORS, TERMS, resolve
from hwmodel.model.dtypes import WIDEST
from hwmodel.routing import Experts, Routing
from hwmodel.spec.errors import InputError, InternalError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """The ops of one kind."""

    kind: str
    rows: Ints
    """Their positions in the table."""
    unit: Array
    coefficient: Array
    which: Ints
    power: Ints
    each: Ints
    consts: Array
    where: Ints
    bins: Array


@dataclass(frozen=True)
class OpTable:
    """A placed graph as flat arrays."""

    ops: tuple[Op, ...]
    symbols: tuple[str, ...]
    groups: tuple[Group, ...]
    device_rows: tuple[str, ...]
    """Pools, ways between pools, then pools as a measured kind of op finds them."""
    fits: tuple[tuple[str, Fit], ...]
    """(pool, fit) of the last of those rows."""
    notes: tuple[str, ...]

    @cached_property
    def fitted(self) -> Ints:
        """Which of `fits` each op rests on, -1 for none; shape (ops,)."""
        found = np.full(len(self.ops), -1, dtype=np.int64)
        for group in self.groups:
            found[group.rows] = np.maximum(group.where[:, c.ROW] - (len(self.device_rows) - len(self.fits)), -1)
        return found

    @cached_property
    def measured(self) -> tuple[bool, ...]:
        """Whether an op of each group rests on a fit."""
        return tuple(bool((self.fitted[group.rows] >= 0).any()) for group in self.groups)

    @cached_property
    def corrections(self) -> tuple[Array, Ints, Ints, Array]:
        """The grids of `fits` as `correct` reads them."""
        found = corrections([fit for _, fit in self.fits])
        return found.knots, found.lengths, found.starts, found.values

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each op by name."""
        return {op.name: position for position, op in enumerate(self.ops)}


def pack(graph: OpGraph, cluster: Cluster, routing: Routing, *, warm: int = 0) -> OpTable:
    """Flatten a placed graph.

    Parameters
    ----------
    warm
        Operands that fit the on-chip cache are found there, as in a benchmark that repeats one op.

    Raises
    ------
    InputError
        When a chip multiplies none of the types an op can run in.
    """
    ops = tuple(graph.ops())
    symbols = (*WORKLOAD, *sorted(graph.degrees))
    column = {name: index for index, name in enumerate(symbols)}
    notes: list[str] = []
    fits = measured_fits(ops, cluster, notes)
    rows = (*device_rows(graph, cluster), *fits)
    by_kind: dict[str, list[int]] = {}
    for position, op in enumerate(ops):
        by_kind.setdefault(op.kind, []).append(position)
    groups = []
    for kind, positions in sorted(by_kind.items()):
        module = kinds()[kind]
        chosen = [ops[position] for position in positions]
        packed = [pack_dims([op.dims[name] for name in module.DIMS], column) for op in chosen]
        unit, coefficient, which, power, each = (np.array(part) for part in zip(*packed, strict=True))
        consts = np.array([[op.consts[name] for name in module.CONSTS] for op in chosen], dtype=np.float64)
        where = np.array([_where(op, cluster, rows, warm, notes) for op in chosen], dtype=np.int64)
        bins = np.array([_bins(op, graph, routing) for op in chosen])
        groups.append(
            Group(
                kind,
                np.array(positions),
                unit,
                coefficient,
                which,
                power,
                each,
                consts.reshape(len(chosen), -1),
                where,
                bins,
            )
        )
    return OpTable(ops, symbols, tuple(groups), rows, tuple(fits.values()), tuple(dict.fromkeys(notes)))


def pack_dims(dims: Sequence[Dim], column: Mapping[str, int]) -> tuple[Array, Array, Ints, Ints, Ints]:
    """Symbolic sizes as `resolve` takes them, without its axis of ops; `column` is the place of every symbol."""
    unit = np.zeros((len(dims), TERMS))
    coefficient = np.zeros((len(dims), TERMS))
    which = np.full((len(dims), TERMS, FACTORS), -1, dtype=np.int64)
    power = np.zeros((len(dims), TERMS, FACTORS), dtype=np.int64)
    each = np.zeros_like(power)
    for d, dim in enumerate(dims):
        if len(dim.terms) > TERMS:
            raise InternalError(f"a dimension of {len(dim.terms)} terms; {TERMS} are packed: {dim}")
        for t, term in enumerate(dim.terms):
            unit[d, t], coefficient[d, t] = term.unit, term.count
            factors = [(*pair, 0) for pair in term.powers] + [(*pair, 1) for pair in term.each]
            if len(factors) > FACTORS:
                raise InternalError(f"a term of {len(factors)} symbols; {FACTORS} are packed: {dim}")
            for f, (name, exponent, outside) in enumerate(factors):
                which[d, t, f], power[d, t, f], each[d, t, f] = column[name], exponent, outside
    return unit, coefficient, which, power, each


def device_rows(graph: OpGraph, cluster: Cluster) -> tuple[str, ...]:
    """Names of the device array's rows: pools, then ``pool>pool`` for transfers and ``load:pool>pool`` for weights."""
    ways = {f"load:{op.way}" if op.kind == "load" else op.way for op in graph.ops() if op.kind in ("transfer", "load")}
    return (*(pool.name for pool in cluster.pools), *sorted(ways))


def _where(op: Op, cluster: Cluster, rows: tuple[str, ...], warm: int, notes: list[str]) -> list[int]:
    found = [0] * c.N_WHERE
    if op.kind in ("transfer", "load"):
        found[c.ROW] = rows.index(f"load:{op.way}" if op.kind == "load" else op.way)
        return found
    pool = cluster.pool(op.pool)
    chip = pool.chip
    fit = fit_of(op, pool)
    found[c.ROW] = rows.index(op.pool if fit is None else fit_row(op.pool, fit))
    if getattr(kinds()[op.kind], "MATRIX", True):
        found[c.DTYPE] = c.DTYPES.index(operand_type(chip, op.compute, notes, op.name))
    tiers = [tier.tier for tier in chip.memory if not tier.cache]
    found[c.WEIGHT_TIER] = tiers.index(op.tier) if op.tier else 0
    found[c.CACHE_TIER] = tiers.index(op.kv_tier) if op.kv_tier else 0
    found[c.LINK_SLOT] = next((i for i, link in enumerate(chip.links) if link.name == op.way), 0)
    found[c.WARM] = warm
    return found


def operand_type(chip: Chip, wanted: tuple[str, ...], notes: list[str] | None = None, op: str = "") -> str:
    """The first of `wanted` that the chip multiplies natively, else a type that holds every 16-bit number; steps are noted.

    Raises
    ------
    InputError
        When there is none: a narrower type would change the numbers, which the scenario must ask for.
    """
    peaks = chip.peaks.by_dtype()
    for position, name in enumerate((*wanted, *WIDEST)):
        if name in peaks:
            if position and notes is not None and {wanted[0], name} != {"bf16", "fp16"}:
                notes.append(f"chip {chip.name} has no {wanted[0]} units: such products run in {name}")
            return name
    has, needs = ", ".join(peaks), ", ".join(wanted)
    raise InputError(
        f"{f'op {op}: ' if op else ''}chip {chip.name} multiplies {has}; this product needs one of {needs}; "
        "choose formats that the chip has under dtypes.weights, dtypes.activations and dtypes.attention"
    )


def _bins(op: Op, graph: OpGraph, routing: Routing) -> Array:
    if op.experts is None:
        return np.zeros((c.N_BINS, 2))
    layers: tuple[int, ...] = ()
    if routing.kind == "measured":
        layers = tuple(layer for layer, which in enumerate(graph.sequence) if graph.segments[which].name == op.segment)
    return _bins_of(routing, op.experts, graph.degrees.get(f"{op.pool}.ep", 1), layers)


@lru_cache(maxsize=4096)
def _bins_of(routing: Routing, of: Experts, groups: int, layers: tuple[int, ...]) -> Array:
    """The bins of experts spread over groups of chips; equal ones are worked out once, and only read."""
    return routing.bins(of.total, of.topk, of.held, groups, of.first, of.redundant, layers, of.ranked)


def device_array(table: OpTable, cluster: Cluster, *, ideal: bool = False) -> Array:
    """Hardware of every row, shape (1, rows, N_DEVICE), SI. `ideal`: efficiencies 1, overheads and latencies 0."""
    found = np.zeros((1, len(table.device_rows), c.N_DEVICE))
    for position, name in enumerate(table.device_rows):
        if ">" in name:
            found[0, position] = _way(name, cluster, ideal)
        elif position < len(table.device_rows) - len(table.fits):
            found[0, position] = device_row(cluster.pool(name).chip, ideal=ideal)
    for index, (pool, fit) in enumerate(table.fits):
        found[0, len(table.device_rows) - len(table.fits) + index] = (
            device_row(cluster.pool(pool).chip, ideal=True) if ideal else fitted_row(cluster.pool(pool).chip, fit, index)
        )
    return found


def fit_of(op: Op, pool: Pool) -> Fit | None:
    """What was measured of ops like this one on the chips of its pool."""
    if pool.calibration is None or not op.family:
        return None
    if op.family in exchange.FAMILIES and "ranks" in op.consts:
        ranks, nodes = round(op.consts["ranks"]), round(op.consts["nodes"])
        return exchange.exchange_fit(pool.calibration, op.family, op.format, ranks, nodes)
    link = (op.way or pool.chip.link_name) if op.kind == "collective" else ""
    return pool.calibration.find(op.family, op.format, link)


def fit_row(pool: str, fit: Fit) -> str:
    """Name of the device row of a pool as the ops of a fit find it."""
    return f"{pool}/{fit.key}"


def measured_fits(ops: Iterable[Op], cluster: Cluster, notes: list[str]) -> dict[str, tuple[str, Fit]]:
    """The fits that ops of a table use, by device row; stand-ins are noted."""
    found: dict[str, tuple[str, Fit]] = {}
    for op in ops:
        pool = cluster.pool(op.pool) if op.kind not in ("transfer", "load") else None
        fit = fit_of(op, pool) if pool else None
        if pool is None or fit is None:
            continue
        found[fit_row(pool.name, fit)] = (pool.name, fit)
        if not (exchange.same_format(op.format, fit.dtype) if op.family in exchange.FAMILIES else fit.dtype == op.format):
            notes.append(f"pool {pool.name}: {op.family} in {op.format} was not measured; {fit.dtype} stands in")
    return found


def fitted_row(chip: Chip, fit: Fit, index: int) -> Array:
    """One chip as the ops of a fit find it: shares, fixed cost and overlap as measured; `index` of its correction."""
    row = device_row(chip)
    # what other chips have in common is no quicker than what this one says of itself
    launch = max(fit.launch_s, chip.execution.launch_s) if fit.spread else fit.launch_s
    row[c.LAUNCH], row[c.RAMP] = launch, 0.0
    row[c.COMPUTE_EFFICIENCY] = row[c.ATTENTION_EFFICIENCY] = fit.compute
    row[c.CACHE_BANDWIDTH] = sum(tier.bandwidth_bytes_per_s for tier in chip.memory if tier.cache) * fit.memory  # one or none
    for slot, tier in enumerate([tier for tier in chip.memory if not tier.cache][: c.N_TIERS]):
        row[c.TIER + slot] = tier.bandwidth_bytes_per_s * fit.memory
    row[c.EXCHANGE] = launch
    for slot, link in enumerate(chip.links[: c.N_LINKS]):
        start = c.LINK + slot * c.LINK_WIDTH
        share = fit.memory / (link.efficiency or chip.efficiency.link)
        row[start] *= share  # bandwidth, of the chip and to one peer; no latency, no adding switch: the fit has them
        row[start + 5] *= share
        row[start + 1] = row[start + 3] = 0.0
    row[c.SHARPNESS] = fit.sharpness
    row[c.CORRECTION] = index + 1 if fit.correction else 0
    return row


def device_row(chip: Chip, *, ideal: bool = False) -> Array:
    """One chip as a row of the device array, shape (N_DEVICE,), SI."""
    row = np.zeros(c.N_DEVICE)
    run, eff = chip.execution, chip.efficiency
    row[c.CORES] = 0 if ideal else run.cores
    row[c.LAUNCH] = 0 if ideal else run.launch_s
    row[c.RAMP] = 0 if ideal else (run.ramp_s or 0)
    row[c.VECTOR] = 0 if ideal else (run.vector_flops_per_s or 0)
    row[c.EXPONENTIALS] = 0 if ideal else (run.exponentials_per_s or 0)
    row[c.COMPUTE_EFFICIENCY] = 1 if ideal else eff.compute
    row[c.ATTENTION_EFFICIENCY] = 1 if ideal else eff.attention
    row[c.SPLIT_K] = float(run.split_k)
    row[c.FREE_ACTIVATIONS] = float(ideal)
    row[c.HIDDEN_COLLECTIVES] = float(run.overlapped_collectives)
    for slot, (rows, cols) in enumerate(run.tiles[: c.N_TILES]):
        row[c.TILES + 2 * slot : c.TILES + 2 * slot + 2] = rows, cols
    for name, peak in chip.peaks.by_dtype().items():
        row[c.PEAK + c.DTYPES.index(name)] = peak
    cached = next((tier for tier in chip.memory if tier.cache), None)
    if cached is not None and not ideal:
        share = cached.efficiency or 1.0
        row[c.CACHE_BYTES], row[c.CACHE_BANDWIDTH] = cached.capacity_bytes, cached.bandwidth_bytes_per_s * share
    for slot, tier in enumerate([tier for tier in chip.memory if not tier.cache][: c.N_TIERS]):
        share = 1.0 if ideal else (tier.efficiency or eff.memory)
        row[c.TIER + slot] = tier.bandwidth_bytes_per_s * share
    for slot, link in enumerate(chip.links[: c.N_LINKS]):
        start = c.LINK + slot * c.LINK_WIDTH
        row[start : start + c.LINK_WIDTH] = _link(link, chip, ideal)
    return row


def _link(link: Link, chip: Chip, ideal: bool) -> tuple[float, ...]:
    share = 1.0 if ideal else (link.efficiency or chip.efficiency.link)
    latency = 0.0 if ideal else link.latency_s
    topology = float(c.TOPOLOGIES.index(link.topology))
    peer = link.peer_bandwidth_bytes_per_s or 0.0
    if not peer and link.topology == "all_to_all" and link.domain > 1:
        peer = link.bandwidth_bytes_per_s / (link.domain - 1)
    return link.bandwidth_bytes_per_s * share, latency, float(link.domain), float(link.reduces), topology, peer * share


def _way(name: str, cluster: Cluster, ideal: bool) -> Array:
    """A row for a way between pools: slot 0 holds bandwidth and latency.

    Transfers: the aggregate of the chips that `per` names, at most what the other pool's links carry that the wire leaves
    `over`. Loads: the share of one receiving chip, at most its share of the far memory.
    """
    source, target = (cluster.pool(part) for part in name.removeprefix("load:").split(">"))
    wire = cluster.wire(source.name, target.name)
    share = 1.0 if ideal else wire.efficiency
    per = cluster.pool(wire.per or wire.to)
    other = source if per is target else target
    total = wire.bandwidth_bytes_per_s * per.count * share
    if wire.over:
        total = min(total, other.chip.link(wire.over).bandwidth_bytes_per_s * other.count * share)
    if name.startswith("load:"):
        tier = source.chip.main
        reached = tier.bandwidth_bytes_per_s * (1.0 if ideal else (tier.efficiency or source.chip.efficiency.memory))
        total = min(total, reached * source.count) / target.count
    row = np.zeros(c.N_DEVICE)
    row[c.LINK : c.LINK + 3] = total, 0.0 if ideal else wire.latency_s, 2.0
    return row


def points(table: OpTable, values: Mapping[str, float]) -> Array:
    """One point as an array, shape (1, symbols)."""
    return np.array([[float(values[name]) for name in table.symbols]])


def price(table: OpTable, symbols: Array, device: Array) -> Array:
    """Price every op at every point.

    Parameters
    ----------
    symbols : (points, symbols)
    device : (1 or points, rows, N_DEVICE)

    Returns
    -------
    (points, ops, N_OUT), SI; see `hwmodel.kernels.columns`.
    """
    out = np.zeros((len(symbols), len(table.ops), c.N_OUT))
    for group, measured in zip(table.groups, table.measured, strict=True):
        module = kinds()[group.kind]
        dims = np.empty((len(symbols), len(group.rows), len(module.DIMS)))
        resolve(symbols, group.unit, group.coefficient, group.which, group.power, group.each, dims)
        part = np.zeros((len(symbols), len(group.rows), c.N_OUT))
        module.price(dims, group.consts, group.where, group.bins, device, part)
        if measured:
            correct(features(group.kind, dims, group.consts, part), group.where, device, *table.corrections, part)
        out[:, group.rows] = part
    return out


def features(kind: str, dims: Array, consts: Array, priced: Array) -> Array:
    """The sizes that a measured correction goes by, shape (points, ops, N_AXES); 1 where a kind has fewer."""
    found = np.ones((*dims.shape[:2], N_AXES))
    kinds()[kind].features(dims, consts, priced, found)
    return found
