"""What a sweep was asked, for the manifest beside its file: inputs, hashes, versions; and what of it has changed."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np

from hwmodel import __version__
from hwmodel.spec.errors import shortened
from hwmodel.sweep.chunks import CHUNK, Pricer

LONG = 200
"""Characters of a value; of a longer one the hash is kept."""


def inputs(pricer: Pricer) -> dict[str, Any]:
    """Values of the sweep's file by path, a hash of every scenario with its chips and model, and versions."""
    spec = pricer.space.spec.model_dump(mode="json", exclude={"title", "question"})
    scenarios: dict[str, str] = {}
    for combination in pricer.space.combinations:
        own = combination.scenario
        scenarios[own.name] = _hash(scenarios.get(own.name, "") + repr(own))
    return {
        "sweep": {path: _short(value) for path, value in _flat(spec, ("axes", "set", "random", "objectives")).items()},
        "scenarios": scenarios,
        "versions": {"hwmodel": __version__, "numpy": np.__version__, "python": platform.python_version()},
    }


def fingerprint(pricer: Pricer) -> str:
    """What must be the same for a sweep to be gone on with: the question, the columns, the program's version."""
    said = json.dumps([pricer.space.text, pricer.names, pricer.words, CHUNK, __version__])
    return hashlib.sha256(said.encode()).hexdigest()


def difference(old: Any, new: Mapping[str, Any]) -> str:
    """In words, the first things in which the inputs of a manifest and those of now differ."""
    if not isinstance(old, Mapping):
        return "its manifest does not say its inputs"
    before, now = (said.get("sweep") or {} for said in (old, new))
    found = [
        f"{path} was {_said(before.get(path))} and is {_said(now.get(path))}"
        for path in dict.fromkeys((*before, *now)) if before.get(path) != now.get(path)
    ]  # fmt: skip
    before, now = (said.get("scenarios") or {} for said in (old, new))
    changed = [name for name in now if before.get(name) != now[name]]
    if changed and not found:
        found.append(f"scenario {changed[0]}, or its chips or model, has changed")
    before, now = ((said.get("versions") or {}).get("hwmodel") for said in (old, new))
    if before != now:
        found.append(f"hwmodel {before} wrote it, this is {now}")
    more = f", and {len(found) - 3} more" if len(found) > 3 else ""
    return "; ".join(found[:3]) + more or "columns or chunks of this version differ"


def _flat(value: Mapping[str, Any], inner: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, own in value.items():
        if key in inner and isinstance(own, Mapping):
            found |= {f"{key}.{path}": one for path, one in own.items()}
        else:
            found[key] = own
    return found


def _short(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= LONG else f"sha256 {_hash(text)}"


def _said(value: Any) -> str:
    return "not there" if value is None else shortened(json.dumps(value), 60)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
