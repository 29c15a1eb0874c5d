"""Chips as data: what they compute, hold, move and cost, every number with its source.

How a chip executes is data too (`Execution`): tiles and waves, launch cost, static schedule, memory ramp. No code asks
for a chip's name or kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hwmodel.calibration import Calibration
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, did_you_mean, shortened
from hwmodel.spec.extends import extended
from hwmodel.spec.number import Number, cited
from hwmodel.spec.schema import (
    SUFFIXES,
    Bytes,
    BytesPerSecond,
    FlopsPerSecond,
    Hertz,
    JoulesPerByte,
    MisplacedError,
    PerSecond,
    Plain,
    Seconds,
    Sourced,
    Spec,
    SquareMillimetres,
    Usd,
    UsdPerHour,
    Watts,
    build,
    yaml_key,
)

Path_ = yamlfile.Path_
N_TILES, N_TIERS, N_LINKS = 4, 4, 4
"""Most tiles, memory tiers and links of a chip that the kernels' arrays hold (kernels/columns.py)."""
Kind = Literal["gpu", "tpu", "sram_dataflow", "near_memory", "dataflow", "cpu", "accelerator"]
Topology = Literal["switch", "all_to_all", "ring", "torus", "point_to_point"]


class Peaks(Sourced):
    """Dense peak rates of matrix products by operand type (one FMA counts two)."""

    fp32_flops_per_s: FlopsPerSecond | None = None
    tf32_flops_per_s: FlopsPerSecond | None = None
    bf16_flops_per_s: FlopsPerSecond | None = None
    fp16_flops_per_s: FlopsPerSecond | None = None
    fp8_flops_per_s: FlopsPerSecond | None = None
    int8_flops_per_s: FlopsPerSecond | None = None
    mxfp8_flops_per_s: FlopsPerSecond | None = None
    fp6_flops_per_s: FlopsPerSecond | None = None
    int4_flops_per_s: FlopsPerSecond | None = None
    nvfp4_flops_per_s: FlopsPerSecond | None = None
    mxfp4_flops_per_s: FlopsPerSecond | None = None

    def by_dtype(self) -> dict[str, Number]:
        """Peak in FLOP/s of every dtype the chip multiplies natively."""
        return {
            yaml_key(name): value
            for name in type(self).model_fields
            if name.endswith("_flops_per_s") and (value := getattr(self, name)) is not None
        }


class MemoryTier(Sourced):
    """One level of memory, seen from the compute units of one chip."""

    tier: str
    """Name of the tier: l2, sram, hbm, lpddr, ddr, cxl, ssd."""
    capacity_bytes: Bytes
    bandwidth_bytes_per_s: BytesPerSecond
    latency_s: Seconds | None = None
    """Time of one dependent access."""
    cache: bool = False
    """A cache holds copies: it speeds reuse and adds no capacity."""
    efficiency: Plain | None = None
    """Share of the bandwidth that a large transfer reaches; the chip's `efficiency.memory` when absent."""
    energy_joules_per_byte: JoulesPerByte | None = None
    usd_per_gb: Plain | None = None
    """Price of the memory, dollars per decimal GB."""


class Link(Sourced):
    """A way out of the chip. Bandwidth is per direction and per chip."""

    name: str
    bandwidth_bytes_per_s: BytesPerSecond
    latency_s: Seconds
    """One message, one way, software included."""
    domain: Annotated[int, Field(ge=1, le=10_000_000)] = 2
    """How many chips reach each other over this link."""
    topology: Topology = "switch"
    peer_bandwidth_bytes_per_s: BytesPerSecond | None = None
    """To one other chip, where lanes are wired to fixed peers: a group of n uses at most n - 1 times this. With
    topology all_to_all and no such value: the bandwidth over domain - 1."""
    reduces: bool = False
    """The switch adds and multicasts (NVLink SHARP): an all-reduce moves its bytes once."""
    efficiency: Plain | None = None
    """Share of the bandwidth a large transfer reaches; the chip's `efficiency.link` when absent."""


class Efficiency(Sourced):
    """Shares of the peaks that well-written kernels reach on large shapes."""

    compute: Plain = Number(0.75, 0.55, 0.9, "assumption of the project", "estimated")
    attention: Plain = Number(0.6, 0.4, 0.75, "assumption of the project", "estimated")
    """Compute share in attention cores, where the softmax stands between two products."""
    memory: Plain = Number(0.85, 0.75, 0.92, "assumption of the project", "estimated")
    link: Plain = Number(0.8, 0.7, 0.92, "assumption of the project", "estimated")


