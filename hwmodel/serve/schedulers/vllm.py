"""vLLM v1."""

from __future__ import annotations

from typing import ClassVar

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.serve.schedulers.scheduler import Scheduler


class Vllm(Scheduler):
    """Continuous batching with chunked prefill as vLLM v1 does it (v1/core/sched/scheduler.py).

    What runs comes first, then new requests in order of arrival, prompts cut to what is left of the token budget; the latest is
    preempted and computed again.
    """

    kind: ClassVar[str] = "vllm"
    rule: ClassVar[int] = c.BUDGETED

    max_tokens: Size | None = 2048
