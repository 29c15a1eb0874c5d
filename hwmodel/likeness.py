"""Which measurements speak for a chip: its own, those of a chip that is much like it, or what its kind has in common."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwmodel.calibration import ROOM, UNCALIBRATED, Calibration, Fit, calibration_of, load_calibration
from hwmodel.hardware import Chip, load_chip
from hwmodel.spec import catalog

ALIKE = 0.35
"""Natural logarithm of the ratio of peak, bandwidth or cores at which a chip is no longer alike."""
ENOUGH = 0.5
"""Likeness from which one chip's measurements stand in for another's."""
KINSHIP = 1.0
"""As ALIKE, of the weights with which a prior is drawn from the chips that were measured. With each chip left out in turn the
median error of MLA decode is 16 % with these weights and 33 % without; of the other operations it hardly moves."""
WIDER = 1.15
"""How much wider, in logarithms, the band of a fit is on a chip that is much like the measured one. As they are, bands of H100
hold 73 to 80 % of the rows of H200 (and the other way round), those of B200 of the rows of GB200."""


def alike(one: Chip, other: Chip) -> float:
    """How much measurements of another chip say of this one: 1 for equal peak, bandwidth and cores, fading with ratios."""
    numbers = [
        np.log([chip.peaks.by_dtype().get("bf16", 1.0), chip.main.bandwidth_bytes_per_s, float(chip.execution.cores)])
        for chip in (one, other)
    ]
    distance = ((numbers[0] - numbers[1]) ** 2 * np.array([1.0, 0.5, 1.0])).sum()
    return float(np.exp(-distance / (2 * ALIKE**2)))


def kinship(one: Chip, other: Chip) -> float:
    """The weight of one chip's parameters in what is expected of another: 1 for equal numbers, fading with their ratios."""
    return float(alike(one, other) ** (ALIKE / KINSHIP) ** 2)


def calibration_for(chip: Chip, stack: str) -> Calibration | None:
    """The chip's own calibration under a stack, else that of the chip most like it, else the prior of its kind, else None."""
    if not stack or stack == UNCALIBRATED:
        return None
    if f"{chip.name}.{stack}" in catalog.names(ROOM):
        return load_calibration(f"{chip.name}.{stack}")
    names = [name.rpartition(f".{stack}")[0] for name in catalog.names(ROOM) if name.endswith(f".{stack}")]
    known = {name: load_chip(name) for name in names if name in catalog.names("chips")}
    likest = max(known, key=lambda name: alike(chip, known[name]), default="")
    if likest and known[likest].kind == chip.kind and alike(chip, known[likest]) >= ENOUGH:
        found = load_calibration(f"{likest}.{stack}")
        return found.model_copy(update={"prior": True, "fits": tuple(_lent(fit, likest) for fit in found.fits)})
    prior = calibration_of(chip.name, chip.kind, stack)
    if prior is None:
        return None
    measured = {name for fit in prior.fits for name in fit.members}
    weights = {name: kinship(chip, load_chip(name)) for name in measured}
    return prior.model_copy(update={"fits": tuple(drawn_from(fit, weights) for fit in prior.fits)})


def drawn_from(fit: Fit, weights: Mapping[str, float]) -> Fit:
    """A fit of a prior with the geometric means of its members' parameters under these weights."""
    if not fit.members:
        return fit
    logs = [np.log([item.launch_s, item.compute, item.memory, item.sharpness - 1]) for item in fit.members.values()]
    launch, compute, memory, sharp = np.exp(np.average(logs, axis=0, weights=[weights[name] for name in fit.members]))
    return fit.model_copy(
        update={"launch_s": float(launch), "compute": float(compute), "memory": float(memory), "sharpness": 1 + float(sharp)}
    )


def _lent(fit: Fit, chip: str) -> Fit:
    """A fit of another chip: its band a little wider, its launch cost no less than this chip states."""
    said = f"measured on {chip}, which is much like this chip" + (f"; {fit.doubt}" if fit.doubt else "")
    spread = dict.fromkeys(("launch", "compute", "memory", "sharpness"), 0.1)
    return fit.model_copy(
        update={"low": fit.low**WIDER, "high": fit.high**WIDER, "spread": spread, "doubt": said, "held_out": None}
    )
