"""Step tables against exact pricing, and what an instance has room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from serving_cases import fleet, proportional, requests, steady

from hwmodel.kernels import serving_columns as c
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.serve.crowding import followed
from hwmodel.serve.engine import simulate
from hwmodel.serve.grid import Axis
from hwmodel.serve.kv import room
from hwmodel.serve.metrics import tpot_s, ttft_s
from hwmodel.serve.pricing import priced
from hwmodel.serve.steps import by_tokens, check, deviations, random_steps, step_tables
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


OVERLAPPING = {
    "attention and experts apart": ("rubin_lpx_deepseek_v3", []),
    "three micro-batches": ("rubin_lpx_kimi_k2_5", ["plan.0.disaggregate.micro_batches=3"]),
    "two-batch overlap": ("rubin_deepseek_v3", ["plan=[{expert: {degree: 72}}, {micro_batch: {count: 2}}]"]),
    "pipeline": ("h100_llama_70b_decode", ["plan=[{pipeline: {stages: 4, micro_batches: 4}}]"]),
}


@pytest.mark.parametrize("plan", OVERLAPPING)
def test_steps_of_overlapping_lanes_are_near_the_schedule(plan: str) -> None:
    """Decodes, prompts and both, against every op scheduled: mean within 0.2 %, the worst of 300 random steps within 5 %."""
    name, settings = OVERLAPPING[plan]
    scenario = load_scenario(name, settings)
    steps = step_tables(scenario, None, TOKENS, 1152)
    points = random_steps(scenario, TOKENS, 1152, seed=11)
    for phase in ("decode", "prefill", "mixed"):
        wrong = deviations(steps, scenario, None, points, phase)
        assert wrong.max() < 0.05, f"{phase}: {points[wrong.argmax()]}"
        assert wrong.mean() < 0.002
    assert steps.micro_batches > 1
    assert steps.accuracy is not None
    assert steps.accuracy.worst < 0.05


def test_steps_of_forked_lanes_come_from_schedules() -> None:
    """Hot experts on one pool, cold ones on another, side by side: sums and busiest lanes are 8 % off on average, 38 at worst.

    With schedules of a grid of micro-batches the mean is below 1 %; where a schedule jumps, from one token or microsecond to
    the next, tables cannot follow: of random steps few are more than 5 % off, and the error that is reported is measured.
    """
    scenario = load_scenario("rubin_lpx_lpddr_deepseek_v3")
    steps = step_tables(scenario, None, TOKENS, 1152)
    assert steps.crowding.size
    points = random_steps(scenario, TOKENS, 1152, seed=11)
    bare = replace(steps, crowding=np.zeros((0, 0, 0)))
    for phase in ("decode", "prefill", "mixed"):
        wrong = deviations(steps, scenario, None, points, phase)
        assert wrong.mean() < 0.01
        assert deviations(bare, scenario, None, points, phase).mean() > 0.05
        assert (wrong > 0.05).mean() < 0.03
    assert steps.accuracy == check(steps, scenario, None, TOKENS, 1152)
    prompts = np.array([[0, 0, 1, tokens, 0] for tokens in (16, 128, 1024, 4096)], float)
    assert deviations(steps, scenario, None, prompts, "prefill").max() < 0.02, "no micro-batches, no jumps: the longest way"


def test_values_are_asked_for_where_they_jump_or_bend() -> None:
    """A line of little slope from its coarse nodes alone; a jump to the node."""
    asked: list[int] = []

    def jump(node: int) -> float:
        asked.append(node)
        return 1.2 if node < 21 else 1.0

    assert followed(jump, 64).tolist() == [1.2 if node < 21 else 1.0 for node in range(65)]
    assert len(asked) == 9 + 3
    line = followed(lambda node: 1 + node / 1e4, 64)
    assert line == pytest.approx(1 + np.arange(65) / 1e4)


def test_a_ping_pong_step_is_its_busiest_lane_or_the_way_through_all() -> None:
    """MegaScale-Infer, section 4: two micro-batches of attention a and of transfers and experts e take max(2 a, 2 e, a + e).

    10 tokens a micro-batch, a = 1 ms a token, e = 0.1, 1 and 3 ms a token.
    """
    for far, wanted in ((0.1e-3, 20e-3), (1e-3, 20e-3), (3e-3, 60e-3), (1.5e-3, 30e-3)):
        plain = by_tokens(lambda tokens: tokens * 1e-3)
        tokens = plain.grid.tokens.nodes
        lanes = np.array([np.concatenate([tokens * 1e-3, tokens * 0, np.zeros(3)]),
                          np.concatenate([tokens * 0, tokens * far, np.zeros(3)])])  # fmt: skip
        steps = replace(plain, shared=tokens * far, lanes=lanes, micro_batches=2)
        assert steps.times(np.array([[20, 100, 0, 1, 0.0]]))[0] == pytest.approx(wanted)
        alone = steps.times(np.array([[1, 100, 0, 1, 0.0]]))[0]
        assert alone == pytest.approx(1e-3 + far), "one sequence fills one micro-batch: the way through all"


def test_a_step_takes_as_long_as_its_fullest_rank() -> None:
    """Attention data parallel ranks, 1 ms a token of a rank: the first and third request share rank 0.

    Prompts of 100 and 50 tokens beside one of 300: 300 ms, no sum, no mean; then two decodes against one: 2 ms.
    """
    steps = replace(proportional(1e-3), ranks=2)
    found = simulate(requests([0.0] * 3, [100, 300, 50], 4), fleet(steps))
    assert found.req[:, c.RANK].tolist() == [0, 1, 0]
    assert ttft_s(found) == pytest.approx([0.3] * 3)
    assert tpot_s(found) == pytest.approx([2e-3] * 3)
    alone = simulate(requests([0.0] * 3, [100, 300, 50], 4), fleet(replace(steps, ranks=3)))
    assert tpot_s(alone) == pytest.approx([1e-3] * 3)


def test_a_new_request_goes_to_the_rank_with_the_fewest() -> None:
    """Four short and long ones in turn on two ranks; when the short ones have ended, the next two refill their rank."""
    found = simulate(
        requests([0.0, 0.0, 0.0, 0.0, 0.5, 0.5], 10, [2, 900, 2, 900, 5, 5]), fleet(replace(steady(1e-3), ranks=2))
    )
    assert found.req[:, c.RANK].tolist() == [0, 1, 0, 1, 0, 0]


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
