"""A model as the rest of the program sees it: layers of blocks, and the weights around them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hwmodel.model.block import Block, Weight
from hwmodel.model.dtypes import FORMATS, Format


@dataclass(frozen=True)
class Layer:
    """One transformer layer: a token mixer, a feed-forward part, and the norms and scalars around them."""

    attention: Block | None
    """None for a layer that has only a feed-forward part."""
    ffn: Block | None
    extra: tuple[Weight, ...] = ()
    """Norms, per-layer scalars, per-layer embeddings, hyper-connections."""

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Every stored tensor of the layer."""
        parts = [block.weights(hidden) for block in (self.attention, self.ffn) if block is not None]
        return tuple(weight for part in parts for weight in part) + self.extra

    @property
    def kind(self) -> str:
        """Short name for reports: ``mla+moe``."""
        return "+".join(block.label for block in (self.attention, self.ffn) if block is not None)


@dataclass(frozen=True)
class Rule:
    """Modules whose full name matches get `format`."""

    pattern: str
    """Regular expression, searched in the module's full name, ``model.layers.3.self_attn.q_proj``."""
    format: Format | None
    """None: as the weights that are not quantised."""
    layer: int | None = None
    """The only layer whose modules can match; None when any may."""

    def matches(self, module: str) -> bool:
        """Whether the rule speaks about that module."""
        return re.search(self.pattern, module) is not None


@dataclass(frozen=True)
class Quantization:
    """How a checkpoint stores its matrices: the first matching rule wins, else `default`."""

    default: Format
    """Of matrices that no rule names."""
    rules: tuple[Rule, ...] = ()
    wide: Format | None = None
    """Of everything that is not a matrix of a linear layer; bf16 when None."""
    name: str = ""
    """As people call it: ``fp8_block``, ``nvfp4``, ``mixed``."""

    @cached_property
    def wide_format(self) -> Format:
        """The format of norms, biases, tables, and whatever is left out of quantisation."""
        return self.wide or FORMATS["bf16"]

    @cached_property
    def _by_layer(self) -> dict[int | None, tuple[Rule, ...]]:
        layers = {rule.layer for rule in self.rules}
        return {layer: tuple(r for r in self.rules if r.layer in (None, layer)) for layer in layers | {None}}

    def format_of(self, module: str, weight: Weight | None = None, layer: int | None = None) -> Format:
        """Stored format of a tensor by its full name: the first rule, else wide for what is left alone by custom.

        Parameters
        ----------
        weight
            The tensor. Whatever is no matrix is wide; head and router matrices are wide unless a rule names them.
        layer
            Its layer's index, which spares the rules of other layers.
        """
        if weight is not None and not weight.matrix:
            return self.wide_format
        rules = self._by_layer.get(layer, self._by_layer[None]) if layer is not None else self.rules
        for rule in rules:
            if rule.matches(module):
                return rule.format or self.wide_format
        left_alone = weight is not None and weight.role in ("router", "head", "embedding", "norm")
        return self.wide_format if left_alone else self.default


@dataclass(frozen=True)
class Mtp:
    """Multi-token-prediction modules: in the checkpoint, outside the totals."""

    layers: tuple[Layer, ...]
    extra: tuple[Weight, ...] = ()
    """Projections and norms of all modules together."""
    prefix: str = "model.layers"
    """How checkpoints name the list of modules."""
    first: int = 0
    """Index of the first module in that list."""


@dataclass(frozen=True)
class Model:
    """A decoder's architecture. Immutable; counts are in `hwmodel.model.counts`."""

    name: str
    hidden: int
    vocab: int
    kinds: tuple[Layer, ...]
    """The distinct layers."""
    sequence: tuple[int, ...]
    """For each layer from the bottom up, which of `kinds` it is."""
    quantization: Quantization
    dtype: Format
    """Of activations, and of weights that are not quantised."""
    tied: bool
    """The head is the input embedding's table."""
    embeddings: tuple[Weight, ...] = ()
    """Token table, learned positions, tables read by row (used = 0); projections of the embedding if any."""
    head: tuple[Weight, ...] = ()
    """Output matrix (empty when tied) and biases."""
    final: tuple[Weight, ...] = ()
    """Final norm and whatever else stands once behind the layers."""
    mtp: Mtp | None = None
    vision_params: int | None = 0
    """Of the vision part, outside the totals; None when there is one that is not counted."""
    kv_dtype: Format | None = None
    """The checkpoint's own KV format (hf_quant); None when it states none."""
    max_context: int = 0
    source: str = ""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    prefix: str = "model.layers"
    """How checkpoints name the list of layers, for quantisation rules."""

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How often each of `kinds` occurs."""
        tally = Counter(self.sequence)
        return tuple(tally[index] for index in range(len(self.kinds)))

    def format_of(self, kind: int, weight: Weight, override: Format | None = None) -> Format:
        """Stored format of a weight of ``kinds[kind]``; layers of one kind store it alike.

        Parameters
        ----------
        override
            Format that someone wants the matrices in; see `overridden`.
        """
        index = self._first[kind]
        stored = self.quantization.format_of(f"{self.prefix}.{index}.{weight.module}", weight, index)
        return overridden(weight, stored, override)

    def format_of_edge(self, weight: Weight, override: Format | None = None) -> Format:
        """Stored format of an embedding, head or final weight."""
        return overridden(weight, self.quantization.format_of(weight.module, weight), override)

    def format_of_mtp(self, position: int, weight: Weight, override: Format | None = None) -> Format:
        """Stored format of a weight of the MTP layer at that position, or of the MTP modules' extra weights."""
        assert self.mtp is not None
        index = self.mtp.first + position
        stored = self.quantization.format_of(f"{self.mtp.prefix}.{index}.{weight.module}", weight, index)
        return overridden(weight, stored, override)

    @cached_property
    def _first(self) -> tuple[int, ...]:
        return tuple(self.sequence.index(kind) for kind in range(len(self.kinds)))

    def layers(self) -> Iterator[Layer]:
        """All layers from the bottom up."""
        return (self.kinds[index] for index in self.sequence)

    def runs(self) -> list[tuple[int, int]]:
        """The sequence run-length encoded: (kind index, repeats)."""
        runs: list[tuple[int, int]] = []
        for index in self.sequence:
            if runs and runs[-1][0] == index:
                runs[-1] = (index, runs[-1][1] + 1)
            else:
                runs.append((index, 1))
        return runs


AS_STORED = ("router", "embedding", "head")
"""Roles of matrices that a quantised format asked for leaves as the checkpoint has them."""


def overridden(weight: Weight, stored: Format, override: Format | None) -> Format:
    """Format of a weight when someone asks for `override`.

    Quantised formats are for matrices of linear layers; embeddings, head, routers, norms and biases keep the model's
    own. A format of 16 bits or more is meant for everything.
    """
    if override is None:
        return stored
    if override.bits >= 16:
        return override
    return override if weight.matrix and weight.role not in AS_STORED else stored
