"""What moves an answer whose plan stays: elasticities, what binds next when one number is relieved, ranges for a tornado."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hwmodel.answered import Answered
from hwmodel.hardware import Cluster
from hwmodel.kernels import columns as c
from hwmodel.optimize.fixed import Fixed
from hwmodel.optimize.parameters import WITHOUT_LIMIT, Parameter, parameters
from hwmodel.scenario import Scenario, loaded

STEP = 0.01
"""Relative step of the central differences."""
CAPACITY_STEP = 0.1
"""Of capacities: batches are whole, and what fits changes by whole sequences a group."""
MATTERS = 0.01
"""Elasticity of the time from which a number is worth relieving."""


@dataclass(frozen=True)
class Elasticity:
    """d ln y / d ln x of one number x; the plan and the batch stay."""

    parameter: str
    value: float
    shown: str
    """The value with its unit."""
    kind: str
    time: float
    """y: time of the step, and so TPOT."""
    usd_per_mtok: float | None
    """y: dollars per million tokens; None without prices."""
    tokens_per_s_per_chip: float | None
    """y: tokens/s/chip at the largest batch that fits; of capacities only."""
    note: str = ""


@dataclass(frozen=True)
class Relief:
    """A number made much better."""

    parameter: str
    factor: float | None
    """On a rate; a fixed time is divided by it. None: no limit at all."""
    tpot_s: float
    falls: float
    """Share of the time that is gone."""
    bound: str
    """What most of a token's way through the model is then."""
    pool: str
    """The busiest pool then, and what most of its step is."""
    pool_bound: str
    next: str
    """The number with the largest elasticity then; empty when none has any."""


