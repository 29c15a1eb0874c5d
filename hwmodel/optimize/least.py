"""The inverse question: the least of a number (of a fixed time, the most) with which a plan meets a TPOT target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hwmodel.optimize.fixed import Fixed
from hwmodel.optimize.parameters import Parameter, parameter
from hwmodel.optimize.whatif import better
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show

RANGE = 1e9
"""Factor up and down within which the answer is looked for."""
CLOSE = 1e-10
"""Relative width at which the bisection ends."""


@dataclass(frozen=True)
class Least:
    """The answer to an inverse question."""

    parameter: str
    tpot_slo_s: float
    now: float
    tpot_now_s: float
    value: float | None
    """The least (of a fixed time, the most) that meets the target; None when none does, or any does."""
    tpot_s: float | None
    """With that value."""
    meets: bool
    """Whether any value meets the target."""
    shown: str
    """The value with its unit; empty when there is none."""
    note: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def least(scenario: Scenario, path: str, tpot_s: float) -> Least:
    """The least of the number at `path` with which the scenario's plan and batch meet a TPOT (s), by bisection.

    Of a fixed time (latency, launch) it is the most. Of a capacity it is the least that holds the batch, when the TPOT is met.

    Raises
    ------
    InputError
        For a number that is not there, or a price.
    """
    one = parameter(scenario.cluster, path)
    if one.kind == "price":
        raise InputError(f"{one.path}: a price does not move TPOT; name a rate, a latency, a share or a capacity")
    plan = Fixed(scenario)
    base = scenario.cluster

    def tpot(value: float) -> float:
        return plan.tpot_s(one.on(base, value))

    def holds(value: float) -> bool:
        changed = one.on(base, value)
        return (one.kind != "capacity" or one.cache or not plan.misfits(changed)) and plan.tpot_s(changed) <= tpot_s

    now = float(one.number)
    best, worst = _ends(one, now)
    if not holds(best):
        return Least(one.path, tpot_s, now, tpot(now), None, None, False, "", _why_none(one, plan, best, tpot(best), tpot_s))
    if holds(worst):
        note = f"any value does: TPOT is {show(tpot(worst), 's', 4)} even at {one.shown(worst)}"
        return Least(one.path, tpot_s, now, tpot(now), None, None, True, "", note)
    found = _bisect(holds, worst, best)
    word = {"fixed": "at most", "capacity": "at least"}.get(one.kind, "at least")
    note = f"{word} {one.shown(found)}, {found / now:.3g} of now"
    return Least(one.path, tpot_s, now, tpot(now), found, tpot(found), True, one.shown(found), note)


def _ends(one: Parameter, now: float) -> tuple[float, float]:
    """(best value, worst value) that are tried."""
    if one.kind == "fixed":
        return 0.0, now * RANGE
    return better(one, RANGE), now / RANGE


def _bisect(holds: Callable[[float], bool], worst: float, best: float) -> float:
    """The value nearest to `worst` that holds, between it and `best`; halves ratios, of a time first its size."""
    if best == 0:  # no time at all: find a time that does
        best = worst
        while not holds(best):
            if best < worst * 1e-30:
                return 0.0
            worst, best = best, best / 16
    while abs(math.log(best / worst)) > CLOSE:
        middle = math.sqrt(best * worst)
        worst, best = (worst, middle) if holds(middle) else (middle, best)
    return best


def _why_none(one: Parameter, plan: Fixed, best: float, tpot_s: float, target: float) -> str:
    changed = one.on(plan.scenario.cluster, best)
    if tpot_s <= target:
        return f"no value does: {'; '.join(plan.misfits(changed))}"
    result = plan.result(changed)
    limit = {"fixed": "0", "share": "1"}.get(one.kind, "any height")
    return (
        f"no value does: at {limit} TPOT is {show(tpot_s, 's', 4)}, over {show(target, 's', 4)}, bound by {result.step.bound}"
    )
