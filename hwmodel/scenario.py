"""A question: model, formats, cluster, plan and workload, as one YAML file states it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, field_validator

from hwmodel.calibration import unknown_stack
from hwmodel.consistency import wrong_goal, wrong_plan, wrong_wires
from hwmodel.goal import Goal
from hwmodel.hardware import Chip, Cluster, Pool, Wire, chip_from, load_chip, unfit, with_number
from hwmodel.likeness import calibration_for
from hwmodel.lower.decoder import Formats
from hwmodel.model.architecture import Model
from hwmodel.model.block import Size
from hwmodel.model.dtypes import Format, fmt
from hwmodel.model.load import load_model
from hwmodel.partition import Strategy
from hwmodel.popularity import counted
from hwmodel.prices import Economics
from hwmodel.settings import override
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.spec.number import Unit, cited
from hwmodel.spec.schema import Plain, Spec, build, problems_of, shown
from hwmodel.spec.yamlfile import Document, Path_
from hwmodel.workload import Workload


class Dtypes(Spec):
    """Number formats; what is not stated is as the checkpoint has it."""

    weights: str = ""
    """Of all matrices of linear layers except routers; as stored in the checkpoint when empty."""
    activations: str = ""
    """Of activations; the model's own type when empty."""
    kv: str = ""
    """Of the KV cache; the checkpoint's, else that of the activations, when empty."""
    attention: str = ""
    """In which attention multiplies, such as fp8 on chips that can; that of the activations when empty."""


class PoolSpec(Spec):
    """Equal chips with one task."""

    chip: str | dict[str, Any]
    """Name or path of a chip, or a chip written out (``extends: rubin`` and what differs)."""
    count: Size = 1
    stack: str = ""
    """Software stack whose calibration is used."""
    memory_reserve: Plain | None = None
    """Share of memory left free for the runtime; 8 % when absent."""
    override: dict[str, Any] = Field(default_factory=dict)
    """Numbers of the chip to replace, by path: ``memory.hbm.bandwidth: 4 TB/s``, or with a range and a source as in the
    chip's file: ``{value: 4 TB/s, range: [3.5 TB/s, 4.5 TB/s], source: ...}``."""

    @field_validator("chip", mode="before")
    @classmethod
    def _named_or_written_out(cls, raw: Any) -> Any:
        if not isinstance(raw, str | dict):
            raise ValueError(f"expected the name or path of a chip, or a chip written out, got {shown(raw)}")
        return raw


class ClusterSpec(Spec):
    """Pools by name, and the links between them."""

    pools: Annotated[dict[str, PoolSpec], Field(min_length=1, max_length=64)]
    links: Annotated[tuple[Wire, ...], Field(max_length=500)] = ()


class ScenarioSpec(Spec):
    """The file of a scenario."""

    title: str = ""
    question: str = ""
    model: str
    """Name of a model, or path of a YAML or config.json."""
    dtypes: Dtypes = Dtypes()
    cluster: ClusterSpec
    plan: Annotated[tuple[dict[str, Any], ...], Field(max_length=64)] = ()
    """Strategies, each ``- kind: {fields}``."""
    workload: Workload
    goal: Goal = Goal()
    """What `hwmodel optimize` looks for, and where."""
    economics: Economics = Economics()
    serving: dict[str, Any] = Field(default_factory=dict)
    """How requests are served, for ``hwmodel simulate``."""


@dataclass(frozen=True)
class Scenario:
    """A question with everything in it resolved."""

    name: str
    model: Model
    formats: Formats
    cluster: Cluster
    plan: tuple[Strategy, ...]
    workload: Workload
    kv_from: str
    """Where the KV format comes from: the scenario, the checkpoint, or the activations."""
    title: str = ""
    goal: Goal = field(default_factory=Goal)
    """What a search over its plans is to find."""
    economics: Economics = field(default_factory=Economics)


