"""The op graph: ops on nodes, tensors on edges, every dimension symbolic in the workload and in the degrees.

A dimension is a sum of terms ``unit x ceil(count x product of symbols)``. A term may belong to a named axis (tokens,
heads, ffn, experts, ...); sharding an axis by a degree divides every term that belongs to it, in dims, stored weights and
caches alike. The ceiling is the share of the busiest chip: 8 KV heads over 16 chips leave one on each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import networkx as nx

from hwmodel.routing import Experts
from hwmodel.spec.errors import InternalError

if TYPE_CHECKING:
    from hwmodel.model.architecture import Model

WORKLOAD = (
    "decode_sequences",
    "decode_queries",  # new tokens per decoding sequence: 1, or draft length + 1
    "decode_context",  # cached positions a decoding sequence reads
    "prefill_sequences",
    "prefill_new",  # new tokens per prefilling sequence
    "prefill_cached",  # tokens already in the cache before them
)
"""The symbols a lowered graph starts with; strategies add degrees such as ``gpu.tp``."""

TOKEN_AXES = frozenset({"tokens", "routed", "positions"})
"""Axes whose sharding splits work but not weights: sequences, sequences on their way to experts, positions of a sequence."""


@dataclass(frozen=True)
class Term:
    """``unit x ceil(count x product of symbol^power) x product of each^power``.

    What is divided into indivisible pieces stands inside the ceiling (sequences, heads, experts); what each piece has stands
    outside (tokens per sequence).
    """

    unit: float
    count: float = 1.0
    powers: tuple[tuple[str, int], ...] = ()
    axes: tuple[str, ...] = ()
    each: tuple[tuple[str, int], ...] = ()
    each_axes: tuple[str, ...] = ()

    def times(self, symbol: str, power: int) -> Term:
        """The term with one more factor symbol^power inside the ceiling."""
        return replace(self, powers=_raised(self.powers, symbol, power))

    def times_each(self, symbol: str, power: int) -> Term:
        """The term with one more factor symbol^power outside the ceiling."""
        return replace(self, each=_raised(self.each, symbol, power))

    def value(self, symbols: Mapping[str, float]) -> float:
        """The number, for given symbols."""
        inside = _product(self.powers, symbols) * self.count
        return self.unit * math.ceil(inside - 1e-9) * _product(self.each, symbols)

    def exact(self, symbols: Mapping[str, float]) -> float:
        """The number without the ceiling."""
        return self.unit * self.count * _product(self.powers, symbols) * _product(self.each, symbols)


Powers = tuple[tuple[str, int], ...]


def _raised(powers: Powers, symbol: str, power: int) -> Powers:
    table = dict(powers)
    table[symbol] = table.get(symbol, 0) + power
    return tuple(sorted((s, p) for s, p in table.items() if p))


def _joined(powers: Powers, more: Powers) -> Powers:
    for symbol, power in more:
        powers = _raised(powers, symbol, power)
    return powers


def _product(powers: Powers, symbols: Mapping[str, float]) -> float:
    found: float = 1
    for symbol, power in powers:
        found *= float(symbols[symbol]) ** power
    return found


@dataclass(frozen=True)
class Dim:
    """A symbolic size: a sum of terms."""

    terms: tuple[Term, ...]

    def __add__(self, other: Dim) -> Dim:
        return Dim(self.terms + other.terms)

    def scaled(self, factor: float) -> Dim:
        """The size times a plain number."""
        return Dim(tuple(replace(term, unit=term.unit * factor) for term in self.terms))

    def by(self, symbol: str, power: int = -1, axes: Iterable[str] | None = None) -> Dim:
        """Multiply the terms on `axes` (all when None) by symbol^power, inside the ceiling where the axis is."""
        chosen = None if axes is None else frozenset(axes)

        def changed(term: Term) -> Term:
            if chosen is None or chosen.intersection(term.axes):
                return term.times(symbol, power)
            return term.times_each(symbol, power) if chosen.intersection(term.each_axes) else term

        return Dim(tuple(changed(term) for term in self.terms))

    def on(self, old: str, new: str) -> Dim:
        """The same size on another axis."""
        return Dim(tuple(replace(t, axes=tuple(new if axis == old else axis for axis in t.axes)) for t in self.terms))

    def pieces(self, factor: float = 1.0, *axes: str) -> Dim:
        """The size with every unit a piece of its own (tokens, not sequences), `factor` of them, on further axes too."""
        return Dim(
            tuple(Term(t.unit, t.count * factor, _joined(t.powers, t.each), (*t.axes, *t.each_axes, *axes)) for t in self.terms)
        )

    def value(self, symbols: Mapping[str, float]) -> float:
        """The number with every share rounded up."""
        found: float = 0
        for term in self.terms:
            found += term.value(symbols)
        return found

    def exact(self, symbols: Mapping[str, float]) -> float:
        """The number without rounding."""
        return sum(term.exact(symbols) for term in self.terms)

    @property
    def axes(self) -> frozenset[str]:
        """The axes its terms belong to."""
        return frozenset(axis for term in self.terms for axis in (*term.axes, *term.each_axes))

    @property
    def symbols(self) -> frozenset[str]:
        """Every symbol in it."""
        return frozenset(symbol for term in self.terms for symbol, _ in (*term.powers, *term.each))

    def __str__(self) -> str:
        parts = []
        for term in self.terms:
            factors = [s if p == 1 else f"{s}^{p}" for s, p in (*term.powers, *term.each)]
            number = term.unit * term.count
            parts.append("*".join(([f"{number:g}"] if number != 1 or not factors else []) + factors))
        return " + ".join(parts)


def size(number: float, axis: str = "", parts: float | None = None) -> Dim:
    """A plain number; on an axis it comes in `parts` indivisible pieces (heads, experts), one per unit by default."""
    count = number if parts is None else parts
    return Dim((Term(number / count if count else 0.0, count, (), (axis,)),)) if axis else Dim((Term(number),))


def per_sequence(sequences: str, each: str, *, positions: bool = False) -> Dim:
    """Tokens of so many sequences with so many tokens each; `positions`: a sequence may be split over chips."""
    return Dim((Term(1.0, 1.0, ((sequences, 1),), ("tokens",), ((each, 1),), ("positions",) if positions else ()),))


def symbol(name: str, axis: str = "", unit: float = 1.0) -> Dim:
    """A symbol, as a size."""
    return Dim((Term(unit, 1.0, ((name, 1),), (axis,) if axis else ()),))


ONE, NONE = size(1), size(0)
"""Sizes that most ops have: one copy, split or repeat; no output."""


@dataclass(frozen=True)
class Stored:
    """A weight as it lies in the memory of one chip."""

    module: str
    elements: Dim
    """Of one copy."""
    bytes_per_element: float
    role: str = "other"
    copies: Dim = ONE
    """Experts, each an indivisible piece."""
    block: int = 0
    """Side of a square quantisation block that a split may not cut."""

    def bytes(self, symbols: Mapping[str, float]) -> float:
        """Bytes on one chip (the busiest)."""
        return self.elements.value(symbols) * self.copies.value(symbols) * self.bytes_per_element

    def shard(self, axes: frozenset[str], degree: str) -> Stored:
        """Divide what belongs to the axes by the degree."""
        return replace(self, elements=self.elements.by(degree, -1, axes), copies=self.copies.by(degree, -1, axes))


@dataclass(frozen=True)
class Kept:
    """What one execution's layer keeps per sequence on one chip (elements and bytes are symbolic in the degrees)."""

    token_elements: Dim
    window_elements: Dim
    window: int
    state_bytes: Dim
    kv_bytes: float
    """Bytes per KV element."""
    split: Dim = ONE
    """Chips that share the positions of a sequence."""

    def bytes_per_sequence(self, context: float, symbols: Mapping[str, float], *, windowed: bool = True) -> float:
        """Bytes one sequence of `context` tokens holds in one layer on one chip; `windowed` False reserves full length."""
        held = min(context, self.window) if windowed else context
        elements = self.token_elements.value(symbols) * context + self.window_elements.value(symbols) * held
        return elements * self.kv_bytes / self.split.value(symbols) + self.state_bytes.value(symbols)


