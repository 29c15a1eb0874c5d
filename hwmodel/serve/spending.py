"""Dollars and joules of a service: every instance for the whole of the run, its chips working or idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hwmodel.economics.energy import idle_power
from hwmodel.economics.forms import electricity_usd_per_hour
from hwmodel.economics.step import Cost, rented
from hwmodel.kernels import serving_columns as c
from hwmodel.run import run as run_step
from hwmodel.serve.engine import Run
from hwmodel.serve.metrics import finished_inputs, finished_tokens, makespan_s
from hwmodel.serve.simulate import Answer, Kind
from hwmodel.spec.number import Number

PROMPT = 2048
"""Tokens of the prompt whose step stands for prefill."""
NOTHING = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Rates:
    """Of one instance."""

    usd_per_hour: float
    """Without electricity."""
    prefill_watts: float | None
    decode_watts: float | None
    """While it computes prompts, and answers: from work, bytes and links of a step; None where a chip's power is not known."""
    idle_watts: float
    prompt_s: float
    """Per token of a prompt."""
    electricity: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """USD per hour of bought chips: while it computes prompts, answers, and nothing."""


def rates(kind: Kind) -> tuple[Rates | None, str]:
    """What an instance costs and draws, or None and the reason; the step that the scenario states stands for its decodes."""
    prices = kind.scenario.economics.model_copy(update={"utilisation": Number(1.0)})  # the run says when nothing is computed
    scenario, work = replace(kind.scenario, economics=prices), kind.scenario.workload
    prompt = {"phase": "prefill", "batch": 1, "new_tokens": PROMPT, "cached": 0}
    decode = {"phase": "decode", "batch": max(1, work.batch), "context": max(1, work.context)}
    first, each = (run_step(replace(scenario, workload=work.model_copy(update=update))) for update in (prompt, decode))
    if first.cost is None or each.cost is None:
        return None, each.cost_reason or first.cost_reason
    pools = [(pool, float(idle_power(pool.chip) or 0.0)) for pool in scenario.cluster.pools]
    idle = sum(watts * pool.count for pool, watts in pools)
    idle_usd = sum(
        electricity_usd_per_hour(float(pool.count), watts, prices) for pool, watts in pools if not rented(pool.chip, prices)
    )
    electricity = (_electricity(first.cost), _electricity(each.cost), idle_usd)
    held = each.cost.usd_per_hour - electricity[1]
    return Rates(held, first.cost.watts, each.cost.watts, idle, first.step.time_s / PROMPT, electricity), ""


def prompt_shares(role: str, prompts_s: float, busy_s: float) -> tuple[float, float, float]:
    """What is prefill of the time spent on prompts, on answers and on nothing, by what an instance is for."""
    if role != "mixed":
        return (1.0, 1.0, 1.0) if role == "prefill" else (0.0, 0.0, 0.0)
    return 1.0, 0.0, prompts_s / busy_s if busy_s else 0.0


@dataclass(frozen=True)
class Stages:
    """Dollars and joules of prefill and of decode; together those of the run."""

    usd: tuple[float, float] = (0.0, 0.0)
    joules: tuple[float, float] = (0.0, 0.0)

    def plus(self, usd: Sequence[float], joules: Sequence[float], prefill: Sequence[float]) -> Stages:
        """With what is spent on prompts, on answers and on nothing, and the share of each that is prefill."""
        return Stages(_add(self.usd, usd, prefill), _add(self.joules, joules, prefill))

    def rows(self, inputs: int, outputs: int, *, known: bool) -> list[dict[str, Any]]:
        """Prefill over input tokens, decode over output tokens, both over all; `known` is whether joules are."""
        every = (("input", inputs, self.usd[0], self.joules[0]), ("output", outputs, self.usd[1], self.joules[1]),
                 ("all", inputs + outputs, sum(self.usd), sum(self.joules)))  # fmt: skip
        return [
            {"tokens": name, "count": count, "usd": usd, "usd_per_million": usd / count * 1e6 if count else None,
             "joules": joules if known else None, "joules_per_token": joules / count if known and count else None}
            for name, count, usd, joules in every
        ]  # fmt: skip


