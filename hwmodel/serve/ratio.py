"""How many instances that prefill beside how many that decode: the mixes among which the cheapest is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from hwmodel.serve.simulate import Service

MOST = 256
"""Instances of one phase that are looked at."""


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


def mixes(good: Callable[[int, int], bool]) -> list[tuple[int, int]]:
    """Mixes that are good, and are not with one prefill instance fewer; fewest decoders first."""
    found: list[tuple[int, int]] = []
    decodes = _fewest(lambda n: good(MOST, n))
    prefills = MOST
    while decodes <= MOST:
        fewest = _fewest(partial(_swapped, good, decodes), prefills)
        if found and fewest >= found[-1][0]:
            break
        found.append((fewest, decodes))
        prefills, decodes = fewest, decodes + 1
        if fewest == 1:
            break
    return found


def _swapped(good: Callable[[int, int], bool], decodes: int, prefills: int) -> bool:
    return good(prefills, decodes)


def _fewest(holds: Callable[[int], bool], known: int = MOST) -> int:
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
