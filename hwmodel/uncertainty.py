"""From ranges of inputs to ranges of answers: every stated range is tried at both ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hwmodel.hardware import Chip, Cluster, with_number
from hwmodel.kernels import columns as c
from hwmodel.spec.number import Number
from hwmodel.timing import Array, OpTable, device_array, price

_NO_TIME = ("price.", "power.", "area", "clock")
"""Numbers that do not enter a time."""


@dataclass(frozen=True)
class Input:
    """A number with a range, and what its range does to the step."""

    path: str
    status: str
    source: str
    effect: float
    """(time at one end of the range - time at the other) / time, positive."""
    values: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Its low end, itself and its high end; of a measured fit, factors on its times."""
    ends: tuple[float, float] = (0.0, 0.0)
    """Logarithm of the factor on the step's time at the low and at the high end."""


@dataclass(frozen=True)
class Spread:
    """Ranges of the step and of every op from the ranges of the inputs."""

    low: float
    """Factor on the step's time at the low end."""
    high: float
    op_low: Array
    """(ops,) factors."""
    op_high: Array
    inputs: tuple[Input, ...]
    moves: tuple[tuple[str, Array], ...] = ()
    """(path of an input, logarithm of the factors on each op's time at its ends, shape (2, ops)) of all."""


def certain(ops: int) -> Spread:
    """No range at all."""
    ones = np.ones(ops)
    return Spread(1.0, 1.0, ones, ones, ())


def spread(
    table: OpTable, cluster: Cluster, symbols: Array, base: Array, time_of: Callable[[Array], float], step: float | None = None
) -> Spread:
    """Vary every input that has a range, one at a time, and add the effects as independent ones, in log space.

    Parameters
    ----------
    base : (ops, N_OUT) priced at the values themselves
    time_of : step time in s from priced ops (ops, N_OUT)
    step : step time in s at the values themselves, where it is known already
    """
    cases = _cases(cluster)
    named = [(path, number.status, number.source) for path, number, _, _ in cases] + _fits(table)
    values = [(n.low, float(n), n.high) for _, n, _, _ in cases] + [(fit.low, 1.0, fit.high) for _, fit in table.fits]
    if not named:
        return certain(len(table.ops))
    priced = np.concatenate([_priced_cases(cases, table, symbols), _scaled(table, base)])
    step = time_of(base) if step is None else step
    moved = (priced[:, :, c.TIME] != base[:, c.TIME]).any(axis=1)  # most inputs touch no op of this plan
    times = np.array([time_of(part) if touched else step for part, touched in zip(priced, moved, strict=True)])
    steps = np.log(times / step).reshape(-1, 2)
    ops = np.log(np.maximum(priced[:, :, c.TIME], 1e-15) / np.maximum(base[:, c.TIME], 1e-15)).reshape(-1, 2, len(table.ops))
    inputs = [
        Input(*said, float(abs(np.expm1(pair[0]) - np.expm1(pair[1]))), value, (float(pair[0]), float(pair[1])))
        for said, value, pair in zip(named, values, steps, strict=True)
    ]
    inputs.sort(key=lambda item: -item.effect)
    return Spread(
        float(np.exp(-_joined(-steps))), float(np.exp(_joined(steps))), np.exp(-_joined(-ops)), np.exp(_joined(ops)),
        tuple(item for item in inputs if item.effect > 1e-4),
        tuple((path, pair) for (path, _, _), pair in zip(named, ops, strict=True)),
    )  # fmt: skip


Case = tuple[str, Number, Cluster, Cluster]


def _priced_cases(cases: Sequence[Case], table: OpTable, symbols: Array) -> Array:
    """The ops at both ends of every number's range, shape (2 x cases, ops, N_OUT)."""
    if not cases:
        return np.zeros((0, len(table.ops), c.N_OUT))
    devices = np.concatenate([device_array(table, changed) for _, _, low, high in cases for changed in (low, high)])
    return price(table, np.repeat(symbols, len(devices), axis=0), devices)


def _fits(table: OpTable) -> list[tuple[str, str, str]]:
    """(path, status, source) of the measured fits that ops rest on."""
    return [
        (f"{pool} calibration {fit.key}", "estimated" if fit.spread else "measured", fit.doubt or f"{fit.rows} measured rows")
        for pool, fit in table.fits
    ]


