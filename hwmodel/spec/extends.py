"""Files that say ``extends: OTHER`` and state only what differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, shortened
from hwmodel.spec.yamlfile import Document, Path_

_DEEPEST = 8
Check = Callable[[Any, Document], object]


def extended(
    room: str, document: Document, raw: Any, at: Path_, check: Check, seen: tuple[str, ...] = ()
) -> tuple[Any, Document]:
    """`raw` over the file it extends, and the document with the places of the merged lists.

    The other file is checked on its own first, so that its mistakes are shown where they stand. Its `name` is not taken
    over.

    Parameters
    ----------
    check
        Called with the other file's value and document; raises when that is no usable whole.
    seen
        Resolved paths of the files that led here.
    """
    if not isinstance(raw, dict) or "extends" not in raw:
        return raw, document
    seen = seen or (_resolved(document.file),)
    path = _found(room, document, raw["extends"], (*at, "extends"), seen)
    below = yamlfile.load(path)
    inner, inner_places = extended(room, below, below.value, (), check, (*seen, _resolved(path)))
    check({"name": path.stem, **inner} if isinstance(inner, dict) else inner, inner_places)
    moved: dict[Path_, Path_] = {}
    own = {key: item for key, item in raw.items() if key != "extends"}
    inner = {key: item for key, item in inner.items() if key != "name"}
    return merged(inner, own, at, moved), document.moved(moved)


def _found(room: str, document: Document, base: Any, place: Path_, seen: tuple[str, ...]) -> Path:
    """The file that `extends` names: relative to the file that says it; shipped, when it would lead back to itself."""
    if not isinstance(base, str):
        raise InputError(document.problem(place, f"expected the name or path of one of {room}/"))
    beside = catalog.is_path(base) and not Path(base).is_absolute()
    try:
        path = catalog.find(room, str(Path(document.file).parent / base) if beside else base)
    except InputError as error:
        raise InputError([document.problem(place, problem.message) for problem in error.problems]) from None
    if _resolved(path) in seen:  # a file that shadows a shipped one means that one
        path = catalog.shipped(room) / path.name
    if _resolved(path) in seen or not path.is_file() or len(seen) > _DEEPEST:
        message = f"'{shortened(base)}' leads back to this file, or is the last of too many"
        raise InputError(document.problem(place, message))
    return path


def _resolved(path: str | Path) -> str:
    return str(Path(path).resolve())


def merged(base: Any, layer: Any, at: Path_, moved: dict[Path_, Path_]) -> Any:
    """`layer` over `base`: mappings key by key, lists of named items name by name, everything else replaced.

    moved : filled with the paths of list items of `layer` that stand elsewhere in the result
    """
    if isinstance(base, dict) and isinstance(layer, dict):
        if "value" in layer or "value" in base:
            return layer
        return {**base, **{key: merged(base.get(key), item, (*at, key), moved) for key, item in layer.items()}}
    if isinstance(base, list) and isinstance(layer, list) and layer:
        key = next((k for k in ("tier", "name") if all(_is_named(item, k) for item in base + layer)), None)
        return layer if key is None else _by_name(key, base, layer, at, moved)
    return base if layer is None else layer


def _by_name(key: str, base: list[Any], layer: list[Any], at: Path_, moved: dict[Path_, Path_]) -> list[Any]:
    result, names = list(base), [item[key] for item in base]
    for index, item in enumerate(layer):
        if item[key] in names:
            to = names.index(item[key])
            result[to] = merged(result[to], item, (*at, index), moved)
        else:
            to = len(result)
            result.append(item)
        moved[(*at, index)] = (*at, to)
    return result


def _is_named(item: Any, key: str) -> bool:
    return isinstance(item, dict) and isinstance(item.get(key), str)
