"""Rows of measured served models, as deployments that the engine can price.

A row names a model by its hub name, a chip, a software stack, number formats, a parallel layout, nominal prompt and output
lengths and the number of closed-loop clients. `read_served` turns each into a `Served` row or a counted reason why not.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hwmodel.hardware import load_chip
from hwmodel.model.load import load_model
from hwmodel.partition import Strategy
from hwmodel.partition.expert import Expert
from hwmodel.partition.tensor import Tensor
from hwmodel.spec.errors import InputError, Problem, shortened

GRAPHS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b", "Qwen/Qwen3-32B": "qwen3-32b", "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5", "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b", "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b", "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1", "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3", "moonshotai/Kimi-K2.5": "kimi-k2.5", "zhipuai/GLM-5": "glm-5",
}  # fmt: skip
"""Hub name to graph; the number formats come from the row."""
MEAN_LENGTH = 0.9
"""Mean of request lengths that are uniform in 0.8 to 1.0 of the nominal ones, as InferenceX draws them. The other harness is
taken to send nominal lengths: with them its times are predicted better."""


@dataclass(frozen=True)
class Layout:
    """How one copy of a model lies on chips."""

    tp: int
    """Chips that share an attention head group and the dense matrices."""
    dp: int = 1
    """Attention data parallel ranks."""
    etp: int = 1
    ep: int = 1

    @property
    def chips(self) -> int:
        """Chips of one copy."""
        return max(self.tp * self.dp, self.etp * self.ep)

    def plan(self) -> tuple[Strategy, ...]:
        """As strategies; the data parallel degree follows from the chip count."""
        found: list[Strategy] = [Tensor(degree=self.tp)] if self.tp > 1 else []
        if self.dp > 1 or self.ep > 1:  # else the experts are cut like everything else
            found.append(Expert(degree=self.ep, tensor=self.etp))
        return tuple(found)


@dataclass(frozen=True)
class Deployment:
    """What one engine is: everything but the load."""

    model: str
    """Name of a graph."""
    chip: str
    stack: str
    layout: Layout
    linear: str = ""
    """Format of the matrices outside routed experts; as in the graph when empty."""
    experts: str = ""
    kv: str = "bf16"
    expert_label: str = ""
    """Under which name the expert products are calibrated, when their activations are narrower than the rest."""


@dataclass(frozen=True)
class Served:
    """One measured row."""

    id: str
    group: tuple[str, str, str, str]
    """Model, device, stack, precision."""
    mode: str
    """agg: one engine does both; disagg: prefill and decode apart."""
    config: str
    """What rows of one sweep share: for cross-validation."""
    deployment: Deployment
    prefill: Deployment | None
    """Of a disaggregated row; None when one engine does both."""
    copies: tuple[int, int]
    """Decode and prefill engines."""
    prompt: float
    output: float
    clients: float
    ttft_s: float
    tpot_s: float
    lab: bool = False
    """Whether another harness than InferenceX measured."""
    version: tuple[int, ...] = ()
    """Numbers of the release, such as (0, 12, 0); none of a nightly build or where the row has none."""

    @property
    def key(self) -> Key:
        """What the row is reported under."""
        return (*self.group, self.mode)

    @property
    def behind(self) -> int:
        """Minor releases before `TUNED` of experts in fp8 blocks."""
        stack, experts = self.deployment.stack, self.deployment.experts
        old = stack in TUNED and experts == "fp8_block" and bool(self.version) and self.version < TUNED[stack]
        return TUNED[stack][1] - self.version[1] if old else 0

    @property
    def together(self) -> bool:
        """Whether the release ran prompts that arrive together before any decode."""
        stack = self.deployment.stack
        return stack in STAGGERED and bool(self.version) and self.version < STAGGERED[stack]


TUNED: dict[str, tuple[int, ...]] = {"vllm": (0, 18)}
"""Release from which a stack runs experts in fp8 blocks as quickly as the release of the kernel tables. Seen on MiniMax-M2.5
(0.16, 0.17 and later) and Qwen3-235B-A22B (0.12); which change made it is not known."""
STAGGERED: dict[str, tuple[int, ...]] = {"sglang": (0, 5, 2)}
"""Release from which rows no longer show clients in lockstep: TTFT is that of a prompt, not of all. Those before are of one
harness with requests of equal length, which finish, and so arrive, together."""
Key = tuple[str, str, str, str, str]
"""Model, device, stack, precision, mode."""


def key_of(raw: Mapping[str, str]) -> Key:
    """What a row is reported under."""
    return raw["model"], raw["system"], raw["backend"], raw["precision"], raw["mode"]


def read_served(path: Path) -> tuple[list[Served], dict[Key, Counter[str]]]:
    """Rows of an end-to-end table, and why others were left out, by what they would be reported under.

    Raises
    ------
    InputError
        When a row lacks a column or holds something else than a number, with its line.
    """
    rows: list[Served] = []
    skipped: dict[Key, Counter[str]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lines = [(reader.line_num, raw) for raw in reader]
        known = {_sweep(raw) for _, raw in lines if not _elsewhere(raw)}
        for number, raw in lines:
            try:
                rows.append(served(raw, lab=_elsewhere(raw) and _sweep(raw) not in known))
            except InputError as error:
                skipped.setdefault(key_of(raw), Counter())[error.problems[0].message] += 1
            except (KeyError, ValueError, TypeError) as error:
                what = f"missing column {error}" if isinstance(error, KeyError) else shortened(str(error), 80)
                raise InputError(Problem(what, file=f"{path}:{number}")) from None
    return rows, skipped


def _elsewhere(raw: Mapping[str, str]) -> bool:
    return (raw.get("origin") or "").startswith("nv_")


def _sweep(raw: Mapping[str, str]) -> tuple[str | None, ...]:
    """What rows of one model on one release share. The vendor's rows of a sweep that InferenceX ran repeat its numbers."""
    return tuple(raw.get(name) for name in ("model", "system", "backend", "precision", "ver"))


