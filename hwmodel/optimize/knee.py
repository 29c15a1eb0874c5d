"""Tokens per expert: where reading a weight and computing with it take equally long, and the step that brings them there."""

from __future__ import annotations

from hwmodel.hardware import Chip
from hwmodel.model.dtypes import fmt


def ridge(chip: Chip, dtype: str) -> float:
    """Intensity (FLOP/B) above which a chip's dense peak binds, F / BW (Williams et al., Roofline, CACM 2009)."""
    return float(chip.peaks.by_dtype()[dtype]) / float(chip.main.bandwidth_bytes_per_s)


def knee(chip: Chip, dtype: str, stored: str) -> float:
    """Rows of a weight GEMM at which reading and computing take equally long: F b_w / (2 BW), scales in b_w.

    Derivation: a weight takes 2 m / F to compute with m rows, and b_w / BW to read.
    """
    return ridge(chip, dtype) * fmt(stored).bytes / 2


def step_batch(tokens: float, experts: int, topk: int) -> float:
    """Tokens of a step that bring `tokens` to every expert, uniform routing: m E / k."""
    return tokens * experts / topk


def efficiency(tokens: float, at_knee: float, *, overlapped: bool = True) -> float:
    """Share of the peak that an expert product reaches with m tokens and its knee at m*.

    Overlapped, t = max(read, compute): min(1, m / m*). Not overlapped, t = read + compute: m / (m + m*), one half at the knee.
    """
    return min(1.0, tokens / at_knee) if overlapped else tokens / (tokens + at_knee)


def most_tokens(seconds: float, flops_per_s: float, params: float, local: float, fixed_s: float = 0.0) -> float:
    """Tokens per expert that a chip computes in a time (s): F (t - t0) / (2 P_e n), at least 0.

    With a TPOT target and a pipeline of c stages a layer has TPOT / (c L): three stages of 16.6 ms over 61 layers leave 272 us.

    Parameters
    ----------
    flops_per_s
        As reached.
    params
        Of one expert, P_e.
    local
        Experts on the chip, n.
    fixed_s
        Launch and fill of the layer's products, t0.
    """
    return max(0.0, flops_per_s * (seconds - fixed_s) / (2 * params * local))
