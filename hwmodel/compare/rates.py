"""Tokens per second and chip, over the batch and over the interactivity: of files of points, and of scenarios beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from hwmodel.compare.crossing import Band, crossings, overlap
from hwmodel.scenario import Scenario
from hwmodel.sweep.axes import Axis, SweepSpec
from hwmodel.sweep.chunks import pricer
from hwmodel.sweep.drive import whole
from hwmodel.sweep.names import BATCH, CHIP, HIGH, LOW, TIME, USER
from hwmodel.sweep.pareto import front
from hwmodel.sweep.read import Points
from hwmodel.sweep.space import Combination, Field, Space
from hwmodel.timing import Array

BATCHES = tuple(float(size) for size in np.unique(np.rint(np.geomspace(1, 16384, 96))))
ENDS = (HIGH, LOW)


def of_scenario(scenario: Scenario) -> dict[str, Band]:
    """Bands of a scenario, by axis: every batch that fits."""
    spec, axes, fields = SweepSpec(axes={BATCH: []}), {BATCH: Axis(BATCH, BATCHES)}, {BATCH: Field("workload", "batch")}
    made = (Combination(scenario, fields),)
    space = Space(scenario.name, spec, "", axes, ((BATCH,),), fields, made, (), len(BATCHES))
    table = whole(pricer(space))
    return _bands({name: values[table.feasible] for name, values in table.numbers.items()})


def of_points(points: Points) -> dict[str, Band]:
    """Bands of the points of a file, by axis; over the batch only where each stands once."""
    wanted = [name for name in (USER, CHIP, BATCH, TIME, *ENDS) if name in points.names]
    return _bands({name: points.number(name) for name in wanted})


def _bands(numbers: Mapping[str, Array]) -> dict[str, Band]:
    if not len(numbers[CHIP]):
        return {}
    rate, time = numbers[CHIP], numbers[TIME]
    low, high = (rate * time / numbers.get(end, time) for end in ENDS)
    best = front(np.array([numbers[USER], rate]).T)
    best = best[np.argsort(numbers[USER][best])]
    found = {USER: (numbers[USER][best], rate[best], low[best], high[best])}
    batch = numbers.get(BATCH)
    if batch is not None and len(np.unique(batch)) == len(batch):
        order = np.argsort(batch)
        found[BATCH] = batch[order], rate[order], low[order], high[order]
    return found


def crossed(bands: Mapping[str, Mapping[str, Band]]) -> list[dict[str, Any]]:
    """Where one has more tokens/s per chip than another from there on, along the batch and the interactivity.

    A crossover lies `at` where two lines meet, and anywhere from `low` to `high` where their ranges overlap around it.
    """
    found = []
    for x in (BATCH, USER):
        known = {name: own[x] for name, own in bands.items() if x in own}
        for crossing in crossings({name: (band[0], band[1]) for name, band in known.items()}):
            low, high = overlap(known[crossing.between[0]], known[crossing.between[1]], crossing.at)
            found.append({"x": x, "y": CHIP, **asdict(crossing), "between": list(crossing.between), "low": low, "high": high})
    return found
