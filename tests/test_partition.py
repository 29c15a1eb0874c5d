"""Plans: work is conserved, degrees compose, reasons name what is wrong, memory per chip is that of the actual plan."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.kernels import columns as c
from hwmodel.lower.decoder import lower
from hwmodel.partition import Strategy, partition
from hwmodel.placing import place
from hwmodel.result import Result, executions, stage_counts
from hwmodel.run import run
from hwmodel.scenario import Scenario, scenario_from
from hwmodel.spec import catalog
from hwmodel.spec.errors import InternalError
from hwmodel.spec.yamlfile import Document

ROOT = Path(__file__).resolve().parents[1]
DECODE = {"phase": "decode", "batch": 64, "context": 4096}
PREFILL = {"phase": "prefill", "batch": 8, "new_tokens": 1024}
MIXED = {"phase": "mixed", "batch": 8, "context": 4096, "prefill_batch": 1, "new_tokens": 512}


def scenario(
    model: str,
    plan: list[dict[str, Any]],
    workload: Mapping[str, Any] = DECODE,
    *,
    chip: str = "h200_sxm",
    count: int = 8,
    more: Mapping[str, Any] | None = None,
    links: list[dict[str, Any]] | None = None,
) -> Scenario:
    pools = {"gpu": {"chip": chip, "count": count}, **(more or {})}
    cluster = {"pools": pools, "links": links or []}
    value = {"model": model, "cluster": cluster, "plan": plan, "workload": dict(workload)}
    return scenario_from(Document("test.yaml", value, {}, ()), "test")


def placed(question: Scenario) -> OpGraph:
    return place(question)


def weights(result: Result, pool: str = "gpu") -> float:
    return sum(row.weights_bytes for row in result.memory if row.pool == pool)


def params_per_chip(graph: OpGraph) -> float:
    """Stored elements on one chip, from the graph."""
    return sum(
        graph.segment(op.segment).count * stored.elements.value(graph.degrees) * stored.copies.value(graph.degrees)
        for op in graph.ops()
        for stored in op.stored
    )


# --- conservation ---------------------------------------------------------------------------------------------------
class _HalvesTheWork(Strategy):
    rank = 15

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        op = next(op for op in graph.ops() if op.kind == "gemm")
        graph.put(replace(op, dims={**op.dims, "n": op.dims["n"].scaled(0.5)}))


class _ForgetsWeights(Strategy):
    rank = 15

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        graph.put(next(op for op in graph.ops() if op.stored and op.kind == "gemm").without_stored())


class _HidesADegree(Strategy):
    rank = 15

    def degrees(self, cluster: Cluster) -> Mapping[str, int]:
        return {"gpu.tp": 2}

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        op = next(op for op in graph.ops() if op.kind == "gemm")
        graph.put(replace(op.shard(("ffn", "heads"), "gpu.tp"), shards=()))


class _CrossesWithoutATransfer(Strategy):
    rank = 15

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        graph.each(lambda op: op.part == "ffn", lambda op: replace(op, pool="far"))


class _MakesACycle(Strategy):
    rank = 15

    def apply(self, graph: OpGraph, cluster: Cluster) -> None:
        ops = graph.ops()
        graph.nx.add_edge(ops[-1].name, ops[0].name, elements=ops[0].out, bytes=2.0)


@pytest.mark.parametrize(
    ("cheat", "message"),
    [(_HalvesTheWork, "work of"), (_ForgetsWeights, "weights of"), (_HidesADegree, "is divided by"),
     (_CrossesWithoutATransfer, "without a transfer"), (_MakesACycle, "cycle")],
)  # fmt: skip
def test_a_cheating_strategy_is_caught(cheat: type[Strategy], message: str) -> None:
    question = scenario("llama-3.1-8b", [])
    graph = lower(question.model, "decode", question.formats)
    with pytest.raises(InternalError, match=message):
        partition(graph, [cheat()], question.cluster)


@pytest.mark.parametrize(
    "plan",
    [[{"tensor": {"degree": 1}}], [{"expert": {"degree": 1}}], [{"pipeline": {"stages": 1}}],
     [{"context": {"degree": 1}}], [{"data": {"degree": 1}}], [{"micro_batch": {"count": 1}}],
     [{"tensor": {"degree": 1}}, {"expert": {"degree": 1}}]],
)  # fmt: skip
def test_degree_one_is_the_identity(plan: list[dict[str, Any]]) -> None:
    plain, found = (run(scenario("mixtral-8x7b", steps, count=1)) for steps in ([], plan))
    assert found.step == plain.step
    assert found.memory == plain.memory
    assert [(op.op, op.flops, op.bytes, op.time_s) for op in found.ops] == [
        (op.op, op.flops, op.bytes, op.time_s) for op in plain.ops
    ]


@pytest.mark.parametrize("model", ["llama-3.1-70b", "mixtral-8x7b", "opt-66b", "qwen3-32b"])
def test_tensor_parallel_shares_add_up(model: str) -> None:
    degree = 8
    whole = run(scenario(model, [], PREFILL, count=1)).placed
    parts = run(scenario(model, [{"tensor": {"degree": degree}}], PREFILL)).placed
    one = {op.name: row for op, row in zip(whole.table.ops, whole.priced, strict=True)}
    for op, row in zip(parts.table.ops, parts.priced, strict=True):
        if op.kind in ("gemm", "experts", "attention_prefill") and op.role != "router":
            assert row[c.FLOPS] * degree == pytest.approx(one[op.name][c.FLOPS]), op.name
            assert row[c.WEIGHT_BYTES] * degree == pytest.approx(one[op.name][c.WEIGHT_BYTES]), op.name
            assert row[c.KV_BYTES] * degree == pytest.approx(one[op.name][c.KV_BYTES]), op.name


# --- compositions ---------------------------------------------------------------------------------------------------
DENSE_PLANS: list[list[dict[str, Any]]] = [
    [{"tensor": {"degree": 2}}],
    [{"tensor": {"degree": 2}}, {"pipeline": {"stages": 2}}],
    [{"context": {"degree": 2}}, {"tensor": {"degree": 2}}, {"data": {"degree": 2}}],
    [{"micro_batch": {"count": 2}}],
]
MOE_PLANS: list[list[dict[str, Any]]] = [
    [{"expert": {"degree": 8}}],
    [{"tensor": {"degree": 8}}, {"expert": {"degree": 8}}],
    [{"tensor": {"degree": 2}}, {"expert": {"degree": 4, "tensor": 2}}],
    [{"expert": {"degree": 4}}, {"pipeline": {"stages": 2}}, {"micro_batch": {"count": 2}}],
    [{"tensor": {"degree": 2}}, {"context": {"degree": 2}}, {"expert": {"degree": 8}}],
]


def test_a_norm_over_all_heads_adds_its_squares_up() -> None:
    """MiniMax norms queries and keys over all heads: two 32-bit sums a token and layer; Qwen3 norms per head and sends none."""
    plan = [{"tensor": {"degree": 8}}]
    for model, expected in (("minimax-m2.5", 62), ("qwen3-32b", 0)):
        question = scenario(model, plan)
        graph = placed(question)
        symbols = graph.symbols(question.workload.symbols())
        sums = [op for op in graph.ops() if op.note == "all_reduce" and op.name.endswith("rope_append.all_reduce")]
        assert sum(executions(graph, op, stage_counts(graph)[0]) for op in sums) == expected
        for op in sums:
            assert op.dims["elements"].value(symbols) == 2 * 64
            assert op.consts["bytes"] == 4
            assert [graph.op(name).name for name in graph.readers(op.name)] == [op.name.removesuffix(".all_reduce")]
    assert not [op for op in placed(scenario("minimax-m2.5", [], count=1, chip="b300_sxm")).ops() if op.kind == "collective"]


@pytest.mark.parametrize("model", catalog.names("graphs"))
def test_plans_compose_for_every_model(model: str) -> None:
    question = scenario(model, [])
    moe = any(layer.ffn is not None and layer.ffn.kind == "moe" for layer in question.model.kinds)
    plans = DENSE_PLANS + (MOE_PLANS if moe else [])
    whole = params_per_chip(placed(question))
    for number, plan in enumerate(plans):
        workload = (DECODE, PREFILL, MIXED)[(number + len(model)) % 3]
        asked = scenario(model, plan, workload)
        graph = placed(asked)
        for source, target in graph.nx.edges:
            first, second = graph.op(source), graph.op(target)
            assert first.pool == second.pool == "gpu"
        if number in (0, len(plans) - 1):
            result = run(asked)
            assert math.isfinite(result.step.time_s)
            assert 0 < result.step.time_low_s <= result.step.time_s <= result.step.time_high_s
            assert weights(result) > 0
        splits = any(kind in step for step in plan for kind in ("tensor", "expert"))
        assert params_per_chip(graph) < whole if splits else params_per_chip(graph) == whole


@pytest.mark.parametrize(
    "plan",
    [
        [{"disaggregate": {"move": "experts", "to": "far"}}],
        [{"disaggregate": {"move": "ffn", "to": "far", "micro_batches": 3, "copies": "hidden"}}],
        [{"disaggregate": {"move": "attention", "to": "far"}}],
        [{"offload": {"to": "far"}}],
        [{"offload": {"to": "far", "mode": "compute"}}],
        [{"offload": {"to": "far", "mode": "compute", "fraction": 0.25}}],
        [{"layers": {"split": {"gpu": 40, "far": 21}}}],
    ],
)
def test_every_crossing_edge_has_a_transfer(plan: list[dict[str, Any]]) -> None:
    wire = {"from": "gpu", "to": "far", "bandwidth": "50 GB/s", "latency": "3 us"}
    asked = scenario("deepseek-v3", plan, more={"far": {"chip": "h200_sxm", "count": 8}}, links=[wire])
    graph = placed(asked)
    crossings = 0
    for source, target in graph.nx.edges:
        first, second = graph.op(source), graph.op(target)
        if first.kind in ("transfer", "load"):
            crossings += 1
            ends = first.way.split(">")
            assert ends[0] != ends[1]
            if first.kind == "transfer":
                assert second.pool == ends[1]
                (before,) = graph.nx.predecessors(source)
                assert graph.op(before).pool == ends[0]
        elif second.kind not in ("transfer", "load"):
            assert first.pool == second.pool or first.segment != second.segment, (source, target)
    assert crossings
    result = run(asked)
    assert any(row.source != row.target and row.bytes > 0 for row in result.links)


# --- divisibility (C22) ---------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def qwen_fp8(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Qwen3-235B-A22B as its FP8 release states it: 128 x 128 blocks."""
    path = tmp_path_factory.mktemp("models") / "qwen3-235b-a22b-fp8.yaml"
    text = catalog.find("graphs", "qwen3-235b-a22b").read_text()
    path.write_text(text + "quantization_config:\n  quant_method: fp8\n  weight_block_size: [128, 128]\n")
    return str(path)


