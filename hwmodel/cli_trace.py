"""The command ``trace``: what a trace of requests is like, before anything serves it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hwmodel.cli_question import json_option, start
from hwmodel.terminal import json_out, say, show

if TYPE_CHECKING:
    from hwmodel.serve.trace import Trace


@click.command("trace")
@click.argument("source", metavar="FILE|SCENARIO")
@click.option("--format", "format_", default="", help="Format of the file; found from its columns when absent.")
@click.option(
    "--columns", default="", metavar="A,B,C", help="Columns of a CSV: arrival (s), prompt, output[, session[, class]]."
)
@click.option("--on", "scenario", metavar="SCENARIO", help="Instance that prices KV; a SCENARIO's own, else two Rubin.")
@click.option("--start-rate", type=click.FloatRange(1e-6, 1e6), help="Begin the sessions at random, so many a second.")
@json_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the answer and the pictures.")
def trace_command(
    source: str, format_: str, columns: str, scenario: str | None, start_rate: float | None, as_json: bool, out: Path | None
) -> int:
    """Describe a trace: lengths, sessions, hit rates of caches by size and timeout, what foreseeing returns is worth."""
    start()
    from hwmodel.serve.overview import overview
    from hwmodel.serve.simulate import load_service
    from hwmodel.serve.synthetic import started

    of_file = Path(source).is_file() and Path(source).suffix not in (".yaml", ".yml")
    if not of_file and (format_ or columns):
        raise click.UsageError("--format and --columns go with a file of requests")
    trace = _recorded(source, format_, columns) if of_file else _made(source)
    if start_rate is not None:
        trace = started(trace, start_rate)
    service = load_service(scenario or ("rubin_dram_ssd_agents" if of_file else source))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    found = overview(trace, service)
    if as_json:
        json_out(found)
    else:
        from hwmodel.report.workload import overview_answer

        show(overview_answer(found))
    if out is not None:
        import json

        (out / "trace.json").write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        say(f"wrote {out / 'trace.json'}")
        for name in _draw(trace, out):
            say(f"wrote {out / name}")
    return 0


def _draw(trace: Trace, out: Path) -> list[str]:
    """Arrivals, lengths, and where the trace says which prompts are alike, reuse; the names of the files."""
    from hwmodel.plot_serving import draw_arrivals, draw_lengths, draw_reuse, draw_timeouts
    from hwmodel.serve.overview import over_size, over_timeout
    from hwmodel.serve.profile import arrivals_over_time, lengths, pauses_s

    source = trace.requests.source
    draw_arrivals(arrivals_over_time(trace.requests), out / "arrivals.png", source)
    draw_lengths(lengths(trace.requests), out / "lengths.png", source)
    times, sizes = over_timeout(trace), over_size(trace)
    if times is None or sizes is None:
        return ["arrivals.png", "lengths.png"]
    draw_reuse(sizes, pauses_s(trace), out / "reuse.png", source)
    draw_timeouts({source: times}, out / "timeouts.png")
    return ["arrivals.png", "lengths.png", "reuse.png", "timeouts.png"]


def _recorded(source: str, format_: str, columns: str) -> Trace:
    from hwmodel.serve.readers import recorded

    return recorded(source, format_, tuple(part.strip() for part in columns.split(",")) if columns else ())


def _made(source: str) -> Trace:
    from hwmodel.serve.simulate import load_service
    from hwmodel.serve.synthetic import generate
    from hwmodel.spec.errors import InputError

    spec = load_service(source).serving.trace
    if spec is None:
        raise InputError(f"scenario {source} makes no requests: name a trace file, or state serving.trace in it")
    return generate(spec)
