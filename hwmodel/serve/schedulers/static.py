"""Static batching."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.serve.schedulers.scheduler import Scheduler


class Static(Scheduler):
    """Request-level batching (FasterTransformer): a batch runs until its longest request ends, and answers then."""

    kind: ClassVar[str] = "static"
    rule: ClassVar[int] = c.STATIC
    chunked: ClassVar[bool] = False

    max_sequences: Size = 8
    reserve: Literal["paged", "final"] | Size = "final"

    @model_validator(mode="after")
    def _reserves(self) -> Static:
        if self.reserve == "paged":
            raise ValueError(
                "a static batch cannot take pages as it grows: nobody leaves it; reserve 'final' or a number of tokens"
            )
        return self
