"""State-space mixer of Mamba-2: a state per head, updated by every token."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from hwmodel.graph import size
from hwmodel.lower.linear_attention import convolve, recurrence
from hwmodel.model.block import Block, Cache, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class Mamba2(Block):
    """Mamba-2 with a short convolution in front and a gated norm behind."""

    kind: ClassVar[str] = "mamba2"
    part: ClassVar[Literal["attention", "ffn"]] = "attention"

    heads: Size
    """Heads of the inner stream."""
    head_dim: Size
    """Width of a head: rows of its state."""
    state_dim: Size
    """Columns of a head's state."""
    groups: Size
    """Groups of heads that share the input and output maps of the state."""
    conv_width: Size = 4
    """Taps of the convolution."""
    conv_bias: bool = True
    """Bias of the convolution."""
    bias: bool = False
    """Biases on the two projections."""
    state_bits: Literal[16, 32] = 32
    """Bits of one state element."""
    module: str = "mixer"
    """Name in checkpoints."""

    @model_validator(mode="after")
    def _groups_divide(self) -> Mamba2:
        if self.heads % self.groups:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.groups} groups")
        return self

    @property
    def inner(self) -> int:
        """Width of the inner stream."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """Channels of the convolution: the inner stream and both maps of every group."""
        return self.inner + 2 * self.groups * self.state_dim

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Input projection (gate, stream, maps, steps), convolution, decay, skip, norm, output projection."""
        name = self.module
        found = [
            Weight(module(name, "in_proj"), self.inner + self.conv_channels + self.heads, hidden, role="attention"),
            Weight(module(name, "conv1d"), self.conv_channels, self.conv_width, role="attention", matrix=False),
            *(Weight(module(name, vector), self.heads, role="attention", matrix=False)
              for vector in ("A_log", "D", "dt_bias")),
            Weight(module(name, "norm"), self.inner, role="norm", matrix=False),
            Weight(module(name, "out_proj"), hidden, self.inner, role="attention"),
        ]  # fmt: skip
        if self.conv_bias:
            found.append(Weight(module(name, "conv1d.bias"), self.conv_channels, role="attention", matrix=False))
        if self.bias:
            found += [
                Weight(module(name, "in_proj.bias"), found[0].rows, role="attention", matrix=False),
                Weight(module(name, "out_proj.bias"), hidden, role="attention", matrix=False),
            ]
        return tuple(found)

    def cache(self) -> Cache:
        """The state of every head, and the convolution's last columns in bf16."""
        state = self.inner * self.state_dim * self.state_bits / 8
        return Cache(
            state_bytes=state + self.conv_channels * self.conv_width * 2,
            heads=self.groups,
            layout=f"state {self.heads} x {self.head_dim} x {self.state_dim} + conv {self.conv_channels}",
        )

    def lower(self, into: Lowering) -> None:
        """Input projection, convolution, the state update, gated norm, output projection."""
        name, groups = self.module, ("kv_heads", float(self.groups))
        into.linear("in_proj", [module(name, "in_proj")], columns=groups)
        vectors = ("conv1d", "conv1d.bias", "A_log", "D", "dt_bias")
        convolve(into, name, self.conv_channels, groups, self.conv_width, vectors)
        recurrence(into, groups[1], self.heads / self.groups, self.head_dim, self.state_dim, into.kept(self.cache()))
        into.stream("gated_norm", size(self.inner, *groups), moved=3, flops=8, stored=into.keep([module(name, "norm")]))
        into.linear("out_proj", [module(name, "out_proj")], inner=groups)
