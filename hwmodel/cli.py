"""The command line. Commands import what they need when they run, so that help is instant."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hwmodel import __version__
from hwmodel.cli_answers import compare_command, cost_command, explain_command, report_command
from hwmodel.cli_measured import calibrate_command, validate_command
from hwmodel.cli_optimize import optimize_command
from hwmodel.cli_question import BAD_INPUT, INFEASIBLE, asked, json_option, question_options
from hwmodel.cli_simulate import simulate_command
from hwmodel.cli_sweep import sweep_command
from hwmodel.cli_trace import trace_command
from hwmodel.cli_whatif import racks_command, whatif_command
from hwmodel.terminal import json_out, listen, say, show, text_out

if TYPE_CHECKING:
    from hwmodel.result import Result
    from hwmodel.scenario import Scenario


class _Group(click.Group):
    """Commands in the order they were written; mistakes in commands and options get a hint."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from hwmodel.spec.errors import did_you_mean

            message = error.message.rstrip(".") + did_you_mean(args[0], self.commands)
            raise click.UsageError(message, ctx) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="hwmodel")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Performance of LLM inference on hardware, existing or not yet built.

    Chips, models and questions are YAML files. A NAME is looked up in chips/, graphs/ and scenarios/ of this folder, then
    among those shipped; anything with a slash or a suffix is a path.
    """
    ctx.obj = {"debug": debug}


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit status; no traceback reaches a user unless --debug asks for it."""
    given = list(sys.argv[1:] if args is None else args)
    debug = "--debug" in given
    atexit.register(gc.freeze)  # else the interpreter looks through all of numba once more: a fifth of a short answer
    for stream in (sys.stdout, sys.stderr):  # what a terminal cannot show is written as an escape
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(args=given, prog_name="hwmodel", standalone_mode=False)
    except click.ClickException as error:
        if debug:
            raise
        error.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        say("stopped")
        sys.exit(130)
    except BrokenPipeError:
        # the reader closed early (| head); keep the interpreter from complaining about it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if debug:
            raise
        sys.exit(_explain(error))
    sys.exit(status if isinstance(status, int) else 0)


def _explain(error: Exception) -> int:
    """Say what went wrong in the user's words; exit status."""
    from hwmodel.spec.errors import InputError

    if isinstance(error, InputError):
        say("\n".join(f"error: {problem}" for problem in error.problems))
        return BAD_INPUT
    if isinstance(error, OSError):
        say(f"error: {error.filename or ''}: {error.strerror or error}")
        return BAD_INPUT
    say(f"internal error ({type(error).__name__}: {error}); this is a bug of hwmodel, --debug shows where")
    return 70


