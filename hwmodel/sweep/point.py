"""One point of a space as the scenario that `run` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwmodel.hardware import Pool, with_number
from hwmodel.routing import Routing
from hwmodel.scenario import Scenario
from hwmodel.sweep.space import Field, Space


def scenario_at(space: Space, row: Mapping[str, Any]) -> Scenario:
    """The scenario of a point from a row of its table, ``Table.row(index)``."""
    which = 0
    for g in space.structural:
        group = space.groups[g]
        axis = space.axes[group[0]]
        which = which * space.size(group) + (axis.values if axis.numeric else axis.labels).index(row[group[0]])
    scenario = space.combinations[which].scenario
    routing = {path.rpartition(".")[2]: row[path] for path in space.axes if path.startswith("workload.routing.")}
    if routing:
        base = space.routings[0].model_dump()
        scenario = _work(scenario, {"routing": Routing.model_validate({**base, **routing})})
    for path, own in space.combinations[which].fields.items():
        scenario = with_field(scenario, own, row[path])
    return scenario


def with_field(scenario: Scenario, own: Field, value: float) -> Scenario:
    """The scenario with one number of a point put in."""
    cluster = scenario.cluster
    if own.kind == "workload":
        return _work(scenario, {own.of: int(value)})
    if own.kind == "wire":
        wires = list(cluster.wires)
        index = int(own.of)
        wires[index] = wires[index].model_copy(update={own.path: getattr(wires[index], own.path).at(value)})
        return replace(scenario, cluster=replace(cluster, wires=tuple(wires)))
    if own.kind == "micro":
        plan = list(scenario.plan)
        name = "count" if plan[int(own.of)].kind == "micro_batch" else "micro_batches"
        plan[int(own.of)] = plan[int(own.of)].model_copy(update={name: int(value)})
        return replace(scenario, plan=tuple(plan))
    pools = tuple(_pool(pool, own, value) if pool.name == own.of else pool for pool in cluster.pools)
    return replace(scenario, cluster=replace(cluster, pools=pools))


def _pool(pool: Pool, own: Field, value: float) -> Pool:
    if own.kind == "count":
        return replace(pool, count=int(value))
    if own.kind == "reserve":
        return replace(pool, memory_reserve=value)
    return replace(pool, chip=with_number(pool.chip, own.path, value))


def _work(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    return replace(scenario, workload=scenario.workload.model_copy(update=dict(changes)))
