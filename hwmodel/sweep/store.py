"""Results on disk, chunk by chunk: what is there when a process dies is whole, and can be finished later."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from hwmodel import __version__
from hwmodel.spec.errors import InputError, Problem
from hwmodel.sweep.chunks import CHUNK, Pricer, Table
from hwmodel.sweep.manifest import difference, fingerprint, inputs
from hwmodel.sweep.names import FEASIBLE, POINT

FORMATS = (".csv", ".parquet")


def csv_bytes(table: Table) -> bytes:
    """Rows of a table as CSV, numbers in the fewest digits that read back to the last bit; empty where a value is not known."""
    cells = [_rows(table.point[:, None])]
    for known, names in groupby(table.inner, key=table.words.__contains__):
        if known:
            cells += [_words(*table.words[name]) for name in names]
        else:
            cells.append(_rows(np.stack([table.numbers[name] for name in names], axis=1)))
    cells.append(_words(table.feasible.astype(np.int64), ("false", "true")))
    return b"".join(b",".join(row) + b"\n" for row in zip(*cells, strict=True))


def _rows(numbers: NDArray[Any]) -> list[bytes]:
    """The rows of numbers, (rows, columns), each as text with commas; JSON has no word for what is not finite."""
    text: bytes = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)
    rows = text[2:-2].replace(b"null", b"").split(b"],[")
    for row in np.nonzero(np.isinf(numbers).any(axis=1))[0].tolist():
        rows[row] = b",".join(b"" if np.isnan(cell) else repr(cell).encode() for cell in numbers[row].tolist())
    return rows


def _words(codes: NDArray[np.int64], words: Sequence[str]) -> list[bytes]:
    """A column of words, (rows,); code -1 is none."""
    known = [*(_quoted(word).encode() for word in words), b""]
    return [known[code] for code in codes.tolist()]


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"' if any(ch in word for ch in ',"\n\r') else word


def header(table: Table) -> bytes:
    """The first line of a CSV."""
    return (",".join(_quoted(name) for name in table.names) + "\n").encode()


def parquet_bytes(table: Table) -> bytes:
    """Rows of a table as a Parquet file of their own."""
    frames = polars()
    data: dict[str, Any] = {POINT: table.point}
    for name in table.inner:
        if name in table.words:
            codes, words = table.words[name]
            data[name] = frames.Series(np.array([*words, ""], dtype=object)[codes].tolist(), dtype=frames.String)
        else:
            data[name] = table.numbers[name]
    data[FEASIBLE] = table.feasible
    out = BytesIO()
    frames.DataFrame(data).write_parquet(out)
    return out.getvalue()


def polars() -> Any:
    """The library that reads and writes Parquet.

    Raises
    ------
    InputError
        When it is not installed.
    """
    try:
        import polars as found  # noqa: PLC0415  an extra
    except ImportError:
        message = "Parquet needs polars, which is not installed: pip install 'hwmodel[frames]', or use a FILE.csv"
        raise InputError(message) from None
    return found


class Store:
    """The file of a sweep and its manifest, ``FILE.manifest.json``."""

    def __init__(self, path: Path, pricer: Pricer, *, resume: bool) -> None:
        """Start a file, or find where one stopped.

        Raises
        ------
        InputError
            For an unknown suffix, a folder that is not there, and a file of another sweep to be resumed.
        """
        if path.suffix not in FORMATS:
            raise InputError(Problem(f"the file's suffix says its format: {' or '.join(FORMATS)}", file=str(path)))
        if not path.parent.is_dir():
            raise InputError(Problem("its folder does not exist", file=str(path)))
        if path.suffix == ".parquet":
            polars()
        self.path, self.manifest = path, path.with_name(f"{path.name}.manifest.json")
        self.parts = path.with_name(f"{path.name}.parts")
        self.state: dict[str, Any] = {}
        self.print, self.inputs = fingerprint(pricer), inputs(pricer)
        if resume and self.manifest.exists():
            self._continue()
        else:
            self.manifest.unlink(missing_ok=True)
            shutil.rmtree(self.parts, ignore_errors=True)
            self.state = {"done": 0, "bytes": 0, "complete": False}
            path.write_bytes(b"")
            self._note({})
        if path.suffix == ".parquet":
            self.parts.mkdir(exist_ok=True)
        self.write = csv_bytes if path.suffix == ".csv" else parquet_bytes

    def _continue(self) -> None:
        try:
            state = json.loads(self.manifest.read_text())
            same = state["fingerprint"] == self.print and {"done", "bytes", "complete"} <= state.keys()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise InputError(Problem("is no manifest of a sweep", file=str(self.manifest))) from None
        if not same:
            message = f"belongs to another sweep: {difference(state.get('inputs'), self.inputs)}; start anew without --resume"
            raise InputError(Problem(message, file=str(self.manifest)))
        self.state = state
        if self.path.suffix == ".csv":
            size = self.path.stat().st_size if self.path.exists() else -1
            if size < state["bytes"]:
                raise InputError(Problem("is shorter than its manifest says; start anew without --resume", file=str(self.path)))
            if size > state["bytes"]:  # a chunk that was being written
                with self.path.open("r+b") as file:
                    file.truncate(state["bytes"])
        elif not state["complete"]:
            missing = [n for n in range(state["done"]) if not self._part(n).exists()]
            if missing:
                message = f"lacks its part number {missing[0]}; start anew without --resume"
                raise InputError(Problem(message, file=str(self.parts)))

    def _part(self, index: int) -> Path:
        return self.parts / f"{index:08d}.parquet"

    @property
    def done(self) -> int:
        """Chunks that are on disk."""
        return int(self.state["done"])

    @property
    def complete(self) -> bool:
        """Whether the file is finished."""
        return bool(self.state["complete"])

    def add(self, index: int, text: bytes, summary: dict[str, Any], first: bytes) -> None:
        """Write the next chunk, then say in the manifest that it is there; `first` is the header."""
        if self.path.suffix == ".csv":
            with self.path.open("ab") as file:
                if index == 0:
                    file.write(first)
                file.write(text)
                size = file.tell()
        else:
            part = self._part(index)
            part.with_suffix(".new").write_bytes(text)
            part.with_suffix(".new").replace(part)
            size = 0
        self.state |= {"done": index + 1, "bytes": size}
        self._note(summary)

    def finish(self, summary: dict[str, Any]) -> None:
        """Put the parts together, and say that the file is whole."""
        if self.path.suffix == ".parquet" and not self.complete:
            new = self.path.with_name(f"{self.path.name}.new")
            polars().scan_parquet([self._part(n) for n in range(self.done)]).sink_parquet(new)
            new.replace(self.path)
        self.state["complete"] = True
        self._note(summary)
        shutil.rmtree(self.parts, ignore_errors=True)

    def _note(self, summary: dict[str, Any]) -> None:
        self.state |= {
            "fingerprint": self.print, "version": __version__, "chunk": CHUNK, "inputs": self.inputs,
            **({"summary": summary} if summary else {}),
        }  # fmt: skip
        new = self.manifest.with_name(f"{self.manifest.name}.new")
        new.write_text(json.dumps(self.state))
        new.replace(self.manifest)
