"""The base of every typed file: fields in, all problems out, each with its place and the nearest right thing.

A field's unit suffix is its declaration: ``bandwidth_bytes_per_s`` is written ``bandwidth: 3.35 TB/s`` in YAML.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from typing import Annotated, Any, TypeVar, Union

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator

from hwmodel.spec import units
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.spec.number import STATUSES, Number, Status, Unit
from hwmodel.spec.yamlfile import Document, Path_, dotted

Bytes = Annotated[Number, Unit("bytes")]
BytesPerSecond = Annotated[Number, Unit("bytes_per_s")]
FlopsPerSecond = Annotated[Number, Unit("flops_per_s")]
PerSecond = Annotated[Number, Unit("per_s")]
Seconds = Annotated[Number, Unit("s")]
Hertz = Annotated[Number, Unit("hz")]
Watts = Annotated[Number, Unit("watts")]
JoulesPerByte = Annotated[Number, Unit("joules_per_byte")]
Usd = Annotated[Number, Unit("usd")]
UsdPerHour = Annotated[Number, Unit("usd_per_hour")]
UsdPerKwh = Annotated[Number, Unit("usd_per_kwh")]
UsdPerGb = Annotated[Number, Unit("usd_per_gb")]
UsdPerMtok = Annotated[Number, Unit("usd_per_mtok")]
SquareMillimetres = Annotated[Number, Unit("mm2")]
Plain = Annotated[Number, Unit("number")]
"""A dimensionless number with provenance; per cent are understood."""

SUFFIXES = tuple(sorted((f"_{name}" for name in units.UNITS if name != "number"), key=len, reverse=True))


@cache
def yaml_key(name: str) -> str:
    """``bandwidth_bytes_per_s`` as ``bandwidth``."""
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


class Spec(BaseModel):
    """A frozen typed block of a file; its fields are its schema, its documentation and its error messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=yaml_key, populate_by_name=True, defer_build=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, raw: Any, info: ValidationInfo) -> Any:
        """Pydantic would read true as 1."""
        field = cls.model_fields.get(info.field_name or "")
        if isinstance(raw, bool) and field is not None and _counts(field.annotation):
            raise ValueError(f"expected a number, got {str(raw).lower()}")
        return raw


class MisplacedError(ValueError):
    """Mistakes that only the whole block shows, each with its path inside the block."""

    def __init__(self, places: list[tuple[Path_, str]]) -> None:
        self.places = places
        super().__init__("; ".join(f"{dotted(path)}: {message}" if path else message for path, message in places))


class Sourced(Spec):
    """A block whose `source` and `status` hold for every number in it that does not state its own."""

    source: str | None = None
    """Where the numbers of this block come from: URL or paper, date."""
    status: Status | None = None
    """How sure they are: published, derived, estimated or measured."""

    @model_validator(mode="before")
    @classmethod
    def _pass_down(cls, raw: Any) -> Any:
        if not isinstance(raw, dict):
            return raw
        given = {key: raw[key] for key in ("source", "status") if isinstance(raw.get(key), str)}
        if given.get("status", STATUSES[0]) not in STATUSES:  # said once, where it stands
            del given["status"]
        return {key: _passed(value, given, _is_quantity(cls, key)) if key not in given else value for key, value in raw.items()}


def _counts(annotation: Any) -> bool:
    """Whether a field holds plain numbers and no flags."""
    inner = typing.get_args(annotation)
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return any(_counts(part) for part in inner) and bool not in inner
    return annotation in (int, float) or (typing.get_origin(annotation) is Annotated and inner[0] in (int, float))


def _is_quantity(model: type[BaseModel], key: str) -> bool:
    return any(
        yaml_key(name) == key and any(isinstance(part, Unit) for part in _parts(field.annotation, field.metadata))
        for name, field in model.model_fields.items()
    )


def _parts(annotation: Any, metadata: list[Any]) -> list[Any]:
    parts = list(metadata)
    for inner in typing.get_args(annotation):
        parts += _parts(inner, []) if typing.get_origin(inner) is not None else [inner]
    return parts


def _passed(value: Any, given: dict[str, str], quantity: bool) -> Any:
    if quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        return {"value": value, **given}
    if isinstance(value, dict):
        return {**given, **value}
    if isinstance(value, list):
        return [{**given, **item} if isinstance(item, dict) else item for item in value]
    return value


Model = TypeVar("Model", bound=BaseModel)


