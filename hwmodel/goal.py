"""What a best plan is asked for: the objective, the latency targets, and the space to look through."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hwmodel.model.block import Count, Size
from hwmodel.spec.schema import Seconds, Spec, Usd, UsdPerHour

Objective = Literal["tokens_per_s_per_chip", "tokens_per_s_per_usd", "usd_per_mtok", "joules_per_token", "tpot", "chips"]


class Slo(Spec):
    """Latency targets that every plan must meet."""

    tpot_s: Seconds | None = None
    """Time per output token, at most."""
    ttft_s: Seconds | None = None
    """Prefill of one prompt of the workload's context on the idle cluster, at most; no queueing."""


class Goal(Spec):
    """What `hwmodel optimize` looks for, and where."""

    objective: Objective = "tokens_per_s_per_chip"
    """tokens_per_s_per_chip and tokens_per_s_per_usd (per dollar an hour) as high, the others as low as can be."""
    slo: Slo = Slo()
    pools: Annotated[dict[str, Annotated[tuple[Size, ...], Field(min_length=1, max_length=64)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Numbers of chips to choose from, by pool; parts of the pool's count (1, 3/4, 1/2, 3/8, ...) when absent."""
    micro_batches: Annotated[tuple[Annotated[int, Field(ge=1, le=16)], ...], Field(min_length=1, max_length=16)] = (1, 2, 3, 4)
    """Parts that the batch may be cut into where attention and experts are on different pools."""
    min_batch: Size = 1
    """Sequences that the step must serve at least. The objectives tpot and chips serve the workload's batch at least."""
    max_batch: Annotated[int, Field(ge=1, le=1 << 24)] = 65536
    """Sequences of a step, at most."""
    max_chips: Count = 0
    """Chips of all pools together, at most; 0: what the pools have."""
    purchase_usd: Usd | None = None
    """Price of all chips, at most."""
    hourly_usd_per_hour: UsdPerHour | None = None
    """Cost of all chips in an hour, at most."""
    context_parallel: bool = True
    """Also try to split the positions of a sequence over chips."""
    offload: Literal["auto", "always", "never"] = "auto"
    """Try to keep experts outside the pool that works on them: always, never, or when its chips do not hold the weights."""
    pipeline: Literal["auto", "always", "never"] = "auto"
    """Try pipeline stages on a pool that works alone: always, never, or when 16 of its chips do not hold the weights."""
