"""Placement under capacities of models whose layers are alike: how many layers of a kind are placed in which way.

Written out, equal layers can be exchanged without any change, and branching on them does not end. Here the variables are
counts. Eliminating the ops of a layer leaves one table for each (a junction tree: Lauritzen and Spiegelhalter, J. R. Stat.
Soc. B 50(2), 1988); z[table, devices] is the number of layers with these devices, and tables that share ops agree on them.
Whole numbers that agree can be put together to layers. Layers follow one another where N[device in, device out] is a trail
through the devices (balanced and connected: Euler).
"""

from __future__ import annotations

import importlib
from itertools import combinations

import networkx as nx
import numpy as np

from hwmodel.optimize.dynamic import Elimination, eliminate, layers
from hwmodel.optimize.milp import SHARES, Rows, minimise
from hwmodel.optimize.problem import Array, Ints, Placement, Run, Stack, answer, infeasible
from hwmodel.spec.errors import InternalError

METHOD = "HiGHS over counts of equal layers"


def stacked(stack: Stack, *, limit_s: float = 60.0) -> Placement:
    """The optimum of runs of equal layers, each layer placed by itself; devices layer by layer.

    Without capacities by dynamic programming; that answer is kept where it fits.

    Raises
    ------
    InternalError
        As `hwmodel.optimize.dynamic.eliminate` and `hwmodel.optimize.milp.minimise`.
    """
    written_out = stack.unrolled()
    free = layers(stack.runs)
    if not free.feasible or written_out.fits(free.device):
        return free
    program = _Program(stack)
    for share in SHARES:
        found = minimise(program.cost, program.integer, program.most, program.rows(share), limit_s)
        if found is None:
            return infeasible(METHOD)
        device = program.devices(np.rint(found[0]).astype(np.int64))
        if written_out.fits(device):
            return answer(written_out, device, METHOD, found[1])
    raise InternalError("HiGHS exceeded a capacity")


class _Table:
    """Counts of layers of a run over the devices of some ops of a layer."""

    def __init__(self, ops: tuple[int, ...], own: Array, start: int) -> None:
        self.ops, self.own = ops, own
        self.index: Ints = start + np.arange(own.size).reshape(own.shape)
        """Their places among the variables."""

    def sums(self, over: tuple[int, ...]) -> Ints:
        """(choices of `over`, variables to add up for each)."""
        axes = [self.ops.index(op) for op in over]
        rest = [axis for axis in range(len(self.ops)) if axis not in axes]
        moved = self.index.transpose([*axes, *rest])
        return moved.reshape(int(np.prod(moved.shape[: len(axes)], dtype=np.int64)), -1)


