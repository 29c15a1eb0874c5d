"""Which device runs which op: the question as arrays, and what an answer to it is.

Minimise sum_u count_u c[u, d_u] + sum_(u,v) count_uv w_uv[d_u, d_v] over the device d_u of every op, subject to
sum_u bytes[u, d_u] <= capacity in every memory. The sum is the latency of a step that runs one op after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodel.spec.errors import InternalError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Edge:
    """A tensor that one op leaves and another reads."""

    source: int
    target: int
    """Positions in `Problem.ops`; the two differ. Several edges may join the same two ops."""
    seconds: Array
    """(devices, devices): what it takes when the source ran on the row's device and the target runs on the column's; inf
    where it cannot be. The diagonal is an exchange among the chips of one pool, mostly 0."""
    count: float = 1.0
    """How often it is sent."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Ops, devices, and what each choice takes. Arrays are taken as they are and must not be changed."""

    ops: tuple[str, ...]
    devices: tuple[str, ...]
    seconds: Array
    """(ops, devices), one execution; inf where the op cannot run."""
    edges: tuple[Edge, ...] = ()
    count: Array = field(default_factory=lambda: np.ones(0))
    """(ops,) executions; once each when empty."""
    bytes: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """(ops, devices), or (ops,) when alike on every device: memory that all executions of an op take together; none when
    empty."""
    capacity: Array = field(default_factory=lambda: np.zeros(0))
    """(memories,) bytes, inf for no bound; no bounds when empty."""
    memory: tuple[int, ...] = ()
    """(devices,) position in `capacity` of the memory that ops on each device fill; each its own when empty. Two devices
    share one where an op has two ways to run on what one memory holds."""

    def __post_init__(self) -> None:
        ops, devices = len(self.ops), len(self.devices)

        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, np.asarray(value, dtype=np.float64))

        put("seconds", self.seconds)
        put("count", self.count if np.size(self.count) else np.ones(ops))
        held = np.asarray(self.bytes, dtype=np.float64)
        put(
            "bytes", np.zeros((ops, devices)) if not held.size else held[:, None].repeat(devices, 1) if held.ndim == 1 else held
        )
        object.__setattr__(self, "memory", self.memory or tuple(range(devices)))
        put("capacity", self.capacity if np.size(self.capacity) else np.full(1 + max(self.memory), np.inf))
        shapes = (self.seconds.shape, self.count.shape, self.bytes.shape, (len(self.memory), *self.capacity.shape))
        expected = ((ops, devices), (ops,), (ops, devices), (devices, 1 + max(self.memory)))
        if not ops or not devices or shapes != expected:
            raise InternalError(f"placement: {ops} ops on {devices} devices do not go with arrays of shapes {shapes}")
        for edge in self.edges:
            if edge.source == edge.target or not {edge.source, edge.target} <= set(range(ops)):
                raise InternalError(f"placement: an edge from op {edge.source} to op {edge.target} of {ops}")
            if np.shape(edge.seconds) != (devices, devices):
                raise InternalError(f"placement: an edge of shape {np.shape(edge.seconds)} for {devices} devices")

    @property
    def unary(self) -> Array:
        """(ops, devices) seconds of all executions."""
        return _times(self.seconds, self.count[:, None])

    @property
    def bounded(self) -> bool:
        """Whether some capacity could be exceeded."""
        return bool((self.most > self.capacity).any())

    @property
    def most(self) -> Array:
        """(memories,) bytes that can come together in each memory."""
        found = np.zeros(len(self.capacity))
        for memory in range(len(found)):
            sharing = [d for d, own in enumerate(self.memory) if own == memory]
            found[memory] = self.bytes[:, sharing].max(axis=1, initial=0.0).sum()
        return found

    def pairs(self) -> dict[tuple[int, int], Array]:
        """Seconds of all transfers between two ops (the smaller position first), shape (devices, devices)."""
        found: dict[tuple[int, int], Array] = {}
        for edge in self.edges:
            cost = _times(np.asarray(edge.seconds, dtype=np.float64), edge.count)
            key = (edge.source, edge.target)
            if edge.source > edge.target:
                key, cost = key[::-1], cost.T
            found[key] = found[key] + cost if key in found else cost
        return found

    def objective(self, device: Sequence[int] | Ints) -> float:
        """Seconds of a placement, term by term; inf when an op or a transfer is impossible. Capacity is not looked at."""
        total = 0.0
        for op, (own, times) in enumerate(zip(self.seconds, self.count, strict=True)):
            total += float(own[device[op]]) * float(times) if times else 0.0
        for edge in self.edges:
            total += float(edge.seconds[device[edge.source], device[edge.target]]) * edge.count if edge.count else 0.0
        return total

    def used(self, device: Sequence[int] | Ints) -> Array:
        """Bytes that a placement takes in every memory, shape (memories,)."""
        chosen = np.asarray(device, dtype=np.int64)
        found = np.zeros(len(self.capacity))
        np.add.at(found, np.asarray(self.memory)[chosen], self.bytes[np.arange(len(self.ops)), chosen])
        return found

    def fits(self, device: Sequence[int] | Ints) -> bool:
        """Whether every memory holds what is placed in it, rounding aside."""
        return bool((self.used(device) <= self.capacity * (1 + 1e-9)).all())


