"""Which experts tokens choose: popularity, inclusion probabilities, the experts of the busiest chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.kernels.columns import N_BINS
from hwmodel.spec.schema import Spec

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Experts:
    """Which experts an op works on: `count` of `total`, each token choosing `topk`."""

    total: int
    topk: float
    first: int = 0
    count: int | None = None

    @property
    def held(self) -> int:
        """Experts of this op, all chips together."""
        return self.total if self.count is None else self.count


class Routing(Spec):
    """How unequal the experts are."""

    kind: Literal["uniform", "zipf", "power_law"] = "uniform"
    """uniform: every expert alike; zipf: popularity falls as rank^-s; power_law: loads drawn from a density falling as
    load^-s, as benchmarks of expert layers draw them."""
    s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Exponent of the law."""
    tokens: Annotated[int, Field(ge=1, le=10**9)] = 1024
    """Of a power law: tokens of the step, which bound the load of an expert."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0
    """Places the experts on chips at random."""

    def inclusion(self, experts: int, topk: float) -> Array:
        """Probability that a token chooses each expert, shape (experts,), sum `topk`.

        Choosing without replacement by popularity w: q = 1 - exp(-x w) with x such that the sum is topk (the Poisson form of
        successive sampling; exact for equal weights).
        """
        if topk >= experts:
            return np.ones(experts)
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

    def bins(self, experts: int, topk: float, held: int, groups: int, first: int = 0) -> Array:
        """(inclusion probability, number of experts) of the busiest of `groups` chips, shape (N_BINS, 2).

        `held` of the model's `experts`, from `first` in a random order, are spread over the groups; a group that misses an
        expert is padded.
        """
        found = np.zeros((N_BINS, 2))
        local = -(-held // groups)
        if self.kind == "uniform" or self.s == 0 or topk >= experts:
            found[0] = min(1.0, topk / experts), local
            return found
        popularity = self.inclusion(experts, topk)
        seeds = range(self.seed, self.seed + (DRAWS if self.kind == "power_law" and groups > 1 else 1))
        busiest = np.mean([_busiest(popularity, held, groups, first, seed) for seed in seeds], axis=0)
        for index, part in enumerate(np.array_split(busiest, min(N_BINS, local))):
            found[index] = part.mean(), len(part)
        return found


DRAWS = 16
"""Random placements whose busiest chips are averaged under a power law: benchmarks report such a mean."""


def _busiest(popularity: Array, held: int, groups: int, first: int, seed: int) -> Array:
    """Inclusion probabilities on the chip with the highest load when experts are placed at random, most popular first."""
    local = -(-held // groups)
    chosen = np.zeros(groups * local)
    chosen[:held] = popularity[np.random.default_rng(seed).permutation(len(popularity))[first : first + held]]
    shares = chosen.reshape(groups, local)
    return np.sort(shares[shares.sum(axis=1).argmax()])[::-1]


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


def reached_groups(experts: int, groups: int, topk: float) -> float:
    """Expected groups that hold one of a token's `topk` different experts: groups (1 - product of (E - E/G - i)/(E - i))."""
    missed = 1.0
    for i in range(round(topk)):
        missed *= max(0.0, experts - experts / groups - i) / (experts - i)
    return groups * (1 - missed)
