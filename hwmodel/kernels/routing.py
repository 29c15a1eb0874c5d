"""How tokens fall on experts: distinct experts, tiles over random group sizes."""

import math

import numpy as np
from numba import njit

from hwmodel.kernels import columns as c


@njit(cache=True)
def distinct_experts(tokens: float, bins: np.ndarray) -> float:
    """Expected number of local experts that at least one of `tokens` tokens chooses: sum of n (1 - (1 - p)^tokens).

    bins : (N_BINS, 2) inclusion probability p per token, number n of local experts with it. (256, 8): 163.31 at 32 tokens.
    """
    total = 0.0
    for j in range(c.N_BINS):
        p, n = bins[j, 0], bins[j, 1]
        if n <= 0.0:
            break
        total += n if p >= 1.0 else n * -math.expm1(tokens * math.log1p(-p))
    return total


@njit(cache=True)
def routed_tokens(tokens: float, bins: np.ndarray) -> float:
    """Expected token-expert pairs on this chip: tokens times the sum of n p."""
    total = 0.0
    for j in range(c.N_BINS):
        if bins[j, 1] <= 0.0:
            break
        total += bins[j, 0] * bins[j, 1]
    return tokens * total


@njit(cache=True)
def expected_tiles(tokens: float, p: float, rows: float) -> float:
    """Expected ceil(X / rows) for X ~ Binomial(tokens, p): the sum over j of P(X > j rows).

    P(X > 0) is exact; further tails use the normal law with continuity and Cornish-Fisher skewness corrections.
    """
    if tokens <= 0.0 or p <= 0.0:
        return 0.0
    if p >= 1.0:
        return np.ceil(tokens / rows - 1e-9)
    total = -math.expm1(tokens * math.log1p(-p))
    mean = tokens * p
    sigma = math.sqrt(mean * (1.0 - p))
    skew = (1.0 - 2.0 * p) / sigma
    j = 1.0
    while j * rows < tokens:
        z = (j * rows + 0.5 - mean) / sigma
        if z > 8.0:
            break
        z -= skew * (z * z - 1.0) / 6.0
        total += 0.5 * math.erfc(z / math.sqrt(2.0))
        j += 1.0
    return total
