"""What every op of a scenario takes on every pool, and every tensor between two pools.

Each pool keeps the degrees that the scenario's plan gives it (tensor, expert, context, data); what the plan says about
places is left open. An op is priced where the whole model is placed on its pool, the routed experts' exchanges where they
are moved from one pool to another, so that a placement which a plan can state takes what `run` says of that plan with one
micro-batch, one op after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels import kinds
from hwmodel.lower.decoder import lower
from hwmodel.memory import cache_bytes, memory
from hwmodel.partition import Strategy, partition
from hwmodel.partition.data import data_degrees
from hwmodel.partition.strategy import transfer_op
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.timing import device_array, operand_type, pack, points, price
from hwmodel.workload import Workload

SHARDING = ("tensor", "expert", "context", "data")
"""Strategies that say how a pool shares its work, wherever it comes from."""
PLACING = ("single", "disaggregate", "micro_batch", "offload")
"""Strategies that placement decides about itself."""
Pair = tuple[str, str]


@dataclass
class PoolCosts:
    """One pool, with the whole model on it."""

    name: str
    capacity_bytes: float
    """Of one chip's main memory, less reserve and room for activations."""
    seconds: dict[str, float] = field(default_factory=dict)
    """One execution of each op, the collectives behind it included; inf where the chip cannot multiply its types."""
    exchange: dict[Pair, float] = field(default_factory=dict)
    """Dispatch to the experts and back, by the edge they stand on."""
    collectives: dict[str, float] = field(default_factory=dict)
    """Seconds of the other collectives of one layer, by segment."""
    bytes: dict[str, float] = field(default_factory=dict)
    """Weights and caches of each op on one chip, all layers together."""


@dataclass(frozen=True)
class Streamed:
    """Routed experts on one pool whose weights lie in the memory of another and come over the link for every layer."""

    pool: str
    """That computes."""
    home: str
    """That stores."""
    seconds: Mapping[str, float]
    """One execution of each expert op, the load of its weights before it."""
    bytes: Mapping[str, float]
    """On one chip of `home`, all layers together. The room for one layer's weights on `pool` is not counted."""


@dataclass(frozen=True)
class Prices:
    """What placement rests on; `hwmodel.optimize.costs` makes a problem of it."""

    graph: OpGraph
    """As lowered, on no pool."""
    symbols: Mapping[str, float]
    """Of the workload."""
    pools: tuple[PoolCosts, ...]
    crossing: Mapping[tuple[str, str], Mapping[str, float]]
    """(from, to) -> seconds that the output of each op takes from pool to pool; inf without a link."""
    experts: Mapping[tuple[str, str], Mapping[Pair, float]]
    """(attention's pool, experts' pool) -> seconds on the edges into and out of the routed experts."""
    streamed: Mapping[str, Streamed]
    """Experts computed on the first pool, their weights brought from another; by that pool's name."""
    notes: tuple[str, ...]


def prices(scenario: Scenario) -> Prices:
    """Price every op on every pool, and every tensor on every way, at the scenario's point with one micro-batch.

    A pool of several chips that the plan shards neither by expert nor by tensor spreads the experts over as many groups as
    divide it.

    Raises
    ------
    InputError
        When the plan has strategies that neither shard a pool nor place ops, such as pipelines and splits by layers.
    """
    work, cluster = scenario.workload, scenario.cluster
    for strategy in scenario.plan:
        if strategy.kind not in SHARDING + PLACING:
            raise InputError(
                f"placement: the plan's '{strategy.kind}' is none of {', '.join(SHARDING + PLACING)}; "
                "a step is placed whole, one op after another: take it out of the plan"
            )
    graph = lower(scenario.model, work.phase, scenario.formats, work.drafts)
    notes: list[str] = []
    plans = {pool.name: _sharding(scenario, graph, pool, notes) for pool in cluster.pools}
    pools = tuple(_home(graph, scenario, pool, plans[pool.name], notes) for pool in cluster.pools)
    home = {pool.name: pool for pool in pools}
    crossing: dict[tuple[str, str], dict[str, float]] = {}
    experts: dict[tuple[str, str], dict[Pair, float]] = {}
    for one in home:
        for other in home:
            if one == other:
                continue
            joined = any({wire.from_, wire.to} == {one, other} for wire in cluster.wires)
            crossing[one, other] = _crossing(graph, cluster, work, one, other) if joined else {}
            experts[one, other] = _apart(graph, scenario, home, one, other, plans) if joined else {}
    first = cluster.pools[0].name
    streamed = {
        other: _streamed(graph, scenario, home[first], other, plans[first])
        for other in home
        if crossing.get((first, other)) and any(op.experts for op in graph.ops())
    }
    return Prices(graph, work.symbols(), pools, crossing, experts, streamed, tuple(dict.fromkeys(notes)))