Side = Annotated[int, Field(ge=1, le=1_000_000)]
_LADDER = ((128, 128), (64, 128), (16, 128), (1, 128))


class Execution(Sourced):
    """How the chip runs an op."""

    cores: Plain
    """Units that each work on one tile at a time: SMs, matrix engines, cores."""
    tiles: Annotated[tuple[tuple[Side, Side], ...], Field(min_length=1, max_length=N_TILES)] = _LADDER
    """Output tiles (rows, columns) a core can work on; the best one is taken. When absent, an assumption of the project: a
    core can work on few rows, so that one token costs no more than its row."""
    split_k: bool = True
    """Whether several cores may share one output tile along the inner dimension."""
    launch_s: Seconds
    """Fixed cost of one op on the device: launch, fill, drain. A static schedule has its per-op cost here."""
    ramp_s: Seconds | None = None
    """Time until memory streams at full rate: bandwidth is halved for a transfer of bandwidth x ramp."""
    step_s: Seconds | None = None
    """Host work per step that the device waits for: scheduling, sampling, launch of the graph."""
    vector_flops_per_s: FlopsPerSecond | None = None
    exponentials_per_s: PerSecond | None = None
    """Rate of exponentials, for the softmax."""
    compiled: bool = False
    """A compiler lays out every weight: splits need not be even and may cut quantisation blocks, shares are padded."""
    overlapped_collectives: bool = False
    """Communication is hidden behind compute by the schedule (static dataflow)."""


class Power(Sourced):
    """Electrical power of one chip."""

    tdp_watts: Watts | None = None
    idle_watts: Watts | None = None


class Price(Sourced):
    """What one chip costs."""

    purchase_usd: Usd | None = None
    rental_usd_per_hour: UsdPerHour | None = None


class Chip(Sourced):
    """One accelerator, as its YAML file describes it."""

    name: str
    title: str = ""
    vendor: str = ""
    kind: Kind
    """How people call this class of chip; nothing is computed from it."""
    released: str = ""
    process: str = ""
    area_mm2: SquareMillimetres | None = None
    clock_hz: Hertz | None = None
    notes: str = ""
    unpublished: tuple[str, ...] = ()
    """What no one has published; the file then carries an estimate with a range."""
    peaks: Peaks
    memory: tuple[MemoryTier, ...]
    """Fastest tier first."""
    links: tuple[Link, ...] = ()
    """Widest first: the scale-up link, then the scale-out link, then the host link."""
    execution: Execution
    efficiency: Efficiency = Efficiency()
    power: Power = Power()
    price: Price = Price()
    sources: dict[str, str] = Field(default_factory=dict)
    """Short names for sources that numbers refer to, with the URL and date of each."""

    @model_validator(mode="after")
    def _usable(self) -> Chip:
        wrong = _wrong(self)
        if wrong:
            raise MisplacedError(wrong)
        for _, number in self.numbers():
            number.source = cited(number.source, self.sources)
        return self

    def tier(self, name: str) -> MemoryTier:
        """The memory tier of that name."""
        for tier in self.memory:
            if tier.tier == name:
                return tier
        raise InputError(f"chip {self.name} has no memory tier '{name}' (it has {', '.join(self.tier_names())})")

    def tier_names(self) -> list[str]:
        """Names of the tiers, fastest first."""
        return [tier.tier for tier in self.memory]

    @property
    def main(self) -> MemoryTier:
        """The tier that holds weights and KV cache unless the plan says otherwise: the fastest that is no cache."""
        return next(tier for tier in self.memory if not tier.cache)

    @property
    def link_name(self) -> str:
        """The link that joins its chips to one another first; empty without any."""
        return self.links[0].name if self.links else ""

    def link(self, name: str) -> Link:
        """The link of that name."""
        for link in self.links:
            if link.name == name:
                return link
        known = ", ".join(link.name for link in self.links) or "none"
        raise InputError(f"chip {self.name} has no link '{name}' (it has {known})")

    def dimension(self, path: str) -> str:
        """The dimension of the number at a dotted path."""
        return _dimension(self, path.split("."))

    def numbers(self) -> list[tuple[str, Number]]:
        """Every number of the chip with its dotted path in the YAML."""
        return numbers_of(self)


