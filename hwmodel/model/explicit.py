"""A model written out layer by layer, from any known block kinds: the form for architectures of one's own."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from hwmodel.model.architecture import Layer, Model, Quantization, Rule
from hwmodel.model.block import Block, Count, Size, Weight, block_kinds
from hwmodel.model.config import MAX_EXPERTS, MAX_LAYERS, MAX_VOCAB
from hwmodel.model.dtypes import Format, fmt
from hwmodel.model.huggingface import distinct
from hwmodel.spec.errors import InputError, Problem, did_you_mean
from hwmodel.spec.schema import Spec, build, shown
from hwmodel.spec.yamlfile import Document, Path_


class LayerGroup(Spec):
    """Equal layers in a row."""

    count: int = Field(default=1, ge=1, le=MAX_LAYERS)
    """How many."""
    attention: dict[str, Any] | None = None
    """`kind:` and the fields of a token-mixing block; absent for none."""
    ffn: dict[str, Any] | None = None
    """`kind:` and the fields of a feed-forward block; absent for none."""
    norms: int | None = Field(default=None, ge=0, le=16)
    """Norm vectors of the residual width; one per block when absent."""


class ExplicitModel(Spec):
    """The keys of a model file with `layers`."""

    layers: list[LayerGroup] = Field(min_length=1, max_length=MAX_LAYERS)
    """Groups of equal layers, from the bottom up."""
    hidden_size: Size
    """Width of the residual stream."""
    vocab_size: int = Field(ge=1, le=MAX_VOCAB)
    """Rows of the token table."""
    tie_word_embeddings: bool = False
    """The head is the token table."""
    dtype: str = "bf16"
    """Of activations, and of weights that are not quantised."""
    weights: str | None = None
    """Format of the matrices; `dtype` when absent."""
    experts: str | None = None
    """Format of the routed experts' matrices; `weights` when absent."""
    kv: str | None = None
    """Format of the cache; `dtype` when absent."""
    max_position_embeddings: Count = 0
    """Longest context."""
    title: str = ""
    """Name for people."""
    source: str = ""
    """Where the numbers come from."""


def from_layers(document: Document, name: str) -> Model:
    """Read a model written out layer by layer.

    Raises
    ------
    InputError
        With every problem and its place, those of the blocks' own fields included.
    """
    spec = build(ExplicitModel, document)
    problems: list[Problem] = []
    names = ("dtype", "weights", "experts", "kv")
    formats = {key: _format(document, key, getattr(spec, key), problems) for key in names}
    groups = [(group.count, _layer(document, index, group, spec.hidden_size, problems))
              for index, group in enumerate(spec.layers)]  # fmt: skip
    if sum(count for count, _ in groups) > MAX_LAYERS:
        problems.append(document.problem(("layers",), f"more than {MAX_LAYERS:,} layers"))
    if problems:
        raise InputError(problems)
    dtype = formats["dtype"] or fmt("bf16")
    stored = formats["weights"] or dtype
    experts = formats["experts"]
    rules = (Rule(r"\.experts\.", experts),) if experts is not None else ()
    quantization = Quantization(stored, rules, dtype, stored.name if experts is None else "mixed")
    kinds, sequence = distinct([layer for count, layer in groups for _ in range(count)], quantization, "model.layers")
    tied, hidden, vocab = spec.tie_word_embeddings, spec.hidden_size, spec.vocab_size
    table = Weight("model.embed_tokens", vocab, hidden, used=None if tied else 0, role="embedding", matrix=False)
    head = () if tied else (Weight("lm_head", vocab, hidden, role="head"),)
    return Model(
        name=name, hidden=hidden, vocab=vocab, kinds=kinds, sequence=sequence, quantization=quantization, dtype=dtype,
        tied=tied, embeddings=(table,), head=head, final=(Weight("model.norm", hidden, role="norm", matrix=False),),
        kv_dtype=formats["kv"], max_context=spec.max_position_embeddings, source=spec.source,
    )  # fmt: skip


def _format(document: Document, key: str, name: str | None, problems: list[Problem]) -> Format | None:
    try:
        return None if name is None else fmt(name)
    except InputError as error:
        problems.append(document.problem((key,), error.problems[0].message))
        return None


def _layer(document: Document, index: int, group: LayerGroup, hidden: int, problems: list[Problem]) -> Layer:
    at: Path_ = ("layers", index)
    blocks = {part: _block(document, (*at, part), part, getattr(group, part), problems) for part in ("attention", "ffn")}
    if group.attention is None and group.ffn is None:
        problems.append(document.problem(at, "has neither 'attention' nor 'ffn'"))
    number = group.norms if group.norms is not None else sum(block is not None for block in blocks.values())
    names = ("input_layernorm", "post_attention_layernorm")
    extra = tuple(Weight(names[i] if i < len(names) else f"norm_{i}", hidden, role="norm", matrix=False) for i in range(number))
    return Layer(blocks["attention"], blocks["ffn"], extra)


def _block(document: Document, at: Path_, part: str, raw: dict[str, Any] | None, problems: list[Problem]) -> Block | None:
    """One block by its kind; its problems are noted, not raised."""
    if raw is None:
        return None
    known = {name: kind for name, kind in block_kinds().items() if kind.part == part}
    kind = raw.get("kind")
    if not isinstance(kind, str) or kind not in known:
        missing = "missing key 'kind'" if kind is None else f"unknown {part} kind {str(kind)[:40]!r}"
        problems.append(document.problem((*at, "kind"), missing + did_you_mean(kind, known)))
        return None
    if isinstance(raw.get("experts"), int) and raw["experts"] > MAX_EXPERTS:
        message = f"must be at most {MAX_EXPERTS:,}, got {shown(raw['experts'])}"
        problems.append(document.problem((*at, "experts"), message))
        return None
    try:
        return build(known[kind], document, {key: value for key, value in raw.items() if key != "kind"}, at)
    except InputError as error:
        problems += error.problems
        return None
