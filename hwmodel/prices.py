"""The ``economics:`` section of a scenario: prices, energy and use beyond what the chips' files say."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hwmodel.spec.number import Number
from hwmodel.spec.schema import (
    JoulesPerByte,
    MisplacedError,
    Plain,
    Seconds,
    Sourced,
    Spec,
    Usd,
    UsdPerGb,
    UsdPerKwh,
    UsdPerMtok,
    Watts,
)

HOURS_PER_YEAR = 8760.0
LIFE_YEARS = 4.0
"""Straight-line life of bought hardware when no rental price is known."""
ASSUMED = "assumption of the project (November 2026)"
Tokens = Annotated[int, Field(ge=0, le=1_000_000_000)]


class Sold(Sourced):
    """List prices, for the margin."""

    output_usd_per_mtok: UsdPerMtok | None = None
    input_usd_per_mtok: UsdPerMtok | None = None
    """Of prompt tokens that must be computed."""
    cached_input_usd_per_mtok: UsdPerMtok | None = None
    """Of prompt tokens whose cache was kept."""


class Session(Spec):
    """An agent's session: calls whose prompts grow by what was said before."""

    calls: Annotated[int, Field(ge=1, le=1_000_000)] = 84
    """Model calls; 83.7 LLM steps is the mean of TraceLab (arXiv 2606.30560)."""
    first_input: Tokens = 20_000
    """Prompt tokens of the first call."""
    input_per_call: Tokens = 1_000
    """Prompt tokens that each further call adds, the answers before it included."""
    output_per_call: Tokens = 300
    cache_hit: Plain = Number(1.0, 0.9, 1.0, ASSUMED, "estimated")
    """Share of the tokens seen before whose cache is still there."""
    keep_s: Seconds = Number(
        300.0, 60.0, 600.0, "idle gaps between calls; real caches evict after 5-10 min (TraceLab, 2026)", "estimated"
    )
    """How long a cached token is kept from one use to the next."""

    @property
    def input_tokens(self) -> float:
        """Prompt tokens of all calls, n c0 + d n (n - 1) / 2: what is computed when nothing is kept."""
        return self.calls * self.first_input + self.input_per_call * self.calls * (self.calls - 1) / 2

    @property
    def new_tokens(self) -> float:
        """Prompt tokens never seen before, c0 + (n - 1) d: what is computed when all is kept."""
        return self.first_input + (self.calls - 1.0) * self.input_per_call


class Economics(Sourced):
    """Every field is optional; what is not stated is not counted, and the answer says so."""

    pay: Literal["rental", "purchase"] = "rental"
    """Which price of a chip counts where both are known; the other one where only that is."""
    life_s: Seconds = Number(LIFE_YEARS * HOURS_PER_YEAR * 3600, status="estimated", source=ASSUMED)
    """Years over which bought hardware is written off."""
    cost_of_capital: Plain = Number(0.0, status="estimated", source=ASSUMED)
    """Interest a year on what is not yet written off (an annuity)."""
    upkeep: Plain = Number(0.0, status="estimated", source=ASSUMED)
    """Share of the purchase price a year: repair, staff, insurance."""
    utilisation: Plain = Number(1.0, status="estimated", source=ASSUMED)
    """Share of the hours paid for in which the step runs; in the others the chips are idle."""
    electricity_usd_per_kwh: UsdPerKwh | None = None
    """Paid for bought hardware; a rental includes it. Not counted when absent."""
    pue: Plain = Number(1.2, 1.05, 1.5, ASSUMED, "estimated")
    """Power of the building over that of the machines."""
    host_usd: Usd = Number(0.0)
    """Share of the host (CPUs, memory, board, chassis) per bought chip."""
    network_usd: Usd = Number(0.0)
    """Share of switches, cables and optics per bought chip."""
    rack_usd: Usd = Number(0.0)
    """Share of racks, power shelves and cooling per bought chip."""
    host_power_watts: Watts = Number(0.0)
    """Power of hosts, switches and fans per chip, rented or bought; it counts at the wall."""
    memory_usd_per_gb: dict[str, UsdPerGb] = Field(default_factory=dict)
    """Price of memory today by tier, instead of the one in the chips' files: moves their purchase price by the difference."""
    link_joules_per_byte: JoulesPerByte = Number(
        40e-12, 8e-12, 160e-12, "undated: 112G SerDes 5-6 pJ/bit, optics 10-20", "estimated"
    )
    """Energy of a byte that leaves a chip."""
    running: Plain = Number(
        0.35, 0.0, 0.7, "estimate of the project (November 2026): GPUs in decode draw half of the TDP or more", "estimated"
    )
    """Share of the power between idle and TDP that clocks, on-chip traffic and control draw while a chip runs an op, whatever
    it multiplies and reads."""
    sold: Sold | None = None
    session: Session = Session()

    @model_validator(mode="after")
    def _usable(self) -> Economics:
        wrong: list[tuple[tuple[str | int, ...], str]] = []
        if not 0 < self.utilisation <= 1:
            wrong.append((("utilisation",), "is a share of all hours: more than 0, at most 100 %"))
        if self.running > 1:
            wrong.append((("running",), "is a share of the power above idle: at most 100 %"))
        if self.life_s <= 0:
            wrong.append((("life",), "must be more than zero"))
        if self.pue < 1:
            wrong.append((("pue",), "is at least 1: the machines' own power"))
        if self.session.cache_hit > 1:
            wrong.append((("session", "cache_hit"), "is a share: at most 100 %"))
        if wrong:
            raise MisplacedError(wrong)
        return self

    @property
    def life_years(self) -> float:
        """Life of bought hardware in years of 8,760 h."""
        return float(self.life_s) / (HOURS_PER_YEAR * 3600)

    @property
    def yearly_share(self) -> float:
        """Share of a purchase price that a year costs: the annuity r / (1 - (1 + r)^-n), 1 / n without interest; upkeep."""
        rate, years = float(self.cost_of_capital), self.life_years
        annuity = rate / (1 - (1 + rate) ** -years) if rate > 1e-9 else 1 / years
        return annuity + float(self.upkeep)

    @property
    def beside_usd(self) -> float:
        """Host, network and rack per bought chip."""
        return float(self.host_usd + self.network_usd + self.rack_usd)

    def said(self) -> str:
        """Say in one sentence what was assumed."""
        parts = [f"{self.pay} price where known, else the other"]
        parts.append(f"purchase over {self.life_years:g} years at {float(self.cost_of_capital):.1%} a year")
        if self.upkeep:
            parts.append(f"upkeep {float(self.upkeep):.1%} a year")
        parts.append(f"in use {float(self.utilisation):.0%} of the hours")
        left_out = []
        if self.electricity_usd_per_kwh is None:
            left_out.append("electricity")
        else:
            parts.append(f"bought chips pay {self.electricity_usd_per_kwh:g} USD/kWh at PUE {self.pue:g}")
        counted = {"host": self.host_usd, "network": self.network_usd, "rack": self.rack_usd}
        parts += [f"{name} {usd:g} USD a bought chip" for name, usd in counted.items() if usd]
        left_out += [name for name, usd in counted.items() if not usd]
        parts += [f"{tier} at {usd:g} USD/GB" for tier, usd in self.memory_usd_per_gb.items()]
        return "; ".join(parts) + (f"; not stated, so not counted: {', '.join(left_out)}" if left_out else "")
