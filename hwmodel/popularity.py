"""Measured counts of tokens by layer and expert, from a file to the routing of a scenario."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hwmodel.lower.moe import Moe
from hwmodel.model.architecture import Model
from hwmodel.routing import LayerCounts, Routing
from hwmodel.spec import yamlfile
from hwmodel.spec.errors import InputError, Problem, did_you_mean, shortened
from hwmodel.spec.schema import Spec, build
from hwmodel.spec.yamlfile import Document, Path_

COLUMNS = ("layer", "expert", "count")


class Row(Spec):
    """Tokens that one expert of one layer was given."""

    layer: Annotated[int, Field(ge=0, le=100_000)]
    expert: Annotated[int, Field(ge=0, le=100_000)]
    count: Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class Counts(Spec):
    """The file."""

    rows: Annotated[tuple[Row, ...], Field(min_length=1)]


def load_counts(path: Path) -> tuple[LayerCounts, ...]:
    """Read counts: a CSV with a header, or a YAML or JSON with `rows`. An expert without a row was given no token.

    Raises
    ------
    InputError
        With every problem of the file, each with its line and column.
    """
    document = _csv(path) if path.suffix.lower() == ".csv" else yamlfile.load(path)
    layers: dict[int, dict[int, float]] = {}
    problems = []
    for number, row in enumerate(build(Counts, document).rows):
        experts = layers.setdefault(row.layer, {})
        if row.expert in experts:
            problems.append(document.problem(("rows", number), f"expert {row.expert} of layer {row.layer} is counted twice"))
        experts[row.expert] = row.count
    problems += [
        Problem(f"layer {layer}: no expert was given a token", file=document.file)
        for layer, experts in layers.items() if not sum(experts.values())
    ]  # fmt: skip
    if problems:
        raise InputError(problems)
    return tuple(
        LayerCounts(layer=layer, tokens=tuple(experts.get(expert, 0.0) for expert in range(max(experts) + 1)))
        for layer, experts in sorted(layers.items())
    )


def counted(routing: Routing, document: Document, model: Model | None) -> Routing:
    """The routing of a scenario with the counts of its file, which must fit the model (when that is known).

    Raises
    ------
    InputError
        With every problem of the file or of the counts.
    """
    if routing.kind != "measured":
        return routing
    at: Path_ = ("workload", "routing", "file" if routing.file else "counts")
    if routing.file:
        routing = Routing(kind="measured", seed=routing.seed, counts=load_counts(_file(routing.file, document, at)))
    problems = _misfits(routing.counts, model) if model is not None else []
    if problems:
        raise InputError([document.problem(at, message) for message in problems])
    return routing


def _file(name: str, document: Document, at: Path_) -> Path:
    """The file of that name: in the current folder, else beside the scenario's file."""
    try:
        path, near = Path(name), Path(document.file).parent / name
        path = near if not path.exists() and near.exists() else path
        if path.exists():
            return path
        reason = "no such file"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
    raise InputError(document.problem(at, f"{shortened(name)}: {reason}"))


def _misfits(rows: Sequence[LayerCounts], model: Model) -> list[str]:
    """Why counts cannot be those of a model, a sentence for each layer."""
    found = []
    for row in rows:
        ffn = model.kinds[model.sequence[row.layer]].ffn if row.layer < len(model.sequence) else None
        if row.layer >= len(model.sequence):
            found.append(f"layer {row.layer}: model {model.name} has {len(model.sequence)} layers, from 0")
        elif not isinstance(ffn, Moe):
            found.append(f"layer {row.layer} of {model.name} has no routed experts")
        elif len(row.tokens) > ffn.experts:
            found.append(f"layer {row.layer}: expert {len(row.tokens) - 1} of {ffn.experts}, from 0")
        elif max(row.tokens) * ffn.topk > sum(row.tokens) * (1 + 1e-6):
            hottest = row.tokens.index(max(row.tokens))
            found.append(
                f"layer {row.layer}: expert {hottest} has {max(row.tokens):g} of {sum(row.tokens):g} choices; a token "
                f"chooses {ffn.topk} different experts, so none can have more than {sum(row.tokens) / ffn.topk:g}"
            )
    return found


def _csv(path: Path) -> Document:
    """A CSV as the document that a YAML with the same rows would be, each cell with its place."""
    lines = tuple(yamlfile.read_text(path).splitlines())
    reader = csv.reader(lines)
    try:
        found = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise InputError(Problem(f"not a readable CSV: {error}", file=str(path))) from None
    header = [name.strip() for name in found[0][1]] if found else []
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        message = f"needs the columns {', '.join(COLUMNS)}; '{missing[0]}' is missing{did_you_mean(missing[0], header)}"
        raise InputError(Problem(message, file=str(path), line=1))
    where = {name: header.index(name) for name in COLUMNS}
    rows: list[dict[str, str]] = []
    marks: dict[Path_, tuple[int, int]] = {}
    for line, cells in found[1:]:
        at = len(rows)
        rows.append({name: cells[column].strip() for name, column in where.items() if column < len(cells)})
        marks["rows", at] = (line, 1)
        for name in rows[at]:
            marks["rows", at, name] = (line, 1 + sum(len(cell) + 1 for cell in cells[: where[name]]))
    return Document(str(path), {"rows": rows}, marks, lines)
