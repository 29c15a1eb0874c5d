"""Expert dispatch and combine inside a step: the measured kernels of its phase, no further than they were measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodel.calibration import Calibration, Fit, load_calibration
from hwmodel.exchange import FAMILIES, HIGH_THROUGHPUT, KERNELS, LOW_LATENCY, exchange_fit
from hwmodel.kernels import columns as c
from hwmodel.measured import read
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import scenario_from
from hwmodel.spec.yamlfile import Document


def step(chip: str, stack: str, ep: int, tokens: int, phase: str = "decode", dispatch: str = "fp8") -> Result:
    """DeepSeek-V3, attention data parallel, `tokens` a rank."""
    work = {"phase": phase} | (
        {"batch": tokens * ep, "context": 4096} if phase == "decode" else {"batch": ep, "new_tokens": tokens}
    )
    value = {
        "model": "deepseek-v3", "cluster": {"pools": {"gpu": {"chip": chip, "count": ep, "stack": stack}}},
        "plan": [{"expert": {"degree": ep, **({"dispatch": dispatch} if dispatch else {})}}], "workload": work,
    }  # fmt: skip
    return run(scenario_from(Document("step", value, {}, ()), "step"))


def times(found: Result, column: int = c.TIME) -> dict[str, float]:
    """Seconds of dispatch and combine, whole or of one bound."""
    pairs = zip(found.placed.table.ops, found.placed.priced[:, column], strict=True)
    return {op.family: float(value) for op, value in pairs if op.family in FAMILIES}


def fits(found: Result) -> dict[str, str]:
    return {fit.op: fit.dtype for _, fit in found.placed.table.fits if fit.op in FAMILIES}


def fit(**changes: object) -> Fit:
    plain = {
        "op": "expert_dispatch", "dtype": "deepep_ll/bfloat16", "launch": "20 us", "memory": 0.5, "low": 0.9, "high": 1.1,
        "domain": {"ep": [8, 16], "nodes": [1, 2], "tokens_per_rank": [1, 256], "hidden": [7168, 7168], "topk": [8, 8]},
    }  # fmt: skip
    return Fit.model_validate({**plain, **changes})


def found_among(*fits: Fit, wanted: str = "low_latency/fp8", ranks: int = 8, nodes: int = 1) -> Fit | None:
    return exchange_fit(Calibration(chip="x", stack="y", fits=fits), "expert_dispatch", wanted, ranks, nodes)


# --- which fit -----------------------------------------------------------------------------------------------------------


def test_decode_runs_low_latency_and_prefill_high_throughput_kernels() -> None:
    assert fits(step("h200_sxm", "trtllm", 8, 64)) == {
        "expert_dispatch": "trtllm_deepep_ll/fp8", "expert_combine": "trtllm_deepep_ll/bfloat16",
    }  # fmt: skip
    assert all("_ht/" in dtype for dtype in fits(step("h200_sxm", "trtllm", 8, 4096, "prefill")).values())
    assert all("deepep_normal" in dtype for dtype in fits(step("h200_sxm", "sglang", 32, 4096, "prefill")).values())


@pytest.mark.parametrize(
    ("chip", "stack", "ep"), [("h200_sxm", "trtllm", 32), ("h200_sxm", "sglang", 8), ("rubin", "trtllm", 8)]
)
def test_no_further_than_measured(chip: str, stack: str, ep: int) -> None:
    """One node says nothing of four, nor two of one; a prior says nothing: what the links give then."""
    found = step(chip, stack, ep, 64)
    assert fits(found) == {}
    assert times(found) == pytest.approx(times(step(chip, "", ep, 64)))


def test_ranks_and_nodes_hold_as_measured() -> None:
    assert found_among(fit(), ranks=4) is not None
    assert found_among(fit(), ranks=16, nodes=2) is not None
    assert found_among(fit(), ranks=32, nodes=2) is None
    assert found_among(fit(), nodes=3) is None
    assert found_among(fit(domain={})) is None
    assert found_among(fit(), wanted="high_throughput/fp8") is None
    assert found_among(fit(), wanted="bytes") is None


def test_the_nearest_format_stands_in_at_the_same_time_per_token() -> None:
    wide, narrow = fit(), fit(dtype="deepep_ll/nvfp4", memory=0.2)
    found = found_among(wide, narrow)
    assert found is not None
    assert found.dtype == "deepep_ll/nvfp4"  # 4.5 bits are nearer to 8 than 16 are
    assert found.memory == pytest.approx(0.2 * 8 / 4.5)
    found = found_among(wide)
    assert found is not None
    assert found.memory == pytest.approx(0.25)
    assert found_among(fit(memory=3.0), wanted="low_latency/bf16").memory == 1.0  # type: ignore[union-attr]


def test_a_correction_ends_at_the_largest_measured_buffer() -> None:
    """256 tokens x 7168 x 2 bytes x 8 ranks = 2^24.8: knots 26 and below."""
    axes = {"bytes": [20.0, 22.0, 24.0, 26.0, 28.0, 30.0], "chips": [2.0, 3.0]}
    found = found_among(fit(correction={"axes": axes, "permille": " ".join(str(n) for n in range(12))}))
    assert found is not None
    assert found.correction is not None
    assert found.correction.axes == {"bytes": (20.0, 22.0, 24.0, 26.0), "chips": (2.0, 3.0)}
    assert found.correction.values * 1000 == pytest.approx(np.arange(8))


# --- times ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chip", ["h200_sxm", "b200_sxm"])
@pytest.mark.parametrize(
    ("stack", "ep"), [("trtllm", 8), ("vllm", 8), ("trtllm", 32), ("vllm", 32), ("sglang", 8), ("sglang", 32)]
)
def test_times_are_those_of_bytes_and_links(chip: str, stack: str, ep: int) -> None:
    """Never quicker than the links without latency; more tokens take longer; launch and a share of the link, no more."""
    last: dict[str, float] = {}
    for tokens in (1, 16, 64, 128, 256, 512, 1024, 4096):
        found = times(step(chip, stack, ep, tokens, dispatch=""))
        floor = times(step(chip, "", ep, tokens, dispatch=""), c.WIRE)
        for family, seconds in found.items():
            reached = 0.8 * floor[family]  # links are stated to reach 80 %, and may reach 100
            assert seconds >= 0.85 * reached
            assert seconds <= 150e-6 + 8 * floor[family]
            assert seconds >= 0.8 * last.get(family, 0.0)  # one combine of 1 to 8 tokens scatters from 47 to 77 us
        last = found


def test_against_published_deepep_on_h800() -> None:
    """DeepEP's low-latency kernels, 128 tokens, H800 and 400 Gb/s (its docs/legacy.md), by what the H200 shows under SGLang."""
    for ep, dispatch, combine in ((16, 118e-6, 195e-6), (32, 155e-6, 273e-6), (64, 173e-6, 314e-6)):
        found = times(step("h200_sxm", "sglang", ep, 128))
        assert found["expert_dispatch"] == pytest.approx(dispatch, rel=0.25)
        assert found["expert_combine"] == pytest.approx(combine, rel=0.25)


