"""Sarathi-Serve."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.serve.schedulers.scheduler import Scheduler, Share


class Sarathi(Scheduler):
    """Stall-free batching (Agrawal et al., OSDI 2024, algorithm 3).

    All decodes, then prompts begun, then new ones, in chunks that fill a small token budget.
    """

    kind: ClassVar[str] = "sarathi"
    rule: ClassVar[int] = c.SARATHI

    max_sequences: Size = 128
    max_tokens: Size | None = 512
    watermark: Share = 0.01
