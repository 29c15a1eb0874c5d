"""Placement under capacities, as a mixed-integer linear program solved by HiGHS (Huangfu and Hall, Math. Prog. Comp. 2018).

x[u, d] = 1 when op u runs on device d; y[e, d, d'] = 1 when edge e goes from d to d'. The product is linearised in equality
form, sum_d' y[e, d, d'] = x[u, d] and sum_d y[e, d, d'] = x[v, d'], whose relaxation is integral on chains, so that only
the capacities branch.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    pairs = problem.pairs()
    cost = np.concatenate([problem.unary.ravel(), *(matrix.ravel() for matrix in pairs.values())])
    possible = np.isfinite(cost)
    ops, devices = len(problem.ops), len(problem.devices)
    if not possible[: ops * devices].reshape(ops, devices).any(axis=1).all():
        return infeasible(METHOD)
    integer = np.arange(len(cost)) < ops * devices
    rows = [_equalities(problem, list(pairs))]
    for share in SHARES:
        limits = [_capacities(problem, len(cost), share)] if problem.bounded else []
        found = minimise(cost, integer, np.ones(len(cost)), [*rows, *limits], limit_s)
        if found is None:
            return infeasible(METHOD)
        device = found[0][: ops * devices].reshape(ops, devices).argmax(axis=1).tolist()
        if problem.fits(device):
            return answer(problem, device, METHOD, found[1])
    raise InternalError("HiGHS exceeded a capacity")


Rows = tuple[Any, Array, Array]
"""(sparse matrix, least, most) of linear constraints."""
SHARES = (1.0, 1.0 - 1e-5)
"""Of the capacities: HiGHS lets a row be exceeded by a millionth; where that matters, capacities are a hair smaller."""


def minimise(
    cost: Array, integer: NDArray[np.bool_], most: Array, rows: Sequence[Rows], limit_s: float
) -> tuple[Array, float] | None:
    """(solution, no solution costs less) of a mixed-integer program with variables from 0 to `most`; None: there is none.

    Variables of infinite cost are 0.

    Raises
    ------
    InternalError
        When the time is over and nothing was found, or HiGHS fails.
    """
    optimize = importlib.import_module("scipy.optimize")
    possible = np.isfinite(cost)
    scale = float(np.abs(cost[possible]).max(initial=0.0)) or 1.0  # microseconds are below HiGHS's tolerances
    found = optimize.milp(
        np.where(possible, cost, 0.0) / scale,
        integrality=integer,
        bounds=optimize.Bounds(0.0, np.where(possible, most, 0.0)),
        constraints=[optimize.LinearConstraint(*one) for one in rows],
        options={"mip_rel_gap": 0.0, "time_limit": limit_s},
    )
    if found.status == 2:
        return None
    if found.x is None:
        raise InternalError(f"HiGHS: {found.message}")
    return found.x, float(found.mip_dual_bound) * scale


def _equalities(problem: Problem, pairs: list[tuple[int, int]]) -> Rows:
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


def _capacities(problem: Problem, size: int, share: float) -> Rows:
    """One row for each memory that may be too small, in shares of its capacity, or of the largest op where that is larger."""
    sparse = importlib.import_module("scipy.sparse")
    ops, devices = len(problem.ops), len(problem.devices)
    tight = np.flatnonzero(problem.most > problem.capacity)
    rows = sparse.lil_matrix((len(tight), size))
    limits = np.zeros(len(tight))
    for row, memory in enumerate(tight):
        on = [d for d in range(devices) if problem.memory[d] == memory]
        whole = max(float(problem.capacity[memory]), float(problem.bytes[:, on].max()))
        limits[row] = problem.capacity[memory] / whole * share
        for d in on:
            rows[row, d : ops * devices : devices] = problem.bytes[:, d] / whole
    return rows.tocsr(), np.full(len(tight), -np.inf), limits
