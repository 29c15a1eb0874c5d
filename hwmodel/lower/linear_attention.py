"""Linear attention: a matrix per head that each token updates, instead of a cache that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import Kept, size, symbol
from hwmodel.model.block import Block, Cache, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class GatedDeltaNet(Block):
    """Gated delta rule with a short convolution in front (Qwen3-Next, Qwen3.5)."""

    kind: ClassVar[str] = "gated_delta"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    key_heads: Size
    """Heads of queries and keys."""
    value_heads: Size
    """Heads of values and of the state; a multiple of the key heads."""
    key_dim: Size
    """Width of a query or key head: rows of the state."""
    value_dim: Size
    """Width of a value head: columns of the state."""
    conv_width: Size = 4
    """Taps of the convolution over queries, keys and values."""
    module: str = "linear_attn"
    """Name in checkpoints."""

    @model_validator(mode="after")
    def _heads_divide(self) -> GatedDeltaNet:
        if self.value_heads % self.key_heads:
            raise ValueError(f"{self.value_heads} value_heads are not a multiple of {self.key_heads} key_heads")
        return self

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Input projections (with output gate, decay and step), convolution, decay, norm, output projection."""
        values = self.value_heads * self.value_dim
        name = self.module
        return (
            Weight(module(name, "in_proj_qkv"), self.conv_channels, hidden, role="attention"),
            Weight(module(name, "in_proj_z"), values, hidden, role="attention"),
            Weight(module(name, "in_proj_b"), self.value_heads, hidden, role="attention"),
            Weight(module(name, "in_proj_a"), self.value_heads, hidden, role="attention"),
            Weight(module(name, "conv1d"), self.conv_channels, self.conv_width, role="attention", matrix=False),
            Weight(module(name, "dt_bias"), self.value_heads, role="attention", matrix=False),
            Weight(module(name, "A_log"), self.value_heads, role="attention", matrix=False),
            Weight(module(name, "norm"), self.value_dim, role="norm", matrix=False),
            Weight(module(name, "out_proj"), hidden, values, role="attention"),
        )

    def cache(self) -> Cache:
        """The fp32 state of every value head, and the convolution's last columns in bf16."""
        state = self.value_heads * self.key_dim * self.value_dim * 4
        return Cache(
            state_bytes=state + self.conv_channels * self.conv_width * 2,
            heads=self.key_heads,
            layout=f"state {self.value_heads} x {self.key_dim} x {self.value_dim} + conv {self.conv_channels}",
        )

    def lower(self, into: Lowering) -> None:
        """Input projections in one GEMM, convolution, the gated delta rule, gated norm, output projection."""
        name = self.module
        keys = ("kv_heads", float(self.key_heads))
        modules = {module(name, "in_proj_qkv"): keys, module(name, "in_proj_z"): keys,
                   module(name, "in_proj_b"): keys, module(name, "in_proj_a"): keys}  # fmt: skip
        into.linear("in_proj", list(modules), columns=modules)
        convolve(into, name, self.conv_channels, keys, self.conv_width, ("conv1d", "dt_bias", "A_log"))
        recurrence(into, keys[1], self.value_heads / self.key_heads, self.key_dim, self.value_dim, into.kept(self.cache()))
        into.stream("gated_norm", size(self.value_heads * self.value_dim, *keys), moved=3, flops=8,
                    stored=into.keep([module(name, "norm")]))  # fmt: skip
        into.linear("out_proj", [module(name, "out_proj")], inner=keys)


class Kda(Block):
    """Kimi delta attention: a gated delta rule whose decay is per channel."""

    kind: ClassVar[str] = "kda"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Heads of queries, keys, values and of the state."""
    head_dim: Size
    """Width of each of them: rows and columns of the state."""
    conv_width: Size = 4
    """Taps of the three convolutions."""
    module: str = "self_attn"
    """Name in checkpoints."""

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Projections with their convolutions, low-rank decay and output gate, step, norm, output projection."""
        wide, name = self.heads * self.head_dim, self.module
        found: list[Weight] = []
        for letter in "qkv":
            found.append(Weight(module(name, f"{letter}_proj"), wide, hidden, role="attention"))
            found.append(Weight(module(name, f"{letter}_conv1d"), wide, self.conv_width, role="attention", matrix=False))
        for letter in "fg":
            found.append(Weight(module(name, f"{letter}_a_proj"), self.head_dim, hidden, role="attention"))
            found.append(Weight(module(name, f"{letter}_b_proj"), wide, self.head_dim, role="attention"))
        return (
            *found,
            Weight(module(name, "A_log"), self.heads, role="attention", matrix=False),
            Weight(module(name, "dt_bias"), wide, role="attention", matrix=False),
            Weight(module(name, "b_proj"), self.heads, hidden, role="attention"),
            Weight(module(name, "o_norm"), self.head_dim, role="norm", matrix=False),
            Weight(module(name, "o_proj"), hidden, wide, role="attention"),
        )

    def cache(self) -> Cache:
        """The fp32 state of every head, and the convolutions' last columns in bf16."""
        wide = self.heads * self.head_dim
        return Cache(
            state_bytes=wide * self.head_dim * 4 + 3 * wide * self.conv_width * 2,
            heads=self.heads,
            layout=f"state {self.heads} x {self.head_dim} x {self.head_dim} + conv {3 * wide}",
        )

    def lower(self, into: Lowering) -> None:
        """Projections, convolutions, the delta rule with its per-channel decay, gated norm, output projection."""
        name, heads = self.module, ("kv_heads", float(self.heads))
        into.linear("low_rank", [module(name, "f_a_proj"), module(name, "g_a_proj")])
        wide = {module(name, f"{letter}_proj"): heads for letter in "qkvb"}
        into.linear("qkvb", list(wide), columns=wide)
        both = {module(name, f"{letter}_b_proj"): heads for letter in "fg"}
        into.linear("decay_gate", list(both), columns=both)
        vectors = ("q_conv1d", "k_conv1d", "v_conv1d", "A_log", "dt_bias")
        convolve(into, name, 3 * self.heads * self.head_dim, heads, self.conv_width, vectors)
        recurrence(into, heads[1], 1, self.head_dim, self.head_dim, into.kept(self.cache()))
        into.stream("gated_norm", size(self.heads * self.head_dim, *heads), moved=3, flops=8,
                    stored=into.keep([module(name, "o_norm")]))  # fmt: skip
        into.linear("o", [module(name, "o_proj")], inner=heads)


