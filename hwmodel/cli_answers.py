"""The commands that turn a priced step into an answer for others: cost, explanation, page."""

from __future__ import annotations

from pathlib import Path

import click

from hwmodel.terminal import json_out, listen, say, show

INFEASIBLE = 3
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
_SET = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Replace a value of the scenario, such as workload.batch=64.",
)


@click.command("explain")
@click.argument("scenario")
@click.option("--op", "of", help="An op or layer by name, or step, tpot, throughput, cost, energy, memory:POOL:TIER.")
@_SET
@click.option("--ideal", is_flag=True, help="Of the physical floor.")
@_JSON
def explain_command(scenario: str, of: str | None, settings: tuple[str, ...], ideal: bool, as_json: bool) -> int:
    """Print every term of a number of SCENARIO: formula, values, sources, and the three inputs that move it most.

    Without --op, of the step and of every total.
    """
    from hwmodel.explain import explain, explain_all
    from hwmodel.run import run
    from hwmodel.scenario import load_scenario

    listen()
    result = run(load_scenario(scenario, settings), ideal=ideal)
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
@_SET
@click.option("--ideal", is_flag=True, help="Of the physical floor.")
def report_command(scenario: str, out: Path, settings: tuple[str, ...], ideal: bool) -> int:
    """Write one self-contained page about SCENARIO, or about an answer that `run --json` saved."""
    from hwmodel.report.html import write_html
    from hwmodel.report.page import page_from, page_of

    listen()
    if scenario.endswith(".json"):
        if settings or ideal:
            raise click.UsageError("a saved answer cannot be changed; give the scenario with --set or --ideal")
        page = page_from(scenario)
    else:
        from hwmodel.run import run
        from hwmodel.scenario import load_scenario

        page = page_of(run(load_scenario(scenario, settings), ideal=ideal))
    write_html(page, out)
    say(f"wrote {out}")
    return 0 if page.answer["feasible"] else INFEASIBLE


@click.command("compare")
@click.argument("asked", metavar="SCENARIO_OR_RESULT...", nargs=-1, required=True)
@_SET
@_JSON
def compare_command(asked: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> int:
    """Set answers side by side, and find the interactivity at which the cheaper one changes.

    --set holds for every scenario named.
    """
    from hwmodel.compare import compare
    from hwmodel.report.page import page_from
    from hwmodel.scenario import load_scenario

    listen()
    found = compare([page_from(name).answer if name.endswith(".json") else load_scenario(name, settings) for name in asked])
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.comparison import comparison

        show(comparison(found))
    return 0 if all(row["feasible"] for row in found.rows) else INFEASIBLE


@click.command("cost")
@click.argument("scenario")
@_SET
@click.option("--prefill", help="A prefill scenario whose cluster takes in the prompts; the scenario's own when absent.")
@_JSON
def cost_command(scenario: str, settings: tuple[str, ...], prefill: str | None, as_json: bool) -> int:
    """Price SCENARIO as a service: output, input, cached input, an agent's session, fast modes, margins."""
    from hwmodel.offer import offer
    from hwmodel.scenario import load_scenario

    listen()
    found = offer(load_scenario(scenario, settings), load_scenario(prefill) if prefill else None)
    for reason in found.reasons:
        say(f"does not run as planned (priced all the same): {reason}")
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.money import cost_answer

        show(cost_answer(found))
    return 0 if found.feasible else INFEASIBLE
