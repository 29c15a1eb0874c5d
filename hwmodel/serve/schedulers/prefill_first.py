"""Prompts first, as vLLM v0."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.kernels import serving_columns as c
from hwmodel.serve.schedulers.scheduler import Scheduler, Share


class PrefillFirst(Scheduler):
    """vLLM before v1 (Kwon et al., SOSP 2023): whole prompts in iterations of their own, before any decode."""

    kind: ClassVar[str] = "prefill_first"
    rule: ClassVar[int] = c.PREFILL_FIRST
    chunked: ClassVar[bool] = False

    watermark: Share = 0.01
