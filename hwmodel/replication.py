"""Redundant experts: the hottest experts stand in several slots, and the slots are packed on chips of equal load.

As the expert-parallel load balancer of DeepSeek (EPLB) plans it, in one group: replicate the expert whose replicas are the most
loaded until every slot is taken, then put slots, heaviest first, on the least loaded chip that has room (LPT). The load of an
expert is shared evenly by its replicas.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Placement:
    """Which experts stand on which chip."""

    replicas: Ints
    """(experts,) slots of each expert."""
    slots: tuple[tuple[int, ...], ...]
    """Experts of each chip, heaviest slot first."""

    def shares(self, loads: Array) -> list[Array]:
        """Loads of the slots of each chip, for loads (experts,) of the experts."""
        each = loads / self.replicas
        return [each[list(held)] for held in self.slots]

    def imbalance(self, loads: Array) -> float:
        """(max - mean) / mean of the chips' loads."""
        found = np.array([share.sum() for share in self.shares(loads)])
        return float(found.max() / found.mean() - 1) if found.any() else 0.0


def replicate(loads: Array, slots: int) -> Ints:
    """Slots of each expert, shape (experts,), at least one each, `slots` together.

    Raises
    ------
    ValueError
        With fewer slots than experts.
    """
    if slots < len(loads):
        raise ValueError(f"{slots} slots do not hold {len(loads)} experts")
    found = np.ones(len(loads), dtype=np.int64)
    queue = [(-load, expert) for expert, load in enumerate(loads.tolist())]
    heapq.heapify(queue)
    for _ in range(slots - len(loads)):
        _, expert = queue[0]
        found[expert] += 1
        heapq.heapreplace(queue, (-float(loads[expert]) / int(found[expert]), expert))
    return found


def place(loads: Array, slots: int, chips: int) -> Placement:
    """Replicate experts to `slots` slots and pack them on `chips` chips, ceil(slots / chips) on each at most.

    Parameters
    ----------
    loads
        (experts,) planned load of each, in any unit.

    Raises
    ------
    ValueError
        With fewer slots than experts.
    """
    replicas = replicate(loads, slots)
    each = loads / replicas
    room = -(-slots // chips)
    held: list[list[int]] = [[] for _ in range(chips)]
    free = [(0.0, chip) for chip in range(chips)]
    for expert in np.argsort(-each, kind="stable").tolist():
        for _ in range(replicas[expert]):
            load, chip = heapq.heappop(free)
            held[chip].append(expert)
            if len(held[chip]) < room:
                heapq.heappush(free, (load + float(each[expert]), chip))
    return Placement(replicas, tuple(tuple(chip) for chip in held))


def lower_bound(loads: Array, slots: int, chips: int) -> float:
    """No placement has a chip less loaded than the mean, nor than the heaviest slot that replication leaves."""
    return float(max(loads.sum() / chips, (loads / replicate(loads, slots)).max()))


def slots_bytes(slots: float, expert_bytes: float) -> float:
    """Bytes that `slots` slots take, replicas charged as what they copy: 32 beside 256 experts are 12.5 % more."""
    return slots * expert_bytes
