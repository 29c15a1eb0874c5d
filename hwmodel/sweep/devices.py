"""Numbers of chips and links that vary from point to point, as columns of the device array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hwmodel.hardware import Chip, Cluster, with_number
from hwmodel.kernels import columns as c
from hwmodel.sweep.numbers import Numbers
from hwmodel.timing import Array, Ints, OpTable, device_array

Ends = Mapping[tuple[str, str], tuple[float, float]]
"""Smallest and largest value of every number of a chip that varies, by (pool, path)."""


@dataclass(frozen=True)
class Devices:
    """The device array of a structure, and which of its entries follow which numbers in proportion."""

    base: Array
    """(rows, N_DEVICE)."""
    follow: dict[tuple[str, str], Ints]
    """(pool, path): entries (n, 2) that are proportional to the number."""
    own: dict[tuple[str, str], float]
    """Value of each of those numbers in `base`."""
    ways: tuple[tuple[int, str], ...]
    """(row, name) of the ways between pools."""
    bends: tuple[tuple[str, str], ...]
    """Numbers that some entry follows in another way: their points need a structure of their own."""


def number_of(chip: Chip, path: str) -> float:
    """The number of a chip at a path."""
    return float(dict(chip.numbers())[path])


def devices(table: OpTable, cluster: Cluster, ends: Ends) -> Devices:
    """Find by trial at both ends of every number's range which entries follow it, and whether in proportion."""
    base = device_array(table, cluster)[0]
    ways = tuple((row, name) for row, name in enumerate(table.device_rows) if ">" in name)
    between = [row for row, _ in ways]
    follow, own, bends = {}, {}, []
    for (pool, path), (low, high) in ends.items():
        value = number_of(cluster.pool(pool).chip, path)
        own[pool, path] = value
        touched = np.zeros_like(base, dtype=bool)
        straight = True
        for end in (low, high, (low + high) / 3):
            changed = device_array(table, _with(cluster, pool, path, end))[0]
            changed[between] = base[between]
            moved = changed != base
            touched |= moved
            with np.errstate(divide="ignore", invalid="ignore"):
                straight &= value > 0 and bool(np.allclose(changed[moved] / base[moved], end / value, rtol=1e-12, atol=0))
        entries = np.argwhere(touched)
        for end in (low, high):
            changed = device_array(table, _with(cluster, pool, path, end))[0]
            at = tuple(entries.T)
            straight &= bool(np.allclose(changed[at], base[at] * (end / value if value else 1.0), rtol=1e-12, atol=0))
        if straight:
            follow[pool, path] = entries
        elif touched.any():
            bends.append((pool, path))
    return Devices(base, follow, own, ways, tuple(bends))


def _with(cluster: Cluster, pool: str, path: str, value: float) -> Cluster:
    changed = (replace(p, chip=with_number(p.chip, path, value)) if p.name == pool else p for p in cluster.pools)
    return replace(cluster, pools=tuple(changed))


def varied(of: Devices, numbers: Numbers, cluster: Cluster) -> tuple[Ints, Array]:
    """Entries (n, 2) of the device array that vary, and their values (n, points)."""
    factors: dict[tuple[int, int], Array] = {}
    for key, values in numbers.chips.items():
        if key not in of.follow:
            continue
        factor = values / of.own[key]
        for row, column in of.follow[key].tolist():
            factors[row, column] = factors[row, column] * factor if (row, column) in factors else factor
    found = {at: of.base[at] * factor for at, factor in factors.items()}
    for row, name in of.ways:
        if _moves(name, numbers, cluster):
            found[row, c.LINK], found[row, c.LINK + 1] = way(name, numbers, cluster)
    if not found:
        return np.zeros((0, 2), dtype=np.int64), np.zeros((0, numbers.points))
    return np.array(list(found), dtype=np.int64), np.array([np.broadcast_to(row, numbers.points) for row in found.values()])


def _moves(name: str, numbers: Numbers, cluster: Cluster) -> bool:
    """Whether a way between pools depends on anything that varies."""
    ends = name.removeprefix("load:").split(">")
    wire = cluster.wires.index(cluster.wire(*ends))
    chips = any(pool in ends for pool, _ in numbers.chips)
    return chips or any(pool in numbers.counts for pool in ends) or any(index == wire for index, _ in numbers.wires)


def way(name: str, numbers: Numbers, cluster: Cluster) -> tuple[Array | float, Array | float]:
    """(bandwidth B/s, latency s) of a way between pools at every point; the law of `timing` over arrays."""
    source, target = (cluster.pool(part) for part in name.removeprefix("load:").split(">"))
    wire = cluster.wire(source.name, target.name)
    index = cluster.wires.index(wire)
    share = numbers.wire(index, "efficiency", float(wire.efficiency))
    bandwidth = numbers.wire(index, "bandwidth_bytes_per_s", float(wire.bandwidth_bytes_per_s))
    per = cluster.pool(wire.per or wire.to)
    other = source if per is target else target
    total: Array | float = bandwidth * numbers.count(per.name, cluster) * share
    if wire.over:
        link = other.chip.link(wire.over)
        own = numbers.chip(other.name, f"links.{link.name}.bandwidth", float(link.bandwidth_bytes_per_s))
        total = np.minimum(total, own * numbers.count(other.name, cluster) * share)
    if name.startswith("load:"):
        tier, chip = source.chip.main, source.chip
        path = f"memory.{tier.tier}"
        reach = (
            numbers.chip(source.name, "efficiency.memory", float(chip.efficiency.memory))
            if tier.efficiency is None else numbers.chip(source.name, f"{path}.efficiency", float(tier.efficiency))
        )  # fmt: skip
        reached = numbers.chip(source.name, f"{path}.bandwidth", float(tier.bandwidth_bytes_per_s)) * reach
        total = np.minimum(total, reached * numbers.count(source.name, cluster)) / numbers.count(target.name, cluster)
    return total, numbers.wire(index, "latency_s", float(wire.latency_s))


def host_s(numbers: Numbers, cluster: Cluster) -> Array:
    """Work of the host per step (s) at every point."""
    found = np.zeros(numbers.points)
    for pool in cluster.pools:
        found = np.maximum(found, numbers.chip(pool.name, "execution.step", float(pool.chip.execution.step_s or 0)))
    return found
