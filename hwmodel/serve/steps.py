"""Step times of one instance as tables over tokens, sequences, contexts and prompt chunks, filled by the packed model.

Where the ops of a step follow one another, it is a sum over what its ops depend on, exact at the nodes:

    step = linear[tokens of a rank] + shared[all tokens] + head[sequences] + decode[sequences, mean context]
         + mean over chunks prefill[chunks, new, cached] + what the software stack adds

Where lanes overlap (AFD, micro-batches, pipelines), `decode` and `prefill` hold whole steps as scheduled, and a step of both is
taken as their sum less one step of a single token. `check` says how far either is from exact pricing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_steps import steps_s
from hwmodel.scenario import Scenario
from hwmodel.serve.grid import Grid, coarse, fine
from hwmodel.serve.pricing import Priced, priced
from hwmodel.served.stack import Stack

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 300
"""Random steps of a check, of each phase."""
TABLES = ("linear", "shared", "head", "decode", "prefill")


@dataclass(frozen=True)
class Accuracy:
    """Tables against exact pricing of random steps, as shares of the step."""

    points: int
    mean: float
    worst: float


@dataclass(frozen=True)
class Steps:
    """Step times of one kind of instance; seconds."""

    grid: Grid
    linear: Array
    """(tokens,) of a rank."""
    shared: Array
    """(tokens,) of all ranks together."""
    head: Array
    """(sequences,)."""
    decode: Array
    """(sequences, context)."""
    prefill: Array
    """(chunks, new, cached)."""
    sequence_s: float = 0.0
    """Host time per decoding sequence."""
    prompt_s: float = 0.0
    """Host time per prompt."""
    stretch: float = 1.0
    """What prompts add to a step, in units of its price."""
    ranks: int = 1
    """That share the sequences (attention data parallelism)."""
    unit: int = 1
    """Sequences for which one node of `decode` stands."""
    accuracy: Accuracy | None = None
    """None when they were not made from a model."""

    def times(self, points: Array) -> Array:
        """Seconds of steps, points (n, 5): decoding sequences, mean context, prompts, new and cached tokens of each prompt."""
        out = np.zeros(len(points))
        steps_s(_only(self), np.ascontiguousarray(points, dtype=np.float64), out)
        return out

    def of_rank(self) -> Steps:
        """One attention data parallel rank that schedules for itself, as vLLM's do; the others are taken to do as much."""
        tokens = self.grid.tokens.nodes
        shared = np.interp(tokens * self.ranks, tokens, self.shared)
        slope = (self.shared[-1] - self.shared[-2]) / (tokens[-1] - tokens[-2])
        beyond = np.maximum(0.0, tokens * self.ranks - tokens[-1]) * slope
        return replace(self, shared=shared + beyond, ranks=1, unit=max(1, self.unit // self.ranks))


def stacked(kinds: list[Steps]) -> dict[str, Array | Ints]:
    """The tables of several kinds of instances, all on one grid, as the kernels read them."""
    axes = kinds[0].grid.axes
    nodes = np.zeros((len(axes), max(len(axis.nodes) for axis in axes)))
    for i, axis in enumerate(axes):
        nodes[i, : len(axis.nodes)] = axis.nodes
    starts = np.cumsum([0, *(getattr(kinds[0], name).size for name in TABLES)])[:-1]
    return {
        "table": np.array([np.concatenate([getattr(kind, name).ravel() for name in TABLES]) for kind in kinds]),
        "axes": nodes,
        "axis": np.array([*([axis.dense, axis.per_octave, len(axis.nodes)] for axis in axes), *([at, 0, 0] for at in starts)]),
    }


def _only(steps: Steps) -> Serving:
    """A serving state with nothing in it but the step times of one instance."""
    none, rows, real = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros((0, 0))
    inst, meter = np.zeros((1, c.N_INSTANCE), np.int64), np.zeros((1, c.N_METER))
    inst[0, [c.RANKS, c.DECODE_UNIT]] = steps.ranks, steps.unit
    meter[0, [c.SEQUENCE_S, c.STRETCH]] = steps.sequence_s, steps.stretch
    return Serving(
        req=rows, when=real, inst=inst, meter=meter, batch=rows, starts=none, blocks=none,
        cache=np.zeros((3, 0, 0, 0), np.int32), tier=np.zeros((0, 0, 0), np.int64), tier_s=np.zeros((0, 0, 0)), gaps=none,
        total=np.zeros(0), follow=none, **stacked([steps]),
    )  # fmt: skip


def by_tokens(seconds: Callable[[Array], Array], tokens: int = 4096, sequences: int = 128, grid: Grid | None = None) -> Steps:
    """Steps whose time (s) is a function of their tokens alone: the servers of queueing theory."""
    grid = grid or coarse(tokens, sequences)
    nodes = [axis.nodes for axis in grid.axes]
    return Steps(
        grid, seconds(nodes[0]), np.zeros(len(nodes[0])), np.zeros(len(nodes[1])), np.zeros((len(nodes[1]), len(nodes[2]))),
        np.zeros([len(node) for node in nodes[3:]]),
    )  # fmt: skip


def step_tables(scenario: Scenario, stack: Stack | None, tokens: int, sequences: int, grid: Grid | None = None) -> Steps:
    """Fill the tables of one instance: everything that the scenario's cluster does in a step.

    Parameters
    ----------
    stack
        What the software adds to the ops; None for nothing.
    tokens, sequences
        Most of one step.
    grid
        Chosen by the plan when None.

    Raises
    ------
    InputError
        When the scenario cannot be priced.
    """
    mixed = priced(scenario, "mixed", stack)
    ranks = next((n for name, n in mixed.graph.degrees.items() if name == f"{scenario.cluster.pools[0].name}.dp"), 1)
    if mixed.additive:
        found = _sums(mixed, grid or fine(tokens, -(-sequences // ranks)), ranks)
    else:
        found = _whole(scenario, stack, grid or coarse(tokens, -(-sequences // ranks)), ranks)
    if stack:
        found = replace(found, sequence_s=stack.sequence_s, prompt_s=stack.prompt_s, stretch=stack.stretch)
    return replace(found, accuracy=check(found, scenario, stack, tokens, sequences))


def _sums(mixed: Priced, grid: Grid, ranks: int) -> Steps:
    """Tables of a plan whose ops follow one another: every part by itself."""
    tokens, sequences, context, chunks, new, cached = (axis.nodes for axis in grid.axes)
    one = np.ones_like
    linear = mixed.parts(_points(0 * tokens, one(tokens), 1, np.maximum(tokens, 1), 0), ("linear", "shared"))
    head = mixed.parts(_points(np.maximum(sequences, 1) * ranks, one(sequences), 0, 1, 0), ("head",))["head"]
    rows, at = (part.ravel() for part in np.meshgrid(np.maximum(sequences, 1), np.maximum(context, 1), indexing="ij"))
    decode = mixed.parts(_points(rows * ranks, at, 0, 1, 0), ("decode",))["decode"].reshape(len(sequences), -1)
    count, size, old = (part.ravel() for part in np.meshgrid(np.maximum(chunks, 1), np.maximum(new, 1), cached, indexing="ij"))
    prefill = mixed.parts(_points(0 * count, one(count), count * ranks, size, old), ("prefill",))["prefill"]
    decode[0] = 0.0
    prefill = prefill.reshape(len(chunks), len(new), len(cached))
    prefill[0] = 0.0
    # tokens of a shared part are those of all ranks: one prompt stands for them
    return Steps(grid, linear["linear"], linear["shared"], head, decode, prefill, ranks=ranks, unit=ranks)


def _whole(scenario: Scenario, stack: Stack | None, grid: Grid, ranks: int) -> Steps:
    """Tables of a plan with overlapping lanes: whole steps, scheduled."""
    tokens, sequences, context, chunks, new, cached = (axis.nodes for axis in grid.axes)
    decoding, filling = priced(scenario, "decode", stack), priced(scenario, "prefill", stack)
    unit = ranks * decoding.order.batches
    rows, at = (part.ravel() for part in np.meshgrid(np.maximum(sequences, 1), np.maximum(context, 1), indexing="ij"))
    decode = decoding.exact(_points(rows * unit, at, 0, 1, 0)).reshape(len(sequences), -1)
    count, size, old = (part.ravel() for part in np.meshgrid(np.maximum(chunks, 1), np.maximum(new, 1), cached, indexing="ij"))
    prefill = filling.exact(_points(0 * count, np.ones_like(count), count * ranks, size, old))
    prefill = prefill.reshape(len(chunks), len(new), len(cached))
    least = min(float(decode[1, 1]), float(prefill[1, 1, 0]))
    decode, prefill = decode - least, prefill - least
    decode[0], prefill[0] = 0.0, 0.0
    flat = np.zeros(len(tokens))
    return Steps(grid, flat + least, flat, np.zeros(len(sequences)), decode, prefill, ranks=ranks, unit=unit)


def _points(*columns: Array | float) -> Array:
    return np.column_stack(np.broadcast_arrays(*columns)).astype(np.float64)


def check(steps: Steps, scenario: Scenario, stack: Stack | None, tokens: int, sequences: int, seed: int = 0) -> Accuracy:
    """The tables against exact pricing of random steps: decodes alone, prompts alone, and both."""
    points = random_steps(scenario, tokens, sequences, seed)
    errors = np.concatenate([deviations(steps, scenario, stack, points, phase) for phase in ("decode", "prefill", "mixed")])
    return Accuracy(len(errors), float(errors.mean()), float(errors.max()))


def random_steps(scenario: Scenario, tokens: int, sequences: int, seed: int) -> Array:
    """Steps of every size, evenly in the logarithm; (POINTS, 5)."""
    rng = np.random.default_rng(seed)
    longest = scenario.model.max_context or 1 << 17
    rows = np.floor(2 ** rng.uniform(0, np.log2(sequences), POINTS))
    context = np.floor(2 ** rng.uniform(5, np.log2(longest), POINTS))
    prompts = np.floor(2 ** rng.uniform(0, 3, POINTS))
    new = np.floor(2 ** rng.uniform(3, np.log2(max(16, tokens)), POINTS) / prompts) + 1
    cached = np.where(rng.random(POINTS) < 0.5, 0, np.floor(2 ** rng.uniform(5, np.log2(longest), POINTS)))
    return np.column_stack([rows, context, prompts, new, cached])


def deviations(steps: Steps, scenario: Scenario, stack: Stack | None, points: Array, phase: str) -> Array:
    """|table / exact - 1| of steps of one phase."""
    asked = points.copy()
    asked[:, {"decode": [2, 4], "prefill": [0, 1], "mixed": []}[phase]] = 0
    exact = priced(scenario, phase, stack).exact(asked)
    if stack:
        alone = asked.copy()
        alone[:, 2:] = 0
        base = priced(scenario, "decode", stack).exact(alone) if phase == "mixed" else exact * (phase == "decode")
        exact = base + stack.stretch * (exact - base) + stack.sequence_s * -(-asked[:, 0] // steps.ranks)
    return np.asarray(np.abs(steps.times(asked) / exact - 1))
