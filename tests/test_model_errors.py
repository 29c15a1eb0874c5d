"""Bad configs: every mistake is an `InputError` that says where and what, never another exception."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.model import counts
from hwmodel.model.huggingface import from_huggingface
from hwmodel.model.load import load_model
from hwmodel.spec import yamlfile
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = sorted(path for path in (ROOT / "graphs").glob("*.yaml"))
PLAIN: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
    "hidden_act": "silu", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
MOE: dict[str, Any] = PLAIN | {
    "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def read(config: object, name: str = "config") -> Any:
    return from_huggingface(yamlfile.parse_json(json.dumps(config), f"{name}.json"))


def refused(config: object) -> str:
    with pytest.raises(InputError) as caught:
        read(config)
    return str(caught.value)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                                 "vocab_size"])  # fmt: skip
def test_missing_keys_are_named(key: str) -> None:
    assert f"missing key '{key}'" in refused({name: value for name, value in PLAIN.items() if name != key})


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                 "intermediate_size", "vocab_size"])  # fmt: skip
@pytest.mark.parametrize("value", [-1, 0, "4096", 10**30, 0.5, True, float("nan"), float("inf"), [4096], {}])
def test_bad_values_are_located(key: str, value: object) -> None:
    text = refused(PLAIN | {key: value})
    assert text.startswith("config.json:1:")
    assert f"{key}: expected a whole number" in text


def test_all_problems_at_once() -> None:
    text = refused(PLAIN | {"hidden_size": "wide", "vocab_size": -3, "num_attention_heads": None})
    assert all(word in text for word in ("hidden_size", "vocab_size", "num_attention_heads"))


def test_place_is_the_line_of_the_key() -> None:
    text = json.dumps(PLAIN | {"num_hidden_layers": "many"}, indent=2)
    with pytest.raises(InputError) as caught:
        from_huggingface(yamlfile.parse_json(text, "c.json"))
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "num_hidden_layers" in row)
    assert f"c.json:{line}:" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architectures": None, "model_type": None}, "missing keys 'architectures' and 'model_type'"),
        ({"architectures": "LlamaForCausalLM"}, "expected a list of class names"),
        ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, "BertForMaskedLM"),
        ({"architectures": ["NewForCausalLM"], "model_type": "new", "hidden_act": "gelu"}, "NewForCausalLM"),
        ({"is_encoder_decoder": True}, "encoder-decoder"),
        ({"layer_types": ["full_attention"] * 3 + ["retention"]}, "unknown layer kind 'retention'"),
        ({"layer_types": ["full_attention"]}, "1 entries for 4 layers"),
        ({"layer_types": ["sliding_attention"] * 4}, "missing key 'sliding_window'"),
        ({"layer_types": ["linear_attention"] * 4}, "linear_num_value_heads"),
        ({"num_key_value_heads": 5}, "not a multiple"),
        ({"num_attention_heads": 15}, "not a multiple"),
        ({"cross_attention_layers": [1]}, "cross_attention_layers"),
        ({"mamba_d_ssm": 128}, "mamba_d_ssm"),
        ({"torch_dtype": "float7"}, "unknown dtype 'float7'"),
        ({"quantization_config": {"quant_method": "squeeze"}}, "unknown quant_method 'squeeze'"),
        ({"quantization_config": "fp8"}, "expected an object"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP3"}}, "unknown quant_algo 'FP3'"),
        ({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": "lm_head"}}, "expected a list"),
        ({"num_hidden_layers": 2001}, "from 1 to 2,000"),
    ],
)  # fmt: skip
def test_refusals(change: dict[str, Any], words: str) -> None:
    assert words in refused(PLAIN | change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_experts_per_tok": 9}, "9 experts per token are more than the 8 experts"),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "medium"]}, "unknown layer kind 'medium'"),
        ({"moe_layers_enum": "1,two"}, "layer numbers separated by commas"),
        ({"moe_layer_freq": [0, 1]}, "2 entries for 4 layers"),
        ({"moe_layer_freq": "all"}, "expected a whole number"),
    ],
)
def test_expert_refusals(change: dict[str, Any], words: str) -> None:
    assert words in refused(MOE | change)


@pytest.mark.parametrize("value", [None, 3, [], "text"])
def test_not_an_object(value: object) -> None:
    assert "expected an object" in refused(value)


def test_unknown_keys_are_named_in_a_warning() -> None:
    model = read(PLAIN | {"frobnication_rate": 3, "initializer_range": 0.02, "bos_token_id": 1})
    assert model.warnings == ("key 'frobnication_rate' is not understood and was not used",)


def test_misspelt_keys_get_a_hint() -> None:
    changed = {name: value for name, value in PLAIN.items() if name != "num_key_value_heads"}
    (warning,) = read(changed | {"num_key_value_head": 4}).warnings
    assert "did you mean 'num_key_value_heads'?" in warning


def test_unknown_architecture_is_read_with_a_warning() -> None:
    model = read(PLAIN | {"architectures": ["NewForCausalLM"], "model_type": "new"})
    assert counts.params_total(model) == counts.params_total(read(PLAIN))
    assert "NewForCausalLM" in model.warnings[0]


# ---- rules that no shared file shows ------------------------------------------------------------------------------


def _sparse(config: dict[str, Any]) -> list[bool]:
    return [layer.ffn.kind == "moe" for layer in read(config).layers()]


@pytest.mark.parametrize(
    ("change", "sparse"),
    [
        ({"moe_layer_freq": [0, 1, 1, 0]}, [False, True, True, False]),
        ({"moe_layer_freq": 2, "first_k_dense_replace": 1}, [False, False, True, False]),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "dense"]}, [False, True, True, False]),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, [False, True, False, True]),
        ({"interleave_moe_layer_step": 2}, [False, True, False, True]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [3]}, [False, True, False, False]),
        ({"moe_layers_enum": "1,2"}, [False, True, True, False]),
    ],
)
def test_which_layers_have_experts(change: dict[str, Any], sparse: list[bool]) -> None:
    assert _sparse(MOE | change) == sparse


@pytest.mark.parametrize(
    ("change", "windows"),
    [
        ({"sliding_window": 64}, [64, 64, 64, 64]),
        ({"sliding_window": 64, "use_sliding_window": False}, [0, 0, 0, 0]),
        ({"sliding_window": 64, "sliding_window_pattern": 2}, [64, 0, 64, 0]),
        ({"sliding_window": 64, "sliding_window_pattern": "LLLG"}, [64, 64, 64, 0]),
        ({"sliding_window": 64, "hybrid_layer_pattern": [0, 1, 1, 0]}, [0, 64, 64, 0]),
        ({"attention_chunk_size": 64}, [64, 64, 64, 0]),
        ({"attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 0]}, [64, 0, 64, 0]),
    ],
)
def test_which_layers_slide(change: dict[str, Any], windows: list[int]) -> None:
    assert [layer.attention.window for layer in read(PLAIN | change).layers()] == windows


def test_layers_described_one_by_one() -> None:
    blocks = [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"no_op": True, "n_heads_in_group": None}, "ffn": {"ffn_mult": 1.3}},
        {"attention": {"n_heads_in_group": 4}, "ffn": {"no_op": True}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"intermediate_size": 2000}},
    ]
    changes = {"architectures": ["DeciLMForCausalLM"], "num_key_value_heads": None, "block_configs": blocks}
    layers = list(read(PLAIN | changes).layers())
    assert [layer.attention and layer.attention.kv_heads for layer in layers] == [2, None, 4, 1]
    assert [layer.ffn and layer.ffn.inter for layer in layers] == [1792, 1024, None, 2000]
    assert [len(layer.extra) for layer in layers] == [2, 1, 1, 2]


def test_shared_indexers_own_no_key() -> None:
    changes = {
        "architectures": ["GlmMoeDsaForCausalLM"], "kv_lora_rank": 512, "q_lora_rank": 256, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64, "v_head_dim": 64, "index_topk": 2048, "index_n_heads": 4, "index_head_dim": 128,
        "indexer_types": ["full", "shared", "full", "shared"],
    }  # fmt: skip
    law = counts.kv_law(read(PLAIN | changes))
    assert law.bytes_per_token == 2 * (2 * (512 + 64 + 128) + 2 * (512 + 64))


def test_kimi_layers_count_from_one() -> None:
    linear = {"kda_layers": [1, 2, 3], "full_attn_layers": [4], "num_heads": 16, "head_dim": 64}
    model = read(PLAIN | {"architectures": ["KimiLinearForCausalLM"], "linear_attn_config": linear})
    assert [layer.attention.kind for layer in model.layers()] == ["kda", "kda", "kda", "attention"]


def test_lightning_layers() -> None:
    model = read(PLAIN | {"architectures": ["MiniMaxText01ForCausalLM"], "attn_type_list": [0, 0, 0, 1]})
    assert [layer.attention.kind for layer in model.layers()] == ["lightning"] * 3 + ["attention"]


# ---- names, folders, explicit layers ------------------------------------------------------------------------------


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-70b'"):
        load_model("llama-3.1-70")


def test_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"without a config\.json"):
        load_model(tmp_path)


EXPLICIT = """
hidden_size: 1024
vocab_size: 32000
experts: mxfp4
layers:
  - count: 2
    attention: {kind: attention, heads: 16, kv_heads: 4, head_dim: 64}
    ffn: {kind: ffn, inter: 4096}
  - count: 3
    attention: {kind: mla, heads: 16, kv_lora_rank: 256, nope_dim: 64, rope_dim: 32, v_head_dim: 64}
    ffn: {kind: moe, experts: 16, topk: 2, expert_inter: 512}
