"""Single published figures of whole systems, as questions that a user would ask: one row of published.csv, one scenario.

Rules, the same for every row, settled with these rows in view (docs/accuracy.md says what others would give):

* Chip: by its name in the row's `system`; a GPU beside a host holds the dense part, the host the routed experts. A host
  multiplies with its matrix units (AMX) where the row says so, else with its vector units.
* Batch: all chips together; `100/GPU` in the note makes it one per chip. Context: that of the row, and half of the answer.
* Layout: what the note says (EP128; 3A2F is attention on 3 x 8 chips and experts on 2 x 8; micro-batches). Else a batch per
  chip, and attention with one KV head (MLA, MFA) over at least a sequence a chip, is data parallel with the experts spread over
  all chips; anything else is tensor parallel over up to 8 chips of a node, and pipelined over nodes.
* Routing: as skewed as in all served rows, unless the row says that it was balanced.
* Software: the stack that the row names, where the chip or one much like it was measured under it; else the chip's stated
  efficiencies. What its kind has in common is not taken: shares of the peak do not carry over to chips of another balance (the
  H20 has 37 bf16 FLOP per byte, the measured chips 153 to 419).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.hardware import Chip, load_chip
from hwmodel.likeness import calibration_for
from hwmodel.model.architecture import Model
from hwmodel.model.load import load_model
from hwmodel.served.engines import SKEW
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, Problem
from hwmodel.spec.schema import Plain, Spec, build

Row = Mapping[str, str]
COLUMNS = (
    "system", "n_chips", "model", "precision", "phase", "isl_or_ctx", "osl", "batch_or_conc", "metric", "value", "source",
    "note",
)  # fmt: skip
CHIPS = {
    "H800": "h800_sxm", "H20": "h20_sxm", "H100": "h100_sxm", "H200": "h200_sxm", "GB200": "gb200", "B200": "b200_sxm",
    "GB300": "gb300", "B300": "b300_sxm", "A800": "a800_sxm", "A100": "a100_sxm", "L40S": "l40s", "MI300X": "mi300x",
    "4090D": "rtx4090d", "GroqChip v1": "groqchip1", "WSE-3": "wse3", "SN40L": "sn40l", "Ascend 910B": "ascend_910b",
}  # fmt: skip
"""Word of a system to chip."""
HOST = re.compile(r"\b(?:(?P<sockets>\d+)x Xeon|(?P<cores>\d+)x32 cores Xeon) 6454S")
MODELS = {
    "DeepSeek-V3/R1": "deepseek-v3", "MLA-DSv3": "deepseek-v3", "MFA-Step3": "step-3", "GQA-Qwen3-235B": "qwen3-235b-a22b",
    "Nemotron3-Nano-30B": "nemotron-3-nano-30b-a3b", "Step-3 321B-A38B": "step-3",
}  # fmt: skip
"""Names that are not the graph's own, up to case and size."""
FORMATS: dict[str, dict[str, str]] = {
    "FP8": {"weights": "fp8"}, "BF16": {"weights": "bf16"}, "16-bit": {"weights": "bf16"}, "MXFP4": {},
    "FP16": {"weights": "fp16", "activations": "fp16", "kv": "fp16"},
    "FP16/mixed": {"weights": "fp16", "activations": "fp16", "kv": "fp16"},
    "FP8 gemm,BF16 attn": {"weights": "fp8", "kv": "bf16"}, "FP8/INT8 gemm,BF16 attn": {"weights": "fp8", "kv": "bf16"},
    "INT8": {"weights": "int8"}, "Q4_K_M": {"weights": "int4"}, "Q8_0": {"weights": "int8_wo"},
    "INT8 CPU/INT4 GPU": {"weights": "int8"},
}  # fmt: skip
"""Precision of a row to `dtypes`; what is not named is as in the checkpoint. INT8 where FP8 is named but the chip has none.
Q4_K has 4.5 bits a weight, as int4 in groups of 32 has; of two formats that of the experts counts, most of the bytes."""
METRICS = (
    "tok_s_per_gpu", "tok_s_per_npu", "tok_s_per_chip", "tokens_per_s_per_node", "tok_s_per_user", "tok_s", "tpot_ms",
    "ms_per_token", "attention_layer_us",
)  # fmt: skip
STACKS = {"sglang": "sglang", "vllm": "vllm", "tensorrt-llm": "trtllm", "trtllm": "trtllm"}
NODE = 8
"""Chips that tensor parallelism spans at most."""


class Note(Spec):
    """What is known of some rows beyond their columns."""

    rows: dict[str, str]
    """Column to a part of its text; all must match."""
    chip: str = ""
    weights: str = ""
    kv: str = ""
    attention: str = ""
    micro_batches: int = 0
    memory_reserve: Plain | None = None
    why: str = ""
    """Why the figure is missed."""
    source: str
    """Where that is known from."""

    def of(self, row: Row) -> bool:
        """Whether it speaks of a row."""
        return all(part in (row.get(column) or "") for column, part in self.rows.items())


class Notes(Spec):
    """The file of notes."""

    notes: tuple[Note, ...] = ()


