"""Counts of the shipped models against published numbers, hand formulas and known cases; needs no shared data."""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model

ROOT = Path(__file__).resolve().parents[1]
GRAPHS = sorted(path.stem for path in (ROOT / "graphs").glob("*.yaml"))
BF16, FP8 = fmt("bf16"), fmt("fp8")

# name: parameters, active without the input embedding, growing cache bytes per token, bytes that do not grow (bf16).
# Parameter counts of the modules of transformers 5.24.0, built without memory (gpt-oss-20b: its card, 20.91 B and
# 3.61 B); caches by the formulas of the classes.
EXACT = {
    "deepseek-r1": (671_026_419_200, 36_625_618_432, 70_272, 0),
    "deepseek-v2": (235_741_434_880, 20_851_512_320, 69_120, 0),
    "deepseek-v2-lite": (15_706_484_224, 2_451_435_008, 31_104, 0),
    "deepseek-v3": (671_026_419_200, 36_625_618_432, 70_272, 0),
    "deepseek-v4-flash": (284_334_567_511, 13_270_101_591, 6_880, 5_636_096),
    "falcon-40b": (41_303_293_952, 41_303_293_952, 122_880, 0),
    "gemma-3-12b": (11_765_788_416, 11_765_788_416, 65_536, 335_544_320),
    "gemma-3-27b": (27_009_002_240, 27_009_002_240, 81_920, 436_207_616),
    "gemma-3-4b": (3_880_099_328, 3_880_099_328, 20_480, 121_634_816),
    "gemma-4-26b-a4b": (25_233_141_790, 3_822_530_590, 20_480, 209_715_200),
    "gemma-4-31b": (30_697_345_340, 30_697_345_340, 81_920, 838_860_800),
    "gemma-4-e2b": (4_628_569_379, 2_279_759_139, 6_144, 6_291_456),
    "glm-4.7-flash": (29_943_393_920, 3_579_571_840, 54_144, 0),
    "glm-5": (743_911_218_432, 40_833_146_112, 109_824, 0),
    "gpt-2": (124_439_808, 123_653_376, 36_864, 0),
    "gpt-2-xl": (1_557_611_200, 1_555_972_800, 307_200, 0),
    "gpt-3-175b": (174_604_259_328, 174_579_093_504, 4_718_592, 0),
    "gpt-oss-120b": (116_829_156_672, 5_132_849_472, 36_864, 4_718_592),
    "gpt-oss-20b": (20_914_757_184, 3_608_307_264, 24_576, 3_145_728),
    "kimi-k2": (1_026_408_232_448, 31_687_095_808, 70_272, 0),
    "kimi-k2.5": (1_026_408_232_448, 31_687_095_808, 70_272, 0),
    "llama-2-13b": (13_015_864_320, 12_852_024_320, 819_200, 0),
    "llama-2-70b": (68_976_648_192, 68_714_504_192, 327_680, 0),
    "llama-2-7b": (6_738_415_616, 6_607_343_616, 524_288, 0),
    "llama-3.1-405b": (405_853_388_800, 403_752_042_496, 516_096, 0),
    "llama-3.1-70b": (70_553_706_496, 69_503_033_344, 327_680, 0),
    "llama-3.1-8b": (8_030_261_248, 7_504_924_672, 131_072, 0),
    "llama-3.2-1b": (1_235_814_400, 1_235_814_400, 32_768, 0),
    "llama-3.3-70b": (70_553_706_496, 69_503_033_344, 327_680, 0),
    "llama-4-scout": (107_769_861_120, 16_138_408_960, 49_152, 1_207_959_552),
    "minimax-m2.5": (228_689_764_864, 10_415_956_480, 253_952, 0),
    "mistral-7b": (7_241_732_096, 7_110_660_096, 0, 536_870_912),
    "mixtral-8x7b": (46_702_792_704, 12_748_853_248, 131_072, 0),
    "nemotron-3-nano-30b-a3b": (31_577_940_288, 3_227_754_816, 6_144, 49_364_992),
    "nemotron-3-super-120b-a12b": (120_668_707_840, 12_233_366_528, 8_192, 171_048_960),
    "olmo-3-7b": (7_298_011_136, 6_887_272_448, 131_072, 1_610_612_736),
    "opt-1.3b": (1_315_758_080, 1_311_559_680, 196_608, 0),
    "opt-30b": (29_974_540_288, 29_959_845_888, 1_376_256, 0),
    "opt-6.7b": (6_658_473_984, 6_650_077_184, 524_288, 0),
    "opt-66b": (65_719_701_504, 65_700_808_704, 2_359_296, 0),
    "phi-4": (14_659_507_200, 14_145_704_960, 204_800, 0),
    "qwen2.5-32b": (32_763_876_352, 31_985_308_672, 262_144, 0),
    "qwen2.5-7b": (7_615_616_512, 7_070_619_136, 57_344, 0),
    "qwen3-0.6b": (596_049_920, 596_049_920, 114_688, 0),
    "qwen3-1.7b": (1_720_574_976, 1_720_574_976, 114_688, 0),
    "qwen3-235b-a22b": (235_093_634_560, 21_568_433_664, 192_512, 0),
    "qwen3-30b-a3b": (30_532_122_624, 3_041_867_776, 98_304, 0),
    "qwen3-32b": (32_762_123_264, 31_984_210_944, 262_144, 0),
    "qwen3-8b": (8_190_735_360, 7_568_405_504, 147_456, 0),
    "qwen3.5-27b": (26_895_998_464, 25_624_600_064, 65_536, 154_927_104),
    "qwen3.5-35b-a3b": (34_660_610_688, 2_946_429_568, 20_480, 64_880_640),
    "qwen3.5-397b-a17b": (396_346_350_336, 16_331_922_176, 30_720, 193_167_360),
    "starcoder2-3b": (3_030_371_328, 3_030_371_328, 30_720, 0),
    "step-3": (316_294_538_240, 37_917_982_720, 62_464, 0),
}


