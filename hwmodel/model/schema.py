"""JSON Schema of a model file, for editors: the keys of a config.json, or layers written out from block kinds."""

from __future__ import annotations

from typing import Any

from hwmodel.model.block import Block, block_kinds
from hwmodel.model.explicit import ExplicitModel

_SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "vocab_size", "max_position_embeddings", "moe_intermediate_size", "num_experts", "num_local_experts",
    "n_routed_experts", "num_experts_per_tok", "n_shared_experts", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "sliding_window",
)  # fmt: skip


def model_schema() -> dict[str, Any]:
    """Build the schema; every known block kind, one's own included, is part of it."""
    explicit = ExplicitModel.model_json_schema()
    shared = explicit.pop("$defs", {})
    for name, kind in sorted(block_kinds().items()):
        block = kind.model_json_schema()
        shared.update(block.pop("$defs", {}))
        block["properties"] = {"kind": {"const": name}, **block["properties"]}
        block["required"] = ["kind", *block.get("required", [])]
        shared[name] = block
    group = shared["LayerGroup"]["properties"]
    for part in ("attention", "ffn"):
        group[part] |= {"anyOf": [*_references(part), {"type": "null"}]}
    config = {
        "title": "Config",
        "description": "The keys of a Hugging Face config.json.",
        "type": "object",
        "required": ["architectures"],
        "properties": {
            "architectures": {"type": "array", "items": {"type": "string"}},
            "source": {"type": "string", "description": "Where the numbers come from."},
            "title": {"type": "string", "description": "Name for people."},
            **{name: {"type": ["integer", "null"], "minimum": 0} for name in _SIZES},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hwmodel model",
        "anyOf": [config, explicit],
        "$defs": shared,
    }


def _references(part: str) -> list[dict[str, str]]:
    kinds: dict[str, type[Block]] = block_kinds()
    return [{"$ref": f"#/$defs/{name}"} for name, kind in sorted(kinds.items()) if kind.part == part]
