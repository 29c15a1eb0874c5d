"""How many instances that prefill beside how many that decode: the cheapest mix that keeps the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hwmodel.economics import cost
from hwmodel.serve.requests import Requests
from hwmodel.serve.simulate import GOOD, Answer, Service, answer, kinds_of
from hwmodel.spec.errors import InputError

MOST = 256
"""Instances of one phase that are looked at."""


def find_ratio(service: Service, requests: Requests, slo: Mapping[str, float] | None = None, share: float = GOOD) -> Answer:
    """The mix of prefill and decode instances that costs least an hour with a `share` of the requests good.

    For every number of decode instances, from the fewest that any number of prefill instances can feed, the fewest prefill
    instances are found by bisection, until more decoders save none. Fewer chips count where a price is not known.

    Raises
    ------
    InputError
        When the scenario does not split the phases, or there are no targets.
    """
    s = service.serving
    if s.prefill is None or s.decode is None:
        raise InputError(
            "--find ratio needs prefill and decode apart: state serving.prefill, serving.decode and serving.transfer"
        )
    kinds = kinds_of(service, requests)
    targets = s.slo.limits() if slo is None else slo
    if not targets:
        raise InputError("a search needs targets: --slo ttft=1s,tpot=50ms, or serving.slo in the scenario")
    each = {name: _worth(service, side) for name, side in (("prefill", s.prefill), ("decode", s.decode))}
    tried: dict[tuple[int, int], Answer] = {}

    def good(prefills: int, decodes: int) -> bool:
        if (prefills, decodes) not in tried:
            tried[prefills, decodes] = answer(mix(service, prefills, decodes), requests, targets, kinds)
        return tried[prefills, decodes].good >= share

    found = _border(good)
    best = min(found, key=lambda pair: (pair[0] * each["prefill"] + pair[1] * each["decode"], sum(pair))) if found else None
    rows = [
        {"prefill": p, "decode": d, "goodput_share": tried[p, d].good, "per_hour": p * each["prefill"] + d * each["decode"]}
        for p, d in sorted(tried)
    ]
    told: dict[str, Any] = {"what": "ratio", "share": share, "met": best is not None, "tried": rows}
    chosen = best or max(tried, key=lambda pair: tried[pair].good)
    return replace(tried[chosen], found={**told, "prefill": chosen[0], "decode": chosen[1]})


def mix(service: Service, prefills: int, decodes: int) -> Service:
    """The service with so many instances of each phase."""
    s = service.serving
    assert s.prefill is not None
    assert s.decode is not None
    sides = {
        "prefill": s.prefill.model_copy(update={"instances": prefills}),
        "decode": s.decode.model_copy(update={"instances": decodes}),
    }
    return replace(service, serving=s.model_copy(update=sides))


def _border(good: Any) -> list[tuple[int, int]]:
    """Mixes that are good, and are not with one prefill instance fewer; fewest decoders first."""
    found: list[tuple[int, int]] = []
    decodes = _fewest(lambda n: good(MOST, n))
    prefills = MOST
    while decodes <= MOST:
        fewest = _fewest(lambda n, d=decodes: good(n, d), prefills)
        if found and fewest >= found[-1][0]:
            break
        found.append((fewest, decodes))
        prefills, decodes = fewest, decodes + 1
        if fewest == 1:
            break
    return found


def _fewest(holds: Any, known: int = MOST) -> int:
    """The least n for which a condition that can only become true holds; `known` + 1 when it does not at `known`."""
    high = 1
    while high < known and not holds(high):
        high = min(known, 2 * high)
    if not holds(high):
        return known + 1
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _worth(service: Service, side: Any) -> float:
    """USD an hour of one instance; its chips where a price is not known."""
    scenario = service.side(side)
    spent, _ = cost(scenario.cluster, 1.0, scenario.economics.model_copy(update={"electricity_usd_per_kwh": None}))
    return float(spent.usd_per_hour) if spent else float(scenario.cluster.chips)
