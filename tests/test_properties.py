"""Laws that hold whatever the numbers: monotone, dimensionally sound, conserving, never below the physical floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.hardware import Cluster, with_number
from hwmodel.kernels import columns as c
from hwmodel.placing import place
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, scenario_from
from hwmodel.spec import catalog
from hwmodel.spec.yamlfile import Document
from hwmodel.timeline import Program, periods, program, seconds
from hwmodel.timing import OpTable, device_array, pack, points, price

LONG = {"phase": "decode", "batch": 64, "context": 8192}
WIRE = {"from": "gpu", "to": "far", "bandwidth": "100 GB/s", "latency": "3 us"}


def scenario(model: str, pools: dict[str, Any], plan: list[dict[str, Any]], workload: dict[str, Any]) -> Scenario:
    cluster = {"pools": pools, "links": [WIRE] if len(pools) > 1 else []}
    value = {"model": model, "cluster": cluster, "plan": plan, "workload": workload}
    return scenario_from(Document("test.yaml", value, {}, ()), "test")


@cache
def questions() -> dict[str, Scenario]:
    gpus = {"gpu": {"chip": "h200_sxm", "count": 8}}
    far = {"gpu": {"chip": "rubin", "count": 8}, "far": {"chip": "groq3_lpu", "count": 1536}}
    host = {"gpu": {"chip": "rtx4090"}, "far": {"chip": "xeon_host"}}
    split = {"expert": {"pool": "far", "degree": 256, "tensor": 6}}
    return {
        "dense decode": scenario("llama-3.1-70b", gpus, [{"tensor": {"degree": 8}}], LONG),
        "dense prefill": scenario(
            "llama-3.1-70b", gpus, [{"tensor": {"degree": 4}}], {"phase": "prefill", "batch": 2, "new_tokens": 2048}
        ),
        "wide experts": scenario("deepseek-v3", gpus, [{"expert": {"degree": 8}}], LONG),
        "afd": scenario("deepseek-v3", far, [{"disaggregate": {"move": "experts", "to": "far"}}, split], LONG),
        "afd, ping-pong": scenario(
            "deepseek-v3", far, [{"disaggregate": {"move": "experts", "to": "far", "micro_batches": 2}}, split], LONG
        ),
        "offload": scenario("mixtral-8x7b", host, [{"offload": {"to": "far"}}], {**LONG, "batch": 4}),
        "offload, near compute": scenario(
            "mixtral-8x7b", host, [{"offload": {"to": "far", "mode": "compute", "fraction": 0.5}}], {**LONG, "batch": 4}
        ),
        "pipeline": scenario("llama-3.1-8b", gpus, [{"pipeline": {"stages": 4}}, {"tensor": {"degree": 2}}], LONG),
    }


@dataclass(frozen=True)
class Ready:
    """A question packed once, to be priced on changed hardware and for changed workloads."""

    question: Scenario
    table: OpTable
    order: Program
    parts: int
    degrees: dict[str, int]

    def priced(self, cluster: Cluster | None = None, **workload: int) -> np.ndarray:
        work = self.question.workload.model_copy(update=workload)
        point = points(self.table, {**work.symbols(self.parts), **self.degrees})
        return price(self.table, point, device_array(self.table, cluster or self.question.cluster))[0]

    def time(self, cluster: Cluster | None = None, **workload: int) -> float:
        cluster = cluster or self.question.cluster
        host = max(float(pool.chip.execution.step_s or 0) for pool in cluster.pools)
        makespan, period = periods(self.order, seconds(self.order, self.priced(cluster, **workload)))
        return host + (makespan if self.question.workload.phase == "prefill" else period)


@cache
def ready(name: str) -> Ready:
    question = questions()[name]
    graph = place(question)
    table = pack(graph, question.cluster, question.workload.routing)
    parts = min(max(graph.micro_batches, graph.pipeline_batches), question.workload.batch)
    return Ready(question, table, program(graph, table, parts), parts, graph.degrees)


NAMES = tuple(questions())


@pytest.mark.parametrize("name", NAMES)
def test_the_packed_question_is_the_question(name: str) -> None:
    assert ready(name).time() == pytest.approx(run(questions()[name]).step.time_s, rel=1e-12)


# --- hardware -------------------------------------------------------------------------------------------------------
RATES = ("bytes_per_s", "flops_per_s", "per_s")


def changed(cluster: Cluster, change: Callable[[str, str, float], float]) -> Cluster:
    """The cluster with every number x of its chips and wires replaced by change(path, dimension, x)."""
    pools = []
    for pool in cluster.pools:
        chip = pool.chip
        for path, number in pool.chip.numbers():
            value = change(f"{pool.name}.{path}", pool.chip.dimension(path), float(number))
            if value != number:
                chip = with_number(chip, path, value)
        pools.append(replace(pool, chip=chip))
    wires = tuple(
        wire.model_copy(
            update={
                field: getattr(wire, field).at(change(f"wire.{field}", dimension, float(getattr(wire, field))))
                for field, dimension in (("bandwidth_bytes_per_s", "bytes_per_s"), ("latency_s", "s"))
            }
        )
        for wire in cluster.wires
    )
    return Cluster(tuple(pools), wires)


def knobs(cluster: Cluster) -> list[str]:
    """Paths of everything that makes a cluster faster when it grows, or when it shrinks (times)."""
    found: list[str] = []

    def note(path: str, dimension: str, value: float) -> float:
        if dimension in (*RATES, "s") or ".efficiency" in path:
            found.append(path)
        return value

    changed(cluster, note)
    return found


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data(), st.floats(1.01, 4.0))
def test_faster_hardware_never_slows_a_step(name: str, data: st.DataObject, factor: float) -> None:
    asked = ready(name)
    cluster = asked.question.cluster
    chosen = data.draw(st.sets(st.sampled_from(knobs(cluster)), min_size=1, max_size=4))

    def faster(path: str, dimension: str, value: float) -> float:
        if path not in chosen:
            return value
        if ".efficiency" in path:
            return min(1.0, value * factor)
        return value / factor if dimension == "s" else value * factor

    assert asked.time(changed(cluster, faster)) <= asked.time() * (1 + 1e-9)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from([0.25, 0.5, 2.0, 8.0, 3.7]))
def test_times_scale_with_rates_and_latencies(name: str, k: float) -> None:
    asked = ready(name)

    def scaled(_: str, dimension: str, value: float) -> float:
        return value * k if dimension in RATES else value / k if dimension == "s" else value

    cluster = changed(asked.question.cluster, scaled)
    before, after = asked.priced(), asked.priced(cluster)
    times = [c.TIME, c.COMPUTE, c.MEMORY, c.WIRE, c.OVERHEAD]
    np.testing.assert_allclose(after[:, times] * k, before[:, times], rtol=1e-12)
    work = [c.FLOPS, c.WEIGHT_BYTES, c.KV_BYTES, c.WIRE_BYTES]
    np.testing.assert_array_equal(after[:, work], before[:, work])
    assert asked.time(cluster) * k == pytest.approx(asked.time(), rel=1e-9)


# --- work -----------------------------------------------------------------------------------------------------------
@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 4096), st.integers(1, 4096))
def test_longer_contexts_never_shorten_a_step(name: str, first: int, second: int) -> None:
    key = "new_tokens" if name == "dense prefill" else "context"
    low, high = sorted((first * 16, second * 16))
    slack = 0.02 if key == "new_tokens" else 1e-9  # GEMM tiles
    assert ready(name).time(**{key: low}) <= ready(name).time(**{key: high}) * (1 + slack)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(st.sampled_from(NAMES), st.integers(2, 512), st.integers(2, 512))
def test_larger_batches_never_shorten_a_step(name: str, first: int, second: int) -> None:
    low, high = sorted((first, second))
    asked = ready(name)
    work = [asked.priced(batch=batch) for batch in (low, high)]
    for column in (c.FLOPS, c.WEIGHT_BYTES, c.KV_BYTES, c.WIRE_BYTES):
        assert (work[0][:, column] <= work[1][:, column] * (1 + 1e-12)).all()
    assert asked.time(batch=low) <= asked.time(batch=high) * 1.02  # up to tile steps


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 256))
def test_the_physical_floor_is_a_floor(name: str, batch: int) -> None:
    question = questions()[name]
    asked = replace(question, workload=question.workload.model_copy(update={"batch": batch}))
    floor, real = run(asked, ideal=True), run(asked)
    assert floor.step.time_s <= real.step.time_s * (1 + 1e-9)
    if real.step.micro_batches == 1:  # the floor takes the batch whole
        for low, high in zip(floor.ops, real.ops, strict=True):
            assert low.time_s <= high.time_s * (1 + 1e-9) or low.kind == "collective"


@pytest.mark.parametrize("model", catalog.names("graphs"))
def test_no_model_beats_its_floor(model: str) -> None:
    phases = ({"phase": "decode", "batch": 4, "context": 1000}, {"phase": "prefill", "batch": 1, "new_tokens": 700})
    for workload in phases:
        asked = scenario(model, {"gpu": {"chip": "b200_sxm"}}, [], workload)
        assert 0 < run(asked, ideal=True).step.time_s <= run(asked).step.time_s


# --- experts --------------------------------------------------------------------------------------------------------
def tiny(ffn: dict[str, Any], tmp: Any) -> str:
    layer = {"count": 2, "attention": {"kind": "attention", "heads": 8, "kv_heads": 8, "head_dim": 64}, "ffn": ffn}
    path = tmp / f"tiny-{ffn['kind']}-{ffn.get('experts', 0)}-{ffn.get('topk', 0)}.yaml"
    path.write_text(repr({"hidden_size": 512, "vocab_size": 1000, "layers": [layer]}))
    return str(path)


def ops_of(result: Result) -> dict[str, np.ndarray]:
    placed = result.placed
    return {op.name.partition(".")[2]: row for op, row in zip(placed.table.ops, placed.priced, strict=True)}


@pytest.mark.parametrize("batch", [1, 17, 300])
def test_one_expert_is_a_dense_ffn(batch: int, tmp_path: Any) -> None:
    work = {"phase": "decode", "batch": batch, "context": 100}
    pools = {"gpu": {"chip": "h100_sxm"}}
    dense = ops_of(run(scenario(tiny({"kind": "ffn", "inter": 2048}, tmp_path), pools, [], work)))
    one = {"kind": "moe", "experts": 1, "topk": 1, "expert_inter": 2048}
    moe = ops_of(run(scenario(tiny(one, tmp_path), pools, [], work)))
    for mine, other in (("gate_up", "experts_up"), ("act", "experts_act"), ("down", "experts_down")):
        np.testing.assert_allclose(moe[other], dense[mine], rtol=1e-12, err_msg=other)


@pytest.mark.parametrize("batch", [1, 50])
def test_all_experts_chosen_reads_all(batch: int, tmp_path: Any) -> None:
    ffn = {"kind": "moe", "experts": 16, "topk": 16, "expert_inter": 256}
    work = {"phase": "decode", "batch": batch, "context": 100}
    up = ops_of(run(scenario(tiny(ffn, tmp_path), {"gpu": {"chip": "h100_sxm"}}, [], work)))["experts_up"]
    assert up[c.WEIGHT_BYTES] == 16 * 2 * 256 * 512 * 2
    assert up[c.FLOPS] == batch * 16 * 2 * 2 * 256 * 512


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.integers(1, 2000), st.sampled_from([(8, 1), (16, 1), (4, 4), (1, 8)]))
def test_tokens_are_conserved(batch: int, degrees: tuple[int, int]) -> None:
    groups, tensor = degrees
    plan = [{"expert": {"degree": groups, "tensor": tensor}}]
    pools = {"gpu": {"chip": "h200_sxm", "count": groups * tensor}}
    asked = scenario("deepseek-v3", pools, plan, {**LONG, "batch": batch})
    rows = ops_of(run(asked, ideal=True))
    pairs = rows["experts_up"][c.FLOPS] * groups * tensor / (2 * 2 * 2048 * 7168)
    assert pairs == pytest.approx(batch * 8)


# --- the floors of the field's first check --------------------------------------------------------------------------
def floor(model: str, degree: int, workload: dict[str, Any]) -> Result:
    pools = {"gpu": {"chip": "h100_sxm", "count": degree}}
    return run(scenario(model, pools, [{"tensor": {"degree": degree}}], workload), ideal=True)


@pytest.mark.parametrize(("batch", "expected"), [(1, 10.42), (16, 11.17), (64, 13.58), (256, 23.19)])
def test_llama_70b_decode_floor(batch: int, expected: float) -> None:
    result = floor("llama-3.1-70b", 4, {"phase": "decode", "batch": batch, "context": 2048})
    assert result.step.time_s * 1e3 == pytest.approx(expected, abs=0.006)
    # weights less the input embedding, and the cache, over 4 x 3.35 TB/s
    read = (70_553_706_496 - 128_256 * 8192) * 2 + batch * 2048 * 327_680
    assert result.step.time_s == pytest.approx(read / (4 * 3.35e12), rel=1e-4)  # norms are on every chip


def test_llama_70b_prefill_floor() -> None:
    result = floor("llama-3.1-70b", 4, {"phase": "prefill", "batch": 1, "new_tokens": 2048})
    flops = sum(op.flops * op.count for op in result.ops) * 4
    assert flops == 285_877_808_922_624
    layer = 2 * 2048 * (8192 * (8192 * 2 + 2 * 1024) + 3 * 8192 * 28672) + 2 * 64 * 256 * 2048 * 2049 // 2
    assert flops == 80 * layer + 2 * 8192 * 128_256
    assert result.step.time_s * 1e3 == pytest.approx(72.24, abs=0.005)


@pytest.mark.parametrize(
    ("batch", "expected", "distinct"), [(1, 3.85, 2.0), (16, 14.41, 7.920), (64, 16.47, 8.0), (256, 24.16, 8.0)]
)
def test_mixtral_decode_floor(batch: int, expected: float, distinct: float) -> None:
    result = floor("mixtral-8x7b", 2, {"phase": "decode", "batch": batch, "context": 2048})
    assert result.step.time_s * 1e3 == pytest.approx(expected, abs=0.006)
    up = ops_of(result)["experts_up"]
    assert up[c.WEIGHT_BYTES] / (2 * 4096 * 14336 / 2 * 2) == pytest.approx(distinct, abs=5e-4)
    assert up[c.FLOPS] * 2 == batch * 2 * 2 * 2 * 4096 * 14336  # top-2, not all
    if batch == 256:
        assert not result.feasible
        need = sum(row.weights_bytes + row.kv_bytes for row in result.memory)
        assert need == pytest.approx(81.06e9, rel=1e-4)
    else:
        assert result.feasible
