"""Classes of requests: by a column of the trace or by the length of the prompt, each with targets of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hwmodel.serve.requests import TARGETS, Array, Requests
from hwmodel.serve.scratch import filled, parts
from hwmodel.serve.spec import ClassSpec
from hwmodel.spec.errors import InputError, did_you_mean, shortened


def classed(requests: Requests, classes: Mapping[str, ClassSpec]) -> Requests:
    """The requests in the classes of a scenario, with the targets of each.

    Where the classes state a longest prompt they are bands, and stand in place of those of the trace; the one that states none
    takes the longer prompts. Else they are some of the trace's own.

    Raises
    ------
    InputError
        For a class that the trace does not have, and for a prompt that no band takes.
    """
    if not classes:
        return requests
    if any(one.prompt for one in classes.values()):
        requests = banded(requests, {name: one.prompt for name, one in classes.items()})
    unknown = [name for name in classes if name not in requests.tiers]
    if unknown:
        known = ", ".join(shortened(name, 40) for name in requests.tiers[:20])
        hint = did_you_mean(unknown[0], requests.tiers) or f"; the trace has {known}"
        raise InputError(f"no requests of class '{shortened(unknown[0], 40)}'{hint}")
    if not any(one.slo.limits() for one in classes.values()):
        return requests
    limits: Array = np.full((len(requests.tiers), len(TARGETS)), np.nan)
    for name, one in classes.items():
        for target, limit in one.slo.limits().items():
            limits[requests.tiers.index(name), TARGETS.index(target)] = limit
    return replace(requests, limits=limits)


def banded(requests: Requests, bands: Mapping[str, int | None]) -> Requests:
    """The requests in bands of prompt length: name and most tokens, ascending, None for the rest.

    Raises
    ------
    InputError
        For a prompt that is longer than all bands.
    """
    names, ends = tuple(bands), [float("inf") if most is None else most for most in bands.values()]
    prompt = requests.prompt
    longest = max(int(prompt[part].max()) for part in parts(len(requests), prompt)) if len(requests) else 0
    if longest > ends[-1]:
        raise InputError(
            f"a prompt of {longest:,} tokens is in no class; leave the prompt of the last one, '{names[-1]}', open"
        )
    number = filled(len(requests), lambda part: np.searchsorted(ends, prompt[part], "left"), prompt, dtype=np.int64)
    return replace(requests, tier=number, tiers=names)
