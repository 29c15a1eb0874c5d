"""The predictor that knows."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.serve.predictors.predictor import Predictor
from hwmodel.serve.requests import Array
from hwmodel.serve.returns import Returns
from hwmodel.serve.trace import Trace


class Oracle(Predictor):
    """Knows whether a conversation comes back within the horizon, but not when."""

    kind: ClassVar[str] = "oracle"

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """1 for a return, 0 for none."""
        return returns.came.astype(float)
