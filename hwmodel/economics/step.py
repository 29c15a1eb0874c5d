"""What a step costs and draws, pool by pool, idle pools included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hwmodel.economics.energy import Part
from hwmodel.economics.forms import (
    bought_usd_per_hour,
    drawn_watts,
    electricity_usd_per_hour,
    joules_per_token,
    margin,
    mean_watts,
    usd_per_million,
)
from hwmodel.economics.purchase import memory_unpriced, moved_ends, purchase_usd, rented
from hwmodel.hardware import Chip, Cluster, Pool, with_number
from hwmodel.prices import Economics

COUNTED = {
    "decode": "per output token",
    "prefill": "per input token",
    "mixed": "per output token of the decodes, which bear the prefill's share as well",
}
"""Which tokens dollars and joules are divided by."""


@dataclass(frozen=True)
class PoolCost:
    """What one pool adds."""

    pool: str
    usd_per_hour: float
    usd_per_million_tokens: float
    idle_usd_per_million_tokens: float
    """The part of it that pays for chips waiting."""
    watts: float | None
    """All its chips while the step runs, each at most at its TDP."""
    joules_per_token: float | None
    capped: bool
    """Work and bytes would draw more than the TDP: the chips would slow down, which the step's time does not know."""
    purchase_usd: float
    """Of one bought chip with host, network and rack; 0 for a rented one."""
    electricity_usd_per_hour: float
    """Of all its chips; 0 for rented ones."""


@dataclass(frozen=True)
class Cost:
    """What the cluster costs and draws while it runs this step over and over."""

    usd_per_hour: float
    usd_per_million_output_tokens: float | None
    """None for a prefill step, which makes no output."""
    usd_per_million_input_tokens: float | None
    """Of a prefill step; None for the others."""
    joules_per_token: float | None
    """Chips only, per token that `basis` says is counted; idle hours included."""
    watts: float | None
    """Mean of all chips while the step runs, from work, bytes, links and idle power."""
    basis: str
    """Rental or purchase, chip by chip, and which tokens are counted."""
    usd_per_million_low: float = 0.0
    usd_per_million_high: float = 0.0
    """From the ranges of prices and of the step's time."""
    joules_per_token_low: float | None = None
    joules_per_token_high: float | None = None
    """Low: the ranges of the energies. High: every chip at its TDP; what clocks and control of a running chip draw beyond
    its idle power is published for none."""
    joules_per_token_at_tdp: float | None = None
    """As if every chip drew its TDP all the time: an upper bound."""
    joules_per_token_at_wall: float | None = None
    """Hosts and the building (PUE) included."""
    margin: float | None = None
    """At the price that `economics.sold` states for these tokens."""
    pools: tuple[PoolCost, ...] = ()
    energy: tuple[dict[str, Any], ...] = ()
    """Joules per token by pool and use."""
    prices: Economics = field(default_factory=Economics, repr=False, compare=False)
    moved: tuple[tuple[str, float, float], ...] = field(default=(), repr=False, compare=False)
    """(input, logarithm of the factor on USD per token at one end of its range, at the other): what the range comes from."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        found = {
            key: value for key, value in asdict(replace(self, pools=(), energy=())).items() if key not in ("prices", "moved")
        }
        rows = {"pools": [asdict(row) for row in self.pools], "energy": [dict(row) for row in self.energy]}
        return {**found, **rows, "prices": self.prices.said()}


@dataclass(frozen=True)
class Work:
    """What a step does with the chips that are paid for."""

    tokens_per_s: float
    phase: str = "decode"
    busy: Mapping[str, float] = field(default_factory=dict)
    """Share of the step that a pool works; 1 where it is not said."""
    time_s: float = 0.0
    energy: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    """Uses of energy in a step by pool; a pool that is missing has no known power."""
    spread: tuple[float, float] = (1.0, 1.0)
    """Factors on the step's time at its low and high end."""