def load(name: str) -> Model:
    return load_model(ROOT / "graphs" / f"{name}.yaml")


@pytest.mark.parametrize("name", GRAPHS)
def test_shipped_model(name: str) -> None:
    model = load(name)
    assert model.warnings == ()
    assert model.source.startswith("https://")
    assert name in EXACT, "a new model needs its published counts here"
    total, used, growing, fixed = EXACT[name]
    law = counts.kv_law(model, BF16)
    assert counts.params_total(model) == total
    assert counts.active(model).excl_input_embedding == used
    assert (law.bytes_per_token, law.fixed_bytes) == (growing, fixed)


@pytest.mark.parametrize("name", GRAPHS)
def test_counts_agree_with_each_other(name: str) -> None:
    model = load(name)
    answer = counts.describe(model)
    assert sum(row["count"] for row in answer["layers"]) == len(model.sequence) == sum(model.counts)
    assert answer["attention_share"] + answer["ffn_share"] == pytest.approx(1)
    assert sum(counts.params_by_role(model).values()) == answer["params_total"]
    used = answer["params_active"]
    assert used["excl_embeddings"] <= used["excl_input_embedding"] <= used["all"] <= answer["params_total"]
    assert counts.weights_bytes(model, fmt("fp32")) == 4 * answer["params_total"]
    assert counts.weights_bytes(model, FP8) < counts.weights_bytes(model, BF16)


def test_llama_by_hand() -> None:
    """Two norms, four projections and three matrices a layer; both tables; the final norm."""
    layer = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert counts.params_total(load("llama-3.1-8b")) == 32 * layer + 2 * 128256 * 4096 + 4096 == 8_030_261_248


