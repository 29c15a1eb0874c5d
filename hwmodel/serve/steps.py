"""Step times of one instance as tables over tokens, sequences, contexts and prompt chunks, filled by the packed model.

What a micro-batch takes, op after op, is a sum over what its ops depend on, exact at the nodes:

    sum = linear[tokens of a rank] + shared[all tokens] + head[sequences] + decode[sequences, mean context]
        + mean over chunks prefill[chunks, new, cached]

and so is what each lane (the chips of a pool or stage, a way between pools) works of it. Where ops follow one another a step is
the sum. Where lanes work side by side (AFD, micro-batches, pipelines) m micro-batches take max(sum, m x the busiest lane), what
a steady schedule tends to: exact where one lane or the way through all of them is the bound, see
`hwmodel.kernels.serving_steps`. `check` says how far the tables are from exact pricing and scheduling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_steps import steps_s
from hwmodel.scenario import Scenario
from hwmodel.serve.crowding import crowding
from hwmodel.serve.grid import Grid, coarse, fine
from hwmodel.serve.pricing import Priced, priced
from hwmodel.served.stack import Stack

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

POINTS = 300
"""Random steps of a check, of each phase."""
NEAR = 0.002
"""Mean error of a check up to which the bound of a schedule stands for it."""
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
    host_s: float = 0.0
    """Host time of every step."""
    lanes: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """Lane by lane, over tokens of a rank, over tokens, then shares of head, decode and prefill; (lanes, 2 tokens + 3), s."""
    micro_batches: int = 1
    """That a step is cut into at most."""
    crowding: Array = field(default_factory=lambda: np.zeros((0, 0, 0)))
    """The schedule over its bound, (micro-batches, tokens, shares), see `hwmodel.serve.crowding`; none where that is near."""
    accuracy: Accuracy | None = None
    """None when they were not made from a model."""

    def times(self, points: Array) -> Array:
        """Seconds of steps, points (n, 5): decoding sequences, mean context, prompts, new and cached tokens of each prompt."""
        out = np.zeros(len(points))
        steps_s(_only(self), np.ascontiguousarray(points, dtype=np.float64), out)
        return out

    def times_factor(self, factor: float) -> Steps:
        """The same with every step so many times as long."""
        seconds = (*TABLES, "host_s", "sequence_s", "prompt_s")
        lanes = self.lanes.copy()
        lanes[:, : 2 * len(self.grid.tokens.nodes)] *= factor  # behind them stand shares
        return replace(self, lanes=lanes, accuracy=self.accuracy, **{name: getattr(self, name) * factor for name in seconds})


def stacked(kinds: list[Steps]) -> dict[str, Array | Ints]:
    """The tables of several kinds of instances as the kernels read them."""
    longest = max(len(axis.nodes) for kind in kinds for axis in (*kind.grid.axes, kind.grid.crowd))
    values = [
        np.concatenate([*(getattr(kind, name).ravel() for name in TABLES), kind.lanes.ravel(), kind.crowding.ravel()])
        for kind in kinds
    ]
    table = np.zeros((len(kinds), max(map(len, values))))
    axes, axis = [], []
    for k, kind in enumerate(kinds):
        table[k, : len(values[k])] = values[k]
        *spaced, crowd = [(item.dense, item.per_octave, len(item.nodes)) for item in (*kind.grid.axes, kind.grid.crowd)]
        *starts, lanes, crowding = np.cumsum([0, *(getattr(kind, name).size for name in (*TABLES, "lanes"))]).tolist()
        axes.append([np.pad(item.nodes, (0, longest - len(item.nodes))) for item in (*kind.grid.axes, kind.grid.crowd)])
        begins = [*((at, 0, 0) for at in starts), (lanes, len(kind.lanes), 0), (crowding, len(kind.crowding), 0)]
        axis.append([*spaced, *begins, crowd])
    return {"table": table, "axes": np.array(axes), "axis": np.array(axis)}


def _only(steps: Steps) -> Serving:
    """A serving state with nothing in it but the step times of one instance."""
    none, rows, real = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros((0, 0))
    inst, meter = np.zeros((1, c.N_INSTANCE), np.int64), np.zeros((1, c.N_METER))
    inst[0, [c.RANKS, c.MICRO_BATCHES]] = steps.ranks, steps.micro_batches
    meter[0, [c.SEQUENCE_S, c.STRETCH, c.HOST_S]] = steps.sequence_s, steps.stretch, steps.host_s
    return Serving(
        req=rows, when=real, inst=inst, meter=meter, batch=rows, starts=none, blocks=none,
        cache=np.zeros((3, 0, 0, 0), np.int32), tier=np.zeros((0, 0, 0), np.int64), tier_s=np.zeros((0, 0, 0)), gaps=none,
        total=np.zeros(0), follow=none, rank=np.zeros((1, steps.ranks, c.N_RANK)), **stacked([steps]),
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
    found = _tables(mixed, grid or fine(tokens, -(-sequences // ranks)), ranks)
    if stack:
        found = replace(found, sequence_s=stack.sequence_s, prompt_s=stack.prompt_s, stretch=stack.stretch)
    found = replace(found, accuracy=check(found, scenario, stack, tokens, sequences))
    if mixed.additive or found.accuracy is None or found.accuracy.mean <= NEAR:
        return found
    crowded = replace(found, crowding=crowding(mixed, found.grid.crowd.nodes, ranks))
    crowded = replace(crowded, accuracy=check(crowded, scenario, stack, tokens, sequences))
    return crowded if crowded.accuracy and crowded.accuracy.mean < found.accuracy.mean else found


def _tables(mixed: Priced, grid: Grid, ranks: int) -> Steps:
    """Every part of a step by itself, of all lanes together and of each."""
    tokens, sequences, context, chunks, new, cached = (axis.nodes for axis in grid.axes)
    one, dense = np.ones_like, np.maximum(tokens, 1)
    each = np.vstack([mixed.way, mixed.lanes])  # (1 + lanes, ops)
    at = _points(
        0 * tokens, one(tokens), 1, dense, 0
    )  # tokens of a shared part are those of all ranks: one prompt's stand for them
    linear, shared = (mixed.sums(at, each * (mixed.part == name)) for name in ("linear", "shared"))
    head = mixed.sums(_points(np.maximum(sequences, 1) * ranks, one(sequences), 0, 1, 0), each * (mixed.part == "head"))
    rows, of = (part.ravel() for part in np.meshgrid(np.maximum(sequences, 1), np.maximum(context, 1), indexing="ij"))
    decode = mixed.sums(_points(rows * ranks, of, 0, 1, 0), each * (mixed.part == "decode"))
    count, size, old = (part.ravel() for part in np.meshgrid(np.maximum(chunks, 1), np.maximum(new, 1), cached, indexing="ij"))
    prefill = mixed.sums(_points(0 * count, one(count), count * ranks, size, old), each * (mixed.part == "prefill"))
    shares = np.column_stack([_shares(part) for part in (head, decode, prefill)])
    lanes = _busiest(np.hstack([linear[:, 1:].T, shared[:, 1:].T, shares]))
    decode, prefill = decode[:, 0].reshape(len(sequences), -1), prefill[:, 0].reshape(len(chunks), len(new), len(cached))
    decode[0], prefill[0] = 0.0, 0.0
    return Steps(grid, linear[:, 0], shared[:, 0], head[:, 0], decode, prefill, ranks=ranks, host_s=mixed.host_s, lanes=lanes,
                 micro_batches=max(1, mixed.most))  # fmt: skip


def _shares(sums: Array) -> Array:
    """What of a part each lane does, (lanes,): lanes of layers of unlike kinds would have other shares at other sizes."""
    middle = sums[len(sums) // 2]
    return np.asarray(middle[1:] / middle[0] if middle[0] else np.zeros(len(middle) - 1))


def _busiest(lanes: Array) -> Array:
    """Lanes without those that another one always has at least as much to do as."""
    kept: list[Array] = []
    for lane in sorted(lanes, key=lambda lane: -float(lane.sum())):
        if not any((other >= lane).all() for other in kept):
            kept.append(lane)
    return np.array(kept).reshape(len(kept), lanes.shape[1])


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
