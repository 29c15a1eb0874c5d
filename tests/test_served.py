"""Served steps: what surrounds the ops, and rows of served models."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hwmodel.calibration import load_calibration
from hwmodel.cli import main
from hwmodel.served.compare import EndToEnd, end_to_end, groups, summary, tables
from hwmodel.served.engines import decode_point, engine
from hwmodel.served.fitting import held_out
from hwmodel.served.rows import Deployment, Layout, read_served, served
from hwmodel.served.stack import Stack, load_stack, stack_names
from hwmodel.served.step import OVERLAP, PARTS, Loads, predict
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError

SHIPPED = catalog.shipped("measured")


def stack(**changes: object) -> Stack:
    waits = ("late", "rank", "sequence", "sequence_lab", "prompt", "start")
    plain: dict[str, object] = dict.fromkeys(waits, "0 us") | dict.fromkeys(("gap", "gap_fp4"), f"{1e6 * OVERLAP} us")
    plain |= {"fused": 0, "lag": 0, "share": 0, "lockstep": 0, "stretch": 1, "lab": 1, "steps": 0, "burst": 0}
    return Stack.model_validate({"stack": "x", **plain, **changes})


def load(clients: float = 8.0, output: float = 100.0, limit: float = 1e9, **more: float) -> Loads:
    """One row: a decode step of 10 ms at any batch (100 kernels, 0.2 ms of its products quantise), a prompt of 50 ms."""
    one = np.ones(1)

    def parts(seconds: float, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        found = {name: np.zeros(shape) for name in PARTS}
        counts = {"launches": 100.0, "quantised": 2e-4, "reductions": 10.0, "exchanges": 6.0}
        return {**found, "gemm": np.full(shape, 0.6 * seconds), "experts": np.full(shape, 0.4 * seconds)} | {
            name: np.full(shape, value) for name, value in counts.items()
        }

    decode, prompt = parts(0.01, (1, 3)), parts(0.05, (1,))
    plain = {"decoders": 1.0, "fillers": 1.0, "apart": 0.0, "lab": 0.0, "ranks": 1.0, "chips": 1.0, "fp4": 0.0, "behind": 0.0,
             "together": 0.0, **more}  # fmt: skip
    rest = {name: value * one for name, value in plain.items()}
    return Loads(clients * one, 1000 * one, output * one, limit * one, decode, prompt, prompt, **rest)


def times(load_: Loads, stack_: Stack) -> tuple[float, float]:
    ttft, tpot = predict(load_, stack_)
    return float(ttft[0]), float(tpot[0])


def test_nothing_around_the_ops_leaves_the_ops() -> None:
    assert times(load(), stack()) == pytest.approx((0.05, 0.01))


def test_every_parameter_adds_what_it_says() -> None:
    ttft, tpot = times(load(), stack())
    gap = stack(gap=f"{1e6 * OVERLAP + 2} us", gap_fp4=f"{1e6 * OVERLAP - 1} us")
    assert times(load(), gap)[1] - tpot == pytest.approx(100 * 2e-6)
    assert tpot - times(load(fp4=1), gap)[1] == pytest.approx(100 * 1e-6)
    assert tpot - times(load(), stack(fused=0.5))[1] == pytest.approx(0.5 * 2e-4)
    assert times(load(), stack(start="30 ms"))[0] - ttft == pytest.approx(0.03)
    assert times(load(), stack(stretch=2))[0] - ttft == pytest.approx(0.05)
    assert times(load(), stack(steps=3))[0] - ttft == pytest.approx(3 * tpot)
    assert times(load(), stack(burst=0.5))[0] - ttft == pytest.approx(0.5 * 7 * 0.05)


def test_chips_wait_for_the_last_of_them() -> None:
    """Ten all-reduces over 8 chips: three doublings each; six exchanges among attention ranks."""
    assert times(load(chips=1), stack(late="2 us"))[1] == pytest.approx(0.01)
    assert times(load(chips=8), stack(late="2 us"))[1] == pytest.approx(0.01 + 10 * 3 * 2e-6)
    assert times(load(), stack(rank="5 us"))[1] == pytest.approx(0.01 + 6 * 5e-6)


def test_releases_and_harnesses_differ_where_they_are_said_to() -> None:
    assert times(load(), stack(lag=0.5))[1] == pytest.approx(0.01)
    assert times(load(behind=2), stack(lag=0.5))[1] == pytest.approx(0.01 + 2 * 0.5 * 0.004)
    plain, lab = (times(load(lab=where, output=1e9), stack(sequence_lab="10 us"))[1] for where in (0, 1))
    assert lab - plain == pytest.approx(8 * 10e-6)


def test_lockstep_moves_prefill_from_decodes_to_first_tokens() -> None:
    """64 prompts of 1,000 tokens run in 64 x 1000 / 8192 iterations; what is waited for before is not waited for after."""
    clients, output, alone = 64.0, 1e6, stack(share=1, lockstep=0)
    ttft, tpot = times(load(clients, output, together=1), stack(share=1, lockstep=1))
    early = (1 + 8192 / 64000) / 2
    assert ttft - times(load(clients, output), alone)[0] == pytest.approx(early * 63 * 0.05)
    assert times(load(clients, output), alone)[1] - tpot == pytest.approx(early * 64 / output * 0.05, rel=1e-2)
    assert times(load(clients, output), stack(share=1, lockstep=1)) == times(load(clients, output), alone)


def test_prompts_of_others_are_paid_by_decoding_clients() -> None:
    """B clients finish B / S requests a step, whose prompts the step waits for: TPOT = step + B / S x prefill."""
    _, tpot = times(load(output=100.0), stack(share=1, stretch=0))
    batch = 8.0  # nobody waits when the own prompt costs nothing
    assert tpot == pytest.approx(0.01 + batch / 100 * 0.05)


def test_clients_beyond_the_memory_queue() -> None:
    """Little's law: 16 clients, 8 places: every client waits as long as it is served."""
    ttft, tpot = times(load(clients=16.0, limit=8.0), stack())
    assert ttft == pytest.approx(0.05 + (0.05 + 100 * tpot))


