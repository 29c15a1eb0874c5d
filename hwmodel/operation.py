"""One operation on one chip, without a model around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwmodel.answered import Answered
from hwmodel.calibration import UNCALIBRATED, Calibration
from hwmodel.graph import OpGraph, Segment
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.result import bound_of
from hwmodel.routing import Routing
from hwmodel.shapes import ALIASES, KINDS, NO, WORDS, YES, Bare, Kind, operand, routing_of
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.timing import OpTable, device_array, pack, points, price
from hwmodel.uncertainty import spread

MEASURED = "; as measured: (launch + (compute^p + memory^p)^(1/p)) x correction, parameters and grid in chips/calibrations/"
"""What a calibration changes in any formula; see `hwmodel.calibration`."""


@dataclass(frozen=True)
class Operation(Answered):
    """The answer of ``hwmodel op``."""

    kind: str
    chip: str
    stack: str
    dtype: str
    shape: Mapping[str, Any]
    time_s: float
    low_s: float
    high_s: float
    bound: str
    terms: Mapping[str, float]
    """Parts of the time, s."""
    formula: str
    flops: float
    bytes: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind, "chip": self.chip, "stack": self.stack, "dtype": self.dtype, "shape": dict(self.shape),
            "time_s": self.time_s, "low_s": self.low_s, "high_s": self.high_s, "bound": self.bound, "terms": dict(self.terms),
            "formula": self.formula, "flops": self.flops, "bytes": self.bytes, "notes": list(self.notes),
        }  # fmt: skip


def operation(
    kind: str, chip: Chip, dtype: str, shape: Mapping[str, Any], *, calibration: Calibration | None = None, warm: bool = True,
    ideal: bool = False,
) -> Operation:  # fmt: skip
    """Price one operation.

    Parameters
    ----------
    kind, shape
        As CLI.md lists them: ``gemm m= n= k=``, ``attention_decode batch= kv_len= heads= kv_heads= head_dim=`` and so on.
    calibration
        What was measured of the chip under a software stack; the chip's stated efficiencies when None.
    warm
        Operands that fit the on-chip cache are in it, as in a benchmark that repeats the op.

    Raises
    ------
    InputError
        For an unknown kind, missing or unknown shape keys, or a dtype the chip cannot multiply.
    """
    name = ALIASES.get(kind, kind)
    if name not in KINDS:
        raise InputError(f"unknown op '{shortened(kind)}'{did_you_mean(kind, KINDS)}")
    spec = KINDS[name]
    full = _shape(name, spec, shape)
    of = operand(dtype)
    cluster = Cluster((Pool("chip", over_nodes(chip, full), 1, 0.0, calibration=calibration),))
    routing = routing_of(str(full.get("dist", "balanced")), int(full.get("tokens", 1)))
    table = bench(spec.make(full, of), cluster, routing, int(full.get("ep", 1)), warm=spec.sets if warm else 0)
    symbols = points(table, {**dict.fromkeys(table.symbols, 1.0)})
    priced = price(table, symbols, device_array(table, cluster, ideal=ideal))[0]
    time = float(priced[:, c.TIME].sum())
    low = high = 1.0
    if time > 0 and not ideal:  # one chip alone exchanges nothing
        around = spread(table, cluster, symbols, priced, lambda part: float(part[:, c.TIME].sum()))
        low, high = around.low, around.high
    main = int(priced[:, c.TIME].argmax())
    columns = {"compute": c.COMPUTE, "memory": c.MEMORY, "link": c.WIRE, "overhead": c.OVERHEAD}
    terms = {key: float(priced[:, column].sum()) for key, column in columns.items()}
    moved = priced[:, [c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES, c.WIRE_BYTES]].sum()
    formula = spec.formula + (MEASURED if table.fits and not ideal else "")
    return Operation(
        name, chip.name, calibration.stack if calibration and table.fits else UNCALIBRATED, of.form.name, full, time,
        time * low, time * high, bound_of(table.ops[main], priced[main], cluster), terms, formula,
        float(priced[:, c.FLOPS].sum()), float(moved), table.notes,
    )  # fmt: skip


def bench(bares: list[Bare], cluster: Cluster, routing: Routing, ep: int, *, warm: int, row: int = 0) -> OpTable:
    """One row of bare ops as a table, priced on the pool ``chip``."""
    graph = OpGraph(None, (Segment("op", 1, "op"),), (0,))  # type: ignore[arg-type]
    graph.degrees = {"chip.ep": ep}
    for bare in bares:
        graph.add(bare.op(row))
    return pack(graph, cluster, routing, warm=warm)


def _shape(name: str, spec: Kind, given: Mapping[str, Any]) -> dict[str, Any]:
    known = {*spec.needed, *spec.optional}
    problems = [
        Problem(f"op {name}: unknown key '{shortened(str(key))}'{did_you_mean(key, known)}")
        for key in given
        if key not in known
    ]
    missing = [key for key in spec.needed if key not in given]
    if missing:
        problems.append(Problem(f"op {name}: missing {', '.join(f'{key}=' for key in missing)}"))
    full: dict[str, Any] = dict(spec.optional)
    for key in known & given.keys():
        if key in WORDS:
            full[key] = str(given[key])
            continue
        low, high = int(key in spec.needed), _MOST.get(key, 10**12)
        number = _whole(given[key])
        if number is None or not low <= number <= high:
            got = shortened(repr(given[key]), 40)
            problems.append(Problem(f"op {name}: {key}= expects a whole number from {low} to {high:,}, got {got}"))
        else:
            full[key] = number
    if full.get("gated", "true").lower() not in YES + NO:
        problems.append(Problem(f"op {name}: gated= expects true or false, got {shortened(repr(full['gated']), 40)}"))
    if problems:
        raise InputError(problems)
    return full


_MOST = {"experts": 100_000, "topk": 100_000}
"""The popularity of every expert is worked out one by one."""


def _whole(value: object) -> int | None:
    """A whole number, written as 4096 or 4e3; None for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def over_nodes(chip: Chip, shape: Mapping[str, Any]) -> Chip:
    """The chip with the domain of its first link cut to the ranks of one node, where the shape says how many nodes."""
    if shape.get("nodes", 1) == 1:
        return chip
    if len(chip.links) < 2:
        raise InputError(f"nodes={shape['nodes']}: chip {chip.name} has no second link to other nodes")
    first = chip.links[0]
    inside = min(first.domain, shape["ep"] // shape["nodes"])
    return chip.model_copy(update={"links": (first.model_copy(update={"domain": inside}), *chip.links[1:])})
