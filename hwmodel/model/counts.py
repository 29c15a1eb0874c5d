"""What a model weighs: parameters, active parameters, stored bytes, and the cache as a law of the context length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hwmodel.model.architecture import Model
from hwmodel.model.block import Cache, Role, Weight
from hwmodel.model.dtypes import Format


@dataclass(frozen=True)
class Active:
    """Parameters one token uses, by the three conventions publishers follow."""

    all: int
    """With the input embedding's table."""
    excl_input_embedding: int
    """In products and norms; a tied table counts, for it is the head. The one for FLOPs."""
    excl_embeddings: int
    """Without the input table and without the head."""


@dataclass(frozen=True)
class Window:
    """Layers that keep the last tokens only."""

    tokens: int
    bytes_per_token: float
    """Of all those layers together."""


@dataclass(frozen=True)
class KvLaw:
    """Cache bytes of one sequence: a·L + windows + state, nothing sharded."""

    bytes_per_token: float
    """Growing with every token of context."""
    state_bytes: float
    """Recurrent state and convolution columns, whatever the context."""
    windows: tuple[Window, ...]
    format: Format
    layout: str

    @property
    def fixed_bytes(self) -> float:
        """Bytes per sequence that do not grow once every window is full."""
        return self.state_bytes + sum(window.tokens * window.bytes_per_token for window in self.windows)

    def at(self, context: int, batch: int = 1, *, full: bool = False, chunk: int = 0, block: int = 1) -> float:
        """Bytes of `batch` sequences of `context` tokens each.

        Parameters
        ----------
        full
            Windowed layers are reserved at full length, as engines without a hybrid cache manager do.
        chunk
            Tokens a prefill chunk adds to the ring of a window: it holds min(window + chunk, context) tokens.
        block
            Tokens per page; every layer's tokens are rounded up to whole pages.
        """
        pages = _paged(context, block)
        windowed = sum(
            (pages if full else _paged(min(context, window.tokens + chunk), block)) * window.bytes_per_token
            for window in self.windows
        )
        return batch * (self.bytes_per_token * pages + windowed + self.state_bytes)


def stored_weights(model: Model) -> Iterator[tuple[int, int | None, Weight]]:
    """Every weight as (how often, kind index or None outside the layers, weight), without MTP modules."""
    for weight in (*model.embeddings, *model.head, *model.final):
        yield 1, None, weight
    for kind, (layer, count) in enumerate(zip(model.kinds, model.counts, strict=True)):
        for weight in layer.weights(model.hidden):
            yield count, kind, weight


def params_total(model: Model) -> int:
    """Parameters of the text model; a tied table counts once, MTP and vision parts are left out."""
    return sum(count * weight.elements for count, _, weight in stored_weights(model))


def active(model: Model) -> Active:
    """Parameters one token uses: all but the experts not chosen and the tables read by row."""
    used = round(sum(count * weight.active_elements for count, _, weight in stored_weights(model)))
    table = next(weight.elements for weight in model.embeddings if weight.role == "embedding")
    return Active(used if model.tied else used + table, used, used - table)


def params_by_role(model: Model) -> dict[Role, int]:
    """Parameters of each role: attention, ffn, experts, shared, router, norm, embedding, head, other."""
    found: dict[Role, int] = {}
    for count, _, weight in stored_weights(model):
        found[weight.role] = found.get(weight.role, 0) + count * weight.elements
    return found


def shares(model: Model) -> tuple[float, float]:
    """Attention's and the feed-forward part's share of the parameters of both (norms and embeddings aside)."""
    roles = params_by_role(model)
    attention = roles.get("attention", 0)
    ffn = sum(roles.get(role, 0) for role in ("ffn", "experts", "shared", "router"))
    both = attention + ffn
    return (attention / both, ffn / both) if both else (0.0, 0.0)


def weights_bytes(model: Model, weights: Format | None = None) -> float:
    """Stored bytes of the text model, scales included.

    In the checkpoint's own formats, or with all matrices of linear layers in `weights`. Assumed: embeddings, head,
    norms, biases and routers are in the model's dtype unless the checkpoint's rules name them; correction biases and
    decay vectors, which checkpoints keep in fp32, count at that dtype too; one scale per group, no zero points.
    """
    total = 0.0
    for count, kind, weight in stored_weights(model):
        own = model.format_of_edge(weight, weights) if kind is None else model.format_of(kind, weight, weights)
        total += count * _bytes(weight, own)
    return total


def mtp_params(model: Model) -> int:
    """Parameters of the MTP modules, with whatever copies of embedding and head they store; 0 without any."""
    if model.mtp is None:
        return 0
    inside = sum(weight.elements for layer in model.mtp.layers for weight in layer.weights(model.hidden))
    return inside + sum(weight.elements for weight in model.mtp.extra)


