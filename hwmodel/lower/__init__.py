"""One file per block kind. Importing this package imports every file in it, so a new kind is one new file.

Files of one's own kinds are read from ``lower/`` in the folder that the environment variable HWMODEL_PLUGINS names.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from pathlib import Path


def _scan() -> None:
    for found in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{found.name}")
    plugins = os.environ.get("HWMODEL_PLUGINS")
    if plugins:
        for path in sorted((Path(plugins) / "lower").glob("*.py")):
            _load(path)


def _load(path: Path) -> None:
    """Import a file under a name of its own, as the packaged ones are."""
    name = f"{__name__}.plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or name in sys.modules:
        return
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)


_scan()
