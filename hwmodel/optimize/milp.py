"""Placement under capacities, as a mixed-integer linear program solved by HiGHS (Huangfu and Hall, Math. Prog. Comp. 2018).

x[u, d] = 1 when op u runs on device d; y[e, d, d'] = 1 when edge e goes from d to d'. The product is linearised in equality
form, sum_d' y[e, d, d'] = x[u, d] and sum_d y[e, d, d'] = x[v, d'], whose relaxation is integral on chains, so that only
the capacities branch.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from hwmodel.optimize.problem import Array, Placement, Problem, answer, infeasible
from hwmodel.spec.errors import InternalError

METHOD = "HiGHS"


def highs(problem: Problem, *, limit_s: float = 60.0) -> Placement:
    """The optimum with its proof: `bound_s` is the dual bound that HiGHS leaves.

    Parameters
    ----------
    limit_s
        Seconds of work; the best placement so far when they are over.

    Raises
    ------
    InternalError
        When the time is over and no placement was found, or HiGHS fails.
    """
    optimize = importlib.import_module("scipy.optimize")
    pairs = problem.pairs()
    cost = np.concatenate([problem.unary.ravel(), *(matrix.ravel() for matrix in pairs.values())])
    possible = np.isfinite(cost)
    ops, devices = len(problem.ops), len(problem.devices)
    if not possible[: ops * devices].reshape(ops, devices).any(axis=1).all():
        return infeasible(METHOD)
    scale = float(np.abs(cost[possible]).max()) or 1.0  # seconds of microseconds are below HiGHS's tolerances
    constraints = [optimize.LinearConstraint(*_equalities(problem, list(pairs)))]
    if problem.bounded:
        constraints.append(optimize.LinearConstraint(*_capacities(problem, len(cost))))
    found = optimize.milp(
        np.where(possible, cost, 0.0) / scale,
        integrality=np.arange(len(cost)) < ops * devices,
        bounds=optimize.Bounds(0.0, possible.astype(float)),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, "time_limit": limit_s},
    )
    if found.status == 2:
        return infeasible(METHOD)
    if found.x is None:
        raise InternalError(f"HiGHS: {found.message}")
    device = found.x[: ops * devices].reshape(ops, devices).argmax(axis=1)
    return answer(problem, device.tolist(), METHOD, float(found.mip_dual_bound) * scale)


def _equalities(problem: Problem, pairs: list[tuple[int, int]]) -> tuple[Any, Array, Array]:
    """Rows: one device per op; the two sums of every edge's y."""
    sparse = importlib.import_module("scipy.sparse")
    ops, devices = len(problem.ops), len(problem.devices)
    every = np.arange(devices)
    rows = [np.arange(ops).repeat(devices)]
    columns = [np.arange(ops * devices)]
    values = [np.ones(ops * devices)]
    row = ops
    for index, pair in enumerate(pairs):
        y = ops * devices + index * devices**2 + np.arange(devices**2).reshape(devices, devices)
        for op, grid in zip(pair, (y, y.T), strict=True):
            rows += [(row + every).repeat(devices), row + every]
            columns += [grid.ravel(), op * devices + every]
            values += [np.ones(devices**2), -np.ones(devices)]
            row += devices
    size = ops * devices + len(pairs) * devices**2
    where = (np.concatenate(rows), np.concatenate(columns))
    right = np.concatenate([np.ones(ops), np.zeros(row - ops)])
    return sparse.csr_matrix((np.concatenate(values), where), shape=(row, size)), right, right


def _capacities(problem: Problem, size: int) -> tuple[Any, Array, Array]:
    """One row for each memory that may be too small, in shares of its capacity."""
    sparse = importlib.import_module("scipy.sparse")
    ops, devices = len(problem.ops), len(problem.devices)
    tight = np.flatnonzero(problem.most > problem.capacity)
    rows = sparse.lil_matrix((len(tight), size))
    limits = np.ones(len(tight))
    for row, memory in enumerate(tight):
        whole = float(problem.capacity[memory])
        limits[row] = 1.0 if whole > 0 else 0.0
        for d in (d for d in range(devices) if problem.memory[d] == memory):
            rows[row, d : ops * devices : devices] = problem.bytes[:, d] / (whole if whole > 0 else 1.0)
    return rows.tocsr(), np.full(len(tight), -np.inf), limits