@cli.command("run")
@question_options
@click.option("--ideal", is_flag=True, help="The physical floor: peaks and bandwidths, nothing else.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="The ops as CSV.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder for tables, plots and the trace file.")
def run_command(
    scenario: str | None,
    settings: tuple[str, ...],
    ideal: bool,
    as_json: bool,
    as_csv: bool,
    out: Path | None,
    **options: Any,
) -> int:
    """Price and schedule one step of SCENARIO, or of --model on --chip."""
    from hwmodel.run import run

    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms of the same answer; choose one")
    result = run(asked(scenario, settings, options), ideal=ideal)
    if out is not None:  # a folder that cannot be made is said before anything is printed
        out.mkdir(parents=True, exist_ok=True)
    for warning in result.warnings:
        say(f"warning: {warning}")
    if as_json:
        json_out(result.to_dict())
    elif as_csv:
        _csv(result)
    else:
        from hwmodel.report.tables import answer

        show(answer(result))
    if out is not None:
        _write(result, out)
    return 0 if result.feasible else INFEASIBLE


def _csv(result: Result) -> None:
    from hwmodel.report.files import csv_text

    text_out(csv_text(result.to_dict()["ops"]))


def _write(result: Result, out: Path) -> None:
    from hwmodel.report.files import write_all

    for path in write_all(result, out):
        say(f"wrote {path}")


@cli.command("fit")
@question_options
@click.option("--tiers", "by_tier", is_flag=True, help="Which tensors, experts and KV go to which memory tier of the chip.")
@click.option("--experts", is_flag=True, help="Hit rates of a cache of experts; bring them over a link, or compute there.")
@json_option
def fit_command(
    scenario: str | None, settings: tuple[str, ...], by_tier: bool, experts: bool, as_json: bool, **options: Any
) -> int:  # fmt: skip
    """Say the largest batch and the longest context that fit, and what fills the memory."""
    question = asked(scenario, settings, options)
    if by_tier and experts:
        raise click.UsageError("--tiers and --experts are two questions")
    if by_tier:
        return _tiers(question, as_json)
    if experts:
        return _outside(question, as_json)
    from hwmodel.fit import fit

    found = fit(question)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.tables import fit_answer

        show(fit_answer(found, question.name))
    return 0 if found.max_batch and found.max_context else INFEASIBLE


def _tiers(question: Scenario, as_json: bool) -> int:
    from hwmodel.optimize.tiers import tiers

    found = tiers(question)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.tiers import tiers_answer

        show(tiers_answer(found, question.name))
    return 0 if found.result else INFEASIBLE


def _outside(question: Scenario, as_json: bool) -> int:
    from hwmodel.optimize.outside import outside

    found = outside(question)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.outside import outside_answer

        show(outside_answer(found, question.name))
    return 0


@cli.command("model")
@click.argument("model")
@click.option("--weights", metavar="DTYPE", help="Format of all matrices, instead of the checkpoint's own.")
@click.option("--kv", metavar="DTYPE", help="Format of the KV cache.")
@click.option("--context", type=click.IntRange(1, 10**9), help="Tokens per sequence.")
@click.option("--batch", type=click.IntRange(1, 10**9), default=1, help="Sequences.")
@json_option
def model_command(model: str, weights: str | None, kv: str | None, context: int | None, batch: int, as_json: bool) -> None:
    """Count MODEL: parameters, active parameters, weight bytes, KV cache as a law of context."""
    from hwmodel.model.counts import describe
    from hwmodel.model.dtypes import fmt
    from hwmodel.model.load import load_model

    listen()
    found = describe(load_model(model), fmt(weights) if weights else None, fmt(kv) if kv else None, context, batch)
    for warning in found["warnings"]:
        say(f"warning: {warning}")
    if as_json:
        json_out(found)
    else:
        from hwmodel.report.tables import model_answer

        show(model_answer(found))


@cli.command("models")
@json_option
def models_command(as_json: bool) -> None:
    """List the models that are known by name."""
    from hwmodel.model.counts import describe
    from hwmodel.model.load import load_model
    from hwmodel.spec import catalog

    listen()
    rows = []
    for name in catalog.names("graphs"):
        found = describe(load_model(name))
        parts = {
            part: ", ".join(dict.fromkeys(run[part].split()[0] for run in found["layers"] if run[part]))
            for part in ("attention", "ffn")
        }
        rows.append({"name": name, "params_total": found["params_total"], **parts})
    if as_json:
        json_out(rows)
    else:
        from hwmodel.report.tables import table

        cells = [(row["name"], f"{row['params_total'] / 1e9:,.2f} B", row["attention"], row["ffn"]) for row in rows]
        show(table("", ("model", "parameters", "attention", "FFN"), cells, 4))


@cli.command("chips")
@click.argument("chip", required=False)
@json_option
def chips_command(chip: str | None, as_json: bool) -> None:
    """List the chips that are known by name, or every number of CHIP with its source."""
    from hwmodel.hardware import load_chip
    from hwmodel.spec import catalog

    listen()
    chips = [load_chip(chip)] if chip else [load_chip(name) for name in catalog.names("chips")]
    if as_json:
        from hwmodel.report.files import chip_dict

        json_out([chip_dict(item) for item in chips])
    else:
        from hwmodel.report.tables import chip_answer, chips_answer

        show(chip_answer(chips[0]) if chip else chips_answer(chips))


@cli.command("scenarios")
@json_option
def scenarios_command(as_json: bool) -> None:
    """List the questions that are known by name."""
    from hwmodel.spec import catalog, yamlfile

    listen()
    rows = []
    for name in catalog.names("scenarios"):
        value = yamlfile.load(catalog.find("scenarios", name)).value
        said = value if isinstance(value, dict) else {}  # `run` says what is wrong with such a file; a list shows its name
        rows.append({"name": name, **{key: str(said.get(key, "")) for key in ("title", "question")}})
    if as_json:
        json_out(rows)
    else:
        from hwmodel.report.tables import table

        show(table("", ("scenario", "title"), [(row["name"], row["title"]) for row in rows], 2))


@cli.command("op")
@click.argument("kind")
@click.argument("shape", nargs=-1, metavar="KEY=VALUE...")
@click.option("--chip", required=True, help="Chip name or path.")
@click.option("--stack", default="", help="Software stack (calibration).")
@click.option("--dtype", required=True, help="Format of the operands.")
@click.option("--ideal", is_flag=True, help="The physical floor.")
@click.option("--cold", is_flag=True, help="Operands come from memory even when they fit the on-chip cache.")
@json_option
def op_command(
    kind: str, shape: tuple[str, ...], chip: str, stack: str, dtype: str, ideal: bool, cold: bool, as_json: bool
) -> None:
    """Price one operation of KIND on one chip, with its formula and its terms."""
    from hwmodel.calibration import doubt_of, unknown_stack
    from hwmodel.hardware import load_chip
    from hwmodel.likeness import calibration_for
    from hwmodel.operation import operation

    listen()
    pairs = [_pair(text) for text in shape]
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for index, key in enumerate(keys) if key in keys[:index])
        raise click.UsageError(f"{twice}= is given twice")
    if wrong := unknown_stack(stack):
        raise click.UsageError(f"--stack: {wrong}")
    found_chip = load_chip(chip)
    calibration = calibration_for(found_chip, stack)
    if doubt := doubt_of(found_chip.name, stack, calibration):
        say(f"warning: {doubt}")
    found = operation(kind, found_chip, dtype, dict(pairs), calibration=calibration, warm=not cold, ideal=ideal)
    for text in found.notes:
        say(f"note: {text}")
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.tables import op_answer

        show(op_answer(found))


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"expected KEY=VALUE, such as m=128; got '{text}'")
    return key, value


