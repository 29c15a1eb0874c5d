"""What a predictor of returns is."""

from __future__ import annotations

from typing import Any, ClassVar

from hwmodel.serve.requests import Array
from hwmodel.serve.returns import Returns
from hwmodel.serve.trace import Trace
from hwmodel.spec.schema import Spec


class Predictor(Spec):
    """The base of predictors. Its fields are its YAML."""

    kind: ClassVar[str] = ""
    """Name in a scenario."""
    kinds: ClassVar[dict[str, type[Predictor]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Make the kind known."""
        super().__pydantic_init_subclass__(**options)
        if cls.kind:
            Predictor.kinds[cls.kind] = cls

    def chances(self, trace: Trace, returns: Returns) -> Array:
        """(n,) the probability that each finished call's conversation comes back within the horizon."""
        raise NotImplementedError
