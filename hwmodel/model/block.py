"""What every block kind tells about itself: its weights, its cache, and its ops.

A block kind is one file in lower/ with one subclass of `Block`. Its fields are its YAML schema; defining the class
makes it known under its `kind`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from hwmodel.spec.errors import InputError, InternalError, did_you_mean
from hwmodel.spec.schema import Spec

if TYPE_CHECKING:
    from hwmodel.lower.lowering import Lowering

_KINDS = "hwmodel.lower"
Size = Annotated[int, Field(ge=1, le=10_000_000)]
"""A width or a number of heads, experts or tokens: at least one."""
Count = Annotated[int, Field(ge=0, le=10_000_000)]
"""The same, and 0 for absent."""
Role = Literal["attention", "ffn", "experts", "shared", "router", "norm", "embedding", "head", "other"]


@dataclass(frozen=True)
class Weight:
    """One stored tensor, or `copies` equal ones (the experts of a layer)."""

    module: str
    """Name inside its layer as checkpoints write it, such as ``self_attn.q_proj``; quantisation rules match on it."""
    rows: int
    """Output features (or entries, for a vector)."""
    columns: int = 1
    """Input features."""
    copies: int = 1
    used: float | None = None
    """Copies that one token touches (top-k); all of them when None, 0 for a table read by row."""
    role: Role = "other"
    matrix: bool = True
    """A matrix of a linear layer, which quantisation may store in another format; norms, biases, tables are not."""

    @property
    def elements(self) -> int:
        """Stored elements, all copies."""
        return self.rows * self.columns * self.copies

    @property
    def active_elements(self) -> float:
        """Elements one token's forward pass uses."""
        return self.rows * self.columns * (self.copies if self.used is None else self.used)


@dataclass(frozen=True)
class Cache:
    """What one layer keeps per sequence: ``token_elements * L + window_elements * min(L, window) + state_bytes``."""

    token_elements: float = 0.0
    """Elements per token that grow with the context (in the KV format)."""
    window_elements: float = 0.0
    """Elements per token held for the last `window` tokens only (in the KV format)."""
    window: int = 0
    state_bytes: float = 0.0
    """Bytes that do not grow: recurrent state (fp32) and convolution columns."""
    heads: int = 0
    """Heads it can be sharded over; 0 when every tensor-parallel rank holds all of it (a latent)."""
    layout: str = "none"
    """Short description for people: ``8 heads x (128 + 128)``, ``latent 512 + 64``."""


class Block(Spec):
    """The base of block kinds: an attention-like mixer or a feed-forward part of a layer."""

    kind: ClassVar[str] = ""
    """Name in YAML and in reports."""
    part: ClassVar[Literal["attention", "ffn"]] = "attention"
    kinds: ClassVar[dict[str, type[Block]]] = {}
    """Every known block kind by name; a subclass adds itself by being defined."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Make the kind known."""
        super().__pydantic_init_subclass__(**options)
        if not cls.kind:
            raise InternalError(f"block class {cls.__name__} needs a kind")
        Block.kinds[cls.kind] = cls

    @property
    def label(self) -> str:
        """Short name in reports; tells variants of a kind apart."""
        return self.kind

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Every stored tensor of the block, for a residual stream of width `hidden`."""
        raise NotImplementedError

    def cache(self) -> Cache | None:
        """What the block keeps per sequence; None for nothing."""
        return None

    def summary(self) -> str:
        """Tell the kind and the fields that are not at their defaults, for lists of layers."""
        fields = type(self).model_fields
        told = [
            name if value is True else f"{name}={value}"
            for name, value in self
            if value != fields[name].default and not name.endswith("module") and name != "activation"
        ]
        return " ".join([self.kind, *told])

    def lower(self, into: Lowering) -> None:
        """Emit the block's ops."""
        raise NotImplementedError


def make_block(kind: str, **fields: Any) -> Block:
    """The block of that kind with those fields.

    Raises
    ------
    InputError
        For a kind that no file in lower/ defines.
    """
    return block_class(kind)(**fields)


def block_class(kind: str) -> type[Block]:
    """Find the class of a block kind, or raise an `InputError` that names the nearest known one."""
    known = block_kinds()
    found = known.get(kind)
    if found is None:
        raise InputError(f"unknown block kind '{str(kind)[:60]}'{did_you_mean(kind, known)}")
    return found


def block_kinds() -> dict[str, type[Block]]:
    """Every block kind by name, after the folder of kinds has been scanned."""
    importlib.import_module(_KINDS)  # by name: blocks are plugins of this room, which knows none of them
    return Block.kinds


def module(*parts: str) -> str:
    """Module names joined by dots, the empty ones left out."""
    return ".".join(part for part in parts if part)
