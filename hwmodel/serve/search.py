"""Searches over services: the fewest instances, the highest rate, the cheapest mix of prefill and decode instances.

Every size is tried with the same requests (common random numbers): those of several seeds, or one trace. Compared is the
mean share of good requests; its 95 % interval is Student's over the seeds, or over batches of consecutive requests of one trace
(batch means; Law, Simulation Modeling and Analysis, 5th ed., section 9.5.3).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from hwmodel.serve.doubt import doubtful
from hwmodel.serve.metrics import makespan_s, within
from hwmodel.serve.ratio import mix, mixes
from hwmodel.serve.requests import Requests
from hwmodel.serve.simulate import Answer, Kind, Service, answer, kinds_of
from hwmodel.serve.spending import Rates, rates, spent
from hwmodel.spec.errors import InputError

GOOD = 0.9
"""Share of requests that must be good, when none is stated."""
MOST = 1024
"""Instances a search goes up to."""
BATCHES = 20
"""Of one trace, to tell how sure its share of good requests is."""
SLOWEST, FASTEST = 2.0**-14, 2.0**14
"""Factors on the rate within which a search looks: requests that hardly ever meet, and all at once."""
FINE = 1.01
"""Factor between rates at which a search ends."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
           2.110, 2.101, 2.093)  # fmt: skip
"""Two-sided 95 % quantile of Student's t for 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Tried:
    """One fleet at one rate: the first answer, and the share of good requests over all seeds."""

    first: Answer
    scale: float
    good: float
    low: float
    high: float
    """Ends of its 95 % interval."""
    good_per_s: float
    """Good requests per second, mean."""
    usd_per_hour: float
    """Of the first run, as a plain simulation says; the fleet's chips where a price is not known."""

    def row(self) -> dict[str, Any]:
        """As a table shows it."""
        s = self.first.service.serving
        sides = {} if s.prefill is None or s.decode is None else {"prefill": s.prefill.instances, "decode": s.decode.instances}
        count = sum(g.instances for g in self.first.run.fleet.groups)
        return {"instances": count, **sides, "chips": self.first.service.chips, "rate_scale": self.scale,
                "goodput_share": self.good, "goodput_low": self.low, "goodput_high": self.high,
                "good_per_s": self.good_per_s, "usd_per_hour": self.usd_per_hour}  # fmt: skip


def interval(shares: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) of shares that are alike and independent: Student's 95 % interval, within 0 and 1."""
    mean = float(np.mean(shares))
    if len(shares) < 2:
        return mean, 0.0, 1.0
    half = STUDENT[min(len(shares) - 1, len(STUDENT)) - 1] * float(np.std(shares, ddof=1)) / len(shares) ** 0.5
    return mean, max(0.0, mean - half), min(1.0, mean + half)


@dataclass
class Bench:
    """What all sizes of one search share, and everything that was tried."""

    service: Service
    works: tuple[Requests, ...]
    slo: dict[str, float]
    kinds: tuple[Kind, ...]
    share: float = GOOD
    """Of the requests that must be good."""
    tried: list[Tried] = field(default_factory=list)

    @cached_property
    def rates(self) -> list[tuple[Rates | None, str]]:
        """What instances of each kind cost and draw."""
        return [rates(kind) for kind in self.kinds]

    def at(self, service: Service, scale: float) -> Tried:
        """Serve the requests of all seeds with a fleet, side by side."""
        with ThreadPoolExecutor(min(len(self.works), os.cpu_count() or 1)) as pool:
            found = list(pool.map(lambda work: answer(service, work.scaled(scale), self.slo, self.kinds), self.works))
        good = [within(one.run, self.slo) for one in found]
        parts = [float(each.mean()) for each in good]
        if len(good) == 1:
            parts = [float(batch.mean()) for batch in np.array_split(good[0], min(BATCHES, len(good[0])))]
        _, low, high = interval(parts)
        mean = float(np.mean([each.mean() for each in good]))
        rate = float(np.mean([each.sum() / (makespan_s(one.run) or 1.0) for each, one in zip(good, found, strict=True)]))
        bill, _ = spent(found[0], 0.0, self.rates)
        usd = bill["usd_per_hour"] if bill else float(service.chips)
        tried = Tried(found[0], scale, mean, min(low, mean), max(high, mean), rate, usd)
        self.tried.append(tried)
        return tried