def test_fp8_blocks_of_qwen(qwen_fp8: str) -> None:
    assert run(scenario(qwen_fp8, [{"tensor": {"degree": 4}}], count=4)).reasons == ()
    bad = run(scenario(qwen_fp8, [{"tensor": {"degree": 8}}]))
    assert not bad.feasible
    assert any("192" in reason and "128" in reason and "expert" in reason for reason in bad.reasons), bad.reasons
    good = run(scenario(qwen_fp8, [{"tensor": {"degree": 8}}, {"expert": {"degree": 8}}]))
    assert good.feasible, good.reasons


def test_dense_width_of_deepseek_at_32() -> None:
    reasons = run(scenario("deepseek-v3", [{"tensor": {"degree": 32}}, {"expert": {"degree": 32}}], count=32)).reasons
    assert any("18432 / 32 = 576" in reason and "128" in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("plan", "count", "words"),
    [([{"tensor": {"degree": 3}}], 3, "query heads"), ([{"tensor": {"degree": 8}}], 12, "chips are no multiple"),
     ([{"pipeline": {"stages": 100}}], 100, "stages for 80 layers"),
     ([{"expert": {"degree": 4}}], 4, "no routed experts"),
     ([{"tensor": {"degree": 4}}, {"data": {"degree": 3}}], 8, "data degree 3")],
)  # fmt: skip
def test_reasons_say_what_is_wrong(plan: list[dict[str, Any]], count: int, words: str) -> None:
    result = run(scenario("llama-3.1-70b", plan, count=count))
    assert not result.feasible
    assert any(words in reason for reason in result.reasons), result.reasons
    assert result.step.time_s > 0


