"""Served steps: what surrounds the ops, and rows of served models."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hwmodel.served.compare import end_to_end, summary
from hwmodel.served.engines import CATEGORIES
from hwmodel.served.rows import read_served
from hwmodel.served.stack import Stack, load_stack, stack_names
from hwmodel.served.step import PARTS, Loads, predict
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError

SHIPPED = catalog.shipped("measured")


def stack(**changes: object) -> Stack:
    plain: dict[str, object] = dict.fromkeys(("gap", "sequence", "fused", "prompt", "start"), "0 us")
    plain |= {"share": 0, "stretch": 1, "lab": 1, "steps": 0, "burst": 0}
    return Stack.model_validate({"stack": "x", **plain, **changes})


def load(clients: float = 8.0, output: float = 100.0, limit: float = 1e9) -> Loads:
    """One row: a decode step of 10 ms at any batch (100 kernels, 20 fp8 products), a prompt of 50 ms."""
    one = np.ones(1)

    def parts(seconds: float, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        found = {name: np.zeros(shape) for name in PARTS}
        return {
            **found,
            CATEGORIES[0]: np.full(shape, seconds),
            "launches": np.full(shape, 100.0),
            "quantised": np.full(shape, 20.0),
        }

    decode, prompt = parts(0.01, (1, 3)), parts(0.05, (1,))
    return Loads(
        clients * one, 1000 * one, output * one, limit * one, decode, prompt, prompt, one, one, 0 * one, 0 * one, one
    )  # fmt: skip


def times(load_: Loads, stack_: Stack) -> tuple[float, float]:
    ttft, tpot = predict(load_, stack_)
    return float(ttft[0]), float(tpot[0])


def test_nothing_around_the_ops_leaves_the_ops() -> None:
    assert times(load(), stack()) == pytest.approx((0.05, 0.01))


def test_every_parameter_adds_what_it_says() -> None:
    ttft, tpot = times(load(), stack())
    assert times(load(), stack(gap="2 us"))[1] - tpot == pytest.approx(100 * 2e-6)
    assert tpot - times(load(), stack(fused="10 us"))[1] == pytest.approx(20 * 10e-6)
    assert times(load(), stack(start="30 ms"))[0] - ttft == pytest.approx(0.03)
    assert times(load(), stack(stretch=2))[0] - ttft == pytest.approx(0.05)
    assert times(load(), stack(steps=3))[0] - ttft == pytest.approx(3 * tpot)
    assert times(load(), stack(burst=0.5))[0] - ttft == pytest.approx(0.5 * 7 * 0.05)


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
    """On the rows they were fitted to; stacks/ say what it was on configurations held out."""
    count, tpot, _, ttft, _ = summary(end_to_end(shared / "measured"))["agg"]
    assert count >= 20
    assert tpot < 0.11
    assert ttft < 0.25


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
    cli.main(["validate", "--op", "e2e", "--device", "b200_sxm", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert not found["groups"]
    assert found["e2e"][0].keys() >= {"model", "device", "stack", "precision", "mode", "rows", "tpot_median", "tpot_p90",
                                      "ttft_median", "ttft_p90", "skipped"}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--op", "gem"], "did you mean 'gemm'"),
        (["--measured", "nowhere"], "no such folder"),
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
    assert "only 5 rows" in capsys.readouterr().err
    assert "op: gemm" in out.read_text()
