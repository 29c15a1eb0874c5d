"""What the classes named in `architectures` imply without saying it in a key: norms, biases, tying, module names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from hwmodel.model.config import Config
from hwmodel.spec.errors import InputError, did_you_mean

GEMMA_NORMS = (
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """The traits of model classes that share code; keys of the config overrule them where there is a key."""

    architectures: tuple[str, ...]
    model_types: tuple[str, ...] = ()
    """Used when `architectures` says nothing that is known."""
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    """Norm vectors of the residual width in each layer."""
    norm_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qkv_bias: bool | None = None
    """None: the key `attention_bias`, false when absent."""
    o_bias: bool | None = None
    mlp_bias: bool | None = None
    """None: the key `mlp_bias`, false when absent."""
    gated: bool = True
    tied: bool = False
    """Value of `tie_word_embeddings` when the key is missing."""
    window_period: int = 0
    """Every so many layers one attends to everything, the others slide; 0: no such rule."""
    window_first: bool = False
    """The window is on layers 0, 2, ... instead of the full layer being the last of each period."""
    window_opt_in: bool = False
    """The window is used only with `use_sliding_window`."""
    sinks: bool = False
    attention_module: str = "self_attn"
    moe_module: str = "mlp"
    router_module: str = "mlp.gate"
    shared_module: str = "mlp.shared_experts"
    score_bias: bool = False
    """The router has a correction per expert (no key says so)."""
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    positions: int | None = None
    """Extra rows of a learned position table; None for no table."""
    mtp_copies: bool = False
    """Each MTP module stores the embedding and the head again."""
    inter_factor: int = 0
    """Feed-forward width in residual widths when no key states it."""
    known: bool = True


_BLOCK_SPARSE: dict[str, Any] = {
    "moe_module": "block_sparse_moe",
    "router_module": "block_sparse_moe.gate",
    "shared_module": "block_sparse_moe.shared_experts",
}
_QWEN_MOE: dict[str, Any] = {"shared_module": "mlp.shared_expert", "shared_gate": True}
_MIXER: dict[str, Any] = {
    "attention_module": "mixer", "moe_module": "mixer", "router_module": "mixer.gate",
    "shared_module": "mixer.shared_experts",
}  # fmt: skip
_LAYER_NORM: dict[str, Any] = {"norm_bias": True, "gated": False}

FAMILIES: tuple[Family, ...] = (
    Family(("LlamaForCausalLM", "MistralForCausalLM", "Mistral3ForConditionalGeneration", "Ministral3ForCausalLM",
            "Phi3ForCausalLM", "SmolLM3ForCausalLM"),
           ("llama", "mistral", "mistral3", "ministral3", "phi3", "smollm3")),
    Family(("MixtralForCausalLM",), ("mixtral",), **_BLOCK_SPARSE),
    Family(("DeciLMForCausalLM",), ("nemotron-nas",)),
    Family(("GraniteForCausalLM",), ("granite",)),
    Family(("SeedOssForCausalLM",), ("seed_oss",), qkv_bias=True, o_bias=False),
    Family(("Qwen2ForCausalLM", "Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"),
           ("qwen2", "qwen2_vl", "qwen2_5_vl"), qkv_bias=True, o_bias=False, window_opt_in=True),
    Family(("MiMoForCausalLM",), ("mimo",), o_bias=False, window_opt_in=True),
    Family(("Qwen2MoeForCausalLM",), ("qwen2_moe",), qkv_bias=True, o_bias=False, window_opt_in=True, **_QWEN_MOE),
    Family(("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration"),
           ("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text"),
           qk_norm="head", window_opt_in=True),
    Family(("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration"),
           ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), qk_norm="head", **_QWEN_MOE),
    Family(("DeepseekV2ForCausalLM",), ("deepseek_v2",)),
    Family(("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM"), ("deepseek_v3", "deepseek_v32", "kimi_k2"),
           score_bias=True, mtp_copies=True),
    Family(("Glm4MoeLiteForCausalLM", "GlmMoeDsaForCausalLM"), ("glm4_moe_lite", "glm_moe_dsa"), score_bias=True),
    Family(("Glm4MoeForCausalLM", "Glm4vMoeForConditionalGeneration"), ("glm4_moe", "glm4v_moe"), o_bias=False,
           score_bias=True),
    Family(("DeepseekV4ForCausalLM",), ("deepseek_v4", "deepseek_ref"), norms=("attn_norm", "ffn_norm"),
           attention_module="attn", moe_module="ffn", router_module="ffn.gate", shared_module="ffn.shared_experts",
           score_bias=True),
    Family(("KimiLinearForCausalLM",), ("kimi_linear",), score_bias=True, **_BLOCK_SPARSE),
    Family(("Llama4ForConditionalGeneration", "Llama4ForCausalLM"), ("llama4", "llama4_text"),
           moe_module="feed_forward", router_module="feed_forward.router", shared_module="feed_forward.shared_expert"),
    Family(("Step3TextForCausalLM", "Step3VLForConditionalGeneration"), ("step3_text", "step3_vl"),
           moe_module="moe", router_module="moe.gate", shared_module="share_expert"),
    Family(("GptOssForCausalLM",), ("gpt_oss",), sinks=True, router_module="mlp.router", router_bias=True,
           expert_bias=True, window_period=2, window_first=True),
    Family(("MiniMaxM2ForCausalLM",), ("minimax_m2",), **_BLOCK_SPARSE),
    Family(("MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxForCausalLM"),
           ("minimax_text_01", "minimax_m1", "minimax"), **_BLOCK_SPARSE),
    Family(("MiMoV2FlashForCausalLM",), ("mimo_v2_flash",), score_bias=True),
    Family(("NemotronHForCausalLM",), ("nemotron_h",), norms=("norm",), gated=False, score_bias=True, **_MIXER),
    Family(("JambaForCausalLM",), ("jamba",)),
    Family(("GemmaForCausalLM",), ("gemma",), tied=True),
    Family(("Gemma2ForCausalLM",), ("gemma2",), norms=GEMMA_NORMS, tied=True, window_period=2, window_first=True),
    Family(("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), ("gemma3", "gemma3_text"), norms=GEMMA_NORMS,
           qk_norm="head", tied=True, window_period=6),
    Family(("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"), ("gemma4", "gemma4_text"), norms=GEMMA_NORMS,
           qk_norm="head", tied=True, window_period=6, moe_module="", router_module="router.proj"),
    Family(("Cohere2ForCausalLM",), ("cohere2",), norms=("input_layernorm",), tied=True, window_period=4),
    Family(("CohereForCausalLM",), ("cohere",), norms=("input_layernorm",), tied=True),
    Family(("Olmo3ForCausalLM",), ("olmo3",), norms=("post_attention_layernorm", "post_feedforward_layernorm"),
           qk_norm="full", window_period=4),
    Family(("Olmo2ForCausalLM",), ("olmo2",), norms=("post_attention_layernorm", "post_feedforward_layernorm"),
           qk_norm="full"),
    Family(("OlmoeForCausalLM",), ("olmoe",), qk_norm="full"),
    Family(("Exaone4ForCausalLM",), ("exaone4",), norms=("post_attention_layernorm", "post_feedforward_layernorm"),
           qk_norm="head"),
    Family(("PhiMoEForCausalLM", "PhimoeForCausalLM"), ("phimoe",), norm_bias=True, **_BLOCK_SPARSE),
    Family(("GPT2LMHeadModel",), ("gpt2",), norms=("ln_1", "ln_2"), qkv_bias=True, o_bias=True, mlp_bias=True,
           tied=True, positions=0, inter_factor=4, **_LAYER_NORM),
    Family(("OPTForCausalLM",), ("opt",), norms=("self_attn_layer_norm", "final_layer_norm"), qkv_bias=True,
           o_bias=True, mlp_bias=True, tied=True, positions=2, **_LAYER_NORM),
    Family(("FalconForCausalLM", "RWForCausalLM"), ("falcon",), tied=True, inter_factor=4, **_LAYER_NORM),
    Family(("GPTNeoXForCausalLM",), ("gpt_neox",), qkv_bias=True, o_bias=True, mlp_bias=True, **_LAYER_NORM),
    Family(("Starcoder2ForCausalLM",), ("starcoder2",), tied=True, **_LAYER_NORM),
)  # fmt: skip
_BY_ARCHITECTURE = {name: family for family in FAMILIES for name in family.architectures}
_BY_TYPE = {name: family for family in FAMILIES for name in family.model_types}
_DECODERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_GATED = ("silu", "swish", "swiglu", "silu_and_mul")


def family_of(config: Config) -> Family:
    """The family by `architectures`, else by `model_type` with a warning, else generic when its keys tell enough.

    Raises
    ------
    InputError
        For a config that is not a decoder language model's, or says too little.
    """
    names = _architectures(config)
    types = [value for _, value in _at_each_level(config, "model_type") if isinstance(value, str)]
    config.ignore("architectures", "model_type")
    if config.flag("is_encoder_decoder"):
        path = config.find("is_encoder_decoder")[0]
        message = f"{_what(names, types)} is an encoder-decoder; only decoders are read"
        raise InputError(config.document.problem(path, message))
    for name in names:
        if name in _BY_ARCHITECTURE:
            return _BY_ARCHITECTURE[name]
    for kind in types:
        if kind in _BY_TYPE:
            if names:
                config.warn(f"architectures {_listed(names)} not known; read as model_type '{kind}'")
            return _BY_TYPE[kind]
    return _generic(config, names, types)


def _generic(config: Config, names: list[str], types: list[str]) -> Family:
    """Read an unknown class by its keys alone, when they are those of a plain gated decoder."""
    place, kind_place = (config.find(key)[0] for key in ("architectures", "model_type"))
    document = config.document
    if not names and not types:
        keys = ", ".join(f"'{key}'" for key in list(document.value)[:8])
        message = f"missing keys 'architectures' and 'model_type': not a config of the model hub (its keys: {keys})"
        raise InputError(document.problem((), message))
    if not names:
        raise InputError(document.problem(kind_place, f"unknown model_type {_listed(types)} and no 'architectures'"))
    if not any(name.endswith(_DECODERS) for name in names):
        hint = did_you_mean(names[0], _BY_ARCHITECTURE) or ", such as 'LlamaForCausalLM'"
        message = f"unknown architecture {_what(names, types)}: expected a decoder's class{hint}"
        raise InputError(document.problem(place, message))
    activation = config.text("hidden_act", "hidden_activation")
    if activation.lower() not in _GATED:
        message = f"unknown architecture {_what(names, types)}, and hidden_act '{activation}' does not tell its layers"
        raise InputError(document.problem(place, message))
    config.warn(f"unknown architecture {_what(names, types)}: read by its keys as a plain decoder; check the counts")
    return replace(_BY_ARCHITECTURE["LlamaForCausalLM"], known=False)


def _architectures(config: Config) -> list[str]:
    found = []
    for path, value in reversed(_at_each_level(config, "architectures")):
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            message = "expected a list of class names, such as [LlamaForCausalLM]"
            raise InputError(config.document.problem(path, message))
        found += value
    return found


def _at_each_level(config: Config, key: str) -> list[tuple[tuple[str | int, ...], object]]:
    return [((*path, key), level[key]) for path, level in config.levels if level.get(key) is not None]


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name[:60]}'" for name in names[:4])


def _what(names: list[str], types: list[str]) -> str:
    return _listed(names) + (f" (model_type {_listed(types)})" if types else "")
