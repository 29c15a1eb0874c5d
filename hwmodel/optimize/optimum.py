"""The answer to `hwmodel optimize`: the best plan, priced by `run`, what else was looked at, and why it cannot be beaten."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hwmodel.answered import Answered
from hwmodel.goal import Goal
from hwmodel.graph import OpGraph
from hwmodel.lower.decoder import lower
from hwmodel.optimize.agreement import agreement
from hwmodel.optimize.expert_batch import ExpertBatch, expert_batch
from hwmodel.optimize.held import held
from hwmodel.optimize.limits import excluded
from hwmodel.optimize.packed import Packed, packed, tokens_of
from hwmodel.optimize.search import Best, Line, best, lines
from hwmodel.optimize.space import Choice, choices
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, loaded
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show

UNITS = {
    "tokens_per_s_per_chip": "tokens/s/chip", "tokens_per_s_per_usd": "tokens/s per USD/h", "usd_per_mtok": "USD/Mtok",
    "joules_per_token": "J/token", "tpot": "s", "chips": "chips",
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One plan that was looked at."""

    plan: str
    objective: float | None
    """Best value found; None when it cannot run, or was proved worse without being priced."""
    feasible: bool
    reason: str
    """The constraint that killed it, or how it was proved worse; empty for what was priced."""


@dataclass(frozen=True)
class Target:
    """The best plan under one TPOT target."""

    tpot_slo_s: float | None
    best: Best
    result: Result | None
    """`run` of that plan; None when no plan meets the target."""

    @property
    def choice(self) -> Choice | None:
        """The plan but for its micro-batches."""
        return self.best.line.plan.choice if self.best.line else None