def test_more_clients_are_never_served_quicker() -> None:
    found = [times(load(clients=float(n)), stack(share=1, burst=0.2, steps=2, sequence="20 us")) for n in (1, 4, 16, 64, 256)]
    assert all(b[0] >= a[0] and b[1] >= a[1] for a, b in pairwise(found))


def test_shipped_stacks_read() -> None:
    assert {"trtllm", "vllm", "sglang"} <= {*stack_names()}
    for name in stack_names():
        found = load_stack(name)
        assert found.stack == name
        assert "TPOT" in found.note


def test_rows_left_out_say_why_and_broken_ones_where(tmp_path: Path) -> None:
    rows = list(csv.DictReader((SHIPPED / "e2e_agg.csv").open()))
    strange = {**rows[0], "model": "no/such-model"}
    doubtful = {**rows[0], "parallel_suspect": "1"}
    path = tmp_path / "e2e_agg.csv"

    def write(*lines: dict[str, str]) -> None:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(lines)

    write(rows[0], strange, doubtful)
    kept, skipped = read_served(path)
    assert len(kept) == 1
    reasons = {reason for counter in skipped.values() for reason in counter}
    assert reasons == {"no graph for model no/such-model", "the parallel layout is doubtful"}
    write({**rows[0], "ttft_ms": "soon"})
    with pytest.raises(InputError, match="could not convert") as error:
        read_served(path)
    assert "e2e_agg.csv:2" in str(error.value.problems[0])


def test_shipped_rows_are_predicted_and_every_row_is_accounted_for() -> None:
    found = end_to_end(SHIPPED)
    total = sum(len(list(csv.DictReader((SHIPPED / f"{name}.csv").open()))) for name in ("e2e_agg", "e2e_disagg"))
    assert sum(item.rows + sum(item.skipped.values()) for item in found) == total
    usual = [item.tpot_median for item in found if item.rows and item.mode == "agg" and "DeepSeek" not in item.model]
    assert np.median(usual) < 0.15


