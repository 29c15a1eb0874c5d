"""One operation on one chip, without a model around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hwmodel.graph import Dim, Experts, Op, OpGraph, Segment, size
from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels.collective import OPERATIONS
from hwmodel.model.dtypes import Format, fmt
from hwmodel.result import bound_of
from hwmodel.routing import Routing, reached_groups
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.timing import device_array, pack, points, price
from hwmodel.uncertainty import spread

ALIASES = {"alltoall": "all_to_all"}
Shape = dict[str, float]


@dataclass(frozen=True)
class Operation:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind, "chip": self.chip, "stack": self.stack, "dtype": self.dtype, "shape": dict(self.shape),
            "time_s": self.time_s, "low_s": self.low_s, "high_s": self.high_s, "bound": self.bound, "terms": dict(self.terms),
            "formula": self.formula, "flops": self.flops, "bytes": self.bytes,
        }  # fmt: skip


@dataclass(frozen=True)
class _Kind:
    needed: tuple[str, ...]
    optional: Mapping[str, Any]
    make: Callable[[Mapping[str, Any], Format], list[Op]]
    formula: str


def operation(
    kind: str, chip: Chip, dtype: str, shape: Mapping[str, Any], *, warm: bool = True, ideal: bool = False
) -> Operation:
    """Price one operation.

    Parameters
    ----------
    kind, shape
        As CLI.md lists them: ``gemm m= n= k=``, ``attention_decode batch= kv_len= heads= kv_heads= head_dim=`` and so on.
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
    form = fmt(dtype)
    ops = spec.make(full, form)
    graph = OpGraph(None, (Segment("op", 1, name),), (0,))  # type: ignore[arg-type]
    graph.degrees = {"chip.ep": int(full.get("ep", 1))}
    for op in ops:
        graph.add(op)
    cluster = Cluster((Pool("chip", _over_nodes(chip, full), 1, 0.0),))
    table = pack(graph, cluster, routing_of(full), warm=warm)
    symbols = points(table, {**dict.fromkeys(table.symbols, 1.0)})
    priced = price(table, symbols, device_array(table, cluster, ideal=ideal))[0]
    time = float(priced[:, c.TIME].sum())
    low = high = 1.0
    if time > 0:  # one chip alone exchanges nothing
        around = spread(table, cluster, symbols, priced, lambda part: float(part[:, c.TIME].sum()))
        low, high = around.low, around.high
    main = int(priced[:, c.TIME].argmax())
    columns = {"compute": c.COMPUTE, "memory": c.MEMORY, "link": c.WIRE, "overhead": c.OVERHEAD}
    terms = {key: float(priced[:, column].sum()) for key, column in columns.items()}
    moved = priced[:, [c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES, c.WIRE_BYTES]].sum()
    return Operation(
        name, chip.name, "uncalibrated", form.name, full, time, time * low, time * high,
        bound_of(table.ops[main], priced[main], cluster), terms, spec.formula, float(priced[:, c.FLOPS].sum()), float(moved),
    )  # fmt: skip


def routing_of(shape: Mapping[str, Any]) -> Routing:
    """The routing that a shape's `dist` names: balanced, zipf_S or power_law_S."""
    dist = str(shape.get("dist", "balanced"))
    head, _, tail = dist.rpartition("_")
    if dist in ("balanced", "uniform"):
        return Routing()
    try:
        s = float(tail)
    except ValueError:
        s = -1.0
    if head not in ("zipf", "power_law") or not 0 <= s <= 10:
        got = shortened(repr(dist), 40)
        raise InputError(f"dist= expects balanced, zipf_S or power_law_S with S from 0 to 10, such as zipf_0.8; got {got}")
    return Routing(kind="zipf", s=s)


def _shape(name: str, spec: _Kind, given: Mapping[str, Any]) -> dict[str, Any]:
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
        if key in _WORDS:
            full[key] = str(given[key])
            continue
        low, high = int(key in spec.needed), _MOST.get(key, 10**12)
        number = _whole(given[key])
        if number is None or not low <= number <= high:
            got = shortened(repr(given[key]), 40)
            problems.append(Problem(f"op {name}: {key}= expects a whole number from {low} to {high:,}, got {got}"))
        else:
            full[key] = number
    if full.get("gated", "true").lower() not in _YES + _NO:
        problems.append(Problem(f"op {name}: gated= expects true or false, got {shortened(repr(full['gated']), 40)}"))
    if problems:
        raise InputError(problems)
    return full


_WORDS = ("dist", "kv_dtype", "gated")
_YES, _NO = ("true", "1", "yes"), ("false", "0", "no")
_MOST = {"experts": 100_000, "topk": 100_000}
"""The popularity of every expert is worked out one by one."""