def load_scenario(name: str, settings: Sequence[str] = ()) -> Scenario:
    """A scenario by name or path, with ``key.path=value`` settings over it.

    Raises
    ------
    InputError
        Every problem of the file, its chips and its model, each with its place.
    """
    document = yamlfile.load(catalog.find("scenarios", name))
    if isinstance(document.value, dict) and {"scenario", "feasible", "reasons"} <= document.value.keys():
        raise InputError(Problem("is an answer that 'hwmodel run --json' saved, no scenario: 'report' and 'compare' take it",
                                 file=document.file))  # fmt: skip
    return scenario_from(override(document, settings), _stem(name))


def load(name: str, *settings: str) -> Scenario:
    """A scenario by name or path: ``hw.load("h100_llama_70b_decode", "workload.batch=64")``; see `load_scenario`.

    Parameters
    ----------
    settings
        ``key.path=value``, units as in the file.

    Raises
    ------
    InputError
        Every problem of the file, its chips, its model and the settings, each with its place.
    """
    return load_scenario(name, settings)


def loaded(asked: Scenario | str) -> Scenario:
    """A scenario as it is, or the one of that name or path: what answers a question takes either."""
    return load(asked) if isinstance(asked, str) else asked


def from_options(options: Mapping[str, Any], settings: Sequence[str] = ()) -> Scenario:
    """A scenario from command-line options alone: one pool of equal chips.

    options : model, chip (both needed), count, tp, ep, pp, batch, context, new_tokens, phase, weights, kv, stack
    """
    missing = [f"--{key}" for key in ("model", "chip") if key not in options]
    if missing:
        known = "('hwmodel models' and 'hwmodel chips' list what is known)"
        raise InputError(f"name a scenario, or give {' and '.join(missing)} {known}")
    phase = options.get("phase", "decode")
    if "new_tokens" in options and phase != "mixed":
        raise InputError("--new-tokens goes with --phase mixed; a prefill step's prompt tokens are its --context")
    pool = {"chip": options["chip"], "count": options.get("count", 1), "stack": options.get("stack", "")}
    length = options.get("context", 2048)
    workload: dict[str, Any] = {"phase": phase, "batch": options.get("batch", 1)}
    workload |= {"new_tokens": length} if phase == "prefill" else {"context": length}
    if phase == "mixed":
        workload["new_tokens"] = options.get("new_tokens", 512)
    plan: list[dict[str, Any]] = []
    at: Path_ = ("cluster", "pools", "chips")
    origin: dict[str, Path_] = {
        "model": ("model",), **{key: (*at, key) for key in pool},
        **{key: ("workload", key) for key in ("batch", "phase", "new_tokens")},
        "context": ("workload", "new_tokens" if phase == "prefill" else "context"),
        **{key: ("dtypes", key) for key in ("weights", "kv")},
    }  # fmt: skip
    for key, kind, field_ in (("tp", "tensor", "degree"), ("ep", "expert", "degree"), ("pp", "pipeline", "stages")):
        if options.get(key, 1) > 1:
            origin[key] = ("plan", len(plan), kind, field_)
            plan.append({kind: {field_: options[key]}})
    value = {
        "model": options["model"], "cluster": {"pools": {"chips": pool}}, "plan": plan, "workload": workload,
        "dtypes": {key: options[key] for key in ("weights", "kv") if key in options},
    }  # fmt: skip
    given = {path: f"--{key.replace('_', '-')} {options[key]}" for key, path in origin.items() if key in options}
    document = Document("options", value, {}, (), given)
    name = f"{_stem(options['model'])} on {options.get('count', 1)} x {_stem(options['chip'])}"
    return scenario_from(override(document, settings), name)


