"""The commands that turn a priced step into an answer for others: cost, explanation, page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hwmodel.cli_question import INFEASIBLE, asked, json_option, set_option, start
from hwmodel.terminal import json_out, listen, say, show

if TYPE_CHECKING:
    from hwmodel.scenario import Scenario


@click.command("explain")
@click.argument("scenario")
@click.option(
    "--op",
    "of",
    help="An op or layer by name, or step, ttft, tpot, throughput, cost, energy, memory:POOL:TIER, pool:POOL, link:POOL>POOL.",
)
@set_option
@click.option("--ideal", is_flag=True, help="Of the physical floor.")
@json_option
def explain_command(scenario: str, of: str | None, settings: tuple[str, ...], ideal: bool, as_json: bool) -> int:
    """Print every term of a number of SCENARIO: formula, values, sources, and the three inputs that move it most.

    Without --op, of the step and of every total.
    """
    question = asked(scenario, settings, {})
    from hwmodel.explain import explain, explain_all
    from hwmodel.run import run

    result = run(question, ideal=ideal)
    found = [explain(result, of)] if of else explain_all(result)
    if as_json:
        rest = {} if of else {"totals": [each.to_dict() for each in found[1:]]}
        json_out({**found[0].to_dict(), **rest})
    else:
        from hwmodel.report.explanation import explanations

        show(explanations(found, result.scenario))
    return 0 if result.feasible else INFEASIBLE


@click.command("report")
@click.argument("scenario", metavar="SCENARIO_OR_RESULT")
@click.option("--html", "out", required=True, type=click.Path(path_type=Path), help="Page to write.")
@set_option
@click.option("--ideal", is_flag=True, help="Of the physical floor.")
@click.option("--against", "others", metavar="SCENARIO", multiple=True,
              help="Also draw its front over tokens/s/user, and where the two cross; repeatable.")  # fmt: skip
def report_command(scenario: str, out: Path, settings: tuple[str, ...], ideal: bool, others: tuple[str, ...]) -> int:
    """Write one self-contained page about SCENARIO, or about an answer that `run --json` or `simulate --json` saved.

    --set holds for SCENARIO, not for those it is set against.
    """
    from hwmodel.report.html import write_html
    from hwmodel.report.page import page_from, page_of

    listen()
    if scenario.endswith(".json"):
        if settings or ideal or others:
            raise click.UsageError("a saved answer cannot be asked again; give the scenario with --set, --ideal or --against")
        from hwmodel.report.serving_page import is_simulation, write_simulation

        if is_simulation(scenario):
            write_simulation(scenario, out)
            say(f"wrote {out}")
            return 0
        page = page_from(scenario)
    else:
        question = asked(scenario, settings, {})
        from hwmodel.run import run
        from hwmodel.scenario import load_scenario

        page = page_of(run(question, ideal=ideal), [load_scenario(name) for name in others])
    write_html(page, out)
    say(f"wrote {out}")
    return 0 if page.answer["feasible"] else INFEASIBLE


@click.command("compare")
@click.argument("names", metavar="SCENARIO_OR_RESULT...", nargs=-1, required=True)
@set_option
@click.option("--each", metavar="PATH=A,B,C", help="One for every value in place of a SCENARIO: model=llama-3.1-70b,qwen3-32b.")
@click.option("--slo", metavar="tpot=20ms", default="", help="Each serves the most sequences that keep to this target.")
@click.option("--best", is_flag=True, help="Each under the plan of its chips that is cheapest within the target, not its own.")
@click.option("--over", "axes", metavar="PATH=LOW..HIGH", multiple=True,
              help="The cheapest along a number, and where that changes: workload.context=4096..131072.")  # fmt: skip
@json_option
def compare_command(
    names: tuple[str, ...], settings: tuple[str, ...], each: str | None, slo: str, best: bool, axes: tuple[str, ...],
    as_json: bool,
) -> int:  # fmt: skip
    """Set answers side by side, and find the interactivity, or the value of a number, at which the cheaper one changes.

    Of scenarios, of answers that `run --json` saved, and of points that `sweep --out FILE` wrote (.csv or .parquet). --set
    holds for every scenario named. A pool that only some of them have is changed in those.
    """
    start()
    from hwmodel.axis import TPOT, axis, question, tpot_target
    from hwmodel.compare.along import along, at_target
    from hwmodel.compare.answer import compare
    from hwmodel.report.page import page_from
    from hwmodel.sweep.read import is_points

    done = [name for name in names if name.endswith(".json") or is_points(name)]
    if done and (each or slo or best or axes):
        raise click.UsageError(f"{done[0]} cannot be asked again; leave out --each, --slo, --best and --over")
    target, numbers = tpot_target(slo) if slo else None, [axis(text) for text in axes]
    if best and target is None and (not numbers or any(one.path != TPOT for one in numbers)):
        raise click.UsageError("--best looks for the cheapest plan within a target: give one with --slo tpot=TIME")
    questions = {name: [question(name, settings)] for name in names if name not in done}
    if each:
        questions = {name: one[0].each(axis(each)) for name, one in questions.items()}
    every = [one for some in questions.values() for one in some]
    over = [along(every, one, target, best=best) for one in numbers]
    ready = {name: [at_target(one.scenario(), target, best=best) for one in some] for name, some in questions.items()}
    asked_: list[Scenario | Mapping[str, Any] | Path] = []
    for name in names:
        asked_ += ready[name] if name in ready else [Path(name) if is_points(name) else page_from(name).answer]
    found = compare(asked_, over)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.comparison import comparison

        show(comparison(found))
    return 0 if all(row["feasible"] for row in found.rows) else INFEASIBLE


@click.command("cost")
@click.argument("scenario")
@set_option
@click.option("--prefill", help="A prefill scenario whose cluster takes in the prompts; the scenario's own when absent.")
@json_option
def cost_command(scenario: str, settings: tuple[str, ...], prefill: str | None, as_json: bool) -> int:
    """Price SCENARIO as a service: output, input, cached input, an agent's session, fast modes, margins."""
    question = asked(scenario, settings, {})
    from hwmodel.offer import offer
    from hwmodel.scenario import load_scenario

    found = offer(question, load_scenario(prefill) if prefill else None)
    for reason in found.reasons:
        say(f"does not run as planned (priced all the same): {reason}")
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.money import cost_answer

        show(cost_answer(found))
    return 0 if found.feasible else INFEASIBLE