def _whole(value: object) -> int | None:
    """A whole number, written as 4096 or 4e3; None for anything else."""
    try:
        number = float(value)  # type: ignore[arg-type]
        return int(number) if number == int(number) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _op(name: str, kind: str, dims: Mapping[str, float], consts: Mapping[str, float], form: Format, **fields: Any) -> Op:
    compute = fields.pop("compute", form.compute)
    sizes: dict[str, Dim] = {key: size(value) for key, value in dims.items()}
    return Op(name, kind, "ffn", "op", "op", sizes, consts, compute, pool="chip", **fields)


def _activation_bytes(form: Format) -> float:
    """Weight-only formats keep 16-bit activations; the others quantise them to their own width."""
    return 2.0 if form.compute[0] in ("bf16", "fp16") else form.bits / 8


def _gemm(s: Mapping[str, Any], form: Format) -> list[Op]:
    consts = {
        "weight_bytes": form.matrix_bytes(s["n"], s["k"]) / (s["n"] * s["k"]),
        "input_bytes": _activation_bytes(form),
        "output_bytes": 2.0,
    }
    return [_op("gemm", "gemm", {"m": s["m"], "n": s["n"], "k": s["k"], "groups": 1}, consts, form)]


def _attention(s: Mapping[str, Any], form: Format, phase: str) -> list[Op]:
    kv = fmt(s["kv_dtype"]) if s["kv_dtype"] else form
    if s["heads"] % s["kv_heads"]:
        raise InputError(f"op attention_{phase}: {s['heads']} heads are not a multiple of {s['kv_heads']} kv_heads")
    dim = s["head_dim"]
    new, length = s.get("seq", 1), s.get("kv_len", 0)
    return [_core(phase, s["batch"], new, length, s["heads"], s["kv_heads"], dim, dim, 2 * dim, kv, form, s["window"])]


def _core(
    phase: str, batch: float, new: float, length: float, heads: float, kv_heads: float, key: float, value: float, read: float,
    kv: Format, form: Format, window: float = 0,
) -> Op:  # fmt: skip
    consts = {
        "key_width": key, "value_width": value, "read_width": read, "kv_bytes": kv.bytes, "activation_bytes": 2.0,
        "window": window, "ratio": 0 if window else 1, "topk": 0, "softmax": 1, "chunked": 0,
    }  # fmt: skip
    dims: Shape = {"sequences": batch, "heads": heads, "kv_heads": kv_heads, "shards": 1}
    dims |= {"queries": new, "context": length} if phase == "decode" else {"new": new, "cached": max(0.0, length - new)}
    return _op(phase, f"attention_{phase}", dims, consts, form)


def _mla(s: Mapping[str, Any], form: Format, phase: str) -> list[Op]:
    """DeepSeek's shapes: latent 512 + 64; decode absorbed, prefill expanded to 192 and 128 per head."""
    if phase == "decode":
        return [_core("decode", s["batch"], s["seq"], s["kv_len"], s["heads"], 1, 576, 512, 576, form, form)]
    return [_core("prefill", s["batch"], s["seq"], s["kv_len"], s["heads"], s["heads"], 192, 128, 320, form, form)]


def _moe(s: Mapping[str, Any], form: Format) -> list[Op]:
    if s["topk"] > s["experts"]:
        raise InputError(f"op moe: topk {s['topk']} is more than the {s['experts']} experts")
    if s["experts"] % s["ep"] or s["inter"] % s["tp"]:
        raise InputError(
            f"op moe: ep={s['ep']} must divide experts={s['experts']}, tp={s['tp']} must divide inter={s['inter']}"
        )
    gated = s["gated"].lower() in _YES
    inter, local = s["inter"] / s["tp"], s["experts"] // s["ep"]
    chosen = Experts(s["experts"], s["topk"])
    consts = {"weight_bytes": form.bytes, "input_bytes": _activation_bytes(form), "output_bytes": 2.0}
    pairs = s["tokens"] * s["topk"] / s["ep"]
    up = _op(
        "up",
        "experts",
        {"tokens": s["tokens"], "experts": local, "n": inter * (2 if gated else 1), "k": s["hidden"]},
        consts,
        form,
        experts=chosen,
    )
    act = _op(
        "act",
        "stream",
        {"rows": pairs, "width": inter},
        {"activation_bytes": 2.0 * (3 if gated else 2), "vector_flops": 5, "kv_bytes": 0, "weight_bytes": 0},
        form,
    )
    down = _op(
        "down",
        "experts",
        {"tokens": s["tokens"], "experts": local, "n": s["hidden"], "k": inter},
        consts,
        form,
        experts=chosen,
    )
    return [up, act, down]


