"""The plans that a search looks through: who holds what, how many chips of each, which degrees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hwmodel.goal import Goal
from hwmodel.hardware import Cluster, Pool, Wire
from hwmodel.model.architecture import Model
from hwmodel.optimize.held import Held, room
from hwmodel.partition import Strategy
from hwmodel.scenario import Scenario

PARTS = (1.0, 0.75, 0.5, 0.375, 0.25, 0.125, 0.0625)
"""Of a pool's chips: the sizes that are tried when a goal names none."""
TENSOR = (1, 2, 4, 8, 16)
"""Tensor degrees; in an expert also 3 and 6, which a compiled chip pads."""
IN_EXPERT = (1, 2, 3, 4, 6, 8)
CONTEXT = (2, 4, 8)
COLD = (0.25, 0.5, 0.75, 0.875)
"""Shares of the experts, those chosen least, that are kept elsewhere."""
SPLITS = (1, 2, 4, 8)
"""Experts per group of chips, at the least: groups are the experts over these, rounded up."""


@dataclass(frozen=True)
class Choice:
    """A plan but for its batch and micro-batches."""

    placement: str
    """Who holds what, in words."""
    cluster: Cluster
    strategies: tuple[dict[str, Any], ...]
    """As a scenario's plan states them, without micro-batches."""
    micro_batches: tuple[int, ...]
    """Parts that the batch may be cut into."""

    def stated(self, parts: int) -> list[dict[str, Any]]:
        """The plan as a scenario states it, with `parts` micro-batches."""
        found = []
        for item in self.strategies:
            kind, fields = next(iter(item.items()))
            cut = {"disaggregate": "micro_batches", "micro_batch": "count"}.get(kind)
            found.append({kind: {**fields, cut: parts}} if cut else item)
        return found

    def plan(self, parts: int) -> tuple[Strategy, ...]:
        """The strategies with `parts` micro-batches."""
        return tuple(
            Strategy.kinds[kind].model_validate(fields) for item in self.stated(parts) for kind, fields in item.items()
        )

    @property
    def label(self) -> str:
        """The plan in one line."""
        pools = " + ".join(f"{pool.count} x {pool.chip.name}" for pool in self.cluster.pools)
        found = []
        for item in self.strategies:
            kind, fields = next(iter(item.items()))
            if kind in _SHORT:
                where = f" {fields['pool']}" if len(self.cluster.pools) > 1 else ""
                found.append(f"{_SHORT[kind]}{fields['stages' if kind == 'pipeline' else 'degree']}{where}")
                if fields.get("tensor", 1) > 1:
                    found[-1] = f"EP{fields['degree']} x TP{fields['tensor']}{where}"
        return ", ".join([pools, self.placement, *found])


_SHORT = {"tensor": "TP", "expert": "EP", "context": "CP", "pipeline": "PP"}


def choices(scenario: Scenario, goal: Goal, held: Held) -> Iterator[Choice]:
    """Every plan of the space, whether it fits or not.

    All on one pool, or the experts (or all feed-forward parts) on another one, or the experts chosen least on a third one
    or in a slower memory, streamed or computed where they lie; for each pool the number of chips, tensor, expert and
    context degrees, the rest data parallel.
    """
    model, cluster = scenario.model, scenario.cluster
    moved = ("experts", "ffn") if _experts(model) else ("ffn",)
    for home in cluster.pools:
        for count in _sizes(home, goal):
            yield from _alone(scenario, goal, replace(home, count=count), held)
            if _experts(model) and _may_offload(goal, home, count, held.weights):
                yield from _outside(scenario, goal, replace(home, count=count))
        for other in cluster.pools:
            if other is home or not _joined(cluster, home, other):
                continue
            for what in moved:
                yield from _apart(scenario, goal, home, other, what, held)


