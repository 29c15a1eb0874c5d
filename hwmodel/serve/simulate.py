"""From a scenario and a trace to what a service gives: the flow of ``hwmodel simulate``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwmodel.scenario import Scenario, scenario_from
from hwmodel.serve.classes import classed
from hwmodel.serve.engine import Fleet, Group, Run, Wire, simulate
from hwmodel.serve.forecast import forecast
from hwmodel.serve.kv import Eviction, Room, Tier, room
from hwmodel.serve.metrics import within
from hwmodel.serve.requests import Requests
from hwmodel.serve.returns import HORIZON_S
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.scratch import whole_sum
from hwmodel.serve.spec import BANDS, ClassSpec, Serving, Side, TierSpec, ascend, predictor_of, scheduler_of
from hwmodel.serve.steps import Steps, step_tables
from hwmodel.serve.synthetic import generate
from hwmodel.serve.trace import Trace
from hwmodel.served.stack import Stack, load_stack, stack_names
from hwmodel.settings import override
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError
from hwmodel.spec.schema import build
from hwmodel.spec.yamlfile import Document

STEP_TOKENS = 1 << 15
"""Tokens of a step to which tables are priced when there is no budget."""


@dataclass(frozen=True)
class Service:
    """A scenario with its section ``serving`` read."""

    scenario: Scenario
    serving: Serving
    document: Document

    @property
    def chips(self) -> int:
        """Of all instances."""
        s = self.serving
        if s.prefill is None or s.decode is None:
            return s.instances * self.scenario.cluster.chips
        return sum(side.instances * self.side(side).cluster.chips for side in (s.prefill, s.decode))

    def side(self, side: Side) -> Scenario:
        """The scenario of the instances of one phase."""
        given = {"cluster": side.cluster, "plan": None if side.plan is None else list(side.plan)}
        value = {**self.document.value, **{key: what for key, what in given.items() if what is not None}}
        return scenario_from(replace(self.document, value=value), self.scenario.name)

    def sized(self, instances: int) -> Service:
        """With another number of instances; prefill and decode in the stated ratio."""
        s = self.serving
        if s.prefill is None or s.decode is None:
            return replace(self, serving=s.model_copy(update={"instances": instances}))
        sides = {name: side.model_copy(update={"instances": side.instances * instances})
                 for name, side in (("prefill", s.prefill), ("decode", s.decode))}  # fmt: skip
        return replace(self, serving=s.model_copy(update=sides))

    def classed(self, classes: Mapping[str, ClassSpec]) -> Service:
        """With other classes of requests.

        Raises
        ------
        InputError
            For bands that are none.
        """
        if not ascend(classes):
            raise InputError(f"classes: {BANDS}; got {', '.join(classes)}")
        return replace(self, serving=self.serving.model_copy(update={"classes": dict(classes)}))

    def split(self, prefills: int, decodes: int) -> Service:
        """With so many prefill and decode instances."""
        s = self.serving
        given = (("prefill", s.prefill, prefills), ("decode", s.decode, decodes))
        sides = {name: side.model_copy(update={"instances": count}) for name, side, count in given if side}
        return replace(self, serving=s.model_copy(update=sides))


def load_service(name: str, settings: Sequence[str] = ()) -> Service:
    """A scenario by name or path, with its serving section.

    Raises
    ------
    InputError
        Every problem of the file.
    """
    document = override(yamlfile.load(catalog.find("scenarios", name)), settings)
    base = Path(name).name
    stem = next((base.removesuffix(suffix) for suffix in catalog.SUFFIXES if base.endswith(suffix)), base)
    scenario = scenario_from(document, stem)
    serving = build(Serving, document, document.value.get("serving") or {}, ("serving",))
    scheduler_of(serving.scheduler, document, ("serving", "scheduler"))
    predictor_of(serving.keep, document)
    return Service(scenario, serving, document)


def requests_of(service: Service, seed: int | None = None) -> Requests:
    """The requests that the scenario itself makes.

    Raises
    ------
    InputError
        When it makes none.
    """
    spec = service.serving.trace
    if spec is None:
        raise InputError("no requests: name a trace with --trace FILE, or state serving.trace in the scenario")
    return ready(service, generate(spec if seed is None else spec.model_copy(update={"seed": seed})))


def ready(service: Service, trace: Trace) -> Requests:
    """The requests of a trace as the service takes them: in its classes, with targets and forecasts.

    Raises
    ------
    InputError
        For classes that the trace does not have.
    """
    return classed(foreseen(service, trace), service.serving.classes)


def foreseen(service: Service, trace: Trace) -> Requests:
    """The requests of a trace, with what the service's predictor says of each where KV is kept by it."""
    keep = service.serving.keep
    if keep.policy != "return":
        return trace.requests
    horizon = HORIZON_S if keep.horizon_s is None else float(keep.horizon_s)
    return forecast(trace, predictor_of(keep, service.document), horizon, keep.drop or 0.0)


