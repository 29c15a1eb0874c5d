"""The commands that turn a priced step into an answer for others: cost, explanation, page."""

from __future__ import annotations

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
