"""Which experts tokens choose: popularity, inclusion probabilities, the experts of the busiest chip."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodel.kernels.columns import N_BINS
from hwmodel.spec.schema import Spec

Array = NDArray[np.float64]


class Routing(Spec):
    """How unequal the experts are."""

    kind: Literal["uniform", "zipf"] = "uniform"
    """uniform: every expert alike; zipf: popularity falls as rank^-s."""
    s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Exponent of the Zipf law."""
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
        weight = np.arange(1, experts + 1, dtype=np.float64) ** -self.s
        weight /= weight.sum()
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
        order = np.random.default_rng(self.seed).permutation(experts)[first : first + held]
        chosen = np.zeros(groups * local)
        chosen[:held] = self.inclusion(experts, topk)[order]
        shares = chosen.reshape(groups, local)
        busiest = np.sort(shares[shares.sum(axis=1).argmax()])[::-1]
        for index, part in enumerate(np.array_split(busiest, min(N_BINS, local))):
            found[index] = part.mean(), len(part)
        return found


def reached_groups(experts: int, groups: int, topk: float) -> float:
    """Expected groups that hold one of a token's `topk` different experts: groups (1 - product of (E - E/G - i)/(E - i))."""
    missed = 1.0
    for i in range(round(topk)):
        missed *= max(0.0, experts - experts / groups - i) / (experts - i)
    return groups * (1 - missed)
