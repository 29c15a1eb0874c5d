"""The section ``serving`` of a scenario: how a service is set up, and what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from hwmodel.model.block import Size
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.synthetic import Synthetic
from hwmodel.spec.errors import InputError, did_you_mean, shortened
from hwmodel.spec.schema import Bytes, BytesPerSecond, Seconds, Spec, problems_of, shown
from hwmodel.spec.yamlfile import Document, Path_

Instances = Annotated[int, Field(ge=1, le=4096)]


class TierSpec(Spec):
    """Memory below the first tier, of one instance, that keeps KV which left it."""

    tier: str
    """Its name: dram, cxl, ssd."""
    capacity_bytes: Bytes
    bandwidth_bytes_per_s: BytesPerSecond
    """On the way up; writes are counted and nothing waits for them."""
    latency_s: Seconds | None = None


class Slo(Spec):
    """Targets of a request; it is good when it meets all of them."""

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    e2e_s: Seconds | None = None

    def limits(self) -> dict[str, float]:
        """Those that are set, s."""
        return {name.removesuffix("_s"): float(value) for name, value in self if value is not None}


class Transfer(Spec):
    """The link that KV takes from one prefill instance."""

    bandwidth_bytes_per_s: BytesPerSecond
    latency_s: Seconds | None = None


class Side(Spec):
    """Instances of one phase; what is not stated is as in the scenario."""

    instances: Instances = 1
    cluster: dict[str, Any] | None = None
    """Chips of one instance."""
    plan: tuple[dict[str, Any], ...] | None = None
    scheduler: str | dict[str, Any] | None = None


class Serving(Spec):
    """How requests are served; one instance is the scenario's cluster under its plan."""

    instances: Instances = 1
    scheduler: str | dict[str, Any] = "vllm"
    """A scheduler by name, or ``name: {fields}``."""
    block: Size = 16
    """Tokens of a page of the KV cache."""
    kv_tokens: Size | None = None
    """Tokens of KV that an instance holds; what its memory has room for when absent."""
    prefix_cache: bool = True
    """Prompts share the KV of equal prefixes, where the trace says which are equal."""
    routing: Literal["round_robin", "least_loaded", "prefix"] = "least_loaded"
    """To which instance a request goes."""
    tiers: Annotated[tuple[TierSpec, ...], Field(max_length=4)] = ()
    """Fastest first."""
    prefill: Side | None = None
    """Instances that only prefill; with `decode`, instead of `instances`."""
    decode: Side | None = None
    transfer: Transfer | None = None
    slo: Slo = Slo()
    trace: Synthetic | None = None
    """Requests when no trace is given."""

    @model_validator(mode="after")
    def _complete(self) -> Serving:
        if (self.prefill is None) != (self.decode is None):
            raise ValueError(
                "prefill instances need decode instances and the other way round: state both 'prefill' and 'decode'"
            )
        if self.prefill is not None and self.transfer is None:
            raise ValueError("prefill and decode apart need 'transfer', the link that the KV takes")
        return self


def scheduler_of(raw: str | dict[str, Any], document: Document, at: Path_) -> Scheduler:
    """A scheduler as a scenario writes it.

    Raises
    ------
    InputError
        For an unknown one, and for every wrong field.
    """
    table: Mapping[str, Any] = {raw: {}} if isinstance(raw, str) else raw
    if len(table) != 1:
        raise InputError(document.problem(at, "expected one scheduler, such as 'vllm: {max_tokens: 2048}'"))
    kind, given = next(iter(table.items()))
    if kind not in Scheduler.kinds:
        message = f"unknown scheduler '{shortened(str(kind))}'{did_you_mean(kind, Scheduler.kinds)}"
        raise InputError(document.problem(at, message))
    if not isinstance(given, dict | None):
        raise InputError(document.problem((*at, kind), f"expected the fields of '{kind}' as a mapping, got {shown(given)}"))
    try:
        return Scheduler.kinds[kind].model_validate(given or {})
    except ValidationError as error:
        raise InputError(problems_of(error, Scheduler.kinds[kind], document, (*at, kind))) from None
