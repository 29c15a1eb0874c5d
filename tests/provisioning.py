"""Oracles of split plans: attention devices per FFN device, the context they hold on average, the wait for the slowest.

Of arXiv 2601.21351 (analytical provisioning of disaggregated attention and FFN): one FFN device serves `ratio` attention
devices with B sequences each. A layer takes as long as the slowest of its stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hwmodel.loads import normal_maximum

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """A stage whose time is a line in the pool ratio: seconds = slope_s x ratio + fixed_s, in any one unit of time."""

    slope_s: float
    """a B: of the tokens that one more attention device sends; positive."""
    fixed_s: float
    """b: whatever the batch; not negative."""

    def seconds(self, ratio: float) -> float:
        """Time at a ratio."""
        return self.slope_s * ratio + self.fixed_s


def throughput(ratio: float, batch: float, attention_s: float, stages: Sequence[Stage]) -> float:
    """Tokens per second and device: r B / ((r + 1) max(t_A, a_F r B + b_F, a_C r B + b_C)).

    Parameters
    ----------
    ratio
        Attention devices per FFN device, r.
    batch
        Sequences of an attention device, B.
    attention_s
        Time of an attention device for them, t_A.
    stages
        FFN, and transfers where they are a stage of their own.
    """
    slowest = max(attention_s, *(stage.seconds(ratio) for stage in stages))
    return ratio * batch / ((ratio + 1) * slowest)


def best_ratio(attention_s: float, stages: Sequence[Stage]) -> float:
    """Ratio of the highest `throughput`, exactly.

    Derivation: (1 + 1/r) max(t_A, lines) is a maximum of functions convex in r, so its one minimum lies where two of them
    cross or where one is flat. (1 + 1/r)(s r + b) is flat at sqrt(b / s); (1 + 1/r) t_A falls everywhere. With the FFN alone:
    max(r_A, r_peak), r_A = (t_A - b) / s, r_peak = sqrt(b / s).
    """
    found = [math.sqrt(stage.fixed_s / stage.slope_s) for stage in stages]
    found += [(attention_s - stage.fixed_s) / stage.slope_s for stage in stages]
    found += [
        (one.fixed_s - other.fixed_s) / (other.slope_s - one.slope_s)
        for one, other in combinations(stages, 2)
        if one.slope_s != other.slope_s
    ]
    return max((ratio for ratio in found if ratio > 0), key=lambda ratio: throughput(ratio, 1.0, attention_s, stages))


def best_whole_ratio(attention_s: float, stages: Sequence[Stage], most: int) -> int:
    """Best whole ratio from 1 to `most`: a neighbour of `best_ratio`, since the throughput has one peak."""
    low = max(1, min(most, math.floor(best_ratio(attention_s, stages))))
    return max((low, min(most, low + 1)), key=lambda ratio: throughput(ratio, 1.0, attention_s, stages))


def best_pools(devices: int, attention_s: float, stages: Sequence[Stage]) -> tuple[int, int]:
    """(attention, FFN) devices of `devices`, at least one each, with the highest throughput.

    The share of attention devices rises with the ratio, so that again a neighbour of the best share is the best.

    Raises
    ------
    ValueError
        With fewer than two devices.
    """
    if devices < 2:
        raise ValueError(f"attention and FFN on pools of their own need two devices, got {devices}")
    ratio = best_ratio(attention_s, stages)
    low = max(1, min(devices - 1, math.floor(devices * ratio / (1 + ratio))))
    near = (low, min(devices - 1, low + 1))
    best = max(near, key=lambda n: throughput(n / (devices - n), 1.0, attention_s, stages))
    return best, devices - best


def stationary_context(prompts: Array, outputs: Array) -> float:
    """Mean tokens in the cache of a slot that is always full: E[P D] / E[D] + E[D (D - 1)] / (2 E[D]).

    Derivation: a request of prompt P and D outputs holds its slot for D steps, with P, P + 1, ... P + D - 1 tokens; by
    renewal reward the mean over time is the expected sum over the expected length.

    Parameters
    ----------
    prompts, outputs
        (requests,) tokens of prompt and output of equally likely requests.
    """
    length = outputs.mean()
    return float((prompts * outputs).mean() / length + (outputs * (outputs - 1)).mean() / (2 * length))


def geometric_context(prompt: float, output: float) -> float:
    """`stationary_context` for outputs geometric on {1, 2, ...} and independent of the prompt: mu_P + mu_D - 1.

    A geometric length leaves mu_D to come whenever one looks: half of it would be the mistake of the waiting-time paradox.
    """
    return prompt + output - 1


def constant_context(prompt: float, output: float) -> float:
    """`stationary_context` for outputs that are all `output` long: mu_P + (D - 1) / 2."""
    return prompt + (output - 1) / 2


def slowest_replica(replicas: int, batch: float, mean: float, deviation: float) -> float:
    """Expected load of the fullest of `replicas` attention devices: B mu + c_r sigma sqrt(B) (arXiv 2601.21351).

    Parameters
    ----------
    batch
        Sequences of a replica, B.
    mean, deviation
        Of the load of one sequence, in tokens or seconds.
    """
    return batch * mean + normal_maximum(replicas) * deviation * math.sqrt(batch)