def scenario_from(document: Document, name: str) -> Scenario:
    """A scenario from a parsed document.

    Raises
    ------
    InputError
        Every problem of the file, its chips and its model, each with its place.
    """
    problems: list[Problem] = []
    spec = _try(problems, build, ScenarioSpec, document)
    if spec is None:
        _read_the_rest(document, problems)
        raise InputError(problems)
    model = _try(problems, _model, spec.model, document)
    pools = [_try(problems, _pool, key, pool, document) for key, pool in spec.cluster.pools.items()]
    names = list(spec.cluster.pools)
    problems += wrong_wires(spec.cluster.links, dict(zip(names, pools, strict=True)), document)
    plan = _try(problems, read_plan, document, spec.plan)
    routing = _try(problems, counted, spec.workload.routing, document, model)
    formats = _try(problems, _formats, spec.dtypes, document)
    problems += wrong_plan(plan or (), dict(zip(names, pools, strict=True)), document)
    problems += wrong_goal(spec.goal, names, document)
    speculative = spec.workload.speculative
    if model is not None and speculative is not None and speculative.method == "mtp" and model.mtp is None:
        message = f"model {model.name} has no multi-token-prediction module to draft with"
        problems.append(document.problem(("workload", "speculative"), f"{message}; 'method: free' drafts at no cost"))
    if problems or model is None or plan is None or formats is None:
        raise InputError(list(dict.fromkeys(problems)))
    whole, kv_from = formats(model)
    cluster = Cluster(tuple(pool for pool in pools if pool is not None), spec.cluster.links)
    workload = spec.workload.model_copy(update={"routing": routing})
    return Scenario(name, model, whole, cluster, plan, workload, kv_from, spec.title, goal=spec.goal, economics=spec.economics)


Made = TypeVar("Made")


def _try(problems: list[Problem], make: Callable[..., Made], *given: Any) -> Made | None:
    """What `make` makes; None when its input is wrong, and its problems are kept."""
    try:
        return make(*given)
    except InputError as error:
        problems += error.problems
        return None


def _read_the_rest(document: Document, problems: list[Problem]) -> None:
    """Find the problems of whatever still can be read of a file with wrong keys or types: model, plan, chips."""
    top = document.value if isinstance(document.value, dict) else {}
    if isinstance(top.get("model"), str):
        _try(problems, _model, top["model"], document)
    if isinstance(top.get("plan"), list):
        _try(problems, read_plan, document, [item for item in top["plan"] if isinstance(item, dict)])
    cluster = top.get("cluster")
    pools = cluster.get("pools") if isinstance(cluster, dict) else None
    for name, pool in list(pools.items())[:64] if isinstance(pools, dict) else ():
        if isinstance(pool, dict) and isinstance(pool.get("chip"), str | dict):
            _try(problems, _chip, name, pool["chip"], document)


def _model(name: str, document: Document) -> Model:
    try:
        return load_model(_beside(name, document.file))
    except InputError as error:
        raise InputError([_at(document, ("model",), problem) for problem in error.problems]) from None


def _at(document: Document, path: Path_, problem: Problem) -> Problem:
    """A problem with a name or a path gets the place that names it; one inside another file keeps its own."""
    if problem.line is not None:
        return problem
    message = f"{problem.file}: {problem.message}" if problem.file else problem.message
    return document.problem(path, message)


def read_plan(document: Document, items: Sequence[dict[str, Any]]) -> tuple[Strategy, ...]:
    """Strategies from ``- kind: {fields}`` entries; all problems at once."""
    found: list[Strategy] = []
    problems: list[Problem] = []
    for index, item in enumerate(items):
        path: Path_ = ("plan", index)
        if len(item) != 1:
            got = " and ".join(repr(shortened(str(key), 30)) for key in list(item)[:4]) or "none"
            message = f"expected one strategy, such as 'tensor: {{degree: 4}}', got {got}"
            problems.append(document.problem(path, message))
            continue
        kind, fields = next(iter(item.items()))
        if kind not in Strategy.kinds:
            message = f"unknown strategy '{shortened(kind)}'{did_you_mean(kind, Strategy.kinds)}"
            problems.append(document.problem((*path, kind), message, at_key=True))
            continue
        if not isinstance(fields, dict | None):
            example = f"{{{next(iter(Strategy.kinds[kind].model_fields))}: ...}}"
            message = f"expected the fields of '{kind}' as a mapping, such as {example}, got {shown(fields)}"
            problems.append(document.problem((*path, kind), message))
            continue
        try:
            found.append(Strategy.kinds[kind].model_validate(fields or {}))
        except ValidationError as error:
            problems += problems_of(error, Strategy.kinds[kind], document, (*path, kind))
    if problems:
        raise InputError(problems)
    return tuple(found)


_NAME = re.compile(r"\w[\w -]{0,39}")


