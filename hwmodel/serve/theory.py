"""What theory says of a run where it says anything, beside what the simulation found."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.kernels import serving_columns as c
from hwmodel.serve import metrics
from hwmodel.serve.engine import Run
from hwmodel.serve.offline import unlimited_hit
from hwmodel.serve.requests import Array
from hwmodel.serve.scratch import filled, parts
from hwmodel.serve.selection import kept, mean, real_sum
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
    note = "the mean prompt, and one sequence, at the chips' peaks"
    for name, target in (("TTFT", "ttft_s"), ("TPOT", "tpot_s")):
        known = known_mean(run, target)
        if known is not None:
            found.append(_row(f"{name} (s), mean", known, floor[target], "at least", note))
    waits = prefill_wait(answer)
    if waits is not None:
        note = "one first come, first served queue an instance, arrivals at random, prompts alone (Pollaczek and Khinchine)"
        found.append(_row("wait for prefill (s), mean", *waits, "near", note))
    return found


def known_mean(run: Run, name: str) -> float | None:
    """Mean (s) of a latency of `metrics.LATENCIES`, as ``np.nanmean`` adds it up; None of nothing."""
    values = metrics.LATENCIES[name]
    count = len(metrics.finite(run, name))
    total = filled(len(run), lambda part: np.nan_to_num(values(run, part)), run.when, run.req, run.requests.output)
    return real_sum(total) / count if count else None


def _row(name: str, simulated: float, theory: float, relation: str, note: str) -> dict[str, Any]:
    return {"name": name, "simulated": simulated, "theory": theory, "relation": relation, "note": note}


def little(run: Run) -> tuple[float, float]:
    """Requests inside over time from the series of states, and arrivals per second times the mean time inside."""
    time, inside = run.series[:, c.AT_S], run.series[:-1, c.INSIDE]
    span = float(time[-1] - time[0])
    if not span:
        return 0.0, 0.0
    return float((inside * np.diff(time)).sum()) / span, real_sum(metrics.finite(run, "e2e_s")) / span


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
    first, last = np.inf, -np.inf
    for part in parts(len(run), run.when, run.req):
        arrived = run.when[part, c.ARRIVAL][metrics.done_in(run, part)]
        first, last = min(first, arrived.min(initial=np.inf)), max(last, arrived.max(initial=-np.inf))
    span = float(last - first)
    rate = len(service) / span / group.instances if span else 0.0
    load = rate * mean(service)
    waited = known_mean(run, "queue_s")
    return (waited, wait_s(rate, service)) if 0 < load < 1 and waited is not None else None


def wait_s(rate: float, service: Array) -> float:
    """Mean wait (s) of M/G/1 at a rate (1/s) and service times (s)."""
    squares = filled(len(service), lambda part: service[part] ** 2, service)
    return rate * mean(squares) / (2 * (1 - rate * mean(service)))


def prompts_s(answer: Answer, index: int) -> Array:
    """(finished,) s that each prompt takes by itself, less what was cached of it."""
    run = answer.run

    def alone(part: slice) -> Array:
        done = metrics.done_in(run, part)
        cached = np.maximum(0, run.req[part, c.HIT][done])
        points = np.zeros((int(done.sum()), 5))
        points[:, 2], points[:, 3], points[:, 4] = 1, run.requests.prompt[part][done] - cached, cached
        return answer.kinds[index].steps.times(points)

    return kept(len(run), alone, run.req, run.requests.prompt)
