"""The best placement of real scenarios: what `run` says of the same plan, and where the answer turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from hwmodel.graph import Op
from hwmodel.optimize.assignment import assignment
from hwmodel.optimize.costs import BestPlacement, best_placement
from hwmodel.optimize.pricing import prices
from hwmodel.partition import Strategy
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, load_scenario
from hwmodel.spec.errors import InputError

FILL = {"expert": {"pool": "gpu", "degree": 72}}
"""How 72 chips share 256 experts where the plan does not say."""


def with_plan(scenario: Scenario, *plan: dict[str, dict[str, object]]) -> Scenario:
    """The scenario with its own expert strategy and the given ones, without those that place ops."""
    own = [strategy for strategy in scenario.plan if strategy.kind == "expert"]
    more = [Strategy.kinds[kind].model_validate(fields) for item in plan for kind, fields in item.items()]
    scopes = {getattr(strategy, "pool", "") for strategy in more if strategy.kind == "expert"}
    return replace(scenario, plan=(*more, *(s for s in own if getattr(s, "pool", "") not in scopes)))


def host_s(scenario: Scenario) -> float:
    return max(float(pool.chip.execution.step_s or 0.0) for pool in scenario.cluster.pools)


def objective(scenario: Scenario, *devices: Callable[[str, Op | None], str]) -> float:
    """Seconds of a given placement, less those of a second one; `devices` take an op's name and the op (None: a tensor)."""
    found = prices(scenario)
    problem = assignment(found)
    graph = found.graph

    def seconds(device: Callable[[str, Op | None], str]) -> float:
        chosen = [device(name, graph.op(name) if name in graph.nx else None) for name in problem.ops]
        return problem.objective([problem.devices.index(name) for name in chosen])

    return seconds(devices[0]) - sum(seconds(device) for device in devices[1:])


def experts_on(pool: str) -> Callable[[str, Op | None], str]:
    return lambda _, op: pool if op and op.role == "experts" else "gpu"


@pytest.mark.parametrize(("name", "far"), [("rubin_lpx_deepseek_v3", "lpx"), ("rubin_lpddr_deepseek_v3", "lpddr")])
@pytest.mark.parametrize("batch", [72, 1152])
def test_the_objective_of_a_plan_is_what_run_says_of_it(name: str, far: str, batch: int) -> None:
    scenario = load_scenario(name, [f"workload.batch={batch}"])

    def ffn(tensor: str, op: Op | None) -> str:
        return far if tensor == "layer3.norm2.out" or (op and op.part == "ffn") else "gpu"

    def attention(_: str, op: Op | None) -> str:
        return far if op and op.role == "attention" else "gpu"

    cases: list[tuple[list[dict[str, dict[str, object]]], Callable[[str, Op | None], str]]] = [
        ([FILL], lambda _, __: "gpu"),
        ([{"single": {"pool": far}}], lambda _, __: far),
        ([{"disaggregate": {"to": far, "move": "experts"}}], experts_on(far)),
        ([{"disaggregate": {"to": far, "move": "ffn"}}], ffn),
        ([{"disaggregate": {"to": far, "move": "attention"}}, FILL], attention),
    ]
    for plan, device in cases:
        step = run(with_plan(scenario, *plan)).step
        assert objective(scenario, device) + host_s(scenario) == pytest.approx(step.makespan_s, rel=1e-9), plan


SHARDED: list[tuple[str, dict[str, dict[str, object]]]] = [
    ("8", {"tensor": {"degree": 8, "pool": "gpu"}, "expert": {"degree": 8, "pool": "gpu"}}),  # summed by all_reduce
    ("16", {"tensor": {"degree": 8, "pool": "gpu"}, "expert": {"degree": 16, "pool": "gpu"}}),  # dispatched and gathered
    ("16", {"context": {"degree": 2, "pool": "gpu"}, "expert": {"degree": 8, "pool": "gpu"}}),
]