class _Program:
    """The integer program of a stack: a start and an end device for every run, then the tables of each run."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.wide = len(stack.runs[0].layer.devices)
        self.size = self.wide * (len(stack.runs) + 1)
        costs = [np.zeros(self.size)]
        most = [np.ones(self.size)]
        self.eliminated: list[Elimination] = []
        self.tables: list[list[_Table]] = []
        """Of each run, in the order of elimination; the table of both ends last."""
        for run in stack.runs:
            found = eliminate(run.layer, (run.first, run.last))
            tables = []
            for ops, own in [*(((*step.scope, step.op), step.own) for step in found.steps), (found.keep, found.own)]:
                tables.append(_Table(ops, own, self.size))
                self.size += own.size
                costs.append(own.ravel())
                most.append(np.full(own.size, float(run.count)))
            self.eliminated.append(found)
            self.tables.append(tables)
        self.cost, self.most = np.concatenate(costs), np.concatenate(most)
        self.integer = np.ones(self.size, dtype=np.bool_)
        self._rows: list[tuple[list[tuple[Ints, float]], float, float]] = []

    def rows(self, share: float) -> list[Rows]:
        """All constraints, capacities times a share."""
        self._rows = []
        for place in range(len(self.stack.runs) + 1):
            self._add([(self._ends(place), 1.0)], 1.0, 1.0)
        for number, run in enumerate(self.stack.runs):
            self._agree(number, run)
            self._trail(number, run)
        self._capacities(share)
        sparse = importlib.import_module("scipy.sparse")
        where = [(row, column, value) for row, (parts, _, _) in enumerate(self._rows)
                 for columns, value in parts for column in columns.tolist()]  # fmt: skip
        row, column, value = (np.array(part) for part in zip(*where, strict=True))
        matrix = sparse.csr_matrix((value, (row, column)), shape=(len(self._rows), self.size))
        return [(matrix, np.array([low for _, low, _ in self._rows]), np.array([high for _, _, high in self._rows]))]

    def _add(self, parts: list[tuple[Ints, float]], low: float, high: float) -> None:
        self._rows.append((parts, low, high))

    def _ends(self, place: int) -> Ints:
        """Variables that say on which device the tensor between two runs lies."""
        return place * self.wide + np.arange(self.wide)

    def _agree(self, number: int, run: Run) -> None:
        """Every table counts all layers, and as many as the table that takes in what it leaves."""
        steps, tables = self.eliminated[number].steps, self.tables[number]
        when = {step.op: position for position, step in enumerate(steps)}
        for position, (step, table) in enumerate(zip(steps, tables[:-1], strict=True)):
            if not step.scope:
                self._add([(table.index.ravel(), 1.0)], run.count, run.count)
                continue
            into = tables[min((when.get(op, len(steps)) for op in step.scope), default=position)]
            for mine, theirs in zip(table.sums(step.scope), into.sums(step.scope), strict=True):
                self._add([(mine, 1.0), (theirs, -1.0)], 0.0, 0.0)
        self._add([(tables[-1].index.ravel(), 1.0)], run.count, run.count)

    def _trail(self, number: int, run: Run) -> None:
        """Layers of a run follow one another from its start device to its end device."""
        passed = self.tables[number][-1].index
        start, end = self._ends(number), self._ends(number + 1)
        for device in range(self.wide):
            self._add(
                [(passed[device], 1.0), (passed[:, device], -1.0), (start[[device]], -1.0), (end[[device]], 1.0)], 0.0, 0.0
            )
        for some in (part for n in range(1, self.wide) for part in combinations(range(self.wide), n)):
            inside, outside = list(some), [device for device in range(self.wide) if device not in some]
            within, entering = passed[np.ix_(inside, inside)].ravel(), passed[np.ix_(outside, inside)].ravel()
            self._add([(within, 1.0), (entering, -float(run.count)), (start[inside], -float(run.count))], -np.inf, 0.0)

    def _capacities(self, share: float) -> None:
        capacity, memory = self.stack.capacity, self.stack.runs[0].layer.memory
        for one in np.flatnonzero(np.isfinite(capacity)):
            parts = []
            scale = float(capacity[one]) or 1.0
            for run, tables in zip(self.stack.runs, self.tables, strict=True):
                counted = {table.ops[-1]: table for table in tables[:-1]} | dict.fromkeys((run.first, run.last), tables[-1])
                for op, table in counted.items():
                    held = run.layer.bytes[op] / scale
                    parts += [(table.sums((op,))[d], float(held[d])) for d in range(self.wide) if memory[d] == one and held[d]]
            if parts:
                self._add(parts, -np.inf, share if capacity[one] else 0.0)

    def devices(self, solution: Ints) -> list[int]:
        """Devices of every op, layer by layer."""
        device: list[int] = []
        for number, run in enumerate(self.stack.runs):
            left = {id(table): solution[table.index] for table in self.tables[number]}
            graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
            ends = left[id(self.tables[number][-1])]
            graph.add_edges_from((a, b) for a in range(self.wide) for b in range(self.wide) for _ in range(int(ends[a, b])))
            start = int(solution[self._ends(number)].argmax())
            for below, above in nx.eulerian_path(graph, source=start):
                chosen = {run.first: int(below), run.last: int(above)}
                for step, table in reversed(list(zip(self.eliminated[number].steps, self.tables[number][:-1], strict=True))):
                    counts = left[id(table)][tuple(chosen[op] for op in step.scope)]
                    chosen[step.op] = int(counts.argmax())
                    counts[chosen[step.op]] -= 1
                device += [chosen[op] for op in range(len(run.layer.ops))]
        return device
