"""The command that prices a design space: `hwmodel sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hwmodel.cli_question import INFEASIBLE, json_option, start
from hwmodel.terminal import json_out, progress_bar, say, show

INTERRUPTED = 130


@click.command("sweep")
@click.argument("sweep")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Every point: FILE.csv or FILE.parquet.")
@click.option("--jobs", type=click.IntRange(1, 1024), help="Threads; as many as there are cores when not said.")
@click.option(
    "--dask", "address", metavar="ADDRESS|local", default="", help="Send the chunks to a Dask scheduler; local starts one."
)
@click.option("--resume", is_flag=True, help="Finish the file of an interrupted sweep.")
@json_option
def sweep_command(sweep: str, out: Path | None, jobs: int | None, address: str, resume: bool, as_json: bool) -> int:
    """Price every point of SWEEP: axes over a scenario, with the Pareto front of what can run.

    The same rows in the same order, bit for bit, whatever the number of workers.
    """
    start()
    from hwmodel.spec import catalog, yamlfile
    from hwmodel.sweep.drive import run_sweep
    from hwmodel.sweep.space import space_from

    path = catalog.find("sweeps", sweep)
    document = yamlfile.load(path)
    space = space_from(document, path.stem)
    with progress_bar() as told:
        found = run_sweep(space, document, out=out, jobs=jobs or 0, address=address, resume=resume, progress=told)
    if as_json:
        json_out(found.to_dict())
    else:
        from hwmodel.report.sweep import answer

        show(answer(found))
    if out is not None:
        say(f"wrote {out}" if not found.stopped else f"stopped; {out} holds what is done, --resume finishes it")
    if found.stopped:
        return INTERRUPTED
    return 0 if found.feasible else INFEASIBLE


def plot_points(names: Sequence[str], kind: str, out: Path, columns: tuple[str, str, str], where: Sequence[str]) -> int:
    """Draw the points of sweeps' files, x, y and by being `columns`; say where fronts cross."""
    from hwmodel.plot_sweep import KINDS
    from hwmodel.spec.errors import did_you_mean
    from hwmodel.sweep.read import Points

    if kind not in KINDS:
        raise click.UsageError(f"unknown kind of plot '{kind}' of a sweep{did_you_mean(kind, KINDS)}")
    files = [Points(Path(name)) for name in names]
    for points in files:
        points.only(where)
    for crossing in KINDS[kind](files, out, *columns):
        ends = f"({crossing.low:.4g} to {crossing.high:.4g})"
        say(f"{crossing.between[1]} overtakes {crossing.between[0]} at {crossing.at:.4g} {ends}")
    say(f"wrote {out}")
    return 0


def plot_over(scenario: str | None, settings: Sequence[str], over: str, kind: str, out: Path) -> int:
    """Draw the layers of a scenario along a number of it."""
    if scenario is None or kind != "layers":
        raise click.UsageError("--over goes with a scenario and --kind layers")
    start()
    from hwmodel.axis import axis, question, unknown_pool
    from hwmodel.plot_along import layers
    from hwmodel.run import run

    asked, along = question(scenario, settings), axis(over)
    unknown_pool([asked], along.path)
    results = [run(asked.scenario([f"{along.path}={text}"]), ranges=False) for text in along.values]
    layers(results, along, out)
    say(f"wrote {out}")
    fails = [(text, result.reasons) for text, result in zip(along.values, results, strict=True) if not result.feasible]
    for text, reasons in fails:
        say(f"{along.path}={text} does not run as planned: {'; '.join(reasons)}")
    return INFEASIBLE if fails else 0
