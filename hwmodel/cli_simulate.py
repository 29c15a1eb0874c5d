"""The command ``simulate``: requests through the serving engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

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
@click.option(
    "--columns", default="", metavar="A,B,C", help="Columns of a CSV: arrival (s), prompt, output[, session[, class]]."
)
@click.option("--requests", "count", type=click.IntRange(1), help="Only the first so many.")
@click.option("--rate", type=click.FloatRange(1e-6, 1e6), default=1.0, help="Scale the arrival rate.")
@click.option("--slo", "slos", multiple=True, metavar="[CLASS:]TTFT=1s,TPOT=20ms",
              help="Targets of a request: ttft, tpot, e2e; of a class, its own.")  # fmt: skip
@click.option("--bands", default="", metavar="SHORT=1000,LONG", help="Classes by most tokens of a prompt; the last one open.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the scenario's own requests.")
@click.option("--find", "what", type=click.Choice(["chips", "rate", "ratio"]),
              help="Fewest chips, highest rate, or cheapest mix of prefill and decode instances.")  # fmt: skip
@click.option("--good", default="90 %", show_default=True, help="Share of the requests that must meet every target, of --find.")
@click.option(
    "--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Of a search: seeds whose requests it serves."
)
@json_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder: answer, row per request, plots, trace, page.")
def simulate_command(
    scenario: str, settings: tuple[str, ...], trace: Path | None, format_: str, columns: str, count: int | None, rate: float,
    slos: tuple[str, ...], bands: str, seed: int | None, what: str | None, good: str, seeds: int, as_json: bool,
    out: Path | None,
) -> int:  # fmt: skip
    """Serve a trace of requests with SCENARIO: latencies, goodput, utilisation, cost."""
    for name in ("good", "seeds"):
        if what is None and click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} is of a search: say --find chips, rate or ratio too")
    start()
    from hwmodel.kernels.ahead import LOOPS, compile_ahead
    from hwmodel.serve.engine import shares
    from hwmodel.serve.simulate import answer, load_service

    service, limits = _asked(load_service(scenario, settings), slos, bands)
    works = _requests(service, trace, format_, columns, seed, seeds if what else 1)
    compile_ahead(LOOPS[shares(works[0], service.serving.prefix_cache)])
    from hwmodel.serve.result import to_dict
    from hwmodel.serve.search import find

    works = [work.first(count) for work in works] if count is not None else works
    works = [work.scaled(rate) for work in works] if rate != 1 else works
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


def _asked(service: Service, slos: tuple[str, ...], bands: str) -> tuple[Service, dict[str, float] | None]:
    """The service with the classes that the options make, and the targets of all requests; None for the scenario's."""
    from hwmodel.axis import targets
    from hwmodel.serve.spec import ClassSpec, Slo
    from hwmodel.spec.errors import did_you_mean

    classes, limits = dict(service.serving.classes), None
    if bands:
        classes = {}
        for part in bands.split(","):
            name, _, most = (piece.strip() for piece in part.partition("="))
            if not name or name in classes or (most and not most.isdecimal()):
                raise click.UsageError(f"--bands: expected NAME=TOKENS,...,NAME, such as short=1000,long; got '{bands}'")
            classes[name] = ClassSpec(prompt=int(most) if most else None)
    for text in slos:
        name, colon, own = text.rpartition(":")
        found = targets(own, "ttft", "tpot", "e2e")
        if colon:
            if bands and name.strip() not in classes:
                raise click.UsageError(f"--slo: no class '{name.strip()}' in --bands{did_you_mean(name.strip(), classes)}")
            known = classes.get(name.strip(), ClassSpec())
            new = Slo.model_validate({key: f"{limit!r} s" for key, limit in found.items()})
            slo = known.slo.model_copy(update={key: getattr(new, key) for key in new.model_fields_set})
            classes[name.strip()] = known.model_copy(update={"slo": slo})
        else:
            limits = found
    return service.classed(classes), limits