def _sharding(scenario: Scenario, graph: OpGraph, pool: Pool, notes: list[str]) -> list[Strategy]:
    """The strategies that shard a pool; experts are spread where none says how."""
    first = scenario.cluster.pools[0].name
    mine = [s for s in scenario.plan if s.kind in SHARDING and (getattr(s, "pool", "") or first) == pool.name]
    held = max((op.experts.held for op in graph.ops() if op.experts), default=0)
    if held and pool.count > 1 and not any(s.kind in ("expert", "tensor") for s in mine):
        groups = max(n for n in range(1, min(held, pool.count) + 1) if pool.count % n == 0)
        mine.append(Strategy.kinds["expert"].model_validate({"pool": pool.name, "degree": groups}))
        notes.append(f"pool {pool.name}: the plan does not say how it shares the experts; {groups} groups are taken")
    return mine


def _placed(graph: OpGraph, cluster: Cluster, plan: Iterable[Strategy], home: str) -> OpGraph:
    """The graph with everything on `home`, then the plan."""
    return partition(graph, [Strategy.kinds["single"].model_validate({"pool": home}), *plan], cluster)


def _timed(graph: OpGraph, cluster: Cluster, work: Workload) -> dict[str, float]:
    """Seconds of one layer's executions of each op; inf where the chip multiplies none of its types."""
    never = set()
    for op in graph.ops():
        if op.kind in ("transfer", "load") or not getattr(kinds()[op.kind], "MATRIX", True):
            continue
        chip = cluster.pool(op.pool).chip
        try:
            operand_type(chip, op.compute)
        except InputError:
            never.add(op.name)
            graph.put(replace(op, compute=tuple(chip.peaks.by_dtype())))
    table = pack(graph, cluster, work.routing)
    point = points(table, graph.symbols(work.symbols()))
    priced = price(table, point, device_array(table, cluster))[0]
    return {
        op.name: float("inf") if op.name in never else float(row[c.TIME]) * op.repeats.value({})
        for op, row in zip(table.ops, priced, strict=True)
    }


def _home(graph: OpGraph, scenario: Scenario, pool: Pool, plan: Sequence[Strategy], notes: list[str]) -> PoolCosts:
    """Everything on one pool; nothing can run on it when its degrees do not divide its chips.

    Other reasons why the whole model could not run there are notes: a part of it may.
    """
    work, cluster = scenario.workload, scenario.cluster
    placed = _placed(graph, cluster, plan, pool.name)
    notes += [f"all on one pool: {reason}" for reason in placed.reasons]
    wrong = any(reason.startswith(f"pool {pool.name}:") for reason in data_degrees(placed.degrees, cluster)[1])
    timed = _timed(placed, cluster, work)
    symbols = placed.symbols(work.symbols())
    main = pool.chip.main.tier
    room = next(row for row in memory(placed, cluster, work) if (row.pool, row.tier) == (pool.name, main))
    found = PoolCosts(pool.name, room.capacity_bytes - room.reserve_bytes - room.activation_bytes)
    for op in graph.ops():
        here = placed.op(op.name)
        once = 1 if op.segment in ("head", "draft", "embedding") else graph.segment(op.segment).count
        held = sum(stored.bytes(symbols) for stored in here.stored) + cache_bytes(here, symbols, work)
        found.bytes[op.name] = held * once
        found.seconds[op.name] = float("inf") if wrong else timed[op.name]
    for op in placed.ops(lambda op: op.name not in graph.nx):
        source = _base(graph, placed, op.name)
        if op.family in ("expert_dispatch", "expert_combine"):
            for reader in _ends(graph, placed, op.name):
                found.exchange[source, reader] = found.exchange.get((source, reader), 0.0) + timed[op.name]
        else:
            found.seconds[source] += timed[op.name]
            found.collectives[op.segment] = found.collectives.get(op.segment, 0.0) + timed[op.name]
    return found


