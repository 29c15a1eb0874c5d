"""Which tensors, experts and caches go to which memory tier: every way that fits is priced, the quickest kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from hwmodel.answered import Answered
from hwmodel.kernels import columns as c
from hwmodel.memory import cache_bytes, memory, misfits
from hwmodel.partition import Strategy
from hwmodel.partition.keep import ROLES
from hwmodel.placing import place
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario, loaded
from hwmodel.spec.errors import InputError

COLD = (0.0, 0.25, 0.5, 0.75, 0.875, 1.0)
"""Shares of the experts, those chosen least, that leave the first tier."""
OUTSIDE = "_outside"


@dataclass(frozen=True)
class Held:
    """Tensors of a kind on one chip."""

    what: str
    tier: str
    bytes: float
    read_bytes: float
    """Per step."""

    @property
    def reads_per_step(self) -> float:
        """How often a step reads what is held, in the mean: the more, the faster a memory it deserves."""
        return self.read_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class TierPlan(Answered):
    """The quickest way that fits, and how many ways there were."""

    plan: tuple[dict[str, Any], ...]
    """Strategies to add to the scenario's plan; empty when all lies in the first tier."""
    result: Result | None
    """`run` under it; None when no way fits."""
    held: tuple[Held, ...]
    ways: int
    fitting: int
    """Ways that fit and would not if any of what they move stayed."""
    others: tuple[tuple[tuple[dict[str, Any], ...], float], ...]
    """The runners-up with their step times in s."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel fit --tiers --json`` prints it."""
        return {
            "plan": list(self.plan), "ways": self.ways, "fitting": self.fitting,
            "step": asdict(self.result.step) if self.result else None,
            "held": [{**asdict(row), "reads_per_step": row.reads_per_step} for row in self.held],
            "others": [{"plan": list(plan), "step_s": time} for plan, time in self.others],
        }  # fmt: skip


def tiers(scenario: Scenario | str) -> TierPlan:
    """The quickest way to keep a scenario's tensors in the tiers of its first pool's chips, its plan and batch as they are.

    Weights of attention, of dense and shared feed-forward parts, of embeddings, the caches, and the experts (the share of
    them chosen least) each go to one tier. Every combination is looked at; those that move more than one that fits are no
    quicker, since tiers are listed fastest first, and are not priced. A name or path stands for its scenario.

    Raises
    ------
    InputError
        When the chip has one tier only.
    """
    scenario = loaded(scenario)
    chip = scenario.cluster.pools[0].chip
    names = [tier.tier for tier in chip.memory if not tier.cache]
    if len(names) < 2:
        raise InputError(
            f"chip {chip.name} has one memory tier, {names[0]}: nothing to choose; a second entry of memory makes two"
        )
    found: list[tuple[float, tuple[dict[str, Any], ...]]] = []
    fitting: list[dict[str, tuple[str, float]]] = []
    ways = 0
    for extra in sorted(_ways(scenario, names), key=lambda way: (len(way), sum(_moved(way)[what][1] for what in _moved(way)))):
        ways += 1
        if any(_within(less, _moved(extra)) for less in fitting):
            continue
        own = with_plan(scenario, extra)
        graph = place(own)
        if graph.reasons or misfits(memory(graph, own.cluster, own.workload), own.cluster):
            continue
        fitting.append(_moved(extra))
        found.append((run(own, ranges=False).step.time_s, extra))
    found.sort(key=lambda item: (item[0], len(item[1])))
    if not found:
        return TierPlan((), None, (), ways, 0, ())
    result = run(with_plan(scenario, found[0][1]))
    others = tuple((plan, time) for time, plan in found[1:6])
    return TierPlan(found[0][1], result, tuple(_held(result)), ways, len(found), others)


def _moved(way: Sequence[dict[str, Any]]) -> dict[str, tuple[str, float]]:
    """(tier, share) of what leaves the first tier."""
    return {
        str(fields.get("what", "experts")): (fields["tier"], float(fields.get("fraction", 1.0)))
        for item in way for fields in item.values()
    }  # fmt: skip


def _within(less: dict[str, tuple[str, float]], more: dict[str, tuple[str, float]]) -> bool:
    """Whether a way moves nothing that another one does not move to the same tier: it is then no slower."""
    return all(what in more and more[what][0] == tier and more[what][1] >= share for what, (tier, share) in less.items())


def with_plan(scenario: Scenario, extra: Sequence[dict[str, Any]]) -> Scenario:
    """The scenario with strategies added to its plan."""
    more = tuple(Strategy.kinds[kind].model_validate(fields) for item in extra for kind, fields in item.items())
    return replace(scenario, plan=(*scenario.plan, *more))


def _ways(scenario: Scenario, names: Sequence[str]) -> Iterator[tuple[dict[str, Any], ...]]:
    """Every way to put the kinds of tensors that the model has into the tiers."""
    ops = list(place(scenario).ops())
    kinds = [what for what, roles in ROLES.items() if what != "experts" and any(op.role in roles and op.stored for op in ops)]
    kinds += ["kv"] if any(op.kept is not None for op in ops) else []
    main, *slower = names
    experts: list[tuple[dict[str, Any], ...]] = [()]
    if any(op.experts for op in ops):
        experts += [({"offload": {"tier": tier, "fraction": share}},) for share in COLD[1:] for tier in slower]
    for cold in experts:
        for where in product(names, repeat=len(kinds)):
            kept = ({"keep": {"what": what, "tier": tier}} for what, tier in zip(kinds, where, strict=True) if tier != main)
            yield (*cold, *kept)


def _held(result: Result) -> list[Held]:
    """What lies where on a chip of the first pool, most often read first."""
    placed = result.placed
    pool, work = placed.scenario.cluster.pools[0], placed.scenario.workload
    main = next(tier.tier for tier in pool.chip.memory if not tier.cache)
    symbols = placed.graph.symbols(work.symbols())
    words = {role: what for what, roles in ROLES.items() for role in roles}
    total: dict[tuple[str, str], list[float]] = {}
    for op, priced in zip(placed.table.ops, placed.priced, strict=True):
        if op.pool != pool.name:
            continue
        segment = placed.graph.segment(op.segment).count
        times = segment * op.repeats.value({}) * result.step.micro_batches
        weights = sum(stored.bytes(symbols) for stored in op.stored) * (1 if op.segment == "head" else segment)
        what = words.get(op.role, "other weights")
        if what == "experts" and op.name.endswith(OUTSIDE):
            what = "experts chosen least"
        rows = [(what, op.tier or main, weights, priced[c.WEIGHT_BYTES])]
        if op.kept is not None:
            rows.append(("KV", op.kv_tier or main, cache_bytes(op, symbols, work) * segment, priced[c.KV_BYTES]))
        for name, tier, held, read in rows:
            sums = total.setdefault((name, tier), [0.0, 0.0])
            sums[0], sums[1] = sums[0] + held, sums[1] + float(read) * times
    found = [Held(name, tier, held, read) for (name, tier), (held, read) in total.items() if held > 0]
    return sorted(found, key=lambda row: -row.reads_per_step)
