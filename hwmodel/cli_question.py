"""How a command is asked: a scenario with settings over it, or options alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hwmodel.terminal import compiling, listen

if TYPE_CHECKING:
    from hwmodel.scenario import Scenario

INFEASIBLE = 3
BAD_INPUT = 2

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    help="Replace a value of the scenario, such as workload.batch=64.",
)


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The ways to ask: a scenario, or options alone."""
    for option in reversed(
        [
            click.argument("scenario", required=False),
            set_option,
            click.option("--model", help="Model name or path, without a scenario."),
            click.option("--chip", help="Chip name or path."),
            click.option("--count", type=click.IntRange(1), help="Number of chips."),
            click.option("--tp", type=click.IntRange(1), help="Tensor-parallel degree."),
            click.option("--ep", type=click.IntRange(1), help="Expert-parallel degree."),
            click.option("--pp", type=click.IntRange(1), help="Pipeline stages."),
            click.option("--batch", type=click.IntRange(1), help="Sequences, all chips together."),
            click.option("--context", type=click.IntRange(1), help="Cached tokens per sequence (prefill: prompt tokens)."),
            click.option(
                "--new-tokens", type=click.IntRange(1), help="Prompt tokens beside the decodes of a mixed step (512)."
            ),
            click.option("--phase", type=click.Choice(["decode", "prefill", "mixed"]), help="What the step does."),
            click.option("--weights", metavar="DTYPE", help="Format of the weights."),
            click.option("--kv", metavar="DTYPE", help="Format of the KV cache."),
            click.option("--stack", help="Software stack (calibration)."),
        ]
    ):
        command = option(command)
    return command


COMPILES = {
    "compare": "PERIOD", "optimize": "PERIOD", "simulate": "SERVING", "calibrate": "CORRECTION", "validate": "CORRECTION",
    "sweep": "NOTHING", "trace": "NOTHING",
}  # fmt: skip
"""What a first run of a command compiles beside a STEP, as `hwmodel.kernels.ahead` names it."""


def start() -> None:
    """Make ready for kernels, quickly, and tell what a user should know of the files that are found."""
    from hwmodel.kernels import announce_compiling, start_without_blas

    start_without_blas()
    from hwmodel.kernels import ahead
    from hwmodel.kernels.typing_memo import keep_types

    keep_types()
    announce_compiling(compiling)
    context = click.get_current_context(silent=True)
    ahead.compile_ahead(*getattr(ahead, COMPILES.get(context.info_name or "", "STEP") if context else "STEP"))
    listen()


def asked(scenario: str | None, settings: Sequence[str], options: dict[str, Any]) -> Scenario:
    """The scenario that arguments and options ask for."""
    start()
    from hwmodel.scenario import from_options, load_scenario

    given = {key: value for key, value in options.items() if value is not None}
    if scenario is not None:
        if given:
            first = next(iter(given))
            path = {"stack": "cluster.pools.POOL.stack=vllm", "model": "model=llama-3.1-70b",
                    "chip": "cluster.pools.POOL.chip=h200_sxm"}.get(first, "workload.batch=64")  # fmt: skip
            raise click.UsageError(f"--{first} goes without a scenario; with one, use --set, such as --set {path}")
        return load_scenario(scenario, settings)
    return from_options(given, settings)
