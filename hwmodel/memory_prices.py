"""What memory costs by technology where a chip's file does not say it: the one table of the project, dated, with ranges.

A tier is of the technology it is named after. SRAM has no price of its own: it is part of the die.
"""

from __future__ import annotations

from hwmodel.spec.number import Number

ASSUMED = "assumed by technology"
"""How the source of a price begins that no chip's file states."""

USD_PER_GB: dict[str, Number] = {
    "hbm": Number(
        15.0, 8.0, 20.0, "HBM3e 8-10 (asiatechfeed) to 15-20 (https://www.ai-capex.com/technology/memory-hbm), undated, "
        "collected in November 2026; HBM4 14-17 (TrendForce 2026-01-28); no figure found for HBM2e and HBM3", "estimated",
    ),
    "lpddr": Number(
        15.0, 10.0, 31.0, "2026: server memory 10-20; 31 implied by Morgan Stanley's Vera Rubin rack (May 2026)", "estimated"
    ),
    "ddr": Number(15.0, 3.0, 20.0, "server DDR5 3-5 in 2025, 10-20 by 2026", "estimated"),
    "gddr": Number(
        6.6, 3.36, 13.0, "GDDR6 on the spot market 13 in February 2022, 3.36 in June 2023 (DRAMeXchange by 3DCenter), here "
        "their geometric mean; GDDR7 20-30 % above (TrendForce, June 2024); no figure found for 2026", "estimated",
    ),
}  # fmt: skip
"""USD per decimal GB, by the name of the tier."""


def usd_per_gb(tier: str) -> Number | None:
    """Price of a technology's memory; None where no figure is known."""
    known = USD_PER_GB.get(tier)
    return known and Number(known, known.low, known.high, f"{ASSUMED} ({tier}): {known.source}", known.status)
