"""What a bought chip costs: the price in its file, moved by what the memory in it costs today."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.economics.forms import with_memory_at
from hwmodel.hardware import Chip, Cluster, MemoryTier, with_number
from hwmodel.memory_prices import USD_PER_GB
from hwmodel.prices import Economics
from hwmodel.spec.number import Number


def rented(chip: Chip, prices: Economics) -> bool:
    """Whether a chip counts at its rental price, which leaves nothing else to pay."""
    price = chip.price
    return price.rental_usd_per_hour is not None and (prices.pay == "rental" or price.purchase_usd is None)


def purchase_usd(chip: Chip, prices: Economics) -> float:
    """Purchase price with memory at today's price: each tier that is stated moves it by capacity x difference per GB."""
    tiers = [(float(t.capacity_bytes), now, float(t.usd_per_gb or 0.0)) for t, now in repriced(chip, prices)]
    return float(with_memory_at(float(chip.price.purchase_usd or 0.0), tiers))


def repriced(chip: Chip, prices: Economics) -> list[tuple[MemoryTier, float]]:
    """Tiers whose memory has another price today, and that price (USD per GB)."""
    now = prices.memory_usd_per_gb
    return [(t, float(now[t.tier])) for t in chip.memory if t.tier in now and not t.cache and t.usd_per_gb is not None]


def memory_unpriced(cluster: Cluster, prices: Economics) -> str:
    """Say what is wrong with the stated prices of memory; empty when nothing."""
    for name in prices.memory_usd_per_gb:
        tiers = [tier for pool in cluster.pools for tier in pool.chip.memory if tier.tier == name and not tier.cache]
        if not tiers:
            has = dict.fromkeys(tier.tier for pool in cluster.pools for tier in pool.chip.memory if not tier.cache)
            return f"economics.memory names {name}, which no chip has; they have {', '.join(has)}"
        if all(tier.usd_per_gb is None for tier in tiers):
            return (
                f"economics.memory names {name}, but no chip's file says what it costs in the chip's price, nor is it one of "
                f"{', '.join(USD_PER_GB)}, of which the project has figures; add usd_per_gb: to that tier of the chip"
            )
    return ""


def moved_ends(chip: Chip, prices: Economics) -> Iterator[tuple[str, list[Chip], list[Economics]]]:
    """Name of a ranged price of memory, as in the chip or as today, and chip and prices with it at either end."""
    for tier, _ in repriced(chip, prices):
        own = tier.usd_per_gb
        if own is not None and own.ranged:
            path = f"memory.{tier.tier}.usd_per_gb"
            yield f"{chip.name}.{path}", [with_number(chip, path, end) for end in (own.low, own.high)], [prices] * 2
        today = prices.memory_usd_per_gb[tier.tier]
        if today.ranged:
            every = [prices.memory_usd_per_gb | {tier.tier: today.at(end)} for end in (today.low, today.high)]
            yield (
                f"economics.memory.{tier.tier}",
                [chip] * 2,
                [prices.model_copy(update={"memory_usd_per_gb": each}) for each in every],
            )


def memory_said(cluster: Cluster, prices: Economics) -> tuple[str, ...]:
    """What today's prices of memory do to each chip's price, and from which price at that time they move it."""
    found: dict[str, None] = {}
    for chip in (pool.chip for pool in cluster.pools):
        for tier, now in repriced(chip, prices):
            own, size = tier.usd_per_gb or Number(0.0), float(tier.capacity_bytes) / 1e9
            if rented(chip, prices):
                said = "nothing: it is rented (pay: purchase counts the other price)"
            else:
                said = (
                    f"{size * (now - own):+,.5g} USD: {size:,.5g} GB at {now:g} instead of {_figure(own)} USD/GB, {own.source}"
                )
            found[f"{tier.tier} in the price of {chip.name}: {said}"] = None
    return tuple(found)


def prices_said(cluster: Cluster, prices: Economics) -> tuple[str, ...]:
    """The price that counts of each chip, with its range, status, source and date."""
    found: dict[str, None] = {}
    for chip in (pool.chip for pool in cluster.pools):
        kind, price = (
            ("rental", chip.price.rental_usd_per_hour) if rented(chip, prices) else ("purchase", chip.price.purchase_usd)
        )
        if price is not None:
            unit = "USD/h" if kind == "rental" else "USD"
            source = f": {price.source}" if price.source else ""
            found[f"{kind} of {chip.name}: {_figure(price)} {unit}, {price.status or 'given'}{source}"] = None
    return tuple(found)


def _figure(number: Number) -> str:
    around = f" ({number.low:,g} to {number.high:,g})" if number.ranged else ""
    return f"{number:,g}{around}"
