"""Single operations by shape, as a benchmark or ``hwmodel op`` names them: which ops of the kernels they are.

A size is a number or a column of numbers, one per row of a table, so that one shape and a file of measurements take one way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.calibration import label
from hwmodel.graph import Op, size
from hwmodel.kernels.collective import OPERATIONS
from hwmodel.model.dtypes import Format, fmt
from hwmodel.routing import Experts, Routing, reached_groups
from hwmodel.spec.errors import InputError, shortened

Column = NDArray[Any] | float
Sizes = Mapping[str, Any]
ALIASES = {"alltoall": "all_to_all"}


@dataclass(frozen=True)
class Operand:
    """The number format of an operation: as the tables write it, and what it means."""

    name: str
    form: Format

    @property
    def label(self) -> str:
        """Under which name it is calibrated."""
        return self.name if self.name in ("w4a16_mxfp4", "w4a8_mxfp4_mxfp8") else label(self.form.name)


def operand(name: str) -> Operand:
    """The format of that name or alias.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    return Operand(str(name).lower(), fmt(name))


@dataclass(frozen=True)
class Bare:
    """Ops of one kind, one per row, that stand in no graph."""

    name: str
    kind: str
    dims: Mapping[str, Column]
    consts: Mapping[str, Column]
    compute: tuple[str, ...]
    family: str = ""
    format: str = ""
    routed: Mapping[str, Column] = field(default_factory=dict)
    """Of expert ops: experts, topk, ep, dist."""

    def op(self, row: int = 0) -> Op:
        """One row as an op of a graph, on the pool ``chip``."""
        experts = Experts(int(_at(self.routed["experts"], row)), _at(self.routed["topk"], row)) if self.routed else None
        return Op(
            self.name, self.kind, "ffn", "op", "op", {key: size(float(_at(value, row))) for key, value in self.dims.items()},
            {key: float(_at(value, row)) for key, value in self.consts.items()}, self.compute, self.family, self.format,
            experts=experts, pool="chip",
        )  # fmt: skip

    def bins(self, rows: int) -> NDArray[np.float64]:
        """The experts of every row as the kernels read them, (rows, N_BINS, 2)."""
        counts = [self.routed["experts"], self.routed["topk"], self.routed["ep"], self.dims["tokens"]]
        numbers = [np.broadcast_to(np.asarray(value).astype(int), rows).tolist() for value in counts]
        asked = list(zip(*numbers, np.broadcast_to(self.routed["dist"], rows).tolist(), strict=True))
        places = {key: place for place, key in enumerate(dict.fromkeys(asked))}
        return np.array([routed_bins(*key) for key in places])[[places[key] for key in asked]]


def _at(value: Any, row: int) -> Any:
    return value[row] if isinstance(value, np.ndarray) else value


@cache
def routed_bins(experts: int, topk: int, ep: int, tokens: int, dist: str) -> NDArray[np.float64]:
    """(inclusion probability, number) of the experts of the busiest of `ep` ranks, shape (N_BINS, 2)."""
    return routing_of(dist, tokens).bins(experts, topk, experts, ep)


def routing_of(dist: str, tokens: int = 1024) -> Routing:
    """The routing that a shape's `dist` names: balanced, zipf_S or power_law_S.

    Raises
    ------
    InputError
        For any other word.
    """
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
    return Routing(kind="zipf", s=s) if head == "zipf" else Routing(kind="power_law", s=s, tokens=max(tokens, 1))


@dataclass(frozen=True)
class Kind:
    """What a kind of operation is asked with, and what it becomes."""

    needed: tuple[str, ...]
    optional: Mapping[str, Any]
    make: Callable[[Sizes, Operand], list[Bare]]
    formula: str
    sets: int = 1
    """Sets of operands that a benchmark of it takes in turn: its on-chip cache serves what fits it so many times. Where rows of
    GEMM leave the cache says five: 17 to 21 MB of the 96 MB of an L40S."""


def _activation_bytes(form: Format) -> float:
    """Weight-only formats keep 16-bit activations; the others quantise them to their own width."""
    return 2.0 if form.compute[0] in ("bf16", "fp16") else form.bits / 8


