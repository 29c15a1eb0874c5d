"""Placement by dynamic programming: exact wherever no capacity couples the ops.

Ops are eliminated one by one. The best device of an op is tabulated for every choice of the ops it exchanges tensors with,
and its cost becomes a cost of theirs (nonserial dynamic programming: Bertele and Brioschi, 1972). On a chain this is
Viterbi's algorithm, O(ops x devices^2); on a graph with forks and joins the state is the devices of the live tensors.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.optimize.problem import Array, Ints, Placement, Problem, Run, answer, infeasible
from hwmodel.spec.errors import InternalError

WIDEST = 2_000_000
"""Entries of the largest table: devices^(live tensors + 1)."""
METHOD = "dynamic programming"


@dataclass(frozen=True, eq=False)
class Step:
    """One op eliminated."""

    op: int
    scope: tuple[int, ...]
    """The ops it still exchanged tensors with."""
    own: Array
    """Its seconds and those of its tensors for every choice of `scope` and of itself, an axis each."""
    best: Ints
    """Its best device for every choice of `scope`."""


@dataclass(frozen=True, eq=False)
class Elimination:
    """A problem with some ops kept and the others eliminated, in this order."""

    keep: tuple[int, ...]
    steps: tuple[Step, ...]
    own: Array
    """Seconds of the kept ops and of the tensors between them alone, an axis for each kept op."""
    root: Array
    """Least seconds of everything for every choice of the kept ops."""

    def backtrack(self, fixed: Mapping[int, int]) -> list[int]:
        """Devices of all ops, those that went last first; `fixed` says where the kept ones are."""
        chosen = dict(fixed)
        for step in reversed(self.steps):
            chosen[step.op] = int(step.best[tuple(chosen[op] for op in step.scope)])
        return [chosen[op] for op in sorted(chosen)]


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
    found = eliminate(problem)
    if not np.isfinite(found.root):
        return infeasible(name)
    return answer(problem, found.backtrack({}), name)


def width(problem: Problem) -> int:
    """Entries of the largest table that `chain` needs."""
    most: int = max(len(scope) for _, scope in _order(problem, ()))
    entries: int = len(problem.devices) ** (most + 1)
    return entries


def layers(runs: Sequence[Run]) -> Placement:
    """The optimum of runs of equal layers without capacity.

    A run is a (min, +) power of one layer's matrix of seconds from its device in to its device out.

    Returns
    -------
    Devices of all ops, layer by layer, each in the order of its layer's ops. The objective counts `first` in every layer.

    Raises
    ------
    InternalError
        When a table would have more than `WIDEST` entries.
    """
    method = f"(min, +) powers of {sum(run.count for run in runs)} layers"
    known = [eliminate(run.layer, (run.first, run.last)) for run in runs]
    total, path = _power(known[0].root, runs[0].count)
    for run, one in zip(runs[1:], known[1:], strict=True):
        total, path = _joined(total, path, *_power(one.root, run.count))
    start, end = np.unravel_index(int(total.argmin()), total.shape)
    if not np.isfinite(total[start, end]):
        return infeasible(method)
    states = path(int(start), int(end))
    device: list[int] = []
    seconds = 0.0
    single = [pair for pair in zip(runs, known, strict=True) for _ in range(pair[0].count)]
    for (run, one), below, above in zip(single, states[:-1], states[1:], strict=True):
        chosen = one.backtrack({run.first: below, run.last: above})
        seconds += run.layer.objective(chosen)
        device += chosen
    return Placement(tuple(device), seconds, method, seconds)


def repeated(layer: Problem, count: int, first: int, last: int) -> Placement:
    """The optimum of `count` equal layers in a row; see `layers` and `Run`."""
    return layers([Run(layer, count, first, last)])


Path = Callable[[int, int], list[int]]
"""The states from one end to the other."""


def _power(matrix: Array, count: int) -> tuple[Array, Path]:
    """(matrix^count, path): the (min, +) power, and the states that lead from one end to the other at its cost."""
    if count == 1:
        return matrix, lambda start, end: [start, end]
    half, lower = _power(matrix, count // 2)
    total, path = _joined(half, lower, half, lower)
    return _joined(total, path, matrix, lambda start, end: [start, end]) if count % 2 else (total, path)


def _joined(one: Array, before: Path, other: Array, after: Path) -> tuple[Array, Path]:
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


def eliminate(problem: Problem, keep: tuple[int, ...] = ()) -> Elimination:
    """Eliminate every op but the kept ones. Capacity is not looked at.

    Raises
    ------
    InternalError
        When a table would have more than `WIDEST` entries.
    """
    devices = len(problem.devices)
    unary = problem.unary
    factors: list[tuple[tuple[int, ...], Array]] = list(problem.pairs().items())
    given = len(factors)
    of: list[set[int]] = [set() for _ in problem.ops]  # which factors speak of an op
    for number, (pair, _) in enumerate(factors):
        for op in pair:
            of[op].add(number)
    steps: list[Step] = []
    for op, scope in _order(problem, keep):
        if devices ** (len(scope) + 1) > WIDEST:
            raise InternalError(f"placement: {len(scope)} tensors live at once on {devices} devices; {WIDEST} entries at most")
        axes = (*scope, op)
        own = np.zeros((devices,) * len(axes)) + unary[op]
        sent = np.zeros_like(own)
        for number in of[op].copy():
            over, cost = factors[number]
            if number < given:
                own += _spread(cost, over, axes)
            else:
                sent += _spread(cost, over, axes)
            for other in over:
                of[other].discard(number)
        table = own + sent
        steps.append(Step(op, scope, own, table.argmin(axis=-1)))
        for other in scope:
            of[other].add(len(factors))
        factors.append((scope, table.min(axis=-1)))
    own = np.zeros((devices,) * len(keep))
    for op in keep:
        own = own + _spread(unary[op], (op,), keep)
    root = np.zeros_like(own)
    alone = {number for number, (scope, _) in enumerate(factors) if not scope}
    for number in sorted(alone.union(*(of[op] for op in keep))):
        over, cost = factors[number]
        if number < given:
            own = own + _spread(cost, over, keep)
        else:
            root = root + _spread(cost, over, keep)
    return Elimination(keep, tuple(steps), own, own + root)


def _spread(cost: Array, over: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """A table over some ops as one over more of them, for broadcasting."""
    order = sorted(range(len(over)), key=lambda axis: axes.index(over[axis]))
    moved = cost.transpose(order)
    present = set(over)
    shape = iter(moved.shape)
    return moved.reshape(tuple(next(shape) if op in present else 1 for op in axes))