@pytest.mark.shared
def test_served_models_are_predicted(shared: Path) -> None:
    """On the rows they were fitted to."""
    count, tpot, worst, ttft, _ = summary(end_to_end(shared / "measured"))["agg"]
    assert count >= 20
    assert tpot < 0.065
    assert worst < 0.2
    assert ttft < 0.21


@pytest.mark.shared
def test_configurations_held_out_are_predicted(shared: Path) -> None:
    """No parameter saw a row of the same model, layout and release."""
    found = next(tables(shared / "measured"))
    assert found.load is not None
    _, tpot, worst, ttft, _ = summary(groups(found, *held_out(found.rows, found.load)))["agg"]
    assert tpot < 0.07
    assert worst < 0.2
    assert ttft < 0.23


def merged(found: Iterable[EndToEnd]) -> list[tuple[float, float]]:
    """(TPOT, TTFT) errors of every model, device and stack of aggregated rows that say whether tokens were drafted."""
    parts: dict[tuple[str, str, str], list[EndToEnd]] = {}
    for each in found:
        if each.rows and each.mode == "agg" and "DeepSeek" not in each.model:
            parts.setdefault((each.model, each.device, each.stack), []).append(each)
    return [
        tuple(np.average([getattr(each, key) for each in some], weights=[each.rows for each in some])
              for key in ("tpot_median", "ttft_median"))
        for some in parts.values()
    ]  # fmt: skip


