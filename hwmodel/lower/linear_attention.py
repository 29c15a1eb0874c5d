"""Linear attention: a matrix per head that each token updates, instead of a cache that grows."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from hwmodel.model.block import Block, Cache, Size, Weight, module


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
            found.append(
                Weight(module(name, f"{letter}_conv1d"), wide, self.conv_width, role="attention", matrix=False)
            )
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
        return Cache(
            state_bytes=state, heads=self.heads, layout=f"state {self.heads} x {self.head_dim} x {self.head_dim}"
        )
