"""Claims about prices, costs and margins."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.claims.facts import GB, GPU, LLAMA, hourly_usd
from hwmodel.claims.forms import margin, streaming_share
from hwmodel.claims.rows import Claim, Library, Numbered, Value, row
from hwmodel.economics import HOURS_PER_YEAR, LIFE_YEARS
from hwmodel.model import counts
from hwmodel.model.dtypes import fmt


def fast_mode(known: Library) -> Iterator[Claim]:
    """Price of a fast mode, read as a point on the line of throughput against interactivity."""
    price, speed = 30.0 / 5.0, 2.5
    inputs: dict[str, Value] = {
        "usd_per_million_fast": "30 in, 150 out",
        "usd_per_million_standard": "5 in, 25 out",
        "price_ratio": price,
        "speed_ratio": speed,
    }
    note = "prices as published for Opus 4.6; an interpretation: a price is not a cost"
    share = streaming_share(price, speed)
    yield row(
        "weight streaming in the standard step",
        "0.357 share",
        share,
        "x: (1 - x) / (1 - speed x) = price",
        inputs,
        note=note,
    )
    yield row("weight streaming in the fast step", "89.3 %", 100 * speed * share, "speed x", inputs, note=note)


def margins(known: Library) -> Iterator[Claim]:
    """Margin, mark-up and cost profit."""
    for share, printed in ((0.70, "3.33"), (0.80, "5")):
        yield row(
            f"price over cost at {share:.0%} margin",
            f"{printed} x",
            1 / (1 - share),
            "1 / (1 - margin)",
            {"margin": share},
        )
    profit = 5.45
    yield row(
        "gross margin of a cost profit of 545 %",
        "84.5 %",
        100 * margin(1 / (1 + profit)),
        "1 - cost / price, price / cost = 1 + profit",
        {"cost_profit": profit},
    )


def deepseek_day(known: Library) -> Iterator[Claim]:
    """Cost and income of the day that DeepSeek published."""
    nodes, chips, hours, million = 226.75, 8, 24, 1e6
    rental = hourly_usd(known.chip("h800_sxm"))
    spent = nodes * chips * hours * rental
    sold = {"hit": (342e9, 0.14), "miss": (266e9, 0.55), "out": (168e9, 2.19)}
    income = sum(tokens * usd / million for tokens, usd in sold.values())
    note = "node count, tokens and list prices as published by DeepSeek for one day"
    yield row(
        "cost of DeepSeek's day",
        "87072 USD",
        spent,
        "nodes x 8 x rental x 24 h",
        {"nodes": nodes, "chips_per_node": chips, "chip": "h800_sxm", "usd_per_hour": rental},
        note=note,
    )
    yield row(
        "income of DeepSeek's day",
        "562100 USD",
        income,
        "sum of tokens x price",
        {
            f"{kind}_{key}": value
            for kind, pair in sold.items()
            for key, value in zip(("tokens", "usd_per_million"), pair, strict=True)
        },
        note=f"{note}, which prints 562,027",
    )
    yield row(
        "gross margin of DeepSeek's day",
        "84.5 %",
        100 * margin(spent / income),
        "1 - cost / income",
        {"cost_usd": spent, "income_usd": income},
    )


def cheap_memory(known: Library) -> Iterator[Claim]:
    """Prices of a chip with 192 GB for 5,000 USD."""
    chip = known.chip("bertha500")
    price, spoken, stored = float(chip.price.purchase_usd or 0), 192e9, float(chip.main.capacity_bytes)
    inputs: dict[str, Value] = {"chip": chip.name, "purchase_usd": price}
    per_gb = price / (spoken / GB)
    yield row(
        "price of memory, 192 GB as spoken",
        "26.04 USD/GB",
        per_gb,
        "price / C",
        {**inputs, "capacity_bytes": spoken},
        note=f"decimal GB; the chip file holds {stored / GB:.1f} GB",
    )
    yield row(
        "price of memory, capacity of the chip file",
        "24.25 USD/GB",
        price / (stored / GB),
        "price / C",
        {**inputs, "capacity_bytes": stored},
        note="192 GiB",
    )
    gpu_usd, gpu_bytes = 25_000.0, float(known.chip(GPU).main.capacity_bytes)
    gpu: dict[str, Value] = {"chip": GPU, "assumed_usd": gpu_usd, "capacity_bytes": gpu_bytes}
    yield row(
        f"price of memory, {GPU}",
        "312 USD/GB",
        gpu_usd / (gpu_bytes / GB),
        "price / C",
        gpu,
        note="price assumed by the claim",
    )
    yield row(
        f"{GPU} over {chip.name}, per GB",
        "12 x",
        gpu_usd / (gpu_bytes / GB) / per_gb,
        "ratio",
        {**gpu, "usd_per_gb": per_gb},
    )
    yield row(
        "straight line over four years",
        "0.1427 USD/h",
        hourly_usd(chip),
        "price / (years x hours)",
        {**inputs, "years": LIFE_YEARS, "hours_per_year": HOURS_PER_YEAR},
    )


def cheap_memory_for_long_context(known: Library) -> Iterator[Claim]:
    """Chips that hold the cache of claim 2."""
    chip, spoken = known.chip("bertha500"), 192e9
    price, stored = float(chip.price.purchase_usd or 0), float(chip.main.capacity_bytes)
    gpu_bytes = float(known.chip(GPU).main.capacity_bytes)
    inputs: dict[str, Value] = {"chip": chip.name, "purchase_usd": price}
    model = known.model(LLAMA)
    cache = counts.kv_law(model, fmt("bf16")).at(model.max_context, 512)
    need: dict[str, Value] = {"cache_bytes": cache, "capacity_bytes": spoken}
    yield row(
        "chips for the cache of claim 2",
        "114.5 chips",
        cache / spoken,
        "cache / C",
        need,
        note=f"192 GB decimal; {cache / stored:.1f} with 192 GiB",
    )
    yield row(
        "price of the chips for the cache of claim 2",
        "573 thousand USD",
        cache / spoken * price / 1e3,
        "cache / C x price",
        {**inputs, **need},
    )
    yield row(
        f"{GPU} for the cache of claim 2",
        "274.9 chips",
        cache / gpu_bytes,
        "cache / C",
        {"cache_bytes": cache, "capacity_bytes": gpu_bytes},
    )
    won = 10e6
    yield row(
        "exchange rate at which the chip costs 10 million won",
        "2000 won/USD",
        won / price,
        "won / USD",
        {**inputs, "won": won},
    )


CLAIMS: Numbered = (
    (7, fast_mode),
    (15, margins),
    (15, deepseek_day),
    (16, cheap_memory),
    (16, cheap_memory_for_long_context),
)
