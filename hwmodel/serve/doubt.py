"""How doubt about steps becomes doubt about a service: the same requests with every step as quick and as slow as it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hwmodel.run import run as run_step
from hwmodel.serve.metrics import within
from hwmodel.serve.requests import Requests
from hwmodel.serve.simulate import Answer, Kind, answer


def factors(kind: Kind) -> tuple[float, float]:
    """Ends of the 80 % interval of a step over the step: the one that the scenario states; a prompt, where it prefills."""
    work = kind.scenario.workload
    prompt = {"phase": "prefill", "batch": 1, "new_tokens": max(1, work.new_tokens or work.context), "cached": 0}
    asked = replace(kind.scenario, workload=work.model_copy(update=prompt)) if kind.role == "prefill" else kind.scenario
    step = run_step(asked).step
    return step.time_low_s / step.time_s, step.time_high_s / step.time_s


def doubtful(found: Answer, works: Sequence[Requests], scale: float = 1.0) -> dict[str, Any]:
    """The share of good requests when all steps of all instances are at the low and at the high end of their intervals.

    Returns
    -------
    step_low, step_high : factors on the step, of each pool
    share_low, share_high : good requests when steps are slow, and quick
    """
    ends = [factors(kind) for kind in found.kinds]
    shares = []
    for end in (1, 0):
        kinds = tuple(
            replace(kind, steps=kind.steps.times_factor(pair[end])) for kind, pair in zip(found.kinds, ends, strict=True)
        )
        runs = [answer(found.service, work.scaled(scale), found.slo, kinds).run for work in works]
        shares.append(float(np.mean([within(run, found.slo).mean() for run in runs])))
    pools = [
        {"pool": kind.name, "step_low": low, "step_high": high} for kind, (low, high) in zip(found.kinds, ends, strict=True)
    ]
    return {"share_low": shares[0], "share_high": shares[1], "steps": pools}
