"""Each shipped service gives the report it gave before, from the requests that its scenario makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_golden import differences, rounded

from hwmodel.serve.result import to_dict
from hwmodel.serve.simulate import answer, load_service, requests_of
from hwmodel.spec import catalog, yamlfile

GOLDEN = Path(__file__).parent / "golden" / "serving"
SERVICES = [name for name in catalog.names("scenarios") if "serving" in yamlfile.load(catalog.find("scenarios", name)).value]
MOVING = ("wall_s", "requests_per_wall_s", "version")
"""What differs from machine to machine, or with every release."""


@pytest.mark.parametrize("name", SERVICES)
def test_service_gives_its_golden_report(name: str, request: pytest.FixtureRequest) -> None:
    service = load_service(name)
    found = rounded({k: v for k, v in to_dict(answer(service, requests_of(service))).items() if k not in MOVING})
    path = GOLDEN / f"{name}.json"
    if request.config.getoption("--write-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert path.exists(), f"no golden report for service {name}; write it with pytest --write-golden"
    moved = differences(json.loads(path.read_text()), found)
    assert not moved, "moved:\n" + "\n".join(sorted(moved)[:20])


def test_there_is_a_service() -> None:
    assert "w1_llama_8b_h100" in SERVICES
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(SERVICES)