@dataclass(frozen=True)
class Kind:
    """What instances of one kind are made of; searched fleets share it."""

    name: str
    role: str
    scenario: Scenario
    steps: Steps
    scheduler: Scheduler
    room: Room


def kinds_of(service: Service, requests: Requests) -> tuple[Kind, ...]:
    """Price every kind of instance once.

    Raises
    ------
    InputError
        When a plan cannot be priced, has no room for KV, or there is no request.
    """
    if not len(requests):
        raise InputError("no requests: the trace is empty")
    s = service.serving
    prompts, outputs = (whole_sum(tokens) for tokens in (requests.prompt, requests.output))
    context = max(1, int((prompts + outputs / 2) / len(requests)))
    at = ("serving", "scheduler")
    if s.prefill is None or s.decode is None:
        rule = scheduler_of(s.scheduler, service.document, at)
        return (_kind("instances", "mixed", service.scenario, rule, context),)
    found = []
    for role, side in (("prefill", s.prefill), ("decode", s.decode)):
        where = ("serving", role, "scheduler") if side.scheduler else at
        rule = scheduler_of(side.scheduler or s.scheduler, service.document, where)
        found.append(_kind(role, role, service.side(side), rule, context))
    return tuple(found)


def _kind(name: str, role: str, scenario: Scenario, rule: Scheduler, context: int) -> Kind:
    tokens = min(rule.budget, STEP_TOKENS)
    steps = step_tables(scenario, stack_of(scenario), tokens, rule.max_sequences)
    return Kind(name, role, scenario, steps, rule, room(scenario, tokens, context))


def stack_of(scenario: Scenario) -> Stack | None:
    """What the stack of the first pool adds to a step; None when it names none that is known."""
    name = scenario.cluster.pools[0].stack
    return load_stack(name) if name in stack_names() else None


def fleet_of(service: Service, kinds: Sequence[Kind]) -> Fleet:
    """The instances of a service."""
    s = service.serving
    sides = {
        "instances": s.instances,
        **{n: side.instances for n, side in (("prefill", s.prefill), ("decode", s.decode)) if side},
    }
    tiers = tuple(_tier(t) for t in s.tiers)
    eviction = Eviction(s.keep.policy, float(s.keep.timeout_s or 0.0))
    groups = []
    for kind in kinds:
        wire = Wire()
        if kind.role == "prefill" and s.transfer is not None:
            wire = Wire(kind.room.token_bytes / float(s.transfer.bandwidth_bytes_per_s), float(s.transfer.latency_s or 0.0))
        pages = (s.kv_tokens or kind.room.tokens) // s.block
        groups.append(Group(kind.name, sides[kind.name], kind.steps, kind.scheduler, pages, kind.role,
                            tiers, kind.room.token_bytes, wire))  # fmt: skip
    return Fleet(tuple(groups), s.block, s.routing, s.prefix_cache, eviction)


def _tier(spec: TierSpec) -> Tier:
    """A tier in SI; what is not stated does not limit."""
    up = float(spec.bandwidth_bytes_per_s)
    return Tier(
        spec.tier, float(spec.capacity_bytes), up, float(spec.latency_s or 0.0), float(spec.write_bandwidth_bytes_per_s or up),
        spec.duplex, math.inf if spec.buffer_bytes is None else float(spec.buffer_bytes), spec.pooled,
        float(spec.endurance_bytes or math.inf), float(spec.rental_usd_per_hour or 0.0),
    )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A run with what it was asked and how long it took."""

    service: Service
    kinds: tuple[Kind, ...]
    run: Run
    slo: Mapping[str, float]
    wall_s: float
    found: Mapping[str, Any] | None = None
    """Of a search: what was searched, and every step of it."""

    @property
    def good(self) -> float:
        """Share of the requests that meet every target."""
        return float(within(self.run, self.slo).mean())


def answer(
    service: Service, requests: Requests, slo: Mapping[str, float] | None = None, kinds: tuple[Kind, ...] = ()
) -> Answer:
    """Serve the requests."""
    made = kinds or kinds_of(service, requests)
    fleet = fleet_of(service, made)
    simulate(requests.first(1), fleet)  # compiles on a new machine, which is no time of the simulation
    start = time.perf_counter()
    run = simulate(requests, fleet)
    wall = time.perf_counter() - start
    return Answer(service, made, run, service.serving.slo.limits() if slo is None else slo, wall)