def _scaled(table: OpTable, base: Array) -> Array:
    """The ops with all of one fit's as quick, then as slow, as its band allows: errors inside a class of ops go together."""
    found = np.repeat(base[None], 2 * len(table.fits), axis=0)
    for index, (_, fit) in enumerate(table.fits):
        ops = table.fitted == index
        for end, factor in enumerate((fit.low, fit.high)):
            for column in (c.TIME, c.COMPUTE, c.MEMORY, c.WIRE, c.OVERHEAD):
                found[2 * index + end, ops, column] *= factor
    return found


def chip_band(chip: Chip, times: Callable[[Chip], Array]) -> tuple[float, float]:
    """Factors on a time by the ranges of a chip's own numbers, joined as in `spread`; medians over what `times` gives (s)."""
    base = times(chip)
    logs = []
    for path, number in chip.numbers():
        if _counts(path, number):
            ends = [np.median(np.log(times(with_number(chip, path, end)) / base)) for end in (number.low, number.high)]
            logs.append(ends)
    effects = np.array(logs).reshape(-1, 2)
    return float(np.exp(-_joined(-effects))), float(np.exp(_joined(effects)))


def _counts(path: str, number: Number) -> bool:
    """Whether a number of a chip has a range and enters a time."""
    return number.ranged and not path.startswith(_NO_TIME) and not path.endswith((".energy", ".capacity", ".usd_per_gb"))


def _joined(effects: Array) -> Array:
    """Root of the sum of squares of each input's larger effect in one direction; (inputs, 2, ...) to (...)."""
    return np.asarray(np.sqrt((np.maximum(effects.max(axis=1), 0.0) ** 2).sum(axis=0)))


def _cases(cluster: Cluster) -> list[Case]:
    """(path, number, cluster with the number at its low end, at its high end); equal chips vary together."""
    return varied(cluster, _counts, lambda number: (number.low, number.high))


def varied(
    cluster: Cluster, wanted: Callable[[str, Number], bool], ends: Callable[[Number], tuple[float, float]]
) -> list[Case]:
    """(path, number, cluster with it at one end, at the other) of every wanted number of the chips and of the links."""
    found: list[Case] = []
    for name, chip in _chips(cluster):
        for path, number in chip.numbers():
            if wanted(path, number):
                low, high = (_rechipped(cluster, chip, path, end) for end in ends(number))
                found.append((f"{name}.{path}", number, low, high))
    for index, wire in enumerate(cluster.wires):
        for field, key in (
            ("bandwidth_bytes_per_s", "bandwidth"),
            ("latency_s", "latency"),
            ("efficiency", "efficiency"),
        ):
            number = getattr(wire, field)
            if wanted(f"link.{key}", number):
                low, high = (_rewired(cluster, index, field, end) for end in ends(number))
                found.append((f"link {wire.from_}-{wire.to}.{key}", number, low, high))
    return found


def _rechipped(cluster: Cluster, chip: Chip, path: str, value: float) -> Cluster:
    """The cluster with a number of all chips equal to `chip` replaced."""
    changed = with_number(chip, path, value)
    return replace(cluster, pools=tuple(replace(pool, chip=changed) if pool.chip == chip else pool for pool in cluster.pools))


def _chips(cluster: Cluster) -> list[tuple[str, Chip]]:
    """(name, chip) of all unlike chips; the pool stands beside a name that several of them have."""
    found: list[tuple[str, Chip]] = []
    for pool in cluster.pools:
        if all(pool.chip != chip for _, chip in found):
            shared = any(other.chip.name == pool.chip.name and other.chip != pool.chip for other in cluster.pools)
            found.append((f"{pool.chip.name} ({pool.name})" if shared else pool.chip.name, pool.chip))
    return found


def _rewired(cluster: Cluster, index: int, field: str, value: float) -> Cluster:
    wire = cluster.wires[index]
    changed = wire.model_copy(update={field: getattr(wire, field).at(value)})
    return replace(cluster, wires=(*cluster.wires[:index], changed, *cluster.wires[index + 1 :]))