def test_deepseek_on_l40s_names_memory_and_blocks() -> None:
    """C36: 671 GB on 48 GB chips; TP8 needs 83.9 GB, TP32 cuts a quantisation block."""
    small = run(scenario("deepseek-v3", [{"tensor": {"degree": 8}}], chip="l40s", count=1024))
    assert any(reason.startswith("memory:") for reason in small.reasons), small.reasons
    assert weights(small) == pytest.approx(83.9e9, rel=0.02)
    wide = run(scenario("deepseek-v3", [{"tensor": {"degree": 32}}], chip="l40s", count=1024))
    assert weights(wide) == pytest.approx(21.0e9, rel=0.10)
    assert any("576" in reason for reason in wide.reasons), wide.reasons


# --- memory per chip ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("degree", [1, 4, 8])
def test_a_latent_cache_is_kept_whole_by_every_chip(degree: int) -> None:
    """C1: (512 + 64) x 61 x 2 B = 70,272 B per token on every chip."""
    tokens = 1000
    work = {"phase": "decode", "batch": 1, "context": tokens}
    result = run(scenario("kimi-k2.5", [{"tensor": {"degree": degree}}], work, count=degree))
    assert sum(row.kv_bytes for row in result.memory) == 70_272 * tokens


def kimi_rest(tensor: int) -> float:
    """Kimi-K2.5 without routed experts on one chip, by hand."""
    h, layers, vocab = 7168, 61, 163_840
    split = 1536 * 64 * 192 + 512 * 64 * 256 + 64 * 128 * h
    whole = h * 1536 + 1536 + h * 576 + 512 + 2 * h
    moe = 3 * h * 2048 / tensor + 384 * h + 384
    return layers * (split / tensor + whole) + 60 * moe + 3 * h * 18432 / tensor + 2 * vocab * h / tensor + h


