"""A predictor of a given quality, to learn what one of this AUC would be worth."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from hwmodel.model.block import Count
from hwmodel.serve.predictors.predictor import Predictor
from hwmodel.serve.requests import Array
from hwmodel.serve.returns import Returns, rates
from hwmodel.serve.trace import Trace


class Noisy(Predictor):
    """Sees the truth through noise: a score d came + N(0, 1), with d such that its AUC is as given.

    The binormal model: AUC = Phi(d / sqrt 2) (Green and Swets, Signal Detection Theory, 1966). The score becomes a probability
    by Bayes' rule from the rate of calls that ended the same way, so that it is calibrated: 0.5 says no more than that rate,
    1 knows.
    """

    kind: ClassVar[str] = "noisy"
    auc: Annotated[float, Field(ge=0.5, le=1)]
    """Among calls that ended the same way."""
    only: tuple[str, ...] = ()
    """Ends of calls, such as end_turn, that it sees; of the others it knows the rate only. All when empty."""
    seed: Count = 0

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """The calibrated probability."""
        base = rates(returns)
        came = returns.came.astype(float)
        seen = np.isin(np.array(trace.steps)[returns.step], self.only) if self.only else np.ones(len(base), bool)
        if self.auc == 1:
            return np.where(seen, came, base)
        apart = math.sqrt(2) * NormalDist().inv_cdf(self.auc)
        score = apart * came + np.random.default_rng(self.seed).standard_normal(len(came))
        with np.errstate(divide="ignore"):
            odds = np.log(base) - np.log1p(-base) + apart * score - apart**2 / 2
        return np.where(seen, 1 / (1 + np.exp(-np.clip(odds, -700, 700))), base)
