"""``hw.plot``: any picture of a run by its kind."""

from __future__ import annotations

from pathlib import Path

from hwmodel.plot import KINDS as OF_A_RUN
from hwmodel.plot_optimize import KINDS as OF_BATCHES
from hwmodel.result import Result
from hwmodel.spec.errors import InputError, did_you_mean


def plot(result: Result, kind: str, path: str | Path) -> Path:
    """Draw a run into a file; its suffix says the format (.png, .svg, .pdf).

    Parameters
    ----------
    kind
        layers, roofline, memory, timeline, batch, tornado.

    Raises
    ------
    InputError
        For another kind.
    """
    kinds = OF_A_RUN | OF_BATCHES
    if kind not in kinds:
        raise InputError(f"unknown kind of plot '{kind}'{did_you_mean(kind, kinds)}")
    kinds[kind](result, path)
    return Path(path)
