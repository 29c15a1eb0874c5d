"""The whole decoder as a graph: embedding, every layer kind once, head, and the heads that draft tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hwmodel.graph import Dim, Op, OpGraph, Segment, Stored, size, symbol
from hwmodel.lower.lowering import Lowering, step_tokens
from hwmodel.model.architecture import Layer, Model
from hwmodel.model.block import Weight
from hwmodel.model.dtypes import Format
from hwmodel.spec.errors import InputError, InternalError

PHASES = {"decode": ("decode",), "prefill": ("prefill",), "mixed": ("decode", "prefill")}


@dataclass(frozen=True)
class Formats:
    """What a scenario says about number formats."""

    activations: Format
    kv: Format
    weights: Format | None = None
    """Asked for instead of the checkpoint's own (see `hwmodel.model.architecture.overridden`); None: as stored."""
    attention: Format | None = None
    """In which the products of attention cores run; that of the activations when None."""


def lower(model: Model, phase: str, formats: Formats, drafts: int = 0) -> OpGraph:
    """Lower a model to an op graph, symbolic in the workload.

    Parameters
    ----------
    phase
        decode, prefill, or mixed (a chunk of prefill beside decodes).
    drafts
        Tokens that the model's own multi-token-prediction module drafts per step; 0 for none.

    Raises
    ------
    InputError
        When drafting is asked of a model without such a module.
    """
    phases = PHASES[phase]
    segments = [Segment("embedding", 1, "embedding")]
    segments += [
        Segment(f"layer{model.sequence.index(index)}", count, layer.kind, model.sequence.index(index))
        for index, (layer, count) in enumerate(zip(model.kinds, model.counts, strict=True))
    ]
    order = sorted(range(1, len(segments)), key=lambda i: segments[i].first)
    segments.append(Segment("head", 1, "head"))
    if drafts:
        if model.mtp is None:
            raise InputError(f"model {model.name} has no multi-token-prediction module to draft with")
        segments.append(Segment("draft", drafts, model.mtp.layers[0].kind))
    graph = OpGraph(model, tuple(segments), tuple(1 + index for index in model.sequence))
    at = _embed(graph, model, phases, formats)
    for index in order:
        kind = index - 1
        at = _layer(graph, segments[index].name, model.kinds[kind], at, phases, model,
                    lambda weight, kind=kind: model.format_of(kind, weight, formats.weights), formats)  # type: ignore[misc] # fmt: skip
    at = _head(graph, "head", model, at, formats, step_tokens(phases, outputs=True), stored=True)
    if drafts and model.mtp is not None:
        _draft(graph, model, at, formats)
    return graph


def _into(
    graph: OpGraph, segment: str, part: str, model: Model, at: str | None, phases: tuple[str, ...],
    weights: Sequence[Weight], format_of: Callable[[Weight], Format], formats: Formats, *, drafting: bool = False,
) -> Lowering:  # fmt: skip
    return Lowering(
        graph, segment, part=part, hidden=model.hidden, at=at, phases=phases, weights=weights, format_of=format_of,
        activations=formats.activations, kv=formats.kv, attention=formats.attention, drafting=drafting,
    )  # fmt: skip


def _embed(graph: OpGraph, model: Model, phases: tuple[str, ...], formats: Formats) -> str:
    """Rows of the tables, gathered by token."""
    into = _into(graph, "embedding", "embedding", model, None, phases, model.embeddings,
                 lambda weight: model.format_of_edge(weight, formats.weights), formats)  # fmt: skip
    tables = tuple(_vocabulary(stored, model) for stored in into.keep(into.rest()))
    return into.stream("gather", size(model.hidden), moved=2, flops=0, stored=tables, role="embedding")


def _vocabulary(stored: Stored, model: Model) -> Stored:
    """Token tables may be split by vocabulary."""
    rows = stored.elements.value({})
    if rows % model.vocab == 0:
        return Stored(stored.module, size(rows, "vocab", model.vocab), stored.bytes_per_element, stored.role)
    return stored