def _alone(scenario: Scenario, goal: Goal, pool: Pool, held: Held) -> Iterator[Choice]:
    cluster, name = Cluster((pool,)), f"all on {pool.name}"
    overlap: dict[str, Any] = {"micro_batch": {}}
    for stages in _stages(scenario.model, goal, pool, held):
        piped = ({"pipeline": {"pool": pool.name, "stages": stages}},) if stages > 1 else ()
        group = replace(pool, count=pool.count // stages)
        splits = [{}, *_expert_splits(scenario.model, group.count)] if _experts(scenario.model) else [{}]
        for base in _dense(goal, group):
            for fields in splits:
                experts = ({"expert": {"pool": pool.name, **fields}},) if fields else ()
                yield Choice(name, cluster, (*base, *experts, *piped), (1,))
                if not piped and (fields or any("tensor" in item for item in base)):
                    yield Choice(f"{name}, two-batch overlap", cluster, (*base, *experts, overlap), (2,))


def _stages(model: Model, goal: Goal, pool: Pool, held: Held) -> list[int]:
    """Pipeline stages that a pool's chips may form."""
    tried = goal.pipeline == "always" or (goal.pipeline == "auto" and held.weights > room(pool) * max(TENSOR))
    return [n for n in range(1, (len(model.sequence) if tried else 1) + 1) if pool.count % n == 0]


def _outside(scenario: Scenario, goal: Goal, pool: Pool) -> Iterator[Choice]:
    """All on one pool but for experts in a slower memory of its own, or in another pool."""
    places: list[tuple[str, tuple[Pool, ...], dict[str, Any]]] = [
        (f"{tier.tier} of {pool.name}", (), {"tier": tier.tier}) for tier in pool.chip.memory[1:] if not tier.cache
        if tier is not pool.chip.main
    ]  # fmt: skip
    for other in scenario.cluster.pools:
        if other.name != pool.name and _joined(scenario.cluster, pool, other):
            far = replace(other, count=max(_sizes(other, goal)))
            places += [
                (f"{other.name}, computed there", (far,), {"to": other.name, "mode": "compute"}),
                (f"{other.name}, streamed one layer ahead", (far,), {"to": other.name, "prefetch": True}),
                (f"{other.name}, streamed when needed", (far,), {"to": other.name}),
            ]
    splits = [{}, *_expert_splits(scenario.model, pool.count)]
    for words, others, fields in places:
        cluster = Cluster((pool, *others), _wires(scenario.cluster, pool, *others))
        spread = tuple(
            {"expert": {"pool": other.name, "degree": other.count}}
            for other in others if fields.get("mode") == "compute" and 1 < other.count <= _experts(scenario.model)
        )  # fmt: skip
        for share in (*COLD, 1.0):
            kept = {"offload": {"pool": pool.name, **fields, "fraction": share}}
            for base in _dense(goal, pool):
                for split in splits:
                    own = ({"expert": {"pool": pool.name, **split}},) if split and share < 1 else ()
                    if bool(own) == bool(split):
                        yield Choice(f"{share:.4g} of the experts in {words}", cluster, (kept, *base, *own, *spread), (1,))


def _apart(scenario: Scenario, goal: Goal, home: Pool, other: Pool, what: str, held: Held) -> Iterator[Choice]:
    words = {"experts": "experts", "ffn": "feed-forward"}[what]
    for count, strategies in _far_sides(scenario.model, goal, other, what):
        for size in _sizes(home, goal):
            pools = (replace(home, count=size), replace(other, count=count))
            for base in _dense(goal, pools[0]):
                moved = {"disaggregate": {"move": what, "to": other.name}}
                cluster = Cluster(pools, _wires(scenario.cluster, *pools))
                yield Choice(f"{words} on {other.name}", cluster, (moved, *base, *strategies), goal.micro_batches)
                offload = what == "experts" and _may_offload(goal, other, count, held.experts)
                for third in scenario.cluster.pools if offload else ():
                    if third.name not in (home.name, other.name) and _joined(scenario.cluster, home, third):
                        yield from _hot_and_cold(scenario, goal, pools, third, (moved, *base, *strategies))


def _hot_and_cold(
    scenario: Scenario, goal: Goal, pools: tuple[Pool, Pool], third: Pool, strategies: tuple[dict[str, Any], ...]
) -> Iterator[Choice]:
    """The experts chosen most on the second pool, the others on a third one."""
    cold = replace(third, count=min(max(_sizes(third, goal)), _experts(scenario.model)))
    cluster = Cluster((*pools, cold), _wires(scenario.cluster, *pools, cold))
    for share in COLD:
        held = round(_experts(scenario.model) * share)
        kept = {"offload": {"pool": pools[1].name, "to": third.name, "mode": "compute", "fraction": share}}
        spread = {"expert": {"pool": third.name, "degree": min(cold.count, held)}}
        words = f"experts on {pools[1].name}, the coldest {share:.4g} of them on {third.name}"
        yield Choice(words, cluster, (kept, *strategies, spread), goal.micro_batches)


def _wires(cluster: Cluster, *pools: Pool) -> tuple[Wire, ...]:
    """The links between some of the pools."""
    names = {pool.name for pool in pools}
    return tuple(wire for wire in cluster.wires if {wire.from_, wire.to} <= names)


def _far_sides(model: Model, goal: Goal, pool: Pool, what: str) -> Iterator[tuple[int, tuple[dict[str, Any], ...]]]:
    """(chips, strategies) of a pool that holds the experts or the feed-forward parts."""
    allowed = set(goal.pools.get(pool.name, ()))
    if not _experts(model):
        for count in _sizes(pool, goal):
            for tensor in (n for n in TENSOR if count % n == 0):
                yield count, ({"tensor": {"pool": pool.name, "degree": tensor}},) if tensor > 1 else ()
        return
    for groups in _groups(model):
        for tensor in IN_EXPERT:
            count = groups * tensor
            if count <= pool.count and (count in allowed or not allowed):
                split = {"pool": pool.name, "degree": groups, **({"tensor": tensor} if tensor > 1 else {})}
                shared = ({"tensor": {"pool": pool.name, "degree": tensor}},) if what == "ffn" and tensor > 1 else ()
                yield count, (*(({"expert": split},) if count > 1 else ()), *shared)


def _dense(goal: Goal, pool: Pool) -> Iterator[tuple[dict[str, Any], ...]]:
    """Strategies for the parts outside experts: tensor and context degrees that divide the chips."""
    reach = max((link.domain for link in pool.chip.links), default=1)
    for tensor in TENSOR:
        for context in (1, *CONTEXT) if goal.context_parallel and tensor == 1 else (1,):
            if pool.count % (tensor * context) == 0 and tensor * context <= reach:
                named = (("tensor", tensor), ("context", context))
                yield tuple({kind: {"pool": pool.name, "degree": n}} for kind, n in named if n > 1)


def _expert_splits(model: Model, count: int) -> Iterator[dict[str, int]]:
    """Expert groups, and chips in a group, that a pool's chips form: every chip works on experts."""
    for tensor in IN_EXPERT:
        if count % tensor == 0 and 1 < count // tensor <= _experts(model):
            yield {"degree": count // tensor, **({"tensor": tensor} if tensor > 1 else {})}


def _groups(model: Model) -> list[int]:
    """Groups of chips over which the experts may be spread."""
    return sorted({-(-_experts(model) // each) for each in SPLITS})


def _may_offload(goal: Goal, pool: Pool, count: int, weights: float) -> bool:
    """Whether experts may be kept outside a pool of so many chips: always, never, or when its memory does not hold them."""
    return goal.offload == "always" or (goal.offload == "auto" and weights > room(pool) * count)


def _experts(model: Model) -> int:
    """Routed experts of a layer; 0 for a dense model."""
    return max((int(getattr(layer.ffn, "experts", 0)) for layer in model.kinds), default=0)


def _sizes(pool: Pool, goal: Goal) -> Sequence[int]:
    if pool.name in goal.pools:
        return [count for count in goal.pools[pool.name] if count <= pool.count]
    found = {round(pool.count * part) for part in PARTS if round(pool.count * part) >= 1}
    return sorted(found, reverse=True)


def _joined(cluster: Cluster, one: Pool, other: Pool) -> bool:
    return any({wire.from_, wire.to} == {one.name, other.name} for wire in cluster.wires)
