"""The dense feed-forward part: two matrices, or three when gated."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from hwmodel.graph import size
from hwmodel.model.block import Block, Size, Weight, module

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering


class Ffn(Block):
    """A dense feed-forward part of width `inter`."""

    kind: ClassVar[str] = "ffn"
    part: ClassVar[Literal["attention", "ffn"]] = "ffn"

    inter: Size
    """Inner width."""
    gated: bool = True
    """A third matrix gates the inner activations (SwiGLU, GeGLU)."""
    bias: bool = False
    """Biases on all matrices."""
    activation: str = "silu"
    """Name of the activation function."""
    module: str = "mlp"
    """Name in checkpoints."""

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The two or three matrices, and their biases."""
        return tuple(ffn_weights(self.module, hidden, self.inter, self.gated, self.bias))

    def lower(self, into: Lowering) -> None:
        """Up (and gate) in one GEMM, activation, down."""
        lower_ffn(into, "", self.module, self.inter, self.gated, role="ffn")


def ffn_weights(
    name: str,
    hidden: int,
    inter: int,
    gated: bool,
    bias: bool = False,
    *,
    role: Literal["ffn", "experts", "shared"] = "ffn",
    copies: int = 1,
    used: float | None = None,
) -> list[Weight]:
    """The matrices of one feed-forward part, or of `copies` equal ones of which a token uses `used`."""
    found: list[Weight] = []
    for matrix in ("gate_proj", "up_proj", "down_proj") if gated else ("up_proj", "down_proj"):
        rows, columns = (hidden, inter) if matrix == "down_proj" else (inter, hidden)
        full = module(name, matrix)
        found.append(Weight(full, rows, columns, copies, used, role))
        if bias:
            found.append(Weight(module(full, "bias"), rows, 1, copies, used, role, matrix=False))
    return found


def lower_ffn(into: Lowering, prefix: str, name: str, inter: int, gated: bool, *, role: str) -> None:
    """The ops of one dense feed-forward part."""
    axis = ("ffn", float(inter))
    ends = ("gate_proj", "up_proj") if gated else ("up_proj",)
    into.linear(f"{prefix}gate_up" if gated else f"{prefix}up", [module(name, end) for end in ends], columns=axis, role=role)
    into.stream(f"{prefix}act", size(inter, *axis), moved=3 if gated else 2, flops=5, role=role, out=into.flow(inter))
    into.linear(f"{prefix}down", [module(name, "down_proj")], inner=axis, role=role)
