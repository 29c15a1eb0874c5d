"""How tokens fall on experts: distinct experts, tiles over random group sizes."""

import math

import numpy as np

from hwmodel.kernels import columns as c
from hwmodel.kernels.bare import bare

FEW = 16.0
"""Tokens on an expert, in the mean, up to which the law of their number is summed exactly."""


@bare
def distinct_experts(tokens: float, bins: np.ndarray, laid_out: bool = False) -> float:
    """Expected number of local experts that at least one of `tokens` tokens chooses: sum of n (1 - (1 - p)^tokens).

    Loads that are `laid_out`, not drawn at random, hit sum of n min(1, tokens p).

    bins : (N_BINS, 2) inclusion probability p per token, number n of local experts with it. (256, 8): 163.31 at 32 tokens.
    """
    total = 0.0
    for j in range(c.N_BINS):
        p, n = bins[j, 0], bins[j, 1]
        if n <= 0.0:
            break
        if laid_out:
            total += n * min(1.0, tokens * p)
        else:
            total += n if p >= 1.0 else n * -math.expm1(tokens * math.log1p(-p))
    return max(total, 1.0) if laid_out and tokens > 0.0 and total > 0.0 else total


@bare
def routed_tokens(tokens: float, bins: np.ndarray) -> float:
    """Expected token-expert pairs on this chip: tokens times the sum of n p."""
    total = 0.0
    for j in range(c.N_BINS):
        if bins[j, 1] <= 0.0:
            break
        total += bins[j, 0] * bins[j, 1]
    return tokens * total


@bare
def expected_tiles(tokens: float, p: float, rows: float) -> float:
    """Expected ceil(X / rows) for X ~ Binomial(tokens, p): the sum over j of P(X > j rows).

    Exact for one row a tile, and summed over the probabilities for small means. Else P(X > 0) is exact and further tails
    use the normal law with continuity and Cornish-Fisher skewness corrections.
    """
    if tokens <= 0.0 or p <= 0.0:
        return 0.0
    mean = tokens * p
    if rows <= 1.0:
        return mean
    if p > 1.0 - 1e-6:
        return np.ceil(tokens / rows - 1e-9)
    if mean < FEW:
        return summed_tiles(tokens, p, rows)
    total = -math.expm1(tokens * math.log1p(-p))
    sigma = math.sqrt(mean * (1.0 - p))
    skew = max((1.0 - 2.0 * p) / sigma, -0.3)
    if sigma > 50.0 * rows:  # every remainder is alike: the sum would take millions of steps
        return mean / rows + 0.5 * (1.0 - 1.0 / rows)
    # below -8 sigma a tail is 1; the correction is quadratic: far out it would turn the sign
    sure = max(0.0, np.floor((mean - 0.5 - 8.0 * sigma) / rows))
    total += sure
    j = sure + 1.0
    while j * rows < tokens:
        z = (j * rows + 0.5 - mean) / sigma
        if z > 8.0:
            break
        total += 0.5 * math.erfc((z - skew * (z * z - 1.0) / 6.0) / math.sqrt(2.0))
        j += 1.0
    return total


@bare
def summed_tiles(tokens: float, p: float, rows: float) -> float:
    """Expected ceil(X / rows), X ~ Binomial(tokens, p): the sum of P(X = x) ceil(x / rows); for a few tokens."""
    chance = math.exp(tokens * math.log1p(-p))
    total = 0.0
    x = 0.0
    while x < tokens and (x < tokens * p or chance > 1e-12):
        chance *= (tokens - x) / (x + 1.0) * p / (1.0 - p)
        x += 1.0
        total += chance * np.ceil(x / rows)
    return total
