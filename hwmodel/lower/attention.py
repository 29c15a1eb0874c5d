"""Softmax attention with keys and values per head: MHA, MQA, GQA; windowed, chunked, gated, shared or low-rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import size
from hwmodel.model.block import Block, Cache, Count, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering

NORM_OVER_HEADS = "norm over all heads"
"""Note of an op that needs the sum of squares over heads that tensor parallelism spreads over chips."""


class Attention(Block):
    """Softmax attention; `kv_heads` = `heads` is MHA, 1 is MQA, between is GQA."""

    kind: ClassVar[str] = "attention"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Query heads."""
    kv_heads: Size
    """Key and value heads; they divide the query heads."""
    head_dim: Size
    """Width of a query or key head."""
    v_head_dim: Size | None = None
    """Width of a value head; `head_dim` when absent."""
    window: Count = 0
    """Tokens a query sees (and the cache keeps); 0 for all."""
    chunked: bool = False
    """The window is a fixed chunk of the text instead of one that slides."""
    rope_dim: Count | None = None
    """Columns of a head that are rotated; all when absent."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norm of queries and keys: per head, or over the whole projection."""
    qk_norm_bias: bool = False
    """Those norms have a bias."""
    qkv_bias: bool = False
    """Biases on the query, key and value projections."""
    o_bias: bool = False
    """Bias on the output projection."""
    gated: bool = False
    """The output is gated elementwise; the query projection carries the gate and is twice as wide."""
    sinks: bool = False
    """One learned logit per head joins the softmax."""
    k_eq_v: bool = False
    """Values are the keys before their norm: no value projection, both are cached."""
    kv_from_shared: bool = False
    """Reads the cache of an earlier layer: no key or value projections, no cache of its own."""
    share_q_dim: Size | None = None
    """Rank of a query projection shared by the heads (multi-matrix factorisation attention)."""
    module: str = "self_attn"
    """Name in checkpoints."""

    @model_validator(mode="after")
    def _heads_divide(self) -> Attention:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.kv_heads} kv_heads")
        return self

    @property
    def v_dim(self) -> int:
        """Width of a value head."""
        return self.v_head_dim or self.head_dim

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads

    @property
    def label(self) -> str:
        """With the window, if any."""
        return f"attention[{self.window}]" if self.window else self.kind

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Projections, their biases, norms and sinks."""
        found = [*self._queries(hidden)]
        if not self.kv_from_shared:
            found += self._linear("k_proj", self.kv_heads * self.head_dim, hidden, self.qkv_bias)
            if not self.k_eq_v:
                found += self._linear("v_proj", self.kv_heads * self.v_dim, hidden, self.qkv_bias)
        found += self._linear("o_proj", hidden, self.heads * self.v_dim, self.o_bias)
        found += self._norms()
        if self.sinks:
            found.append(Weight(module(self.module, "sinks"), self.heads, role="attention", matrix=False))
        return tuple(found)

    def cache(self) -> Cache | None:
        """Keys and values of every head, for the whole context or for the window."""
        if self.kv_from_shared:
            return None
        elements = self.kv_heads * (self.head_dim + self.v_dim)
        layout = f"{self.kv_heads} heads x ({self.head_dim} + {self.v_dim})"
        if not self.window:
            return Cache(token_elements=elements, heads=self.kv_heads, layout=layout)
        layout += f", {'chunk' if self.chunked else 'window'} {self.window}"
        return Cache(window_elements=elements, window=self.window, heads=self.kv_heads, layout=layout)

    def lower(self, into: Lowering) -> None:
        """Projections in one GEMM, rotation and cache append, attention by phase, output projection."""
        name = self.module
        heads, kv_heads = ("heads", float(self.heads)), ("kv_heads", float(self.kv_heads))
        before = into.at
        modules = {module(name, "q_proj"): heads}
        if self.share_q_dim is not None:
            into.linear("q_shared", [module(name, "q_proj")])
            into.norm("q_norm", self.share_q_dim, [module(name, "inter_norm")])
            modules = {module(name, "wq"): heads}
            queries = into.linear("q", list(modules), columns=modules)
            modules = {}
        if not self.kv_from_shared:
            modules |= {module(name, end): kv_heads for end in ("k_proj", "v_proj") if into.has(module(name, end))}
        if modules:
            into.linear("qkv", list(modules), columns=modules, inputs=[before] if before else None)
        written = 0 if self.kv_from_shared else self.kv_heads * (self.head_dim + self.v_dim)
        width = size(self.heads * self.head_dim, *heads) + size(written or self.kv_heads, *kv_heads)
        norms = into.keep(
            m for m in into.rest() if m.startswith(f"{name}.") and m.endswith(("norm", "norm.weight", "norm.bias", "sinks"))
        )
        inputs = None if self.share_q_dim is None else [queries, str(into.at)]
        into.stream("rope_append", width, moved=2, flops=4, stored=norms, inputs=inputs,
                    note=NORM_OVER_HEADS if self.qk_norm == "full" else "",
                    kv_bytes=written * into.kv.bytes / (self.heads * self.head_dim + (written or self.kv_heads)))  # fmt: skip
        cache = self.cache()
        cores = into.attend(
            "attention", heads=heads, kv_heads=kv_heads, key=self.head_dim, value=self.v_dim, read=self.head_dim + self.v_dim,
            window=self.window, ratio=0 if self.window else 1, chunked=self.chunked,
            kept=into.kept(cache) if cache else None,
        )  # fmt: skip
        if self.gated:
            cores = [into.stream("gate", size(self.heads * self.v_dim, *heads), moved=3, flops=5, inputs=cores)]
        into.linear("o", [module(name, "o_proj")], inner=heads, inputs=cores)

    def _queries(self, hidden: int) -> list[Weight]:
        width = self.heads * self.head_dim * (2 if self.gated else 1)
        if self.share_q_dim is None:
            return self._linear("q_proj", width, hidden, self.qkv_bias)
        return [
            *self._linear("q_proj", self.share_q_dim, hidden, self.qkv_bias),
            Weight(module(self.module, "inter_norm"), self.share_q_dim, role="norm", matrix=False),
            *self._linear("wq", width, self.share_q_dim, False),
        ]

    def _norms(self) -> list[Weight]:
        if self.qk_norm == "none":
            return []
        whole = self.qk_norm == "full"
        sides = [("q_norm", self.heads), *([] if self.kv_from_shared else [("k_norm", self.kv_heads)])]
        ends = ("weight", "bias") if self.qk_norm_bias else ("",)
        return [
            Weight(module(self.module, name, end), self.head_dim * (n if whole else 1), role="norm", matrix=False)
            for name, n in sides
            for end in ends
        ]

    def _linear(self, name: str, rows: int, columns: int, bias: bool) -> list[Weight]:
        full = module(self.module, name)
        found = [Weight(full, rows, columns, role="attention")]
        if bias:
            found.append(Weight(module(full, "bias"), rows, role="attention", matrix=False))
        return found
