"""Every chip file loads, its numbers have provenance, and they agree with a separate table of public figures."""

import math
import re

import pytest

from hwmodel.hardware import Chip, Execution, load_chip
from hwmodel.kernels.tiles import product_time
from hwmodel.run import run
from hwmodel.scenario import scenario_from
from hwmodel.spec.catalog import names, shipped
from hwmodel.spec.errors import InputError
from hwmodel.spec.yamlfile import Document
from hwmodel.timing import device_row

CHIPS = names("chips")
CONTRACT = [
    "rubin", "rubin_at_scale", "vera", "rubin_cpx", "groq3_lpu", "groqchip1", "jalapeno", "lpddr_nmc",
    "bertha500", "bertha100", "hyperaccel_lpu", "a100_sxm", "a800_sxm", "h100_sxm", "h200_sxm", "h20_sxm",
    "h800_sxm", "gh200", "b200_sxm", "gb200", "b300_sxm", "gb300", "l40s", "rtx_pro_6000_server", "rtx4090",
    "rtx4090d", "rtx5090", "b60", "gb10", "mi210", "mi300x", "mi355x", "tpu_v5e", "tpu_v5p", "tpu_v6e",
    "tpu_ironwood", "trainium2", "trainium3", "gaudi3", "wse3", "sn40l", "corsair", "rngd", "ascend_910b",
    "xeon_host", "cxl_pnm", "lpddr5x_pim",
]  # fmt: skip
GI = 2**30 / 1e9
ESTIMATED_WHOLE = {"lpddr_nmc", "cxl_pnm"}
"""Devices that have no data sheet: nothing in their files may claim more than an estimate."""

# dense TFLOP/s of a dtype, main memory GB, TB/s, first link GB/s per direction, TDP W; None where nobody publishes it
PUBLIC = {
    "rubin": ("nvfp4", 35000, 288, 22, 1800, 2300),
    "rubin_at_scale": ("fp8", 16600, 288, 19.2, 1500, 1800),
    "groq3_lpu": ("fp8", 1200, 0.5, 150, 1125, None),
    "groqchip1": ("int8", 750, 0.23, 80, 165, 215),
    "jalapeno": ("mxfp4", 13400, 216 * GI, 15.4, 600, 700),
    "bertha500": ("fp8", 768, 192 * GI, 0.546, None, 250),
    "bertha100": ("fp8", 32.768, 16, 0.064, None, None),
    "hyperaccel_lpu": ("fp16", 3.28, 96, 3.28, None, None),
    "a100_sxm": ("bf16", 312, 80, 2.039, 300, 400),
    "a800_sxm": ("bf16", 312, 80, 2.039, 200, 400),
    "h100_sxm": ("bf16", 989.4, 80, 3.35, 450, 700),
    "h200_sxm": ("bf16", 989.4, 141, 4.8, 450, 700),
    "h20_sxm": ("fp8", 296, 96, 4, 450, 400),
    "h800_sxm": ("fp8", 1978.9, 80, 3.35, 200, 700),
    "gh200": ("bf16", 989.4, 96, 4, 450, None),
    "b200_sxm": ("fp8", 4500, 180, 8, 900, 1000),
    "gb200": ("nvfp4", 10000, 186, 8, 900, 1200),
    "b300_sxm": ("nvfp4", 13500, 270, 8, 900, 1100),
    "gb300": ("nvfp4", 15000, 279, 8, 900, 1400),
    "l40s": ("bf16", 362.05, 46068 / 1024 * GI, 0.864, 32, 350),
    "rtx_pro_6000_server": ("nvfp4", 2000, 96, 1.597, 64, 600),
    "rtx4090": ("bf16", 165.2, 24, 1.008, 32, 450),
    "rtx4090d": ("bf16", 147, 24, 1.008, 32, 425),
    "rtx5090": ("nvfp4", 1676, 32, 1.792, 64, 575),
    "b60": ("bf16", 98.3, 24, 0.456, 32, 200),
    "gb10": ("nvfp4", 500, 128, 0.273, 25, 140),
    "mi210": ("bf16", 181, 64, 1.638, 150, 300),
    "mi300x": ("bf16", 1307.4, 192, 5.3, 448, 750),
    "mi355x": ("mxfp4", 10066, 288, 8, 537.6, 1400),
    "tpu_v5e": ("bf16", 197, 16, 0.819, 200, None),
    "tpu_v5p": ("bf16", 459, 95 * GI, 2.765, 600, None),
    "tpu_v6e": ("bf16", 918, 32 * GI, 1.638, 400, None),
    "tpu_ironwood": ("fp8", 4614, 192 * GI, 7.38, 600, None),
    "trainium2": ("bf16", 667, 96 * GI, 2.9, 640, None),
    "trainium3": ("mxfp8", 2517, 144 * GI, 4.9, 1280, None),
    "gaudi3": ("bf16", 1678, 128, 3.7, 525, 900),
    "wse3": ("fp16", 14000, 44, 21000, 150, 23000),
    "sn40l": ("bf16", 638, 64, 1.6, None, None),
    "corsair": ("int4", 9600, 2, 150, None, 600),
    "rngd": ("fp8", 512, 48, 1.5, 64, 180),
    "ascend_910b": ("bf16", 280, 64, 1.6, 196, 400),
    "lpddr5x_pim": ("int8", 1.23, 16, 0.614, 76.8, None),
}


