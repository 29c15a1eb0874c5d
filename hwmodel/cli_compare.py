"""The command that puts answers side by side: `hwmodel compare`."""

from __future__ import annotations

import click

from hwmodel.cli_question import json_option
from hwmodel.terminal import compiling, json_out, listen, say, show


@click.command("compare")
@click.argument("names", nargs=-1, metavar="SCENARIO_OR_FILE.csv...")
@json_option
def compare_command(names: tuple[str, ...], as_json: bool) -> None:
    """Say who wins where: scenarios, and files of points of `hwmodel sweep --out`, side by side, with crossover points."""
    from hwmodel.kernels import announce_compiling, start_without_blas

    start_without_blas()
    announce_compiling(compiling)
    from hwmodel.compare import compare

    listen()
    found = compare(names)
    if as_json:
        json_out(found)
        return
    from hwmodel.report.tables import table

    rows = [tuple(_cell(row[name]) for name in found["columns"]) for row in found["rows"]]
    show(table("", tuple(found["columns"]), rows, 3))
    for verdict in found["verdicts"]:
        beyond = "beyond their ranges" if verdict["beyond_ranges"] else "within their ranges"
        say(f"{verdict['quicker']} is {verdict['ratio']:.3g} times as quick as {verdict['slower']}, {beyond}")
    for crossing in found["crossovers"]:
        before, behind = crossing["between"]
        ends = f"({crossing['low']:.4g} to {crossing['high']:.4g})"
        say(f"{crossing['y']} over {crossing['x']}: {behind} overtakes {before} at {crossing['at']:.4g} {ends}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
