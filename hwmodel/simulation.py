"""``hw.simulate``: a scenario's service from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hwmodel.answered import Answered
from hwmodel.serve.classes import classed
from hwmodel.serve.metrics import finite, quantiles
from hwmodel.serve.readers import recorded
from hwmodel.serve.requests import Requests
from hwmodel.serve.result import rows, to_dict
from hwmodel.serve.search import GOOD, find
from hwmodel.serve.simulate import Answer, answer, load_service, ready, requests_of


@dataclass(frozen=True, repr=False)
class Simulation(Answered):
    """What a service gave."""

    answer: Answer
    """The run itself, with every request."""

    def __repr__(self) -> str:
        """Scenario, requests, and the medians of TTFT and TPOT."""
        run, medians = self.answer.run, []
        for name in ("ttft", "tpot"):
            found = quantiles(finite(run, f"{name}_s"))
            medians += [f"{name}_p50_s={found.p50:.3g}"] if found else []
        said = ", ".join((f"requests={len(run.requests)}", f"finished={int(run.finished.sum())}", *medians))
        return f"Simulation({self.answer.service.scenario.name!r}, {said})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel simulate --json`` prints it; s, bytes, tokens."""
        return to_dict(self.answer)

    def requests(self) -> list[dict[str, Any]]:
        """A row per request, as ``hwmodel simulate --out`` writes them."""
        return list(rows(self.answer))


def simulate(
    scenario: str, settings: Sequence[str] = (), *, trace: str | Path | Requests | None = None,
    slo: Mapping[str, float] | None = None, rate: float = 1.0, find_what: Literal["", "chips", "rate", "ratio"] = "",
    good: float = GOOD,
) -> Simulation:  # fmt: skip
    """Serve requests with a scenario, or search the service that keeps its targets.

    Parameters
    ----------
    scenario, settings
        Name or path, and ``key.path=value`` over it.
    trace
        A file of requests, or requests; those that the scenario makes when None.
    slo
        Targets in s: ttft, tpot, e2e; the scenario's own when None.
    rate
        Factor on the arrival rate.
    find_what
        chips: fewest instances; rate: highest factor; ratio: cheapest mix of prefill and decode instances.
    good
        Share of the requests that must meet every target, of a search.

    Raises
    ------
    InputError
        Every problem of the file and of the trace.
    """
    service = load_service(scenario, settings)
    work = (
        requests_of(service)
        if trace is None
        else classed(trace, service.serving.classes)
        if isinstance(trace, Requests)
        else ready(service, recorded(Path(trace)))
    )
    work = work.scaled(rate) if rate != 1 else work
    targets = None if slo is None else dict(slo)
    return Simulation(find(service, work, find_what, targets, good) if find_what else answer(service, work, targets))
