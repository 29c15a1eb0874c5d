"""The numbers of a cluster's chips and links that a design could change, and the cluster with one of them changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from hwmodel.hardware import Chip, Cluster, Wire, with_number
from hwmodel.spec.errors import InputError, did_you_mean
from hwmodel.spec.number import Number
from hwmodel.spec.schema import yaml_key
from hwmodel.spec.units import show

Kind = Literal["rate", "fixed", "share", "capacity", "price"]
KINDS: dict[str, Kind] = {
    "flops_per_s": "rate", "bytes_per_s": "rate", "per_s": "rate", "s": "fixed", "bytes": "capacity", "usd": "price",
    "usd_per_hour": "price",
}  # fmt: skip
"""What a number is, by its dimension."""
_IGNORED = ("area", "clock", "power.")
_WIRE = {"bandwidth_bytes_per_s": "bytes_per_s", "latency_s": "s", "efficiency": "number"}
WITHOUT_LIMIT = 1e12
"""Factor that stands for a rate without limit."""


@dataclass(frozen=True)
class Parameter:
    """A number of all chips of one kind, or of one link between pools."""

    path: str
    """``CHIP.path`` as `hwmodel chips CHIP` prints it, or ``link FROM-TO.bandwidth``."""
    number: Number
    """Its value, SI."""
    dimension: str
    kind: Kind
    """rate: more is quicker; fixed: a time that is added; share: of a peak, at most 1; capacity; price."""
    pools: tuple[str, ...]
    """That have it."""
    chip: Chip | None
    field: str
    """Path inside the chip, or the attribute of the link."""
    wire: int = -1
    """Position of the link."""
    cache: bool = False
    """The capacity of a cache, which enters times and holds nothing."""

    @property
    def enters_time(self) -> bool:
        """Whether it can change the time of a step."""
        return self.kind in ("rate", "fixed", "share") or self.cache

    @property
    def text(self) -> str:
        """Its value with a unit."""
        return self.shown(self.number)

    def shown(self, value: float) -> str:
        """A value of it with the unit that reads best."""
        return f"{value:.4g}" if self.dimension == "number" else show(value, self.dimension, 4)

    def scaled(self, factor: float) -> float:
        """Its value times a factor; shares are at most 1."""
        return min(1.0, float(self.number) * factor) if self.kind == "share" else float(self.number) * factor

    def on(self, cluster: Cluster, value: float) -> Cluster:
        """The cluster with this number at another value."""
        if self.chip is None:
            changed: Wire = cluster.wires[self.wire].model_copy(update={self.field: self.number.at(value)})
            return replace(cluster, wires=(*cluster.wires[: self.wire], changed, *cluster.wires[self.wire + 1 :]))
        chip = with_number(self.chip, self.field, value)
        return replace(cluster, pools=tuple(replace(p, chip=chip) if p.chip == self.chip else p for p in cluster.pools))


def parameters(cluster: Cluster) -> list[Parameter]:
    """Every positive number of the chips and links that a time, a capacity or a price comes from.

    Numbers of cores are left out: a design has whole ones, and its peak stands beside them.
    """
    return [*_of_chips(cluster), *_of_wires(cluster)]


def _of_chips(cluster: Cluster) -> Iterator[Parameter]:
    seen: list[Chip] = []
    for pool in cluster.pools:
        chip = pool.chip
        if chip in seen:
            continue
        seen.append(chip)
        pools = tuple(other.name for other in cluster.pools if other.chip == chip)
        shared = any(other.chip.name == chip.name and other.chip != chip for other in cluster.pools)
        caches = {f"memory.{tier.tier}.capacity" for tier in chip.memory if tier.cache}
        for path, number in chip.numbers():
            share = path.startswith("efficiency.") or path.endswith(".efficiency")
            kind: Kind | None = "share" if share else KINDS.get(chip.dimension(path))
            if number <= 0 or kind is None or path.startswith(_IGNORED):
                continue
            name = f"{chip.name} ({pool.name})" if shared else chip.name
            yield Parameter(f"{name}.{path}", number, chip.dimension(path), kind, pools, chip, path, cache=path in caches)


def _of_wires(cluster: Cluster) -> Iterator[Parameter]:
    for index, wire in enumerate(cluster.wires):
        for field, dimension in _WIRE.items():
            number = getattr(wire, field)
            kind = KINDS.get(dimension, "share")
            if number > 0:
                name = f"link {wire.from_}-{wire.to}.{yaml_key(field)}"
                yield Parameter(name, number, dimension, kind, (wire.from_, wire.to), None, field, index)


def parameter(cluster: Cluster, path: str) -> Parameter:
    """The parameter of that path; a chip may go by the name of its pool, and ``link`` may be left out.

    Raises
    ------
    InputError
        When there is none.
    """
    every = parameters(cluster)
    names: dict[str, Parameter] = {}
    for one in every:
        names[one.path] = one
        names.setdefault(one.path.removeprefix("link "), one)
        if one.chip is not None:
            names |= {f"{pool}.{one.field}": one for pool in one.pools if f"{pool}.{one.field}" not in names}
    if path not in names:
        near = did_you_mean(path, names) or "; 'hwmodel whatif SCENARIO' alone lists them"
        raise InputError(f"no number '{path[:80]}' of a chip or link{near}")
    return names[path]