def test_deepseek_by_hand() -> None:
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    moe = 256 * 7168 + 256 + 257 * 3 * 7168 * 2048
    whole = 61 * (attention + 2 * 7168) + 3 * 3 * 7168 * 18432 + 58 * moe + 2 * 129280 * 7168 + 7168
    model = load("deepseek-v3")
    assert counts.params_total(model) == whole == 671_026_419_200
    assert (whole + counts.mtp_params(model)) / 1e9 == pytest.approx(684.49, abs=0.005)  # the hub's count
    assert counts.kv_law(model, BF16).bytes_per_token == 61 * 576 * 2


def test_three_active_conventions() -> None:
    """Publishers' active counts, each in its own convention."""
    assert counts.active(load("mixtral-8x7b")).all / 1e9 == pytest.approx(12.9, abs=0.05)
    assert counts.active(load("qwen3-30b-a3b")).all / 1e9 == pytest.approx(3.3, abs=0.06)
    assert counts.active(load("nemotron-3-super-120b-a12b")).all / 1e9 == pytest.approx(12.7, abs=0.1)
    assert counts.active(load("gpt-oss-120b")).excl_input_embedding / 1e9 == pytest.approx(5.1, abs=0.05)
    assert counts.active(load("deepseek-v4-flash")).excl_input_embedding / 1e9 == pytest.approx(13, abs=0.3)
    assert counts.active(load("qwen3-0.6b")).excl_embeddings / 1e9 == pytest.approx(0.44, abs=0.005)
    assert counts.active(load("qwen2.5-7b")).excl_embeddings / 1e9 == pytest.approx(6.53, abs=0.01)


@pytest.mark.parametrize(
    ("name", "percent"),
    [("llama-3.1-8b", 19.2), ("llama-3.1-70b", 17.65), ("llama-3.1-405b", 17.9), ("llama-2-7b", 33.2),
     ("mixtral-8x7b", 2.89), ("qwen3-235b-a22b", 2.87), ("deepseek-v3", 1.71), ("gpt-oss-120b", 0.83)],
)  # fmt: skip
def test_attention_share(name: str, percent: float) -> None:
    assert counts.shares(load(name))[0] * 100 == pytest.approx(percent, abs=0.051 if percent > 5 else 0.006)


# ---- public cases of tools that got it wrong ----------------------------------------------------------------------


def test_c1_latent_cache_is_one_vector_per_token() -> None:
    model = load("kimi-k2.5")
    law = counts.kv_law(model, BF16)
    assert law.bytes_per_token == (512 + 64) * 61 * 2 == 70_272
    assert {cache.heads for _, cache in counts.caches(model)} == {0}  # every tensor-parallel rank holds all of it


def test_c2_compressed_cache() -> None:
    law = counts.kv_law(load("deepseek-v4-flash"), BF16)
    assert law.bytes_per_token == (21 * 160 + 20 * 4) * 2 == 6_880
    assert law.at(200_000) == 200_000 * 6_880 + 43 * 128 * 512 * 2


def test_c4_hybrid_counts_attention_layers_only() -> None:
    law = counts.kv_law(load("qwen3.5-35b-a3b"), BF16)
    assert law.bytes_per_token == 10 * 2 * 2 * 256 * 2
    assert law.fixed_bytes == 30 * (32 * 128 * 128 * 4 + 8192 * 4 * 2) == 64_880_640


def test_c5_state_of_many_short_sequences() -> None:
    law = counts.kv_law(load("nemotron-3-nano-30b-a3b"), BF16)
    assert law.state_bytes == 23 * (64 * 64 * 128 * 4 + 6144 * 4 * 2) == 49_364_992
    assert law.at(500, batch=1000) == 1000 * (500 * 6_144 + 49_364_992)


@pytest.mark.parametrize("context", [128, 1_024, 131_072])
def test_c7_windows_fill_up(context: int) -> None:
    law = counts.kv_law(load("gemma-4-31b"), BF16)
    assert law.at(context) == 81_920 * context + 819_200 * min(context, 1_024)
    assert law.at(context, full=True) == (81_920 + 819_200) * context
    assert law.at(131_072) / 2**30 == pytest.approx(10.78, abs=0.005)
    assert law.at(131_072, full=True) / 2**30 == pytest.approx(110.0, abs=0.05)