@pytest.mark.shared
@pytest.mark.parametrize(("chip", "stack"), [("h200_sxm", "trtllm"), ("b200_sxm", "trtllm"), ("h200_sxm", "vllm")])
def test_steps_take_what_the_tables_say(chip: str, stack: str, shared: Path) -> None:
    """Rows of DeepSeek-V3's shape (7168, top 8 of 256, 8 ranks) against the ops of a step: a tenth off in the median."""
    errors = []
    for rows in read(shared / "measured", ["expert_all_to_all"]):
        mode = next((mode for mode, ends in KERNELS.items() if rows.variant.endswith(ends)), "")
        wanted = {("expert_dispatch", "trtllm"): "bfloat16", ("expert_combine", "trtllm"): "bfloat16"}
        if (rows.device, rows.stack) != (chip, stack) or rows.dtype != wanted.get((rows.kind, stack), "default"):
            continue
        for i in range(len(rows)):
            shape = tuple(int(rows.columns[key][i]) for key in ("hidden", "topk", "experts", "ep"))
            tokens = int(rows.columns["tokens_per_rank"][i])
            if shape != (7168, 8, 256, 8):
                continue
            phase = {LOW_LATENCY: "decode", HIGH_THROUGHPUT: "prefill"}[mode]
            seconds = times(step(chip, stack, 8, tokens, phase, dispatch="bf16"))[rows.kind]
            errors.append(abs(seconds / rows.measured_s[i] - 1))
    assert len(errors) > 20
    assert np.median(errors) < 0.12


def test_shipped_exchanges_say_where_they_hold() -> None:
    for name in ("h100_sxm.trtllm", "h200_sxm.sglang", "gb200.vllm"):
        own = [item for item in load_calibration(name).fits if item.op in FAMILIES]
        assert own
        assert all({"ep", "nodes", "tokens_per_rank", "hidden", "topk"} <= item.domain.keys() for item in own)