class Lightning(Block):
    """Lightning attention: linear attention with a fixed decay per head and a gated output (MiniMax-01)."""

    kind: ClassVar[str] = "lightning"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Heads of queries, keys, values and of the state."""
    head_dim: Size
    """Width of each of them: rows and columns of the state."""
    module: str = "self_attn"
    """Name in checkpoints."""

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Joint input projection, output gate, norm, output projection."""
        wide = self.heads * self.head_dim
        return (
            Weight(module(self.module, "qkv_proj"), 3 * wide, hidden, role="attention"),
            Weight(module(self.module, "output_gate"), wide, hidden, role="attention"),
            Weight(module(self.module, "norm"), wide, role="norm", matrix=False),
            Weight(module(self.module, "out_proj"), hidden, wide, role="attention"),
        )

    def cache(self) -> Cache:
        """The fp32 state of every head."""
        state = self.heads * self.head_dim * self.head_dim * 4
        return Cache(state_bytes=state, heads=self.heads, layout=f"state {self.heads} x {self.head_dim} x {self.head_dim}")

    def lower(self, into: Lowering) -> None:
        """Joint projection with the gate, the decayed sum, norm, output projection."""
        name, heads = self.module, ("kv_heads", float(self.heads))
        wide = {module(name, "qkv_proj"): heads, module(name, "output_gate"): heads}
        into.linear("qkv_gate", list(wide), columns=wide)
        recurrence(into, heads[1], 1, self.head_dim, self.head_dim, into.kept(self.cache()))
        into.stream("gated_norm", size(self.heads * self.head_dim, *heads), moved=3, flops=8,
                    stored=into.keep([module(name, "norm")]))  # fmt: skip
        into.linear("o", [module(name, "out_proj")], inner=heads)


def convolve(into: Lowering, name: str, channels: int, axis: tuple[str, float], taps: int, vectors: tuple[str, ...]) -> None:
    """The short causal convolution over the last `taps` tokens, and the small vectors used beside it."""
    stored = into.keep(full for end in vectors if into.has(full := module(name, end)))
    into.stream("conv", size(channels, *axis), moved=2 + 2 * taps, flops=2 * taps, stored=stored)


def recurrence(
    into: Lowering,
    heads: float,
    per_head: float,
    rows: int,
    columns: int,
    kept: Kept,
    chunk: int = 64,
    axis: str = "kv_heads",
) -> None:
    """The state update, one op per phase; `heads` shardable pieces of `per_head` states of rows x columns (fp32).

    A token costs about 6 rows x columns FLOP (decay, delta, read-out); in chunks of `chunk` tokens 4 rows x columns for the
    state and 2 chunk (rows + columns) inside the chunk (Yang et al., Gated Delta Networks, arXiv 2412.06464, section 3).
    """
    state = per_head * rows * columns
    consts = {
        "state_bytes": 4 * state, "state_flops": 6 * state,
        "chunk_flops": 4 * state + 2 * chunk * per_head * (rows + columns),
        "activation_bytes": per_head * (2 * rows + 2 * columns) * into.activations.bytes,
    }  # fmt: skip
    own = {
        "decode": {"sequences": symbol("decode_sequences", "tokens"), "new": into.queries},
        "prefill": {"sequences": symbol("prefill_sequences", "tokens"), "new": symbol("prefill_new")},
    }
    before = [into.at] if into.at else []
    ops = [
        into.op(f"scan_{phase}", "scan", {**own[phase], "heads": size(heads, axis, heads)}, inputs=before, consts=consts,
                kept=kept, phase=phase, out=into.flow(heads * per_head * columns))
        for phase in into.phases
    ]  # fmt: skip
    if len(ops) > 1:
        into.stream("scan_join", size(heads * per_head * columns, axis, heads), moved=0, flops=0, inputs=ops)