def test_c7_rings_and_pages() -> None:
    law = counts.kv_law(load("gemma-4-31b"), BF16)
    assert law.at(8_192, chunk=512) == 81_920 * 8_192 + 819_200 * 1_536
    assert law.at(128, chunk=512) == law.at(128)  # never longer than the sequence
    assert law.at(100, block=16) == (81_920 + 819_200) * 112


def test_c11_every_byte_scales_with_the_format() -> None:
    model = load("llama-3.1-8b")
    assert counts.kv_law(model, BF16).at(131_072) == 16 * 2**30
    assert counts.kv_law(model, FP8).at(131_072) == 8 * 2**30


def test_c14_memory_is_of_all_parameters() -> None:
    assert counts.params_total(load("qwen3.5-35b-a3b")) * 0.58 / 1e9 == pytest.approx(20.1, abs=0.01)


def test_c15_mixtral() -> None:
    layer = 41_943_040 + 8 * 3 * 4096 * 14336 + 8 * 4096 + 2 * 4096
    assert counts.params_total(load("mixtral-8x7b")) == 32 * layer + 2 * 32000 * 4096 + 4096 == 46_702_792_704


def test_c17_experts_and_the_rest() -> None:
    model = load("kimi-k2.5")
    experts = counts.params_by_role(model)["experts"]
    assert experts == 60 * 384 * 3 * 7168 * 2048 == 1_014_686_023_680
    assert counts.params_total(model) - experts == 11_722_208_768


def test_c18_four_bit_weights() -> None:
    """NVFP4 on all matrices but routers and head: what the publisher's own checkpoint holds, 134.1 GB."""
    model = load("qwen3-235b-a22b")
    assert counts.weights_bytes(model, fmt("nvfp4")) / 1e9 == pytest.approx(134.1, abs=0.01)
    assert counts.weights_bytes(model) / 1e9 == pytest.approx(470.2, abs=0.02)


def test_mxfp4_is_on_experts_only() -> None:
    assert counts.weights_bytes(load("gpt-oss-120b")) / 1e9 == pytest.approx(65.25, abs=0.01)
    assert counts.weights_bytes(load("gpt-oss-120b")) / 2**30 == pytest.approx(60.77, abs=0.01)


def test_c27_grouped_queries_share_the_cache() -> None:
    law = counts.kv_law(load("llama-2-70b"), BF16)
    assert law.bytes_per_token == 80 * 2 * 8 * 128 * 2
    assert law.at(4096) / 1e9 == pytest.approx(1.342, abs=0.001)


def test_c28_flops_follow_the_chosen_experts() -> None:
    assert 2 * counts.active(load("mixtral-8x7b")).excl_input_embedding / 1e9 == pytest.approx(25.5, abs=0.01)


def test_describe_says_which_kv_format_and_why() -> None:
    model = load("llama-3.1-8b")
    assert counts.describe(model)["kv"]["dtype_source"] == "activations"
    answer = counts.describe(model, kv=FP8, context=4096, batch=2)["kv"]
    assert (answer["dtype"], answer["dtype_source"], answer["bytes_at_context"]) == ("fp8", "option", 2 * 4096 * 65_536)


def test_describe_has_the_contract_keys() -> None:
    answer = counts.describe(load("deepseek-v3"))
    assert {"name", "params_total", "params_active", "weights_bytes", "kv", "layers", "attention_share", "ffn_share",
            "mtp", "vision", "warnings"} <= set(answer)  # fmt: skip
    assert {"bytes_per_token", "fixed_bytes_per_sequence", "layout", "bytes_at_context"} <= set(answer["kv"])
    assert [row["count"] for row in answer["layers"]] == [3, 58]
    assert answer["layers"][1]["attention"].startswith("mla")
    assert answer["layers"][1]["ffn"].startswith("moe")
    assert answer["mtp"]["params"] == 13_463_426_304
