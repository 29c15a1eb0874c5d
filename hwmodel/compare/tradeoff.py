"""Throughput against interactivity: a plan over its batches, other plans of its chips, other scenarios, where they cross."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hwmodel.answered import Answered
from hwmodel.compare.curve import PLANNED, Curve, Sampled, grid, planned, rates
from hwmodel.compare.overtaking import SAME, best, crossovers, refined
from hwmodel.goal import Slo
from hwmodel.optimize.optimum import prepared
from hwmodel.optimize.search import Line, lines
from hwmodel.result import Placed
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.sweep.names import CHIP, COST

COARSE = 16
"""Batches of every plan when the best are chosen, evenly in logarithms."""
MOST = 4
"""Other plans of the same chips that are shown; one must be ahead of all others by the ratio that counts as more than equal."""
WORTH = 0.005
"""What another plan must add to a front to be shown: relative, in the mean over the logarithm of interactivity."""


@dataclass(frozen=True)
class Tradeoff(Answered):
    """The curves of a question and where they change places."""

    curves: tuple[Curve, ...]
    crossovers: tuple[dict[str, Any], ...]
    """x, y, between [ahead below, ahead above], at, value, and the range of `at` (None where an end does not cross)."""
    plans: int
    """Of the scenario's chips that can run."""
    batch: int
    """That was asked about."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"curves": [asdict(curve) for curve in self.curves], "crossovers": [dict(row) for row in self.crossovers],
                "plans": self.plans, "batch": self.batch}  # fmt: skip


def tradeoff(placed: Placed, against: Sequence[Scenario] = ()) -> Tradeoff:
    """The plan of a placed step, up to four plans of the same chips that are ahead of it somewhere, and other scenarios' plans.

    Parameters
    ----------
    placed
        Of a decode or prefill step.
    against
        Scenarios of the same phase; each keeps its own plan.

    Raises
    ------
    InputError
        When a phase is mixed, or differs.
    """
    scenario, every = placed.scenario, dict[str, Line]()
    for other in (scenario, *against):
        if other.workload.phase != scenario.workload.phase or other.workload.phase == "mixed":
            raise InputError(f"{other.name} is a {other.workload.phase} step; batches of decode or of prefill steps compare")
        line = planned(placed if other is scenario else run(other, ranges=False).placed, other.goal.max_batch)
        if line is not None:
            every[PLANNED if other is scenario else other.name] = line
    foreign = set(every) - {PLANNED}
    plans, others = _others(scenario)
    every |= {_label(line): line for line in _ahead(list(every.values()), others)}
    sampled = [Sampled(name, line, name == PLANNED, name not in foreign) for name, line in every.items()]
    asked = scenario.workload.batch
    for each in sampled:
        each.batches |= {asked} if each.own and asked <= each.line.high else set()
    drawn = _shown(refined(sampled, crossovers), foreign)
    return Tradeoff(tuple(drawn), tuple(crossovers(drawn)), plans, asked)


def _others(scenario: Scenario) -> tuple[int, list[Line]]:
    """(plans that can run, each with each number of micro-batches) of exactly the scenario's chips, or of one of its pools."""
    goal = scenario.goal.model_copy(
        update={
            "objective": "tokens_per_s_per_chip", "slo": Slo(),
            "pools": {pool.name: (pool.count,) for pool in scenario.cluster.pools},
        }
    )  # fmt: skip
    ready = prepared(scenario, goal)
    return len(ready), lines(ready, 1)


def _label(line: Line) -> str:
    cut = f", {line.parts} micro-batches" if line.parts > 1 else ""
    return line.plan.choice.label + cut


def _ahead(stated: Sequence[Line], others: Sequence[Line]) -> list[Line]:
    """The few plans that lift the fronts of the stated ones most, per chip and per dollar, one after the other."""
    every = [*stated, *others]
    if not every:
        return []
    given = {id(line): rates(line, grid(line, COARSE)) for line in every}
    users = np.concatenate([user for user, _ in given.values()])
    at = np.geomspace(users.min(), users.max(), 200)
    worths = [{id(line): 1.0 for line in every}]
    if all(line.plan.usd_per_hour for line in every):
        worths.append({id(line): line.plan.scenario.cluster.chips / (line.plan.usd_per_hour or 1.0) for line in every})
    heights = {}
    for key, (user, chip) in given.items():
        heights[key] = np.array([best(user, chip * worth[key], at) for worth in worths])
    floor = np.min([np.where(np.isinf(height), np.inf, height).min(axis=1) for height in heights.values()], axis=0)
    heights = {key: np.maximum(height, floor[:, None]) for key, height in heights.items()}
    front = np.max([np.repeat(floor[:, None], len(at), axis=1), *(heights[id(line)] for line in stated)], axis=0)
    left, found = list(others), list[Line]()
    while left and len(found) < MOST:
        gains = [float(np.maximum(heights[id(line)] - front, 0.0).mean(axis=1).max()) for line in left]
        ahead = int(np.argmax(gains))
        if gains[ahead] < WORTH:
            break
        found.append(left.pop(ahead))
        front = np.maximum(front, heights[id(found[-1])])
    return found


def _shown(curves: Sequence[Curve], foreign: set[str]) -> list[Curve]:
    """What was asked for, and the plans that some batch of theirs puts ahead of all others."""

    def ahead(curve: Curve, y: str) -> bool:
        user, worth = curve.axes(y)
        beside = [np.exp(best(*other.axes(y), user)) for other in curves if other is not curve]
        return not beside or bool((worth > SAME * np.max(beside, axis=0)).any())

    measures = (CHIP, COST) if all(curve.priced for curve in curves) else (CHIP,)
    return [each for each in curves if each.own or each.name in foreign or any(ahead(each, y) for y in measures)]