@pytest.mark.parametrize(
    ("plan", "tensor", "over"),
    [([{"expert": {"degree": 8}}], 1, 8), ([{"tensor": {"degree": 8}}], 8, 8),
     ([{"tensor": {"degree": 2}}, {"expert": {"degree": 8}}], 2, 8),
     ([{"tensor": {"degree": 8}}, {"expert": {"degree": 2, "tensor": 4}}], 8, 8)],
)  # fmt: skip
def test_three_buckets_of_parameters(plan: list[dict[str, Any]], tensor: int, over: int) -> None:
    """C17: divided by TP, replicated, divided by EP x ETP."""
    experts = 60 * 384 * 3 * 7168 * 2048
    assert (experts, kimi_rest(1)) == (1_014_686_023_680, 11_722_208_768)
    found = params_per_chip(placed(scenario("kimi-k2.5", plan)))
    assert found == pytest.approx(experts / over + kimi_rest(tensor), rel=1e-9)
    if tensor == 1:
        assert found == pytest.approx(138.56e9, rel=1e-4)


def test_data_parallel_attention_needs_more_memory() -> None:
    """C20: the dense part is replicated."""
    tensor = run(scenario("deepseek-v4-flash", [{"tensor": {"degree": 8}}, {"expert": {"degree": 8}}]))
    data = run(scenario("deepseek-v4-flash", [{"expert": {"degree": 8}}]))
    assert weights(data) > 1.05 * weights(tensor)


