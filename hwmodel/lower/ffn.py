"""The dense feed-forward part: two matrices, or three when gated."""

from __future__ import annotations

from typing import ClassVar, Literal

from hwmodel.model.block import Block, Size, Weight, module


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