@dataclass(frozen=True)
class Op:
    """One operation of one layer kind, as one chip executes it."""

    name: str
    kind: str
    part: str
    """attention, ffn, embedding or head: what placement goes by."""
    role: str
    segment: str
    dims: Mapping[str, Dim]
    consts: Mapping[str, float] = field(default_factory=dict)
    compute: tuple[str, ...] = ("bf16", "fp16")
    """Types it can be multiplied in, the native one first."""
    family: str = ""
    """Under which name measurements know it (gemm, mla_decode, moe, all_reduce, ...); empty when none do."""
    format: str = ""
    """Under which name measurements know its number format: bf16, fp8_block, bf16/fp8 (products and cache), ..."""
    stored: tuple[Stored, ...] = ()
    kept: Kept | None = None
    experts: Experts | None = None
    contracts: tuple[str, ...] = ()
    """Dims that are summed over: sharding one leaves partial results."""
    out: Dim = NONE
    """Elements of the output, whole tensor."""
    out_bytes: float = 2.0
    phase: str = "all"
    pool: str = ""
    shards: tuple[tuple[str, str], ...] = ()
    """(axis, degree symbol) pairs it was sharded by."""
    copies: tuple[str, ...] = ()
    """Degree symbols over which it is replicated, and why that is right is in the strategy."""
    tier: str = ""
    """Memory tier of its weights; the chip's main tier when empty."""
    kv_tier: str = ""
    way: str = ""
    """Link or way it uses: a link name of the chip, or ``pool>pool``."""
    lane: str = ""
    """Of a transfer: the resource it occupies when it is not the way itself (both directions on one link)."""
    repeats: Dim = ONE
    """Executions per step and layer."""
    note: str = ""
    base_stored: tuple[Stored, ...] = ()
    """Of a load: the weights before they were split over the receiving chips."""

    def shard(self, axes: Iterable[str], degree: str) -> Op:
        """Divide every term on `axes` by the degree, in dims, weights and cache; an op without them is replicated."""
        wanted = frozenset(axes)
        touched = wanted & self.axes
        if not touched:
            return self if degree in self.copies else replace(self, copies=(*self.copies, degree))
        weight_axes = wanted - TOKEN_AXES
        return replace(
            self,
            dims={name: dim.by(degree, -1, wanted) for name, dim in self.dims.items()},
            stored=tuple(s.shard(weight_axes, degree) for s in self.stored),
            kept=self.kept and _split_kept(self.kept, weight_axes, degree),
            shards=(*self.shards, *((axis, degree) for axis in sorted(touched))),
        )

    def with_stored(self, stored: Iterable[Stored]) -> Op:
        """The op holding more weights."""
        return replace(self, stored=(*self.stored, *stored))

    def without_stored(self) -> Op:
        """The op reading weights that another op holds."""
        return replace(self, stored=())

    @property
    def axes(self) -> frozenset[str]:
        """Every axis of its dims and of the weights it holds."""
        sizes = [*self.dims.values(), *(s.elements for s in self.stored), *(s.copies for s in self.stored)]
        return frozenset(axis for dim in sizes for axis in dim.axes)

    @property
    def delivers(self) -> str:
        """The pool that has the output."""
        return self.way.partition(">")[2] if self.kind == "transfer" else self.pool

    @property
    def partial(self) -> tuple[str, ...]:
        """Degrees whose chips hold partial sums of the output."""
        summed = {axis for name in self.contracts for axis in self.dims[name].axes}
        return tuple(dict.fromkeys(degree for axis, degree in self.shards if axis in summed))


