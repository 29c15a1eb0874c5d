"""The commands that vary hardware: `hwmodel whatif` and `hwmodel racks`."""

from __future__ import annotations

from typing import Any

import click

from hwmodel.cli_question import INFEASIBLE, asked, json_option, set_option, start
from hwmodel.terminal import json_out, say, show


@click.command("whatif")
@click.argument("scenario")
@set_option
@click.option("--least", "paths", metavar="CHIP.PATH", multiple=True, help="The least of this number that meets --slo.")
@click.option("--slo", metavar="tpot=20ms", default="", help="TPOT target of --least; the scenario's own goal when absent.")
@json_option
def whatif_command(scenario: str, settings: tuple[str, ...], paths: tuple[str, ...], slo: str, as_json: bool) -> int:
    """Say what moves SCENARIO's answer when its plan stays: elasticities, and what binds next when a number is relieved.

    A number is named as `hwmodel chips CHIP` does, behind its chip or pool: gpu.memory.hbm.bandwidth; that of a link
    gpu-lpx.latency. Status 3 when no value of one asked for by --least meets the target, or the plan does not run.
    """
    question = asked(scenario, settings, {})
    from hwmodel.optimize.least import least
    from hwmodel.optimize.whatif import whatif

    targets = [] if not paths else [_tpot(slo, question.goal.slo.tpot_s)]
    answers = [least(question, path, target) for path in paths for target in targets]
    found = whatif(question)
    if as_json:
        json_out({**found.to_dict(), "least": [one.to_dict() for one in answers]})
    else:
        from hwmodel.report.whatif import answer

        show(answer(found, answers))
    return 0 if all(one.meets for one in answers) and not found.reasons else INFEASIBLE


def _tpot(slo: str, stated: float | None) -> float:
    from hwmodel.axis import tpot_target

    if slo:
        return tpot_target(slo)
    if stated is None:
        raise click.UsageError("--least needs a target: --slo tpot=TIME, such as tpot=20ms")
    return float(stated)


@click.command("racks")
@click.argument("model")
@click.option("--chip", required=True, help="Chip that holds the routed experts, name or path.")
@click.option("--weights", default="fp8", show_default=True, help="Format of all weights.")
@click.option("--batch", type=click.IntRange(1, 10**9), default=1, show_default=True, help="Tokens of a step.")
@click.option("--rack", type=click.IntRange(1, 10**6), help="Chips of a rack; those that the chip's first link joins.")
@click.option("--tpot", metavar="TIME", help="Time per output token; without one only capacity counts.")
@click.option("--stages", type=click.IntRange(1, 16), default=3, show_default=True,
              help="Stages that share a layer's time: attention, transfers, experts.")  # fmt: skip
@click.option("--attention-chip", help="Chip that does the rest, name or path; needs --context and --tpot.")
@click.option("--context", type=click.IntRange(1, 10**9), help="Cached tokens per sequence.")
@click.option("--kv", default="fp8", show_default=True, help="Format of the KV cache.")
@json_option
def racks_command(model: str, chip: str, as_json: bool, **options: Any) -> int:
    """Say how many racks of a memory-poor CHIP hold MODEL's routed experts, what limits them, and the chips to feed them."""
    if options["attention_chip"] and not (options["context"] and options["tpot"]):
        raise click.UsageError("--attention-chip needs --context and --tpot")
    start()
    from hwmodel.axis import seconds
    from hwmodel.optimize.rackplan import racks

    tpot = options.pop("tpot")
    options |= {"tpot_s": seconds(tpot, "--tpot") if tpot else None, "rack": options["rack"] or 0}
    plan = racks(model, chip, **options)
    for text in plan.warnings:
        say(f"warning: {text}")
    if as_json:
        json_out(plan.to_dict())
    else:
        from hwmodel.report.whatif import racks_answer

        show(racks_answer(plan.title, plan.rows, plan.said))
    return 0
