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


def compute_bound_crossing(weight_bytes: float, near_flops_per_s: float, link_bytes_per_s: float) -> float:
    """Tokens where a stream bound by the link takes as long as a near device bound by its arithmetic: b_w F_n / (2 BW_l).

    Derivation: W / BW_l = 2 P m / F_n with W = b_w P; a `crossing` with everything else free.
    """
    return weight_bytes * near_flops_per_s / (2 * link_bytes_per_s)


def traffic_ratio(expert_inter: int, weight_bytes: float, activation_bytes: float, tokens: float) -> float:
    """Bytes over the link for weights against activations of one gated expert: 3 h f b_w / (2 m h b_a)."""
    return 3 * expert_inter * weight_bytes / (2 * tokens * activation_bytes)


def near_tokens_per_s(model: Model, bytes_per_s: float, weights: Format, *, shared: bool = False) -> float:
    """Most tokens per second of one sequence that a memory of `bytes_per_s` allows when it holds the routed experts.

    BW / bytes of the experts that one token uses, all layers. ``shared``: the shared experts lie there too.
    """
    roles = ("experts", "shared") if shared else ("experts",)
    used = sum(count * weight.active_elements for count, _, weight in counts.stored_weights(model) if weight.role in roles)
    return bytes_per_s / (used * weights.bytes)


def split_share(move_s: float, near_s: float) -> float:
    """Share of a hot expert's columns for the fast device at which both places finish together: t_near / (t_near + t_move).

    Columns of an expert divide its weights and its products alike, so each place's time is in proportion to its share.
    """
    return near_s / (near_s + move_s)


def streamed_misses(missed: float, link_bytes_per_s: float, host_bytes_per_s: float, *, shared: bool = True) -> float:
    """Of `missed` experts in host memory, how many to bring over the link so that link and host finish together.

    The host computes the others at the speed of its memory. ``shared``: the link reads the same memory, so that the host has
    BW_h - BW_l left: q / BW_l = (m - q) / (BW_h - BW_l), q = m BW_l / BW_h (FreeToken, arXiv 2608.16157); else
    q = m BW_l / (BW_l + BW_h). All of them when the link is as fast as the memory.
    """
    together = host_bytes_per_s if shared else host_bytes_per_s + link_bytes_per_s
    return missed * min(1.0, link_bytes_per_s / together)


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
    together, which divides at most one expert by its columns (`split_share`); no division of any expert does better.

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


def turning_points(
    lower: Device, upper: Device, link_bytes_per_s: float, lower_intensity: float, upper_intensity: float
) -> tuple[float, float]:
    """Intensities (FLOP per byte moved) P1 and P2 of the hierarchical roofline (MoE-Lightning, arXiv 2411.11217, section 3.2).

    Work on data of the lower level j reaches min(F_i, BW_i I_i, BW_l I) at the upper one i. Below P1 =
    min(F_j, BW_j I_j) / BW_l it is better done where the data lies; above P2 = min(F_i, BW_i I_i) / BW_l the link no longer
    binds.

    Parameters
    ----------
    lower_intensity, upper_intensity
        FLOP per byte that each device reads from its own memory, I_j and I_i.
    """
    below = min(lower.flops_per_s, lower.bytes_per_s * lower_intensity)
    above = min(upper.flops_per_s, upper.bytes_per_s * upper_intensity)
    return below / link_bytes_per_s, above / link_bytes_per_s
