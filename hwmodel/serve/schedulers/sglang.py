"""SGLang."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.serve.schedulers.scheduler import Scheduler, Share


class Sglang(Scheduler):
    """SGLang (Zheng et al., NeurIPS 2024).

    Iterations of prompts, in chunks, come before decodes; of those that wait, the one with the longest cached prefix first.
    """

    kind: ClassVar[str] = "sglang"
    rule: ClassVar[int] = c.PREFILL_FIRST
    longest_prefix: ClassVar[bool] = True

    max_tokens: Size | None = 8192
    watermark: Share = 0.01
