"""Step tables against exact pricing, and what an instance has room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.serve.grid import Axis
from hwmodel.serve.kv import room
from hwmodel.serve.pricing import priced
from hwmodel.serve.steps import deviations, random_steps, step_tables
from hwmodel.served.stack import load_stack
from hwmodel.served.step import OVERLAP
from hwmodel.spec.errors import InputError

TOKENS, SEQUENCES = 4096, 256
PLANS = {
    "one chip": ["model=llama-3.1-8b", "plan=[]", "cluster.pools.gpu.count=1"],
    "one calibrated chip": ["model=llama-3.1-8b", "plan=[]", "cluster.pools.gpu.count=1", "cluster.pools.gpu.stack=vllm"],
    "tensor parallel": [],
    "experts": ["model=mixtral-8x7b", "plan=[{tensor: {degree: 2}}]", "cluster.pools.gpu.count=2"],
    "data parallel attention": ["model=qwen3-30b-a3b", "plan=[{expert: {degree: 4}}]"],
    "latent attention": ["model=deepseek-v2-lite", "plan=[]", "cluster.pools.gpu.count=1"],
}


@pytest.mark.parametrize("plan", PLANS)
def test_tables_are_within_two_per_cent_of_exact_pricing(plan: str) -> None:
    scenario = load_scenario("h100_llama_70b_decode", PLANS[plan])
    stack = load_stack("vllm") if "calibrated" in plan else None
    steps = step_tables(scenario, stack, TOKENS, SEQUENCES)
    points = random_steps(scenario, TOKENS, SEQUENCES, seed=11)  # not those that the tables were checked with
    for phase in ("decode", "prefill", "mixed"):
        wrong = deviations(steps, scenario, stack, points, phase)
        assert wrong.max() < 0.02, f"{phase}: {points[wrong.argmax()]}"
        assert wrong.mean() < 0.002
    assert steps.accuracy is not None
    assert steps.accuracy.worst < 0.02


def test_exact_pricing_is_what_run_says() -> None:
    """The same step by the way of `hwmodel run`."""
    scenario = load_scenario(
        "h100_llama_70b_decode", ["workload={phase: mixed, batch: 24, context: 3000, new_tokens: 700, cached: 60}"]
    )
    step = run(scenario).step.time_s
    assert priced(scenario, "mixed", None).exact(np.array([[24, 3000, 1, 700, 60.0]]))[0] == pytest.approx(step, rel=1e-12)
    decode = replace(scenario, workload=scenario.workload.model_copy(update={"phase": "decode"}))
    assert priced(scenario, "decode", None).exact(np.array([[24, 3000, 0, 1, 0.0]]))[0] == pytest.approx(
        run(decode).step.time_s
    )


def test_overlapping_lanes_are_scheduled_whole_and_the_error_is_told() -> None:
    """Attention and experts apart (AFD): decode as scheduled with micro-batches, at full batches within 2 %."""
    scenario = load_scenario("rubin_lpx_deepseek_v3")
    steps = step_tables(scenario, None, 1152, 1152)
    points = np.array([[batch, context, 0, 1, 0.0] for batch in (288, 576, 1152) for context in (4096, 65_536, 131_072)])
    exact = priced(scenario, "decode", None).exact(points)
    assert np.abs(steps.times(points) / exact - 1).max() < 0.02
    assert steps.accuracy is not None
    assert steps.accuracy.worst > 0.02, "the warning that mixed steps of such plans are rough has a reason"


def test_a_stack_adds_gaps_per_kernel_and_host_time_per_sequence() -> None:
    scenario = load_scenario("h100_llama_70b_decode", PLANS["one chip"])
    bare, vllm = (step_tables(scenario, stack, 1024, 64) for stack in (None, load_stack("vllm")))
    stack = load_stack("vllm")
    point = np.array([[32, 1000, 0, 1, 0.0]])
    plain = priced(scenario, "decode", None)
    more = (stack.gap_s - OVERLAP) * float(plain.times.sum()) + 32 * stack.sequence_s - plain.host_s
    assert vllm.times(point)[0] - bare.times(point)[0] == pytest.approx(more, rel=1e-6)


def test_room_is_what_weights_and_activations_leave() -> None:
    """80 GB less 8 %, 16.06 GB of weights and a few GB of activations, at 131,072 bytes a token."""
    found = room(load_scenario("h100_llama_70b_decode", PLANS["one chip"]), 8192, 1000)
    assert found.token_bytes == 2 * 32 * 8 * 128 * 2
    assert (0.92 * 80e9 - 16.06e9 - 4e9) / found.token_bytes < found.tokens < (0.92 * 80e9 - 16.06e9) / found.token_bytes
    with pytest.raises(InputError, match="weights"):
        room(load_scenario("h100_llama_70b_decode", ["plan=[]", "cluster.pools.gpu.count=1"]), 8192, 1000)


def test_nodes_are_whole_and_grow() -> None:
    for axis in (Axis(8192, 128, 16384), Axis(6, 4, 1 << 20), Axis(4, 1, 64)):
        nodes = axis.nodes
        assert (np.diff(nodes) >= 1).all()
        assert (nodes == np.round(nodes)).all()
        assert nodes[-1] >= axis.last