"""


def _explicit(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return load_model(path)


def test_explicit_layers(tmp_path: Path) -> None:
    model = _explicit(tmp_path, EXPLICIT)
    dense = 2 * 1024 * 1024 + 2 * 1024 * 256 + 3 * 1024 * 4096
    latent = 16 * 96 * 1024 + 288 * 1024 + 256 + 16 * 128 * 256 + 1024 * 1024
    sparse = latent + 16 * 1024 + 16 * 3 * 1024 * 512
    total = 2 * dense + 3 * sparse + 5 * 2 * 1024 + 2 * 32000 * 1024 + 1024
    assert counts.params_total(model) == total
    assert [row["count"] for row in counts.layer_runs(model)] == [2, 3]
    experts = 3 * 16 * 3 * 1024 * 512
    assert counts.weights_bytes(model) == (total - experts) * 2 + experts * 4.25 / 8


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("kind: mla", "kind: mlb", r"own\.yaml:10:\d+: layers\[1\]\.attention\.kind: unknown attention kind 'mlb'"),
        ("kv_heads: 4,", "kv_heads: 5,", "not a multiple of 5 kv_heads"),
        ("inter: 4096", "width: 4096", r"own\.yaml:8:\d+: layers\[0\]\.ffn.*unknown key 'width'"),
        ("topk: 2", "topk: 20", "topk 20 is more than the 16 experts"),
        ("vocab_size: 32000", "vocab_size: -1", "vocab_size"),
        ("mxfp4", "mxfp3", "unknown dtype 'mxfp3', did you mean 'mxfp"),
        ("kind: ffn, ", "", "missing key 'kind'"),
        ("count: 2", "count: 100000", "count"),
    ],
)
def test_explicit_mistakes_are_located(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        _explicit(tmp_path, EXPLICIT.replace(old, new))


# ---- nothing else ever comes out -----------------------------------------------------------------------------------

JUNK = st.sampled_from([None, -1, 0, 1, 3, 10**9, 10**400, 0.5, float("nan"), float("inf"), "", "x", "12", True, [],
                        [1], [None], ["x"], [[1]], {}, {"a": 1}, [{}], ["full_attention"] * 3, "*-ME"])  # fmt: skip


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.sampled_from(GRAPHS), st.data())
def test_mutated_configs_are_read_or_refused(path: Path, data: st.DataObject) -> None:
    value = copy.deepcopy(yamlfile.load(path).value)
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.sampled_from(sorted(value)))] = data.draw(JUNK)
    try:
        said = counts.describe(from_huggingface(Document(path.name, value, {}, ())))["params_total"]
    except InputError as error:
        said = str(error)
    assert said
