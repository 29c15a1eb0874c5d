"""Whether the parts of a scenario fit together: links between pools that exist, strategies that do not contradict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hwmodel.goal import Goal
from hwmodel.hardware import Pool, Wire
from hwmodel.partition import Strategy
from hwmodel.spec.errors import Problem, did_you_mean, shortened
from hwmodel.spec.yamlfile import Document, Path_


def wrong_wires(wires: Sequence[Wire], pools: Mapping[str, Pool | None], document: Document) -> list[Problem]:
    """What is wrong with the ends of the links between pools.

    pools : by name; None for a pool that could not be read
    """
    return [problem for index in range(len(wires)) for problem in _wrong_wire(index, wires, pools, document)]


def _wrong_wire(index: int, wires: Sequence[Wire], pools: Mapping[str, Pool | None], document: Document) -> list[Problem]:
    wire, at = wires[index], ("cluster", "links", index)
    found = [
        document.problem((*at, key), f"no pool named '{shortened(name)}'{did_you_mean(name, pools)}")
        for key, name in (("from", wire.from_), ("to", wire.to), ("per", wire.per))
        if name not in pools and (name or key != "per")
    ]
    if found:
        return found
    ends = {wire.from_, wire.to}
    if len(ends) == 1:
        return [document.problem(at, f"joins pool {wire.to} to itself; links inside a pool are those of its chip")]
    if wire.per and wire.per not in ends:
        message = f"must be one of the two ends, {wire.from_} or {wire.to}; got '{wire.per}'"
        return [document.problem((*at, "per"), message)]
    other = pools[wire.from_ if (wire.per or wire.to) == wire.to else wire.to]
    links = [link.name for link in other.chip.links] if other else []
    if other and wire.over and wire.over not in links:
        message = (
            f"{other.chip.name} of pool {other.name} has no link '{shortened(wire.over)}'; it has {', '.join(links) or 'none'}"
        )
        return [document.problem((*at, "over"), message)]
    first = next((number for number, other in enumerate(wires[:index]) if {other.from_, other.to} == ends), None)
    if first is not None:
        message = f"joins {wire.from_} and {wire.to}, as links[{first}] does; one link carries both ways"
        return [document.problem(at, message)]
    return []


def wrong_plan(plan: Sequence[Strategy], pools: Mapping[str, Pool | None], document: Document) -> list[Problem]:
    """What is wrong with the plan in this cluster: pools it lacks, strategies that stand in the plan already.

    pools : by name, the first one first; None for one that could not be read
    """
    found = []
    for index, strategy in enumerate(plan):
        found += _wrong_pools(index, plan, list(pools), document)
        owner = pools.get(getattr(strategy, "pool", "") or next(iter(pools)))
        if owner is not None and strategy.kind in ("offload", "keep"):
            found += _wrong_tier(index, strategy, owner, document)
    return found


def wrong_goal(goal: Goal, pools: Sequence[str], document: Document) -> list[Problem]:
    """Pools that a search is to size and the cluster lacks."""
    return [
        document.problem(("goal", "pools", name), f"no pool named '{shortened(name)}'{did_you_mean(name, pools)}", at_key=True)
        for name in goal.pools
        if name not in pools
    ]


def _wrong_pools(index: int, plan: Sequence[Strategy], pools: Sequence[str], document: Document) -> list[Problem]:
    strategy = plan[index]
    at: Path_ = ("plan", index, strategy.kind)
    named = [((*at, key), getattr(strategy, key)) for key in ("pool", "to") if getattr(strategy, key, "")]
    named += [((*at, "split", key), key) for key in getattr(strategy, "split", {})]
    found = [
        document.problem(place, f"no pool named '{shortened(name)}'{did_you_mean(name, pools)}")
        for place, name in named
        if name not in pools
    ]
    scope = _scope(strategy, pools[0])
    first = next((number for number, other in enumerate(plan[:index]) if _scope(other, pools[0]) == scope), None)
    if first is not None:
        where = f" for pool {scope[1]}" if scope[1] else ""
        message = f"plan[{first}] is '{strategy.kind}'{where} already; keep one of them"
        found.append(document.problem(at, message))
    return found


def _scope(strategy: Strategy, first: str) -> tuple[str, str, str]:
    """What a strategy decides about: two of the same kind and scope contradict one another."""
    by_pool = "pool" in type(strategy).model_fields and strategy.kind != "single"
    pool = (getattr(strategy, "pool", "") or first) if by_pool else ""
    return strategy.kind, pool, getattr(strategy, "move", "") or getattr(strategy, "what", "")


def _wrong_tier(index: int, strategy: Strategy, owner: Pool, document: Document) -> list[Problem]:
    """Tensors kept in a memory that the chip lacks, or experts outside in the very pool that works on them."""
    at: Path_ = ("plan", index, strategy.kind)
    tier, to = getattr(strategy, "tier", ""), getattr(strategy, "to", "")
    tiers = [known.tier for known in owner.chip.memory if not known.cache]
    if tier and tier not in tiers:
        message = f"chip {owner.chip.name} keeps nothing in a tier '{shortened(tier)}'{did_you_mean(tier, tiers)}"
        return [document.problem((*at, "tier"), message)]
    if to == owner.name:
        message = f"pool {to} has the experts already; name another pool, or a tier"
        return [document.problem((*at, "to"), message)]
    return []
