"""The command that prices a design space: `hwmodel sweep`."""

from __future__ import annotations

from pathlib import Path

import click

from hwmodel.cli_question import INFEASIBLE, json_option
from hwmodel.terminal import compiling, json_out, listen, progress_bar, say, show

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
    from hwmodel.kernels import announce_compiling, start_without_blas

    start_without_blas()
    announce_compiling(compiling)
    from hwmodel.spec import catalog, yamlfile
    from hwmodel.sweep.drive import run_sweep
    from hwmodel.sweep.space import space_from

    listen()
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