def cost(cluster: Cluster, work: Work | float, prices: Economics | None = None) -> tuple[Cost | None, str]:
    """Cost of a step's tokens (input of a prefill step, else output), or None and the reason.

    work : a step, or tokens per s alone
    """
    if not isinstance(work, Work):
        work = Work(float(work))
    prices = prices or Economics()
    if why := unpriced(cluster, prices):
        return None, why
    if work.tokens_per_s <= 0:
        return None, "no tokens are produced"
    watts = {pool.name: _watts(pool, work) for pool in cluster.pools}
    pools = tuple(_pool_cost(pool, work, prices, watts[pool.name]) for pool in cluster.pools)
    per_hour = sum(row.usd_per_hour for row in pools)
    per_million = usd_per_million(per_hour, work.tokens_per_s, float(prices.utilisation))
    made, taken = (None, per_million) if work.phase == "prefill" else (per_million, None)
    moved = _moved(cluster, work, prices, watts, per_hour)
    low, high = (math.exp(sign * math.sqrt(sum(max(0.0, sign * a, sign * b) ** 2 for _, a, b in moved))) for sign in (-1, 1))
    joules = [row.joules_per_token for row in pools]
    basis = "; ".join(f"{pool.name}: {(hourly(pool, prices) or (0, ''))[1]}" for pool in cluster.pools)
    base = Cost(
        per_hour, made, taken, _total(joules), _total([row.watts for row in pools]),
        f"{basis}; energy of chips only; {COUNTED[work.phase]}", per_million * low, per_million * high,
        pools=pools, energy=_uses(work), margin=_margin(per_million, work.phase, prices), prices=prices,
        moved=tuple(moved),
    )  # fmt: skip
    return _with_joules(base, cluster, work, prices), ""


def spending(cluster: Cluster, work: Work, prices: Economics) -> tuple[float, float | None]:
    """(USD per hour, joules per token) as `cost` says, quickly: for a search. Chips without a price cost nothing here."""
    pools = [_pool_cost(pool, work, prices, _watts(pool, work)) for pool in cluster.pools]
    return sum(row.usd_per_hour for row in pools), _total([row.joules_per_token for row in pools])


def _total(values: Sequence[float | None]) -> float | None:
    return None if any(value is None for value in values) else sum(float(value or 0.0) for value in values)


def _margin(per_million: float, phase: str, prices: Economics) -> float | None:
    sold = prices.sold
    price = None if sold is None else sold.input_usd_per_mtok if phase == "prefill" else sold.output_usd_per_mtok
    return margin(per_million, float(price)) if price else None


def hourly(pool: Pool, prices: Economics) -> tuple[float, str] | None:
    """(USD per hour of all chips without electricity, how) of a pool; None where no price is known."""
    price = pool.chip.price
    rental, purchase = price.rental_usd_per_hour, price.purchase_usd
    if rental is not None and rented(pool.chip, prices):
        return pool.count * float(rental), f"rental {rental:g} USD/h a chip"
    if purchase is None:
        return None
    each = purchase_usd(pool.chip, prices) + prices.beside_usd
    said = f"{each:g} USD a chip over {prices.life_years:g} years"
    said += f" at {float(prices.cost_of_capital):.1%}" if prices.cost_of_capital else ""
    return bought_usd_per_hour(float(pool.count), each, prices), said


def unpriced(cluster: Cluster, prices: Economics) -> str:
    """Say why no cost is known: a chip without a price, or what is wrong with the stated prices of memory; else empty."""
    missing = [pool.chip.name for pool in cluster.pools if hourly(pool, prices) is None]
    if missing:
        return f"no price is known for {', '.join(dict.fromkeys(missing))}; add price: to the chip's YAML"
    return memory_unpriced(cluster, prices)


def _watts(pool: Pool, work: Work) -> tuple[float, bool] | None:
    """(power of one chip in W while the step runs, whether its TDP holds it back)."""
    parts, tdp = work.energy.get(pool.name), pool.chip.power.tdp_watts
    if parts is None or tdp is None or work.time_s <= 0:
        return None
    held, each = drawn_watts(sum(part.joules for part in parts), work.time_s, float(pool.count), float(tdp))
    return float(held), each > float(tdp)


def _pool_cost(pool: Pool, work: Work, prices: Economics, watts: tuple[float, bool] | None) -> PoolCost:
    electricity = _electricity(pool, work, prices, watts)
    per_hour = (hourly(pool, prices) or (0.0, ""))[0] + electricity
    used = float(prices.utilisation)
    per_million = usd_per_million(per_hour, work.tokens_per_s, used)
    idle = per_million * (1 - min(1.0, work.busy.get(pool.name, 1.0)) * used)
    each = 0.0 if rented(pool.chip, prices) else purchase_usd(pool.chip, prices) + prices.beside_usd
    draw = None if watts is None else watts[0] * pool.count
    joules = None
    if watts is not None:
        mean = mean_watts(watts[0], _idle(pool, work), used)
        joules = joules_per_token(mean, float(pool.count), work.tokens_per_s, used)
    capped = watts is not None and watts[1]
    return PoolCost(pool.name, per_hour, per_million, idle, draw, joules, capped, each, electricity)


