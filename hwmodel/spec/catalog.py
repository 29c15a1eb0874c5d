"""From a name to a file: the current folder first, then what ships with the package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened

SUFFIXES = (".yaml", ".yml", ".json")
ROWS = (".csv", ".parquet", ".jsonl")
"""Of files of rows, which are no question: points of a sweep, requests."""
_ROOMS = {
    "stacks": "stack",
    "sweeps": "sweep",
    "chips": "chip",
    "graphs": "model",
    "scenarios": "scenario",
    "chips/calibrations": "calibration",
}
"""Folders, and what one file of each is."""
notes: list[Callable[[str], None]] = []
"""Called with a sentence when a shipped name is shadowed; the command line prints it."""


@cache
def shipped(room: str) -> Path:
    """The folder of shipped files of a room: inside an installed wheel, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / room
    return installed if installed.is_dir() else package.parent / room


def names(room: str) -> list[str]:
    """Every name that `find` would accept, shadowed ones once."""
    found: set[str] = set()
    for folder in (Path(room), shipped(room)):
        if folder.is_dir():
            found |= {path.stem for path in folder.iterdir() if path.suffix in SUFFIXES[:2]}
    return sorted(found)


def is_path(name: str) -> bool:
    """Whether a NAME is meant as a path: it has a slash or a known suffix."""
    return "/" in name or "\\" in name or name.endswith(SUFFIXES)


def find(room: str, name: str) -> Path:
    """The file of `name` in its room, chips/, graphs/ and so on, or `name` itself when it is a path.

    Raises
    ------
    InputError
        When there is none, with the nearest known names.
    """
    kind = _ROOMS[room]
    if not name.strip() or "\0" in name or len(name) > 1000:
        raise InputError(f"expected the name or path of a {kind}, got {shortened(repr(name))}")
    if name.endswith(ROWS):
        raise InputError(Problem(_rows(Path(name), kind), file=name))
    if is_path(name):
        path = Path(name)
        try:
            if path.exists():
                return path
            reason = f"no such file ({kind})"
            if path.parent.is_dir():
                near = {other.removesuffix(path.suffix): other for other in _siblings(path.parent)}
                hint = did_you_mean(path.name.removesuffix(path.suffix), near)
                reason += hint if "did you mean" in hint else ""
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
        raise InputError(Problem(reason, file=name))
    local, packaged = (_in(folder, name) for folder in (Path(room), shipped(room)))
    if local is not None and packaged is not None and local.resolve() != packaged.resolve():
        for note in notes:
            note(f"{local} is used; it shadows the shipped {kind} '{name}'")
    found = local or packaged
    if found is None:
        here = [path for path in (Path(f"{name}{suffix}") for suffix in SUFFIXES) if path.is_file()]
        here += [Path(name)] if (Path(name) / "config.json").is_file() else []
        lists = "" if "/" in room else f" ('hwmodel {'models' if room == 'graphs' else room}' lists them)"
        hint = f", did you mean the path ./{here[0]}?" if here else did_you_mean(name, names(room)) or lists
        raise InputError(f"no {kind} named '{shortened(name)}'{hint}")
    return found


def _rows(path: Path, kind: str) -> str:
    """What to say of a file of rows where a YAML is asked for."""
    try:
        there = path.exists()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    uses = "points of a sweep go to 'hwmodel plot' and 'compare', requests to 'hwmodel trace' and 'simulate --trace'"
    return f"is no {kind} but rows: {uses}" if there else "no such file"


def _in(folder: Path, name: str) -> Path | None:
    try:
        return next((path for suffix in SUFFIXES[:2] if (path := folder / f"{name}{suffix}").is_file()), None)
    except OSError:  # a name too long for a file
        return None


def _siblings(folder: Path) -> list[str]:
    return [path.name for path, _ in zip(folder.iterdir(), range(2000), strict=False) if path.suffix in SUFFIXES]
