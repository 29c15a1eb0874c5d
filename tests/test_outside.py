"""Experts outside the fast memory: hit rates by hand and by drawing, places as `run` prices whole steps."""

from __future__ import annotations

import json
from collections import OrderedDict

import numpy as np
import pytest
from click.testing import CliRunner

from hwmodel.cli import cli
from hwmodel.optimize.outside import outside
from hwmodel.routing import zipf
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError

MIXTRAL = "rtx4090_mixtral_offload"


def step_s(batch: int, mode: str) -> float:
    """A step of `run` with the experts in host memory."""
    settings = [f"workload.batch={batch}", f"plan.0.offload.mode={mode}", "workload.context=1"]
    return run(load_scenario(MIXTRAL, settings), ranges=False).step.time_s


@pytest.mark.parametrize("batch", [1, 16, 64])
def test_a_layer_takes_as_long_as_run_says(batch: int) -> None:
    """32 layers of the experts asked for; the rest of a step is a few milliseconds."""
    found = outside(load_scenario(MIXTRAL, [f"workload.batch={batch}"]))
    (place,) = found.places
    assert found.distinct == pytest.approx(8 * (1 - 0.75**batch))
    assert place.brought == 0
    assert 32 * place.one_by_one_s == pytest.approx(step_s(batch, "compute"), rel=0.09)
    assert 32 * found.distinct * place.bring_s == pytest.approx(step_s(batch, "stream"), rel=0.02)
    assert place.side_by_side_s < place.one_by_one_s


def test_bringing_pays_from_the_crossing_on_as_in_run() -> None:
    """Beyond 2,800 tokens an expert; every one of the eight has a quarter of the batch."""
    tokens = outside(load_scenario(MIXTRAL)).places[0].crossing_tokens
    assert tokens is not None
    few, many = (round(4 * tokens * factor) for factor in (0.8, 1.25))
    assert step_s(few, "compute") < step_s(few, "stream")
    assert step_s(many, "stream") < step_s(many, "compute")
    assert [outside(load_scenario(MIXTRAL, [f"workload.batch={batch}"])).places[0].brought for batch in (few, many)] == [0, 8]


def test_hits_are_those_of_a_cache_that_draws() -> None:
    """Zipf 1.0 over 256 experts, one asked for at a time; 20,000 requests through a list of the last used."""
    scenario = load_scenario("rubin_lpx_deepseek_v3", ["workload.routing={kind: zipf, s: 1.0}", "workload.batch=8"])
    found = outside(scenario)
    share = scenario.workload.routing.inclusion(256, 8) / 8
    assert share.sum() == pytest.approx(1.0)
    assert share[0] / share[-1] < zipf(256, 1.0)[0] / zipf(256, 1.0)[-1]  # no token asks for one expert twice
    draws = np.random.default_rng(1).choice(256, 20_000, p=share)
    for row in found.caches:
        assert row.lfu == pytest.approx(np.isin(draws, np.argsort(-share)[: row.experts]).mean(), abs=0.01)
        kept, hits = OrderedDict[int, None](), 0
        for expert in draws.tolist():
            hits += expert in kept
            kept[expert] = None
            kept.move_to_end(expert)
            if len(kept) > row.experts:
                kept.popitem(last=False)
        assert row.lru == pytest.approx(hits / len(draws), abs=0.01)
        assert row.step == pytest.approx(min(1.0, row.experts / found.distinct))
    assert [row.experts for row in found.caches] == [32, 64, 128, 192]


def test_the_command() -> None:
    told = CliRunner().invoke(cli, ["fit", MIXTRAL, "--experts"])
    assert told.exit_code == 0, told.output
    assert "1 tokens ask for 2 of the 8 experts of a layer, 1 tokens for each; one has 352.3 MB" in " ".join(
        told.output.split()
    )
    assert "0 of 2" in told.output
    found = json.loads(CliRunner().invoke(cli, ["fit", MIXTRAL, "--experts", "--json"]).stdout)
    assert found["places"][0]["near"] == "host"
    alone = CliRunner().invoke(cli, ["fit", "h100_mixtral_decode", "--experts"])
    assert "no other pool that a link joins to the first one could hold them" in " ".join(alone.output.split())
    assert CliRunner().invoke(cli, ["fit", MIXTRAL, "--experts", "--tiers"]).exit_code == 2


def test_a_dense_model_has_none() -> None:
    with pytest.raises(InputError, match=r"model llama-3.1-70b has no routed experts"):
        outside(load_scenario("h100_llama_70b_decode"))
