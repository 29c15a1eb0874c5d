"""DeepSeek-V4's attention: one narrow head is key and value, old tokens are pooled `ratio` to one, then picked."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import size
from hwmodel.model.block import Block, Cache, Count, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class CompressedAttention(Block):
    """A sliding window over single tokens beside a cache of tokens pooled `ratio` to one (0: the window alone)."""

    kind: ClassVar[str] = "compressed_attention"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Query heads; there is one key-value head."""
    head_dim: Size
    """Width of a query head and of the one latent that is both key and value."""
    rope_dim: Count
    """Columns of the latent that are rotated."""
    q_lora_rank: Size
    """Rank of the query projection."""
    o_groups: Size
    """Groups of heads whose outputs are projected apart."""
    o_lora_rank: Size
    """Width each group is projected to, before the joint output projection."""
    window: Size
    """Tokens kept one by one."""
    ratio: Count = 0
    """Tokens pooled into one entry of the growing cache; 0 for no such cache."""
    overlap: bool = False
    """Pools overlap by half: twice as wide a compressor (the small ratio)."""
    index_heads: Count = 0
    """Heads of the indexer over pooled entries; 0 for attention to all of them."""
    index_head_dim: Count = 0
    """Width of the indexer's pooled key."""
    index_topk: Count = 0
    """Pooled entries a query attends to."""
    module: str = "attn"
    """Name in checkpoints."""

    @model_validator(mode="after")
    def _groups_divide(self) -> CompressedAttention:
        if self.heads % self.o_groups:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.o_groups} o_groups")
        return self

    @property
    def has_indexer(self) -> bool:
        """Whether pooled entries are picked by an indexer."""
        return self.ratio > 0 and self.index_heads > 0

    @property
    def label(self) -> str:
        """With the ratio of the pools."""
        return f"{self.kind}[{self.ratio}]"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Projections, norms, sinks, compressor and indexer."""
        wide = self.heads * self.head_dim
        found = [
            self._matrix("wq_a", self.q_lora_rank, hidden),
            self._vector("q_norm", self.q_lora_rank, norm=True),
            self._matrix("wq_b", wide, self.q_lora_rank),
            self._matrix("wkv", self.head_dim, hidden),
            self._vector("kv_norm", self.head_dim, norm=True),
            Weight(module(self.module, "wo_a"), self.o_groups * self.o_lora_rank, wide // self.o_groups,
                   role="attention"),
            self._matrix("wo_b", hidden, self.o_groups * self.o_lora_rank),
            self._vector("attn_sink", self.heads),
        ]  # fmt: skip
        if self.ratio:
            found += self._compressor("compressor", self.head_dim, hidden)
        if self.has_indexer:
            found.append(self._matrix("indexer.wq_b", self.index_heads * self.index_head_dim, self.q_lora_rank))
            found.append(Weight(module(self.module, "indexer.weights_proj"), self.index_heads, hidden,
                                role="attention", matrix=False))  # fmt: skip
            found += self._compressor("indexer.compressor", self.index_head_dim, hidden)
        return tuple(found)

    def cache(self) -> Cache:
        """Window of latents; pooled latents and pooled index keys."""
        index = self.index_head_dim if self.has_indexer else 0
        token = (self.head_dim + index) / self.ratio if self.ratio else 0.0
        layout = f"latent {self.head_dim}, window {self.window}"
        if self.ratio:
            pooled = f"latent {self.head_dim}" + (f" + index key {index}" if index else "")
            layout = f"{pooled} per {self.ratio} tokens; {layout}"
        return Cache(token_elements=token, window_elements=self.head_dim, window=self.window, layout=layout)

    def lower(self, into: Lowering) -> None:
        """Compress queries and the latent, pool old tokens, pick pools, attend, project the groups."""
        name = self.module
        heads = ("heads", float(self.heads))
        into.linear("q_a_kv", [module(name, "wq_a"), module(name, "wkv")])
        into.norm("q_a_norm", self.q_lora_rank + self.head_dim, [module(name, "q_norm"), module(name, "kv_norm")])
        into.linear("q_b", [module(name, "wq_b")], columns=heads)
        into.stream("rope_append", size(self.heads * self.head_dim, *heads), moved=2, flops=4,
                    kv_bytes=self.head_dim * into.kv.bytes / (self.heads * self.head_dim),
                    stored=into.keep([module(name, "attn_sink")]))  # fmt: skip
        if self.ratio:
            self._pool(into, "compressor", self.head_dim)
        if self.has_indexer:
            self._index(into)
        cores = into.attend("attention", heads=heads, kv_heads=("", 1.0), key=self.head_dim, value=self.head_dim,
                            read=self.head_dim, kept=into.kept(self.cache()), window=self.window, ratio=self.ratio,
                            topk=self.index_topk if self.has_indexer else 0, family="")  # fmt: skip
        into.linear("o_a", [module(name, "wo_a")], inputs=cores)
        into.linear("o_b", [module(name, "wo_b")])

    def _pool(self, into: Lowering, name: str, width: int) -> None:
        full = module(self.module, name)
        into.linear(name.replace(".", "_"), [module(full, "wkv"), module(full, "wgate")],
                    stored=into.keep([module(full, "ape"), module(full, "norm")]))  # fmt: skip
        into.stream(f"{name.replace('.', '_')}_pool", size(width), moved=3, flops=6)

    def _index(self, into: Lowering) -> None:
        name = module(self.module, "indexer")
        self._pool(into, "indexer.compressor", self.index_head_dim)
        into.linear("index_q", [module(name, "wq_b")])
        into.linear("index_weights", [module(name, "weights_proj")])
        into.attend("index", heads=("", float(self.index_heads)), kv_heads=("", 1.0), key=self.index_head_dim, value=0,
                    read=self.index_head_dim, kept=None, ratio=self.ratio, softmax=0, family="")  # fmt: skip

    def _compressor(self, name: str, width: int, hidden: int) -> list[Weight]:
        """Pooling weights: values, gates, a table of positions in the pool, a norm. Stored wide."""
        wide = width * (2 if self.overlap else 1)
        full = module(self.module, name)
        return [
            Weight(module(full, "wkv"), wide, hidden, role="attention", matrix=False),
            Weight(module(full, "wgate"), wide, hidden, role="attention", matrix=False),
            Weight(module(full, "ape"), self.ratio, wide, role="attention", matrix=False),
            Weight(module(full, "norm"), width, role="norm", matrix=False),
        ]

    def _matrix(self, name: str, rows: int, columns: int) -> Weight:
        return Weight(module(self.module, name), rows, columns, role="attention")

    def _vector(self, name: str, size: int, norm: bool = False) -> Weight:
        return Weight(module(self.module, name), size, role="norm" if norm else "attention", matrix=False)
