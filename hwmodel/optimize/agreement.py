"""A plan against the placement of every op by itself, which has the least latency of one micro-batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hwmodel.graph import OpGraph
from hwmodel.optimize.costs import BestPlacement, best_placement
from hwmodel.optimize.problem import Problem
from hwmodel.result import Result
from hwmodel.spec.errors import InputError, InternalError

ONE_POOL = "one pool: there is nothing to choose between"


def agreement(result: Result) -> dict[str, Any]:
    """Where dynamic programming or HiGHS puts each op class of an answer, for one micro-batch of it.

    The placement has the least latency, one op after another; a plan may rightly differ where it seeks throughput. It never
    fails: what cannot be placed is said in the notes.
    """
    own, parts = result.placed.scenario, result.step.micro_batches
    one = replace(own, workload=own.workload.model_copy(update={"batch": -(-own.workload.batch // parts)}))
    try:
        found = best_placement(one)
    except (InputError, InternalError) as error:
        return {
            "method": None, "gap": None, "objective_s": None, "plan_s": None, "classes": {}, "differs": {}, "agrees": None,
            "notes": [str(error)],
        }  # fmt: skip
    notes = [ONE_POOL] if len(own.cluster.pools) == 1 else []
    notes += found.notes
    differs = _differences(found, result.placed.graph, notes)
    planned = None if differs is None else _planned(found.problem, result.placed.graph)
    feasible = found.placement.feasible
    if not feasible:
        notes.append("no placement fits the memories and links")
    return {
        "method": found.placement.method, "gap": found.placement.gap,
        "objective_s": found.placement.objective_s if feasible else None, "plan_s": planned, "classes": dict(found.classes),
        "differs": differs or {}, "agrees": feasible and differs == {}, "notes": notes,
    }  # fmt: skip


def _device(graph: OpGraph, name: str) -> str:
    """The device of an op in a placed graph, as placement names it."""
    home, pool = graph.homes.get(f"{name}.load", ""), graph.op(name).pool
    return f"{pool}<{home}" if home else pool


def _differences(found: BestPlacement, graph: OpGraph, notes: list[str]) -> dict[str, list[str]] | None:
    """Ops that the plan puts elsewhere, [plan, placement]; None when the plan splits ops that placement keeps whole."""
    if not found.placement.feasible:
        return {}
    names = [name for name in found.problem.ops if not name.endswith((".out", ".in"))]
    products = {op.name for op in graph.ops(lambda op: op.kind == "experts")}
    if not products <= set(names) or any(name not in graph.nx for name in names):
        notes.append("the plan splits the experts over two memories; placement keeps them together")
        return None
    pairs = {name: [_device(graph, name), found.device(name)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _planned(problem: Problem, graph: OpGraph) -> float | None:
    """Seconds of the plan by the prices of placement; None when they do not know it."""
    names = [name for name in problem.ops if not name.endswith((".out", ".in"))]
    try:
        device = {name: problem.devices.index(_device(graph, name)) for name in names}
    except ValueError:
        return None
    chosen = [device.get(name, 0) for name in problem.ops]
    for position, name in enumerate(problem.ops):  # a tensor that several read lies where it costs least
        if name not in device:
            tried = [[*chosen[:position], one, *chosen[position + 1 :]] for one in range(len(problem.devices))]
            chosen = min(tried, key=problem.objective)
    seconds = problem.objective(chosen)
    return seconds if seconds < float("inf") else None