@pytest.mark.parametrize("mode", ["stream", "compute"])
def test_experts_off_the_chip(mode: str) -> None:
    """C25: the time rises by bytes over the slow bandwidth, in proportion to the fraction outside."""
    wire = {"from": "gpu", "to": "host", "bandwidth": "25 GB/s", "latency": "2 us", "per": "gpu", "efficiency": 1}
    times = {}
    for fraction in (0, 0.5, 1):
        plan = [{"offload": {"to": "host", "mode": mode, "fraction": fraction}}] if fraction else []
        result = run(scenario("mixtral-8x7b", plan, {"phase": "decode", "batch": 16, "context": 2048}, count=1,
                              more={"host": {"chip": "xeon_host"}}, links=[wire]))  # fmt: skip
        times[fraction] = result.step.time_s
        assert weights(result) + weights(result, "host") == pytest.approx(46_702_792_704 * 2)
    outside = 32 * 8 * (1 - 0.75**16) * 3 * 4096 * 14336 * 2  # B of the distinct experts of all layers
    if mode == "stream":
        assert times[1] - times[0] == pytest.approx(outside / 25e9, rel=0.005)
        # the experts that stayed compute while the others come: 0.6 % less
        assert times[0.5] - times[0] == pytest.approx(outside / 2 / 25e9, rel=0.01)
    else:
        near = outside / (614e9 * 0.7) - outside / (4.8e12 * 0.9)
        assert times[1] - times[0] == pytest.approx(near, rel=0.03)
        assert times[0] < times[0.5] < times[1]


def test_a_wire_is_at_most_the_links_it_leaves_by() -> None:
    """16 chips of 400 GB/s each behind eight NICs of 50 GB/s: the NICs' 400 GB/s together."""
    plan = [{"disaggregate": {"move": "experts", "to": "far"}}, {"expert": {"pool": "far", "degree": 16}}]

    def wired(**more: str) -> float:
        wire = {"from": "gpu", "to": "far", "bandwidth": "400 GB/s", "latency": "1 us", "per": "far", "efficiency": 1, **more}
        asked = scenario("mixtral-8x7b", plan, {"phase": "decode", "batch": 4096, "context": 128},
                         more={"far": {"chip": "h200_sxm", "count": 16}}, links=[wire])  # fmt: skip
        found = run(asked).placed
        rows = zip(found.table.ops, found.priced, strict=True)
        sent = next(row for op, row in rows if op.kind == "transfer" and op.name.endswith(">far"))
        return float(sent[c.TIME] / sent[c.WIRE_BYTES])

    assert wired(over="nic") == pytest.approx(1 / (8 * 50e9), rel=0.02)
    assert wired() == pytest.approx(1 / (16 * 400e9), rel=0.1)


@pytest.mark.parametrize(
    ("count", "plan", "share"),
    [(1, [], 1), (2, [{"tensor": {"degree": 2}}], 2), (4, [{"expert": {"degree": 4}}], 4),
     (4, [{"expert": {"degree": 2, "tensor": 2}}], 4)],
)  # fmt: skip
def test_streamed_experts_reach_each_chip_in_shares(count: int, plan: list[dict[str, Any]], share: int) -> None:
    wire = {"from": "gpu", "to": "host", "bandwidth": "25 GB/s", "latency": "2 us", "per": "gpu"}
    work = {"phase": "decode", "batch": 64, "context": 2048}
    asked = scenario("mixtral-8x7b", [*plan, {"offload": {"to": "host"}}], work, count=count,
                     more={"host": {"chip": "xeon_host"}}, links=[wire])  # fmt: skip
    found = run(asked).placed
    loaded = sum(row[c.WIRE_BYTES] for op, row in zip(found.table.ops, found.priced, strict=True) if op.kind == "load")
    assert loaded == pytest.approx(8 * 3 * 4096 * 14336 * 2 / share, rel=1e-4)


def test_streaming_in_place_from_a_slower_tier() -> None:
    slow = run(scenario("qwen3-30b-a3b", [{"offload": {"tier": "lpddr"}}], chip="rubin", count=1))
    fast = run(scenario("qwen3-30b-a3b", [], chip="rubin", count=1))
    assert slow.step.time_s > fast.step.time_s
    held = {row.tier: row.weights_bytes for row in slow.memory}
    assert held["lpddr"] == 48 * 128 * 3 * 2048 * 768 * 2