def mtp_bytes(model: Model, weights: Format | None = None) -> float:
    """Stored bytes of the MTP modules."""
    if model.mtp is None:
        return 0.0
    total = sum(_bytes(weight, model.format_of_mtp(0, weight, weights)) for weight in model.mtp.extra)
    for position, layer in enumerate(model.mtp.layers):
        for weight in layer.weights(model.hidden):
            total += _bytes(weight, model.format_of_mtp(position, weight, weights))
    return total


def kv_law(model: Model, kv: Format | None = None) -> KvLaw:
    """Build the cache law of one sequence in a KV format (the checkpoint's own, else the activations', when None)."""
    kept = kv or model.kv_dtype or model.dtype
    growing = state = 0.0
    windows: dict[int, float] = {}
    layouts: dict[str, int] = {}
    for layer, count in zip(model.kinds, model.counts, strict=True):
        cache = layer.attention.cache() if layer.attention is not None else None
        if cache is None:
            continue
        growing += count * cache.token_elements
        state += count * cache.state_bytes
        if cache.window:
            windows[cache.window] = windows.get(cache.window, 0.0) + count * cache.window_elements
        layouts[cache.layout] = layouts.get(cache.layout, 0) + count
    held = tuple(Window(tokens, elements * kept.bytes) for tokens, elements in sorted(windows.items()))
    layout = "; ".join(f"{count} x ({text})" for text, count in layouts.items()) or "none"
    return KvLaw(growing * kept.bytes, state, held, kept, layout)


def caches(model: Model) -> Iterator[tuple[int, Cache]]:
    """How many layers keep which cache."""
    for layer, count in zip(model.kinds, model.counts, strict=True):
        cache = layer.attention.cache() if layer.attention is not None else None
        if cache is not None:
            yield count, cache


def layer_runs(model: Model) -> list[dict[str, Any]]:
    """Run-length list of layers: how many in a row, and what their two parts are."""
    rows: list[dict[str, Any]] = []
    for kind, count in model.runs():
        layer = model.kinds[kind]
        row = {"attention": _part(layer.attention), "ffn": _part(layer.ffn)}
        if rows and all(rows[-1][key] == row[key] for key in row):
            rows[-1]["count"] += count
        else:
            rows.append({"count": count, **row})
    return rows


def describe(
    model: Model, weights: Format | None = None, kv: Format | None = None, context: int | None = None, batch: int = 1
) -> dict[str, Any]:
    """Everything `hwmodel model` answers, with the keys of its JSON.

    Without a context, the cache is given at the longest the model states (null when it states none).
    """
    law = kv_law(model, kv)
    at = context if context is not None else model.max_context or None
    used = active(model)
    attention, ffn = shares(model)
    source = "option" if kv is not None else "hf_quant" if model.kv_dtype is not None else "activations"
    return {
        "name": model.name,
        "params_total": params_total(model),
        "params_active": {
            "all": used.all,
            "excl_input_embedding": used.excl_input_embedding,
            "excl_embeddings": used.excl_embeddings,
        },
        "weights_bytes": _whole(weights_bytes(model, weights)),
        "weights_dtype": weights.name if weights is not None else model.quantization.name or model.dtype.name,
        "kv": {
            "bytes_per_token": _whole(law.bytes_per_token),
            "fixed_bytes_per_sequence": _whole(law.fixed_bytes),
            "layout": law.layout,
            "bytes_at_context": None if at is None else _whole(law.at(at, batch)),
            "bytes_at_context_full_length": None if at is None else _whole(law.at(at, batch, full=True)),
            "context": at,
            "batch": batch,
            "dtype": law.format.name,
            "dtype_source": source,
            "windows": [{"tokens": w.tokens, "bytes_per_token": _whole(w.bytes_per_token)} for w in law.windows],
            "state_bytes": _whole(law.state_bytes),
        },
        "layers": layer_runs(model),
        "attention_share": attention,
        "ffn_share": ffn,
        "mtp": {"params": mtp_params(model), "bytes": _whole(mtp_bytes(model, weights))},
        "vision": {"params": model.vision_params},
        "hidden": model.hidden,
        "vocab": model.vocab,
        "max_context": model.max_context or None,
        "source": model.source,
        "warnings": list(model.warnings),
    }


def _bytes(weight: Weight, stored: Format) -> float:
    return weight.copies * stored.matrix_bytes(weight.rows, weight.columns)


def _part(block: Any) -> str | None:
    return None if block is None else block.summary()


def _paged(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def _whole(value: float) -> int | float:
    """Bytes as an integer where they are one."""
    return int(value) if float(value).is_integer() else value