def _base(graph: OpGraph, placed: OpGraph, name: str) -> str:
    """The op of the model whose output an inserted op works on."""
    while name not in graph.nx:
        name = placed.inputs(name)[0]
    return name


def _ends(graph: OpGraph, placed: OpGraph, name: str) -> set[str]:
    """The ops of the model that read an inserted op's output, others inserted between."""
    return {
        end
        for reader in placed.readers(name)
        for end in ([reader] if reader in graph.nx else _ends(graph, placed, reader))
    }  # fmt: skip


def _crossing(graph: OpGraph, cluster: Cluster, work: Workload, one: str, other: str) -> dict[str, float]:
    """Seconds of every op's output from one pool to another."""
    ways = OpGraph(graph.model, graph.segments, graph.sequence)
    for op in graph.ops():
        ways.add(transfer_op(cluster, op.name, replace(op, pool=one), other, op.out, op.out_bytes))
    return _timed(ways, cluster, work)


def _apart(
    graph: OpGraph, scenario: Scenario, home: Mapping[str, PoolCosts], one: str, other: str, plans: Mapping[str, list[Strategy]]
) -> dict[Pair, float]:
    """Seconds on the edges around the experts when they lie on `other` and the rest on `one`.

    With them goes what the absence of experts changes in the collectives of `one`. Tokens are copied as the plan's
    `disaggregate` says; in the way that takes less where there is none.
    """
    edges = [pair for pair in graph.nx.edges if (graph.op(pair[0]).role == "experts") != (graph.op(pair[1]).role == "experts")]
    if not edges:
        return {}
    stated = [str(getattr(strategy, "copies", "")) for strategy in scenario.plan if strategy.kind == "disaggregate"]
    plan = [*(s for s in plans[one] if s.kind != "expert"), *plans[other]]
    ways = []
    for copies in stated or ["per_expert", "hidden"]:
        moved = Strategy.kinds["disaggregate"].model_validate({"to": other, "move": "experts", "copies": copies})
        placed = _placed(graph, scenario.cluster, [moved, *plan], one)
        ways.append(_around(graph, scenario, placed, home[one], edges))
    return min(ways, key=lambda way: sum(way.values()))


def _around(graph: OpGraph, scenario: Scenario, placed: OpGraph, home: PoolCosts, edges: Sequence[Pair]) -> dict[Pair, float]:
    """Seconds on the given edges of a graph whose experts lie on another pool than `home`."""
    timed = _timed(placed, scenario.cluster, scenario.workload)
    found: dict[Pair, float] = {}
    left = {op.name for op in placed.ops(lambda op: op.name not in graph.nx)}
    change = {segment.name: -home.collectives.get(segment.name, 0.0) for segment in graph.segments}
    for source, target in edges:
        between = [name for name in left if _base(graph, placed, name) == source and target in _ends(graph, placed, name)]
        found[source, target] = sum(timed[name] for name in between)
        left -= set(between)
    for name in left:
        op = placed.op(name)
        change[op.segment] += timed[name] if op.kind != "transfer" else 0.0
    for source, target in edges:
        segment = graph.op(source).segment
        if graph.op(source).role == "experts":
            found[source, target] += change[segment]
            change[segment] = 0.0
    return found


def _streamed(graph: OpGraph, scenario: Scenario, pool: PoolCosts, other: str, plan: Sequence[Strategy]) -> Streamed:
    """The experts on the first pool with their weights in the memory of another, each layer's brought when it is reached."""
    cluster = scenario.cluster
    far = Strategy.kinds["offload"].model_validate({"to": other, "mode": "stream"})
    placed = _placed(graph, cluster, [far, *plan], pool.name)
    timed = _timed(placed, cluster, scenario.workload)
    seconds = {op.name: pool.seconds[op.name] for op in graph.ops(lambda op: op.role == "experts")}
    held = dict.fromkeys(seconds, 0.0)
    for load in placed.ops(lambda op: op.kind == "load"):
        op = load.name.removesuffix(".load")
        seconds[op] += timed[load.name]
        whole = sum(s.elements.exact({}) * s.copies.exact({}) * s.bytes_per_element for s in load.base_stored)
        held[op] = whole * graph.segment(load.segment).count / cluster.pool(other).count
    return Streamed(pool.name, other, seconds, held)