@dataclass(frozen=True)
class Optimum(Answered):
    """The best plan of a space. `to_dict` gives the JSON of the command line."""

    scenario: Scenario
    goal: Goal
    answer: Target
    front: tuple[Target, ...]
    """The same question under other TPOT targets."""
    candidates: tuple[Candidate, ...]
    plans: int
    """Plans of the space, batches and micro-batches aside."""
    packed: tuple[Packed, ...]
    dip: float
    """How much shorter (relative) a step of more sequences was, at the worst: the bounds take it for 0."""

    @property
    def feasible(self) -> bool:
        """Whether any plan meets every target."""
        return self.answer.result is not None

    @property
    def reasons(self) -> list[str]:
        """How many plans each constraint killed, most first."""
        killed = Counter(item.reason.partition(":")[0] for item in self.candidates if not item.feasible)
        return [f"{reason}: {count:,} plans" for reason, count in killed.most_common()]

    @cached_property
    def experts(self) -> ExpertBatch | None:
        """Tokens per expert of the answer; None without an answer or without routed experts."""
        slo, result = self.goal.slo.tpot_s, self.answer.result
        return expert_batch(result, None if slo is None else float(slo)) if result else None

    @cached_property
    def placement(self) -> dict[str, Any] | None:
        """The answer's ops placed one by one, to compare."""
        return agreement(self.answer.result) if self.answer.result else None

    @property
    def proof(self) -> dict[str, Any]:
        """Method and optimality gap."""
        found = self.answer.best
        if found.line is None:
            return {"method": "every plan of the space fails a constraint", "gap": None, "plans": self.plans}
        return {
            "method": (
                f"branch and bound over {self.plans:,} plans x micro-batches x every batch up to {self.goal.max_batch:,}; "
                "bounds: a step is no shorter than its busiest lane and its longest path"
            ),
            "gap": found.gap,
            "gap_if_time_grows_with_batch": found.gap_if_growing,
            "plans": self.plans,
            "pieces": found.pieces,
            "bound": natural(self.goal.objective, self.answer.best.bound),
            "worst_dip_of_time_with_batch": self.dip,
            "placement": self.placement,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel optimize --json`` prints it."""
        result = self.answer.result
        base: dict[str, Any] = result.to_dict() if result else {"scenario": self.scenario.name, "feasible": False}
        base["reasons"] = [] if result else self.reasons
        front = [{"tpot_slo_s": target.tpot_slo_s, **_answer(self.goal.objective, target)} for target in self.front]
        return {
            **base, **_answer(self.goal.objective, self.answer), "front": front,
            "expert_batch": self.experts.to_dict() if self.experts else None,
            "candidates": [vars(item) for item in self.candidates], "proof": self.proof,
        }  # fmt: skip


def _answer(objective: str, target: Target) -> dict[str, Any]:
    """Value of the objective, its gap, and the plan."""
    line = target.best.line
    value, gap = (natural(objective, target.best.value), target.best.gap) if line else (None, None)
    return {"objective": {"name": objective, "value": value, "unit": UNITS[objective], "gap": gap}, **stated(target)}


def stated(target: Target) -> dict[str, Any]:
    """A plan as plain data: what a scenario would state, and what `run` answers."""
    line, choice = target.best.line, target.choice
    if line is None or choice is None or target.result is None:
        return {"plan": None, "batch": None, "microbatches": None, "tpot_s": None}
    pools = {pool.name: {"chip": pool.chip.name, "count": pool.count} for pool in choice.cluster.pools}
    return {
        "plan": {"label": choice.label, "placement": choice.placement, "pools": pools, "strategies": choice.stated(line.parts)},
        "batch": target.best.batch, "microbatches": target.result.step.micro_batches,
        "tpot_s": target.result.step.tpot_s,
    }  # fmt: skip


def natural(objective: str, value: float) -> float:
    """The worth of a plan in the objective's own unit."""
    if objective == "chips":
        return float(-(value // 1))
    if objective == "tpot":
        return -value
    if objective == "usd_per_mtok":
        return 1e6 / (value * 3600)
    return 1 / value if objective == "joules_per_token" else value


def optimize(scenario: Scenario | str, goal: Goal | None = None, tpots: Sequence[float] = ()) -> Optimum:
    """The best plan for a scenario's model, workload and chips.

    Parameters
    ----------
    scenario
        Or its name or path.
    goal
        The scenario's own when None.
    tpots
        Further TPOT targets (s) to answer for.

    Raises
    ------
    InputError
        When the objective needs prices or powers that no chip states.
    """
    scenario = loaded(scenario)
    goal = goal or scenario.goal
    _check_known(scenario, goal)
    floor = max(goal.min_batch, scenario.workload.batch if goal.objective in ("tpot", "chips") else 1)
    lowered = lower(scenario.model, scenario.workload.phase, scenario.formats, scenario.workload.drafts)
    ready, dead, count = _prepare(scenario, goal, lowered, floor)
    every = lines(ready, floor)
    slo = None if goal.slo.tpot_s is None else float(goal.slo.tpot_s)
    answer = _target(every, goal, slo)
    front = tuple(_target(every, goal, tpot) for tpot in tpots)
    told = sorted((_candidate(plan, answer.best, goal, slo) for plan in ready), key=lambda item: _order(goal.objective, item))
    dip = max((line.dip for line in every), default=0.0)
    return Optimum(scenario, goal, answer, front, (*told, *dead), count, tuple(ready), dip)


def prepared(scenario: Scenario, goal: Goal) -> list[Packed]:
    """Every plan of a space that can run with one sequence at least, ready to be priced at any batch.

    Raises
    ------
    InputError
        For a model and formats that cannot be lowered.
    """
    lowered = lower(scenario.model, scenario.workload.phase, scenario.formats, scenario.workload.drafts)
    return _prepare(scenario, goal, lowered, 1)[0]


def _check_known(scenario: Scenario, goal: Goal) -> None:
    needs = {"tokens_per_s_per_usd": "price", "usd_per_mtok": "price", "joules_per_token": "power"}.get(goal.objective)
    if needs is None:
        return
    known = [
        pool.chip.power.tdp_watts if needs == "power" else (pool.chip.price.rental_usd_per_hour or pool.chip.price.purchase_usd)
        for pool in scenario.cluster.pools
    ]
    if not any(known):
        names = ", ".join(dict.fromkeys(pool.chip.name for pool in scenario.cluster.pools))
        raise InputError(f"objective {goal.objective} needs a {needs}, and none is known for {names}; add {needs}: to the YAML")


def _prepare(scenario: Scenario, goal: Goal, lowered: OpGraph, floor: int) -> tuple[list[Packed], list[Candidate], int]:
    """(plans that can run, those that cannot and why, plans of the space)."""
    ready, dead, number = [], [], 0
    model = held(lowered, scenario.workload)
    for choice in choices(scenario, goal, model):
        number += 1
        reason = excluded(choice, goal, model)
        if not reason:
            try:
                plan = packed(choice, scenario, lowered, goal.max_batch)
            except InputError as error:
                reason = f"types: {error.problems[0].message}"
            else:
                reason = plan if isinstance(plan, str) else _too_few(plan, floor) or _slow_to_start(plan, goal)
                if not isinstance(plan, str) and not reason:
                    ready.append(plan)
        if reason:
            dead.append(Candidate(choice.label, None, False, reason))
    return ready, dead, number


def _too_few(plan: Packed, floor: int) -> str:
    asked = max(floor, min(plan.choice.micro_batches))
    return f"memory: {plan.most:,} sequences fit, {asked:,} are asked for" if plan.most < asked else ""


def _slow_to_start(plan: Packed, goal: Goal) -> str:
    """Why a prompt of the workload's context is not prefilled in time, alone on the plan's chips."""
    limit, work = goal.slo.ttft_s, plan.scenario.workload
    if limit is None or work.phase == "prefill":
        return ""
    first = work.model_copy(
        update={"phase": "prefill", "batch": 1, "new_tokens": max(work.context, work.new_tokens), "speculative": None}
    )
    time = run(replace(plan.scenario, workload=first)).step.time_s
    return f"TTFT: {show(time, 's', 4)} for one prompt of {first.new_tokens:,} tokens" if time > limit else ""


def _target(every: Sequence[Line], goal: Goal, tpot: float | None) -> Target:
    found = best(every, goal.objective, tpot)
    if found.line is None:
        return Target(tpot, found, None)
    scenario = found.line.plan.scenario
    work = scenario.workload.model_copy(update={"batch": found.batch})
    plan = found.line.plan.choice.plan(found.line.parts)
    return Target(tpot, found, run(replace(scenario, plan=plan, workload=work)))


def _candidate(plan: Packed, found: Best, goal: Goal, slo: float | None) -> Candidate:
    label = plan.choice.label
    if id(plan) in found.by_plan:
        value, batch, parts = found.by_plan[id(plan)]
        cut = f" in {parts} micro-batches" if parts > 1 else ""
        return Candidate(f"{label}, batch {batch:,}{cut}", natural(goal.objective, value), True, "")
    if id(plan) in found.bounds:
        bound = natural(goal.objective, found.bounds[id(plan)])
        return Candidate(label, None, True, f"bounded: no better than {bound:.6g} {UNITS[goal.objective]}")
    least = found.least[id(plan)] / tokens_of(plan.scenario)
    return Candidate(label, None, False, f"TPOT: {show(least, 's', 4)} at its smallest batch, over {show(slo or 0.0, 's', 4)}")


def _order(objective: str, item: Candidate) -> tuple[bool, bool, float]:
    sign = 1 if objective in ("usd_per_mtok", "joules_per_token", "tpot", "chips") else -1
    return not item.feasible, item.objective is None, sign * (item.objective or 0.0)
