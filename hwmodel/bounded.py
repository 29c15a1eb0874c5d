"""Least squares under a bound: sums of the unknowns that may not be less than a number, by an interior point method.

Mehrotra's predictor and corrector (S. Mehrotra, SIAM J. Optim. 2 (1992) 575), with one factorisation a step. The system is that
of a lattice, with few diagonals, and stays so: a bound joins neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.sparse import diags

Array = NDArray[np.float64]
SLACK = 0.002
"""What a sum may be short of its least."""
ROOM, GAP = 0.1, 0.01
"""Room of a sum that joins, and its product with the force."""
LEAST_GAP = 1e-8
"""Force times room, in the mean over the sums, at which the bound counts as reached: smaller ones leave no digits."""
STIFFEST = 1e8
"""Most that a sum without room resists."""
SHY = 0.95
"""Share of the way to the nearest bound that a step goes."""


@dataclass(frozen=True)
class Bound:
    """Sums of unknowns that may not be less than a number."""

    rows: Any
    """Sparse (sums, unknowns)."""
    least: Array
    """(sums,)"""


class Free:
    """No bound."""

    def kept(self, found: Array) -> bool:
        """Always."""
        return True

    def step(self, system: Any, right: Array, found: Array) -> Array:
        """The step from a solution to the one with the least x' system x / 2 - right' x; all (unknowns,)."""
        return _solved(_factor(system), right - system @ found)


class Wall:
    """A bound, between steps towards the solution under it. Only sums that were once too small take part."""

    def __init__(self, bound: Bound, centre: Array) -> None:
        """Unknowns are counted from a centre."""
        self.every, self.lowest = bound.rows, bound.least - bound.rows @ centre
        self.held = np.zeros(len(self.lowest), dtype=bool)
        self.rows, self.least = self.every[self.held], self.lowest[self.held]
        self.room, self.force = np.zeros(0), np.zeros(0)
        """How far each sum that takes part may yet fall, and with how much it is held up; (sums,)."""

    def kept(self, found: Array) -> bool:
        """Whether a solution keeps to the bound, by SLACK."""
        return bool((self.every @ found > self.lowest - SLACK).all())

    def step(self, system: Any, right: Array, found: Array) -> Array:
        """As that of `Free`; the system may change from step to step."""
        self._take_part(found)
        pull = right - system @ found
        if not self.held.any():
            return _solved(_factor(system), pull)
        missing = self.rows @ found - self.least - self.room
        factor = _factor(system + self.rows.T @ diags(np.minimum(self.force / self.room, STIFFEST)) @ self.rows)

        def towards(gap: Array) -> tuple[Array, Array, Array]:
            moved = _solved(factor, pull + self.rows.T @ ((gap - self.force * missing) / self.room))
            room = self.rows @ moved + missing
            return moved, room, (gap - self.force * room) / self.room - self.force

        now = self.room @ self.force
        _, room, force = towards(np.zeros(len(self.room)))
        share = min(1.0, _reach(self.room, room), _reach(self.force, force))
        then = (self.room + share * room) @ (self.force + share * force)
        mean = max(float((then / now) ** 3 * now) / len(self.room), LEAST_GAP)
        moved, room, force = towards(mean - room * force)
        share = min(1.0, SHY * _reach(self.room, room), SHY * _reach(self.force, force))
        self.room, self.force = self.room + share * room, self.force + share * force
        return share * moved

    def _take_part(self, found: Array) -> None:
        """Let sums that are too small now join, all at first with the same room."""
        joined = (self.every @ found < self.lowest - SLACK / 2) & ~self.held
        if not joined.any():
            return
        room, force = np.full(len(self.lowest), ROOM), np.full(len(self.lowest), GAP / ROOM)
        room[self.held], force[self.held] = self.room, self.force
        self.held |= joined
        self.rows, self.least = self.every[self.held], self.lowest[self.held]
        self.room, self.force = room[self.held], force[self.held]


def _reach(values: Array, change: Array) -> float:
    """How often a change can be made until a value is zero."""
    falling = change < 0
    return float((-values[falling] / change[falling]).min()) if falling.any() else np.inf


def _factor(system: Any) -> Array:
    """Cholesky factor of a symmetric positive definite sparse system, by diagonals, lower ones."""
    entries = system.tocoo()
    lower = entries.row >= entries.col
    row, col = entries.row[lower], entries.col[lower]
    bands = np.zeros((int((row - col).max()) + 1, system.shape[0]))
    bands[row - col, col] = entries.data[lower]
    return np.asarray(cholesky_banded(bands, lower=True, overwrite_ab=True, check_finite=False))


def _solved(factor: Array, right: Array) -> Array:
    return np.asarray(cho_solve_banded((factor, True), right, check_finite=False))
