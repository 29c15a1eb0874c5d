"""Throughput tables as a steady state: the accounting by hand, the whole table within its bound, misses with their reasons."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hwmodel.cli import cli
from hwmodel.served.stack import load_stack
from hwmodel.served.steady import FAR, MOST, REQUESTS, deployment, question, seconds, steady, waves
from hwmodel.served.step import decoding, loads, total
from hwmodel.spec.errors import InputError

HEAD = "framework,version,model,gpu,precision,tp,pp,parallel,isl,osl,value,metric,source"
ROW = {
    "framework": "TensorRT-LLM", "version": "1.0", "model": "Llama-3.3-70B", "gpu": "H100", "precision": "FP8", "tp": "2.0",
    "pp": "1.0", "parallel": "", "isl": "1000", "osl": "1000", "value": "4205", "metric": "total_output_tok_s",
    "source": "here",
}  # fmt: skip


def table(folder: Path, *rows: dict[str, str]) -> Path:
    lines = [HEAD, *(",".join(row[name] for name in HEAD.split(",")) for row in rows)]
    (folder / "trtllm_perf_overview.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_waves_hold_all_requests_and_no_more_than_fit() -> None:
    row = question(ROW)
    found = waves(row)
    assert sum(found) == REQUESTS[1000, 1000] == 3000
    assert set(found[:-1]) == {int(row.clients)}
    assert 0 < found[-1] <= row.clients <= MOST


def test_a_run_is_its_steps_and_its_prompts() -> None:
    """One full wave after the other: S steps of B sequences each, and every prompt once; the last wave is smaller."""
    row = replace(question(ROW), clients=1000.0)
    stack = load_stack("trtllm").model_copy(update={"sequence_s": 0.0, "prompt_s": 2e-3})
    load = loads([row])
    whole, prompts = seconds(load, [row], stack)
    step = decoding(load, stack)[0, -1]
    fill = total(load.packed, stack.fused)[0]
    assert prompts[0] == pytest.approx(3000 * (fill + 2e-3))
    assert whole[0] - prompts[0] == pytest.approx(3 * 1000 * step)
    more, _ = seconds(load, [row], stack.model_copy(update={"sequence_s": 1e-6}))
    assert more[0] - whole[0] == pytest.approx(3 * 1000 * 1000 * 1e-6)


def test_layouts_and_formats_follow_the_documents() -> None:
    assert deployment(ROW).layout.tp == 2
    assert deployment(ROW).kv == "fp8"
    old = deployment({**ROW, "model": "Mixtral-8x7B", "version": "0.17", "precision": "FP16", "tp": "8"})
    assert (old.layout.tp, old.layout.dp, old.kv) == (8, 1, "bf16")
    spread = deployment({**ROW, "model": "Qwen3-235B-A22B", "tp": "8"})
    assert (spread.layout.tp, spread.layout.dp, spread.layout.ep) == (1, 8, 8)
    named = deployment({**ROW, "model": "DeepSeek-R1-0528", "tp": "", "parallel": "DEP4", "precision": "FP4", "gpu": "B200"})
    assert (named.layout.chips, named.experts, named.linear) == (4, "nvfp4", "bf16")


def test_what_cannot_be_asked_is_counted_and_a_broken_row_is_told(tmp_path: Path) -> None:
    found = steady(
        table(tmp_path, ROW, {**ROW, "model": "Other-1B"}, {**ROW, "pp": "2.0"}, {**ROW, "tp": "1.0", "gpu": "L40S"})
    )
    assert len(found.points) == 1
    assert dict(found.left_out) == {
        "no graph for model Other-1B": 1, "pipeline stages in a served row": 1,
        "memory holds no sequence beside the weights": 1,
    }  # fmt: skip
    assert found.points[0].calibrated
    assert found.points[0].error < 0.15
    with pytest.raises(InputError, match="invalid"):
        steady(table(tmp_path, {**ROW, "osl": "many"}))
    assert steady(tmp_path.parent / "nowhere").points == ()


def test_rates_per_chip_count_all_chips(tmp_path: Path) -> None:
    each, whole = steady(table(tmp_path, {**ROW, "metric": "output_tok_s_per_gpu", "value": "2102.5"}, ROW)).points
    assert each.measured == whole.measured == 4205
    assert each.predicted == whole.predicted


@pytest.mark.shared
def test_the_tables_are_within_a_quarter_in_the_median(shared: Path) -> None:
    """On chips that were measured, 286 rows of three releases, nothing fitted to them."""
    found = steady(shared / "measured")
    median = found.median()
    assert median is not None
    assert median < 0.12
    assert sum(point.calibrated for point in found.points) > 250
    assert sum(count for _, count in found.left_out) < 30
    for version in ("0.17", "1.0", "1.2+"):
        assert np.median([point.error for point in found.points if point.calibrated and point.version == version]) < 0.25
    assert all(bool(point.note) == (point.error > FAR) for point in found.points)


def test_the_shipped_rows_show_on_a_fresh_machine() -> None:
    found = CliRunner().invoke(cli, ["validate", "--op", "steady", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["steady"]
    assert len(told["rows"]) > 50
    assert told["median_calibrated_chips"] < 25
    far = [row for row in told["rows"] if row["error"] > 40]
    assert far
    assert all(row["note"] for row in far)
    text = CliRunner().invoke(cli, ["validate", "--op", "steady"]).stdout
    assert "chips that were measured" in text
    assert "no rows to compare" not in text