def find(
    service: Service, works: Requests | Sequence[Requests], what: str, slo: dict[str, float] | None = None, share: float = GOOD
) -> Answer:
    """The fewest instances (``chips``), the highest rate (``rate``), or the cheapest mix (``ratio``) with a `share` good.

    Parameters
    ----------
    works
        The same service's requests under several seeds, or one trace. A rate is their own, scaled.

    Raises
    ------
    InputError
        Without targets: everything would be good. For ``ratio`` without prefill and decode instances.
    """
    targets = service.serving.slo.limits() if slo is None else slo
    if not targets:
        raise InputError("a search needs targets: --slo ttft=1s,tpot=50ms, or serving.slo in the scenario")
    if what == "ratio" and service.serving.prefill is None:
        raise InputError(
            "--find ratio needs prefill and decode apart: state serving.prefill, serving.decode and serving.transfer"
        )
    given = (works,) if isinstance(works, Requests) else tuple(works)
    bench = Bench(service, given, dict(targets), kinds_of(service, given[0]), share)
    best = {"chips": fewest, "rate": fastest, "ratio": cheapest}[what](bench)
    said = {"what": what, "share": share, "met": best.good >= share, "seeds": len(given), **best.row(),
            "doubt": doubtful(best.first, bench.works, best.scale), "tried": [one.row() for one in bench.tried]}  # fmt: skip
    return replace(best.first, found=said)


def fewest(bench: Bench) -> Tried:
    """Doubling, then bisection over the number of instances."""
    high, best = 1, bench.at(bench.service.sized(1), 1.0)
    while best.good < bench.share and high < MOST:
        high *= 2
        best = bench.at(bench.service.sized(high), 1.0)
    low = high // 2
    while best.good >= bench.share and high - low > 1:
        middle = (low + high) // 2
        tried = bench.at(bench.service.sized(middle), 1.0)
        low, high, best = (low, middle, tried) if tried.good >= bench.share else (middle, high, best)
    return best


def fastest(bench: Bench) -> Tried:
    """The highest rate that the stated fleet bears."""

    def at(scale: float) -> Tried:
        return bench.at(bench.service, scale)

    scale, best = 1.0, at(1.0)
    step = 2.0 if best.good >= bench.share else 0.5
    if step < 1:
        alone = at(SLOWEST)
        if alone.good < bench.share:
            return alone
    while SLOWEST < scale < FASTEST:
        scale *= step
        tried = at(scale)
        if (tried.good >= bench.share) != (step > 1):
            best = best if step > 1 else tried
            break
        best = tried
    low, high = (scale / 2, scale) if step > 1 else (scale, scale * 2)
    while best.good >= bench.share and high / low > FINE:
        middle = float(np.sqrt(low * high))
        tried = at(middle)
        low, high, best = (middle, high, tried) if tried.good >= bench.share else (low, middle, best)
    return best


def cheapest(bench: Bench) -> Tried:
    """The mix of prefill and decode instances that costs least an hour (in chips where a price is not known)."""
    known: dict[tuple[int, int], Tried] = {}

    def good(prefills: int, decodes: int) -> bool:
        if (prefills, decodes) not in known:
            known[prefills, decodes] = bench.at(mix(bench.service, prefills, decodes), 1.0)
        return known[prefills, decodes].good >= bench.share

    found = [known[pair] for pair in mixes(good)]
    if not found:
        return max(bench.tried, key=lambda tried: tried.good)
    return min(found, key=lambda tried: (tried.usd_per_hour, tried.first.service.chips))
