"""What a result says adds up: shares of the step, links per chip, costs per the right token, names, ranges, drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hwmodel.cli import main
from hwmodel.fit import fit
from hwmodel.kernels import columns as c
from hwmodel.memory import memory
from hwmodel.placing import place
from hwmodel.report.tables import answer as table
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, from_options, load_scenario, scenario_from
from hwmodel.spec import catalog
from hwmodel.spec.yamlfile import Document
from hwmodel.workload import Workload

DECODE = {"phase": "decode", "batch": 64, "context": 4096}
PREFILL = {"phase": "prefill", "batch": 8, "new_tokens": 2048}
MIXED = {"phase": "mixed", "batch": 8, "context": 4096, "prefill_batch": 2, "new_tokens": 512}
GPU = {"gpu": {"chip": "h100_sxm", "count": 8}}
FAR = {"gpu": {"chip": "rubin", "count": 8}, "far": {"chip": "groq3_lpu", "count": 1536}}
AFD = {"disaggregate": {"move": "experts", "to": "far", "micro_batches": 2}}
SPLIT = {"expert": {"pool": "far", "degree": 256, "tensor": 6}}
STREAMED = [{"micro_batch": {"count": 2}}, {"tensor": {"degree": 8}}]
STAGED = [{"pipeline": {"stages": 4}}, {"tensor": {"degree": 2}}]


def asked(model: str, plan: list[dict[str, Any]], work: dict[str, Any], pools: dict[str, Any] = GPU) -> Scenario:
    links = [{"from": "gpu", "to": "far", "bandwidth": "100 GB/s", "latency": "3 us"}] if "far" in pools else []
    value = {"model": model, "cluster": {"pools": pools, "links": links}, "plan": plan, "workload": work}
    return scenario_from(Document("test.yaml", value, {}, ()), "test")


QUESTIONS = {
    "overlap, decode": ("llama-3.1-70b", STREAMED, DECODE),
    "overlap, prefill": ("llama-3.1-70b", STREAMED, PREFILL),
    "overlap, mixed": ("llama-3.1-70b", STREAMED, MIXED),
    "overlap, experts": ("deepseek-v3", [{"micro_batch": {"count": 2}}, {"expert": {"degree": 8}}], DECODE),
    "pipeline, decode": ("llama-3.1-70b", STAGED, DECODE),
    "pipeline, prefill": ("llama-3.1-70b", STAGED, PREFILL),
    "pipeline, one sequence": ("llama-3.1-70b", STAGED, {**DECODE, "batch": 1}),
    "afd": ("deepseek-v3", [AFD, SPLIT], DECODE, FAR),
    "afd, overlap": ("deepseek-v3", [AFD, SPLIT, {"micro_batch": {"count": 2}}], DECODE, FAR),
    "tensor": ("llama-3.1-8b", [{"tensor": {"degree": 8}}], MIXED),
}


def check_shares(found: Result) -> None:
    for row in found.pools:
        assert all(value >= 0 for value in row.bound_s.values())
        assert sum(row.bound_s.values()) == pytest.approx(found.step.time_s, rel=1e-9, abs=1e-15)
        assert row.busy_fraction == pytest.approx(1 - row.bound_s["idle"] / found.step.time_s, abs=1e-9)


@pytest.mark.parametrize("ideal", [False, True], ids=["real", "ideal"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_shares_of_a_step_add_up_to_it(name: str, ideal: bool) -> None:
    check_shares(run(asked(*QUESTIONS[name]), ideal=ideal))


@pytest.mark.parametrize("ideal", [False, True], ids=["real", "ideal"])
@pytest.mark.parametrize("name", catalog.names("scenarios"))
def test_shares_of_a_shipped_step_add_up_to_it(name: str, ideal: bool) -> None:
    check_shares(run(load_scenario(name), ideal=ideal))


def inside(found: Result, pool: str = "gpu") -> float:
    return next(row.time_s for row in found.links if row.source == row.target == pool)


@pytest.mark.parametrize("name", ["pipeline, decode", "pipeline, prefill", "pipeline, one sequence"])
def test_links_inside_a_pool_are_those_of_one_chip(name: str) -> None:
    """A stage of four holds a quarter of the layers; its links carry about a quarter, and one hop per micro-batch."""
    found = run(asked(*QUESTIONS[name]))
    rows = zip(found.ops, found.placed.priced, strict=True)
    total = sum(float(priced[c.WIRE]) * row.count for row, priced in rows if row.kind == "collective")
    assert found.pools[0].bound_s["link"] <= inside(found) + 1e-15
    assert 0 < inside(found) < 0.35 * total


def test_links_that_nothing_hides_are_the_pool_s_share() -> None:
    found = run(asked("llama-3.1-70b", [{"tensor": {"degree": 8}}], DECODE))
    assert inside(found) == pytest.approx(found.pools[0].bound_s["link"], rel=1e-9)


def test_links_that_compute_hides_are_left_out() -> None:
    found = run(asked(*QUESTIONS["overlap, prefill"]))
    assert found.placed.graph.overlap
    assert found.pools[0].bound_s["link"] < 0.5 * inside(found)


# --- cost -------------------------------------------------------------------------------------------------------------
def printed(found: Result) -> str:
    console = Console(width=200)
    with console.capture() as text:
        console.print(table(found))
    return text.get()


@pytest.mark.parametrize(
    ("work", "made", "label", "basis"),
    [
        (DECODE, True, "USD/Mtok output", "per output token"),
        (PREFILL, False, "USD/Mtok input", "per input token"),
        (MIXED, True, "USD/Mtok output", "per output token of the decodes"),
    ],
    ids=["decode", "prefill", "mixed"],
)
def test_dollars_are_per_the_tokens_that_a_step_makes(work: dict[str, Any], made: bool, label: str, basis: str) -> None:
    found = run(asked("llama-3.1-8b", [{"tensor": {"degree": 8}}], work))
    spent = found.to_dict()["cost"]
    per = "usd_per_million_output_tokens" if made else "usd_per_million_input_tokens"
    other = "usd_per_million_input_tokens" if made else "usd_per_million_output_tokens"
    assert spent[other] is None
    tokens = {"decode": 64, "prefill": 8 * 2048, "mixed": 8}[work["phase"]]
    assert spent[per] == pytest.approx(spent["usd_per_hour"] / 3600 * found.step.time_s / tokens * 1e6)
    assert spent["joules_per_token"] == pytest.approx(spent["watts"] * found.step.time_s / tokens)
    assert basis in spent["basis"]
    assert label in printed(found)


# --- the rest ---------------------------------------------------------------------------------------------------------
def test_the_verdict_names_the_bound() -> None:
    text = printed(run(load_scenario("groqchip_llama2_70b")))
    assert "overhead (launch, latency)" in text.split("memory per chip")[0]


def test_a_fit_counts_the_drafting_module() -> None:
    work = {**DECODE, "speculative": {"draft": 2, "acceptance": 0.8}}
    question = asked("deepseek-v3", [{"expert": {"degree": 16}}], work, {"gpu": {"chip": "h200_sxm", "count": 16}})
    assert question.workload.drafts == 2
    ran, fits = run(question).memory, fit(question).memory
    assert ran == fits
    plain = asked("deepseek-v3", [{"expert": {"degree": 16}}], DECODE, {"gpu": {"chip": "h200_sxm", "count": 16}})
    assert fits[0].weights_bytes > memory(place(plain), plain.cluster, plain.workload)[0].weights_bytes


def test_only_the_model_s_own_module_drafts() -> None:
    free = {"draft": 3, "acceptance": 0.5, "method": "free"}
    assert Workload.model_validate({**DECODE, "speculative": free}).drafts == 0
    assert Workload.model_validate(DECODE).drafts == 0


def test_dots_belong_to_names(tmp_path: Path) -> None:
    options = {"model": "llama-3.1-8b", "chip": "h100_sxm", "batch": 1, "context": 128}
    assert from_options(options).name == "llama-3.1-8b on 1 x h100_sxm"
    for suffix in catalog.SUFFIXES[:2]:
        path = tmp_path / f"mine-3.1{suffix}"
        path.write_text((catalog.find("scenarios", "h100_llama_70b_decode")).read_text())
        assert load_scenario(str(path)).name == "mine-3.1"


def test_chips_of_one_name_that_differ_vary_apart() -> None:
    two = {
        "gpu": {"chip": "groq3_lpu", "count": 1536},
        "far": {"chip": "groq3_lpu", "count": 1536, "override": {"memory": {"sram": {"bandwidth": "100 TB/s"}}}},
    }
    found = {item["input"] for item in run(asked("deepseek-v3", [AFD, SPLIT], DECODE, two)).estimated_inputs}
    assert {"groq3_lpu (gpu).execution.launch", "groq3_lpu (far).execution.launch"} <= found
    same = {name: {**pool, "override": {}} for name, pool in two.items()}
    found = {item["input"] for item in run(asked("deepseek-v3", [AFD, SPLIT], DECODE, same)).estimated_inputs}
    assert "groq3_lpu.execution.launch" in found


def left(*args: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(args)
    return int(stop.value.code or 0), *capsys.readouterr()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    for out in ("taken", "taken/inner"):
        code, text, error = left("run", "lpu_opt_1_3b", "--json", "--out", str(tmp_path / out), capsys=capsys)
        assert (code, text) == (2, "")
        assert "taken" in error


def test_two_forms_of_one_answer_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, error = left("run", "lpu_opt_1_3b", "--json", "--csv", capsys=capsys)
    assert (code, text) == (2, "")
    assert "--json" in error
    assert "--csv" in error


def test_the_bound_of_a_step_is_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = left("run", "lpu_opt_1_3b", "--json", capsys=capsys)
    assert code == 0
    assert json.loads(text)["step"]["bound"] == "memory:hbm"