def _release(text: str) -> tuple[int, ...]:
    """0.5.1.post1 is (0, 5, 1); nightly builds and development versions have no numbers."""
    found = re.match(r"\d+(\.\d+)+", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def served(raw: Mapping[str, str], lab: bool = False) -> Served:
    """One row; `lab`: measured by another harness than InferenceX.

    Raises
    ------
    InputError
        With the reason why the row cannot be used.
    """
    if raw.get("parallel_suspect", "0") not in ("", "0"):
        raise InputError("the parallel layout is doubtful")
    if raw["model"] not in GRAPHS:
        raise InputError(f"no graph for model {raw['model']}")
    if not raw["conc"]:
        raise InputError("no client concurrency")
    apart = raw["mode"] == "disagg"
    moe = _has_experts(GRAPHS[raw["model"]])
    first = deployment(raw, "decode_" if apart else "", moe)
    second = deployment(raw, "prefill_", moe) if apart else None
    copies = (int(float(raw["decode_num_workers"])), int(float(raw["prefill_num_workers"]))) if apart else (1, 1)
    group = key_of(raw)[:4]
    name = "|".join((*group, str(first.layout), str(second.layout if second else ""), raw["ver"]))
    prompt, output = ((1.0 if lab else MEAN_LENGTH) * float(raw[key]) for key in ("isl", "osl"))
    ttft, tpot = (float(raw[key]) / 1e3 for key in ("ttft_ms", "tpot_ms"))
    return Served(
        raw["id"], group, raw["mode"], name, first, second, copies, prompt, output, float(raw["conc"]), ttft, tpot, lab,
        _release(raw["ver"]),
    )  # fmt: skip


def _number(text: str, default: int = 1) -> int:
    return int(float(text)) if text and float(text) > 0 else default


def deployment(raw: Mapping[str, str], prefix: str, moe: bool) -> Deployment:
    """The engine of a row; `prefix` of its columns (``decode_``, ``prefill_``).

    Raises
    ------
    InputError
        When the layout makes no sense.
    """
    tp, pp = _number(raw[f"{prefix}tp_size"]), _number(raw[f"{prefix}pp_size"])
    stated = raw["attn_dp"] if not prefix else raw[f"{prefix}attention_dp_size"]
    etp, ep = _number(raw[f"{prefix}moe_tp_size"]), _number(raw[f"{prefix}moe_ep_size"])
    if pp > 1:
        raise InputError("pipeline stages in a served row")
    if stated and float(stated) == 0:
        raise InputError("attention data parallel degree 0: the row does not say how many copies ran")
    dp = _number(stated, max(1, etp * ep // tp) if moe else 1)
    if not moe:
        layout = Layout(tp, 1)
        if dp > 1:
            raise InputError("attention data parallel degree of a dense model")
    else:
        if prefix and dp > 1 and ep == 1:  # behind a dispatch of tokens experts lie whole (DeepEP), whatever the column says
            etp, ep = 1, etp
        layout = Layout(tp, dp, etp, ep)
        if tp * dp != etp * ep:
            raise InputError(f"experts on {etp * ep} chips, attention on {tp * dp}")
    linear, experts, kv = formats(raw, moe)
    narrow = "gpt-oss" in raw["model"] and multiplies_fp4(raw["system"])  # trtllm-gen kernels: mxfp8 activations
    mark = "w4a8_mxfp4_mxfp8" if narrow else ""
    return Deployment(GRAPHS[raw["model"]], raw["system"], raw["backend"], layout, linear, experts, kv, mark)


def formats(raw: Mapping[str, str], moe: bool) -> tuple[str, str, str]:
    """(matrices outside experts, experts, KV cache) of a row; empty: as in the graph.

    fp8: in blocks for models with experts, as their hub checkpoints are; per tensor for the dense ones (ModelOpt checkpoints).
    fp4: nvfp4 for the matrices of dense models; NVIDIA's checkpoints of models with experts keep attention in bf16. gpt-oss is
    mxfp4 by birth. KV: fp8 where the stack's recipe for the checkpoint says so, else 16 bits.
    """
    model, precision, stack = raw["model"], raw["precision"], raw["backend"]
    blackwell = multiplies_fp4(raw["system"])
    if "gpt-oss" in model:
        return "", "", "fp8" if blackwell else "bf16"
    if precision in ("", "bf16"):
        return "bf16", "bf16", "bf16"
    if precision == "int4":  # Kimi K2.5 as published
        return "", "", "bf16"
    if precision == "fp8":
        weights = "fp8_block" if moe else "fp8"
        return weights, weights, "fp8" if stack == "trtllm" or (blackwell and stack == "vllm") else "bf16"
    return ("bf16" if moe else "nvfp4"), "nvfp4", "fp8"


def multiplies_fp4(chip: str) -> bool:
    """Whether a chip multiplies 4-bit floats: stacks run other kernels and caches there."""
    return "nvfp4" in load_chip(chip).peaks.by_dtype()


def _has_experts(graph: str) -> bool:
    return any("moe" in layer.kind for layer in load_model(graph).kinds)
