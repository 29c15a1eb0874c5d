"""From a name or a path to a `Model`: graphs/, YAML, config.json, a folder, with the ModelOpt file beside it."""

from __future__ import annotations

from pathlib import Path

from hwmodel.model.architecture import Model
from hwmodel.model.explicit import from_layers
from hwmodel.model.huggingface import from_huggingface
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import InputError, Problem
from hwmodel.spec.yamlfile import Document

CONFIG, COMPANION = "config.json", "hf_quant_config.json"


def load_model(name_or_path: str | Path) -> Model:
    """Load a model.

    Parameters
    ----------
    name_or_path
        A name in graphs/; or a path: a YAML of graphs/, a config.json, a folder that holds one (and perhaps
        hf_quant_config.json), or NAME.json with NAME.hf_quant.json beside it.

    Raises
    ------
    InputError
        When there is no such model, or with every problem of its files.
    """
    path = catalog.find("graphs", str(name_or_path))
    if path.is_dir():
        folder, path = path, path / CONFIG
        if not path.is_file():
            raise InputError(Problem(f"is a folder without a {CONFIG}", file=str(folder)))
    document = yamlfile.load(path)
    name = path.parent.resolve().name if path.name == CONFIG else path.stem
    if isinstance(document.value, dict) and isinstance(document.value.get("layers"), list):
        return from_layers(document, name)
    return from_huggingface(document, _companion(path), name)


def _companion(path: Path) -> Document | None:
    """Read the ModelOpt file that belongs to a config, if there is one."""
    beside = path.with_name(COMPANION if path.name == CONFIG else f"{path.stem}.hf_quant.json")
    return yamlfile.load(beside) if path.suffix == ".json" and beside.is_file() else None
