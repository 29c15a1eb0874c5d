"""Predictors that know nothing of a call, or only how it ended."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hwmodel.serve.predictors.predictor import Predictor
from hwmodel.serve.requests import Array
from hwmodel.serve.returns import Returns, rates
from hwmodel.serve.trace import Trace


class Always(Predictor):
    """Every conversation comes back."""

    kind: ClassVar[str] = "always"

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """All 1."""
        return np.ones(len(returns))


class Never(Predictor):
    """None comes back."""

    kind: ClassVar[str] = "never"

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """All 0."""
        return np.zeros(len(returns))


class Rate(Predictor):
    """The share that comes back, of all calls that ended the same way: an agent whose tool runs returns, mostly."""

    kind: ClassVar[str] = "rate"

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """The share of the whole trace, by step kind."""
        return rates(returns)