@pytest.fixture(scope="module", params=CHIPS)
def chip(request: pytest.FixtureRequest) -> Chip:
    """Every chip that a name leads to, in turn."""
    return load_chip(request.param)


def test_contract_is_complete():
    assert set(CONTRACT) <= set(CHIPS)


def test_says_what_it_is(chip: Chip):
    assert chip.title
    assert chip.vendor
    assert chip.kind
    assert chip.name in CHIPS
    assert chip.execution.tiles


def test_every_number_has_provenance(chip: Chip):
    for path, number in chip.numbers():
        assert number.source, f"{path}: no source"
        assert number.status, f"{path}: no status"
        assert number.low <= number <= number.high, path
        if number.status == "estimated":
            assert number.ranged, f"{path}: an estimate needs a range"


def test_short_source_names_lead_somewhere(chip: Chip):
    for path, number in chip.numbers():
        word = number.source.split()[0].rstrip(",;")
        if "_" in word and "/" not in word:
            assert word in chip.sources, f"{path}: '{word}' is not in sources"


def test_links_take_time_and_are_plausible(chip: Chip):
    assert chip.links
    for link in chip.links:
        assert link.latency_s.low > 0
        assert link.latency_s < 1e-4
        assert link.domain >= 2
    assert len({link.name for link in chip.links}) == len(chip.links)


def test_memory_goes_from_fast_to_slow(chip: Chip):
    rates = [float(tier.bandwidth_bytes_per_s) for tier in chip.memory]
    assert rates == sorted(rates, reverse=True)
    assert all(tier.energy_joules_per_byte for tier in chip.memory)


def test_idle_is_below_tdp(chip: Chip):
    assert chip.power.tdp_watts is not None
    assert chip.power.idle_watts is not None
    assert 0 < chip.power.idle_watts < 0.5 * chip.power.tdp_watts


def test_narrower_dtypes_are_no_slower(chip: Chip):
    rates = chip.peaks.by_dtype()
    for wide, narrow in [("fp32", "bf16"), ("tf32", "bf16"), ("bf16", "fp8"), ("fp8", "nvfp4"), ("mxfp8", "mxfp4")]:
        if wide in rates and narrow in rates:
            assert rates[wide] <= rates[narrow]


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_figures(name: str):
    dtype, tflops, gigabytes, terabytes, link, watts = PUBLIC[name]
    chip = load_chip(name)
    assert chip.peaks.by_dtype()[dtype] == pytest.approx(tflops * 1e12, rel=1e-3)
    assert chip.main.capacity_bytes == pytest.approx(gigabytes * 1e9, rel=1e-4)
    assert chip.main.bandwidth_bytes_per_s == pytest.approx(terabytes * 1e12, rel=1e-4)
    if link is not None:
        assert chip.links[0].bandwidth_bytes_per_s == pytest.approx(link * 1e9, rel=1e-4)
    if watts is None:
        assert chip.power.tdp_watts.status == "estimated"
    else:
        assert chip.power.tdp_watts == pytest.approx(watts)


@pytest.mark.parametrize(
    ("name", "dtype", "flop_per_byte"),
    [("h100_sxm", "bf16", 295.3), ("h100_sxm", "fp8", 590.7), ("h800_sxm", "fp8", 591)],
)
def test_ridge(name: str, dtype: str, flop_per_byte: float):
    chip = load_chip(name)
    ridge = chip.peaks.by_dtype()[dtype] / chip.main.bandwidth_bytes_per_s
    assert ridge == pytest.approx(flop_per_byte, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "dtype", "weight_bytes", "rows"),
    [
        ("h100_sxm", "bf16", 2, 295),
        ("h100_sxm", "fp8", 1, 295),
        ("b200_sxm", "fp8", 1, 281),
        ("b200_sxm", "nvfp4", 0.5625, 316),
        ("rubin", "nvfp4", 0.5625, 447),
        ("groq3_lpu", "fp8", 1, 4.0),
        ("groqchip1", "fp16", 2, 2.35),
        ("groqchip1", "int8", 1, 4.7),
        ("h20_sxm", "fp8", 1, 37),
        ("a100_sxm", "bf16", 2, 153),
        ("lpddr_nmc", "fp8", 1, 100),
    ],
)
def test_knee(name: str, dtype: str, weight_bytes: float, rows: float):
    """Rows m* = F b_w / (2 BW) at which a matrix product turns from memory-bound to compute-bound."""
    chip = load_chip(name)
    knee = chip.peaks.by_dtype()[dtype] * weight_bytes / (2 * chip.main.bandwidth_bytes_per_s)
    assert knee == pytest.approx(rows, rel=4e-3)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("h100_sxm", 23.9e-3), ("h200_sxm", 29.4e-3), ("rubin", 13.1e-3), ("groq3_lpu", 3.33e-6), ("groqchip1", 2.88e-6)],
)
def test_drain_time(name: str, seconds: float):
    """Capacity over bandwidth: a step that reads all of memory takes at least this long."""
    main = load_chip(name).main
    assert main.capacity_bytes / main.bandwidth_bytes_per_s == pytest.approx(seconds, rel=3e-3)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("h100_sxm", 8),
        ("gb200", 72),
        ("gb300", 72),
        ("rubin", 72),
        ("groq3_lpu", 256),
        ("jalapeno", 128),
        ("tpu_v5p", 8960),
    ],
)
def test_scale_up_domain(name: str, domain: int):
    assert load_chip(name).links[0].domain == domain


