"""Every shared config against the oracle: exact parameters and caches; files that are no decoder are refused."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from hwmodel.model.architecture import Model
from hwmodel.model.counts import active, kv_law, params_total
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.spec.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = Path(os.environ.get("HWMODEL_SHARED") or ROOT.parent / "shared") / "configs"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CONFIGS.is_dir(), reason="no shared data: set HWMODEL_SHARED to its folder"),
]


def _oracle() -> dict[str, dict[str, str]]:
    if not CONFIGS.is_dir():
        return {}
    with (CONFIGS / "oracle.csv").open(newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def _files(folder: str = "") -> list[str]:
    return sorted(p.name for p in (CONFIGS / folder).glob("*.json") if not p.name.endswith(".hf_quant.json"))


ORACLE = _oracle()


@pytest.mark.parametrize("file", _files())
def test_every_config_has_an_oracle(file: str) -> None:
    assert file in ORACLE


@pytest.mark.parametrize("file", ORACLE)
def test_counts_are_exact(file: str) -> None:
    row, model = ORACLE[file], load_model(CONFIGS / file)
    assert params_total(model) == int(row["params_total"])
    assert active(model).excl_input_embedding == int(row["params_active_excl_input_embedding"])
    law = kv_law(model, fmt("bf16"))
    if row["kv_bytes_per_token_bf16"]:
        assert law.bytes_per_token == int(row["kv_bytes_per_token_bf16"])
        assert law.fixed_bytes == int(row["fixed_state_bytes_per_sequence"])


@pytest.mark.parametrize("file", ORACLE)
def test_vision_parts_stand_apart(file: str) -> None:
    """The oracle's notes state the vision part where the class has one."""
    stated = re.search(r"vision/audio part \+(\d+)", ORACLE[file]["note"])
    if stated is not None:
        assert load_model(CONFIGS / file).vision_params == int(stated.group(1))


@pytest.mark.parametrize("file", ORACLE)
def test_only_odd_keys_are_warned_of(file: str) -> None:
    allowed = ("unsloth_fixed", "not known; read as model_type", "kv_cache_scheme")
    assert [text for text in load_model(CONFIGS / file).warnings if not any(word in text for word in allowed)] == []


@pytest.mark.parametrize("file", _files("parser_only"))
def test_other_files_are_read_or_refused_by_name(file: str) -> None:
    try:
        found: Model | InputError = load_model(CONFIGS / "parser_only" / file)
    except InputError as error:
        found = error
    assert isinstance(found, Model) or (found.problems and str(CONFIGS) in str(found))