@pytest.mark.parametrize(("count", "sharding"), SHARDED)
@pytest.mark.parametrize("copies", ["per_expert", "hidden"])
@pytest.mark.parametrize("more", [[], ["workload.speculative={draft: 1, acceptance: 0.8}"], ["model=qwen3-235b-a22b"]])
def test_so_it_is_with_collectives_and_drafts(
    count: str, sharding: dict[str, dict[str, object]], copies: str, more: list[str]
) -> None:
    settings = ["workload.batch=64", f"cluster.pools.gpu.count={count}", *more]
    scenario = load_scenario("rubin_lpddr_deepseek_v3", settings)
    moved = {"disaggregate": {"to": "lpddr", "move": "experts", "copies": copies}}
    rest = {kind: fields for kind, fields in sharding.items() if kind != "expert"}
    priced = with_plan(scenario, moved, sharding)
    for plan, device in (([sharding], "gpu"), ([moved, rest], "lpddr")):
        step = run(with_plan(scenario, *plan)).step
        found = objective(priced, experts_on(device))
        assert found + host_s(scenario) == pytest.approx(step.makespan_s, rel=1e-9), plan


def test_streamed_experts_take_what_run_says_less_what_runs_beside_the_load() -> None:
    scenario = load_scenario("rubin_lpddr_deepseek_v3", ["workload.batch=72"])
    result = run(with_plan(scenario, {"offload": {"to": "lpddr"}}, FILL))
    beside = sum(row.time_s * row.count for row in result.ops if "shared_" in row.op)
    added = objective(scenario, experts_on("gpu<lpddr")) + host_s(scenario)
    assert 0 < added - result.step.makespan_s <= beside


def other_devices(found: BestPlacement) -> dict[str, str]:
    return {name: device for name, device in found.classes.items() if device != "gpu"}


@pytest.mark.parametrize("name", ["rubin_lpx_deepseek_v3", "rubin_lpx_kimi_k2_5"])
def test_long_context_and_few_tokens_per_expert_put_attention_on_rubin_and_experts_on_lpus(name: str) -> None:
    found = best_placement(load_scenario(name, ["workload.batch=72"]))
    assert other_devices(found) == {"mla+moe experts": "lpx"}
    assert found.classes["mla+moe attention"] == "gpu"
    assert found.device("layer3.experts_up" if name.endswith("v3") else "layer1.experts_up") == "lpx"
    assert found.placement.method == "HiGHS"  # without capacity the LPUs would take the attention as well
    assert found.placement.gap < 1e-6


def test_many_tokens_per_expert_bring_the_experts_back() -> None:
    """36 tokens per expert: 1152 tokens x 8 copies over 1,536 x 12.5 GB/s take longer than Rubin's expert layer."""
    assert other_devices(best_placement(load_scenario("rubin_lpx_deepseek_v3"))) == {}


def at_latency(scenario: Scenario, seconds: float) -> Scenario:
    wire = scenario.cluster.wires[0]
    wires = (wire.model_copy(update={"latency_s": wire.latency_s.at(seconds)}),)  # type: ignore[attr-defined]
    return replace(scenario, cluster=replace(scenario.cluster, wires=wires))


def expert_layer(result: Result, *names: str) -> float:
    """Seconds of the named ops of one MoE layer."""
    times = {row.op: row.time_s for row in result.ops}
    return sum(times[f"layer3.{name}"] for name in names)


def test_a_slow_link_flips_to_all_rubin_where_one_way_takes_half_of_what_the_lpus_save() -> None:
    """One micro-batch, nothing overlapped: 2 T_c = t_FFN on the GPU - t_FFN on the LPU (theory, topic 7)."""
    scenario = load_scenario("rubin_lpx_deepseek_v3", ["workload.batch=72"])
    low, high = 4e-6, 40e-6
    for latency, there in ((low, {"mla+moe experts": "lpx"}), (high, {})):
        assert other_devices(best_placement(at_latency(scenario, latency))) == there
    while high - low > 1e-10:
        middle = (low + high) / 2
        away = other_devices(best_placement(at_latency(scenario, middle)))
        assert away in ({"mla+moe experts": "lpx"}, {})
        low, high = (middle, high) if away else (low, middle)
    gpu = run(with_plan(scenario, FILL))
    lpu = run(with_plan(at_latency(scenario, low), {"disaggregate": {"to": "lpx"}}))
    products = ("experts_up", "experts_act", "experts_down")
    saved = expert_layer(gpu, "dispatch", *products, "collect") - expert_layer(lpu, "share", *products, "sum")
    one_way = expert_layer(lpu, "topk>lpx")
    assert one_way == expert_layer(lpu, "experts_down>gpu")
    assert one_way == pytest.approx(saved / 2, rel=2e-5)


