"""Multi-head latent attention: one compressed latent per token is cached, keys and values are rebuilt from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import Kept, size
from hwmodel.model.block import Block, Cache, Count, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class Mla(Block):
    """Multi-head latent attention, with an optional indexer that picks `index_topk` tokens (sparse attention)."""

    kind: ClassVar[str] = "mla"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Query heads; keys and values have as many after decompression."""
    kv_lora_rank: Size
    """Width of the cached latent."""
    nope_dim: Size
    """Columns of a query or key head that are not rotated."""
    rope_dim: Count
    """Columns that are rotated; the key's are one vector shared by all heads."""
    v_head_dim: Size
    """Width of a value head."""
    q_lora_rank: Size | None = None
    """Rank of the query projection; a plain projection when absent."""
    bias: bool = False
    """Biases on the two compressing projections and on the output projection."""
    gated: bool = False
    """The output is gated by a projection of its own."""
    index_heads: Count = 0
    """Heads of the indexer; 0 for dense attention."""
    index_head_dim: Count = 0
    """Width of the indexer's key, which is cached beside the latent."""
    index_topk: Count = 0
    """Tokens a query attends to; 0 for all."""
    index_shared: bool = False
    """Uses the choice of an earlier layer's indexer: no indexer weights or keys of its own."""
    module: str = "self_attn"
    """Name in checkpoints."""

    @model_validator(mode="after")
    def _indexer_whole(self) -> Mla:
        if self.index_heads and not (self.index_head_dim and self.index_topk):
            raise ValueError("index_heads needs index_head_dim and index_topk")
        return self

    @property
    def qk_dim(self) -> int:
        """Width of a query or key head."""
        return self.nope_dim + self.rope_dim

    @property
    def owns_indexer(self) -> bool:
        """Whether the layer has an indexer of its own."""
        return self.index_heads > 0 and not self.index_shared

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Compressing and decompressing projections, norms, the indexer."""
        found = self._queries(hidden)
        found += self._linear("kv_a_proj_with_mqa", self.kv_lora_rank + self.rope_dim, hidden, self.bias)
        found.append(self._norm("kv_a_layernorm", self.kv_lora_rank))
        found += self._linear("kv_b_proj", self.heads * (self.nope_dim + self.v_head_dim), self.kv_lora_rank, False)
        found += self._linear("o_proj", hidden, self.heads * self.v_head_dim, self.bias)
        if self.gated:
            found += self._linear("g_proj", self.heads * self.v_head_dim, hidden, False)
        if self.owns_indexer:
            found += self._indexer(hidden)
        return tuple(found)

    def cache(self) -> Cache:
        """The latent and the shared rotated key, and the indexer's key if the layer owns one."""
        index = self.index_head_dim if self.owns_indexer else 0
        layout = f"latent {self.kv_lora_rank} + {self.rope_dim}" + (f" + index key {index}" if index else "")
        return Cache(token_elements=self.kv_lora_rank + self.rope_dim + index, layout=layout)

    def lower(self, into: Lowering) -> None:
        """Compress, rotate and append, then absorbed or expanded attention, and the output projection.

        Decode is absorbed (scores against the latent, read once), prefill expanded (keys and values rebuilt from the latent).
        Absorbed costs 2 (2 rank + rope) FLOP per head and cached token against 2 (nope + rope + v) expanded, but reads the
        latent instead of 71 times as many keys and values (DeepSeek-V2, arXiv 2405.04434, section 2.1).
        """
        name = self.module
        heads = ("heads", float(self.heads))
        down = [module(name, "kv_a_proj_with_mqa")]
        if self.q_lora_rank is not None:
            into.linear("qkv_a", [module(name, "q_a_proj"), *down])
            into.norm("qkv_a_norm", self.q_lora_rank + self.kv_lora_rank,
                      [module(name, "q_a_layernorm"), module(name, "kv_a_layernorm")])  # fmt: skip
            into.linear("q_b", [module(name, "q_b_proj")], columns=heads)
        else:
            query = module(name, "q_proj")
            into.linear("q_kv_a", [query, *down], columns={query: heads})
            into.norm("kv_a_norm", self.kv_lora_rank, [module(name, "kv_a_layernorm")])
        cached = self.cache().token_elements
        width = self.heads * self.rope_dim
        into.stream("rope_append", size(max(width, self.heads), *heads), moved=2, flops=4,
                    kv_bytes=cached * into.kv.bytes / max(width, self.heads))  # fmt: skip
        topk = self._index(into)
        ready = str(into.at)
        kept = into.kept(self.cache())
        weight = into.take(module(name, "kv_b_proj"))
        outputs = []
        if "decode" in into.phases:
            outputs.append(self._absorbed(into, weight, kept, topk, ready))
        if "prefill" in into.phases:
            outputs.append(self._expanded(into, weight, kept, topk, ready, stored=not outputs))
        if self.gated:
            into.linear("g", [module(name, "g_proj")], columns=heads)
            outputs.append(str(into.at))
        into.linear("o", [module(name, "o_proj")], inner=heads, inputs=outputs)

    def _index(self, into: Lowering) -> int:
        """The indexer: scores of few narrow heads over all cached index keys; returns how many tokens are kept."""
        if not self.owns_indexer:
            return self.index_topk if self.index_heads else 0
        name = module(self.module, "indexer")
        into.linear("index_q", [module(name, "wq_b")])
        into.linear("index_k", [module(name, "wk"), module(name, "weights_proj")],
                    stored=into.keep([module(name, "k_norm"), module(name, "k_norm.bias")]))  # fmt: skip
        into.attend("index", heads=("", float(self.index_heads)), kv_heads=("", 1.0), key=self.index_head_dim, value=0,
                    read=self.index_head_dim, kept=None, softmax=0, family="")  # fmt: skip
        return self.index_topk

    def _absorbed(self, into: Lowering, weight: Weight, kept: Kept, topk: int, ready: str) -> str:
        heads = ("heads", float(self.heads))
        rows = into.decoding
        into.grouped("absorb_q", heads, self.kv_lora_rank, self.nope_dim, weight, inputs=[ready], rows=rows)
        into.attend("attention", heads=heads, kv_heads=("", 1.0), key=self.kv_lora_rank + self.rope_dim,
                    value=self.kv_lora_rank, read=self.kv_lora_rank + self.rope_dim, kept=kept, topk=topk,
                    phases=("decode",), note="absorbed", family="mla")  # fmt: skip
        return into.grouped("absorb_v", heads, self.v_head_dim, self.kv_lora_rank, weight, stored=False, rows=rows)

    def _expanded(self, into: Lowering, weight: Weight, kept: Kept, topk: int, ready: str, stored: bool) -> str:
        heads = ("heads", float(self.heads))
        into.grouped("expand_kv", heads, self.nope_dim + self.v_head_dim, self.kv_lora_rank, weight, inputs=[ready],
                     rows=into.attended, stored=stored)  # fmt: skip
        return into.attend("attention", heads=heads, kv_heads=heads, key=self.qk_dim, value=self.v_head_dim, family="mla",
                           read=self.qk_dim + self.v_head_dim, kept=kept, topk=topk, phases=("prefill",),
                           kv=into.activations, note="expanded")[0]  # fmt: skip

    def _queries(self, hidden: int) -> list[Weight]:
        width = self.heads * self.qk_dim
        if self.q_lora_rank is None:
            return self._linear("q_proj", width, hidden, False)
        return [
            *self._linear("q_a_proj", self.q_lora_rank, hidden, self.bias),
            self._norm("q_a_layernorm", self.q_lora_rank),
            *self._linear("q_b_proj", width, self.q_lora_rank, False),
        ]

    def _indexer(self, hidden: int) -> list[Weight]:
        name = module(self.module, "indexer")
        return [
            Weight(module(name, "wq_b"), self.index_heads * self.index_head_dim, self.q_lora_rank or hidden,
                   role="attention"),
            Weight(module(name, "wk"), self.index_head_dim, hidden, role="attention"),
            Weight(module(name, "k_norm"), self.index_head_dim, role="norm", matrix=False),
            Weight(module(name, "k_norm.bias"), self.index_head_dim, role="norm", matrix=False),
            # the head weights stay wide in every published checkpoint
            Weight(module(name, "weights_proj"), self.index_heads, hidden, role="attention", matrix=False),
        ]  # fmt: skip

    def _norm(self, name: str, width: int) -> Weight:
        return Weight(module(self.module, name), width, role="norm", matrix=False)

    def _linear(self, name: str, rows: int, columns: int, bias: bool) -> list[Weight]:
        full = module(self.module, name)
        found = [Weight(full, rows, columns, role="attention")]
        if bias:
            found.append(Weight(module(full, "bias"), rows, role="attention", matrix=False))
        return found
