"""hwmodel: a performance model of LLM inference on hardware, existing or not yet built.

The names below load on first use, so that ``import hwmodel`` is instant::

    import hwmodel as hw
    result = hw.run(hw.load("h100_llama_70b_decode", "workload.batch=64"))
    result.step.tpot_s, result.columns("ops")["time_s"]
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load": "hwmodel.scenario",
    "load_chip": "hwmodel.hardware",
    "load_model": "hwmodel.model.load",
    "load_scenario": "hwmodel.scenario",
    "from_options": "hwmodel.scenario",
    "run": "hwmodel.run",
    "Result": "hwmodel.result",
    "fit": "hwmodel.fit",
    "operation": "hwmodel.operation",
    "explain": "hwmodel.explain",
    "compare": "hwmodel.compare.answer",
    "offer": "hwmodel.offer",
    "sweep": "hwmodel.sweep.drive",
    "optimize": "hwmodel.optimize.optimum",
    "whatif": "hwmodel.optimize.whatif",
    "tiers": "hwmodel.optimize.tiers",
    "simulate": "hwmodel.simulation",
    "plot": "hwmodel.picture",
    "racks": "hwmodel.optimize.rackplan",
    "calibrate": "hwmodel.calibrated",
    "validate": "hwmodel.validate",
    "report": "hwmodel.webpage",
    "claims": "hwmodel.claims",
    "InputError": "hwmodel.spec.errors",
}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604  the keys of _HOMES are strings

if TYPE_CHECKING:
    from hwmodel.calibrated import calibrate as calibrate
    from hwmodel.claims import claims as claims
    from hwmodel.compare.answer import compare as compare
    from hwmodel.explain import explain as explain
    from hwmodel.fit import fit as fit
    from hwmodel.hardware import load_chip as load_chip
    from hwmodel.model.load import load_model as load_model
    from hwmodel.offer import offer as offer
    from hwmodel.operation import operation as operation
    from hwmodel.optimize.optimum import optimize as optimize
    from hwmodel.optimize.rackplan import racks as racks
    from hwmodel.optimize.tiers import tiers as tiers
    from hwmodel.optimize.whatif import whatif as whatif
    from hwmodel.picture import plot as plot
    from hwmodel.result import Result as Result
    from hwmodel.run import run as run
    from hwmodel.scenario import from_options as from_options
    from hwmodel.scenario import load as load
    from hwmodel.scenario import load_scenario as load_scenario
    from hwmodel.simulation import simulate as simulate
    from hwmodel.spec.errors import InputError as InputError
    from hwmodel.sweep.drive import sweep as sweep
    from hwmodel.validate import validate as validate
    from hwmodel.webpage import report as report


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hwmodel' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """Keeps ``hw.run`` the function: importing the file run.py would otherwise put the module in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