def _split_kept(kept: Kept, axes: frozenset[str], degree: str) -> Kept:
    return replace(
        kept,
        token_elements=kept.token_elements.by(degree, -1, axes),
        window_elements=kept.window_elements.by(degree, -1, axes),
        state_bytes=kept.state_bytes.by(degree, -1, axes),
    )


@dataclass(frozen=True)
class Segment:
    """A run of equal layers, or what stands before and behind them."""

    name: str
    count: int
    """How often it runs per step."""
    kind: str
    first: int = -1
    """Index of its first layer; -1 outside the layers."""


@dataclass
class OpGraph:
    """A networkx graph of ops with what a plan decides about them.

    Nodes carry ``op``; edges carry ``elements`` (Dim) and ``bytes`` per element. Strategies work on a `copy`.
    """

    model: Model
    segments: tuple[Segment, ...]
    sequence: tuple[int, ...]
    """Index into `segments` for every layer from the bottom up."""
    nx: Any = field(default_factory=lambda: nx.DiGraph())  # noqa: PLW0108  the stubs give the bare class no node type
    degrees: dict[str, int] = field(default_factory=dict)
    """Value of every degree symbol."""
    micro_batches: int = 1
    stages: tuple[tuple[int, ...], ...] = ()
    """Pipeline stages: how often each segment runs in each; empty without a pipeline."""
    overlap: bool = False
    """Collectives run beside the compute of another micro-batch."""
    pipeline_batches: int = 1
    """Parts of the batch in flight in the pipeline."""
    sent_to_experts: bool = False
    """Tokens arrive from another pool already at the chips of their experts."""
    homes: dict[str, str] = field(default_factory=dict)
    """Pool that stores the weights of a load op."""
    notes: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why the plan cannot run, if it cannot."""
    _order: list[str] | None = field(default=None, repr=False)
    """Names in topological order, until the next change of nodes or edges."""

    def copy(self) -> OpGraph:
        """An independent graph with the same (immutable) ops."""
        return replace(
            self,
            nx=self.nx.copy(),
            degrees=dict(self.degrees),
            homes=dict(self.homes),
            _order=self._order,
            notes=list(self.notes),
            reasons=list(self.reasons),
        )

    def ops(self, where: Callable[[Op], bool] | None = None) -> list[Op]:
        """The ops in topological order, those for which `where` holds."""
        if self._order is None:
            ranks = dict(self.nx.nodes(data="rank"))
            self._order = list(nx.lexicographical_topological_sort(self.nx, ranks.__getitem__))
        known = dict(self.nx.nodes(data="op"))
        ordered = [known[node] for node in self._order]
        return ordered if where is None else [op for op in ordered if where(op)]

    def op(self, name: str) -> Op:
        """The op of that name."""
        found: Op = self.nx.nodes[name]["op"]
        return found

    def segment(self, name: str) -> Segment:
        """The segment of that name."""
        return next(segment for segment in self.segments if segment.name == name)

    def add(self, op: Op, inputs: Sequence[str] = (), rank: int | None = None) -> str:
        """Add an op behind `inputs`; ops that no edge orders go by `rank`, that of their adding when None."""
        if op.name in self.nx:
            raise InternalError(f"op {op.name} is added twice")
        self.nx.add_node(op.name, op=op, rank=self.nx.number_of_nodes() if rank is None else rank)
        self._order = None
        for name in inputs:
            self.connect(name, op.name)
        return op.name

    def rank(self, name: str) -> int:
        """The rank of an op."""
        return int(self.nx.nodes[name]["rank"])

    def connect(self, source: str, target: str) -> None:
        """An edge that carries the whole output of `source`."""
        op = self.op(source)
        self.nx.add_edge(source, target, elements=op.out, bytes=op.out_bytes)
        self._order = None

    def disconnect(self, source: str, target: str) -> None:
        """Take an edge away."""
        self.nx.remove_edge(source, target)
        self._order = None

    def inputs(self, name: str) -> list[str]:
        """Names of the ops whose outputs an op reads."""
        return list(self.nx.predecessors(name))

    def readers(self, name: str) -> list[str]:
        """Names of the ops that read an op's output."""
        return list(self.nx.successors(name))

    def put(self, op: Op) -> None:
        """Replace the op of the same name."""
        self.nx.nodes[op.name]["op"] = op

    def each(self, where: Callable[[Op], bool], change: Callable[[Op], Op]) -> None:
        """Replace every op for which `where` holds by its changed form."""
        for op in self.ops(where):
            self.put(change(op))

    def insert_after(self, name: str, op: Op, only: Iterable[str] | None = None) -> None:
        """Put `op` on the edges that leave `name` (those to `only`, when given)."""
        targets = self.readers(name) if only is None else list(only)
        self.add(op, [name], self.rank(name))
        for target in targets:
            self.disconnect(name, target)
            self.connect(op.name, target)

    def borders(self) -> dict[str, tuple[Op, Op]]:
        """First and last op of every segment; the output of the last is what the next layer reads."""
        found: dict[str, tuple[Op, Op]] = {}
        for op in self.ops():
            found[op.segment] = (found.get(op.segment, (op, op))[0], op)
        return found

    def symbols(self, workload: Mapping[str, float]) -> dict[str, float]:
        """Workload symbols and degrees together."""
        return {**workload, **self.degrees}
