"""``hw.report``: an answer as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwmodel.report.html import write_html
from hwmodel.report.page import page_of
from hwmodel.report.serving_page import simulation_html
from hwmodel.result import Result
from hwmodel.run import run
from hwmodel.scenario import Scenario, loaded
from hwmodel.simulation import Simulation
from hwmodel.spec.errors import InputError


def report(
    answer: Result | Simulation | Scenario | str, path: str | Path, against: Sequence[Scenario | str] = ()
) -> Path:  # fmt: skip
    """Write one self-contained HTML page about an answer, as ``hwmodel report`` does; it fetches nothing.

    Parameters
    ----------
    answer
        Of `run` or `simulate`; a scenario, its name or path, is run.
    against
        Scenarios, names or paths, whose fronts are drawn beside that of a run.

    Raises
    ------
    InputError
        When a scenario it is set against is a step of another phase, or the answer is a simulation, a mixed step or a floor.
    """
    path = Path(path)
    if isinstance(answer, Simulation):
        if against:
            raise InputError("a simulation is set against nothing; give runs")
        path.write_text(simulation_html(answer.to_dict(), {}), encoding="utf-8")
        return path
    result = answer if isinstance(answer, Result) else run(answer)
    write_html(page_of(result, [loaded(other) for other in against]), path)
    return path