def _layer(
    graph: OpGraph, segment: str, layer: Layer, at: str, phases: tuple[str, ...], model: Model,
    format_of: Callable[[Weight], Format], formats: Formats, *, drafting: bool = False,
) -> str:  # fmt: skip
    """Norm, mixer, norm, feed-forward; returns the last op."""
    extra = {weight.module: weight for weight in layer.extra}
    blocks = [block for block in (layer.attention, layer.ffn) if block is not None]
    for position, block in enumerate(blocks):
        own = block.weights(model.hidden)
        mine = [extra.pop(m) for m in list(extra) if _belongs(m, position, len(blocks))]
        into = _into(graph, segment, block.part, model, at, phases, [*own, *mine], format_of, formats, drafting=drafting)
        # norms stay with the mixer's side: what crosses to another device is the normed input of the block
        into.norm(f"norm{position + 1}", model.hidden, [weight.module for weight in mine], part="attention", role="norm")
        block.lower(into)
        _all_taken(graph, into)
        at = str(into.at)
    return at


def _belongs(module: str, position: int, blocks: int) -> bool:
    """Whether an extra weight (a norm, a scalar) stands with the first or with the last block of its layer."""
    late = any(word in module for word in ("post_attention", "feedforward", "ffn", "mlp", "pre_ff", "post_ff", "per_layer"))
    return late == (position == blocks - 1) or blocks == 1


def _all_taken(graph: OpGraph, into: Lowering) -> None:
    """Every weight of a block is held by exactly one op; small vectors nobody asked for go to the last one."""
    vectors = [module for module in into.rest() if not into.matrix(module)]
    if vectors:
        last = graph.op(str(into.at))
        graph.put(last.with_stored(into.keep(vectors)))
    if into.rest():
        raise InternalError(f"{into.segment}: weights that no op uses: {', '.join(into.rest())}")


def _head(graph: OpGraph, segment: str, model: Model, at: str, formats: Formats, rows: Dim, *, stored: bool) -> str:
    """Final norm, output matrix over the vocabulary, sampling; on the tokens that are sampled only."""
    matrix = next((weight for weight in model.head if weight.matrix or weight.columns > 1), None)
    table = matrix or next(weight for weight in model.embeddings if weight.rows == model.vocab)
    around = [weight for weight in (*model.final, *model.head) if weight is not matrix] if stored else []
    into = _into(graph, segment, "head", model, at, (), [*around, table],
                 lambda weight: model.format_of_edge(weight, formats.weights), formats)  # fmt: skip
    into.tokens = rows
    into.norm("norm", model.hidden, [weight.module for weight in around], role="norm")
    name = into.linear("logits", [table.module], columns=("vocab", float(model.vocab)), role="head",
                       out=rows.scaled(model.vocab))  # fmt: skip
    if model.tied or not stored:  # the table is stored with the embedding (or the main head); this op reads it
        op = graph.op(name)
        graph.put(op.without_stored())
    return into.stream("sample", size(model.vocab, "vocab", float(model.vocab)), moved=1, flops=4, role="head")


def _draft(graph: OpGraph, model: Model, at: str, formats: Formats) -> None:
    """One pass of the multi-token-prediction module: joint projection, its layer, the shared head."""
    mtp = model.mtp
    if mtp is None:  # pragma: no cover - the caller checked
        return

    def format_of(weight: Weight) -> Format:
        return model.format_of_mtp(0, weight, formats.weights)

    into = _into(graph, "draft", "attention", model, at, (), mtp.extra, format_of, formats, drafting=True)
    into.norm("norm0", model.hidden, [module for module in into.rest() if into.weight(module).columns == 1], role="norm")
    for number, module in enumerate(into.rest()):
        if into.weight(module).columns % model.hidden == 0 and number == 0:
            into.linear("project", [module])
    held = into.keep(into.rest())
    if held:
        last: Op = graph.op(str(into.at))
        graph.put(last.with_stored(held))
    end = _layer(graph, "draft", mtp.layers[0], str(into.at), ("decode",), model, format_of, formats, drafting=True)
    _head(graph, "draft", model, end, formats, symbol("decode_sequences", "tokens"), stored=False)