_POSITIVE = frozenset(
    {"capacity", "bandwidth", "peer_bandwidth", "cores", "compute", "attention", "memory", "link"}
    | {yaml_key(name) for name in Peaks.model_fields if name.endswith("_flops_per_s")}
)
_NAME = re.compile(r"\w[\w-]{0,39}")


def unfit(path: str, number: float) -> str:
    """What is wrong with the number (or its range) at a path such as ``memory.hbm.bandwidth``; empty when nothing."""
    key = path.rpartition(".")[2]
    share = path.startswith("efficiency.") or key == "efficiency"
    low, high = (number.low, number.high) if isinstance(number, Number) else (number, number)
    if (share or key in _POSITIVE) and low <= 0:
        return "must be more than zero" if number <= 0 else "must be more than zero over its whole range"
    if share and high > 1:
        return "is a share of the peak: at most 1, or 100 %"
    if key == "cores" and low < 1:
        return "must be at least 1"
    return ""


def _wrong(chip: Chip) -> list[tuple[Path_, str]]:
    """What makes a chip unusable although each of its fields reads well: (path, message)."""
    found: list[tuple[Path_, str]] = []
    if not chip.peaks.by_dtype():
        found.append((("peaks",), "needs at least one dtype, such as 'bf16: 989.4 TFLOP/s'"))
    kept = [tier for tier in chip.memory if not tier.cache]
    if not kept:
        found.append((("memory",), "needs at least one tier that is not a cache"))
    if len(kept) > N_TIERS or len(chip.memory) > len(kept) + 1:
        found.append((("memory",), f"takes at most {N_TIERS} tiers and one cache; leave out those that matter least"))
    if len(chip.links) > N_LINKS:
        found.append((("links",), f"takes at most {N_LINKS} links; leave out those that matter least"))
    named = (("memory", "tier", chip.tier_names()), ("links", "name", [link.name for link in chip.links]))
    for part, key, names in named:
        for index, name in enumerate(names):
            if not _NAME.fullmatch(name):
                message = f"a name is one word of letters, digits, _ and -, got {shortened(repr(name))}"
                found.append(((part, index, key), message))
            elif name in names[:index]:
                found.append(((part, index, key), f"'{name}' is named twice; names must differ"))
    return found + [(place, message) for place, path, number in _placed(chip) if (message := unfit(path, number))]