def _gemm(s: Sizes, of: Operand) -> list[Bare]:
    consts = {
        "weight_bytes": of.form.matrix_bytes(s["n"], s["k"]) / (s["n"] * s["k"]),
        "input_bytes": _activation_bytes(of.form),
        "output_bytes": 2.0,
    }
    dims = {"m": s["m"], "n": s["n"], "k": s["k"], "groups": 1}
    return [Bare("gemm", "gemm", dims, consts, of.form.compute, "gemm", of.label)]


def _attention(s: Sizes, of: Operand, phase: str) -> list[Bare]:
    if np.any(s["heads"] % s["kv_heads"]):
        raise InputError(f"op attention_{phase}: {s['heads']} heads are not a multiple of {s['kv_heads']} kv_heads")
    dim = s["head_dim"]
    return [_core(phase, s, of, s["kv_heads"], (dim, dim, 2 * dim), "attention")]


def _mla(s: Sizes, of: Operand, phase: str) -> list[Bare]:
    """DeepSeek's shapes: latent 512 + 64; decode absorbed, prefill expanded to 192 and 128 per head."""
    if phase == "decode":
        return [_core("decode", s, of, 1, (576, 512, 576), "mla")]
    return [_core("prefill", s, of, s["heads"], (192, 128, 320), "mla")]


def _core(phase: str, s: Sizes, of: Operand, kv_heads: Column, widths: tuple[Column, Column, Column], family: str) -> Bare:
    kv = fmt(s["kv_dtype"]) if s.get("kv_dtype") else of.form
    window = s.get("window", 0)
    consts: dict[str, Column] = {
        **dict(zip(("key_width", "value_width", "read_width"), widths, strict=True)),
        "kv_bytes": kv.bytes if (family, phase) != ("mla", "prefill") else of.form.bytes, "activation_bytes": 2.0,
        "window": window, "ratio": (np.asarray(window) == 0) * 1.0, "topk": 0, "softmax": 1, "chunked": 0,
    }  # fmt: skip
    new, length = s.get("seq", 1), s.get("kv_len", 0)
    dims: dict[str, Column] = {"sequences": s["batch"], "heads": s["heads"], "kv_heads": kv_heads, "shards": 1}
    dims |= {"queries": new, "context": length} if phase == "decode" else {"new": new, "cached": np.maximum(0.0, length - new)}
    form = f"{of.label}/{label(kv.name)}"
    return Bare(phase, f"attention_{phase}", dims, consts, of.form.compute, f"{family}_{phase}", form)


def _moe(s: Sizes, of: Operand) -> list[Bare]:
    if np.any(s["topk"] > s["experts"]):
        raise InputError(f"op moe: topk {s['topk']} is more than the {s['experts']} experts")
    if np.any(s["experts"] % s["ep"]) or np.any(s["inter"] % s["tp"]):
        raise InputError(
            f"op moe: ep={s['ep']} must divide experts={s['experts']}, tp={s['tp']} must divide inter={s['inter']}"
        )
    yes = np.isin(s["gated"], YES)
    gated: Column = yes if yes.ndim else bool(yes)
    inter, local = s["inter"] / s["tp"], s["experts"] // s["ep"]
    consts = {"weight_bytes": of.form.bytes, "input_bytes": _activation_bytes(of.form), "output_bytes": 2.0, "topk": s["topk"]}
    routed = {key: s[key] for key in ("experts", "topk", "ep", "dist")}
    pairs = s["tokens"] * s["topk"] / s["ep"]

    def product(name: str, n: Column, k: Column) -> Bare:
        dims = {"tokens": s["tokens"], "experts": local, "n": n, "k": k}
        return Bare(name, "experts", dims, consts, of.form.compute, "moe", of.label, routed)

    act = Bare(
        "act", "stream", {"rows": pairs, "width": inter},
        {"activation_bytes": 2.0 * (2 + gated), "vector_flops": 5, "kv_bytes": 0, "weight_bytes": 0}, of.form.compute,
    )  # fmt: skip
    return [product("up", inter * (1 + gated), s["hidden"]), act, product("down", s["hidden"], inter)]


def _collective(operation: str) -> Callable[[Sizes, Operand], list[Bare]]:
    def make(s: Sizes, of: Operand) -> list[Bare]:
        consts = {"bytes": 1.0, "operation": float(OPERATIONS.index(operation))}
        dims = {"elements": s["bytes"], "chips": s["chips"]}
        return [Bare(operation, "collective", dims, consts, of.form.compute, operation, "bytes")]

    return make


