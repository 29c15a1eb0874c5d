"""Throughput tables of TensorRT-LLM as a steady state: all requests queued at once, the largest batch that fits.

Rules, the same for every row and settled before its numbers were compared; nothing is fitted to them:

* Requests are as many as the documents say, all of the nominal lengths. A request starts when memory for its last token is free
  (the default scheduler evicts nobody), at most `MOST` at a time on a rank; so they run in waves of B, the last one smaller:

      seconds = sum over waves [ S x step(b) + b x (prefill + prompt) ]        b = B, ..., the rest; rate = N S / seconds

* The step, the prefill of a prompt among others, and what the stack adds are those of the served rows (`hwmodel.served.step`),
  under the harness whose recipes schedule the next step while one runs, as trtllm-bench does.
* Formats: ModelOpt checkpoints, fp8 or nvfp4 in all matrices (under FP4 models with experts keep attention in bf16), KV in
  fp8 beside them; DeepSeek's fp8 in blocks; gpt-oss as published, KV in fp8 on chips that multiply 4-bit floats.
* Layout: TP as named; from version 1.0 on models with experts ran with attention data parallel and the experts spread (the
  documents' options), as DEP n says.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.hardware import load_chip
from hwmodel.likeness import calibration_for
from hwmodel.memory import memory
from hwmodel.model.load import load_model
from hwmodel.served.engines import engine, room
from hwmodel.served.rows import Deployment, Layout, Served, multiplies_fp4
from hwmodel.served.stack import Stack, load_stack
from hwmodel.served.step import FRACTIONS, Loads, decoding, loads, total
from hwmodel.spec.errors import InputError, Problem, shortened
from hwmodel.workload import Workload

Array = NDArray[np.float64]
TABLE = "trtllm_perf_overview"
STACK = "trtllm"
MOST = 2048
"""Sequences of a rank at most: the default of TensorRT-LLM."""
FAR = 0.4
"""Error from which a row is explained."""
CHIPS = {
    "H100": "h100_sxm", "H200": "h200_sxm", "GH200": "gh200", "L40S": "l40s", "A100-80G": "a100_sxm", "B200": "b200_sxm",
    "GB200": "gb200", "RTX-PRO-6000": "rtx_pro_6000_server",
}  # fmt: skip
GRAPHS = {
    "LLaMA-3.1-8B": "llama-3.1-8b", "Llama-3.1-8B": "llama-3.1-8b", "LLaMA-3.1-70B": "llama-3.1-70b",
    "Llama-3.3-70B": "llama-3.3-70b", "LLaMA-3.1-405B": "llama-3.1-405b", "Llama-3.1-405B": "llama-3.1-405b",
    "Mixtral-8x7B": "mixtral-8x7b", "Qwen3-30B-A3B": "qwen3-30b-a3b", "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "gpt-oss-20b": "gpt-oss-20b", "gpt-oss-120b": "gpt-oss-120b", "DeepSeek-R1-0528": "deepseek-r1",
}  # fmt: skip
REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (500, 2000): 3000, (1000, 1000): 3000, (1000, 2000): 1500,
    (2048, 128): 3000, (2048, 2048): 1500, (5000, 500): 1500, (20000, 2000): 1000, (1024, 1024): 3000, (8192, 1024): 1500,
    (1024, 8192): 1500, (32768, 1024): 1000, (1024, 32768): 1000,
}  # fmt: skip
"""Requests of a run by prompt and output: perf-overview.md of TensorRT-LLM 1.0 and 1.2, "Preparing a Dataset"."""


@dataclass(frozen=True)
class Point:
    """One row and its prediction; output tokens per second of all chips."""

    version: str
    model: str
    gpu: str
    precision: str
    layout: str
    prompt: int
    output: int
    measured: float
    predicted: float
    batch: int
    """Sequences that run together."""
    held: int
    """Sequences that memory holds."""
    prefill: float
    """Share of the time that prompts take."""
    calibrated: bool
    """Whether this very chip was measured under the stack."""
    source: str
    note: str = ""
    """Why it is missed, where it is missed by more than FAR."""

    @property
    def error(self) -> float:
        """|predicted / measured - 1|."""
        return abs(self.predicted / self.measured - 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the error in per cent."""
        return {**vars(self), "error": 100 * self.error}


