"""A question: model, formats, cluster, plan and workload, as one YAML file states it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from hwmodel.hardware import Chip, Cluster, Pool, Wire, chip_from, load_chip, with_number
from hwmodel.lower.decoder import Formats
from hwmodel.model.architecture import Model
from hwmodel.model.block import Count, Size
from hwmodel.model.dtypes import fmt
from hwmodel.model.load import load_model
from hwmodel.partition import Strategy
from hwmodel.routing import Routing
from hwmodel.spec import catalog, units, yamlfile
from hwmodel.spec.errors import InputError, Problem, did_you_mean
from hwmodel.spec.schema import Plain, Spec, build, problems_of
from hwmodel.spec.yamlfile import Document, Path_

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
    override: dict[str, Any] = {}
    """Numbers of the chip to replace, by path: ``memory.hbm.bandwidth: 4 TB/s``."""


class ClusterSpec(Spec):
    """Pools by name, and the links between them."""

    pools: Annotated[dict[str, PoolSpec], Field(min_length=1)]
    links: tuple[Wire, ...] = ()


class Speculative(Spec):
    """Speculative decoding: drafted tokens are verified together."""

    draft: Annotated[int, Field(ge=1, le=32)]
    """Tokens drafted per step."""
    acceptance: Annotated[float, Field(ge=0, le=1)]
    """Probability that a drafted token is accepted, given that those before it were."""
    method: Literal["mtp", "free"] = "mtp"
    """mtp: the model's own multi-token-prediction module drafts, its time counted; free: drafting costs nothing."""

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens per sequence and step: (1 - a^(draft + 1)) / (1 - a) (Leviathan et al., ICML 2023, eq. 1)."""
        if self.acceptance == 1:
            return self.draft + 1.0
        return float((1 - self.acceptance ** (self.draft + 1)) / (1 - self.acceptance))


class Workload(Spec):
    """What one step works on."""

    phase: Literal["decode", "prefill", "mixed"] = "decode"
    batch: Size = 1
    """Sequences of the step, all chips together (in a mixed step: those that decode)."""
    context: Count = 0
    """Cached tokens that each decoding sequence attends to."""
    new_tokens: Count = 0
    """Prompt tokens that each prefilling sequence brings."""
    cached: Count = 0
    """Tokens of a prefilling sequence that are in the cache already."""
    prefill_batch: Size = 1
    """Prefilling sequences of a mixed step."""
    routing: Routing = Routing()
    speculative: Speculative | None = None
    kv_alloc: Literal["windowed", "full"] = "windowed"
    """Whether sliding-window layers hold the window only, or reserve the full length (engines without a hybrid cache)."""
    kv_block: Size = 1
    """Tokens per block of a paged cache; the last block of a sequence counts whole."""

    @model_validator(mode="after")
    def _complete(self) -> Workload:
        if self.phase != "prefill" and not self.context:
            raise ValueError(f"phase {self.phase} needs 'context', the cached tokens per sequence")
        if self.phase != "decode" and not self.new_tokens:
            raise ValueError(f"phase {self.phase} needs 'new_tokens', the prompt tokens per sequence")
        if self.speculative and self.phase == "prefill":
            raise ValueError("speculative decoding has no meaning in a prefill step")
        return self

    def symbols(self, parts: int = 1) -> dict[str, float]:
        """The workload symbols of one of `parts` micro-batches."""
        decodes = self.batch / parts if self.phase != "prefill" else 0.0
        prefills = (self.batch if self.phase == "prefill" else self.prefill_batch) / parts if self.phase != "decode" else 0.0
        queries = 1.0 + (self.speculative.draft if self.speculative else 0)
        return {
            "tokens": decodes * queries + prefills * self.new_tokens,
            "outputs": decodes * queries + prefills,
            "decode_sequences": decodes,
            "decode_queries": queries,
            "decode_context": float(self.context),
            "prefill_sequences": prefills,
            "prefill_new": float(self.new_tokens),
            "prefill_cached": float(self.cached),
        }


class ScenarioSpec(Spec):
    """The file of a scenario."""

    title: str = ""
    question: str = ""
    model: str
    """Name of a model, or path of a YAML or config.json."""
    dtypes: Dtypes = Dtypes()
    cluster: ClusterSpec
    plan: tuple[dict[str, Any], ...] = ()
    """Strategies, each ``- kind: {fields}``."""
    workload: Workload


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


def load_scenario(name: str, settings: Sequence[str] = ()) -> Scenario:
    """A scenario by name or path, with ``key.path=value`` settings over it.

    Raises
    ------
    InputError
        Every problem of the file, its chips and its model, each with its place.
    """
    document = yamlfile.load(catalog.find("scenarios", name))
    return scenario_from(override(document, settings), Path(name).stem)


def from_options(options: Mapping[str, Any], settings: Sequence[str] = ()) -> Scenario:
    """A scenario from command-line options alone: one pool of equal chips.

    options : model, chip (both needed), count, tp, ep, pp, batch, context, phase, weights, kv, stack
    """
    missing = [f"--{key}" for key in ("model", "chip") if key not in options]
    if missing:
        raise InputError(f"name a scenario, or give {' and '.join(missing)} ('hwmodel models' and 'hwmodel chips' list what is known)")
    phase = options.get("phase", "decode")
    pool = {"chip": options["chip"], "count": options.get("count", 1), "stack": options.get("stack", "")}
    plan: list[dict[str, Any]] = [
        {kind: {field_: options[key]}}
        for key, kind, field_ in (("tp", "tensor", "degree"), ("ep", "expert", "degree"), ("pp", "pipeline", "stages"))
        if options.get(key, 1) > 1
    ]
    workload: dict[str, Any] = {"phase": phase, "batch": options.get("batch", 1)}
    length = options.get("context", 2048)
    workload |= {"new_tokens": length} if phase == "prefill" else {"context": length}
    if phase == "mixed":
        workload["new_tokens"] = 512
    value = {
        "model": options["model"], "cluster": {"pools": {"chips": pool}}, "plan": plan, "workload": workload,
        "dtypes": {key: options[key] for key in ("weights", "kv") if key in options},
    }  # fmt: skip
    document = Document("options", value, {}, ())
    name = f"{Path(options['model']).stem} on {options.get('count', 1)} x {Path(options['chip']).stem}"
    return scenario_from(override(document, settings), name)


def scenario_from(document: Document, name: str) -> Scenario:
    """A scenario from a parsed document."""
    spec = build(ScenarioSpec, document)
    model = load_model(_beside(spec.model, document.file))
    pools = [_pool(key, pool, document) for key, pool in spec.cluster.pools.items()]
    cluster = Cluster(tuple(pools), spec.cluster.links)
    for index, wire in enumerate(spec.cluster.links):
        _check_wire(wire, cluster, document, index)
    plan = read_plan(document, spec.plan)
    formats, kv_from = _formats(spec.dtypes, model, document)
    for strategy in plan:
        _check_pools(strategy, cluster, document)
    return Scenario(name, model, formats, cluster, plan, spec.workload, kv_from, spec.title)


def read_plan(document: Document, items: Sequence[dict[str, Any]]) -> tuple[Strategy, ...]:
    """Strategies from ``- kind: {fields}`` entries; all problems at once."""
    found: list[Strategy] = []
    problems: list[Problem] = []
    for index, item in enumerate(items):
        path: Path_ = ("plan", index)
        if len(item) != 1:
            problems.append(document.problem(path, "expected one strategy, such as 'tensor: {degree: 4}'"))
            continue
        kind, fields = next(iter(item.items()))
        if kind not in Strategy.kinds:
            problems.append(document.problem((*path, kind), f"unknown strategy '{kind}'{did_you_mean(kind, Strategy.kinds)}", at_key=True))
            continue
        if not isinstance(fields, dict | None):
            problems.append(document.problem((*path, kind), f"expected the fields of '{kind}' as a mapping"))
            continue
        try:
            found.append(Strategy.kinds[kind].model_validate(fields or {}))
        except ValidationError as error:
            problems += problems_of(error, Strategy.kinds[kind], document, (*path, kind))
    if problems:
        raise InputError(problems)
    return tuple(found)


def override(document: Document, settings: Sequence[str]) -> Document:
    """The document with ``key.path=value`` settings over it; lists are indexed by number."""
    value = document.value
    marks = dict(document.marks)
    given = dict(document.given)
    for text in settings:
        key, equals, raw = text.partition("=")
        if not equals or not key.strip():
            raise InputError(Problem("expected key.path=value, such as workload.batch=64", file=f"--set {text}"))
        path = tuple(int(part) if part.isdigit() else part for part in key.strip().split("."))
        new = yamlfile.parse_yaml(raw, f"--set {text}").value
        value, path = _put(value, path, new, text)
        marks = {place: mark for place, mark in marks.items() if place[: len(path)] != path}
        given[path] = text
    return Document(document.file, value, marks, document.lines, given)


def _put(value: Any, path: Path_, new: Any, text: str, done: Path_ = ()) -> tuple[Any, Path_]:
    """`value` with `new` at `path`, copied along the way; and the path as it was found."""
    if not path:
        return new, done
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        if not isinstance(head, int) or head >= len(value):
            where = yamlfile.dotted(done) or "the file"
            raise InputError(Problem(f"{where} is a list of {len(value)}; index it by number", file=f"--set {text}"))
        inner, found = _put(value[head], rest, new, text, (*done, head))
        return [*value[:head], inner, *value[head + 1 :]], found
    if not isinstance(value, dict | None):
        raise InputError(Problem(f"{yamlfile.dotted(done)} is a single value, it has no key '{head}'", file=f"--set {text}"))
    table = value or {}
    key = head if head in table or str(head) not in table else str(head)
    inner, found = _put(table.get(key), rest, new, text, (*done, key))
    return {**table, key: inner}, found


def _pool(name: str, spec: PoolSpec, document: Document) -> Pool:
    at: Path_ = ("cluster", "pools", name)
    if isinstance(spec.chip, str):
        try:
            chip = load_chip(_beside(spec.chip, document.file))
        except InputError as error:
            raise InputError([document.problem((*at, "chip"), f"chip '{spec.chip}' cannot be used"), *error.problems]) from None
    else:
        chip = chip_from(document, spec.chip, (*at, "chip"))
    for path, value in _flat(spec.override):
        chip = _overridden(chip, path, value, document, (*at, "override"))
    reserve = 0.08 if spec.memory_reserve is None else float(spec.memory_reserve)
    if reserve >= 1:
        raise InputError(document.problem((*at, "memory_reserve"), "a share of the memory, less than 100 %"))
    return Pool(name, chip, spec.count, reserve, spec.stack)


def _flat(table: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _overridden(chip: Chip, path: str, value: Any, document: Document, at: Path_) -> Chip:
    known = dict(chip.numbers())
    if path not in known:
        raise InputError(document.problem(at, f"chip {chip.name} has no number '{path}'{did_you_mean(path, known)}"))
    try:
        return with_number(chip, path, units.parse(value, chip.dimension(path)))
    except ValueError as error:
        raise InputError(document.problem(at, f"{path}: {error}")) from None


def _check_wire(wire: Wire, cluster: Cluster, document: Document, index: int) -> None:
    names = [pool.name for pool in cluster.pools]
    for key, name in (("from", wire.from_), ("to", wire.to), ("per", wire.per)):
        if name and name not in names:
            raise InputError(document.problem(("cluster", "links", index, key), f"no pool named '{name}'{did_you_mean(name, names)}"))


def _check_pools(strategy: Strategy, cluster: Cluster, document: Document) -> None:
    names = [pool.name for pool in cluster.pools]
    named = [getattr(strategy, key) for key in ("pool", "to") if getattr(strategy, key, "")]
    named += list(getattr(strategy, "split", {}))
    for name in named:
        if name not in names:
            raise InputError(document.problem(("plan",), f"{strategy.kind}: no pool named '{name}'{did_you_mean(name, names)}"))


def _formats(spec: Dtypes, model: Model, document: Document) -> tuple[Formats, str]:
    def read(key: str, name: str) -> Any:
        try:
            return fmt(name)
        except InputError as error:
            raise InputError(document.problem(("dtypes", key), error.problems[0].message)) from None

    activations = read("activations", spec.activations) if spec.activations else model.dtype
    weights = read("weights", spec.weights) if spec.weights else None
    attention = read("attention", spec.attention) if spec.attention else None
    kv, kv_from = activations, "the activations"
    if spec.kv:
        kv, kv_from = read("kv", spec.kv), "the scenario"
    elif model.kv_dtype is not None:
        kv, kv_from = model.kv_dtype, "the checkpoint"
    return Formats(activations, kv, weights, attention), kv_from


def _beside(name: str, file: str) -> str:
    """A relative path in a scenario is relative to the current folder, else to the scenario's file."""
    if catalog.is_path(name) and not Path(name).exists() and (near := Path(file).parent / name).exists():
        return str(near)
    return name