@pytest.mark.parametrize(
    ("file", "word"),
    [
        ("calculon--gpt3-175B.json", "'architectures' and 'model_type'"),
        ("llmanalysis--gpt2.json", "'num_hidden_layers'"),
        ("hfclass--zamba2.json", "zamba2"),
        ("hfclass--falcon-h1.json", "falcon_h1"),
        ("ipex--whisper.json", "encoder-decoder"),
        ("ipex--t5.json", "encoder-decoder"),
        ("ipex--mllama.json", "cross_attention_layers"),
        ("ipex--git.json", "GitForCausalLM"),
        ("maxtext--google--gemma-2-2b.json", "'model_type'"),
    ],
)
def test_refusals_name_the_reason(file: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        load_model(CONFIGS / "parser_only" / file)


STORED = {  # stored bytes / 1e9, of the text part without MTP, from the formats the files state
    "openai--gpt-oss-120b.json": (65.25, "mxfp4"),
    "nvidia--Qwen3-235B-A22B-NVFP4.json": (134.10, "nvfp4"),
    "Qwen--Qwen3-235B-A22B.json": (470.19, "bf16"),
    "deepseek-ai--DeepSeek-V3.json": (673.15, "fp8_block"),
    "moonshotai--Kimi-K2.5.json": (594.21, "int4"),
}


@pytest.mark.parametrize("file", STORED)
def test_stored_bytes(file: str) -> None:
    from hwmodel.model.counts import weights_bytes

    model = load_model(CONFIGS / file)
    size, name = STORED[file]
    assert model.quantization.name == name
    assert weights_bytes(model) / 1e9 == pytest.approx(size, abs=0.006)


@pytest.mark.parametrize(
    ("file", "kv"),
    [
        ("nvidia--Gemma-4-31B-IT-NVFP4.json", "fp8"),
        ("nvidia--Llama-3.1-70B-Instruct-FP8.json", "fp8"),
        ("nvidia--DeepSeek-V4-Flash-NVFP4.json", None),
        ("nvidia--Kimi-K2.5-NVFP4.json", None),
        ("Qwen--Qwen3-8B.json", None),
    ],
)
def test_kv_format_comes_from_the_companion(file: str, kv: str | None) -> None:
    found = load_model(CONFIGS / file).kv_dtype
    assert (found.name if found is not None else None) == kv


def test_kv_format_is_unknown_without_the_companion(tmp_path: Path) -> None:
    """Case C12: the same config, with and without the ModelOpt file."""
    name = "nvidia--Gemma-4-31B-IT-NVFP4"
    alone = tmp_path / f"{name}.json"
    alone.write_text((CONFIGS / f"{name}.json").read_text())
    assert load_model(alone).kv_dtype is None
    (tmp_path / f"{name}.hf_quant.json").write_text((CONFIGS / f"{name}.hf_quant.json").read_text())
    found = load_model(alone).kv_dtype
    assert found is not None
    assert found.name == "fp8"


def test_folder_with_hub_names(tmp_path: Path) -> None:
    name = "nvidia--Llama-3.1-70B-Instruct-FP8"
    (tmp_path / "config.json").write_text((CONFIGS / f"{name}.json").read_text())
    (tmp_path / "hf_quant_config.json").write_text((CONFIGS / f"{name}.hf_quant.json").read_text())
    model = load_model(tmp_path)
    assert (model.name, model.quantization.name) == (tmp_path.name, "fp8")


def _formats(file: str, part: str) -> set[str]:
    """Formats of the matrices whose names hold `part`, over all layers."""
    model = load_model(CONFIGS / file)
    return {
        model.format_of(kind, weight).name
        for kind, layer in enumerate(model.kinds)
        for weight in layer.weights(model.hidden)
        if weight.matrix and part in weight.module
    }


@pytest.mark.parametrize(
    ("file", "part", "formats"),
    [
        ("nvidia--DeepSeek-V4-Flash-NVFP4.json", "ffn.experts", {"nvfp4"}),
        ("nvidia--DeepSeek-V4-Flash-NVFP4.json", "attn.wq_b", {"fp8_block"}),
        ("deepseek-ai--DeepSeek-V4-Flash.json", "ffn.experts", {"mxfp4"}),
        ("deepseek-ai--DeepSeek-V4-Flash.json", "ffn.shared_experts", {"fp8_block"}),
        ("sgl-project--DeepSeek-V4-Flash-FP8.json", "ffn.experts", {"fp8_block"}),
        ("nvidia--DeepSeek-V3.1-NVFP4.json", "q_b_proj", {"bf16"}),
        ("nvidia--DeepSeek-V3.1-NVFP4.json", "o_proj", {"nvfp4"}),
        ("nvidia--GLM-5.1-NVFP4.json", "mlp.experts", {"nvfp4"}),
        ("nvidia--GLM-5.1-NVFP4.json", "self_attn", {"bf16"}),
        ("nvidia--Gemma-4-26B-A4B-NVFP4.json", "experts", {"nvfp4"}),
        ("nvidia--Gemma-4-26B-A4B-NVFP4.json", "mlp", {"bf16"}),
        ("nvidia--Kimi-K2.6-NVFP4.json", "shared_experts", {"bf16"}),
        ("nvidia--Kimi-K2.6-NVFP4.json", "mlp.experts", {"nvfp4"}),
        ("moonshotai--Kimi-K2.5.json", "mlp.experts", {"int4"}),
        ("moonshotai--Kimi-K2.5.json", "mlp.gate_proj", {"bf16"}),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4.json", "in_proj", {"bf16", "nvfp4"}),
        ("nvidia--Qwen3.5-397B-A17B-NVFP4.json", "linear_attn", {"bf16"}),
        ("nvidia--Qwen3.5-397B-A17B-NVFP4.json", "mlp.experts", {"nvfp4"}),
        ("blis--llama-4-scout-17b-16e-instruct-fp8-dynamic.json", "self_attn", {"bf16"}),
        ("blis--llama-4-scout-17b-16e-instruct-fp8-dynamic.json", "experts", {"fp8_channel"}),
        ("frontier--Llama-3.1-405B-Instruct-FP8.json", "self_attn", {"fp8_channel"}),
        ("MiniMaxAI--MiniMax-M2.5.json", "gate_proj", {"fp8_block"}),
        ("MiniMaxAI--MiniMax-M2.5.json", "block_sparse_moe.gate", {"bf16"}),
        ("Qwen--Qwen3-235B-A22B-FP8.json", "mlp.experts", {"fp8_block"}),
    ],
)
def test_formats_by_module(file: str, part: str, formats: set[str]) -> None:
    assert _formats(file, part) == formats