def _collective(operation: str) -> Callable[[Mapping[str, Any], Format], list[Op]]:
    def make(s: Mapping[str, Any], form: Format) -> list[Op]:
        consts = {"bytes": 1.0, "operation": float(OPERATIONS.index(operation))}
        return [_op(operation, "collective", {"elements": s["bytes"], "chips": s["chips"]}, consts, form)]

    return make


def _exchange(s: Mapping[str, Any], form: Format) -> list[Op]:
    """Each token goes once to each of the ranks that hold one of its experts."""
    if s["topk"] > s["experts"] or s["ep"] > s["experts"]:
        raise InputError(f"op expert exchange: topk={s['topk']} and ep={s['ep']} are at most experts={s['experts']}")
    if s["ep"] % s["nodes"]:
        raise InputError(f"op expert exchange: nodes={s['nodes']} must divide ep={s['ep']}")
    ranks = reached_groups(s["experts"], s["ep"], s["topk"])
    consts = {"bytes": 1.0, "operation": float(OPERATIONS.index("all_to_all"))}
    moved = s["tokens_per_rank"] * s["hidden"] * form.bytes * ranks
    return [_op("exchange", "collective", {"elements": moved, "chips": s["ep"]}, consts, form)]


def _over_nodes(chip: Chip, shape: Mapping[str, Any]) -> Chip:
    """The chip with the domain of its first link cut to the ranks of one node, where the shape says how many nodes."""
    if shape.get("nodes", 1) == 1:
        return chip
    if len(chip.links) < 2:
        raise InputError(f"nodes={shape['nodes']}: chip {chip.name} has no second link to other nodes")
    first = chip.links[0]
    inside = min(first.domain, shape["ep"] // shape["nodes"])
    return chip.model_copy(update={"links": (first.model_copy(update={"domain": inside}), *chip.links[1:])})


_PLAIN = ("batch", "heads", "kv_heads", "head_dim")
_OPTIONAL = {"window": 0, "kv_dtype": ""}
_WIRE = (
    "wire: all_reduce min(one-shot, two-shot, in-switch), others (n-1)/n S/B; "
    "plus one latency per phase (kernels/collective.py)"
)
_EXCHANGED = ("tokens_per_rank", "hidden", "topk", "experts", "ep", "nodes")
_RANKS = (
    "S = tokens hidden b ep (1 - prod (E - E/ep - i)/(E - i)), the ranks a token reaches; ep/nodes of them on the first link"
)
KINDS: dict[str, _Kind] = {
    "gemm": _Kind(
        ("m", "n", "k"),
        {},
        _gemm,
        "max(waves of tiles at the reached peak, (weights + activations) / bandwidth + ramp) + launch",
    ),
    "attention_prefill": _Kind(
        (*_PLAIN, "seq"),
        _OPTIONAL,
        lambda s, f: _attention(s, f, "prefill"),
        "max(2 B h (dk + dv) S(S+1)/2 / peak, exponentials, bytes / bandwidth) + launch",
    ),
    "attention_decode": _Kind(
        (*_PLAIN, "kv_len"),
        _OPTIONAL,
        lambda s, f: _attention(s, f, "decode"),
        "max(B kv_heads min(L, window) (dk + dv) b / bandwidth, FLOP / peak) + launch",
    ),
    "mla_prefill": _Kind(
        ("batch", "seq", "kv_len", "heads"),
        {},
        lambda s, f: _mla(s, f, "prefill"),
        "as attention_prefill, expanded heads of 192 and 128",
    ),
    "mla_decode": _Kind(
        ("batch", "seq", "kv_len", "heads"),
        {},
        lambda s, f: _mla(s, f, "decode"),
        "as attention_decode, the latent of 512 + 64 read once",
    ),
    "moe": _Kind(
        ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"),
        {"dist": "balanced", "gated": "true"},
        _moe,
        "two grouped products over the distinct experts E(1 - (1 - k/E)^T), expected tiles per expert, and the activation",
    ),
    "expert_dispatch": _Kind(_EXCHANGED, {}, _exchange, f"{_RANKS}; {_WIRE}"),
    "expert_combine": _Kind(
        _EXCHANGED, {}, _exchange, f"{_RANKS}; b of dtype: 16-bit sums come back unless dtype says otherwise; {_WIRE}"
    ),
    **{name: _Kind(("chips", "bytes"), {}, _collective(name), _WIRE) for name in OPERATIONS},
}