def _exchange(family: str) -> Callable[[Sizes, Operand], list[Bare]]:
    """Each token goes once to each of the ranks that hold one of its experts."""

    def make(s: Sizes, of: Operand) -> list[Bare]:
        if np.any(s["topk"] > s["experts"]) or np.any(s["ep"] > s["experts"]):
            raise InputError(f"op expert exchange: topk={s['topk']} and ep={s['ep']} are at most experts={s['experts']}")
        if np.any(s["ep"] % s["nodes"]):
            raise InputError(f"op expert exchange: nodes={s['nodes']} must divide ep={s['ep']}")
        reached = np.vectorize(lambda e, g, k: reached_groups(Experts(e, k), g), otypes=[float])
        ranks = reached(s["experts"], s["ep"], s["topk"])
        consts = {"bytes": 1.0, "operation": float(OPERATIONS.index("all_to_all"))}
        moved = s["tokens_per_rank"] * s["hidden"] * of.form.bytes * ranks
        dims = {"elements": moved, "chips": s["ep"]}
        return [Bare("exchange", "collective", dims, consts, of.form.compute, family, "bytes")]

    return make


WORDS = ("dist", "kv_dtype", "gated")
"""Keys whose values are words."""
YES, NO = ("true", "1", "yes"), ("false", "0", "no")
_PLAIN = ("batch", "heads", "kv_heads", "head_dim")
_OPTIONAL = {"window": 0, "kv_dtype": ""}
_WIRE = (
    "wire: all_reduce min(one-shot, two-shot, in-switch), others (n-1)/n S/B; "
    "plus one latency per phase (kernels/collective.py)"
)
_P2P = "wire: S/B, all bytes over the bandwidth that is reached; plus one latency per phase, one way (kernels/collective.py)"
_EXCHANGED = ("tokens_per_rank", "hidden", "topk", "experts", "ep", "nodes")
_RANKS = (
    "S = tokens hidden b ep (1 - prod (E - E/ep - i)/(E - i)), the ranks a token reaches; ep/nodes of them on the first link"
)
KINDS: dict[str, Kind] = {
    "gemm": Kind(
        ("m", "n", "k"),
        {},
        _gemm,
        "max(waves of tiles at the reached peak, (weights + activations) / bandwidth + ramp) + launch",
        sets=5,
    ),
    "attention_prefill": Kind(
        (*_PLAIN, "seq"),
        _OPTIONAL,
        lambda s, of: _attention(s, of, "prefill"),
        "max(2 B h (dk + dv) S(S+1)/2 / peak, exponentials, bytes / bandwidth) + launch",
    ),
    "attention_decode": Kind(
        (*_PLAIN, "kv_len"),
        _OPTIONAL,
        lambda s, of: _attention(s, of, "decode"),
        "max(B kv_heads min(L, window) (dk + dv) b / bandwidth, FLOP / peak) + launch",
    ),
    "mla_prefill": Kind(
        ("batch", "seq", "kv_len", "heads"),
        {"kv_dtype": ""},
        lambda s, of: _mla(s, of, "prefill"),
        "as attention_prefill, expanded heads of 192 and 128",
    ),
    "mla_decode": Kind(
        ("batch", "seq", "kv_len", "heads"),
        {"kv_dtype": ""},
        lambda s, of: _mla(s, of, "decode"),
        "as attention_decode, the latent of 512 + 64 read once",
    ),
    "moe": Kind(
        ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep"),
        {"dist": "balanced", "gated": "true"},
        _moe,
        "two grouped products over the distinct experts E(1 - (1 - k/E)^T), expected tiles per expert, and the activation",
    ),
    "expert_dispatch": Kind(_EXCHANGED, {}, _exchange("expert_dispatch"), f"{_RANKS}; {_WIRE}"),
    "expert_combine": Kind(
        _EXCHANGED, {}, _exchange("expert_combine"),
        f"{_RANKS}; b of dtype: 16-bit sums come back unless dtype says otherwise; {_WIRE}",
    ),
    **{name: Kind(("chips", "bytes"), {}, _collective(name), _P2P if name == "p2p" else _WIRE) for name in OPERATIONS},
}  # fmt: skip