def _add(stages: tuple[float, float], parts: Sequence[float], prefill: Sequence[float]) -> tuple[float, float]:
    first = sum(part * share for part, share in zip(parts, prefill, strict=True))
    return stages[0] + first, stages[1] + sum(parts) - first


def _electricity(cost: Cost) -> float:
    return sum(pool.electricity_usd_per_hour for pool in cost.pools)


def spent(
    answer: Answer, tokens_per_s: float, known_rates: Sequence[tuple[Rates | None, str]] = ()
) -> tuple[dict[str, Any] | None, str]:
    """Dollars and joules of a run, per hour and per million output tokens; None and the reason where a price is not known.

    An instance draws what a prompt's step does for as long as its prompt tokens take in such steps, what a decode step does for
    the rest of the time it computes, and idle power else. `known_rates` are those of the answer's kinds, where they are known.
    """
    run = answer.run
    span, tokens = makespan_s(run), finished_tokens(run)
    stages = Stages()
    hourly = busy_usd = joules = 0.0
    known = True
    for index, (group, kind) in enumerate(zip(run.fleet.groups, answer.kinds, strict=True)):
        each, why = known_rates[index] if known_rates else rates(kind)
        if each is None:
            return None, why
        own = run.group == index
        busy_s = float(run.meter[own, c.BUSY_S].sum())
        prompts_s = min(busy_s, float(run.inst[own, c.PREFILLS].sum()) * each.prompt_s)
        times = (prompts_s, busy_s - prompts_s, span * group.instances - busy_s)
        drawn = [usd * time / 3600 for usd, time in zip(each.electricity, times, strict=True)]
        hourly += each.usd_per_hour * group.instances + (sum(drawn) / span * 3600 if span else 0.0)
        busy_usd += each.usd_per_hour * busy_s / 3600 + drawn[0] + drawn[1]
        shares = prompt_shares(group.role, prompts_s, busy_s)
        rent = each.usd_per_hour * group.instances * span / 3600  # split as idle time is
        stages = stages.plus((drawn[0], drawn[1], drawn[2] + rent), NOTHING, shares)
        if each.prefill_watts is None or each.decode_watts is None:
            known = False
            continue
        watts = (each.prefill_watts, each.decode_watts, each.idle_watts)
        parts = [power * time for power, time in zip(watts, times, strict=True)]
        joules += sum(parts)
        stages = stages.plus(NOTHING, parts, shares)
    below = _tiers_usd_per_hour(run)
    hourly, busy_usd = hourly + below, busy_usd + below * span / 3600
    stages = stages.plus((below * span / 3600, 0.0, 0.0), NOTHING, (1.0, 0.0, 0.0))
    return {
        "usd_per_hour": hourly, "usd_per_million_output_tokens": hourly / (tokens_per_s * 3600) * 1e6 if tokens_per_s else None,
        "usd_busy": busy_usd, "usd_busy_per_million_output_tokens": busy_usd / tokens * 1e6 if tokens else None,
        "joules": joules if known else None,
        "joules_per_output_token": joules / tokens if known and tokens else None,
        "watts": joules / span if known and span else None,
        "stages": stages.rows(finished_inputs(run), tokens, known=known),
        "basis": "chips and tiers for the whole of the run; usd_busy: chips only while they compute; joules of chips alone: "
                 "work, bytes and links of prompts and decodes, and idle power; stages: each over its own tokens, of instances "
                 "that do both by the time they compute for each, idle time alike, tiers with the prompts",
    }, ""  # fmt: skip


def _tiers_usd_per_hour(run: Run) -> float:
    return sum(tier.usd_per_hour * (1 if tier.pooled else len(run.inst)) for tier in run.fleet.groups[0].tiers)
