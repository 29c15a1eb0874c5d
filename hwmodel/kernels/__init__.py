"""numba on bare arrays. Kernels import numpy and numba only, and numba is imported nowhere else.

A kind of op is one file here: ``KIND``, whether it multiplies matrices ``MATRIX`` (True when absent: the chip must then
multiply one of the op's types), its integer dimensions ``DIMS``, its per-op constants ``CONSTS``, and
``price(dims, consts, where, bins, device, out)``. Files are found by scanning this folder (and the ``kernels`` folder
of HWMODEL_PLUGINS); those without ``KIND`` are shared pieces.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType


def start_without_blas() -> None:
    """Load numba without its probe for SciPy's BLAS, which no kernel uses: 0.3 s less for a command.

    For a process of our own only: jitted code of others in the same process would lose BLAS.
    """
    name = "scipy.linalg.cython_blas"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules[name]


@cache
def announce_compiling(tell: Callable[[], None]) -> None:
    """Call `tell` once, when the first kernel is about to be compiled and not read from the cache: seconds of silence else.

    While one is compiled no garbage is collected: what numba builds lives until it is done, looking it over takes an eighth.
    """
    event = importlib.import_module("numba.core.event")

    class Compiling(event.Listener):  # type: ignore[misc, name-defined]
        depth, collecting = 0, True

        def on_start(self, _: object) -> None:
            once()
            if self.depth == 0:
                self.collecting = gc.isenabled()
            self.depth += 1
            gc.disable()

        def on_end(self, _: object) -> None:
            self.depth -= 1
            if self.depth == 0 and self.collecting:
                gc.enable()

    once = cache(tell)
    event.register("numba:compile", Compiling())


@cache
def kinds() -> dict[str, ModuleType]:
    """Every kind of op by name. Importing a kernel compiles nothing until it is called."""
    found: dict[str, ModuleType] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "KIND"):
            found[module.KIND] = module
    for module in plugins("kernels"):
        found[module.KIND] = module
    return found


def plugins(room: str) -> list[ModuleType]:
    """Modules of a user's own folder ``$HWMODEL_PLUGINS/<room>/*.py``; nothing is loaded when the variable is unset."""
    root = os.environ.get("HWMODEL_PLUGINS")
    if not root:
        return []
    modules = []
    for path in sorted((Path(root) / room).glob("*.py")):
        name = f"hwmodel_plugins_{room}_{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is None or spec.loader is None:  # pragma: no cover - a .py file always has a loader
                continue
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        modules.append(sys.modules[name])
    return modules
