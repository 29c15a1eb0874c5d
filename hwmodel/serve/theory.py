"""What theory says of a run where it says anything, beside what the simulation found."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.serve import metrics
from hwmodel.serve.engine import Run
from hwmodel.serve.offline import unlimited_hit
from hwmodel.serve.requests import Array
from hwmodel.serve.simulate import Answer


def checks(answer: Answer, floor: dict[str, float]) -> list[dict[str, Any]]:
    """Name, simulated and theoretical value, and what holds between them: equal, at most, at least, or near.

    floor : the ideal step times of the same requests (s)
    """
    run, found = answer.run, []
    if not run.finished.any():
        return []
    inside, law = little(run)
    found.append(_row("requests inside on average (Little's law)", inside, law, "equal", "rate x mean time in the system"))
    if len(run.requests.blocks) and run.fleet.prefix_cache:
        bound = unlimited_hit(run.requests, run.finished)
        found.append(_row("prefix hits", metrics.hit_rate(run), bound, "at most", "one cache without limit for all requests"))
    first, each = metrics.ttft_s(run), metrics.tpot_s(run)
    note = "the mean prompt, and one sequence, at the chips' peaks"
    found.append(_row("TTFT (s), mean", float(np.nanmean(first)), floor["ttft_s"], "at least", note))
    if np.isfinite(each).any():
        found.append(_row("TPOT (s), mean", float(np.nanmean(each)), floor["tpot_s"], "at least", note))
    waits = prefill_wait(answer)
    if waits is not None:
        note = "one first come, first served queue an instance, arrivals at random, prompts alone (Pollaczek and Khinchine)"
        found.append(_row("wait for prefill (s), mean", *waits, "near", note))
    return found


def _row(name: str, simulated: float, theory: float, relation: str, note: str) -> dict[str, Any]:
    return {"name": name, "simulated": simulated, "theory": theory, "relation": relation, "note": note}


def little(run: Run) -> tuple[float, float]:
    """Requests inside over time from the series of states, and arrivals per second times the mean time inside."""
    time, inside = run.series[:, c.AT_S], run.series[:-1, c.INSIDE]
    span = float(time[-1] - time[0])
    if not span:
        return 0.0, 0.0
    return float((inside * np.diff(time)).sum()) / span, float(metrics.e2e_s(run)[run.finished].sum()) / span


def prefill_wait(answer: Answer) -> tuple[float, float] | None:
    """Mean wait (s) for a prefill instance, simulated and by M/G/1; None without such instances, or where they are overloaded.

    W = lambda E[S^2] / (2 (1 - lambda E[S])), S the time of each prompt by itself, lambda the arrivals of one instance.
    """
    run = answer.run
    pools = [(i, group) for i, group in enumerate(run.fleet.groups) if group.role == "prefill"]
    if len(pools) != 1:
        return None
    index, group = pools[0]
    service = prompts_s(answer, index)
    arrived = run.when[run.finished, c.ARRIVAL]
    span = float(arrived.max() - arrived.min())
    rate = len(arrived) / span / group.instances if span else 0.0
    load = rate * float(service.mean())
    if not 0 < load < 1:
        return None
    return float(np.nanmean(metrics.queue_s(run))), wait_s(rate, service)


def wait_s(rate: float, service: Array) -> float:
    """Mean wait (s) of M/G/1 at a rate (1/s) and service times (s)."""
    return rate * float((service**2).mean()) / (2 * (1 - rate * float(service.mean())))


def prompts_s(answer: Answer, index: int) -> Array:
    """(finished,) s that each prompt takes by itself, less what was cached of it."""
    run = answer.run
    done = run.finished
    cached = np.maximum(0, run.req[done, c.HIT])
    points = np.zeros((int(done.sum()), 5))
    points[:, 2], points[:, 3], points[:, 4] = 1, run.requests.prompt[done] - cached, cached
    return answer.kinds[index].steps.times(points)
