"""Parameters of the vision tower and its projector, which stand apart from the text model's counts."""

from __future__ import annotations

from collections.abc import Callable

from hwmodel.model.config import MAX_WIDTH, Config

Read = Callable[[str], int]


def vision_params(config: Config, hidden: int) -> int | None:
    """Count the vision part; 0 when there is none, None when its kind is not counted (or there is audio)."""
    path, raw = config.find("vision_config")
    if raw is None:
        return 0
    audio = config.find("audio_config")[1]
    if not isinstance(raw, dict) or audio is not None:
        return None
    count = _COUNTS.get(str(raw.get("model_type")))
    keys = _KEYS.get(count, ()) if count is not None else ()
    if count is None or any(raw.get(key) is None for key in keys):
        return None

    def read(key: str) -> int:
        return config.whole((*path, key), raw[key], 1, MAX_WIDTH)

    deep = raw.get("deepstack_visual_indexes")
    return count(read, hidden, len(deep) if isinstance(deep, list) else 0)


def _qwen(read: Read, hidden: int, deep: int) -> int:
    """Biased two-matrix blocks; mergers of 2 x 2 patches behind the last layer and behind `deep` earlier ones."""
    width, inner = read("hidden_size"), read("intermediate_size")
    merged = width * read("spatial_merge_size") ** 2
    pixels = read("in_channels") * read("temporal_patch_size") * read("patch_size") ** 2
    merger = merged * merged + merged + merged * read("out_hidden_size") + read("out_hidden_size")
    stem = (pixels + 1) * width + read("num_position_embeddings") * width
    return read("depth") * _block(width, inner) + stem + merger + 2 * width + deep * (merger + 2 * merged)


def _siglip(read: Read, hidden: int, deep: int) -> int:
    """Biased two-matrix blocks, a final norm, one matrix and a norm to the text width."""
    width, inner = read("hidden_size"), read("intermediate_size")
    patches = (read("image_size") // read("patch_size")) ** 2
    stem = (read("num_channels") * read("patch_size") ** 2 + 1) * width + patches * width
    return read("num_hidden_layers") * _block(width, inner) + stem + 2 * width + width * hidden + width


def _gemma(read: Read, hidden: int, deep: int) -> int:
    """Gated blocks with four norms, normed queries and keys; a table of positions per axis; one matrix to the text."""
    width, inner, head = read("hidden_size"), read("intermediate_size"), read("head_dim")
    queries, keys = read("num_attention_heads") * head, read("num_key_value_heads") * head
    block = 2 * width * (queries + keys) + 2 * head + 3 * width * inner + 4 * width
    stem = 3 * read("patch_size") ** 2 * width + 2 * read("position_embedding_size") * width
    return read("num_hidden_layers") * block + stem + width * hidden


def _block(width: int, inner: int) -> int:
    """A transformer block with biases everywhere: four projections, two matrices, two layer norms."""
    return 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width


_COUNTS = {
    "qwen3_vl": _qwen, "qwen3_vl_moe": _qwen, "qwen3_5": _qwen, "qwen3_5_moe": _qwen, "siglip_vision_model": _siglip,
    "gemma4_vision": _gemma,
}  # fmt: skip
_KEYS = {
    _qwen: ("hidden_size", "intermediate_size", "depth", "spatial_merge_size", "in_channels", "temporal_patch_size",
            "patch_size", "out_hidden_size", "num_position_embeddings"),
    _siglip: ("hidden_size", "intermediate_size", "image_size", "patch_size", "num_channels", "num_hidden_layers"),
    _gemma: ("hidden_size", "intermediate_size", "head_dim", "num_attention_heads", "num_key_value_heads", "patch_size",
             "position_embedding_size", "num_hidden_layers"),
}  # fmt: skip