def _pool(name: str, spec: PoolSpec, document: Document) -> Pool:
    at: Path_ = ("cluster", "pools", name)
    problems: list[Problem] = []
    if not _NAME.fullmatch(name):
        message = f"a pool's name has letters, digits, _ and - only, at most 40; got {shortened(repr(name))}"
        problems.append(document.problem(at, message, at_key=True))
    chip = _try(problems, _chip, name, spec.chip, document)
    for path, value in _flat(spec.override) if chip is not None else ():
        changed = _try(problems, _overridden, chip, path, value, document, (*at, "override", *path))
        chip = changed or chip
    reserve = 0.08 if spec.memory_reserve is None else float(spec.memory_reserve)
    if reserve >= 1:
        problems.append(document.problem((*at, "memory_reserve"), "must be a share of the memory, less than 100 %"))
    if wrong := unknown_stack(spec.stack):
        problems.append(document.problem((*at, "stack"), wrong))
    if problems or chip is None:
        raise InputError(problems)
    calibration = _try(problems, calibration_for, chip, spec.stack)
    if problems:
        raise InputError(problems)
    return Pool(name, chip, spec.count, reserve, spec.stack, calibration)


def _chip(pool: str, chip: str | dict[str, Any], document: Document) -> Chip:
    at: Path_ = ("cluster", "pools", pool, "chip")
    if isinstance(chip, dict):
        base = chip.get("extends")
        return chip_from(document, chip, at, f"{_stem(base)} as {pool}" if isinstance(base, str) else pool)
    try:
        return load_chip(_beside(chip, document.file))
    except InputError as error:
        raise InputError([_at(document, at, problem) for problem in error.problems]) from None


def _flat(table: dict[str, Any], at: Path_ = ()) -> list[tuple[Path_, Any]]:
    found = []
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            found += _flat(value, (*at, key))
        else:
            found.append(((*at, key), value))
    return found


def _overridden(chip: Chip, place: Path_, value: Any, document: Document, at: Path_) -> Chip:
    known = dict(chip.numbers())
    path = ".".join(str(part) for part in place)
    if path not in known:
        message = f"chip {chip.name} has no number '{shortened(path)}'{did_you_mean(path, known)}"
        raise InputError(document.problem(at, message))
    try:
        number = Unit(chip.dimension(path)).read(value)
    except ValueError as error:
        raise InputError(document.problem(at, str(error))) from None
    if wrong := unfit(path, number):
        raise InputError(document.problem(at, wrong))
    number.source = cited(number.source, chip.sources)
    return with_number(chip, path, number)


def _formats(spec: Dtypes, document: Document) -> Callable[[Model], tuple[Formats, str]]:
    """The scenario's formats, to be completed by what a model says."""
    found: dict[str, Format] = {}
    problems: list[Problem] = []
    for key, name in spec:
        try:
            if name:
                found[key] = fmt(name)
        except InputError as error:
            problems.append(document.problem(("dtypes", key), error.problems[0].message))
    if problems:
        raise InputError(problems)

    def complete(model: Model) -> tuple[Formats, str]:
        activations = found.get("activations", model.dtype)
        kv, kv_from = found.get("kv"), "the scenario"
        if kv is None and model.kv_dtype is not None:
            kv, kv_from = model.kv_dtype, "the checkpoint"
        if kv is None:
            kv, kv_from = activations, "the activations"
        return Formats(activations, kv, found.get("weights"), found.get("attention")), kv_from

    return complete


def _stem(name: str) -> str:
    """A name, or that of a file without its known suffix; other dots belong to the name (llama-3.1-8b)."""
    base = Path(name).name
    return next((base.removesuffix(suffix) for suffix in catalog.SUFFIXES if base.endswith(suffix)), base)


def _beside(name: str, file: str) -> str:
    """A relative path in a scenario is relative to the current folder, else to the scenario's file."""
    try:
        if catalog.is_path(name) and not Path(name).exists() and (near := Path(file).parent / name).exists():
            return str(near)
    except (OSError, ValueError):  # no name of a file; `catalog.find` says so
        pass
    return name
