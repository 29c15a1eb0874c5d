"""Placement on two devices as a minimum cut: an independent check of the other solvers.

An op on the source's side runs on device 0. With w the cost of a pair, w00 + w11 <= w01 + w10 makes the problem a cut
(Kolmogorov and Zabih, IEEE TPAMI 26(2), 2004, theorem 4.1 and table 1).
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from hwmodel.optimize.problem import Placement, Problem, answer, infeasible
from hwmodel.spec.errors import InternalError

METHOD = "minimum cut"


def cut(problem: Problem) -> Placement:
    """The optimum for two devices without capacity.

    Raises
    ------
    InternalError
        For other numbers of devices, under a capacity, or where two ops would rather be apart than together (no cut).
    """
    if len(problem.devices) != 2 or problem.bounded:
        raise InternalError("placement: a cut has two sides and knows no capacity")
    unary = problem.unary.copy()
    pairs = problem.pairs()
    known = [table[np.isfinite(table)] for table in (unary, *pairs.values())]
    never = 2.0 * sum(float(np.abs(part).sum()) for part in known) + 1.0  # dearer than anything possible
    unary = np.where(np.isfinite(unary), unary, never)
    graph: nx.DiGraph[object] = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for (one, other), table in pairs.items():
        w = np.where(np.isfinite(table), table, never)
        extra = w[0, 1] + w[1, 0] - w[0, 0] - w[1, 1]
        if extra < -1e-12 * np.abs(w).max():
            raise InternalError(f"placement: {problem.ops[one]} and {problem.ops[other]} gain by being apart: no cut")
        # w = w00 + (w10 - w00) [one on 1] + (w11 - w10) [other on 1] + extra [one on 0, other on 1]
        unary[one] += w[0, 0], w[1, 0]
        unary[other] += 0.0, w[1, 1] - w[1, 0]
        _add(graph, one, other, max(0.0, extra))
    for op, (first, second) in enumerate(unary):
        least = min(first, second)
        _add(graph, "source", op, second - least)
        _add(graph, op, "sink", first - least)
    _, (near, _) = nx.minimum_cut(graph, "source", "sink")
    device = [0 if op in near else 1 for op in range(len(problem.ops))]
    found = answer(problem, device, METHOD)
    return found if found.feasible else infeasible(METHOD)


def _add(graph: nx.DiGraph[object], source: object, target: object, seconds: float) -> None:
    """Add capacity to an edge."""
    held = graph.edges[source, target]["capacity"] if graph.has_edge(source, target) else 0.0
    graph.add_edge(source, target, capacity=held + seconds)
