"""The ten questions: each command prints what its page says, in time; golden answers; and what the answers mean."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from printed import QUESTIONS, README, blocks, output_of
from test_golden import differences, rounded

from hwmodel.cli import main
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario, load_scenario

GOLDEN = Path(__file__).parent / "golden" / "questions"
COMMANDS = [block["command"] for block in blocks(QUESTIONS)]
SECONDS = [40, 40, 40, 40, 240, 40, 40, 240, 40, 40]
"""Four times what each is allowed on a machine of its own."""
VOLATILE = ("wall_s", "requests_per_wall_s", "version", "warnings", "notes")


@pytest.mark.parametrize("number", range(10))
def test_a_question_prints_what_its_page_says_in_time(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    block = blocks(QUESTIONS)[number]
    start = time.perf_counter()
    found = output_of(block["command"], tmp_path)
    assert time.perf_counter() - start < SECONDS[number]
    if request.config.getoption("--write-golden"):
        text = QUESTIONS.read_text()
        QUESTIONS.write_text(text[: block.start("output")] + found + text[block.end("output") :])
        return
    assert found == block["output"]


def test_the_readme_asks_the_same_ten_questions() -> None:
    assert len(COMMANDS) == 10
    readme = README.read_text()
    for command in COMMANDS:
        assert f"`{command}`" in readme


def test_the_numbers_of_the_readmes_answers_are_printed() -> None:
    sections = re.split(r"^## \d+\. .*$", QUESTIONS.read_text(), flags=re.MULTILINE)[1:]
    rows = [line.split(" | ") for line in README.read_text().splitlines() if re.match(r"\| \d+\. ", line)]
    assert len(rows) == len(sections) == 10
    for (_, _, said), section in zip(rows, sections, strict=True):
        for number in re.findall(r"(?<![\w.])\d[\d,]*\.?\d*(?![\w.]*[A-Z])", said):
            assert number.rstrip(".,") in section, (number, said)


@pytest.fixture(scope="module")
def answers() -> dict[int, Any]:
    """The JSON of every question asked so far."""
    return {}


def answer(answers: dict[int, Any], number: int, tmp_path: Path) -> Any:
    """The JSON of a question as its page asks it; of the last one, the file that it writes."""
    if number not in answers:
        words = shlex.split(COMMANDS[number - 1])[1:]
        if number == 10:
            words[words.index("--out") + 1] = str(tmp_path / "out.yaml")
        out = StringIO()
        with redirect_stdout(out), pytest.raises(SystemExit) as left:
            main(words if number == 10 else [*words, "--json"])
        assert left.value.code in (0, 3)
        answers[number] = {"printed": out.getvalue()} if number == 10 else json.loads(out.getvalue())
        if number == 10:
            import yaml

            answers[number]["file"] = yaml.safe_load((tmp_path / "out.yaml").read_text())
    return answers[number]


def kept(number: int, found: Any) -> Any:
    """What a golden file holds: six digits, no clock, no sources, of a run no single ops."""
    if number == 10:
        fits = [
            {key: fit[key] for key in ("op", "dtype", "rows", "low", "high", "held_out", "doubt")}
            for fit in found["file"]["fits"]
        ]
        return rounded({"fits": fits})
    return rounded(_without(found))


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(item) for key, item in value.items() if key not in VOLATILE}
    return [_without(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("number", range(1, 11))
def test_a_question_gives_its_golden_answer(
    number: int, answers: dict[int, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / f"q{number:02}.json"
    found = kept(number, answer(answers, number, tmp_path))
    if request.config.getoption("--write-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    moved = differences(json.loads(path.read_text()), found)
    assert not moved, "moved:\n" + "\n".join(sorted(moved)[:20])


# --- what the answers mean, each by another way than the one that found it ---------------------------------------------
def at(scenario: Scenario, batch: int) -> Result:
    return run(replace(scenario, workload=scenario.workload.model_copy(update={"batch": batch})), ranges=False)


def usd(result: Result) -> float:
    assert result.cost is not None
    assert result.cost.usd_per_million_output_tokens is not None
    return float(result.cost.usd_per_million_output_tokens)


def offered(name: str, settings: list[str], tpot_s: float) -> float:
    """USD per million tokens at the most sequences that keep to a target, by plain doubling and halving over `run`."""
    scenario = load_scenario(name, settings)

    def good(batch: int) -> bool:
        found = at(scenario, batch)
        return found.feasible and found.step.time_s <= tpot_s

    if not good(1):
        return float("inf")
    low, step = 1, 1
    while good(low + step):
        low, step = low + step, 2 * step
    while step := step // 2:
        low += step if good(low + step) else 0
    return usd(at(scenario, low))


@pytest.mark.parametrize("path", ["workload.context", "cluster.pools.attention.count"])
def test_1_on_both_sides_of_the_break_even_another_one_wins(path: str, answers: dict[int, Any], tmp_path: Path) -> None:
    found = answer(answers, 1, tmp_path)
    change = next(row for row in found["crossovers"] if row["x"] == path)
    assert change["between"] == ["q01_gpu_alone", "q01_gpu_and_lpu"]
    for value, winner in ((change["at"] - 1, 0), (change["at"], 1)):
        costs = []
        for name in change["between"]:
            mine = not (name == "q01_gpu_alone" and "attention" in path)
            costs.append(offered(name, [f"{path}={value:.0f}"] if mine else [], 5e-3))
        assert costs[winner] < costs[1 - winner], (value, costs)


def test_1_the_batch_between_its_ends_is_the_split_ones_alone(answers: dict[int, Any], tmp_path: Path) -> None:
    first, last = [row for row in answer(answers, 1, tmp_path)["crossovers"] if row["x"] == "workload.batch"]
    alone, split = load_scenario("q01_gpu_alone"), load_scenario("q01_gpu_and_lpu")
    assert at(alone, int(first["at"]) - 1).step.time_s <= 5e-3 < at(alone, int(first["at"])).step.time_s
    assert at(split, int(last["at"]) - 1).step.time_s <= 5e-3 < at(split, int(last["at"])).step.time_s


def test_2_capacity_by_hand(answers: dict[int, Any], tmp_path: Path) -> None:
    """256 experts of 58 layers, three matrices of 7168 x 2048 each, a byte an element; 256 chips of 500 MB a rack."""
    found = answer(answers, 2, tmp_path)
    racks = 256 * 58 * 3 * 7168 * 2048 / (256 * 500e6)
    assert f"{racks:.3f}" in json.dumps(rounded(found)) or any(abs(value - racks) < 1e-6 for value in numbers(found))


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int | float):
        yield float(value)


def test_3_at_the_break_even_price_both_cost_the_same(answers: dict[int, Any], tmp_path: Path) -> None:
    change = next(row for row in answer(answers, 3, tmp_path)["crossovers"] if row["x"].endswith("purchase"))
    price = [f"cluster.pools.card.override.price.purchase={change['at']} USD"]
    card, gpu = offered("q03_lpddr_card", price, 50e-3), offered("q03_hbm_gpu", [], 50e-3)
    assert card == pytest.approx(gpu, rel=1e-5)
    assert change["low"] < change["at"] < change["high"]
    cheaper = offered("q03_lpddr_card", [f"cluster.pools.card.override.price.purchase={change['at'] * 0.99} USD"], 50e-3)
    assert cheaper < gpu


def test_4_the_least_spec_comes_back_as_the_target(answers: dict[int, Any], tmp_path: Path) -> None:
    memory, link = answer(answers, 4, tmp_path)["least"]
    assert memory["meets"]
    assert not link["meets"]
    least = [f"cluster.pools.chips.override.memory.lpddr.bandwidth={memory['value']:.12g} B/s"]
    assert run(load_scenario("q04_unbuilt_chip", least)).step.tpot_s == pytest.approx(30e-3, rel=1e-6)
    endless = ["cluster.pools.chips.override.links.esl.bandwidth=1e9 TB/s"]
    assert run(load_scenario("q04_unbuilt_chip", endless)).step.tpot_s > 30e-3


def test_4_an_elasticity_is_the_change_of_a_run(answers: dict[int, Any], tmp_path: Path) -> None:
    row = next(
        row for row in answer(answers, 4, tmp_path)["elasticities"] if row["parameter"] == "chips.memory.lpddr.bandwidth"
    )
    slow, quick = (
        run(load_scenario("q04_unbuilt_chip", [f"cluster.pools.chips.override.memory.lpddr.bandwidth={bw} TB/s"])).step.time_s
        for bw in (1.2 / 1.02, 1.2 * 1.02)
    )
    import math

    assert math.log(quick / slow) / (2 * math.log(1.02)) == pytest.approx(row["time"], abs=2e-3)


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> float:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["simulate", *words, "--json"])
    return float(json.loads(capsys.readouterr().out)["goodput"]["share"])


def test_5_one_instance_fewer_misses_the_target(
    answers: dict[int, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(answers, 5, tmp_path)["find"]
    assert found["met"]
    assert found["chips"] == 2 * found["instances"]
    shares = [
        simulated(capsys, "q05_fewest_chips", "--set", f"serving.instances={n}")
        for n in (found["instances"], found["instances"] - 1)
    ]
    assert shares[0] >= 0.99 > shares[1]


def test_6_every_cheaper_mix_misses_the_target(
    answers: dict[int, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = answer(answers, 6, tmp_path)["find"]
    best = (found["prefill"], found["decode"])
    for prefills, decodes in (
        best,
        (best[0] - 1, best[1]),
        (best[0], best[1] - 1),
        (best[0] - 1, best[1] + 1),
        (best[0] + 3, best[1] - 1),
    ):
        sides = [f"serving.prefill.instances={prefills}", f"serving.decode.instances={decodes}"]
        share = simulated(capsys, "q06_prefill_decode_ratio", *(word for side in sides for word in ("--set", side)))
        assert (share >= 0.9) == ((prefills, decodes) == best), (prefills, decodes, share)


def test_7_no_other_place_of_any_tensor_is_quicker(answers: dict[int, Any], tmp_path: Path) -> None:
    """Against all combinations that fit, not only those that move no more than they must."""
    from hwmodel.optimize.tiers import _ways, with_plan

    found = answer(answers, 7, tmp_path)
    scenario = load_scenario("q07_memory_tiers")
    times = []
    for way in _ways(scenario, ["hbm", "lpddr"]):
        result = run(with_plan(scenario, way), ranges=False)
        times.append(result.step.time_s if result.feasible else float("inf"))
    assert len(times) == found["ways"]
    assert min(times) == pytest.approx(found["step"]["time_s"], rel=1e-12)
    stated = load_scenario("q07_memory_tiers", ["plan=[{expert: {degree: 4}}, {offload: {tier: lpddr, fraction: 0.25}}]"])
    assert run(stated, ranges=False).step.time_s == pytest.approx(min(times), rel=1e-12)
    held = {row["what"]: row for row in found["held"]}
    total = run(stated).memory
    assert sum(row["bytes"] for row in held.values()) == pytest.approx(
        sum(row.weights_bytes + row.kv_bytes for row in total), rel=1e-9
    )


def test_8_another_chip_is_the_cheapest_on_both_sides(answers: dict[int, Any], tmp_path: Path) -> None:
    from hwmodel.goal import Goal, Slo
    from hwmodel.optimize.optimum import optimize
    from hwmodel.spec.number import Number

    found = answer(answers, 8, tmp_path)
    change = found["crossovers"][-1]
    for factor, winner in ((0.93, 0), (1.1, 1)):
        costs = []
        for chip in change["between"]:
            goal = Goal(objective="usd_per_mtok", slo=Slo(tpot_s=Number(change["at"] / 1e3 * factor)), pools={"chips": (8,)})
            best = optimize(load_scenario("q08_chip_against_chip", [f"cluster.pools.chips.chip={chip}"]), goal).answer.result
            assert best is not None
            costs.append(usd(best))
        assert costs[winner] < costs[1 - winner]
    for row in found["along"][0]["rows"]:
        for cell in row["answers"].values():
            if cell["usd_per_million_tokens"] is not None:
                assert cell["low"] <= cell["usd_per_million_tokens"] <= cell["high"]


def test_9_growth_lies_between_none_and_that_of_the_cache(answers: dict[int, Any], tmp_path: Path) -> None:
    """Cost grows with context, no faster than the context does, and families keep their order of cache per token."""
    from hwmodel.model.counts import kv_law

    rows = answer(answers, 9, tmp_path)["along"][0]["rows"]
    growth = {}
    for name in rows[0]["answers"]:
        costs = [row["answers"][name]["usd_per_million_tokens"] for row in rows]
        assert costs == sorted(costs)
        growth[name] = costs[-1] / costs[0]
        assert 1 < growth[name] < 256 * 1.01
    cache = {}
    for name in growth:
        scenario = load_scenario(name)
        law = kv_law(scenario.model, scenario.formats.kv)
        cache[name] = law.at(1 << 20, 1) / law.at(4096, 1)
    for name in ("q09_window", "q09_linear", "q09_mamba"):
        assert growth[name] < growth["q09_gqa"]
        assert cache[name] < cache["q09_gqa"]


def test_10_the_stated_error_is_that_of_rows_it_never_saw(answers: dict[int, Any], tmp_path: Path, shared: Path) -> None:
    """The whole public table is the judge of a fit from five rows."""
    import numpy as np

    from hwmodel.calibration import Calibration
    from hwmodel.hardware import load_chip
    from hwmodel.measured import read
    from hwmodel.replay import replay, times

    found = answer(answers, 10, tmp_path)
    assert "do not trust" in found["printed"]
    assert "only 5 rows" in found["printed"]
    fits = Calibration.model_validate(found["file"])
    for rows in read(shared / "measured", ["gemm"]):
        if (rows.device, rows.stack, rows.dtype) == ("l40s", "vllm", "bfloat16"):
            error = float(np.median(np.abs(times(replay(rows, load_chip("l40s"), fits)) / rows.measured_s - 1)))
            stated = fits.fits[0].held_out.median
            assert stated / 3 < error < stated * 3