def read_notes() -> tuple[Note, ...]:
    """The shipped notes.

    Raises
    ------
    InputError
        With every problem of the file.
    """
    return build(Notes, yamlfile.load(catalog.shipped("measured") / "published_notes.yaml")).notes


@dataclass(frozen=True)
class Question:
    """A row that can be asked."""

    scenario: dict[str, Any]
    """As a file of scenarios/ would state it."""
    chip: str
    stack: str
    """Whose calibration is taken; empty for the chip's stated efficiencies."""
    layout: str
    """In words: TP8 PP72; EP128 x2 (micro-batches); AFD x3 EP16; host (holds the experts); whole."""
    context: int
    """Tokens that a sequence of a decode step attends to, in the mean; prompt tokens of a prefill step."""


@dataclass
class _Found:
    """What a row says, and what it lacks."""

    row: Row
    notes: Sequence[Note]
    reasons: list[str] = field(default_factory=list)

    def known(self, name: str) -> str:
        """What the notes say under a key."""
        return next((value for note in self.notes if (value := str(getattr(note, name) or ""))), "")

    def number(self, column: str, name: str, pattern: str = "") -> float:
        """A positive number of a column; 0 and a reason when there is none."""
        text = self.row[column]
        try:
            if 0 < float(text) < math.inf:
                return float(text)
        except ValueError:
            pass
        self.reasons.append(f"no {name}" + (f": '{text}'" if text.strip() else ""))
        return 0.0


def read_published(path: Path) -> list[Row]:
    """The rows of a file.

    Raises
    ------
    InputError
        When a column is missing or a row has no figure, with its line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise InputError(Problem(f"missing column {', '.join(missing)}", file=str(path)))
        rows: list[Row] = []
        for raw in reader:
            row = {key: value or "" for key, value in raw.items() if key}
            try:
                right = 0 < float(row["value"]) < math.inf
            except ValueError:
                right = False
            if not right:
                raise InputError(Problem(f"value: expected a positive number, got '{row['value']}'",
                                         file=f"{path}:{reader.line_num}"))  # fmt: skip
            rows.append(row)
    return rows


def question(row: Row, notes: Sequence[Note], *, calibrated: bool = True) -> Question | str:
    """The row as a question, or why it is left out."""
    found = _Found(row, [note for note in notes if note.of(row)])
    if row["metric"] not in METRICS:
        return f"{row['metric']} is no throughput of a model"
    count = int(found.number("n_chips", "chip count"))
    context, batch = found.number("isl_or_ctx", "context"), int(found.number("batch_or_conc", "batch"))
    name = chip_of(row, found)
    graph = model_of(row, found)
    dtypes = FORMATS.get(row["precision"])
    if dtypes is None:
        found.reasons.append(f"no number format for '{row['precision']}'")
    if row["phase"] not in ("decode", "prefill"):
        found.reasons.append(f"phase {row['phase'] or 'unknown'} is more than one step")
    if found.reasons or dtypes is None:
        return "; ".join(dict.fromkeys(found.reasons))
    chip, model = load_chip(name), load_model(graph)
    stack = _stack(row, chip) if calibrated else ""
    formats = {"weights": "", **dtypes} | {key: said for key in ("weights", "kv", "attention") if (said := found.known(key))}
    if formats["weights"] == "fp8" and "fp8" not in chip.peaks.by_dtype():
        formats["weights"] = "int8"
    if formats["weights"] == "fp8" and model.quantization.default.bits == 8:  # the checkpoint's own blocks
        formats["weights"] = ""
    if per_chip := re.search(r"\b(\d+)(?: req)?/GPU", row["note"]):
        batch = int(per_chip[1]) * count
    length = round(context + (float(row["osl"] or 0) / 2 if row["phase"] == "decode" else 0))
    workload: dict[str, Any] = {"phase": row["phase"], "batch": batch}
    if "balanced" not in row["note"]:
        workload["routing"] = {"kind": SKEW.kind, "s": SKEW.s}
    workload["context" if row["phase"] == "decode" else "new_tokens"] = length
    layout = _layout(found, model, chip, count, batch, spread=bool(per_chip))
    reserve = next((float(note.memory_reserve) for note in found.notes if note.memory_reserve is not None), None)
    for pool in layout["cluster"]["pools"].values():
        pool["stack"] = stack
        if reserve is not None:
            pool["memory_reserve"] = reserve
    dtypes = {key: value for key, value in formats.items() if value}
    return Question({"model": graph, "dtypes": dtypes, "workload": workload, **layout}, name, stack, _words(layout), length)


def chip_of(row: Row, found: _Found) -> str:
    """The chip that a row names, as chips/ calls it."""
    system = row["system"]
    words = [chip for word, chip in CHIPS.items() if re.search(rf"(?:^|[^A-Za-z\d]|\dx){word}(?![A-Za-z\d])", system)]
    host = HOST.search(system)
    if host and (host["sockets"] or host["cores"]) != "2":
        found.reasons.append("no host of one socket in chips/")
    name = found.known("chip") or (words[0] if words else "xeon_host" if host else "")
    beside = not host and re.search(r"EPYC|Xeon", system)
    if len(set(words)) > 1 or not name or beside or name not in catalog.names("chips"):
        found.reasons.append(f"no chip of chips/ is '{system}'")
        return ""
    return name


def model_of(row: Row, found: _Found) -> str:
    """The graph of a row's model."""
    text = re.sub(r" \d+B$", "", row["model"])
    graph = MODELS.get(text, text.lower())
    if graph not in catalog.names("graphs"):
        found.reasons.append(f"no model of graphs/ is '{row['model']}'")
        return ""
    changed = re.match(r"(\d+) experts", row["note"])
    topk = next((getattr(kind.ffn, "topk", 0) for kind in load_model(graph).kinds if "moe" in kind.kind), 0)
    if changed and int(changed[1]) != topk:
        found.reasons.append(f"ran {changed[1]} of the model's {topk} experts a token")
    return graph