@pytest.mark.parametrize("summed", [(), ("--summary",)])
def test_medians_of_few_rows_are_told_as_such(summed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped table has three rows of a group: no group that a bar counts, yet errors that a reader wants."""
    from hwmodel.cli import cli

    cli.main(["validate", "--op", "e2e", "--op", "gemm", "--device", "h200_sxm", *summed], standalone_mode=False)
    said = " ".join(capsys.readouterr().out.split())
    found = end_to_end(SHIPPED, device="h200_sxm")
    groups_, rows = merged(found), sum(g.rows for g in found if g.mode == "agg" and "DeepSeek" not in g.model)
    tpot, ttft = np.median(np.array(groups_), axis=0)
    assert f"agg: all {len(groups_)} groups, {rows} rows: TPOT median {100 * tpot:.1f} %" in said
    assert f"TTFT median {100 * ttft:.1f} %" in said
    assert "count groups (model, device, stack) of 20 rows or more: 0 of the " in said
    assert "gemm" in said
    assert ("end to end, uncalibrated, agg: all" in said) == bool(summed)


def test_a_summary_shows_whatever_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    from hwmodel.cli import cli

    cli.main(["validate", "--summary", "--op", "published", "--op", "steady"], standalone_mode=False)
    said = capsys.readouterr().out
    assert re.search(r"^published, systems: \d+ figures, median error", said, re.MULTILINE)
    assert re.search(r"^steady state, uncalibrated, other chips: \d+ rows, median error", said, re.MULTILINE)
    assert "medians over the groups" not in said


def test_groups_that_bars_count_stand_beside_all() -> None:
    from dataclasses import replace

    from rich.console import Console

    from hwmodel.report.accuracy import served as shown

    one = next(each for each in end_to_end(SHIPPED) if "DeepSeek" not in each.model and each.mode == "agg" and each.rows)
    many = replace(one, rows=30, tpot_median=0.1, ttft_median=0.2, skipped={})
    few = replace(many, device="b", rows=3, tpot_median=0.5, ttft_median=0.8)
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(shown([many, few]))
    said = console.export_text()
    assert "agg: 1 groups of 20 rows or more: TPOT median 10.0 %, worst 10.0 %; TTFT median 20.0 %" in said
    assert "agg: all 2 groups, 33 rows: TPOT median 30.0 %, worst 50.0 %; TTFT median 50.0 %, worst 80.0 %" in said
    assert "20 rows or more: 1 of the 2 here" in said


def test_rows_know_their_release_and_their_harness(tmp_path: Path) -> None:
    rows = list(csv.DictReader((SHIPPED / "e2e_agg.csv").open()))
    changes = {"model": "Qwen/Qwen3-235B-A22B-FP8", "system": "h200_sxm", "precision": "fp8", "attn_dp": "1", "tp_size": "2",
               "pp_size": "1", "moe_tp_size": "2", "moe_ep_size": "1", "isl": "1000", "backend": "vllm"}  # fmt: skip

    def row(**more: str) -> dict[str, str]:
        return {**rows[0], **changes, **more}

    assert served(row(ver="0.12.0")).behind == 6
    assert served(row(ver="0.18.0")).behind == served(row(ver="nightly-5b")).behind == served(row(ver="")).behind == 0
    assert served(row(ver="0.12.0", precision="bf16")).behind == 0
    assert served(row(ver="0.5.1.post1", backend="sglang")).together
    assert not served(row(ver="0.5.9", backend="sglang")).together
    path = tmp_path / "e2e_agg.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for ver, origin in (("1.0", "nv_x"), ("2.0", "nv_x"), ("2.0", "inferencex")):
            writer.writerow(row(ver=ver, origin=origin))
    kept, _ = read_served(path)
    assert [(one.lab, one.prompt) for one in kept] == [(True, 1000), (False, 900), (False, 900)]


def test_quantisation_in_a_table_of_products_is_known() -> None:
    """What a product with static scales costs over one in bf16, per execution; nothing where there are no such scales."""
    point = [decode_point(8, 1000)]

    def share(form: str) -> float:
        parts = engine(Deployment("llama-3.1-70b", "h200_sxm", "trtllm", Layout(4), form, form), "decode").parts(point)
        return float(parts["quantised"][0] / parts["launches"][0])

    assert 1e-6 < share("fp8") < 1e-5  # about 10 us on two of five kernels; a table of TensorRT-LLM, see its README
    assert share("bf16") == 0


def test_validate_prints_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    from hwmodel.cli import cli

    cli.main(["validate", "--op", "gemm", "--device", "h100_sxm", "--json"], standalone_mode=False)
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert {(group["op"], group["device"]) for group in groups} == {("gemm", "h100_sxm")}
    assert all(group["calibrated"] and group["median"] < group["roofline_median"] for group in groups)
    assert groups[0].keys() >= {
        "op", "device", "stack", "dtype", "rows", "q25", "median", "q75", "p90", "bias", "roofline_median",
        "calibrated", "inside_80",
    }  # fmt: skip
    group = next(group for group in groups if (group["stack"], group["dtype"]) == ("vllm", "bfloat16"))
    fit = next(fit for fit in load_calibration("h100_sxm.vllm").fits if (fit.op, fit.dtype) == ("gemm", "bf16"))
    assert fit.held_out is not None
    each = [float(text) for text in fit.held_out.folds.split()]
    assert len(each) == 5
    assert group["held_out_median"] == pytest.approx(100 * fit.held_out.median)
    assert group["held_out_p90"] == pytest.approx(100 * fit.held_out.p90)
    assert group["held_out_fold_spread"] == pytest.approx(100 * (max(each) - min(each)))
    cli.main(["validate", "--op", "e2e", "--device", "b200_sxm", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert not found["groups"]
    assert found["e2e"][0].keys() >= {"model", "device", "stack", "precision", "mode", "rows", "tpot_median", "tpot_p90",
                                      "ttft_median", "ttft_p90", "skipped"}  # fmt: skip


def test_rows_of_deepseek_say_which_setting_of_drafting_fits() -> None:
    from dataclasses import replace

    from hwmodel.report.accuracy import drafting

    one = replace(next(each for each in end_to_end(SHIPPED) if "DeepSeek" not in each.model), rows=30)
    made = [replace(one, model="deepseek-ai/DeepSeek-R1", device="b", stack="s", precision="fp8", tpot_bias=bias, mode=mode)
            for bias, mode in ((1.06, "twice"), (0.1, "near"), (-0.6, "slow"))]  # fmt: skip
    head, *lines = drafting([one, *made])
    assert "is not recorded" in head
    assert lines == ["  neither: slower than steps without it: DeepSeek-R1 b s fp8 slow", "  off: DeepSeek-R1 b s fp8 near",
                     "  on, some 2.1 tokens a step: DeepSeek-R1 b s fp8 twice"]  # fmt: skip
    assert drafting([one]) == []


def test_no_number_of_a_table_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of stacks are long: they go on in the next line, so that every error can be read."""
    with pytest.raises(SystemExit):
        main(["validate", "--op", "all_reduce", "--device", "b200_sxm"])
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert "custom_sglang_SGLang_CustomAllReduce_graph" in said
    row = next(line for line in said.splitlines() if line.startswith("all_reduce b200_sxm nccl half"))
    assert len(re.findall(r"[-+]?\d+\.\d", row.partition("half")[2])) == 8
    with pytest.raises(SystemExit):
        main(["chips", "h100_sxm"])
    said = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--op", "gem"], "did you mean 'gemm'"),
        (["--measured", "nowhere"], "no such folder"),
        (["--device", "h100"], "--device h100: no such chip, did you mean 'h100_sxm'"),
        (["--measured", "."], "holds none of the known tables"),
    ],
)
def test_validate_says_what_is_wrong(options: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hwmodel.cli import cli

    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        cli.main(["validate", *options], standalone_mode=False)


def test_calibrate_few_rows_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hwmodel.cli import cli

    table = (SHIPPED / "gemm.csv").read_text().splitlines()
    mine = [line.replace("vllm", "mine") for line in table if line.startswith("h100_sxm,vllm,") and ",bfloat16," in line]
    (tmp_path / "gemm.csv").write_text("\n".join([table[0], *mine]) + "\n")
    out = tmp_path / "h100_sxm.mine.yaml"
    cli.main(
        ["calibrate", "h100_sxm", "--stack", "mine", "--measured", str(tmp_path), "--out", str(out)], standalone_mode=False
    )
    assert "only 5 rows" in capsys.readouterr().out.replace("\n", " ")
    text = out.read_text()
    assert "op: gemm" in text
    line = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert json.loads((tmp_path / line).read_text())["title"] == "hwmodel calibration"


def test_calibrate_a_chip_of_ones_own_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a chip without a file are no empty calibration; its file may be named, and its calibration is then found."""
    from hwmodel.cli import cli

    monkeypatch.chdir(tmp_path)
    table = (SHIPPED / "gemm.csv").read_text().splitlines()
    own = [line.replace("h100_sxm,vllm", "my_chip,mine") for line in table if line.startswith("h100_sxm,vllm,")]
    Path("rows").mkdir()
    Path("rows/gemm.csv").write_text("\n".join([table[0], *own]) + "\n")
    Path("my_chip.yaml").write_text("extends: h100_sxm\n")
    rest = ["--stack", "mine", "--measured", "rows", "--out", "chips/calibrations/my_chip.mine.yaml"]
    with pytest.raises(InputError, match=r"no chip named 'my_chip' in chips/.*'hwmodel calibrate ./my_chip.yaml'"):
        cli.main(["calibrate", "my_chip", *rest], standalone_mode=False)
    assert not Path("chips").exists()
    cli.main(["calibrate", "./my_chip.yaml", *rest], standalone_mode=False)
    fits = load_calibration("my_chip.mine").fits
    assert {(fit.op, fit.dtype) for fit in fits} >= {("gemm", "bf16"), ("gemm", "fp8")}
    assert all(fit.rows == 5 for fit in fits)