def short_of_memory(tokens: int) -> Scenario:
    """A prompt on two Rubins, whose memory the experts do not fit, beside 128 LPDDR devices."""
    settings = ["cluster.pools.gpu.count=2", "workload.phase=prefill", "workload.batch=1", "workload.context=0"]
    return load_scenario("rubin_lpddr_deepseek_v3", [*settings, f"workload.new_tokens={tokens}"])


@pytest.mark.parametrize("tokens", [64, 8192, 131072])
def test_experts_are_computed_near_lpddr_below_the_crossing_and_streamed_above(tokens: int) -> None:
    scenario = short_of_memory(tokens)
    found = best_placement(scenario)
    near = run(with_plan(scenario, {"disaggregate": {"to": "lpddr"}})).step.makespan_s
    streamed = run(with_plan(scenario, {"offload": {"to": "lpddr"}, "expert": {"degree": 2}})).step.makespan_s
    assert found.classes["mla+moe experts"] == ("lpddr" if near < streamed else "gpu<lpddr")
    assert found.classes["mla+moe attention"] == "gpu"
    assert found.placement.objective_s + host_s(scenario) <= min(near, streamed) * 1.01  # what runs beside is counted
    assert (near < streamed) == (tokens < 100_000)


def test_the_crossing_is_where_the_weights_take_as_long_as_the_tokens() -> None:
    """E P b / B + m E 2P / F_gpu = m E (2P / F_near + 2 h b_a / B), with m tokens per expert: theory, topic 3, with the
    activations that cross and the fast side's own products. B: what the two Rubins' NICs carry."""
    scenario = short_of_memory(1)
    moe = 3 * 7168 * 2048
    gpu, lpddr = (pool.chip for pool in scenario.cluster.pools)
    wire = scenario.cluster.wires[0]
    way = 2 * float(gpu.link("nic").bandwidth_bytes_per_s) * float(gpu.link("nic").efficiency or wire.efficiency)
    fast = 2 * float(gpu.peaks.fp8_flops_per_s or 0) * float(gpu.efficiency.compute)
    slow = 128 * float(lpddr.peaks.fp8_flops_per_s or 0) * float(lpddr.efficiency.compute)
    per_expert = (moe / way) / (2 * moe / slow - 2 * moe / fast + 2 * 7168 * 2 / way)
    low, high = 1.0, 1e6
    while high - low > 400:
        middle = round((low + high) / 2)
        near = objective(short_of_memory(middle), experts_on("lpddr"), experts_on("gpu<lpddr")) < 0
        low, high = (middle, high) if near else (low, middle)
    assert low * 8 / 256 == pytest.approx(per_expert, rel=0.1)


@pytest.mark.parametrize("tokens", [512, 4096, 32768])
def test_a_host_computes_experts_below_the_crossing_and_streams_them_above(tokens: int) -> None:
    """Mixtral beside one RTX 4090: which way is best is what `run` says of the two plans."""
    settings = ["workload.phase=prefill", f"workload.new_tokens={tokens}", "workload.context=0"]
    name = "rtx4090_mixtral_offload"
    steps = {mode: run(load_scenario(name, [*settings, f"plan.0.offload.mode={mode}"])).step for mode in ("compute", "stream")}
    scenario = load_scenario(name, settings)
    found = best_placement(scenario)
    best = min(step.makespan_s for step in steps.values())
    assert found.placement.objective_s + host_s(scenario) <= best * (1 + 1e-9)
    streams = steps["stream"].makespan_s < steps["compute"].makespan_s
    assert found.classes["attention+moe experts"] == ("gpu<host" if streams else "host")
    assert streams == (tokens > 10_000)
    for mode, device in (("compute", "host"), ("stream", "gpu<host")):
        added = objective(scenario, experts_on(device)) + host_s(scenario)
        assert added == pytest.approx(steps[mode].makespan_s, rel=1e-9)


