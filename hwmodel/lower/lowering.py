"""From blocks to ops: what a block's ``lower`` writes into."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hwmodel.calibration import label
from hwmodel.graph import ONE, Dim, Kept, Op, OpGraph, Stored, per_sequence, size, symbol
from hwmodel.kernels import kinds
from hwmodel.model.architecture import AS_STORED
from hwmodel.model.block import Cache, Weight
from hwmodel.model.dtypes import WIDEST, Format
from hwmodel.spec.errors import InternalError

Axis = tuple[str, float]
"""Name of an axis and the number of indivisible pieces along it (heads, experts)."""


class Lowering:
    """The ops of one part of one layer kind, chained onto what stands before.

    Attributes
    ----------
    at : name of the op whose output is the input of the next one
    tokens, queries : how many tokens pass, and how many new ones a decoding sequence has, as symbolic sizes
    phases : which of "decode" and "prefill" the step has
    """

    def __init__(
        self,
        graph: OpGraph,
        segment: str,
        *,
        part: str,
        hidden: int,
        at: str | None,
        phases: tuple[str, ...],
        weights: Sequence[Weight],
        format_of: Callable[[Weight], Format],
        activations: Format,
        kv: Format,
        attention: Format | None = None,
        drafting: bool = False,
    ) -> None:
        self.graph, self.segment, self.part, self.hidden = graph, segment, part, hidden
        self.at, self.phases, self.activations, self.kv = at, phases, activations, kv
        self.attention = attention or activations
        self.tokens = step_tokens(phases) if not drafting else symbol("decode_sequences", "tokens")
        self._drafting = drafting
        self.queries = ONE if drafting else symbol("decode_queries")
        self._weights = {weight.module: weight for weight in weights}
        self._format_of = format_of
        self._used: set[str] = set()

    def op(self, name: str, kind: str, dims: Mapping[str, Dim], *, inputs: Sequence[str] | None = None, **fields: Any) -> str:
        """Add an op of any kind behind `inputs` (the current op when None), make it current, return its name."""
        known = kinds().get(kind)
        if known is None:
            raise InternalError(f"op kind '{kind}' is unknown (known: {', '.join(sorted(kinds()))})")
        wrong = set(known.DIMS) ^ set(dims) | set(known.CONSTS) ^ set(fields.get("consts", {}))
        if wrong:
            raise InternalError(f"op {name} of kind {kind}: dims or constants differ from the kernel's: {sorted(wrong)}")
        op = Op(
            name=f"{self.segment}.{name}", kind=kind, part=fields.pop("part", self.part), segment=self.segment,
            role=fields.pop("role", self.part), dims=dims, out_bytes=fields.pop("out_bytes", self.activations.bytes),
            out=fields.pop("out", self.flow(self.hidden)), **fields,
        )  # fmt: skip
        before = ([self.at] if self.at else []) if inputs is None else list(inputs)
        self.at = self.graph.add(op, before)
        return self.at

    def flow(self, width: float) -> Dim:
        """Elements of a tensor of all tokens x width."""
        return self.tokens.scaled(width)

    @property
    def decoding(self) -> Dim:
        """New tokens of the decoding sequences."""
        return self.tokens if self._drafting else per_sequence("decode_sequences", "decode_queries")

    @property
    def attended(self) -> Dim:
        """Tokens a prefill attends to, cached ones included; every chip that shares a sequence needs them all."""
        return per_sequence("prefill_sequences", "prefill_new") + per_sequence("prefill_sequences", "prefill_cached")

    def linear(
        self,
        name: str,
        modules: Sequence[str],
        *,
        columns: Axis | Mapping[str, Axis] | None = None,
        inner: Axis | None = None,
        rows: Dim | None = None,
        **fields: Any,
    ) -> str:
        """One GEMM over the stacked output features of `modules`.

        columns : axis of the output features, for all modules or by module; absent ones are not sharded
        inner : axis of the input features, which are summed over
        """
        weights = [self.take(module) for module in modules]
        axes = [columns.get(w.module) if isinstance(columns, Mapping) else columns for w in weights]
        n = Dim(())
        stored: list[Stored] = []
        for weight, axis in zip(weights, axes, strict=True):
            n = _joined(n, size(weight.rows, *(axis or ("",))))
            stored += self._held(weight, axis or inner)
        elements = sum(weight.elements for weight in weights)
        width = sum(self._bytes(weight) * weight.elements for weight in weights) / elements
        return self.op(
            name, "gemm",
            {"m": rows or self.tokens, "n": n, "k": size(weights[0].columns, *(inner or ("",))), "groups": ONE},
            consts=self._gemm_consts(width), compute=self._types(weights[0]), family="gemm", format=self._label(weights[0]),
            stored=(*stored, *fields.pop("stored", ())), contracts=("k",),
            out=fields.pop("out", self.flow(sum(w.rows for w in weights))), **fields,
        )  # fmt: skip

    def grouped(self, name: str, groups: Axis, n: int, k: int, weight: Weight, *, stored: bool = True, **fields: Any) -> str:
        """One small product per head (or group): groups x (m x k)(k x n), with the weights of one module's part."""
        held: tuple[Stored, ...] = ()
        if stored:
            self._used.add(weight.module)
            held = (Stored(weight.module, size(weight.elements, *groups), self._bytes(weight), weight.role),)
        return self.op(
            name, "gemm",
            {"m": fields.pop("rows", self.tokens), "n": size(n), "k": size(k), "groups": size(groups[1], *groups)},
            consts=self._gemm_consts(self._bytes(weight)), compute=self._format_of(weight).compute, stored=held,
            family="gemm", format=self._label(weight),
            out=self.flow(groups[1] * n), **fields,
        )  # fmt: skip

    def experts(self, name: str, modules: Sequence[str], *, columns: Axis | None, inner: Axis | None, **fields: Any) -> str:
        """One grouped product over the experts that the tokens choose."""
        weights = [self.take(module) for module in modules]
        count = weights[0].copies
        width = sum(self._bytes(w) * w.elements for w in weights) / sum(w.elements for w in weights)
        n = sum(w.rows for w in weights)
        copies = size(count, "experts", count)
        return self.op(
            name, "experts",
            {
                "tokens": self.tokens.on("tokens", "routed"), "experts": copies,
                "n": size(n, *(columns or ("",))), "k": size(weights[0].columns, *(inner or ("",))),
            },
            consts={**self._gemm_consts(width), "topk": fields["experts"].topk}, role="experts",
            compute=self._format_of(weights[0]).compute,
            family="moe", format=self._label(weights[0]),
            stored=tuple(stored for w in weights for stored in self._held(w, columns or inner, copies)),
            contracts=("k", "experts"), **fields,
        )  # fmt: skip

    def stream(self, name: str, width: Dim, *, moved: float, flops: float = 1.0, rows: Dim | None = None, **fields: Any) -> str:
        """Elementwise work over rows x width: `moved` activation elements and `flops` vector FLOP per element."""
        consts = {
            "activation_bytes": moved * self.activations.bytes, "vector_flops": flops,
            "kv_bytes": fields.pop("kv_bytes", 0.0), "weight_bytes": fields.pop("weight_bytes", 0.0),
        }  # fmt: skip
        return self.op(name, "stream", {"rows": rows or self.tokens, "width": width}, consts=consts, **fields)

    def norm(self, name: str, width: int, modules: Sequence[str] = (), **fields: Any) -> str:
        """A fused residual add and norm: two tensors in, two out."""
        stored = self.keep([module for module in modules if self.has(module)])
        read = sum(s.elements.value({}) * s.bytes_per_element for s in stored) / width
        return self.stream(name, size(width), moved=4.0, flops=6.0, stored=stored, weight_bytes=read, **fields)

    def attend(
        self,
        name: str,
        *,
        heads: Axis,
        kv_heads: Axis,
        key: float,
        value: float,
        read: float,
        kept: Kept | None,
        window: float = 0,
        ratio: float = 1,
        topk: float = 0,
        softmax: float = 1,
        chunked: bool = False,
        phases: tuple[str, ...] | None = None,
        inputs: Sequence[str] | None = None,
        kv: Format | None = None,
        family: str = "attention",
        **fields: Any,
    ) -> list[str]:
        """Attention cores, one op per phase of the step. Widths are elements per head; see the kernels' CONSTS.

        kv : format in which keys and values are read; that of the cache when None
        family : which measurements apply, with the phase behind it: attention, mla, or none
        """
        before = ([self.at] if self.at else []) if inputs is None else list(inputs)
        consts = {
            "key_width": key, "value_width": value, "read_width": read, "kv_bytes": (kv or self.kv).bytes,
            "activation_bytes": self.activations.bytes, "window": window, "ratio": ratio, "topk": topk, "softmax": softmax,
            "chunked": float(chunked),
        }  # fmt: skip
        common = {"heads": size(heads[1], *heads), "kv_heads": size(kv_heads[1], *kv_heads), "shards": ONE}
        own: dict[str, dict[str, Dim]] = {
            "decode": {
                "sequences": symbol("decode_sequences", "tokens"), "queries": self.queries, "context": symbol("decode_context"),
            },
            "prefill": {
                "sequences": symbol("prefill_sequences", "tokens"), "new": symbol("prefill_new"),
                "cached": symbol("prefill_cached"),
            },
        }  # fmt: skip
        return [
            self.op(
                f"{name}_{phase}", f"attention_{phase}", {**own[phase], **common}, inputs=before, consts=consts, phase=phase,
                kept=kept, compute=self.attention.compute, out=self.flow(heads[1] * value),
                family=f"{family}_{phase}" if family else "",
                format=f"{label(self.attention.name)}/{label(self.kv.name)}", **fields,
            )
            for phase in phases or self.phases
        ]  # fmt: skip

    def take(self, module: str) -> Weight:
        """The weight of that module; every weight of the layer must be taken once."""
        if module not in self._weights or module in self._used:
            state = "taken twice" if module in self._used else "unknown"
            raise InternalError(f"{self.segment}: weight '{module}' is {state}")
        self._used.add(module)
        return self._weights[module]

    def keep(self, modules: Iterable[str]) -> tuple[Stored, ...]:
        """Weights an op holds whole on every chip: norms, small vectors, tables, each with its bias."""
        found: list[Stored] = []
        for module in modules:
            if module not in self._used:  # a bias goes with its weight
                found += self._held(self.take(module), None)
        return tuple(found)

    def has(self, module: str) -> bool:
        """Whether the layer stores a weight of that name."""
        return module in self._weights

    def matrix(self, module: str) -> bool:
        """Whether that weight is a matrix (of a linear layer, or stored wide)."""
        weight = self._weights[module]
        return weight.matrix

    def weight(self, module: str) -> Weight:
        """The weight of that module, without taking it."""
        return self._weights[module]

    def rest(self) -> tuple[str, ...]:
        """Modules nobody has taken yet."""
        return tuple(module for module in self._weights if module not in self._used)

    def kept(self, cache: Cache, axis: str = "kv_heads") -> Kept:
        """A block's cache, sharded along `axis` in as many pieces as it has heads."""
        pieces: tuple[Any, ...] = (axis, cache.heads) if cache.heads else ("",)
        return Kept(
            size(cache.token_elements, *pieces), size(cache.window_elements, *pieces), cache.window,
            size(cache.state_bytes, *pieces), self.kv.bytes,
        )  # fmt: skip

    def _held(self, weight: Weight, axis: Axis | None, copies: Dim = ONE) -> list[Stored]:
        """The weight and its bias, if any, as one chip stores them."""
        form = self._format_of(weight)
        block = form.group if form.square and weight.matrix else 0
        elements = size(weight.rows * weight.columns, *(axis or ("",)))
        found = [Stored(weight.module, elements, self._bytes(weight), weight.role, copies, block)]
        bias = f"{weight.module}.bias"
        if self.has(bias) and bias not in self._used:
            extra = self.take(bias)
            found.append(Stored(bias, size(extra.rows * extra.columns), self._bytes(extra), extra.role, copies))
        return found

    def _bytes(self, weight: Weight) -> float:
        form = self._format_of(weight)
        if not weight.matrix:
            return form.bytes
        return form.matrix_bytes(weight.rows, weight.columns) / (weight.rows * weight.columns)

    def _types(self, weight: Weight) -> tuple[str, ...]:
        """Types a product with that weight may run in.

        A matrix that stays as stored whatever the scenario asks for (head, router) is multiplied in the type of the
        activations where a chip has no wider one.
        """
        wanted = self._format_of(weight).compute
        if weight.role not in AS_STORED:
            return wanted
        return tuple(dict.fromkeys((*wanted, *WIDEST, *self.activations.compute)))

    def _label(self, weight: Weight) -> str:
        return label(self._format_of(weight).name, self.activations.bits)

    def _gemm_consts(self, weight_bytes: float) -> dict[str, float]:
        return {
            "weight_bytes": weight_bytes,
            "input_bytes": self.activations.bytes,
            "output_bytes": self.activations.bytes,
        }


def step_tokens(phases: Sequence[str], outputs: bool = False) -> Dim:
    """New tokens of a step, by phase; of those whose logits are computed (`outputs`), one per prefilling sequence."""
    found = Dim(())
    if "decode" in phases:
        found += per_sequence("decode_sequences", "decode_queries")
    if "prefill" in phases:
        found += (
            symbol("prefill_sequences", "tokens")
            if outputs
            else per_sequence("prefill_sequences", "prefill_new", positions=True)
        )
    return found


def _joined(left: Dim, right: Dim) -> Dim:
    """The sum, with terms on the same axis and of the same pieces merged (queries and gate, keys and values)."""
    for index, term in enumerate(left.terms):
        other = right.terms[0]
        if term.axes == other.axes and (not term.axes or term.count == other.count):
            whole = Dim((type(term)(term.unit + other.unit, term.count, (), term.axes),))
            return Dim(left.terms[:index] + whole.terms + left.terms[index + 1 :])
    return left + right
