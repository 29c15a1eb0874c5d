"""Placement by dynamic programming: exact wherever no capacity couples the ops.

Ops are eliminated one by one. The best device of an op is tabulated for every choice of the ops it exchanges tensors with,
and its cost becomes a cost of theirs (nonserial dynamic programming: Bertele and Brioschi, 1972). On a chain this is
Viterbi's algorithm, O(ops x devices^2); on a graph with forks and joins the state is the devices of the live tensors.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.optimize.problem import Array, Ints, Placement, Problem, answer, infeasible
from hwmodel.spec.errors import InternalError

WIDEST = 2_000_000
"""Entries of the largest table: devices^(live tensors + 1)."""
METHOD = "dynamic programming"


@dataclass(frozen=True)
class _Step:
    """One op eliminated: its best device for every choice of the ops in `scope`, an array with one axis each."""

    op: int
    scope: tuple[int, ...]
    best: Ints


def chain(problem: Problem) -> Placement:
    """The optimum of a problem without capacity, by dynamic programming; exact on any graph.

    Raises
    ------
    InternalError
        When a capacity binds, or when so many tensors live at once that a table has more than `WIDEST` entries.
    """
    if problem.bounded:
        raise InternalError("placement: dynamic programming knows no capacity")
    name = f"chain {METHOD}" if _is_chain(problem) else METHOD
    table, steps = _eliminate(problem, ())
    if not np.isfinite(table):
        return infeasible(name)
    return answer(problem, _backtrack(problem, steps, {}), name)


def width(problem: Problem) -> int:
    """Entries of the largest table that `chain` needs."""
    order = _order(problem, ())
    return int(len(problem.devices)) ** (1 + max(len(scope) for _, scope in order))


def repeated(layer: Problem, count: int, first: int, last: int) -> Placement:
    """The optimum of `count` equal layers in a row, by a (min, +) power of one layer's device-in -> device-out matrix.

    Parameters
    ----------
    first, last
        Ops of the layer: the one that stands for the tensor it reads, and the one whose output the next layer reads. The
        device of `first` is that of the `last` of the layer below; in the lowest layer it is free.

    Returns
    -------
    Devices of all ops, layer by layer, each in the order of `layer.ops`. The objective counts `first` in every layer.

    Raises
    ------
    InternalError
        As `chain`.
    """
    method = f"(min, +) power of {count} layers"
    if layer.bounded:
        raise InternalError("placement: dynamic programming knows no capacity")
    if count < 1 or first == last:
        raise InternalError(f"placement: {count} layers from op {first} to op {last}")
    matrix, steps = _eliminate(layer, (first, last))
    total, path = _power(matrix, count)
    start, end = np.unravel_index(int(total.argmin()), total.shape)
    if not np.isfinite(total[start, end]):
        return infeasible(method)
    states = path(int(start), int(end))
    device: list[int] = []
    seconds = 0.0
    for below, above in zip(states[:-1], states[1:], strict=True):
        chosen = _backtrack(layer, steps, {first: below, last: above})
        seconds += layer.objective(chosen)
        device += chosen
    return Placement(tuple(device), seconds, method, seconds)


def _power(matrix: Array, count: int):  # type: ignore[no-untyped-def]
    """(matrix^count, path): the (min, +) power, and the states that lead from one end to the other at its cost."""
    if count == 1:
        return matrix, lambda start, end: [start, end]
    half, lower = _power(matrix, count // 2)
    total, path = _joined(half, lower, half, lower)
    return _joined(total, path, matrix, lambda start, end: [start, end]) if count % 2 else (total, path)


def _joined(one: Array, before, other: Array, after):  # type: ignore[no-untyped-def]
    """The (min, +) product of two matrices, with its paths."""
    through = one[:, :, None] + other[None, :, :]
    via = through.argmin(axis=1)

    def path(start: int, end: int) -> list[int]:
        middle = int(via[start, end])
        return [*before(start, middle), *after(middle, end)[1:]]

    return through.min(axis=1), path


def _is_chain(problem: Problem) -> bool:
    """Whether no op has more than two neighbours."""
    near = _neighbours(problem)
    return all(len(others) <= 2 for others in near)


def _neighbours(problem: Problem) -> list[set[int]]:
    near: list[set[int]] = [set() for _ in problem.ops]
    for edge in problem.edges:
        near[edge.source].add(edge.target)
        near[edge.target].add(edge.source)
    return near


def _order(problem: Problem, keep: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """(op, its neighbours when it goes), the op with fewest neighbours first; eliminating joins the neighbours."""
    near = _neighbours(problem)
    heap = [(len(others), op) for op, others in enumerate(near) if op not in keep]
    heapq.heapify(heap)
    gone = set(keep)
    order = []
    while heap:
        degree, op = heapq.heappop(heap)
        if op in gone or degree != len(near[op]):
            continue
        gone.add(op)
        scope = tuple(sorted(near[op]))
        order.append((op, scope))
        for other in scope:
            near[other].discard(op)
            near[other].update(one for one in scope if one != other)
        for other in scope:
            if other not in gone:
                heapq.heappush(heap, (len(near[other]), other))
    return order


def _eliminate(problem: Problem, keep: tuple[int, ...]) -> tuple[Array, list[_Step]]:
    """(least seconds for every choice of the kept ops, one axis each; how the others follow)."""
    devices = len(problem.devices)
    unary = problem.unary
    factors: list[tuple[tuple[int, ...], Array]] = list(problem.pairs().items())
    of: list[set[int]] = [set() for _ in problem.ops]
    """Which factors speak of an op."""
    for number, (pair, _) in enumerate(factors):
        for op in pair:
            of[op].add(number)
    steps: list[_Step] = []
    for op, scope in _order(problem, keep):
        if devices ** (len(scope) + 1) > WIDEST:
            raise InternalError(f"placement: {len(scope)} tensors live at once on {devices} devices; {WIDEST} entries at most")
        axes = (*scope, op)
        table = np.zeros((devices,) * len(axes)) + unary[op]
        for number in of[op].copy():
            over, cost = factors[number]
            table = table + _spread(cost, over, axes)
            for other in over:
                of[other].discard(number)
        steps.append(_Step(op, scope, table.argmin(axis=-1)))
        for other in scope:
            of[other].add(len(factors))
        factors.append((scope, table.min(axis=-1)))
    left = np.zeros((devices,) * len(keep))
    for op in keep:
        left = left + _spread(unary[op], (op,), keep)
    alone = [number for number, (scope, _) in enumerate(factors) if not scope]
    for number in sorted(set().union(*(of[op] for op in keep), alone)):
        left = left + _spread(factors[number][1], factors[number][0], keep)
    return left, steps


def _spread(cost: Array, over: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """A table over some ops as one over more of them, for broadcasting."""
    order = sorted(range(len(over)), key=lambda axis: axes.index(over[axis]))
    moved = cost.transpose(order)
    present = set(over)
    shape = iter(moved.shape)
    return moved.reshape(tuple(next(shape) if op in present else 1 for op in axes))


def _backtrack(problem: Problem, steps: Sequence[_Step], fixed: dict[int, int]) -> list[int]:
    """Devices of all ops, those that went last first."""
    chosen = dict(fixed)
    for step in reversed(steps):
        chosen[step.op] = int(step.best[tuple(chosen[op] for op in step.scope)])
    return [chosen[op] for op in range(len(problem.ops))]
