"""Experts outside the fast memory: what a cache of some would serve, and where an expert is the quicker to compute.

By closed forms on what the chips reach, one expert at a time; `run` under `offload` prices a whole step with its queues.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hwmodel.answered import Answered
from hwmodel.graph import Op
from hwmodel.hardware import Chip
from hwmodel.optimize import caches, offload
from hwmodel.placing import place
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError

SHARES = (0.125, 0.25, 0.5, 0.75)
"""Of the experts of a layer that a cache holds."""


@dataclass(frozen=True)
class Cache:
    """A cache of so many experts of every layer, one for each."""

    experts: int
    lfu: float
    """Hit rate of the most popular ones, kept for good."""
    lru: float
    """Of those used last, requests one by one (Che's approximation)."""
    step: float
    """Most of the experts of one step that it can hold, whatever its policy: C / D(B)."""


@dataclass(frozen=True)
class Place:
    """Another pool that can hold the experts, one chip of either."""

    near: str
    """Pool whose memory holds them."""
    bring_s: float
    """One expert with the mean tokens of those asked for: weights over the link, then computed on the fast chip."""
    compute_s: float
    """The same where it lies."""
    crossing_tokens: float | None
    """Tokens from which bringing is the quicker; None when it never is."""
    brought: int
    """Of a layer's experts that this step asks for, those that are better brought."""
    one_by_one_s: float
    """The experts that a layer asks for, each where it is quicker, one after the other."""
    side_by_side_s: float
    """The same with both places at work at once, at most one expert divided between them."""


@dataclass(frozen=True)
class Outside(Answered):
    """The routed experts of a scenario, seen from the fast memory."""

    experts: int
    topk: float
    tokens: float
    """Of the step."""
    distinct: float
    """Experts of a layer that it asks for, expected."""
    expert_bytes: float
    caches: tuple[Cache, ...]
    places: tuple[Place, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel fit --experts --json`` prints it."""
        return asdict(self)


def outside(scenario: Scenario) -> Outside:
    """Hit rates by the scenario's routing, and for every pool that a link joins to the first one where experts run quicker.

    Of the kind of layer that occurs most. A layer asks for the expected number of experts, the likeliest ones, and all tokens
    go to them by the routing's shares.

    Raises
    ------
    InputError
        When the model has no routed experts.
    """
    graph = place(replace(scenario, plan=()))
    ops = list(graph.ops(lambda op: op.kind == "experts" and op.experts is not None))
    if not ops:
        raise InputError(f"model {scenario.model.name} has no routed experts")
    segment = max((op.segment for op in ops), key=lambda name: graph.segment(name).count)
    own = [op for op in ops if op.segment == segment]
    total, topk = (own[0].experts.total, own[0].experts.topk) if own[0].experts else (0, 0.0)
    chosen, tokens = scenario.workload.routing.inclusion(total, topk), _tokens(scenario)
    params = sum(stored.elements.exact({}) for op in own for stored in op.stored)
    width = own[0].stored[0].bytes_per_element
    hit = float((1 - (1 - chosen) ** tokens).sum())
    held = sorted({max(1, round(share * total)) for share in SHARES})
    rows = [
        Cache(n, caches.lfu_hit(chosen / topk, n), caches.lru_hit(chosen / topk, n), caches.batch_bound(n, hit)) for n in held
    ]
    asked = np.sort(chosen)[::-1][: max(1, round(hit))]
    loads = (tokens * topk * asked / asked.sum()).tolist()
    places = [_place(scenario, own[0], near.name, (params, width), loads) for near in scenario.cluster.pools[1:]
              if _joined(scenario, near.name)]  # fmt: skip
    return Outside(total, topk, tokens, hit, params * width, tuple(rows), tuple(places))


def _tokens(scenario: Scenario) -> float:
    work = scenario.workload
    return float(work.batch * (work.new_tokens if work.phase == "prefill" else 1))


def _joined(scenario: Scenario, near: str) -> bool:
    first = scenario.cluster.pools[0].name
    return any({wire.from_, wire.to} == {first, near} for wire in scenario.cluster.wires)


def _place(scenario: Scenario, op: Op, near: str, size: tuple[float, float], loads: list[float]) -> Place:
    fast, other = scenario.cluster.pools[0], scenario.cluster.pool(near)
    wire = scenario.cluster.wire(fast.name, near)
    link = offload.Link(float(wire.bandwidth_bytes_per_s) * float(wire.efficiency), float(wire.latency_s))
    moved = 2 * scenario.model.hidden * scenario.formats.activations.bytes
    one = offload.Offloaded(*size, moved, _reached(fast.chip, op), _reached(other.chip, op), link)
    mean, crossing = float(np.mean(loads)), one.crossing()
    each, both = offload.assign(loads, one), offload.assign(loads, one, side_by_side=True)
    return Place(
        near, one.move_s(mean), one.near_s(mean), None if math.isinf(crossing) else crossing, round(sum(each.fast)),
        each.seconds, both.seconds,
    )  # fmt: skip


def _reached(chip: Chip, op: Op) -> offload.Device:
    """Peak of the first type that the chip multiplies, and its main memory's bandwidth, as well-written kernels reach them."""
    peaks, main = chip.peaks.by_dtype(), chip.main
    known = [name for name in op.compute if name in peaks]
    if not known:
        raise InputError(f"chip {chip.name} multiplies {', '.join(peaks)}, not {', '.join(op.compute)}")
    share = chip.efficiency.memory if main.efficiency is None else main.efficiency
    return offload.Device(
        float(peaks[known[0]]) * float(chip.efficiency.compute), float(main.bandwidth_bytes_per_s) * float(share)
    )
