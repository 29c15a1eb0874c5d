"""The section ``serving`` of a scenario: how a service is set up, and what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from hwmodel.model.block import Size
from hwmodel.serve.predictors import Predictor
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.synthetic import Synthetic
from hwmodel.spec.errors import InputError, did_you_mean, shortened
from hwmodel.spec.schema import Bytes, BytesPerSecond, Seconds, Spec, UsdPerHour, problems_of, shown
from hwmodel.spec.yamlfile import Document, Path_

Instances = Annotated[int, Field(ge=1, le=4096)]


class TierSpec(Spec):
    """Memory below the first tier, of one instance or a pool of all, that keeps KV which left it."""

    tier: str
    """Its name: dram, cxl, ssd, pool."""
    capacity_bytes: Bytes
    bandwidth_bytes_per_s: BytesPerSecond
    """On the way up, of one instance."""
    latency_s: Seconds | None = None
    write_bandwidth_bytes_per_s: BytesPerSecond | None = None
    """On the way down, of one instance; as up when absent."""
    duplex: bool = True
    """Reads and writes have a way each, as over PCIe or NVLink-C2C; false: they wait for one another, as in an SSD."""
    buffer_bytes: Bytes | None = None
    """KV that may wait to be written; what finds the buffer full is not kept. No limit when absent."""
    pooled: bool = False
    """One for all instances, which read what any of them wrote; each has a way of its own."""
    endurance_bytes: Bytes | None = None
    """Bytes that can be written to it in its life: the answer says how long it lasts."""
    rental_usd_per_hour: UsdPerHour | None = None
    """Of all of it; added to the cost of the chips."""


class Keep(Spec):
    """Which idle KV stays when a tier is full."""

    policy: Literal["lru", "arc", "ttl", "return"] = "lru"
    """lru: the least recently used goes, demoted to the tier below; arc: adaptive replacement below the first tier; ttl: lru,
    and what was idle for `timeout` goes; return: the least worth by a forecast of the conversation's return."""
    timeout_s: Seconds | None = None
    """Of ttl."""
    predictor: str | dict[str, Any] | None = None
    """Of return: who says whether a conversation comes back, by name or as ``name: {fields}``; `rate` when absent."""
    auc: Annotated[float, Field(ge=0.5, le=1)] | None = None
    """Quality of the predictor `noisy`."""
    horizon_s: Seconds | None = None
    """Within which a return counts; 10 min when absent."""
    drop: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of return: chance of a return below which KV is dropped though a tier below has room, to spare it the write; none when
    absent. A full tier always turns away what is worth less than all it has."""

    @model_validator(mode="after")
    def _complete(self) -> Keep:
        if (self.policy == "ttl") != (self.timeout_s is not None):
            raise ValueError("policy ttl needs 'timeout', such as 5 min; the other policies take none")
        if self.timeout_s is not None and not self.timeout_s:
            raise ValueError("timeout must be more than 0")
        if self.horizon_s is not None and not self.horizon_s:
            raise ValueError("horizon must be more than 0")
        if self.policy != "return" and (self.predictor or self.auc or self.horizon_s or self.drop is not None):
            raise ValueError("predictor, auc, horizon and drop go with policy return")
        if (self.auc is not None) != (self.predictor == "noisy"):
            raise ValueError("predictor noisy needs 'auc', and no other one takes it")
        return self


class Slo(Spec):
    """Targets of a request; it is good when it meets all of them."""

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None
    e2e_s: Seconds | None = None

    def limits(self) -> dict[str, float]:
        """Those that are set, s."""
        return {name.removesuffix("_s"): float(value) for name, value in self if value is not None}


class ClassSpec(Spec):
    """A class of requests, and targets of its own."""

    prompt: Size | None = None
    """Most tokens of a prompt: the classes of a scenario are bands of length then, shortest first, and the last may be open.
    Absent from all of them they are classes of the trace."""
    slo: Slo = Slo()
    """In place of those of all requests, one by one."""


BANDS = "bands go from short to long prompts, and only the last one is open"


def ascend(classes: Mapping[str, ClassSpec]) -> bool:
    """Whether classes are bands as they must be, or none at all."""
    ends = [one.prompt for one in classes.values()]
    known = [end for end in ends if end is not None]
    return not known or (known == sorted(set(known)) and None not in ends[:-1])


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
    keep: Keep = Keep()
    """Which idle KV stays when a tier is full."""
    prefill: Side | None = None
    """Instances that only prefill; with `decode`, instead of `instances`."""
    decode: Side | None = None
    transfer: Transfer | None = None
    slo: Slo = Slo()
    classes: Mapping[str, ClassSpec] = Field(default_factory=dict)
    """Of requests, by name: bands of prompt length, or classes of the trace that have targets of their own."""
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
        if not ascend(self.classes):
            raise ValueError(f"classes: {BANDS}")
        if self.keep.policy == "arc" and not self.tiers:
            raise ValueError("keep: policy arc rules the tiers below the first; state 'tiers'")
        return self


def scheduler_of(raw: str | dict[str, Any], document: Document, at: Path_) -> Scheduler:
    """A scheduler as a scenario writes it.

    Raises
    ------
    InputError
        For an unknown one, and for every wrong field.
    """
    return _chosen(raw, Scheduler.kinds, "scheduler", "vllm: {max_tokens: 2048}", document, at)


def predictor_of(keep: Keep, document: Document) -> Predictor:
    """The predictor of returns as a scenario writes it.

    Raises
    ------
    InputError
        For an unknown one, and for every wrong field.
    """
    raw = keep.predictor or "rate"
    if keep.auc is not None:
        raw = {"noisy": {"auc": keep.auc}}
    return _chosen(raw, Predictor.kinds, "predictor", "noisy: {auc: 0.69}", document, ("serving", "keep", "predictor"))


Chosen = TypeVar("Chosen", bound=Spec)


def _chosen(
    raw: str | dict[str, Any], kinds: Mapping[str, type[Chosen]], what: str, such: str, document: Document, at: Path_
) -> Chosen:
    """One of several kinds with its fields, written as its name or as ``name: {fields}``."""
    table: Mapping[str, Any] = {raw: {}} if isinstance(raw, str) else raw
    if len(table) != 1:
        raise InputError(document.problem(at, f"expected one {what}, such as '{such}'"))
    kind, given = next(iter(table.items()))
    if kind not in kinds:
        message = f"unknown {what} '{shortened(str(kind))}'{did_you_mean(kind, kinds)}"
        raise InputError(document.problem(at, message))
    if not isinstance(given, dict | None):
        raise InputError(document.problem((*at, kind), f"expected the fields of '{kind}' as a mapping, got {shown(given)}"))
    try:
        return kinds[kind].model_validate(given or {})
    except ValidationError as error:
        raise InputError(problems_of(error, kinds[kind], document, (*at, kind))) from None