@dataclass(frozen=True)
class Steady:
    """What was compared, and what could not be, with how many rows of each reason."""

    points: tuple[Point, ...] = ()
    left_out: tuple[tuple[str, int], ...] = ()

    def median(self, calibrated: bool = True) -> float | None:
        """Median error over the rows on chips that were measured, or on the others; None without rows."""
        found = [point.error for point in self.points if point.calibrated == calibrated]
        return float(np.median(found)) if found else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, errors in per cent."""
        medians = {name: self.median(own) for name, own in (("calibrated_chips", True), ("other_chips", False))}
        return {"steady": {
            "rows": [point.to_dict() for point in self.points], "left_out": dict(self.left_out),
            **{f"median_{name}": None if value is None else 100 * value for name, value in medians.items()},
        }}  # fmt: skip


NONE = Steady()
Asked = tuple[dict[str, str], Served]
"""A row of the table and its question."""


def steady(folder: Path, *, device: str = "", calibrated: bool = True) -> Steady:
    """Predict every row of the table of a folder; nothing where it has none.

    Raises
    ------
    InputError
        When a row lacks a column or holds something else than a number, with its line.
    """
    path = folder / f"{TABLE}.csv"
    if not path.is_file():
        return NONE
    rows: list[Asked] = []
    left: Counter[str] = Counter()
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for raw in reader:
            try:
                if device and CHIPS.get(raw["gpu"]) != device:
                    continue
                rows.append((raw, question(raw, calibrated)))
            except InputError as error:
                left[error.problems[0].message] += 1
            except (KeyError, ValueError, TypeError) as error:
                what = f"missing column {error}" if isinstance(error, KeyError) else shortened(str(error), 80)
                raise InputError(Problem(what, file=f"{path}:{reader.line_num}")) from None
    if not rows:
        return Steady((), tuple(left.items()))
    points = answers(rows, load_stack(STACK), calibrated)
    return Steady(tuple(explained(rows, points, calibrated)), tuple(left.items()))


def question(raw: dict[str, str], calibrated: bool = True) -> Served:
    """A row as a deployment and its load.

    Raises
    ------
    InputError
        With the reason why it cannot be asked.
    """
    model, gpu = raw["model"], raw["gpu"]
    lengths = (int(raw["isl"]), int(raw["osl"]))
    float(raw["value"])
    if model not in GRAPHS:
        raise InputError(f"no graph for model {model}")
    if gpu not in CHIPS:
        raise InputError(f"no chip for GPU {gpu}")
    if raw["pp"] and float(raw["pp"]) > 1:
        raise InputError("pipeline stages in a served row")
    if lengths not in REQUESTS:
        raise InputError(f"the documents do not say how many requests of {lengths[0]} and {lengths[1]} tokens ran")
    what = deployment(raw)
    for phase in ("decode", "prefill"):
        engine(what, phase, calibrated)
    held = int(room(what, sum(lengths)))
    if held < 1:
        raise InputError("memory holds no sequence beside the weights")
    batch = min(held, MOST * what.layout.dp, REQUESTS[lengths])
    group = (model, what.chip, STACK, raw["precision"])
    return Served("", group, "agg", "", what, None, (1, 1), float(lengths[0]), float(lengths[1]), float(batch), 1.0, 1.0)


def deployment(raw: dict[str, str]) -> Deployment:
    """The engine of a row."""
    graph, chip, precision = GRAPHS[raw["model"]], CHIPS[raw["gpu"]], raw["precision"]
    moe = any("moe" in layer.kind for layer in load_model(graph).kinds)
    spread = raw["parallel"].removeprefix("DEP") if raw["parallel"].startswith("DEP") else ""
    chips = int(spread or float(raw["tp"] or raw["parallel"].removeprefix("TP")))
    layout = Layout(1, chips, 1, chips) if chips > 1 and (spread or (moe and raw["version"] != "0.17")) else Layout(chips)
    if "gpt-oss" in graph:
        fp4 = multiplies_fp4(chip)
        return Deployment(graph, chip, STACK, layout, "", "", "fp8" if fp4 else "bf16", "w4a8_mxfp4_mxfp8" if fp4 else "")
    if precision == "FP16":
        return Deployment(graph, chip, STACK, layout, "bf16", "bf16", "bf16")
    if precision == "FP4":
        return Deployment(graph, chip, STACK, layout, "bf16" if moe else "nvfp4", "nvfp4", "fp8")
    weights = "fp8_block" if "deepseek" in graph else "fp8"
    return Deployment(graph, chip, STACK, layout, weights, weights, "fp8")


def waves(row: Served) -> list[int]:
    """Sequences of each wave of a run."""
    many, batch = REQUESTS[int(row.prompt), int(row.output)], int(row.clients)
    return [batch] * (many // batch) + ([many % batch] if many % batch else [])


def seconds(load: Loads, rows: Sequence[Served], stack: Stack) -> tuple[Array, Array]:
    """(seconds of the whole run, of its prompts) of every row."""
    decode, filling = decoding(load, stack), total(load.packed, stack.fused) + stack.prompt_s / load.ranks
    whole, prompts = np.zeros(len(rows)), np.zeros(len(rows))
    for i, row in enumerate(rows):
        batches = np.array(waves(row))
        steps = np.interp(batches / row.clients, FRACTIONS, decode[i]) + stack.sequence_s * batches / load.ranks[i]
        prompts[i] = batches.sum() * filling[i]
        whole[i] = row.output * steps.sum() + prompts[i]
    return whole, prompts


def answers(asked: Sequence[Asked], stack: Stack, calibrated: bool) -> list[Point]:
    """Rates of rows."""
    rows = [row for _, row in asked]
    found = []
    for (raw, row), whole, prompts in zip(asked, *seconds(loads(rows, calibrated), rows, stack), strict=True):
        what, lengths = row.deployment, (int(row.prompt), int(row.output))
        chips = what.layout.chips
        known = calibration_for(load_chip(what.chip), STACK) if calibrated else None
        own = known is not None and not known.prior and known.chip == what.chip
        found.append(Point(
            raw["version"], raw["model"], raw["gpu"], raw["precision"], raw["parallel"] or f"TP{chips}", *lengths,
            float(raw["value"]) * (chips if raw["metric"].endswith("per_gpu") else 1),
            REQUESTS[lengths] * row.output / whole, int(row.clients), int(room(what, sum(lengths))), prompts / whole, own,
            raw["source"],
        ))  # fmt: skip
    return found


def explained(asked: Sequence[Asked], points: list[Point], calibrated: bool) -> list[Point]:
    """Far misses with what is known of them: which of the assumptions, left out, would have come near, and by how much."""
    far = [i for i, point in enumerate(points) if point.error > FAR]
    if not far:
        return points
    stack = load_stack(STACK)
    rows = [asked[i][1] for i in far]
    load = loads(rows, calibrated)
    free = [replace(row, clients=float(min(roomiest(row), MOST * row.deployment.layout.dp, sum(waves(row))))) for row in rows]
    alone = replace(load, decode=_alone(load.decode), packed=_alone(load.packed))
    tried: dict[str, tuple[Loads, list[Served], dict[str, float]]] = {
        f"without the {stack.prompt_s * 1e3:.1f} ms per prompt, fitted to servers behind HTTP": (load, rows, {"prompt_s": 0.0}),
        "without all-reduces": (alone, rows, {}),
        f"with {FREE:.0%} of what the weights leave for KV": (loads(free, calibrated), free, {}),
    }
    notes: dict[int, list[tuple[float, str]]] = {i: [] for i in far}
    for text, (changed, asks, update) in tried.items():
        whole, _ = seconds(changed, asks, stack.model_copy(update=update))
        for i, row, time in zip(far, asks, whole, strict=True):
            off = sum(waves(row)) * row.output / time / points[i].measured - 1
            notes[i].append((off, f"{text} {off:+.0%}"))
    for i, told in notes.items():
        signed = points[i].predicted / points[i].measured - 1
        near = [text for off, text in sorted(told) if abs(off) < points[i].error / 2 or off * signed < 0]
        points[i] = replace(points[i], note="; ".join(near) or _beside(points, i))
    return points


def _alone(parts: Mapping[str, Array]) -> dict[str, Array]:
    """A step whose chips need not speak to one another."""
    return {name: 0 * part if name in ("link", "reductions") else part for name, part in parts.items()}


FREE = 0.95
"""Share of the memory that weights leave which the runs gave to KV in many cases (perf-overview.md)."""


def roomiest(asked: Served) -> int:
    """Sequences that fit when nothing but the weights and `FREE` is taken off."""
    placed, many = engine(asked.deployment, "decode"), 64 * asked.deployment.layout.dp
    work = Workload(phase="decode", batch=many, context=int(asked.prompt + asked.output))
    row = memory(placed.graph, placed.cluster, work)[0]
    return max(1, int(FREE * (row.capacity_bytes - row.weights_bytes) / max(row.kv_bytes, 1.0) * many))


def _beside(points: Sequence[Point], i: int) -> str:
    """What the table itself says of the same work elsewhere."""
    own = points[i]
    work = (own.model, own.prompt, own.output, own.precision)
    same = [p for p in points if (p.model, p.prompt, p.output, p.precision) == work and p is not own and p.error < FAR]
    if not same:
        return "none of prompts' host time, all-reduces and memory explains it alone"
    other = min(same, key=lambda p: (p.version != own.version, p.layout != own.layout, p.error))
    where = f"{other.gpu} {other.layout} under {other.version}"
    off = other.predicted / other.measured - 1
    return f"the table has {own.measured:,.0f} tokens/s here and {other.measured:,.0f} on {where}, predicted {off:+.0%}"
