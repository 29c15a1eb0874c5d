"""One file per block kind. Importing this package imports every file in it, so a new kind is one new file.

Files of one's own kinds are read from ``lower/`` in the folder that the environment variable HWMODEL_PLUGINS names.
"""

from __future__ import annotations

import importlib
import pkgutil

from hwmodel.kernels import plugins

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
plugins("lower")
