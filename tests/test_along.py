"""Axes as a command line writes them, break-evens of known curves, and every mistake said in the user's words."""

from __future__ import annotations

import pytest

from hwmodel.axis import axis, question
from hwmodel.cli import main
from hwmodel.compare.along import along
from hwmodel.compare.crossing import located
from hwmodel.run import run
from hwmodel.scenario import load_scenario


def test_axes() -> None:
    whole = axis("workload.context=1024..131072")
    assert whole.whole
    assert whole.values == ("1024", "2048", "4096", "8192", "16384", "32768", "65536", "131072")
    prices = axis("cluster.pools.card.override.price.purchase=100..1e4 USD")
    assert (prices.values[0], prices.values[-1], prices.unit, prices.whole) == ("100 USD", "10000 USD", "USD", False)
    assert axis("tpot=5ms..50ms").numbers[-1] == 50
    assert axis("model=llama-3.1-8b,qwen3-32b").numbers == ()
    assert axis("workload.batch=1,8,64").numbers == (1, 8, 64)
    assert axis("workload.batch=64,8").numbers == ()  # in no order: nothing to locate between


def test_a_change_islocated() -> None:
    assert located(lambda x: x < 777, 1, 4096, 0.1, whole=True) == 777
    assert located(lambda x: x < 3.21, 1.0, 100.0, 1e-9, whole=False) == pytest.approx(3.21, rel=1e-8)
    assert located(lambda x: x < 2, 1, 2, 0.1, whole=True) == 2


def test_cells_are_runs_and_the_most_that_keep_to_the_target() -> None:
    found = along([question("h100_llama_70b_decode")], axis("workload.context=2048,8192"), 20e-3)
    for value, (cell,) in zip(found.values, found.cells, strict=True):
        assert cell.batch is not None

        def step(batch: int, context: str = value) -> float:
            settings = [f"workload.context={context}", f"workload.batch={batch}"]
            return run(load_scenario("h100_llama_70b_decode", settings)).step.time_s

        assert cell.tpot_s == pytest.approx(step(cell.batch), rel=1e-12)
        assert step(cell.batch) <= 20e-3 < step(cell.batch + 1)
    assert found.crossovers == ()


MISTAKES = [
    (["--slo", "5ms"], "--slo: expected tpot=TIME, such as tpot=20ms; got '5ms'"),
    (["--slo", "tpot=5"], "'5' needs a unit, such as '20 ms'"),
    (["--over", "workload.context"], "expected PATH=LOW..HIGH or PATH=A,B,C"),
    (["--over", "workload.context=8192-131072"], "with two dots: '8192..131072'"),
    (["--over", "workload.context=9..1"], "from a smaller to a larger number"),
    (["--over", "tpot=1 ms..2 s"], "both ends of a range need the same unit"),
    (["--over", "workload.contxt=1..9"], "unknown key 'contxt', did you mean 'context'?"),
    (["--over", "cluster.pools.gp.count=1..9"], "no pool 'gp' in h100_llama_70b_decode, did you mean 'gpu'?"),
    (["--each", "cluster.pools.gp.chip=h200_sxm"], "no pool 'gp' in h100_llama_70b_decode, did you mean 'gpu'?"),
    (["--each", "cluster.pools.gpu.chip=h200"], "no chip named 'h200', did you mean 'h200_sxm'?"),
    (["--best"], "--best looks for the cheapest plan within a target"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_mistakes_are_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["compare", "h100_llama_70b_decode", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_kept_in_a_tier_is_read_there() -> None:
    """At 1/40 of the bandwidth the cache of eight sequences takes as much longer as its bytes say."""
    near = run(load_scenario("q07_memory_tiers", ["workload.batch=8"]), ranges=False)
    plan = ["workload.batch=8", "plan=[{expert: {degree: 4}}, {keep: {what: kv, tier: lpddr}}]"]
    far = run(load_scenario("q07_memory_tiers", plan), ranges=False)
    hbm, lpddr = ({row.tier: row for row in result.memory}["lpddr"] for result in (near, far))
    assert hbm.kv_bytes == 0
    assert lpddr.kv_bytes == pytest.approx({row.tier: row for row in near.memory}["hbm"].kv_bytes)
    tiers = {tier.tier: tier for tier in far.placed.scenario.cluster.pools[0].chip.memory}
    alone = lpddr.kv_bytes / (tiers["lpddr"].bandwidth_bytes_per_s * tiers["lpddr"].efficiency)
    assert far.step.time_s > alone
    assert far.step.time_s - near.step.time_s == pytest.approx(alone, rel=0.15)


@pytest.mark.parametrize("tier", ["l2", "lpdr"])
def test_a_tier_that_keeps_nothing_is_named(tier: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", "q07_memory_tiers", "--set", f"plan=[{{keep: {{what: kv, tier: {tier}}}}}]"])
    assert left.value.code == 2
    assert f"chip gb200 keeps nothing in a tier '{tier}'" in capsys.readouterr().err