def _stack(row: Row, chip: Chip) -> str:
    said = f"{row['system']} {row['source']} {row['note']}".lower()
    stack = next((name for word, name in STACKS.items() if word in said), "")
    known = calibration_for(chip, stack)
    return stack if known is not None and known.chip in catalog.names("chips") else ""


def _layout(found: _Found, model: Model, chip: Chip, count: int, batch: int, *, spread: bool) -> dict[str, Any]:
    """Cluster and plan of a row."""
    row = found.row
    said = re.search(r"\b(\d+)(?: x \d+)?[ -]micro-?batch", row["note"])
    micro = int(said[1] if said else found.known("micro_batches") or 1)
    if parts := re.search(r"\b(\d+)A(\d+)F\b", row["system"]):
        return _apart(chip, int(parts[1]) * NODE, int(parts[2]) * NODE, micro)
    if HOST.search(row["system"]):
        return _with_host(chip, row)
    plan: list[dict[str, Any]] = []
    moe = any("moe" in kind.kind for kind in model.kinds)
    heads = max(getattr(kind.attention, "kv_heads", 1) for kind in model.kinds)
    latent = heads == 1 < count <= batch
    stated = re.search(r"\bEP(\d+)\b", row["note"])
    if stated or (spread and moe) or latent:
        degree = int(stated[1]) if stated else count
        plan = [{"expert": {"degree": degree, **({"dispatch": "fp8"} if "FP8" in row["precision"] else {})}}] if moe else []
    else:
        tensor = max(n for n in range(1, min(NODE, count) + 1) if count % n == 0)
        plan = [{"tensor": {"degree": tensor}}] if tensor > 1 else []
        plan += [{"pipeline": {"stages": count // tensor}}] if count > tensor else []
    plan += [{"micro_batch": {"count": micro}}] if micro > 1 else []
    return {"cluster": {"pools": {"chips": {"chip": chip.name, "count": count}}}, "plan": plan}


def _apart(chip: Chip, attention: int, experts: int, micro: int) -> dict[str, Any]:
    """Attention and routed experts on chips of their own, one network link a chip."""
    nic = chip.link("nic")
    wire = {
        "from": "attention", "to": "experts", "bandwidth": f"{nic.bandwidth_bytes_per_s / 1e9:g} GB/s",
        "latency": f"{nic.latency_s * 1e6:g} us", "per": "experts", "over": "nic",
    }  # fmt: skip
    pools = {"attention": {"chip": chip.name, "count": attention}, "experts": {"chip": chip.name, "count": experts}}
    plan = [{"disaggregate": {"to": "experts", "micro_batches": micro}}, {"expert": {"pool": "experts", "degree": experts}}]
    return {"cluster": {"pools": pools, "links": [wire]}, "plan": plan}


def _with_host(chip: Chip, row: Row) -> dict[str, Any]:
    """Experts in a host's memory, computed there; or everything on the host."""
    host: dict[str, Any] = {"chip": "xeon_host", "count": 1}
    if "AMX" not in row["system"]:
        vector = float(load_chip("xeon_host").execution.vector_flops_per_s or 0)
        host["override"] = {"peaks": {"bf16": f"{vector / 1e12:g} TFLOP/s", "int8": f"{vector / 1e12:g} TOPS"}}
    if chip.name == "xeon_host":
        return {"cluster": {"pools": {"host": host}}, "plan": []}
    pcie = chip.link("pcie")
    wire = {"from": "host", "to": "gpu", "bandwidth": f"{pcie.bandwidth_bytes_per_s / 1e9:g} GB/s", "per": "gpu",
            "latency": f"{pcie.latency_s * 1e6:g} us"}  # fmt: skip
    pools = {"gpu": {"chip": chip.name, "count": 1}, "host": host}
    return {"cluster": {"pools": pools, "links": [wire]}, "plan": [{"offload": {"to": "host", "mode": "compute"}}]}


def _words(layout: Mapping[str, Any]) -> str:
    """A plan in a few words."""
    short = {"tensor": "TP{degree}", "pipeline": "PP{stages}", "expert": "EP{degree}", "micro_batch": "x{count}",
             "disaggregate": "AFD x{micro_batches}", "offload": "{to}"}  # fmt: skip
    return " ".join(short[kind].format(**fields) for item in layout["plan"] for kind, fields in item.items()) or "whole"
