"""Which requests an iteration computes: a scheduler a file. Importing the package finds them all."""

from __future__ import annotations

import importlib
import pkgutil

from hwmodel.kernels import plugins
from hwmodel.serve.schedulers.scheduler import Scheduler

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
plugins("schedulers")

__all__ = ["Scheduler"]
