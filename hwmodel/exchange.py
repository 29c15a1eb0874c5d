"""Which measurements of an expert dispatch or combine speak for one inside a step.

Libraries have two kinds of kernels: of low latency, for the few tokens of a decode step, and of high throughput, for prefill.
Measured formats are named LIBRARY/FORMAT (``deepep_ll/bfloat16``). A step takes the kind that its phase runs, in its own format
or the nearest one, and only for as many nodes as were measured and no more ranks: a share of NVLink says nothing of a network.
"""

from __future__ import annotations

import math

import numpy as np

from hwmodel.calibration import Calibration, Correction, Fit
from hwmodel.model.dtypes import ALIASES, FORMATS, Format

FAMILIES = ("expert_dispatch", "expert_combine")
LOW_LATENCY, HIGH_THROUGHPUT = "low_latency", "high_throughput"
KERNELS = {LOW_LATENCY: ("_ll", "_generation"), HIGH_THROUGHPUT: ("_ht", "_normal", "_context")}
"""How libraries' names of the two kinds end."""
UNNAMED = "bf16"
"""Format of a table that names none (``default``): its rows are priced in 16 bits, whatever the library sends."""


def exchange_fit(found: Calibration, family: str, wanted: str, ranks: int, nodes: int) -> Fit | None:
    """The fit of an exchange among `ranks` chips on `nodes`, or None.

    wanted : kind of kernel and number format, ``low_latency/fp8``

    Of a fit in another format the share of the link is scaled, so that as many tokens take as long as they did; a share above
    1, which rows without large buffers may show, is no bandwidth and counts as 1. The correction fades from the largest
    buffer that was measured.
    """
    mode, _, name = wanted.partition("/")
    if mode not in KERNELS:
        return None
    width = FORMATS[name].bytes
    known = [
        fit for fit in found.fits
        if fit.op == family and fit.dtype.partition("/")[0].endswith(KERNELS[mode]) and _holds(fit, ranks, nodes)
    ]  # fmt: skip
    if not known:
        return None
    fit = min(known, key=lambda fit: (abs(form_of(fit.dtype).bytes - width), fit.dtype))
    share = min(1.0, fit.memory * width / form_of(fit.dtype).bytes)
    return fit.model_copy(update={"memory": share, "correction": _measured_part(fit)})


def _measured_part(fit: Fit) -> Correction | None:
    """The correction without the knots behind the largest buffer of the fit's rows, which no row speaks for."""
    if fit.correction is None or "bytes" not in fit.correction.axes:
        return fit.correction
    tokens, hidden, topk, ranks = (fit.domain[key][1] for key in ("tokens_per_rank", "hidden", "topk", "ep"))
    largest = math.log2(tokens * hidden * form_of(fit.dtype).bytes * min(topk, ranks))
    axes = dict(fit.correction.axes)
    kept = sum(knot < largest for knot in axes["bytes"]) + 1
    first = list(axes).index("bytes")
    values = np.array(fit.correction.permille.split()).reshape([len(knots) for knots in axes.values()])
    values = values.take(range(min(kept, values.shape[first])), axis=first)
    axes["bytes"] = axes["bytes"][:kept]
    return Correction(axes=axes, permille=" ".join(values.ravel()))


def form_of(dtype: str) -> Format:
    """The number format that a table's LIBRARY/FORMAT was priced in."""
    name = dtype.partition("/")[2]
    return FORMATS.get(ALIASES.get(name, name), FORMATS[UNNAMED])


def same_format(wanted: str, measured: str) -> bool:
    """Whether an exchange is measured in the format that is wanted, whatever the library."""
    return form_of(wanted) == form_of(measured)


def _holds(fit: Fit, ranks: int, nodes: int) -> bool:
    """Whether a fit's rows had these nodes and as many ranks; a prior, which has no domain, holds for none."""
    fewest, most = fit.domain.get("nodes", (1.0, 0.0))
    return fewest <= nodes <= most and ranks <= fit.domain.get("ep", (0.0, 0.0))[1]
