"""A memory of limited size for the KV of idle conversations: who is put out when it is full."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hwmodel.serve.keeping import Outcome, Prices, idle_share
from hwmodel.serve.requests import Array, Ints
from hwmodel.serve.returns import Returns


@dataclass(frozen=True)
class Lru:
    """Whoever is idle for longest goes first."""

    def worth(self, returns: Returns, calls: list[int], now_s: float) -> Array:
        """(calls,) the lowest goes first."""
        return returns.end_s[calls] - now_s


@dataclass(frozen=True)
class Clairvoyant:
    """Whoever comes back last, or never, goes first (Belady, IBM Systems Journal 5(2), 1966)."""

    def worth(self, returns: Returns, calls: list[int], now_s: float) -> Array:
        """(calls,) the lowest goes first."""
        return now_s - returns.end_s[calls] - returns.gap_s[calls]


@dataclass(frozen=True)
class Predicted:
    """Whoever has least chance of a return per second that it still occupies goes first, given that it is not yet back.

    With F the distribution of gaps after calls that ended the same way, a return of chance p that has not come by t comes with
    p (1 - F(t)), and is waited for p int_t^H (1 - F) + (1 - p) (H - t); its worth is their quotient. Beyond the horizon H
    whoever is idle for longest goes first, before all others.
    """

    returns: Returns
    chance: Array
    """(n,) of a return within the horizon, as a predictor says it."""
    grid: Array = field(init=False)
    alive: Array = field(init=False)
    rest: Array = field(init=False)

    def __post_init__(self) -> None:
        horizon = self.returns.horizon_s
        grid = np.concatenate(([0.0], np.geomspace(min(0.1, horizon / 2), horizon, 200)))
        alive = idle_share(self.returns, grid)
        areas = (alive[:, 1:] + alive[:, :-1]) / 2 * np.diff(grid)
        rest = np.concatenate((np.cumsum(areas[:, ::-1], axis=1)[:, ::-1], np.zeros((len(alive), 1))), axis=1)
        for name, value in (("grid", grid), ("alive", alive), ("rest", rest)):
            object.__setattr__(self, name, value)

    def worth(self, returns: Returns, calls: list[int], now_s: float) -> Array:
        """(calls,) the lowest goes first."""
        return self.at(returns.step[calls], self.chance[calls], now_s - returns.end_s[calls])

    def at(self, step: Ints, chance: Array, idle: Array) -> Array:
        """(n,) the worth of calls that ended so, of such a chance, idle for so long (s)."""
        alive, rest = self._curves(step, idle)
        left = self.returns.horizon_s - idle
        waited = chance * rest + (1 - chance) * np.maximum(left, 0.0)
        return np.where(left > 0, chance * alive / np.maximum(waited, 1e-9), -idle)

    def still(self, step: Ints, chance: Array, idle: Array) -> Array:
        """(n,) the chance of a return that is left when none has come for so long (s)."""
        alive, _ = self._curves(step, idle)
        comes = np.where(idle < self.returns.horizon_s, chance * alive, 0.0)
        return np.asarray(comes / np.maximum(comes + 1 - chance, 1e-30))

    def _curves(self, step: Ints, idle: Array) -> tuple[Array, Array]:
        place = np.clip(np.searchsorted(self.grid, idle, "right") - 1, 0, len(self.grid) - 2)
        part = np.minimum((idle - self.grid[place]) / (self.grid[place + 1] - self.grid[place]), 1.0)
        alive = self.alive[step, place] * (1 - part) + self.alive[step, place + 1] * part
        rest = self.rest[step, place] * (1 - part) + self.rest[step, place + 1] * part
        return alive, rest


def limited(returns: Returns, policy: Lru | Clairvoyant | Predicted, capacity_tokens: float, prices: Prices,
            tier: int = 0) -> Outcome:  # fmt: skip
    """What a memory of a size comes to under a policy; conversations are kept or put out whole, and only while they are idle.

    As a call ends its KV is put in if it fits once those of less worth are out; as the conversation comes back it leaves. The
    rent is that of the whole memory for the time of the trace.
    """
    n = len(returns)
    when = np.concatenate((returns.end_s, returns.end_s + returns.gap_s))
    order = np.lexsort((np.repeat((0, 1), n), when))  # who ends and comes back at once ends first
    order = order[np.isfinite(when[order])]
    inside: dict[int, int] = {}
    free = capacity_tokens
    hits = 0
    for event in order.tolist():
        call = event % n
        if event >= n:
            if call in inside:
                free += inside.pop(call)
                hits += int(returns.reused[call])
            continue
        size = int(returns.context[call])
        if size > capacity_tokens:
            continue
        inside[call] = size
        free -= size
        if free < 0:
            calls = list(inside)
            for place in np.argsort(policy.worth(returns, calls, float(returns.end_s[call])), kind="stable"):
                free += inside.pop(calls[place])
                if free >= 0:
                    break
    missed = int(returns.reused.sum()) - hits
    load = float(prices.load_s(tier, np.array(hits)))
    span = float(returns.end_s.max() - returns.end_s.min())
    hold = float(prices.hold_usd_per_s(tier, np.array(capacity_tokens))) * span
    miss = float(prices.miss_usd(np.array(missed))) + load * prices.usd_per_waited_s
    return Outcome(hits / returns.prompt_tokens, missed, (hits * prices.prefill_s_per_token - load) / n, hold, miss)