def build(model: type[Model], document: Document, value: Any = None, at: Path_ = ()) -> Model:
    """Build `model` from a document's value, or raise one `InputError` with every problem in it.

    Parameters
    ----------
    value
        The part to read; the whole document when None.
    at
        The path of that part in the document, for the places in messages.
    """
    raw = document.value if value is None and not at else value
    if not isinstance(raw, dict):
        raise InputError(document.problem(at, f"expected a mapping of keys to values, got {shown(raw)}"))
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InputError(problems_of(error, model, document, at)) from None


MOST = 50
"""Problems of one file that are told; nobody reads more."""


def problems_of(error: ValidationError, model: type[BaseModel], document: Document, at: Path_) -> list[Problem]:
    """Pydantic's errors in the house's words, located in the document."""
    problems = []
    items = error.errors(include_url=False)
    for item in items[:MOST]:
        path = (*at, *(part for part in item["loc"] if part != "[key]"))
        kind = item["type"]
        whole = item.get("ctx", {}).get("error")
        if isinstance(whole, MisplacedError):
            problems += [document.problem((*path, *place), message) for place, message in whole.places]
            continue
        if kind == "extra_forbidden":
            known = [yaml_key(name) for name in (_model_at(model, item["loc"][:-1]) or model).model_fields]
            message = f"unknown key '{shortened(str(item['loc'][-1]))}'{did_you_mean(item['loc'][-1], known)}"
            problems.append(document.problem((*path[:-1], str(path[-1])), message, at_key=True))
        elif kind == "missing":
            problems.append(document.problem(path[:-1], f"missing key '{path[-1]}'"))
        else:
            problems.append(document.problem(path, _message(item, kind)))
    if len(items) > MOST:
        problems.append(document.problem(at, f"and {len(items) - MOST:,} more problems"))
    return problems


def _message(item: Any, kind: str) -> str:
    text = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "value_error":
        return text
    got, limits = shown(item.get("input")), item.get("ctx", {})
    if kind == "literal_error":
        words = [word.strip().strip("'") for word in limits["expected"].replace(" or ", ", ").split(",")]
        return f"{got} is not one of {', '.join(words)}{_near(item.get('input'), words)}"
    if kind == "string_type" and isinstance(item.get("input"), int | float):
        return f"expected text, got {got}; put it in quotes"
    if kind in _LIMITS:
        limit = next(limits[name] for name in ("ge", "le", "gt", "lt", "min_length", "max_length") if name in limits)
        if item.get("input") != item.get("input"):
            return f"expected a number, got {got}"
        return _LIMITS[kind].format(f"{limit:,.15g}" if isinstance(limit, float) else f"{limit:,}", got)
    expected = next((words for key, words in _EXPECTED.items() if kind.startswith(key)), None)
    return f"expected {expected}, got {got}" if expected else f"{text[:1].lower()}{text[1:]}, got {got}"


_LIMITS = {
    "greater_than_equal": "must be at least {}, got {}", "less_than_equal": "must be at most {}, got {}",
    "greater_than": "must be more than {}, got {}", "less_than": "must be less than {}, got {}",
    "too_short": "needs at least {} of them", "too_long": "takes at most {} of them",
    "string_too_short": "must not be empty", "string_too_long": "is longer than {} characters",
}  # fmt: skip
_EXPECTED = {
    "int": "a whole number", "float": "a number", "finite": "a finite number", "bool": "true or false",
    "string": "text", "dict": "a mapping of keys to values", "model": "a mapping of keys to values",
    "list": "a list", "tuple": "a list",
}  # fmt: skip


def shown(value: object) -> str:
    """A wrong value in a message, shortened."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of over 40 digits"
    if isinstance(value, dict | list | tuple) and len(value) > 3:
        return f"a {'mapping' if isinstance(value, dict) else 'list'} of {len(value)}"
    return shortened(repr(value))


def _near(word: object, words: list[str]) -> str:
    hint = did_you_mean(word, words)
    return hint if "did you mean" in hint else ""


def _model_at(model: Any, loc: tuple[str | int, ...]) -> type[BaseModel] | None:
    """The model class that `loc` leads to, through lists, dicts and optionals."""
    for part in loc:
        model = _step(model, part)
        if model is None:
            return None
    return _model_in(model)


def _step(annotation: Any, part: str | int) -> Any:
    model = _model_in(annotation)
    if model is not None and isinstance(part, str):
        for name, field in model.model_fields.items():
            if part in (name, yaml_key(name)):
                return field.annotation
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType, Annotated):
        for inner in typing.get_args(annotation):
            found = _step(inner, part)
            if found is not None:
                return found
        return None
    arguments = typing.get_args(annotation)
    return arguments[-1 if origin is dict else 0] if arguments else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) in (Union, types.UnionType, Annotated):
        return next((found for inner in typing.get_args(annotation) if (found := _model_in(inner))), None)
    return None
