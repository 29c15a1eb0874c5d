"""Kernels compiled ahead by other processes: in a first run one compiles what it needs now, helpers what it needs later.

numba compiles one function at a time, however many threads call. A helper writes into numba's cache on disk, where the process
that started it finds the kernel. Every kernel is compiled once: who gets to it first takes it, who needs it while it is taken
waits. Without helpers (one core, no cache that can be written, none can be started, one has died) a process compiles alone.
"""

import atexit
import importlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any

from numba import types

from hwmodel.kernels import announce_compiling
from hwmodel.kernels.linked import INTERPRETED
from hwmodel.kernels.typing_memo import keep_types

WORK = """
from hwmodel.kernels import start_without_blas
start_without_blas()
from hwmodel.kernels.ahead import help_out
help_out()
"""
HELPER = (sys.executable, "-P", "-c", WORK)
PRICE = "f3 f2 i2 f3 f3 f3"
FEATURES = "f3 f2 f3 f3"
NUMBERS = {"i": types.int64, "j": types.int32, "f": types.float64, "g": types.float32}
SERVED = "i2 f2 i2 f2 i2 i1 i1 j4 i3 f3 f3 f2 f3 i3 i1 f1 g3 i1 f2 f2 f2 f1 i1 i1 f1 i1 i1 j2 f2 f1 i2 i1 f1 i2 i1 i1"
RECORDS = {
    "tokens.Way": "i1 i1 i1 i1 i1 i1 i1 i1 i1 i1 i1 f1 i0 i0 i0 i0",
    "serving_columns.Serving": SERVED,
    "serving_columns.Unshared": SERVED,
}
"""Types of the fields of named tuples, as in `TAKES`."""
TAKES = {
    "resolve.resolve": "f2 f3 f3 i4 i4 i4 f3",
    "attention_decode.price": PRICE,
    "attention_prefill.price": PRICE,
    "experts.price": PRICE,
    "gemm.price": PRICE,
    "stream.price": PRICE,
    "attention_decode.features": FEATURES,
    "attention_prefill.features": FEATURES,
    "experts.features": FEATURES,
    "gemm.features": FEATURES,
    "correction.corrected": "f3 i2 f3 f3 i2 i1 f1 i2 f2 f2 f3",
    "schedule.scheduled": "i1 i1 i1 i1 i1 i1 i1 i1 f1 i0 i0 i1 i2 f1 f2 f2",
    "tokens.steady": "i0 tokens.Way f1 i0 f1 i1 i3 f2 f2 f1",
    "serving_steps.steps_s": "serving_columns.Serving f2 f1",
    "serving_loop.serve": "serving_columns.Serving i0 i0 i0",
    "serving_loop.serve unshared": "serving_columns.Unshared i0 i0 i0",
}
"""Kernels that Python calls, and with what: a letter of `NUMBERS` and how many dimensions, 0 for a number; a named tuple.

What stands behind a kernel's name tells apart what one is called with.
"""
STEP = ("schedule.scheduled", "stream.price", "gemm.price", "experts.price")
PERIOD = ("schedule.scheduled", "tokens.steady", *STEP[1:])
SERVING = ("correction.corrected", "serving_steps.steps_s", *STEP)
CORRECTION = ("correction.corrected",)
NOTHING: tuple[str, ...] = ()
"""What is compiled for a step, its period, a trace of requests, corrections: what takes long and is needed late first."""
LOOPS = {True: "serving_loop.serve", False: "serving_loop.serve unshared"}
"""The loop of a trace whose requests share parts of their prompts, or none, known when the requests are."""
MOST_HELPERS = 3


def given(name: str) -> tuple[Any, ...]:
    """The types of the arguments of a kernel, as numba has them."""

    def type_of(word: str) -> Any:
        if word in RECORDS:
            return types.NamedTuple([type_of(field) for field in RECORDS[word].split()], found(word))
        number, dimensions = NUMBERS[word[0]], int(word[1])
        return types.Array(number, dimensions, "C") if dimensions else number

    return tuple(type_of(word) for word in TAKES[name].split())


