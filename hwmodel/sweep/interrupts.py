"""Ctrl-C between steps that belong together, never inside one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Do what is inside to its end; a Ctrl-C meanwhile takes effect then.

    Only the main thread is ever interrupted, and only where Ctrl-C means an exception.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    asked = False

    def wait(number: int, frame: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if asked:
        signal.raise_signal(signal.SIGINT)
