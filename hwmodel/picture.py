"""``hw.plot``: any picture of a run, of a sweep or of a simulation, by its kind."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hwmodel.plot import KINDS as OF_A_RUN
from hwmodel.plot_optimize import KINDS as OF_BATCHES
from hwmodel.plot_serving import draw_over_time, draw_percentiles
from hwmodel.plot_sweep import KINDS as OF_POINTS
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.serve.metrics import curves, over_time
from hwmodel.simulation import Simulation
from hwmodel.spec.errors import InputError, did_you_mean
from hwmodel.sweep.answer import Swept
from hwmodel.sweep.read import Points
from hwmodel.sweep.store import csv_bytes, header

OF_A_SERVICE = ("over_time", "percentiles")
LATENCIES = ("ttft_s", "tpot_s")


def plot(result: Result | Swept | Simulation | Scenario | str, kind: str, path: str | Path) -> Path:
    """Draw an answer into a file; its suffix says the format (.png, .svg, .pdf).

    Parameters
    ----------
    result
        Of `run`, `sweep` or `simulate`; a scenario, its name or path, is run.
    kind
        Of a run layers, roofline, memory, timeline, batch or tornado; of a sweep pareto, heatmap, xy or layers; of a
        simulation over_time or percentiles.

    Raises
    ------
    InputError
        For another kind, and for another suffix.
    """
    if isinstance(result, Swept):
        _known(kind, OF_POINTS)
        with tempfile.TemporaryDirectory() as folder:
            points = Path(folder) / "sweep.csv"
            points.write_bytes(header(result) + csv_bytes(result))
            OF_POINTS[kind]([Points(points)], path)
    elif isinstance(result, Simulation):
        _known(kind, dict.fromkeys(OF_A_SERVICE))
        _service(result, kind, path)
    else:
        kinds = OF_A_RUN | OF_BATCHES
        _known(kind, kinds)
        kinds[kind](result if isinstance(result, Result) else run(result), path)
    return Path(path)


def _known(kind: str, kinds: Mapping[str, object]) -> None:
    if kind not in kinds:
        raise InputError(f"unknown kind of plot '{kind}'{did_you_mean(kind, kinds)}")


def _service(found: Simulation, kind: str, path: str | Path) -> None:
    made = found.answer.run
    name, source = found.answer.service.scenario.name, made.requests.source
    if kind == "over_time":
        draw_over_time(over_time(made), path, f"Load over time: {name}", source)
        return
    slos = {str(each["class"]): dict(each["slo"]) for each in found.to_dict()["goodput"]["classes"]}
    draw_percentiles(curves(made, LATENCIES), slos, path, f"Percentiles: {name}", source)