def found(name: str) -> Any:
    """A kernel, or a record, by the name of its file here and its own."""
    module, own = name.split(maxsplit=1)[0].split(".")
    return getattr(importlib.import_module(f"hwmodel.kernels.{module}"), own)


def in_cache(name: str) -> bool:
    """Whether numba's cache has a kernel for what it is called with here."""
    return any(key[0] == given(name) for key in found(name)._cache._cache_file._load_index())


class Helpers:
    """Processes that compile kernels which the cache does not have, one each at a time, until all are taken."""

    def __init__(self, names: Iterable[str], most: int, command: tuple[str, ...] = HELPER) -> None:
        self.command = command
        self.lock = threading.Lock()
        self.ready: dict[str, threading.Event] = {}
        self.processes: list[subprocess.Popen[str]] = []
        self.left: list[str] = []
        self.most = most
        self.threads: list[threading.Thread] = []
        atexit.register(self.end)
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Kernels to compile before those that are left, unless the cache has them or they were given out already."""
        new = [name for name in names if name not in self.ready and name not in self.left and not in_cache(name)]
        for name in new:
            self._lend(name)
        with self.lock:
            self.left[:0] = new
            self.threads = [thread for thread in self.threads if thread.is_alive()]
            more = range(min(self.most - len(self.threads), len(self.left)))
            started = [threading.Thread(target=self._give_work, daemon=True) for _ in more]
            self.threads += started
        for thread in started:
            thread.start()

    def _lend(self, name: str) -> None:
        """Let the kernel wait for a helper that compiles it, before it is compiled here."""
        cache, takes = found(name)._cache, given(name)
        load = cache.load_overload

        def load_or_wait(signature: Any, context: Any) -> Any:
            """What the cache has, also if a helper has it there in a while; None if it is to be compiled here."""
            code = load(signature, context)
            return load(signature, context) if code is None and signature == takes and self.wait(name) else code

        cache.load_overload = load_or_wait

    def wait(self, name: str) -> bool:
        """Wait for a helper that has taken the kernel; False when none has, and none will."""
        with self.lock:
            if name in self.left:
                self.left.remove(name)
            ready = self.ready.get(name)
        return ready is not None and ready.wait()

    def _take(self) -> str | None:
        with self.lock:
            if not self.left:
                return None
            name = self.left.pop(0)
            self.ready[name] = threading.Event()
            return name

    def _give_work(self) -> None:
        """Hand kernels to one helper until none is left, or until it is gone."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            helper = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env=environment,
            )  # fmt: skip
        except OSError:
            return
        self.processes.append(helper)
        answer = "ready"
        with suppress(OSError), helper:  # what could not be written is lost with the helper
            while answer and (name := self._take()) is not None:
                answer = _asked(helper, name)
                self.ready[name].set()

    def end(self) -> None:
        """End every helper: what it has not finished is not needed any more."""
        with self.lock:
            self.left.clear()
        for helper in self.processes:
            helper.terminate()


def _asked(helper: "subprocess.Popen[str]", name: str) -> str:
    """The answer of a helper that is asked to compile a kernel, when it has; nothing when it is gone."""
    assert helper.stdin is not None
    assert helper.stdout is not None
    try:
        helper.stdin.write(f"{name}\n")
        helper.stdin.flush()
        return helper.stdout.readline()
    except (OSError, ValueError):
        return ""


@cache
def _helpers() -> Helpers | None:
    """Those on the cores that are left; None on a single core and where nothing is compiled."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores - 1, MOST_HELPERS)
    return None if INTERPRETED or most < 1 else Helpers((), most)


def compile_ahead(*names: str) -> None:
    """Let helpers compile kernels, these before all that they still have to do; a command may see late what it needs."""
    helpers = _helpers()
    if helpers is not None:
        helpers.add(names)


def help_out() -> None:
    """Compile every kernel that is asked for, by name, until nothing more is asked."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_types()
    announce_compiling(lambda: None)
    for line in sys.stdin:
        name = line.strip()
        found(name).compile(given(name))
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()