def test_capacity_can_only_lengthen_the_step() -> None:
    scenario = load_scenario("rubin_lpx_deepseek_v3", ["workload.batch=72"])
    free, bound = best_placement(scenario, capacity=False), best_placement(scenario)
    assert free.placement.objective_s < bound.placement.objective_s
    assert "lpx" in free.classes["mla+moe attention"] or "lpx" in free.classes["mla+ffn ffn"]
    settings = ["cluster.pools.gpu.count=2", "workload.batch=2"]
    for more, note in (([], "2 chips are no multiple"), (["plan.0.expert.degree=2"], "")):
        nowhere = best_placement(load_scenario("rubin_deepseek_v3", [*settings, *more]))
        assert not nowhere.placement.feasible
        assert nowhere.classes == {}
        assert note in " ".join(nowhere.notes)


@pytest.mark.parametrize("name", ["rubin_lpx_deepseek_v3", "rubin_lpx_kimi_k2_5"])
@pytest.mark.parametrize("capacity", [True, False])
def test_layers_placed_each_by_itself_are_at_least_as_quick(name: str, capacity: bool) -> None:
    scenario = load_scenario(name, ["workload.batch=72"])
    alike = best_placement(scenario, capacity=capacity)
    began = time.perf_counter()
    free = best_placement(scenario, capacity=capacity, alike=False)
    assert time.perf_counter() - began < 20  # 0.5 s on an idle core
    assert free.placement.objective_s <= alike.placement.objective_s * (1 + 1e-9)
    assert free.placement.gap < 1e-6
    assert free.problem.objective(free.placement.device) == pytest.approx(free.placement.objective_s, rel=1e-9)
    assert not capacity or free.problem.fits(free.placement.device)


@pytest.mark.parametrize("model", ["gemma-4-e2b", "nemotron-3-super-120b-a12b", "qwen3.5-35b-a3b", "llama-4-scout", "opt-30b"])
@pytest.mark.parametrize("phase", ["decode", "prefill", "mixed"])
def test_every_kind_of_block_is_priced_as_run_prices_it(model: str, phase: str) -> None:
    settings = [f"model={model}", "cluster.pools.gpu.count=8", "cluster.pools.lpddr.count=8", "workload.batch=16"]
    settings += [f"workload.phase={phase}", "workload.context=" + ("0" if phase == "prefill" else "4096")]
    scenario = load_scenario("rubin_lpddr_deepseek_v3", [*settings, "workload.new_tokens=1024", "plan=[]"])
    moe = any(op.experts for op in prices(scenario).graph.ops())
    step = run(with_plan(scenario, {"expert": {"pool": "gpu", "degree": 8}} if moe else {})).step
    assert objective(scenario, lambda _, __: "gpu") + host_s(scenario) == pytest.approx(step.makespan_s, rel=1e-9)


def test_layers_stay_alike_where_the_output_matrix_belongs_to_another_op() -> None:
    scenario = load_scenario("rubin_lpddr_deepseek_v3", ["model=gemma-3-4b", "plan=[]"])
    found = best_placement(scenario, capacity=False)
    assert found.device("head.logits") == found.device("embedding.gather")
    with pytest.raises(InputError, match="placed alike"):
        best_placement(scenario, alike=False)


def test_a_plan_with_a_pipeline_is_refused() -> None:
    scenario = load_scenario("rubin_deepseek_v3")
    with pytest.raises(InputError, match="placement: the plan's 'pipeline' is none of"):
        best_placement(with_plan(scenario, {"pipeline": {"stages": 2}}))
