"""Files of a result: CSV, JSON, plots and the trace."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from hwmodel.hardware import Chip
from hwmodel.plot import KINDS
from hwmodel.report.trace import write as write_trace
from hwmodel.result import Result
from hwmodel.spec.number import Number


def csv_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV with a header; nested values as JSON."""
    text = io.StringIO()
    write_csv(rows, text)
    return text.getvalue()


def write_csv(rows: Iterable[Mapping[str, Any]], file: TextIO) -> None:
    """The same into a file, row by row."""
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow({key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in row.items()})


def write_all(result: Result, folder: Path) -> list[Path]:
    """Write result.json, the tables as CSV, the plots and the trace into a folder; the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    found = result.to_dict()
    written = [folder / "result.json"]
    written[0].write_text(json.dumps(found, indent=1, allow_nan=False) + "\n")
    for name in ("ops", "layers", "pools", "links", "memory"):
        if found[name]:
            written.append(folder / f"{name}.csv")
            written[-1].write_text(csv_text(found[name]))
    for name, draw in KINDS.items():
        written.append(folder / f"{name}.png")
        draw(result, written[-1])
    written.append(folder / "trace.json")
    write_trace(result, written[-1])
    return written


def chip_dict(chip: Chip) -> dict[str, Any]:
    """A chip as ``hwmodel chips --json`` prints it: numbers in SI with range, status and source."""
    return {
        "name": chip.name,
        "title": chip.title,
        "kind": chip.kind,
        "peaks": {name: _number(value) for name, value in chip.peaks.by_dtype().items()},
        "memory": [_plain(tier) for tier in chip.memory],
        "links": [_plain(link) for link in chip.links],
        "execution": _plain(chip.execution),
        "efficiency": _plain(chip.efficiency),
        "power": _plain(chip.power),
        "price": _plain(chip.price),
        "unpublished": list(chip.unpublished),
    }


def _plain(spec: Any) -> dict[str, Any]:
    """Fields of a block by their SI names; empty ones and inherited provenance left out."""
    found: dict[str, Any] = {}
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if value is None or name in ("source", "status"):
            continue
        found[name] = _number(value) if isinstance(value, Number) else value
    return found


def _number(number: Number) -> dict[str, Any]:
    found: dict[str, Any] = {"value": float(number), "status": number.status, "source": number.source}
    return {**found, "low": number.low, "high": number.high} if number.ranged else found
