"""Who says whether a conversation comes back, one predictor a file. Importing the package finds them all."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np

from hwmodel.kernels import plugins
from hwmodel.serve.predictors.predictor import Predictor
from hwmodel.serve.requests import Array
from hwmodel.serve.returns import HORIZON_S, returns_of
from hwmodel.serve.trace import Trace

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
plugins("predictors")

__all__ = ["Predictor", "per_request"]


def per_request(trace: Trace, predictor: Predictor, horizon_s: float = HORIZON_S) -> Array:
    """(n,) for every request of a trace the chance that its conversation comes back within the horizon; 1 for no conversation.

    The predictor sees the trace's own times.
    """
    returns = returns_of(trace, horizon_s)
    chance = np.ones(len(trace))
    if len(returns):
        chance[returns.call] = predictor.chances(trace, returns)
    return chance
