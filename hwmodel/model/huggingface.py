"""From the keys of a Hugging Face config.json (or a YAML with the same keys) to a `Model`.

The class in `architectures` says what no key says (`families`); everything else is read from keys, never from a name.
Keys that nothing reads are named in a warning; keys that describe layers of an unknown kind are an error.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import ValidationError

from hwmodel.model import hf_around
from hwmodel.model.architecture import Layer, Model, Quantization
from hwmodel.model.block import Weight
from hwmodel.model.config import MAX_KINDS, MAX_LAYERS, MAX_VOCAB, Config
from hwmodel.model.families import Family, family_of
from hwmodel.model.harmless import HARMLESS, HARMLESS_ENDINGS
from hwmodel.model.hf_attention import mixer_blocks
from hwmodel.model.hf_ffn import EXPERTS, TOPK, ffn_blocks
from hwmodel.model.hf_quantization import activation_dtype, quantization
from hwmodel.model.hf_vision import vision_params
from hwmodel.spec.errors import InputError, shortened
from hwmodel.spec.yamlfile import Document

_STRUCTURAL = re.compile(
    r"(mamba|ssm|rwkv|lru|time_mix|cross_attention_|hybrid_|kda_|layer_types|layers_block_type|.*_layer_types$)"
)
"""Keys that say there are layers of another kind; unread, they are an error rather than a warning."""
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length")
_MOST = 50
"""Keys that were not understood, of which each is named."""
_PREFIXES = {"mixer": "backbone.layers", "attn": "layers"}


def from_huggingface(document: Document, companion: Document | None = None, name: str = "") -> Model:
    """Read a config, with the ModelOpt companion (hf_quant_config.json) if there is one.

    Raises
    ------
    InputError
        With every problem and its place: missing keys, values of a wrong type or absurd size, unknown layer kinds.
    """
    config = Config(document)
    family = family_of(config)
    try:
        return _model(config, family, companion, name or Path(document.file).stem)
    except ValidationError as error:
        config.check()
        first = error.errors(include_url=False)[0]
        raise InputError(document.problem((), str(first["msg"]).removeprefix("Value error, "))) from None
    except InputError as error:
        if config.problems:
            raise InputError(list(dict.fromkeys([*config.problems, *error.problems]))) from None
        raise


def _model(config: Config, family: Family, companion: Document | None, name: str) -> Model:
    count = config.number("num_hidden_layers", "n_layer", "n_layers", high=MAX_LAYERS)
    hidden = config.number("hidden_size", "n_embd", "d_model", high=1_000_000)
    vocab = config.number("vocab_size", high=MAX_VOCAB)
    context = config.number(*_CONTEXT, default=0, low=0, high=10**12)
    dtype = activation_dtype(config)
    layers = _layers(config, family, hidden, count)
    config.check()
    tied = config.flag("tie_word_embeddings", default=family.tied)
    stored, kv_dtype = quantization(config, companion, dtype)
    embeddings = hf_around.embeddings(config, family, hidden, count, tied)
    head = hf_around.head(config, hidden, tied)
    final = hf_around.final(config, family, hidden)
    vision = vision_params(config, hidden)
    mtp = hf_around.mtp(config, family, hidden, layers)
    source = config.text("source")
    _name_unread(config)
    config.check()
    prefix = _PREFIXES.get(family.attention_module, "model.layers")
    kinds, sequence = distinct(layers, stored, prefix)
    return Model(
        name=name, hidden=hidden, vocab=vocab, kinds=kinds, sequence=sequence, quantization=stored, dtype=dtype,
        tied=tied, embeddings=embeddings, head=head, final=final, mtp=mtp, kv_dtype=kv_dtype, max_context=context,
        vision_params=vision, source=source, warnings=tuple(config.warnings), prefix=prefix,
    )  # fmt: skip


def _layers(config: Config, family: Family, hidden: int, count: int) -> list[Layer]:
    attention = mixer_blocks(config, family, hidden, count)
    ffn = ffn_blocks(config, family, hidden, count)
    if len(attention) != count or len(ffn) != count:
        return []
    made: dict[tuple[int, int], Layer] = {}
    found = []
    for mixer, part in zip(attention, ffn, strict=True):
        key = (id(mixer), id(part))
        if key not in made:
            made[key] = Layer(mixer, part, hf_around.extras(config, family, hidden, mixer, part))
        found.append(made[key])
    return found


def distinct(layers: list[Layer], stored: Quantization, prefix: str) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Distinct layers and which of them each layer is; equal layers stored in different formats are distinct."""
    kinds: dict[tuple[object, ...], int] = {}
    members: list[Layer] = []
    sequence = []
    numbers: dict[int, int] = {}
    unique: list[Layer] = []
    for index, layer in enumerate(layers):
        if id(layer) not in numbers:
            number = next((n for n, other in enumerate(unique) if other == layer), len(unique))
            unique += [layer] if number == len(unique) else []
            numbers[id(layer)] = number
        modules = _modules(layer) if stored.rules else ()
        names = tuple(stored.format_of(f"{prefix}.{index}.{weight.module}", weight, index).name for weight in modules)
        key = (numbers[id(layer)], names)
        if key not in kinds:
            kinds[key] = len(members)
            members.append(layer)
        sequence.append(kinds[key])
    if len(members) > MAX_KINDS:
        raise InputError(f"{len(members)} different kinds of layers; models of up to {MAX_KINDS} are read")
    return tuple(members), tuple(sequence)


def _modules(layer: Layer) -> list[Weight]:
    """Weights whose format depends on rules."""
    return [weight for weight in layer.weights(1) if weight.matrix]


def _name_unread(config: Config) -> None:
    """Warn of keys that were not understood; those that speak of unknown layer kinds are errors."""
    config.ignore("title", "source", "quantization_config", *EXPERTS, *TOPK)
    told = 0
    for path, key in config.unread():
        if key in HARMLESS or key.endswith(HARMLESS_ENDINGS) or not config.has(key):
            continue
        if _STRUCTURAL.match(key) and config.find(key)[1] not in (False, [], {}, ""):
            config.problem(path, f"key '{shortened(key)}' describes layers of a kind that is not known")
            continue
        told += 1
        if told <= _MOST:
            config.warn(f"key '{shortened(key)}' is not understood and was not used{config.nearest(key)}")
    if told > _MOST:
        config.warn(f"{told - _MOST:,} more keys are not understood and were not used")