def _requests(service: Service, trace: Path | None, format_: str, columns: str, seed: int | None, seeds: int) -> list[Requests]:
    """Those of a trace, or the scenario's own under so many seeds."""
    from hwmodel.serve.readers import recorded
    from hwmodel.serve.simulate import ready, requests_of

    if trace is None:
        if format_ or columns:
            raise click.UsageError("--format and --columns go with --trace")
        own = service.serving.trace
        first = own.seed if seed is None and own is not None else seed or 0
        return [requests_of(service, first + i) for i in range(seeds)]
    if seed is not None:
        raise click.UsageError("--seed is of the scenario's own requests; a trace has none")
    names = tuple(part.strip() for part in columns.split(",")) if columns else ()
    return [ready(service, recorded(trace, format_, names))]


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

    from hwmodel.report.files import write_csv
    from hwmodel.serve.result import rows

    (out / "simulate.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    with (out / "requests.csv").open("w", encoding="utf-8") as file:
        write_csv(rows(found), file)
    names = ["simulate.json", "requests.csv"]
    if found.run.finished.any():
        names += _draw(found, told, out)
    from hwmodel.report.serving_page import write_simulation

    write_simulation(out / "simulate.json", out / "report.html")
    names.append("report.html")
    for name in names:
        say(f"wrote {out / name}")


LATENCIES = ("ttft_s", "tpot_s")
"""Columns of requests whose percentiles are drawn unless others are asked for."""


def _draw(found: Answer, told: dict[str, Any], out: Path) -> list[str]:
    """Time series, percentile curves, and a window as a Chrome trace; the names of the files."""
    import json

    import numpy as np

    from hwmodel.plot_serving import draw_over_time, draw_percentiles
    from hwmodel.report.files import csv_text
    from hwmodel.report.serving_files import slos_of
    from hwmodel.report.serving_trace import serving_trace, window
    from hwmodel.serve.metrics import curves, over_time

    name, source, series = found.service.scenario.name, found.run.requests.source, over_time(found.run)
    draw_over_time(series, out / "over_time.png", f"Load over time: {name}", source)
    columns = np.broadcast_arrays(*series.values())
    states = [dict(zip(series, row, strict=True)) for row in zip(*(column.tolist() for column in columns), strict=True)]
    (out / "over_time.csv").write_text(csv_text(states), encoding="utf-8")
    drawn = curves(found.run, LATENCIES)
    draw_percentiles(drawn, slos_of(told), out / "percentiles.png", f"Percentiles: {name}", source)
    traced = serving_trace(found.run, *window(found.run))
    (out / "trace.json").write_text(json.dumps(traced, separators=(",", ":")) + "\n", encoding="utf-8")
    return ["over_time.csv", "over_time.png", "percentiles.png", "trace.json"]


def plot_simulation(answer: Path, kind: str, out: Path, x: str, y: str) -> int:
    """Draw a saved simulation: load over time, percentiles of columns of its requests, or one column over another."""
    from hwmodel.plot_serving import curves_of, draw_over_time, draw_percentiles, draw_scatter
    from hwmodel.report.serving_files import saved_columns, saved_slos
    from hwmodel.spec.errors import did_you_mean

    kinds = ("over_time", "percentiles", "xy")
    if kind not in kinds:
        raise click.UsageError(f"unknown kind of plot '{kind}' of a simulation{did_you_mean(kind, kinds)}; {', '.join(kinds)}")
    if kind == "over_time":
        draw_over_time(saved_columns(answer.with_name("over_time.csv")), out, "Load over time", answer.name)
        say(f"wrote {out}")
        return 0
    columns = saved_columns(answer.with_name("requests.csv"))
    numbers = [name for name, values in columns.items() if values.dtype.kind == "f"]
    names = [name for name in (x, y) if name] or ([*LATENCIES] if kind == "percentiles" else [])
    wrong = next((name for name in names if name not in numbers or (kind == "percentiles" and not name.endswith("_s"))), None)
    if wrong or (kind == "xy" and len(names) < 2):
        known = ", ".join(name for name in numbers if kind == "xy" or name.endswith("_s"))
        said = f"'{wrong}' is none" if wrong else "two are needed"
        raise click.UsageError(f"--x and --y name columns of requests.csv, {said}: {known}")
    if kind == "xy":
        draw_scatter(columns, names[0], names[1], out, answer.name)
    else:
        draw_percentiles(curves_of(columns, names), saved_slos(answer), out, "Percentiles", answer.name)
    say(f"wrote {out}")
    return 0
