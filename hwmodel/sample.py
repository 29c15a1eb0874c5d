"""Measured rows as a fit sees them, and the physical form with its four parameters."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hwmodel.calibration import Calibration, Fit
from hwmodel.hardware import Chip
from hwmodel.kernels import columns as c
from hwmodel.measured import Rows, form_of
from hwmodel.replay import replay

Array = NDArray[np.float64]
FOLDS = 5


@dataclass(frozen=True)
class Sample:
    """Rows of one group as the fit sees them. Arrays are (rows,) or (rows, parts)."""

    rows: Rows
    chip: Chip
    compute: Array
    """Seconds at full peak, of every op that is fitted (an expert layer has two)."""
    memory: Array
    """Seconds at full bandwidth."""
    fixed: Array
    """Seconds that the kernel knows beside them and no share changes."""
    other: Array
    """Seconds of ops that are not fitted."""
    features: Array
    """(rows, parts, axes): log2 of the sizes of FEATURES."""

    @cached_property
    def fold(self) -> NDArray[np.int64]:
        """The fold of every row, by its shape alone: the same shape is in the same fold on every chip."""
        columns = self.rows.columns
        shapes = zip(*(columns[name] for name in sorted(columns)), strict=True)
        return np.array([int(hashlib.md5(repr([str(v) for v in shape]).encode()).hexdigest(), 16) % FOLDS for shape in shapes])

    @property
    def measured(self) -> Array:
        """Seconds."""
        return self.rows.measured_s


def neutral(op: str, dtype: str) -> Fit:
    """The kernel at its full peak and bandwidth, with no fixed cost."""
    return Fit.model_validate({"op": op, "dtype": dtype, "launch": "0 s", "low": 1, "high": 1})


def sample_of(rows: Rows, chip: Chip) -> Sample:
    """Price the rows at full rates."""
    bare = Calibration(chip=chip.name, stack=rows.stack, fits=(neutral(rows.kind, form_of(rows)),))
    parts = replay(rows, chip, bare)
    own = [part for part in parts if part.op.family]
    other = sum((part.out[:, c.TIME] for part in parts if not part.op.family), np.zeros(len(rows)))

    def columns(*names: int) -> Array:
        return np.stack([sum(part.out[:, name] for name in names) for part in own], axis=1)

    features = np.stack([np.log2(np.maximum(part.features, 1.0)) for part in own], axis=1)
    return Sample(rows, chip, columns(c.COMPUTE), columns(c.MEMORY, c.WIRE), columns(c.OVERHEAD), other, features)


PARAMETERS = ("launch", "compute", "memory", "sharpness")
"""theta holds their logarithms: launch in s, shares of peak and bandwidth, sharpness - 1."""
NOISE = 0.1
"""Error of a row, as a natural logarithm, above which it counts less than its square."""
WEAK = np.array([0.05, 0.3, 0.3, 0.5])
"""How strongly each parameter is drawn to its start, per unit of its logarithm, where nothing is known of other chips."""


LEAST, MOST = np.log([1e-9, 0.002, 0.002, 0.02]), np.log([1e-2, 20.0, 20.0, 30.0])
"""Bounds of the parameters: where an op never comes near its peak or bandwidth, rows do not say what the share is."""


def part_times(theta: Array, sample: Sample, chosen: NDArray[np.bool_]) -> Array:
    """Seconds of every fitted op by the physical form, shape (rows, parts)."""
    return physical(theta, sample.compute[chosen], sample.memory[chosen], sample.fixed[chosen])


def physical(theta: Array, compute: Array, memory: Array, fixed: Array) -> Array:
    """Seconds by the physical form: launch + fixed + compute and memory overlapped; arrays of one shape, s at full rates."""
    launch, share, bandwidth = np.exp(theta[:3])
    sharp = 1.0 + np.exp(theta[3])
    a, b = compute / share, memory / bandwidth
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    return np.asarray(launch + fixed + longer * (1 + (shorter / np.maximum(longer, 1e-30)) ** sharp) ** (1 / sharp))


def slopes(theta: Array, compute: Array, memory: Array) -> Array:
    """Derivatives of `physical` by each of theta, (4, ...) s; the last axes are those of compute and memory."""
    launch, share, bandwidth = np.exp(theta[:3])
    beyond = np.exp(theta[3])
    sharp = 1.0 + beyond
    a, b = compute / share, memory / bandwidth
    longer, shorter = np.maximum(a, b), np.minimum(a, b)
    log_ratio = np.log(np.maximum(shorter, 1e-30) / np.maximum(longer, 1e-30))
    power = np.exp(sharp * log_ratio)
    both = longer * (1 + power) ** (1 / sharp)
    of_longer = both / (1 + power)
    of_compute = np.where(a >= b, of_longer, both - of_longer)
    of_sharp = both * beyond * (power * log_ratio / (sharp * (1 + power)) - np.log1p(power) / sharp**2)
    return np.stack([np.full_like(both, launch), -of_compute, of_compute - both, of_sharp])


STEPS = 20
"""Of the first method, which stays inside the bounds and nears one slowly; a second goes on along them. Alone, the second goes
so far at first that it may end in another valley: by 22 % a worse sum, for one group of prompts in the shipped rows."""


def start_of(sample: Sample, chosen: NDArray[np.bool_]) -> Array:
    """A usual chip: the shortest time is all launch, shares of 0.6 and 0.7, sharpness 3."""
    shortest = np.maximum(sample.measured - sample.other, 0.2 * sample.measured)[chosen].min() / sample.compute.shape[1]
    return np.log([max(0.9 * float(shortest), 1e-7), 0.6, 0.7, 2.0])


def physics_of(sample: Sample, chosen: NDArray[np.bool_], prior: tuple[Array, Array] | None = None) -> Array:
    """The four parameters by robust least squares on log error, drawn to `prior` (middle, weight)."""
    middle, weight = prior or (start_of(sample, chosen), WEAK)
    target, other = sample.measured[chosen], sample.other[chosen]
    compute, memory, fixed = sample.compute[chosen], sample.memory[chosen], sample.fixed[chosen]

    def wrong(theta: Array) -> Array:
        whole = physical(theta, compute, memory, fixed).sum(axis=1) + other
        return np.concatenate([np.log(whole / target) / NOISE, (theta - middle) * weight])

    def slope(theta: Array) -> Array:
        whole = physical(theta, compute, memory, fixed).sum(axis=1) + other
        rows = slopes(theta, compute, memory).sum(axis=2) / whole / NOISE
        return np.concatenate([rows.T, np.diag(weight)])

    how = {"jac": slope, "bounds": (LEAST, MOST), "loss": "soft_l1"}
    inside = np.clip(middle, LEAST + 1e-6, MOST - 1e-6)
    found = least_squares(wrong, inside, max_nfev=STEPS, **how)
    if not found.success:
        found = least_squares(wrong, found.x, method="dogbox", x_scale="jac", **how)
    return np.asarray(found.x)


def theta_of(fit: Fit) -> Array:
    """The parameters of a fit as logarithms."""
    return np.log([max(fit.launch_s, 1e-9), fit.compute, fit.memory, max(fit.sharpness - 1, 0.05)])