# --- additions ------------------------------------------------------------------------------------------------------
CHIP = """
title: Chip of a test
kind: accelerator
source: test
status: estimated
peaks: {bf16: 100 TFLOP/s}
memory:
  - {tier: dram, capacity: 64 GB, bandwidth: 1 TB/s}
links:
  - {name: ether, bandwidth: 50 GB/s, latency: 2 us, domain: 8}
execution: {cores: 16, launch: 1 us}
"""
GRAPH = """
title: Model of a test
hidden_size: 256
vocab_size: 1000
layers:
  - count: 4
    attention: {kind: attention, heads: 4, kv_heads: 4, head_dim: 64}
    ffn: {kind: lookup, rows: 32}
"""
BLOCK = '''
"""A feed-forward part that looks rows up."""
from typing import ClassVar, Literal
from hwmodel.graph import size
from hwmodel.model.block import Block, Size, Weight, module


class Lookup(Block):
    """Rows of a table, gathered by token."""

    kind: ClassVar[str] = "lookup"
    part: ClassVar[Literal["attention", "ffn"]] = "ffn"
    rows: Size
    """Rows of the table."""

    def weights(self, hidden):
        return (Weight("mlp.table", self.rows, hidden, role="ffn"),)

    def lower(self, into):
        dims = {"rows": into.tokens, "width": size(into.hidden)}
        into.op("lookup", "gather_rows", dims, consts={"seconds_per_row": 1e-6}, stored=into.keep(["mlp.table"]))
'''
KERNEL = '''
"""Gathering rows at a fixed pace."""
from numba import njit

from hwmodel.kernels import columns as c
from hwmodel.kernels.memory import finish

KIND = "gather_rows"
DIMS = ("rows", "width")
CONSTS = ("seconds_per_row",)


@njit
def price(dims, consts, where, bins, device, out):
    """Seconds (s): rows x pace."""
    for q in range(dims.shape[0]):
        dq = q if device.shape[0] > 1 else 0
        for j in range(dims.shape[1]):
            finish(dims[q, j, 0] * consts[j, 0], 0.0, device[dq, where[j, c.ROW]], out[q, j])
'''
STRATEGY = '''
"""Everything on the pool named last."""
from dataclasses import replace
from typing import ClassVar

from hwmodel.partition.strategy import Strategy


class Last(Strategy):
    """Move every op to the last pool."""

    kind: ClassVar[str] = "last"
    rank: ClassVar[int] = 6

    def apply(self, graph, cluster):
        graph.each(lambda op: True, lambda op: replace(op, pool=cluster.pools[-1].name))
'''
QUESTION = """
title: Question of a test
model: small
cluster:
  pools:
    first: {chip: h100_sxm}
    second: {chip: own, count: 2}
plan:
  - last: {}
  - tensor: {pool: second, degree: 2}
workload: {phase: decode, batch: 8, context: 128}
"""
SCRIPT = """
import json
from hwmodel.run import run
from hwmodel.scenario import load_scenario
r = run(load_scenario("mine"))
print(json.dumps({"pools": sorted({op.pool for op in r.ops}), "time": r.step.time_s, "reasons": r.reasons,
                  "lookup": [(op.kind, op.count, op.time_s) for op in r.ops if op.op.endswith("lookup")],
                  "chips": {p.pool: p.chip for p in r.pools}}))
"""


def test_one_file_for_each_addition(tmp_path: Path) -> None:
    files = {
        "chips/own.yaml": CHIP, "graphs/small.yaml": GRAPH, "scenarios/mine.yaml": QUESTION,
        "plugins/lower/lookup.py": BLOCK, "plugins/kernels/gather_rows.py": KERNEL,
        "plugins/partition/last.py": STRATEGY,
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {**os.environ, "HWMODEL_PLUGINS": str(tmp_path / "plugins"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pools"] == ["second"]
    assert found["chips"]["second"] == "own"
    assert found["reasons"] == []
    ((kind, count, seconds),) = found["lookup"]
    assert (kind, count) == ("gather_rows", 4)
    assert seconds == pytest.approx(8e-6 + 1e-6)  # 8 tokens at 1 us, and the launch
    assert found["time"] > 4 * seconds
