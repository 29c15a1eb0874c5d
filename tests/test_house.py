"""The house itself: sizes, names, what may print, schemas, one file per addition."""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from hwmodel.hardware import Chip, MemoryTier
from hwmodel.schemas import schema
from hwmodel.spec.number import Unit
from hwmodel.spec.schema import SUFFIXES, Spec
from hwmodel.spec.write import modeline

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "hwmodel").rglob("*.py"))
ROOMS = {
    "chips": "chip",
    "graphs": "model",
    "scenarios": "scenario",
    "sweeps": "sweep",
    "chips/calibrations": "calibration",
    "stacks": "stack",
    "measured": "notes",
}
YAMLS = [path for room in ROOMS for path in sorted((ROOT / room).glob("*.yaml"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_hold_one_idea_and_functions_fit_on_a_screen(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 450
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            own = node.end_lineno - node.lineno + 1 - len((ast.get_docstring(node) or "").splitlines())
            assert own <= 70, f"{node.name} has {own} lines"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_terminal_prints_and_nothing_is_evaluated(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"eval", "exec"}
    if path.name != "terminal.py":
        assert "print" not in calls


def test_no_rooms_for_everything() -> None:
    names = {path.stem for path in SOURCES}
    assert not names & {"utils", "util", "common", "helpers", "misc", "manager", "factory", "registry"}


def test_every_room_has_its_place_among_the_layers() -> None:
    text = (ROOT / ".importlinter").read_text()
    layers = text.partition("[importlinter:contract:rooms]")[2].partition("[importlinter:contract:")[0]
    placed = set(re.findall(r"hwmodel\.(\w+)", layers))
    rooms = {path.relative_to(ROOT / "hwmodel").parts[0].removesuffix(".py") for path in SOURCES}
    assert rooms - {"__init__", "__main__"} == placed


def test_every_strategy_and_scheduler_is_held_apart_from_the_others() -> None:
    text = (ROOT / ".importlinter").read_text()
    for folder, shared in (("partition", {"strategy", "verify"}), ("serve/schedulers", {"scheduler"})):
        room = "hwmodel." + folder.replace("/", ".")
        own = {path.stem for path in (ROOT / "hwmodel" / folder).glob("*.py")} - shared - {"__init__"}
        assert own == set(re.findall(rf"{re.escape(room)}\.(\w+)", text))


def specs(base: type[Spec] = Spec) -> list[type[Spec]]:
    return [found for inner in base.__subclasses__() for found in (inner, *specs(inner))]


@pytest.mark.parametrize("model", specs(), ids=lambda model: model.__name__)
def test_a_unit_in_the_value_is_a_unit_in_the_name(model: type[Spec]) -> None:
    for name, field in model.model_fields.items():
        text = str(field.annotation) + str(field.metadata)
        for part in [*field.metadata, *re.findall("", text)]:
            if isinstance(part, Unit) and part.dimension != "number":
                assert name.endswith(f"_{part.dimension}"), f"{model.__name__}.{name} is in {part.dimension}"


def test_suffixes_do_not_hide_one_another() -> None:
    assert Chip.model_fields.keys() >= {"area_mm2", "clock_hz"}
    assert "bandwidth_bytes_per_s" in MemoryTier.model_fields
    assert SUFFIXES.index("_bytes_per_s") < SUFFIXES.index("_s")


@pytest.mark.parametrize("path", YAMLS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_yaml_points_at_its_schema_and_states_no_machine_path(path: Path) -> None:
    text = path.read_text()
    room = str(path.parent.relative_to(ROOT))
    up = "../" * len(Path(room).parts)
    assert text.startswith(f"# yaml-language-server: $schema={up}schemas/{ROOMS[room]}.json\n")
    assert isinstance(yaml.safe_load(text), dict)
    assert not re.search(r"(?<![\w.:/])/(work|tmp|root|home)/", text)


@pytest.mark.parametrize("path", [p for p in YAMLS if p.parent.name in ("calibrations", "stacks")], ids=lambda p: p.stem)
def test_a_shipped_file_written_again_has_the_line_that_it_has(path: Path) -> None:
    kind = ROOMS[str(path.parent.relative_to(ROOT))]
    assert path.read_text().startswith(f"# {modeline(kind, path)}\n")


@pytest.mark.parametrize("folder", ["", "a/b/c", "with a blank", "x#1"])
def test_a_file_written_anywhere_points_at_a_schema_that_is_there(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path from the file's folder, as editors take it, or a URL; both up to the first blank."""
    shipped = tmp_path / folder / "data"
    shipped.mkdir(parents=True)
    (shipped / "chip.json").write_text("{}")
    monkeypatch.setattr("hwmodel.spec.catalog.shipped", lambda _: shipped)
    monkeypatch.chdir(tmp_path)
    for name in ("x.yaml", "my/chips/x.yaml", str(tmp_path / "y" / "x.yaml")):
        (target,) = re.findall(r"^yaml-language-server: \$schema=(\S+)$", modeline("chip", Path(name)))
        found = Path(unquote(target.removeprefix("file://"))) if target.startswith("file://") else Path(name).parent / target
        assert os.path.normpath(found.absolute()) == str(shipped / "chip.json")


def test_what_is_read_beside_the_package_is_in_its_wheel() -> None:
    """And in the archive of its sources, whose tests read it."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    inside = {name: f"hwmodel/data/{name}" for name in (*(room for room in ROOMS if "/" not in room), "schemas")}
    assert built["wheel"]["force-include"] == inside
    assert inside.keys() <= set(built["sdist"]["include"])


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem)
def test_files_that_a_page_shows_point_at_their_schema(page: Path) -> None:
    """From the root of a checkout, where the page's commands are tried."""
    for text in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        name, line = text.splitlines()[:2]
        assert re.fullmatch(r"# \S+\.yaml", name)
        kind = "chip" if "peaks:" in text else "sweep" if "axes:" in text else "scenario"
        assert line == f"# yaml-language-server: $schema=schemas/{kind}.json"


def test_no_yaml_stands_outside_the_rooms() -> None:
    """So each one has its schema, and the test above says so; those of the CI are not shipped."""
    found = {path.parent for path in ROOT.rglob("*.y*ml") if not {".venv", ".git", ".ci", "build"} & set(path.parts)}
    assert found == {ROOT / room for room in ROOMS}


@pytest.mark.parametrize("kind", ROOMS.values())
def test_schemas_are_those_of_the_code(kind: str) -> None:
    assert json.loads((ROOT / "schemas" / f"{kind}.json").read_text()) == schema(kind)


def test_every_kernel_says_its_units() -> None:
    for path in sorted((ROOT / "hwmodel" / "kernels").glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name == "price":
                text = ast.get_docstring(node) or ""
                assert "(s)" in text.splitlines()[0], f"{path.name}: the first line of price says no unit"
                assert "dims : (points, ops" in text, f"{path.name}: price does not say its shapes"