@dataclass(frozen=True)
class WhatIf(Answered):
    """Everything that `hwmodel whatif` prints."""

    scenario: Scenario
    tpot_s: float
    """Of the scenario itself; the whole step of a prefill."""
    usd_per_mtok: float | None
    bound: str
    reasons: tuple[str, ...]
    """Why the plan does not run as it stands; it is priced all the same."""
    largest_batch: int
    elasticities: tuple[Elasticity, ...]
    """Largest effect on the time first, then on the throughput, then on the cost."""
    relieved: tuple[Relief, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel whatif --json`` prints it."""
        return {
            "scenario": self.scenario.name, "tpot_s": self.tpot_s, "usd_per_mtok": self.usd_per_mtok, "bound": self.bound,
            "feasible": not self.reasons, "reasons": list(self.reasons),
            "largest_batch": self.largest_batch, "elasticities": [asdict(row) for row in self.elasticities],
            "relieved": [asdict(row) for row in self.relieved],
        }  # fmt: skip


def whatif(scenario: Scenario | str, most: int = 6) -> WhatIf:
    """Elasticities of a scenario's plan, and what binds next when the `most` strongest numbers are relieved.

    Parameters
    ----------
    scenario
        Or its name or path.
    """
    scenario = loaded(scenario)
    plan = Fixed(scenario)
    base = plan.base
    rows = elasticities(plan)
    strong = [row for row in rows if abs(row.time) >= MATTERS and row.kind != "share"][:most]  # a share is part of a rate
    every = {one.path: one for one in parameters(scenario.cluster)}
    reliefs = [relief for row in strong for relief in relieved(plan, every[row.parameter])]
    usd = plan.usd_per_mtok(scenario.cluster)
    tpot, batch = plan.tpot_s(scenario.cluster), plan.largest(scenario.cluster)
    return WhatIf(scenario, tpot, usd, base.step.bound, base.reasons, batch, tuple(rows), tuple(reliefs))


def elasticities(plan: Fixed) -> list[Elasticity]:
    """Of every number of the chips and links, by central differences on exact prices; those that move nothing last."""
    cluster = plan.scenario.cluster
    most = plan.largest(cluster)
    rows = [_elasticity(plan, one, most) for one in parameters(cluster)]
    return sorted(rows, key=lambda row: (-abs(row.time), -abs(row.tokens_per_s_per_chip or 0), -abs(row.usd_per_mtok or 0)))


def _elasticity(plan: Fixed, one: Parameter, most: int) -> Elasticity:
    cluster = plan.scenario.cluster
    value = float(one.number)
    ends = [one.on(cluster, value * factor) for factor in (1 / (1 + STEP), 1 + STEP)]
    time = _slope([plan.step_s(end) for end in ends], STEP) if one.enters_time else 0.0
    usd = None
    if plan.base.cost is not None:
        moves = one.kind == "price" or (one.enters_time and plan.touched(ends[1]))
        usd = _slope([plan.usd_per_mtok(end) or 1.0 for end in ends], STEP) if moves else 0.0
    rate, note = _throughput(plan, one, most) if one.kind == "capacity" and not one.cache else (None, "")
    return Elasticity(one.path, value, one.text, one.kind, time, usd, rate, note)


def _slope(ends: Sequence[float], step: float) -> float:
    """Central difference of ln y over ln x, x a factor of 1 + step up and down."""
    return 0.0 if ends[0] == ends[1] else (math.log(ends[1]) - math.log(ends[0])) / (2 * math.log1p(step))


def _throughput(plan: Fixed, one: Parameter, most: int) -> tuple[float | None, str]:
    """Elasticity of tokens/s/chip at the largest batch to a capacity."""
    cluster, value = plan.scenario.cluster, float(one.number)
    ends = [one.on(cluster, value * factor) for factor in (1 / (1 + CAPACITY_STEP), 1 + CAPACITY_STEP)]
    low, high = (plan.largest(end) for end in ends)
    if not most:
        return None, "nothing fits"
    if low == high:
        return 0.0, ""
    if not low:  # one-sided: below, the weights alone do not fit
        before, after = plan.rate(cluster, most), plan.rate(ends[1], high)
        return 2 * _slope([before, after], CAPACITY_STEP), f"with {CAPACITY_STEP:.0%} less nothing fits"
    rates = [plan.rate(end, batch) for end, batch in zip(ends, (low, high), strict=True)]
    return _slope(rates, CAPACITY_STEP), f"largest batch {low:,} to {high:,}"


def relieved(plan: Fixed, one: Parameter, factors: Sequence[float | None] = (4.0, None)) -> list[Relief]:
    """What a step is bound by when a number is so many times better, or has no limit (None)."""
    cluster = plan.scenario.cluster
    base = plan.tpot_s(cluster)
    found = []
    for factor in factors:
        changed = one.on(cluster, better(one, factor))
        result = plan.result(changed)
        busiest = max(result.pools, key=lambda row: row.busy_fraction)
        tpot = plan.tpot_s(changed)
        next_ = _leading(plan, changed, one.path)
        found.append(
            Relief(one.path, factor, tpot, 1 - tpot / base, result.step.bound, busiest.pool, busiest.bound, next_),
        )
    return found


def better(one: Parameter, factor: float | None) -> float:
    """The value of a number that is `factor` times better; a share is at most 1."""
    if one.kind == "fixed":
        return 0.0 if factor is None else float(one.number) / factor
    return one.scaled(WITHOUT_LIMIT if factor is None else factor)


def _leading(plan: Fixed, cluster: Cluster, relieved: str) -> str:
    """The number of a cluster that moves its step most, that which was relieved aside."""
    best, found = 1e-6, ""
    for one in parameters(cluster):
        if not one.enters_time or one.path == relieved:
            continue
        value = float(one.number)
        ends = [plan.step_s(one.on(cluster, value * factor)) for factor in (1 / (1 + STEP), 1 + STEP)]
        slope = abs(_slope(ends, STEP))
        if slope > best:
            best, found = slope, one.path
    return found


@dataclass(frozen=True)
class Bar:
    """A number at two values, and the step at each."""

    parameter: str
    low: str
    """The lower value with its unit."""
    high: str
    low_s: float
    """Time of the step (s) at the lower value."""
    high_s: float
    base_s: float
    """Time of the step (s) at the number's own value."""
    status: str = ""

    @property
    def span_s(self) -> float:
        """How far the step moves."""
        times = (self.low_s, self.high_s, self.base_s)
        return max(times) - min(times)


@dataclass(frozen=True)
class Tornado:
    """The bars of a tornado, widest first."""

    step_s: float
    ranges: tuple[Bar, ...]
    """Numbers at the two ends of their stated ranges, and measured fits at those of their bands."""
    even: tuple[Bar, ...]
    """Every number at 20 % less and 20 % more; shares at most 1."""


def tornado(scenario: Scenario, change: float = 0.2) -> Tornado:
    """What the stated ranges of inputs, and the same change of every number, do to the step."""
    plan, cluster = Fixed(scenario), scenario.cluster
    step = plan.step_s(cluster)
    every = [one for one in parameters(cluster) if one.enters_time]
    ranges = [_bar(plan, step, one, one.number.low, one.number.high) for one in every if one.number.ranged] + _fits(plan, step)
    even = [_bar(plan, step, one, one.scaled(1 - change), one.scaled(1 + change)) for one in every]
    return Tornado(step, _widest(ranges, step), _widest(even, step))


def _bar(plan: Fixed, step: float, one: Parameter, low: float, high: float) -> Bar:
    times = [plan.step_s(one.on(plan.scenario.cluster, value)) for value in (low, high)]
    return Bar(one.path, one.shown(low), one.shown(high), times[0], times[1], step, one.number.status)


def _fits(plan: Fixed, step: float) -> list[Bar]:
    """Measured fits: all ops of one at both ends of its band."""
    cluster = plan.scenario.cluster
    base, found = plan.priced(cluster), []
    for index, (pool, fit) in enumerate(plan.laid.table.fits):
        times = []
        for factor in (fit.low, fit.high):
            changed = base.copy()
            changed[plan.laid.table.fitted == index, c.TIME] *= factor
            times.append(plan.time_of(changed, cluster))
        ends = f"x {fit.low:.3g}", f"x {fit.high:.3g}"
        found.append(Bar(f"{pool} calibration {fit.key}", *ends, times[0], times[1], step, "measured"))
    return found


def _widest(bars: Sequence[Bar], step: float) -> tuple[Bar, ...]:
    return tuple(sorted((bar for bar in bars if bar.span_s > 1e-6 * step), key=lambda bar: -bar.span_s))


def euler(rows: Sequence[Elasticity]) -> float:
    """Sum of the elasticities of the time to all rates less that to all fixed times.

    -1 when nothing else takes time: rates times k and fixed times over k divide a time by k (Euler's theorem on homogeneous
    functions). Shares multiply rates that are counted already.
    """
    sign = {"rate": 1.0, "fixed": -1.0}
    return float(np.sum([sign.get(row.kind, 0.0) * row.time for row in rows]))
