"""The command ``simulate``: requests through the serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hwmodel.cli_question import INFEASIBLE, json_option, start
from hwmodel.terminal import json_out, say, show

if TYPE_CHECKING:
    from hwmodel.serve.requests import Requests
    from hwmodel.serve.simulate import Answer, Service


@click.command("simulate")
@click.argument("scenario")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY.PATH=VALUE", help="Replace a value, such as serving.instances=4."
)
@click.option("--trace", type=click.Path(path_type=Path), help="File of requests; those of the scenario when absent.")
@click.option("--format", "format_", default="", help="Format of the trace; found from its columns when absent.")
@click.option("--columns", default="", metavar="A,B,C", help="Columns of a CSV: arrival (s), prompt, output[, session].")
@click.option("--requests", "count", type=click.IntRange(1), help="Only the first so many.")
@click.option("--rate", type=click.FloatRange(1e-6, 1e6), default=1.0, help="Scale the arrival rate.")
@click.option("--slo", default="", metavar="TTFT=1s,TPOT=20ms", help="Targets of a request: ttft, tpot, e2e.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the scenario's own requests.")
@click.option("--find", "what", type=click.Choice(["chips", "rate", "ratio"]),
              help="Fewest chips, highest rate, or cheapest mix of prefill and decode instances.")  # fmt: skip
@click.option("--good", default="90 %", show_default=True, help="Share of the requests that must meet every target, of --find.")
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Of a search: seeds whose requests it serves."
)
@json_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder: answer, row per request, plots, trace.")
def simulate_command(
    scenario: str, settings: tuple[str, ...], trace: Path | None, format_: str, columns: str, count: int | None, rate: float,
    slo: str, seed: int | None, what: str | None, good: str, seeds: int, as_json: bool, out: Path | None,
) -> int:  # fmt: skip
    """Serve a trace of requests with SCENARIO: latencies, goodput, utilisation, cost."""
    start()
    from hwmodel.serve.result import to_dict
    from hwmodel.serve.search import find
    from hwmodel.serve.simulate import answer, load_service

    service = load_service(scenario, settings)
    works = _requests(service, trace, format_, columns, seed, seeds if what else 1)
    works = [work.first(count) for work in works] if count is not None else works
    works = [work.scaled(rate) for work in works] if rate != 1 else works
    from hwmodel.axis import targets

    limits = targets(slo, "ttft", "tpot", "e2e") if slo else None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    share = _share(good)
    found = find(service, works, what, limits, share) if what else answer(service, works[0], limits)
    told = to_dict(found)
    say(f"{len(works[0]):,} requests, {told['iterations']:,} iterations in {told['wall_s']:.3f} s")
    for warning in told["warnings"]:
        say(f"warning: {warning}")
    if as_json:
        json_out(told)
    else:
        from hwmodel.report.serving import served

        show(served(told))
    if out is not None:
        _write(found, told, out)
    short = told["requests"]["finished"] == 0 or (found.found is not None and not found.found["met"])
    return INFEASIBLE if short else 0


def _requests(service: Service, trace: Path | None, format_: str, columns: str, seed: int | None, seeds: int) -> list[Requests]:
    """Those of a trace, or the scenario's own under so many seeds."""
    from hwmodel.serve.readers import recorded
    from hwmodel.serve.simulate import foreseen, requests_of

    if trace is None:
        if format_ or columns:
            raise click.UsageError("--format and --columns go with --trace")
        own = service.serving.trace
        first = own.seed if seed is None and own is not None else seed or 0
        return [requests_of(service, first + i) for i in range(seeds)]
    if seed is not None:
        raise click.UsageError("--seed is of the scenario's own requests; a trace has none")
    names = tuple(part.strip() for part in columns.split(",")) if columns else ()
    return [foreseen(service, recorded(trace, format_, names))]


def _share(text: str) -> float:
    from hwmodel.spec import units

    try:
        found = float(units.parse(text, "number"))
    except ValueError as error:
        raise click.UsageError(f"--good: {error}") from None
    if not 0 < found <= 1:
        raise click.UsageError(f"--good: expected a share of the requests, such as '99 %'; got '{text}'")
    return found


def _write(found: Answer, told: dict[str, Any], out: Path) -> None:
    import json

    from hwmodel.report.files import csv_text
    from hwmodel.serve.result import rows

    (out / "simulate.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    (out / "requests.csv").write_text(csv_text(rows(found)), encoding="utf-8")
    names = ["simulate.json", "requests.csv"]
    if found.run.finished.any():
        names += _draw(found, out)
    for name in names:
        say(f"wrote {out / name}")


def _draw(found: Answer, out: Path) -> list[str]:
    """Time series, percentile curves, and a window as a Chrome trace; the names of the files."""
    import json

    from hwmodel.plot_serving import draw_over_time, draw_percentiles
    from hwmodel.report.serving_trace import serving_trace, window
    from hwmodel.serve.metrics import latencies, over_time

    name, source = found.service.scenario.name, found.run.requests.source
    draw_over_time(over_time(found.run), out / "over_time.png", f"Load over time: {name}", source)
    draw_percentiles(
        latencies(found.run, found.slo), out / "percentiles.png", f"Percentiles: {name}", found.run.requests.source
    )
    told = serving_trace(found.run, *window(found.run))
    (out / "trace.json").write_text(json.dumps(told, separators=(",", ":")) + "\n", encoding="utf-8")
    return ["over_time.png", "percentiles.png", "trace.json"]
