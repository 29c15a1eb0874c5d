"""Each shipped scenario gives the report it gave before; a change that moves one says so in the change list."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec import catalog

GOLDEN = Path(__file__).parent / "golden"
SCENARIOS = catalog.names("scenarios")


def report(name: str) -> dict[str, Any]:
    """What a scenario's golden file holds: the answer without sources and version, six digits."""
    found = run(load_scenario(name)).to_dict()
    kept = {
        key: found[key] for key in ("feasible", "reasons", "step", "memory", "pools", "links", "layers", "cost", "warnings")
    }
    kept["ops"] = [
        {key: op[key] for key in ("op", "pool", "count", "flops", "bytes", "time_s", "bound")} for op in found["ops"]
    ]
    kept["estimated_inputs"] = [item["input"] for item in found["estimated_inputs"][:5]]
    return rounded(kept)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return value


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for key in old.keys() | new.keys() for line in differences(old.get(key), new.get(key), f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for i, (a, b) in enumerate(zip(old, new, strict=True)) for line in differences(a, b, f"{path}[{i}]")]
    if isinstance(old, int | float) and isinstance(new, int | float) and not isinstance(old, bool):
        same = math.isclose(old, new, rel_tol=2e-5, abs_tol=1e-12)
        return [] if same else [f"{path}: {old} -> {new}"]
    return [] if old == new else [f"{path}: {old} -> {new}"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_gives_its_golden_report(name: str, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{name}.json"
    found = report(name)
    if request.config.getoption("--write-golden"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert path.exists(), f"no golden report for scenario {name}; write it with pytest --write-golden"
    moved = differences(json.loads(path.read_text()), found)
    assert not moved, "moved:\n" + "\n".join(sorted(moved)[:20])


def test_every_golden_report_has_its_scenario() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(SCENARIOS)
