"""Deployments placed and packed once, and priced at many points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hwmodel.calibration import Calibration
from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Chip, Cluster, Pool, load_chip
from hwmodel.kernels import columns as c
from hwmodel.likeness import calibration_for
from hwmodel.lower.decoder import Formats
from hwmodel.memory import memory
from hwmodel.model.architecture import Model, Quantization, Rule
from hwmodel.model.dtypes import FORMATS, fmt
from hwmodel.model.load import load_model
from hwmodel.placing import place
from hwmodel.routing import Routing
from hwmodel.scenario import Scenario
from hwmodel.served.rows import Deployment, Served
from hwmodel.stages import executions, stage_counts
from hwmodel.timing import OpTable, device_array, pack, price
from hwmodel.workload import Workload

Array = NDArray[np.float64]


@lru_cache(maxsize=64)
def model_in(name: str, linear: str, experts: str) -> Model:
    """A graph with its matrices in other formats; routers, tables, norms and the head keep theirs."""
    model = load_model(name)
    if not linear and not experts:
        return model
    if linear == experts == "bf16":
        return replace(model, quantization=Quantization(FORMATS["bf16"]), kv_dtype=None)
    wide = [Rule(r"conv1d|in_proj_[ab]$|indexer|weights_proj|\.wk$|wq_b$", None)]
    inside = Rule(r"\.experts\.", fmt(experts) if experts else None)
    others = fmt(linear) if linear else FORMATS["bf16"]
    return replace(model, quantization=Quantization(others, (*wide, inside), FORMATS["bf16"]), kv_dtype=None)


@dataclass(frozen=True)
class Engine:
    """A deployment placed and packed, for one phase."""

    deployment: Deployment
    cluster: Cluster
    graph: OpGraph
    table: OpTable
    device: Array
    counts: Array
    """How often each op runs per step."""
    labels: tuple[str, ...]
    """Category of each op."""
    quantising: Array
    """Seconds per execution of an op that its table counts for quantising activations; see `quantising`."""

    def symbols(self, points: Sequence[Workload]) -> Array:
        """The points as the table wants them, (points, symbols)."""
        rows = [self.graph.symbols(point.symbols()) for point in points]
        return np.array([[float(row[name]) for name in self.table.symbols] for row in rows])

    def parts(self, points: Sequence[Workload]) -> dict[str, Array]:
        """Seconds of a step by category of op at every point.

        Beside them how many ops, all-reduces and exchanges run (``launches``, ``reductions``, ``exchanges``), and what of the
        products' seconds quantises activations (``quantised``).
        """
        priced = price(self.table, self.symbols(points), self.device)[:, :, c.TIME] * self.counts
        names = np.array(self.labels)
        found = {name: priced[:, names == name].sum(axis=1) for name in CATEGORIES}
        found["launches"] = np.full(len(points), self.counts.sum())
        found["quantised"] = np.full(len(points), (self.counts * self.quantising).sum())
        found["exchanges"] = np.full(len(points), self.counts[names == "exchange"].sum())
        found["reductions"] = np.full(len(points), self.counts[[op.family == "all_reduce" for op in self.table.ops]].sum())
        return found


CATEGORIES = ("gemm", "experts", "attention", "other", "link", "exchange", "head")


def category(kind: str, role: str, family: str) -> str:
    """Which of CATEGORIES an op belongs to."""
    if kind == "collective":
        return "exchange" if family in ("expert_dispatch", "expert_combine") else "link"
    if role == "head":
        return "head"
    if kind in ("gemm", "experts"):
        return kind
    return "attention" if kind.startswith("attention") else "other"


SKEW = Routing(kind="power_law", s=1.01, tokens=64)
"""Expert popularity of served text: as skewed as the milder law that expert tables are measured with, at a decode batch.
Uniform popularity prices the experts of the measured services a tenth too high."""


@lru_cache(maxsize=1024)
def engine(what: Deployment, phase: str, calibrated: bool = True) -> Engine:
    """Place and pack a deployment, with what was measured of its ops or with the chip's stated efficiencies.

    Raises
    ------
    InputError
        When it cannot be priced.
    """
    scenario = scenario_of(what, phase, calibrated)
    graph = place(scenario)
    if what.expert_label:
        graph.each(lambda op: op.kind == "experts", lambda op: replace(op, format=what.expert_label))
    table = pack(graph, scenario.cluster, SKEW)
    counts = stage_counts(graph)[0]
    times = np.array([executions(graph, op, counts) for op in table.ops])
    labels = tuple(category(op.kind, op.role, op.family) for op in table.ops)
    known = scenario.cluster.pools[0].calibration
    fused = np.array([quantising(op, known) for op in table.ops])
    return Engine(what, scenario.cluster, graph, table, device_array(table, scenario.cluster), times, labels, fused)


def quantising(op: Op, known: Calibration | None) -> float:
    """Seconds that the table of a product with static scales spends on its activations: its fixed cost over that of bf16.

    Engines quantise in the op before instead, as far as they fuse it. Blocks of fp8 are quantised by an op of their own.
    """
    if known is None or op.kind != "gemm" or op.format not in ("fp8", "nvfp4"):
        return 0.0
    narrow, wide = known.find("gemm", op.format), known.find("gemm", "bf16")
    return max(0.0, narrow.launch_s - wide.launch_s) if narrow and wide else 0.0


def _known(chip: Chip, stack: str) -> Calibration | None:
    """What was measured under a stack, all-reduces as TensorRT-LLM's kernels run them.

    vLLM and SGLang call those (through FlashInfer, joined with the norm) in place of their own; the tables hold their own.
    """
    found, other = calibration_for(chip, stack), calibration_for(chip, "trtllm")
    reduce = other.find("all_reduce", "bytes") if other else None
    if found is None or reduce is None:
        return found
    kept = [fit for fit in found.fits if fit.op != "all_reduce"]
    return found.model_copy(update={"fits": (*kept, reduce)})


def scenario_of(what: Deployment, phase: str, calibrated: bool = True) -> Scenario:
    """The deployment as a scenario of one step."""
    model = model_in(what.model, what.linear, what.experts)
    chip = load_chip(what.chip)
    known = _known(chip, what.stack) if calibrated else None
    pool = Pool("chips", chip, what.layout.chips, 0.08, what.stack, known)
    work = Workload(phase="decode", context=1) if phase == "decode" else Workload(phase="prefill", new_tokens=1)
    formats = Formats(FORMATS["bf16"], FORMATS[what.kv])
    return Scenario("served", model, formats, Cluster((pool,)), what.layout.plan(), work, "the scenario")


USED_MEMORY = 0.92
"""Share of the memory that an engine fills; stacks' defaults are about 0.9. An assumption of the project."""
RUNTIME_BYTES = 2e9
"""Activations, graphs and buffers of an engine on one chip. An assumption of the project."""


@lru_cache(maxsize=4096)
def room(what: Deployment, context: int) -> float:
    """Sequences of `context` tokens that the memory of one copy holds, all attention ranks together."""
    placed = engine(what, "decode")
    ranks = what.layout.dp
    work = Workload(phase="decode", batch=64 * ranks, context=context)
    row = memory(placed.graph, placed.cluster, work)[0]
    free = row.capacity_bytes * USED_MEMORY - row.weights_bytes - RUNTIME_BYTES
    return max(0.0, free / max(row.kv_bytes, 1.0) * 64) * ranks


def decode_point(batch: float, context: float) -> Workload:
    """One decode step."""
    return Workload(phase="decode", batch=max(1, round(batch)), context=max(1, round(context)))


def prefill_point(prompts: float, tokens: float) -> Workload:
    """One prefill step."""
    return Workload(phase="prefill", batch=max(1, round(prompts)), new_tokens=max(1, round(tokens)))


def by_deployment(rows: Iterable[Served]) -> dict[Deployment, list[int]]:
    """Positions of the rows that share an engine."""
    found: dict[Deployment, list[int]] = {}
    for position, row in enumerate(rows):
        found.setdefault(row.deployment, []).append(position)
    return found
