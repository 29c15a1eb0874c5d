"""JSON Schema of every kind of file, generated from the code that reads it."""

from __future__ import annotations

import ast
import inspect
import textwrap
import warnings
from typing import Any

from pydantic import BaseModel

from hwmodel.calibration import Calibration
from hwmodel.hardware import Chip
from hwmodel.model.schema import model_schema
from hwmodel.partition import Strategy
from hwmodel.published_rows import Notes
from hwmodel.scenario import ScenarioSpec
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.spec import Serving
from hwmodel.served.stack import Stack
from hwmodel.spec.schema import yaml_key
from hwmodel.sweep.axes import SweepSpec

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: str) -> dict[str, Any]:
    """The schema of ``chip``, ``model``, ``scenario``, ``sweep``, ``calibration`` or ``stack`` files.

    Or of ``notes``, what is known of published figures.
    """
    found = {
        "chip": _chip,
        "model": model_schema,
        "scenario": _scenario,
        "sweep": _sweep,
        "calibration": _calibration,
        "stack": _stack,
        "notes": _notes,
    }[kind]()
    return {"$schema": DRAFT, **found, "title": f"hwmodel {kind}"}


def _chip() -> dict[str, Any]:
    found = described(Chip)
    found["properties"]["extends"] = {
        "type": "string",
        "description": "Name or path of a chip; this file states what differs.",
    }
    return _relaxed(found)


def _calibration() -> dict[str, Any]:
    return described(Calibration)


def _stack() -> dict[str, Any]:
    return described(Stack)


def _notes() -> dict[str, Any]:
    return described(Notes)


def _sweep() -> dict[str, Any]:
    return described(SweepSpec)


def _relaxed(found: dict[str, Any]) -> dict[str, Any]:
    """A file that extends another need not repeat what that one states."""
    found.pop("required", None)
    for part in found.get("$defs", {}).values():
        part.pop("required", None)
    return found


def _scenario() -> dict[str, Any]:
    found = described(ScenarioSpec)
    definitions = found.setdefault("$defs", {})
    choices = {}
    for name, strategy in sorted(Strategy.kinds.items()):
        part = described(strategy)
        definitions.update(part.pop("$defs", {}))
        definitions[f"strategy_{name}"] = part
        choices[name] = {"$ref": f"#/$defs/strategy_{name}"}
    found["properties"]["plan"]["items"] = {
        "type": "object",
        "properties": choices,
        "additionalProperties": False,
        "maxProperties": 1,
        "minProperties": 1,
    }
    found["properties"]["serving"] = _serving(definitions)
    return found


def _serving(definitions: dict[str, Any]) -> dict[str, Any]:
    """The section of a service, its schedulers written out."""
    found = described(Serving)
    definitions.update(found.pop("$defs", {}))
    choices = {}
    for name, scheduler in sorted(Scheduler.kinds.items()):
        definitions[f"scheduler_{name}"] = described(scheduler)
        choices[name] = {"$ref": f"#/$defs/scheduler_{name}"}
    one = {"type": "object", "properties": choices, "additionalProperties": False, "maxProperties": 1, "minProperties": 1}
    told = found["properties"]["scheduler"].get("description", "")
    found["properties"]["scheduler"] = {"anyOf": [{"enum": sorted(choices)}, one], "description": told}
    return found


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Pydantic's schema of a block with the text below each field as its description."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # defaults that are quantities have no JSON form; the text says them
        found = model.model_json_schema(by_alias=True)
    docs = _docs(model)
    for part in (found, *found.get("$defs", {}).values()):
        own = docs.get(part.get("title", ""), {})
        for key, value in part.get("properties", {}).items():
            if key in own:
                value["description"] = own[key]
    return found


def _docs(model: type[BaseModel]) -> dict[str, dict[str, str]]:
    """Texts below the fields of a model, of its bases and of the models inside it, by class name."""
    found: dict[str, dict[str, str]] = {}
    queue: list[Any] = [model]
    while queue:
        part = queue.pop()
        queue += getattr(part, "__args__", ())
        if not (isinstance(part, type) and issubclass(part, BaseModel)) or part.__name__ in found:
            continue
        found[part.__name__] = {}
        for base in reversed(part.__mro__):
            if isinstance(base, type) and issubclass(base, BaseModel) and base is not BaseModel:
                found[part.__name__] |= _texts(base)
        queue += [field.annotation for field in part.model_fields.values()]
    return found


def _texts(model: type[BaseModel]) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    texts = {}
    if isinstance(body, ast.ClassDef):
        for before, after in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(before, ast.AnnAssign)
                and isinstance(before.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                texts[yaml_key(before.target.id)] = " ".join(after.value.value.split())
    return texts