def test_runs_a_step_in_formats_it_has(chip: Chip):
    """A chip without 16-bit products runs in the widest format it multiplies."""
    wide = {"bf16", "fp16"} & set(chip.peaks.by_dtype())
    form = "" if wide else "int8"
    value = {
        "model": "llama-3.2-1b", "cluster": {"pools": {"chips": {"chip": chip.name, "count": 16}}},
        "plan": [{"tensor": {"degree": 1}}], "workload": {"phase": "decode", "batch": 16, "context": 128},
        "dtypes": dict.fromkeys(("weights", "activations", "attention", "kv"), form),
    }  # fmt: skip
    result = run(scenario_from(Document("test.yaml", value, {}, ()), "test"))
    assert result.step.time_s > 0
    assert math.isfinite(result.step.time_s)


def test_chips_with_8_bit_products_only():
    dtypes = dict.fromkeys(("weights", "activations", "attention", "kv"), "int8")
    value = {
        "model": "llama-3.1-8b", "cluster": {"pools": {"cards": {"chip": "corsair", "count": 8}}},
        "plan": [{"tensor": {"degree": 8}}], "workload": {"phase": "decode", "batch": 4, "context": 1024}, "dtypes": dtypes,
    }  # fmt: skip
    assert run(scenario_from(Document("test.yaml", value, {}, ()), "test")).feasible
    value["dtypes"] = {}
    with pytest.raises(InputError, match=r"op layer0.*corsair.*dtypes\.weights"):
        run(scenario_from(Document("test.yaml", value, {}, ()), "test"))


def test_a_chip_without_stated_tiles_works_on_few_rows():
    """Its default tiles do not make one token as costly as 128."""
    chip = load_chip("lpddr_nmc")
    plain = Execution(cores=chip.execution.cores, launch_s=chip.execution.launch_s)
    row = device_row(chip.model_copy(update={"execution": plain}))
    assert plain.tiles == ((128, 128), (64, 128), (16, 128), (1, 128))
    one, many = (product_time(m, 4096.0, 4096.0, 1.0, 1e14, row) for m in (1.0, 128.0))
    assert one <= many / 64


def test_host_processors_multiply_single_rows():
    for name in ("vera", "xeon_host"):
        assert (1, 16) in load_chip(name).execution.tiles


def test_traps():
    """Figures that circulate and are wrong for a dense, per-direction model."""
    lpu = load_chip("groq3_lpu")
    assert "nvfp4" not in lpu.peaks.by_dtype()
    assert "nvlink" not in [link.name for link in lpu.links]
    assert lpu.link("nic").bandwidth_bytes_per_s == 12.5e9
    assert lpu.link("nic").latency_s.low == 3e-6
    assert load_chip("jalapeno").main.tier == "hbm"
    rubin = load_chip("rubin")
    assert rubin.peaks.by_dtype()["bf16"] == 4e15
    assert rubin.tier("lpddr").bandwidth_bytes_per_s == 450e9
    assert load_chip("h100_sxm").link("nvlink").reduces
    assert not load_chip("a100_sxm").link("nvlink").reduces
    for cut in ("b300_sxm", "gb300"):
        assert load_chip(cut).peaks.by_dtype()["int8"] < 1e15
    assert load_chip("bertha500").price.purchase_usd.status == "estimated"
    assert load_chip("hyperaccel_lpu").execution.overlapped_collectives


@pytest.mark.parametrize("name", sorted(ESTIMATED_WHOLE))
def test_devices_without_a_data_sheet_claim_nothing(name: str):
    statuses = {number.status for _, number in load_chip(name).numbers()}
    assert statuses == {"estimated"}


@pytest.mark.parametrize("path", sorted(shipped("chips").glob("*.yaml")), ids=lambda path: path.stem)
def test_editor_finds_the_schema(path):
    assert path.read_text().startswith("# yaml-language-server: $schema=../schemas/chip.json\n")


def test_short_source_names_are_written_out(chip: Chip):
    for path, number in chip.numbers():
        left = set(re.findall(r"\w+", number.source)) & {name for name in chip.sources if "_" in name}
        assert not left - set(re.findall(r"\w+", " ".join(chip.sources.values()))), f"{path}: {number.source}"
    if chip.name == "rubin":
        assert dict(chip.numbers())["peaks.fp8"].source.startswith("https://www.nvidia.com/en-us/data-center/vera-rubin-nvl72/")