def _idle(pool: Pool, work: Work) -> float:
    """Power of one chip in W while nothing runs."""
    return next(float(part.each) for part in work.energy[pool.name] if part.part == "idle")


def _electricity(pool: Pool, work: Work, prices: Economics, watts: tuple[float, bool] | None) -> float:
    """USD per hour of a bought pool's electricity; at its TDP where nothing better is known, 0 without a TDP."""
    if rented(pool.chip, prices) or prices.electricity_usd_per_kwh is None:
        return 0.0
    each = float(pool.chip.power.tdp_watts or 0.0)
    if watts is not None:
        each = mean_watts(watts[0], _idle(pool, work), float(prices.utilisation))
    return electricity_usd_per_hour(float(pool.count), each, prices)


def _uses(work: Work) -> tuple[dict[str, Any], ...]:
    tokens = work.tokens_per_s * work.time_s
    return tuple(
        {
            "pool": part.pool, "part": part.part, "joules_per_token": part.joules / tokens, "each": float(part.each),
            "low": part.each.low, "high": part.each.high, "status": part.each.status, "source": part.each.source,
        }
        for parts in work.energy.values() for part in parts
    )  # fmt: skip


def _with_joules(base: Cost, cluster: Cluster, work: Work, prices: Economics) -> Cost:
    """The cost with the range of its joules, their bound and what they are at the wall."""
    tdp = [pool.chip.power.tdp_watts for pool in cluster.pools]
    used = float(prices.utilisation)
    if any(each is None for each in tdp) or base.joules_per_token is None:
        return base
    most = sum(float(each or 0) * pool.count for each, pool in zip(tdp, cluster.pools, strict=True)) / work.tokens_per_s
    tokens = work.tokens_per_s * work.time_s
    parts = [part for found in work.energy.values() for part in found]
    low = math.sqrt(sum((p.amount * (float(p.each) - p.each.low) / tokens) ** 2 for p in parts))
    hosts = float(prices.host_power_watts) * cluster.chips / (work.tokens_per_s * used)
    return replace(
        base, joules_per_token_low=max(0.0, base.joules_per_token - low),
        joules_per_token_high=max(base.joules_per_token, most / used),
        joules_per_token_at_tdp=most, joules_per_token_at_wall=(base.joules_per_token + hosts) * float(prices.pue),
    )  # fmt: skip


def _moved(
    cluster: Cluster, work: Work, prices: Economics, watts: Mapping[str, tuple[float, bool] | None], per_hour: float
) -> list[tuple[str, float, float]]:
    """(input, logarithms of the factors on USD per token at the ends of its range) of prices and of the step's time.

    They are added as independent ones.
    """
    logs = [("time of the step", math.log(work.spread[0]), math.log(work.spread[1]))]

    def whole(clusters: Cluster, economics: Economics) -> float:
        total = sum((hourly(pool, economics) or (0.0, ""))[0] for pool in clusters.pools)
        total += sum(_electricity(pool, work, economics, watts[pool.name]) for pool in clusters.pools)
        return math.log(max(total, 1e-300) / max(per_hour, 1e-300) / float(economics.utilisation) * float(prices.utilisation))

    for pool in cluster.pools:
        for path, number in pool.chip.numbers():
            if number.ranged and path.startswith("price."):
                ends = [with_number(pool.chip, path, end) for end in (number.low, number.high)]
                low, high = (whole(_with_chip(cluster, pool, chip), prices) for chip in ends)
                logs.append((f"{pool.chip.name}.{path}", low, high))
        for name, chips, economics in moved_ends(pool.chip, prices):
            pairs = zip(chips, economics, strict=True)
            low, high = (whole(_with_chip(cluster, pool, chip), each) for chip, each in pairs)
            logs.append((name, low, high))
    for name in ("life_s", "cost_of_capital", "upkeep", "utilisation", "electricity_usd_per_kwh", "pue"):
        number = getattr(prices, name)
        if number is not None and number.ranged:
            moved = [prices.model_copy(update={name: number.at(end)}) for end in (number.low, number.high)]
            low, high = (whole(cluster, changed) for changed in moved)
            logs.append((f"economics.{name}", low, high))
    return logs


def _with_chip(cluster: Cluster, pool: Pool, chip: Chip) -> Cluster:
    pools = tuple(replace(other, chip=chip) if other is pool else other for other in cluster.pools)
    return replace(cluster, pools=pools)
