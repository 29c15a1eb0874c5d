"""What reaches the terminal: the only file that prints. Answers go to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def say(text: str) -> None:
    """A line on standard error: progress, warnings, notes."""
    print(text, file=sys.stderr)


def text_out(text: str) -> None:
    """Text of an answer as it is."""
    print(text, end="")


def json_out(value: Any) -> None:
    """An answer as one JSON document."""
    print(json.dumps(value, indent=1, allow_nan=False))


def show(renderable: Any) -> None:
    """An answer as tables."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    # names and sources of files are text, not markup: "[/b]" is printed as it stands
    Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=False).print(renderable)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, float], None] | None]:
    """A bar with rate and time left on standard error; nothing when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, whole, rate: bar.update(
            task,
            completed=done,
            total=whole,
            description=f"{done:,} of {whole:,} points, {rate:,.0f}/s, {left(whole - done, rate)}",
        )


def left(points: int, rate: float) -> str:
    """The time that points take at a rate a second, in words."""
    seconds = round(points / max(rate, 1e-9))
    hours, rest = divmod(seconds, 3600)
    return f"{hours:,} h {rest // 60:02d} min left" if hours else f"{rest // 60}:{rest % 60:02d} left"


def listen() -> None:
    """Say which shipped names files of this folder shadow."""
    from hwmodel.spec import catalog

    catalog.notes[:] = [lambda text: say(f"note: {text}")]


def compiling() -> None:
    """Say why the first answer takes a while."""
    say("note: compiling kernels for this machine; the first run of a command only; some seconds, for simulate about ten")