@dataclass(frozen=True, eq=False)
class Run:
    """Equal layers in a row, each placed by itself."""

    layer: Problem
    """One layer; its own capacity is not looked at."""
    count: int
    first: int
    """The op that stands for the tensor the layer reads: it lies where the `last` of the layer below does."""
    last: int
    """The op whose output the next layer reads."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Runs of layers one on top of the other, on the same devices; in the lowest layer `first` lies anywhere."""

    runs: tuple[Run, ...]
    capacity: Array = field(default_factory=lambda: np.zeros(0))
    """(memories,) bytes, as in `Problem`."""

    def __post_init__(self) -> None:
        devices = {(run.layer.devices, run.layer.memory) for run in self.runs}
        if len(devices) != 1 or any(run.count < 1 or run.first == run.last for run in self.runs):
            raise InternalError("placement: runs of layers on different devices, of no layers, or of layers without two ends")
        if not np.size(self.capacity):
            object.__setattr__(self, "capacity", np.full(len(self.runs[0].layer.capacity), np.inf))

    def unrolled(self) -> Problem:
        """The problem with every layer written out, ops named by the number of their layer."""
        layers = [run for run in self.runs for _ in range(run.count)]
        apart = np.where(np.eye(len(layers[0].layer.devices)) > 0, 0.0, np.inf)
        base = np.cumsum([0, *(len(run.layer.ops) for run in layers)]).tolist()
        edges = [
            Edge(edge.source + start, edge.target + start, edge.seconds, edge.count)
            for run, start in zip(layers, base[:-1], strict=True)
            for edge in run.layer.edges
        ]
        ends = zip(layers[:-1], layers[1:], base[:-2], base[1:-1], strict=True)
        edges += [Edge(under + below.last, over + above.first, apart) for below, above, under, over in ends]
        return Problem(
            tuple(f"{number}.{name}" for number, run in enumerate(layers) for name in run.layer.ops), layers[0].layer.devices,
            np.concatenate([run.layer.seconds for run in layers]), tuple(edges),
            np.concatenate([run.layer.count for run in layers]), np.concatenate([run.layer.bytes for run in layers]),
            self.capacity, layers[0].layer.memory,
        )  # fmt: skip


def _times(seconds: Array, count: Array | float) -> Array:
    """Seconds x count, where what never runs takes nothing however long it would take."""
    with np.errstate(invalid="ignore"):
        return np.where(np.asarray(count) == 0, 0.0, seconds * count)


@dataclass(frozen=True)
class Placement:
    """The answer: the device of every op, and how sure it is that none is better."""

    device: tuple[int, ...]
    """Position in `Problem.devices` of each op; empty when there is no answer."""
    objective_s: float
    """Seconds of the placement; inf when no placement is possible."""
    method: str
    bound_s: float
    """No placement takes less."""

    @property
    def feasible(self) -> bool:
        """Whether there is an answer."""
        return bool(self.device)

    @property
    def gap(self) -> float:
        """(objective - bound) / objective: 0 when the answer is proved to be the optimum."""
        if not self.feasible or self.objective_s <= 0:
            return 0.0
        return max(0.0, (self.objective_s - self.bound_s) / self.objective_s)


def answer(problem: Problem, device: Sequence[int], method: str, bound_s: float | None = None) -> Placement:
    """A placement whose objective is computed anew from the problem; its own bound when the method is exact."""
    seconds = problem.objective(device)
    if not np.isfinite(seconds):
        return infeasible(method)
    return Placement(tuple(int(one) for one in device), seconds, method, seconds if bound_s is None else min(bound_s, seconds))


def infeasible(method: str) -> Placement:
    """No placement is possible."""
    return Placement((), float("inf"), method, float("inf"))


MOST = 1_000_000
"""Placements that brute force looks at."""


def brute(problem: Problem) -> Placement:
    """The best of all placements, one by one: the oracle of the other solvers.

    Raises
    ------
    InternalError
        When there are more than a million.
    """
    if len(problem.devices) ** len(problem.ops) > MOST:
        raise InternalError(f"brute force over {len(problem.devices)}^{len(problem.ops)} placements")
    best: tuple[int, ...] = ()
    least = float("inf")
    for device in product(range(len(problem.devices)), repeat=len(problem.ops)):
        seconds = problem.objective(device)
        if seconds < least and problem.fits(device):
            best, least = device, seconds
    return answer(problem, best, "brute force") if best else infeasible("brute force")
