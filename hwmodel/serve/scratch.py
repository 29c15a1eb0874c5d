"""Columns of long traces lie in scratch files that are mapped into memory, not in memory of their own.

What a run reads or writes once for every request then takes room on disk (in $TMPDIR, else /var/tmp), and memory only as long
as there is some to spare: the operating system writes it out and drops it. A file has no name and is gone with its column.
Columns of up to `SMALL` bytes are ordinary memory, and so are all where there is no place for a file.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from array import array
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hwmodel.spec.errors import InputError

Anys = NDArray[Any]
SMALL = 1 << 20
"""Bytes of a column up to which it is ordinary memory."""
LARGE = "/var/tmp"
"""Where large files go on Unix (hier(7))."""
CHUNK = 1 << 16
"""Rows that are worked on at a time."""


class File(mmap.mmap):
    """A mapped scratch file, whose pages can be dropped and read again."""


def untouched(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> Anys:
    """Zeros that take memory only where they are written to, however many they are."""
    kind = np.dtype(dtype)
    size = math.prod((shape,) if isinstance(shape, int) else shape) * kind.itemsize
    if not size or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(shape, kind)
    bare = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # np.zeros writes zeros into memory used before
    return np.frombuffer(bare, kind).reshape(shape)


def column(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64, small: int = 0) -> Anys:
    """Zeros of a shape; `small`, where it is more than `SMALL`, stands in its place."""
    kind = np.dtype(dtype)
    size = math.prod((shape,) if isinstance(shape, int) else shape) * kind.itemsize
    if size <= max(small, SMALL):
        return np.zeros(shape, kind)
    try:
        with _opened() as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # a disk that is full says so here, and not in the middle of a run
            else:  # pragma: no cover - not on Linux
                file.truncate(size)
            mapped = File(file.fileno(), size)
    except OSError:
        return np.zeros(shape, kind)
    return np.frombuffer(mapped, kind).reshape(shape)


def _opened() -> BinaryIO:
    """A file without a name; in /var/tmp where nothing else is said, since /tmp is memory on many systems."""
    folder = None if "TMPDIR" in os.environ or not os.access(LARGE, os.W_OK) else LARGE
    return tempfile.TemporaryFile(prefix="hwmodel-", dir=folder)


class Growing:
    """A column of numbers that come one by one and not all at once; what has come lies in a file, `CHUNK` are in memory."""

    def __init__(self, code: str) -> None:
        self.last: array[Any] = array(code)
        """The latest, not yet in the file; `append` to it, and call `settle` now and then."""
        self.settled = 0
        self.file: BinaryIO | None = None

    def __len__(self) -> int:
        return self.settled + len(self.last)

    def settle(self) -> None:
        """Write down what is in memory, once it is a chunk or more."""
        if len(self.last) < CHUNK:
            return
        try:
            if self.file is None:
                self.file = _opened()
            self.last.tofile(self.file)
            self.file.flush()
        except OSError as error:
            raise InputError(f"no room on disk for a long trace: {error.strerror}; TMPDIR names the folder") from None
        self.settled += len(self.last)
        del self.last[:]

    def column(self) -> Anys:
        """All of them; nothing more comes."""
        found = column(len(self), self.last.typecode)
        if self.file is not None:
            self.file.seek(0)
            for part in parts(self.settled, found):
                found[part] = np.fromfile(self.file, self.last.typecode, part.stop - part.start)
            self.file.close()
        found[self.settled :] = np.array(self.last)
        return found


def release(*columns: Anys | None) -> None:
    """Take the pages of columns out of this process's memory; they are read again from their file when they are wanted."""
    for one in columns:
        base: Any = one
        while isinstance(base, np.ndarray | memoryview):
            base = base.base if isinstance(base, np.ndarray) else base.obj
        if isinstance(base, File) and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def parts(count: int, *columns: Anys | None, rows: int = 0) -> Iterator[slice]:
    """Slices of so many `rows`, else of `CHUNK`, in order; after each one the columns' pages are released."""
    rows = rows or CHUNK
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))
        if count > CHUNK:
            release(*columns)


def filled(count: int, make: Callable[[slice], Anys], *columns: Anys | None, dtype: DTypeLike = np.float64) -> Anys:
    """(count,) a column made slice by slice; `columns` are those that it is made from."""
    found = column(count, dtype)
    for part in parts(count, found, *columns):
        found[part] = make(part)
    return found


def same(value: float, count: int, dtype: DTypeLike = np.int64) -> Anys:
    """(count,) one value for all, which takes no memory; it cannot be written to."""
    return np.broadcast_to(np.array(value, dtype), count)


def whole_sum(values: Anys) -> int:
    """The sum of whole numbers."""
    return sum(int(values[part].sum()) for part in parts(len(values), values))
