"""Experts that lie outside the fast memory: bring their weights over the link, or compute where they lie.

Symbols: W bytes and P parameters of one expert, m tokens on it, h activation elements of a token, F FLOP/s, BW B/s; `fast` is
the device that the tokens are on, `near` the one whose memory holds the expert, `link` joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import Format

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Device:
    """What computes: peak and bandwidth as reached."""

    flops_per_s: float
    bytes_per_s: float

    def seconds(self, weights_bytes: float, flops: float) -> float:
        """Time to read the weights and compute, the two overlapped."""
        return max(weights_bytes / self.bytes_per_s, flops / self.flops_per_s)


@dataclass(frozen=True)
class Link:
    """What joins the two devices, per direction."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Offloaded:
    """One expert and the two places it can run at."""

    params: float
    """P: three matrices of a gated expert."""
    weight_bytes: float
    """Bytes per parameter, scales included."""
    moved_bytes: float
    """Activation bytes of one token that cross the link, there and back together: 2 h b_a."""
    fast: Device
    near: Device
    link: Link
    ahead_s: float = 0.0
    """Time the link has for this expert before it is needed: its share of a layer when they are fetched one layer ahead."""

    @property
    def bytes(self) -> float:
        """W."""
        return self.params * self.weight_bytes

    def move_s(self, tokens: float) -> float:
        """Weights to the fast device: W / BW_l + max(W / BW_f, 2 P m / F_f), less what the link did ahead of time."""
        brought = self.bytes / self.link.bytes_per_s + self.link.latency_s
        return max(0.0, brought - self.ahead_s) + self.fast.seconds(self.bytes, 2 * self.params * tokens)

    def near_s(self, tokens: float) -> float:
        """Computed where it lies: max(W / BW_n, 2 P m / F_n) + 2 m h b_a / BW_l, and the latency of both ways."""
        sent = tokens * self.moved_bytes / self.link.bytes_per_s + 2 * self.link.latency_s
        return self.near.seconds(self.bytes, 2 * self.params * tokens) + sent

    def crossing(self) -> float:
        """Tokens from which the fast device is the quicker place; 0 when it always is, infinity when it never is.

        Exact: both times are made of straight lines that break where a device turns from reading to computing.
        """
        breaks = [device.flops_per_s * self.weight_bytes / (2 * device.bytes_per_s) for device in (self.fast, self.near)]
        ends = [0.0, *sorted(set(breaks)), 2 * max(breaks) + 1]
        gains = [self.near_s(tokens) - self.move_s(tokens) for tokens in ends]
        if gains[0] >= 0:
            return 0.0
        for number in range(1, len(ends)):
            slope = (gains[number] - gains[number - 1]) / (ends[number] - ends[number - 1])
            last = number == len(ends) - 1
            if gains[number] >= 0 or (last and slope > 0):
                return ends[number - 1] - gains[number - 1] / slope
        return float("inf")


def near_tokens_per_s(model: Model, bytes_per_s: float, weights: Format, *, shared: bool = False) -> float:
    """Most tokens per second of one sequence that a memory of `bytes_per_s` allows when it holds the routed experts.

    BW / bytes of the experts that one token uses, all layers. ``shared``: the shared experts lie there too.
    """
    roles = ("experts", "shared") if shared else ("experts",)
    used = sum(count * weight.active_elements for count, _, weight in counts.stored_weights(model) if weight.role in roles)
    return bytes_per_s / (used * weights.bytes)


@dataclass(frozen=True)
class Assignment:
    """Where the experts of a layer run."""

    fast: tuple[float, ...]
    """(experts,) share of each on the fast device: 0 or 1, in between for at most one when the devices work side by side."""
    seconds: float
    """Until the layer's experts are done."""
    threshold: float
    """Fewest tokens among the experts of which the fast device has a part; infinity when it has none."""


def assign(tokens: Sequence[float], expert: Offloaded, *, side_by_side: bool = False) -> Assignment:
    """Choose the place of every expert of a layer by its tokens, at least cost.

    One after another, each expert goes where it is quicker. Side by side, both devices start together and the later one
    counts: by exchanging two experts the fast device takes those whose ratio near / move is highest until both finish
    together, which divides at most one expert by its columns (work at either place in proportion); no division of any expert
    does better.

    Experts that no token chose cost nothing anywhere.
    """
    move = np.array([expert.move_s(m) if m > 0 else 0.0 for m in tokens])
    near = np.array([expert.near_s(m) if m > 0 else 0.0 for m in tokens])
    share = np.zeros(len(tokens))
    if not side_by_side:
        share[(move < near) & (near > 0)] = 1.0
        seconds = float(np.minimum(move, near).sum())
    else:
        used, left = 0.0, float(near.sum())
        ratios = np.divide(near, move, out=np.full_like(near, np.inf), where=move > 0)
        order = [int(e) for e in np.lexsort((-np.asarray(tokens, float), -ratios)) if near[e] > 0]
        for e in order:
            share[e] = min(1.0, max(0.0, (left - used) / (move[e] + near[e])))
            used, left = used + share[e] * move[e], left - share[e] * near[e]
            if share[e] < 1:
                break
        seconds = max(used, left)
    taken = [m for m, part in zip(tokens, share, strict=True) if part > 0]
    return Assignment(tuple(share.tolist()), float(seconds), min(taken, default=float("inf")))
