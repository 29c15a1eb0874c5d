"""Keep, demote or drop the KV of an idle conversation: by what keeping and missing it are expected to cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hwmodel.serve.requests import Array, Ints
from hwmodel.serve.returns import Returns

DROP = -1


@dataclass(frozen=True)
class Tier:
    """A memory that KV of idle conversations may lie in."""

    name: str
    usd_per_byte_s: float
    """Rent."""
    load_bytes_per_s: float = math.inf
    """Back into the memory that attention reads; infinite for that memory itself."""


@dataclass(frozen=True)
class Prices:
    """What KV costs to make, to hold and to miss."""

    prefill_s_per_token: float
    """Time that an instance needs to compute a token of a prompt."""
    usd_per_s: float
    """Rent of the instance."""
    kv_bytes_per_token: float
    tiers: tuple[Tier, ...]
    usd_per_waited_s: float = 0.0
    """What a second less to the first token is worth to the user, beside the instance's time."""

    def miss_usd(self, tokens: Array | Ints) -> Array:
        """USD to compute so many tokens again."""
        return np.asarray(tokens * self.prefill_s_per_token * (self.usd_per_s + self.usd_per_waited_s))

    def load_s(self, tier: int, tokens: Array | Ints) -> Array:
        """Seconds (s) to bring the KV of so many tokens back from a tier."""
        return np.asarray(tokens * self.kv_bytes_per_token / self.tiers[tier].load_bytes_per_s)

    def hold_usd_per_s(self, tier: int, tokens: Array | Ints) -> Array:
        """USD per s that the KV of so many tokens lies in a tier."""
        return np.asarray(tokens * self.kv_bytes_per_token * self.tiers[tier].usd_per_byte_s)


def priced(prefill_s_per_token: float, usd_per_hour: float, kv_bytes_per_token: float, free_bytes: float,
           demoted: tuple[tuple[str, float, float], ...] = (), usd_per_waited_s: float = 0.0) -> Prices:  # fmt: skip
    """Prices of an instance whose memory left for KV rents as much as the whole instance.

    Parameters
    ----------
    free_bytes
        Memory left for KV: HBM less weights.
    demoted
        Slower tiers: name, price of a byte as a share of that of HBM, bandwidth in B/s.
    """
    per_s = usd_per_hour / 3600
    hbm = Tier("hbm", per_s / free_bytes)
    below = (Tier(name, hbm.usd_per_byte_s * share, bandwidth) for name, share, bandwidth in demoted)
    return Prices(prefill_s_per_token, per_s, kv_bytes_per_token, (hbm, *below), usd_per_waited_s)


def held_at_most_s(prices: Prices, tier: int) -> float:
    """How long (s) KV may lie in a tier before computing it again is cheaper; in HBM it is `break_even_s`."""
    saved = prices.miss_usd(np.ones(1))[0] - prices.load_s(tier, np.ones(1))[0] * prices.usd_per_waited_s
    return float(saved / prices.hold_usd_per_s(tier, np.ones(1))[0])


@dataclass(frozen=True)
class Plan:
    """Where the KV of each call lies while its conversation is idle."""

    edges_s: Array
    """(m + 1,) s from the end of the call, ascending from 0; at the last one everything is dropped."""
    tier: Ints
    """(n, m) tier, or DROP, between two edges; what was demoted or dropped does not come up again."""


def held(returns: Returns, tier: int, limit_s: float) -> Plan:
    """All in one tier for a time (time to live)."""
    return Plan(np.array([0.0, limit_s]), np.full((len(returns), 1), tier))


