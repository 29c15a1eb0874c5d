"""The command that searches: `hwmodel optimize`."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

import click

from hwmodel.cli_question import INFEASIBLE, asked, json_option, set_option
from hwmodel.terminal import json_out, say, show

if TYPE_CHECKING:
    from hwmodel.goal import Goal


@click.command("optimize")
@click.argument("scenario")
@set_option
@click.option("--objective", metavar="NAME", help="What is to be best; tokens_per_s_per_chip unless the scenario says.")
@click.option("--slo", metavar="tpot=20ms,ttft=1s", default="", help="Latency targets that every plan must meet.")
@click.option("--front", metavar="5ms,10ms,...", default="", help="Answer for these TPOT targets as well.")
@click.option("--candidates", type=click.IntRange(0), default=8, help="Plans to print beside the best.")
@click.option("--experts", is_flag=True, help="Print what micro-batches and expert widths do to the experts as well.")
@json_option
def optimize_command(
    scenario: str,
    settings: tuple[str, ...],
    objective: str | None,
    slo: str,
    front: str,
    candidates: int,
    experts: bool,
    as_json: bool,
) -> int:
    """Find the best plan for SCENARIO's model and chips: who holds what, how many chips, degrees, micro-batches, batch.

    The scenario's `goal` section may say the objective, targets, budget and what to look through. Its plan is not used.
    """
    question = asked(scenario, settings, {})
    goal = _goal(question.goal, objective, slo)
    from hwmodel.axis import seconds

    tpots = [seconds(text, "--front") for text in front.split(",") if text]
    from hwmodel.optimize.optimum import optimize

    found = optimize(question, goal, tpots)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.optimum import answer

        show(answer(found, candidates, widths=experts))
    if not found.feasible:
        say("no plan of the space meets every constraint")
    return 0 if found.feasible else INFEASIBLE


def _goal(stated: Goal, objective: str | None, slo: str) -> Goal:
    """The scenario's goal with what the command line says over it."""
    from hwmodel.axis import targets
    from hwmodel.goal import Objective, Slo
    from hwmodel.spec.errors import did_you_mean
    from hwmodel.spec.number import Number

    changes: dict[str, Any] = {}
    if objective is not None:
        known = typing.get_args(Objective)
        if objective not in known:
            raise click.UsageError(f"--objective: no objective '{objective}'{did_you_mean(objective, known)}")
        changes["objective"] = objective
    limits: dict[str, Any] = {"tpot_s": stated.slo.tpot_s, "ttft_s": stated.slo.ttft_s}
    limits |= {f"{name}_s": Number(time) for name, time in (targets(slo, "tpot", "ttft") if slo else {}).items()}
    return stated.model_copy(update={**changes, "slo": Slo.model_construct(**limits)})