@cli.command("schema")
@click.argument("kind", type=click.Choice(["chip", "model", "scenario", "sweep", "calibration", "stack", "notes"]))
def schema_command(kind: str) -> None:
    """Print the JSON Schema of a kind of file, for editors."""
    from hwmodel.schemas import schema

    json_out(schema(kind))


@cli.command("plot")
@question_options
@click.option(
    "--kind",
    required=True,
    help="layers, roofline, memory, timeline, batch (tokens per expert) or tornado; of a sweep's "
    "FILE.csv or .parquet pareto, heatmap, xy or layers; of a simulation over_time, percentiles or xy.",
)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Picture to write (.png, .svg, .pdf).")
@click.option("--ideal", is_flag=True, help="Of the physical floor.")
@click.option(
    "--beside",
    metavar="CHIP|FILE",
    multiple=True,
    help="Also the experts on this chip (--kind batch), or the points of this file.",
)
@click.option("--over", metavar="PATH=LOW..HIGH", help="Layers along a number of the scenario (--kind layers).")
@click.option("--where", metavar="COMPARISON", multiple=True, help="Of a sweep: only points such as workload.context==1024.")
@click.option("--x", default="", metavar="COL", help="Of a sweep or simulation: the column across.")
@click.option("--y", default="", metavar="COL", help="Of a sweep or simulation: the column up.")
@click.option("--by", default="", metavar="COL", help="Of a sweep: the column of words that colours.")
def plot_command(
    scenario: str | None, settings: tuple[str, ...], kind: str, out: Path, ideal: bool, beside: tuple[str, ...],
    over: str | None, where: tuple[str, ...], x: str, y: str, by: str, **options: Any,
) -> int:  # fmt: skip
    """Draw a picture of a run, of a sweep's FILE.csv or FILE.parquet, or of what `simulate --out` left: DIR/simulate.json."""
    if scenario is not None and scenario.endswith((".csv", ".parquet")):
        from hwmodel.cli_sweep import plot_points

        return plot_points((scenario, *beside), kind, out, (x, y, by), where)
    if scenario is not None and scenario.endswith(".json"):
        from hwmodel.cli_simulate import plot_simulation
        from hwmodel.report.serving_page import is_simulation

        if is_simulation(scenario):
            return plot_simulation(Path(scenario), kind, out, x, y)
    if over:
        from hwmodel.cli_sweep import plot_over

        return plot_over(scenario, settings, over, kind, out)
    from hwmodel import plot_optimize
    from hwmodel.plot import KINDS
    from hwmodel.run import run
    from hwmodel.spec.errors import did_you_mean

    kinds = KINDS | plot_optimize.KINDS
    if kind not in kinds:
        raise click.UsageError(f"unknown kind of plot '{kind}'{did_you_mean(kind, kinds)}")
    if ideal and kind in plot_optimize.KINDS:
        raise click.UsageError(f"--ideal: a {kind} is drawn of the step as it is priced")
    if beside and kind != "batch":
        raise click.UsageError("--beside goes with --kind batch")
    result = run(asked(scenario, settings, options), ideal=ideal)
    if kind == "batch":
        plot_optimize.batch(result, out, beside)
    else:
        kinds[kind](result, out)
    say(f"wrote {out}")
    return 0 if result.feasible else INFEASIBLE


@cli.command("claims")
@json_option
def claims_command(as_json: bool) -> None:
    """Compute the known claims of the field from the shipped chips and models."""
    from hwmodel.claims import claims, to_dict

    found = claims()
    if as_json:
        json_out([to_dict(claim) for claim in found])
    else:
        from hwmodel.report.accuracy import claimed

        show(claimed(found))


for command in (
    explain_command, report_command, compare_command, cost_command, optimize_command, whatif_command, racks_command,
    sweep_command, simulate_command, trace_command, calibrate_command, validate_command,
):  # fmt: skip
    cli.add_command(command)

if __name__ == "__main__":
    main()
