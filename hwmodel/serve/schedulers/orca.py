"""Orca: iteration-level scheduling."""

from __future__ import annotations

from typing import ClassVar, Literal

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.serve.schedulers.scheduler import Scheduler


class Orca(Scheduler):
    """Iteration-level scheduling (Yu et al., OSDI 2022).

    Requests join and leave after every iteration, whole prompts beside decodes, room reserved ahead.
    """

    kind: ClassVar[str] = "orca"
    rule: ClassVar[int] = c.ITERATION_LEVEL
    chunked: ClassVar[bool] = False

    reserve: Literal["paged", "final"] | Size = "final"
