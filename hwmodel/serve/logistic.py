"""Logistic regression by Newton's method: small enough to train beside a scheduler."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwmodel.serve.requests import Array
from hwmodel.serve.returns import Flags


@dataclass(frozen=True)
class Logistic:
    """Weights over standardised features."""

    mean: Array
    scale: Array
    weights: Array
    """(features + 1,), the first of the constant."""

    def predict(self, features: Array) -> Array:
        """(n,) probabilities of (n, features)."""
        return _sigmoid(_design((features - self.mean) / self.scale) @ self.weights)


def fit(features: Array, came: Flags, ridge: float = 1.0, steps: int = 30) -> Logistic:
    """Weights that maximise the likelihood less ridge/2 times their squares (the constant's aside).

    Parameters
    ----------
    features
        (n, features), finite.
    came
        (n,) what is predicted.
    """
    mean, scale = features.mean(0), features.std(0)
    scale = np.where(scale > 1e-12, scale, 1.0)
    design = _design((features - mean) / scale)
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 1e-6  # all or none came: the constant stays finite
    weights = np.zeros(design.shape[1])
    for _ in range(steps):
        chance = _sigmoid(design @ weights)
        slope = design.T @ (chance - came) + penalty * weights
        bend = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(penalty)
        change = np.linalg.solve(bend, slope)
        weights = weights - change * min(1.0, 5.0 / max(float(np.abs(change).max()), 1e-300))
        if np.abs(change).max() < 1e-8:
            break
    return Logistic(mean, scale, weights)


def _design(standard: Array) -> Array:
    return np.column_stack((np.ones(len(standard)), standard))


def _sigmoid(value: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -40, 40))))
