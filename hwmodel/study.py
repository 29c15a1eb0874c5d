"""The statistics of measured rows: physical parameters of an op, the smooth rest, and errors on shapes that were held out.

For one kind of op in one format on one chip under one stack: (1) launch, compute share, memory share and sharpness by robust
least squares on log error, drawn to what other chips showed; (2) the residual's smooth part on a grid, drawn to the grid of all
groups of that op together and helped by rows of alike chips under the same stack; (3) the same again without a fold of the
shapes, five times, for errors on rows that were not seen. Everything is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from hwmodel.bounded import Bound
from hwmodel.calibration import Fit
from hwmodel.features import GRIDS, Grid
from hwmodel.gridfit import Smoothness
from hwmodel.hardware import Chip
from hwmodel.likeness import alike
from hwmodel.measured import Rows, form_of
from hwmodel.monotone import Doublings
from hwmodel.sample import PARAMETERS, Sample, part_times, physics_of, sample_of, theta_of

Array = NDArray[np.float64]
SIBLING = 0.5
"""Weight of a row of a chip with the very same numbers."""
CLIP = 1.5
"""Largest correction, as a natural logarithm."""


@dataclass(frozen=True)
class Solved:
    """Physical parameters and grid of one group."""

    theta: Array
    grid: Array | None

    def predict(self, sample: Sample, how: Grid, chosen: NDArray[np.bool_]) -> Array:
        """Seconds of the chosen rows."""
        parts = part_times(self.theta, sample, chosen)
        if self.grid is not None:
            for index in range(parts.shape[1]):
                parts[:, index] *= np.exp(np.clip(how.lattice.weights(sample.features[chosen, index]) @ self.grid, -CLIP, CLIP))
        return np.asarray(parts.sum(axis=1) + sample.other[chosen])


def residuals(sample: Sample, theta: Array, how: Grid, chosen: NDArray[np.bool_]) -> tuple[object, Array]:
    """(sparse weights of the knots, log of measured over physical): shares of the ops in the time weigh their corners."""
    parts = part_times(theta, sample, chosen)
    whole = parts.sum(axis=1) + sample.other[chosen]
    design = sum(
        how.lattice.weights(sample.features[chosen, index]).multiply((parts[:, index] / whole)[:, None])
        for index in range(parts.shape[1])
    )
    return design.tocsr(), np.log(sample.measured[chosen] / whole)


FEW = 60
"""Rows of one group below which what is known of other chips weighs."""
MANY = 6
"""Groups of a study from which their common grid is a fair centre for each."""


def nothing(_: Sample) -> Fit | None:
    """No prior."""
    return None


@dataclass
class Study:
    """All groups of one kind of op; the chips and stacks help each other.

    prior : what is known of a group from other chips, for groups of few rows
    """

    kind: str
    samples: Sequence[Sample]
    prior: Callable[[Sample], Fit | None] = nothing

    def __post_init__(self) -> None:
        self._thetas: dict[tuple[int, int], Array] = {}
        self._pools: dict[int, Array] = {}
        self._without: dict[str, Study] = {}

    @cached_property
    def how(self) -> Grid:
        """Axes and stiffness of the correction of this kind."""
        return GRIDS[self.kind]

    def theta(self, index: int, fold: int) -> Array:
        """Physical parameters of one group without a fold."""
        if (index, fold) not in self._thetas:
            sample = self.samples[index]
            fit = self.prior(sample) if len(sample.rows) < FEW else None
            known = None if fit is None else (theta_of(fit), 1 / np.array([fit.spread.get(name, 0.5) for name in PARAMETERS]))
            self._thetas[index, fold] = physics_of(sample, sample.fold != fold, known)
        return self._thetas[index, fold]

    def pool(self, fold: int) -> Array | None:
        """The grid of all groups together; None when they are too few."""
        if len(self.samples) < MANY or self.how.pooled is None:
            return None
        if fold not in self._pools:
            even = np.full(len(self.samples), 1 / len(self.samples))
            self._pools[fold] = self._grid(range(len(self.samples)), even, fold, self.how.pooled, None, None)
        return self._pools[fold]

    def common(self, theta: Array, like: Sample) -> Array | None:
        """As `pool`, bent so that the time of an op with these parameters falls along none of its sizes."""
        found = self.pool(-1)
        return None if found is None else self.how.lattice.kept(found, self.doublings.bound(theta, like))

    @cached_property
    def doublings(self) -> Doublings:
        """Shapes of this kind and others of twice the work."""
        return Doublings(self.kind)

    def centre(self, index: int, fold: int) -> Array | None:
        """What a group's grid is drawn to: the common grid, or that of its prior."""
        sample = self.samples[index]
        fit = self.prior(sample) if len(sample.rows) < FEW or len(self.samples) < MANY else None
        if fit is not None and fit.correction is not None and tuple(fit.correction.axes.values()) == self.how.lattice.axes:
            return fit.correction.values
        return self.pool(fold)

    def solve(self, index: int, fold: int = -1) -> Solved:
        """Parameters and grid of one group without a fold."""
        own = self.samples[index]
        helpers, weights = [], []
        for other, sample in enumerate(self.samples):
            same = (sample.rows.stack, form_of(sample.rows)) == (own.rows.stack, form_of(own.rows))
            weight = 1.0 if other == index else SIBLING * alike(own.chip, sample.chip)
            if same and weight > 0.02:
                helpers.append(other)
                weights.append(weight)
        theta = self.theta(index, fold)
        bound = self.doublings.bound(theta, own)
        grid = self._grid(helpers, np.array(weights), fold, self.how.own, self.centre(index, fold), bound)
        return Solved(theta, grid)

    def without(self, device: str) -> Study:
        """The study as if a device had never been measured."""
        if device not in self._without:
            rest = [index for index, sample in enumerate(self.samples) if sample.rows.device != device]
            found = Study(self.kind, [self.samples[index] for index in rest], self.prior)
            found._thetas = {(place, -1): self.theta(index, -1) for place, index in enumerate(rest)}
            found.doublings = self.doublings
            self._without[device] = found
        return self._without[device]

    def held_out(self, index: int) -> Array:
        """Prediction over measured of every row, each from the fit without its fold; shape (rows,)."""
        sample = self.samples[index]
        ratio = np.zeros(len(sample.rows))
        for fold in np.unique(sample.fold):
            out = sample.fold == fold
            if out.all():
                continue
            ratio[out] = self.solve(index, int(fold)).predict(sample, self.how, out) / sample.measured[out]
        return ratio

    def _grid(
        self, which: Sequence[int] | range, weights: Array, fold: int, how: Smoothness, centre: Array | None,
        bound: Bound | None,
    ) -> Array:  # fmt: skip
        designs, values, weight = [], [], []
        for index, share in zip(which, weights, strict=True):
            sample = self.samples[index]
            kept = sample.fold != fold
            if not kept.any():
                continue
            design, residual = residuals(sample, self.theta(index, fold), self.how, kept)
            designs.append(design)
            values.append(residual)
            weight.append(np.full(len(residual), share))
        return self.how.lattice.fit(vstack(designs).tocsr(), np.concatenate(values), np.concatenate(weight), how, centre, bound)


def studies(
    groups: Sequence[Rows], chips: Mapping[str, Chip], prior: Callable[[Sample], Fit | None] = nothing
) -> dict[str, Study]:
    """Groups by kind of op, of the chips that are known."""
    found: dict[str, list[Sample]] = {}
    for rows in groups:
        if rows.device in chips:
            found.setdefault(rows.kind, []).append(sample_of(rows, chips[rows.device]))
    return {kind: Study(kind, samples, prior) for kind, samples in found.items()}