def _placed(spec: Spec, at: Path_ = (), prefix: str = "") -> list[tuple[Path_, str, Number]]:
    """Every number inside a spec: its place in the YAML, its dotted path by names, itself."""
    found: list[tuple[Path_, str, Number]] = []
    for name in type(spec).model_fields:
        value, key = getattr(spec, name), yaml_key(name)
        place, path = (*at, key), f"{prefix}{key}"
        if isinstance(value, Number):
            found.append((place, path, value))
        elif isinstance(value, Spec):
            found += _placed(value, place, f"{path}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, Spec):
                    label = getattr(item, "tier", None) or getattr(item, "name", None) or str(index)
                    found += _placed(item, (*place, index), f"{path}.{label}.")
    return found


def dimension_of(field_name: str) -> str:
    """The dimension of a field's quantity: the unit suffix of its name."""
    return next((suffix[1:] for suffix in SUFFIXES if field_name.endswith(suffix)), "number")


def numbers_of(spec: Spec, prefix: str = "") -> list[tuple[str, Number]]:
    """Every `Number` inside a spec with its dotted YAML path; list items that are named go by name."""
    return [(path, number) for _, path, number in _placed(spec, (), prefix)]


def _dimension(spec: Spec, parts: list[str]) -> str:
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if yaml_key(name) == parts[0]:
            if len(parts) == 1:
                return dimension_of(name)
            if isinstance(value, tuple):
                item = next(i for i in value if parts[1] in (getattr(i, "tier", None), getattr(i, "name", None)))
                return _dimension(item, parts[2:])
            return _dimension(value, parts[1:])
    return "number"


def with_number(chip: Chip, path: str, value: float) -> Chip:
    """The chip with one number replaced, by its dotted path as `Chip.numbers` gives it."""
    replaced: Chip | None = _with(chip, path.split("."), value)
    if replaced is None:
        raise InputError(f"chip {chip.name} has no number '{path}'")
    return replaced


def _with(spec: Any, parts: list[str], value: float) -> Any:
    for name in type(spec).model_fields:
        if yaml_key(name) != parts[0]:
            continue
        old = getattr(spec, name)
        new: Any = None
        if isinstance(old, Number) and len(parts) == 1:
            new = old.at(value)
        elif isinstance(old, Spec) and len(parts) > 1:
            new = _with(old, parts[1:], value)
        elif isinstance(old, tuple) and len(parts) > 2:
            items = list(old)
            for index, item in enumerate(items):
                label = getattr(item, "tier", None) or getattr(item, "name", None) or str(index)
                if parts[1] in (label, str(index)):
                    items[index] = _with(item, parts[2:], value)
                    new = tuple(items) if items[index] is not None else None
                    break
        return None if new is None else spec.model_copy(update={name: new})
    return None


def load_chip(name: str) -> Chip:
    """A chip by name (chips/ here, then shipped) or path; a file may say ``extends: OTHER`` and state only differences.

    Raises
    ------
    InputError
        With every problem of the file, each with line and column.
    """
    return chip_from(yamlfile.load(catalog.find("chips", name)))


def chip_from(document: yamlfile.Document, value: Any = None, at: Path_ = (), name: str = "") -> Chip:
    """A chip from a parsed document, or from the part of it at a path, called `name` unless it says its own."""
    raw = document.value if value is None else value
    merged, placed = extended("chips", document, raw, at, lambda base, inner: build(Chip, inner, base))
    if isinstance(merged, dict) and "name" not in merged:
        merged = {**merged, "name": name or Path(document.file).stem}
    return build(Chip, placed, merged, at)


class Wire(Sourced):
    """A link between two pools, both directions alike."""

    from_: str = Field(alias="from")
    to: str
    bandwidth_bytes_per_s: BytesPerSecond
    """Per direction and per chip of the pool named by `per`."""
    latency_s: Seconds
    """One transfer, one way."""
    per: str = ""
    """Pool whose chips each have this bandwidth; `to` when absent."""
    over: str = ""
    """Link of the other pool's chips that it leaves by: they carry no more than theirs together. No such bound when empty."""
    efficiency: Plain = Number(0.9, 0.7, 0.97, "assumption of the project", "estimated")
    exclusive: bool = False
    """Both directions share the bandwidth."""

    @model_validator(mode="after")
    def _usable(self) -> Wire:
        wrong = [(place, message) for place, path, number in _placed(self) if (message := unfit(path, number))]
        if wrong:
            raise MisplacedError(wrong)
        return self


@dataclass(frozen=True)
class Pool:
    """A number of equal chips with one task."""

    name: str
    chip: Chip
    count: int
    memory_reserve: float = 0.08
    """Share of every memory tier that weights and caches leave free: runtime, graphs, fragmentation."""
    stack: str = ""
    """Software stack whose calibration is used; none when empty."""
    calibration: Calibration | None = None
    """What was measured of the chip under that stack, or of its kind."""


@dataclass(frozen=True)
class Cluster:
    """Pools of chips and the links between them."""

    pools: tuple[Pool, ...]
    wires: tuple[Wire, ...] = ()

    def pool(self, name: str) -> Pool:
        """The pool of that name."""
        for pool in self.pools:
            if pool.name == name:
                return pool
        names = [pool.name for pool in self.pools]
        raise InputError(f"no pool named '{name}'{did_you_mean(name, names)}")

    def wire(self, one: str, other: str) -> Wire:
        """The link that joins two pools, whichever way it was written."""
        for wire in self.wires:
            if {wire.from_, wire.to} == {one, other}:
                return wire
        raise InputError(
            f"pools '{one}' and '{other}' exchange tensors but no link joins them; add to cluster.links: "
            f"{{from: {one}, to: {other}, bandwidth: 50 GB/s, latency: 5 us}}"
        )

    @property
    def host_s(self) -> float:
        """Work of the host per step (s): that of the pool whose host takes longest; pools are launched side by side."""
        return max((float(pool.chip.execution.step_s or 0) for pool in self.pools), default=0.0)

    @property
    def chips(self) -> int:
        """Chips of all pools."""
        return sum(pool.count for pool in self.pools)