def cheapest(returns: Returns, chance: Array, prices: Prices, edges: int = 24) -> Plan:
    """Keep, demote and drop so that the expected cost is least, by dynamic programming over time and tiers.

    In each interval a tier costs its rent times the chance that the conversation is still idle, and the wait for loading times
    the chance of a return just then; without KV the return costs what is computed again. Known of a call are the chance of a
    return, its context, and of calls that ended the same way how long returns take and which share of a context they reuse.
    Moving down costs nothing.
    """
    grid = np.concatenate(([0.0], np.geomspace(min(1.0, returns.horizon_s / 2), returns.horizon_s, edges)))
    alive = idle_share(returns, grid)[returns.step]  # (n, edges + 1) of the returns, the share yet to come
    still = chance[:, None] * alive + (1 - chance)[:, None]
    idle_s = (still[:, 1:] + still[:, :-1]) / 2 * np.diff(grid)
    comes = chance[:, None] * (alive[:, :-1] - alive[:, 1:])
    context = returns.context
    cost = [
        prices.hold_usd_per_s(k, context)[:, None] * idle_s
        + comes * (prices.load_s(k, context) * prices.usd_per_waited_s)[:, None]
        for k in range(len(prices.tiers))
    ]  # fmt: skip
    cost.append(comes * prices.miss_usd(context * reused_share(returns)[returns.step])[:, None])
    best = np.zeros((len(cost), *comes.shape), np.int64)  # the tier to be in, by the highest that is open
    value = np.zeros((len(cost), len(context)))
    for m in range(comes.shape[1] - 1, -1, -1):
        total = np.stack([cost[k][:, m] + value[k] for k in range(len(cost))])
        for k in range(len(cost)):
            best[k, :, m] = k + np.argmin(total[k:], axis=0)
            value[k] = total[k:].min(axis=0)
    place = np.zeros(len(context), np.int64)
    chosen = np.empty(comes.shape, np.int64)
    for m in range(comes.shape[1]):
        place = best[place, np.arange(len(context)), m]
        chosen[:, m] = place
    return Plan(grid, np.where(chosen == len(prices.tiers), DROP, chosen))


def clairvoyant(returns: Returns, prices: Prices) -> Plan:
    """Perfect information: who knows when each conversation comes back, within the horizon, and what it then reuses."""
    costs = [
        prices.hold_usd_per_s(k, returns.context) * np.where(returns.came, returns.gap_s, np.inf)
        + prices.load_s(k, returns.reused) * prices.usd_per_waited_s
        for k in range(len(prices.tiers))
    ]  # fmt: skip
    costs.append(prices.miss_usd(returns.reused))
    best = np.argmin(np.stack(costs), axis=0)
    return Plan(np.array([0.0, returns.horizon_s]), np.where(best == len(prices.tiers), DROP, best)[:, None])


def reused_share(returns: Returns) -> Array:
    """(steps,) tokens that returns within the horizon reuse, as a share of the contexts they come back to."""
    came = returns.came
    contexts = np.bincount(returns.step, np.where(came, returns.context, 0))
    return np.asarray(np.bincount(returns.step, np.where(came, returns.reused, 0)) / np.maximum(contexts, 1))


def idle_share(returns: Returns, after_s: Array) -> Array:
    """(steps, times) share of the returns within the horizon that are yet to come at a time, by how the call ended."""
    out = np.zeros((int(returns.step.max(initial=0)) + 1, len(after_s)))
    for step in range(len(out)):
        gaps = np.sort(returns.gap_s[returns.came & (returns.step == step)])
        if len(gaps):
            out[step] = 1 - np.searchsorted(gaps, after_s, "right") / len(gaps)
            out[step, after_s == 0] = 1.0
    return out


@dataclass(frozen=True)
class Outcome:
    """What a policy came to over a trace."""

    hit: float
    """Share of all input tokens that were kept for the call that needed them."""
    recomputed: int
    """Tokens computed again that an unlimited cache would have had."""
    saved_s: float
    """Mean over all calls of the time to first token that hits saved: prefill less loading."""
    hold_usd: float
    miss_usd: float

    @property
    def usd(self) -> float:
        """Holding and missing together."""
        return self.hold_usd + self.miss_usd


def outcome(returns: Returns, plan: Plan, prices: Prices) -> Outcome:
    """What a plan comes to; rent is paid until the return, or until the KV is dropped."""
    edges = plan.edges_s
    place = np.searchsorted(edges, returns.gap_s, "left") - 1
    place = np.where(returns.gap_s == 0, 0, place)
    back = place < len(edges) - 1
    tier = np.where(back, plan.tier[np.arange(len(returns)), np.minimum(place, len(edges) - 2)], DROP)
    tokens = np.where(tier >= 0, returns.reused, 0)
    time = np.clip(returns.gap_s[:, None] - edges[:-1], 0.0, np.diff(edges))
    hold = load = 0.0
    for k in range(len(prices.tiers)):
        hold += float((prices.hold_usd_per_s(k, returns.context)[:, None] * time)[plan.tier == k].sum())
        load += float(prices.load_s(k, tokens)[tier == k].sum())
    missed = int(returns.reused.sum() - tokens.sum())
    saved = float(tokens.sum()) * prices.prefill_s_per_token - load
    miss = float(prices.miss_usd(np.array(missed))) + load * prices.usd_per_waited_s
    return Outcome(float(tokens.sum() / returns.prompt_tokens), missed, saved / len(returns), hold, miss)
