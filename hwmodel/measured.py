"""Tables of measured kernel times: files to groups of rows that one fit explains.

The columns are those of the public tables the shipped rows come from (docs/accuracy.md); any subset of the files will do.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.shapes import operand
from hwmodel.spec.errors import InputError, Problem, shortened

Array = NDArray[np.float64]
Row = Mapping[str, str]


@dataclass(frozen=True)
class Source:
    """How the rows of one file are read."""

    kind: Callable[[Row], str]
    """Kind of operation (shapes.KINDS)."""
    op: Callable[[Row], str]
    """Its name as reports print it."""
    stack: Callable[[Row], str]
    dtype: Callable[[Row], str]
    sizes: Mapping[str, str]
    """Size of the operation to column of the file."""
    words: Mapping[str, Callable[[Row], str]]
    """Words of the operation, from a row."""
    variant: Callable[[Row], str] = lambda row: ""
    """What else tells fits apart."""


def _col(name: str) -> Callable[[Row], str]:
    return lambda row: row[name]


def _says(word: str) -> Callable[[Row], str]:
    return lambda row: word


_KV = {"kv_dtype": _col("kv_dtype")}
_HEADS = {"batch": "batch", "heads": "heads", "kv_heads": "kv_heads", "head_dim": "head_dim", "window": "window"}
_MLA = {"batch": "batch", "seq": "seq", "kv_len": "kv_len", "heads": "heads_local"}
_TOKENS = {"tokens_per_rank": "tokens_per_rank", "hidden": "hidden", "topk": "topk", "experts": "experts", "nodes": "nodes"}


UNGATED = {(1024, 2688), (2048, 5120), (4096, 2688), (8192, 5120), (2688, 1856)}
"""(hidden, inter) of models whose experts have two matrices (22 of 512, and 6 of 128): kernels named _nongated run these
shapes only, and under other kernels too the times of these shapes are those of two."""


def _three(row: Row) -> bool:
    """Whether experts of a row have a gate matrix."""
    shape = (int(float(row["hidden"])), int(float(row["inter"])))
    return not (row["kernel"].endswith("_nongated") or (shape in UNGATED and int(float(row["topk"])) in (22, 6)))


def _plain(name: str, sizes: Mapping[str, str], words: Mapping[str, Callable[[Row], str]]) -> Source:
    return Source(_says(name), _says(name), _col("backend"), _col("dtype"), sizes, words)


FILES: dict[str, Source] = {
    "gemm": _plain("gemm", {"m": "m", "n": "n", "k": "k"}, {}),
    "attention_prefill": _plain("attention_prefill", {**_HEADS, "seq": "seq"}, _KV),
    "attention_decode": _plain("attention_decode", {**_HEADS, "kv_len": "kv_len"}, _KV),
    "mla_prefill": _plain("mla_prefill", _MLA, _KV),
    "mla_decode": _plain("mla_decode", _MLA, _KV),
    "moe": _plain(
        "moe",
        {"tokens": "tokens", "hidden": "hidden", "inter": "inter", "topk": "topk", "experts": "experts",
         "tp": "moe_tp", "ep": "moe_ep"},
        {"dist": _col("dist"), "gated": lambda row: str(_three(row)).lower()},
    ),
    "collectives": Source(
        lambda row: {"alltoall": "all_to_all"}.get(row["op"], row["op"]), _col("op"), _col("backend"), _col("dtype"),
        {"chips": "ngpu", "bytes": "bytes"}, {},
    ),
    "expert_all_to_all": Source(
        lambda row: f"expert_{row['phase']}", _col("op"), _col("backend"), _col("dtype"), {**_TOKENS, "ep": "ep"}, {},
        _col("comm"),
    ),
    "expert_all_to_all_multinode": Source(
        lambda row: f"expert_{row['phase']}", _col("op"), _says("deepep"), _says("bfloat16"), {**_TOKENS, "ep": "ep"}, {},
        _col("op"),
    ),
}  # fmt: skip
"""By file name without its suffix."""

_EXCHANGES = ("expert_dispatch", "expert_combine", "moe_a2a", "deepep_ll", "deepep_normal")
KINDS_IN = {
    "collectives": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "alltoall"),
    "expert_all_to_all": _EXCHANGES, "expert_all_to_all_multinode": _EXCHANGES,
}  # fmt: skip
"""Kinds of operation, and names of them, in files that hold several."""


@dataclass(frozen=True)
class Rows:
    """Measurements of one kind of operation on one device under one stack in one format."""

    op: str
    kind: str
    device: str
    stack: str
    dtype: str
    """As the file writes it."""
    words: tuple[tuple[str, str], ...]
    """Words that all rows share: kv_dtype."""
    variant: str
    columns: Mapping[str, Any]
    """Sizes (floats) and words by row."""
    measured_s: Array
    versions: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, Any]:
        """What the operation is asked with."""
        return {**self.columns, **dict(self.words)}

    def __len__(self) -> int:
        return len(self.measured_s)

    def pick(self, chosen: NDArray[Any]) -> Rows:
        """Some of the rows."""
        columns = {key: value[chosen] for key, value in self.columns.items()}
        return Rows(self.op, self.kind, self.device, self.stack, self.dtype, self.words, self.variant, columns,
                    self.measured_s[chosen], self.versions)  # fmt: skip


def read(folder: Path, only: Sequence[str] = ()) -> list[Rows]:
    """The groups of every known file in a folder, in the order of the files.

    Parameters
    ----------
    only
        Names of files, or of kinds of operation; all when empty.

    Raises
    ------
    InputError
        When the folder holds none of the files, or rows that cannot be read, each with its place.
    """
    if not folder.is_dir():
        raise InputError(Problem("no such folder of measured rows", file=str(folder)))
    found: list[Rows] = []
    present = [name for name in FILES if (folder / f"{name}.csv").is_file()]
    if not present:
        known = ", ".join(f"{name}.csv" for name in FILES)
        raise InputError(Problem(f"holds none of the known tables: {known}", file=str(folder)))
    for name in present:
        if not only or {name, *KINDS_IN.get(name, ())} & {*only}:
            groups = _groups(folder / f"{name}.csv", FILES[name])
            found += [rows for rows in groups if not only or {name, rows.op, rows.kind} & {*only}]
    return found


_MOST = 20
"""Problems of one file that are told."""


def _groups(path: Path, source: Source) -> Iterator[Rows]:
    """Rows of one file, split by device, stack, format and shared words."""
    parts: dict[tuple[str, ...], list[tuple[float, list[float], list[str], str]]] = {}
    problems: list[Problem] = []
    shared = [key for key in source.words if key == "kv_dtype"]
    each = [key for key in source.words if key != "kv_dtype"]
    for line, row in _lines(path):
        try:
            key = (
                source.op(row), source.kind(row), row["device"], source.stack(row), source.dtype(row), source.variant(row),
                *(source.words[word](row) for word in shared),
            )  # fmt: skip
            numbers = [_number(row, column) for column in source.sizes.values()]
            time = _number(row, "latency_us") * 1e-6
        except (KeyError, ValueError) as error:
            problems.append(Problem(_said(error), file=f"{path}:{line}"))
            if len(problems) >= _MOST:
                break
            continue
        parts.setdefault(key, []).append((time, numbers, [source.words[word](row) for word in each], row.get("version") or ""))
    if problems:
        raise InputError(problems)
    for (op, kind, device, stack, dtype, variant, *said), rows in parts.items():
        columns: dict[str, Any] = {}
        for index, name in enumerate(source.sizes):
            columns[name] = np.array([numbers[index] for _, numbers, _, _ in rows])
        for index, name in enumerate(each):
            columns[name] = np.array([texts[index] for _, _, texts, _ in rows])
        versions = tuple(sorted({version for *_, version in rows}))
        yield Rows(op, kind, device, stack, dtype, tuple(zip(shared, said, strict=True)), variant, columns,
                   np.array([time for time, *_ in rows]), versions)  # fmt: skip


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            for row in reader:
                yield reader.line_num, _completed(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(Problem(f"cannot be read: {error}", file=str(path))) from None


def _completed(row: dict[str, str]) -> dict[str, str]:
    """Ranks of the multi-node table: 8 chips a node, by its source."""
    if "ep" not in row and "nodes" in row and row["nodes"]:
        row["ep"] = str(8 * int(float(row["nodes"])))
    return row


def _number(row: Row, column: str) -> float:
    value = float(row[column])
    if not 0 <= value < 1e15 or (column == "latency_us" and value == 0):
        raise ValueError(f"{column}: expected a number of at least 0 (a time above 0), got {shortened(repr(row[column]), 40)}")
    return value


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"missing column {error.args[0]!r}"
    return str(error).replace("could not convert string to float:", "expected a number, got")


def form_of(rows: Rows) -> str:
    """The label of a group's format as a calibration names it."""
    if rows.kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"):
        return "bytes"
    if rows.variant:
        return f"{rows.variant}/{rows.dtype}"
    own = operand(rows.dtype).label
    kv = dict(rows.words).get("kv_dtype")
    return own if kv is None else f"{own}/{operand(kv).label}"
