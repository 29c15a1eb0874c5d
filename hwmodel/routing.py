"""Which experts tokens choose: popularity, inclusion probabilities, the experts of the busiest chip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from hwmodel.kernels.columns import N_BINS
from hwmodel.replication import place
from hwmodel.spec.schema import Spec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Experts:
    """Which experts an op works on: `count` of `total`, each token choosing `topk`."""

    total: int
    topk: float
    first: int = 0
    count: int | None = None
    ranked: bool = False
    """Numbered by popularity, the most popular first; else in a random order."""
    redundant: int = 0
    """Slots that hold a further copy of one of them."""

    @property
    def held(self) -> int:
        """Experts of this op, all chips together."""
        return self.total if self.count is None else self.count

    @property
    def slots(self) -> int:
        """Experts that the chips hold together, copies counted."""
        return self.held + self.redundant


class LayerCounts(Spec):
    """Tokens that each expert of a layer was given, as counted in a run."""

    layer: Annotated[int, Field(ge=0, le=100_000)]
    """Index of the layer from the bottom up, layers without experts counted."""
    tokens: Annotated[tuple[Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)], ...], Field(min_length=1)]
    """Of expert 0, 1, ... in this order; what is missing at the end is 0."""


class Routing(Spec):
    """How unequal the experts are."""

    kind: Literal["uniform", "zipf", "power_law", "measured"] = "uniform"
    """uniform: every expert alike; zipf: popularity falls as rank^-s; power_law: loads drawn from a density falling as
    load^-s, as benchmarks of expert layers draw them; measured: as counted, from `file` or `counts`."""
    s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Exponent of the law."""
    tokens: Annotated[int, Field(ge=1, le=10**9)] = 1024
    """Of a power law: tokens of the step, which bound the load of an expert."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Places the experts on chips at random; measured experts stand in the order of their index."""
    file: str = ""
    """Of measured: a CSV with columns layer, expert and count, or a YAML or JSON with `rows` of such keys; beside the
    scenario's file, or in the current folder."""
    counts: tuple[LayerCounts, ...] = ()
    """Of measured: the counts themselves, instead of a file."""

    @model_validator(mode="after")
    def _counted(self) -> Routing:
        given = bool(self.file) + bool(self.counts)
        if self.kind == "measured" and not given:
            raise ValueError("kind measured needs 'file', counts of tokens by layer and expert, or 'counts'")
        if given > 1:
            raise ValueError("say either 'file' or 'counts'")
        if self.kind != "measured" and given:
            raise ValueError(f"counts are for kind measured, not {self.kind}")
        layers = [row.layer for row in self.counts]
        for row in self.counts:
            if not sum(row.tokens):
                raise ValueError(f"layer {row.layer}: no expert was given a token")
        if len(set(layers)) < len(layers):
            raise ValueError(f"layer {max(layers, key=layers.count)} is counted twice")
        return self

    def inclusion(self, experts: int, topk: float) -> Array:
        """Probability that a token chooses each expert, shape (experts,), sum `topk`.

        Choosing without replacement by popularity w: q = 1 - exp(-x w) with x such that the sum is topk (the Poisson form of
        successive sampling; exact for equal weights).
        """
        if topk >= experts:
            return np.ones(experts)
        if self.kind == "measured":
            return np.asarray(np.mean([measured_shares(row.tokens, experts, topk) for row in self.counts], axis=0))
        if self.kind == "uniform" or self.s == 0:
            return np.full(experts, topk / experts)
        if self.kind == "power_law":
            return drawn_loads(experts, topk, self.tokens, self.s) / self.tokens
        weight = zipf(experts, self.s)
        low, high = 0.0, 1.0
        while (1 - np.exp(-high * weight)).sum() < topk:
            high *= 2
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if (1 - np.exp(-middle * weight)).sum() < topk else (low, middle)
        return np.asarray(1 - np.exp(-high * weight))

    def bins(
        self,
        experts: int,
        topk: float,
        held: int,
        groups: int,
        first: int = 0,
        redundant: int = 0,
        layers: Iterable[int] = (),
        ranked: bool = False,
    ) -> Array:
        """(inclusion probability, number of experts) of the busiest of `groups` chips, shape (N_BINS, 2).

        `held` of the model's `experts`, from `first` on (`ranked`: from the most popular down), are spread over the groups:
        in a random order, measured ones in their own, with `redundant` slots as `replication.place` plans them for these
        very loads. A group that misses an expert is padded. Measured counts are those of `layers`, of all that were counted
        when none of them was.
        """
        found = np.zeros((N_BINS, 2))
        if not redundant and (self.kind == "uniform" or (self.kind != "measured" and self.s == 0) or topk >= experts):
            found[0] = min(1.0, topk / experts), -(-held // groups)
            return found
        every = [self._part(one, first, held, ranked) for one in self._laid_out(experts, topk, groups, layers)]
        busiest = np.mean([_busiest(one, groups, redundant) for one in every], axis=0)
        for index, part in enumerate(np.array_split(busiest, min(N_BINS, len(busiest)))):
            found[index] = part.mean(), len(part)
        return found

    def _part(self, popularity: Array, first: int, held: int, ranked: bool) -> Array:
        """Those of an op: a run of experts as they are laid out, or, mixed at random, of experts as they are popular."""
        if not ranked:
            return popularity[first : first + held]
        return np.random.default_rng(self.seed).permutation(np.sort(popularity)[::-1][first : first + held])

    def _laid_out(self, experts: int, topk: float, groups: int, layers: Iterable[int]) -> list[Array]:
        """Inclusion probabilities in the order in which experts are put on chips; several that are averaged."""
        if self.kind == "measured":
            wanted = set(layers)
            rows = [row for row in self.counts if row.layer in wanted] or self.counts
            return [measured_shares(row.tokens, experts, topk) for row in rows]
        popularity = self.inclusion(experts, topk)
        seeds = range(self.seed, self.seed + (DRAWS if self.kind == "power_law" and groups > 1 else 1))
        return [popularity[_mixed(experts, seed)] for seed in seeds]


@cache
def _mixed(experts: int, seed: int) -> NDArray[np.int64]:
    """A random order of experts."""
    return np.random.default_rng(seed).permutation(experts)


DRAWS = 16
"""Random placements whose busiest chips are averaged under a power law: benchmarks report such a mean."""


def _busiest(chosen: Array, groups: int, redundant: int) -> Array:
    """Inclusion probabilities on the chip with the highest load, the largest first; experts in order, or replicated."""
    local = -(-(len(chosen) + redundant) // groups)
    shares = np.zeros((groups, local))
    if redundant:
        for chip, slots in enumerate(place(chosen, len(chosen) + redundant, groups).shares(chosen)):
            shares[chip, : len(slots)] = slots
    else:
        shares.reshape(-1)[: len(chosen)] = chosen
    return np.sort(shares[shares.sum(axis=1).argmax()])[::-1]


def measured_shares(tokens: Sequence[float], experts: int, topk: float) -> Array:
    """Inclusion probabilities, shape (experts,), of which counted tokens are a sample: count x topk / sum, at most 1."""
    counted = np.zeros(experts)
    counted[: len(tokens)] = tokens
    return np.asarray(np.minimum(1.0, counted * topk / counted.sum()))


def drawn_loads(experts: int, topk: float, tokens: float, a: float) -> Array:
    """Tokens on every expert, ascending, when loads have a density proportional to x^-a on [1, 0.8 tokens].

    The quantiles (j - 1/2) / E of that law, scaled to tokens x topk pairs; what exceeds one visit a token goes evenly to the
    others. With fewer pairs than experts the interval is [0.01, 2]. As the expert benchmarks of aiconfigurator draw loads
    (https://github.com/ai-dynamo/aiconfigurator, collectors of the moe tables).
    """
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    high = max(high, low * 1.001)
    part = (np.arange(experts) + 0.5) / experts
    if abs(a - 1) < 1e-9:
        loads = low * (high / low) ** part
    else:
        loads = ((high ** (1 - a) - low ** (1 - a)) * part + low ** (1 - a)) ** (1 / (1 - a))
    loads *= tokens * topk / loads.sum()
    for _ in range(20):
        over = np.maximum(loads - tokens, 0).sum()
        loads = np.minimum(loads, tokens)
        free = loads < tokens
        if over < 1e-9 * tokens or not free.any():
            break
        loads[free] += over / free.sum()
    return np.asarray(loads)


def zipf(experts: int, s: float) -> Array:
    """Popularity that falls as rank^-s, shape (experts,), sum 1, most popular first."""
    weight = np.arange(1, experts + 1, dtype=np.float64) ** -s
    return np.asarray(weight / weight.sum())


def reached_groups(of: Experts, groups: int) -> float:
    """Expected groups that hold one of a token's k different experts: G (1 - product of (E - H/G - i)/(E - i)).

    E experts in all, copies counted, of which these groups hold H.
    """
    missed, every = 1.0, of.total + of.redundant
    for i in range(round(of.topk)):
        missed *= max(0.0, every - of.slots / groups - i) / (every - i)
    return groups * (1 - missed)
