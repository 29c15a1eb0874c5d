"""What measurements say of a chip under a software stack: a few physical parameters per op and format, and their doubt.

A fit replaces the chip's stated efficiencies and launch cost for one kind of op in one number format:
``t = (launch + ((C / compute)^p + (M / memory)^p)^(1/p)) exp(correction)``, with C and M the seconds of the kernel at full
peak and bandwidth. Files stand in chips/calibrations/, one per chip and stack; ``gpu.STACK`` is the prior for chips of that
kind without measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from hwmodel.kernels.correction import N_AXES
from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.errors import did_you_mean, shortened
from hwmodel.spec.schema import MisplacedError, Seconds, Spec, build
from hwmodel.spec.yamlfile import Path_

ROOM = "chips/calibrations"
Positive = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
MOST_VALUES = 20_000


class Correction(Spec):
    """A grid of logarithms of time, over and above the physical form."""

    axes: Annotated[dict[str, tuple[float, ...]], Field(min_length=1, max_length=N_AXES)]
    """Knots of each feature, as log2 of the size, ascending."""
    permille: str
    """Natural logarithms in thousandths, the last axis running fastest."""

    @model_validator(mode="after")
    def _whole(self) -> Correction:
        wrong: list[tuple[Path_, str]] = []
        for name, knots in self.axes.items():
            if not knots or any(b <= a for a, b in pairwise(knots)):
                wrong.append((("axes", name), "knots must ascend, at least one of them"))
        expected = int(np.prod([len(knots) for knots in self.axes.values()], dtype=float))
        try:
            count = len([int(part) for part in self.permille.split()])
        except ValueError:
            raise MisplacedError([(("permille",), "expected whole numbers, thousandths of a natural logarithm")]) from None
        if count != expected or count > MOST_VALUES:
            message = f"expected {expected:,} numbers, one per knot, at most {MOST_VALUES:,}; got {count:,}"
            wrong.append((("permille",), message))
        if wrong:
            raise MisplacedError(wrong)
        return self

    @property
    def values(self) -> NDArray[np.float64]:
        """Natural logarithms, flat."""
        return np.array(self.permille.split(), dtype=np.float64) / 1000.0


class Errors(Spec):
    """How wrong the fit was on rows held out of it, as shares of the measured time."""

    median: Fraction
    p90: Fraction
    bias: float
    """Median of the signed error."""
    folds: str = ""
    """Medians of the folds, for their spread."""

    @property
    def spread(self) -> float | None:
        """The largest median of a fold less the smallest; None of fewer than two."""
        each = [float(text) for text in self.folds.split()]
        return max(each) - min(each) if len(each) > 1 else None


class Parameters(Spec):
    """The physical parameters of a fit, as `Fit` has them."""

    launch_s: Seconds
    compute: Positive = 1.0
    memory: Positive = 1.0
    sharpness: Annotated[float, Field(ge=0, le=100)] = 0.0


class Fit(Spec):
    """One kind of op in one number format."""

    op: str
    """gemm, attention_prefill, attention_decode, mla_prefill, mla_decode, moe, or the name of a collective."""
    dtype: str
    """Format of the operands; ``bf16/fp8`` for attention in bf16 over an fp8 cache."""
    link: str = ""
    """Of a prior of collectives: the kind of link its chips are joined by; any when empty."""
    launch_s: Seconds
    """Fixed cost of one execution."""
    compute: Positive = 1.0
    """Share of the peak that is reached."""
    memory: Positive = 1.0
    """Share of the memory (for a collective: link) bandwidth that is reached."""
    sharpness: Annotated[float, Field(ge=0, le=100)] = 0.0
    """p of (C^p + M^p)^(1/p): how well compute and memory overlap; 0: the larger of the two."""
    correction: Correction | None = None
    low: Positive
    """Four of five measured times lie between `low` and `high` times the prediction."""
    high: Positive
    rows: Annotated[int, Field(ge=0)] = 0
    """Measured rows it rests on."""
    held_out: Errors | None = None
    domain: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Smallest and largest measured size by name."""
    spread: dict[str, float] = Field(default_factory=dict)
    """Of a prior: standard deviations of the logarithms of launch, compute, memory and sharpness over the chips it is drawn
    from."""
    members: dict[str, Parameters] = Field(default_factory=dict)
    """Of a prior: the parameters of each chip it is drawn from. A chip takes their means, those of chips like it weighing more;
    `launch` to `sharpness` above are the plain means."""
    doubt: str = ""
    """What not to trust."""

    @property
    def key(self) -> str:
        """Op, format and link in one word."""
        return f"{self.op}:{self.dtype}" + (f"@{self.link}" if self.link else "")


class Calibration(Spec):
    """The fits of one chip (or kind of chip) under one stack."""

    chip: str
    """Name of a chip, or of a kind of chip for a prior."""
    stack: str
    prior: bool = False
    """Drawn from other chips of the kind, not measured on this one."""
    date: str = ""
    data: str = ""
    """Where the rows come from, with versions."""
    note: str = ""
    fits: tuple[Fit, ...] = ()

    def find(self, op: str, dtype: str, link: str = "") -> Fit | None:
        """The fit of an op in a format, else in the nearest that runs on the same units; of these links if there is one."""
        known = {fit.key: fit for fit in self.fits}
        for name in (dtype, *SUBSTITUTES.get(dtype, ())):
            for key in (f"{op}:{name}@{link}", f"{op}:{name}"):
                if key in known:
                    return known[key]
        return None


SUBSTITUTES = {
    "fp8_block": ("fp8",), "fp8": ("fp8_block",), "mxfp8": ("fp8", "fp8_block"), "fp16": ("bf16",),
    "fp8/fp8": ("bf16/fp8",), "fp16/fp16": ("bf16/bf16",), "fp16/fp8": ("bf16/fp8",),
    "w4a8_mxfp4_mxfp8": ("w4a16_mxfp4",), "nvfp4": ("fp8_block", "fp8"),
}  # fmt: skip
"""Formats whose kernels are alike enough to stand in, nearest first."""


@cache
def load_calibration(name: str) -> Calibration:
    """A calibration by name (``h100_sxm.trtllm``) or path.

    Raises
    ------
    InputError
        With every problem of the file.
    """
    return build(Calibration, yamlfile.load(catalog.find(ROOM, name)))


def calibration_of(chip: str, kind: str, stack: str) -> Calibration | None:
    """That of the chip under the stack, else the prior of its kind under the stack, else of its kind; None without any."""
    if not stack or stack == UNCALIBRATED:
        return None
    known = catalog.names(ROOM)
    for name in (f"{chip}.{stack}", f"{kind}.{stack}", f"{kind}.any"):
        if name in known:
            return load_calibration(name)
    return None


def doubt_of(chip: str, stack: str, found: Calibration | None) -> str:
    """What to say of a stack that was not measured on the chip; empty when it was, or when none was asked for."""
    if stack in ("", UNCALIBRATED) or (found is not None and not found.prior):
        return ""
    if found is None:
        return f"no calibration of {chip} for stack '{stack}' is known; the chip's stated efficiencies are used"
    if found.chip in catalog.names("chips"):
        return f"{chip} was not measured under stack '{stack}'; {found.chip}, which is much like it, stands in"
    under = "" if found.stack == "any" else f" under {found.stack}"
    return f"{chip} was not measured under stack '{stack}'; what {found.chip} chips have in common{under} is used"


UNCALIBRATED = "uncalibrated"
"""The stack that means: none, the chip's stated efficiencies."""


def unknown_stack(stack: str) -> str:
    """What to say of a stack that no calibration and no file of stacks/ names, here or shipped; empty when one does."""
    found, stacks = catalog.names(ROOM), catalog.names("stacks")
    if stack in ("", UNCALIBRATED, *stacks) or any(name.endswith(f".{stack}") for name in found):
        return ""
    known = sorted({*stacks, *(name.partition(".")[2] for name in found)} - {"any"})
    near = did_you_mean(stack, known)
    listed = "" if "known:" in near else f" (known: {', '.join(known)})"
    return f"no stack named '{shortened(stack)}'{near}{listed}; '{UNCALIBRATED}' takes the chip's stated efficiencies"


@dataclass(frozen=True)
class Corrections:
    """The corrections of several fits as flat arrays; see `hwmodel.kernels.correction`."""

    knots: NDArray[np.float64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def any(self) -> bool:
        """Whether there is one at all."""
        return len(self.starts) > 0


def corrections(found: Sequence[Fit]) -> Corrections:
    """The corrections of fits, in their order; a fit without one has no axes."""
    grids = [fit.correction for fit in found]
    most = max((len(knots) for grid in grids if grid for knots in grid.axes.values()), default=1)
    knots = np.zeros((len(grids), N_AXES, most))
    lengths = np.zeros((len(grids), N_AXES), dtype=np.int64)
    starts = np.zeros(len(grids), dtype=np.int64)
    values: list[NDArray[np.float64]] = []
    total = 0
    for index, grid in enumerate(grids):
        starts[index] = total
        if grid is None:
            values.append(np.zeros(1))
        else:
            for axis, own in enumerate(grid.axes.values()):
                knots[index, axis, : len(own)], lengths[index, axis] = own, len(own)
            values.append(grid.values)
        total += len(values[-1])
    return Corrections(knots, lengths, starts, np.concatenate(values) if values else np.zeros(0))


def label(weights: str, activation_bits: float = 16) -> str:
    """The name under which products of a weight format are calibrated."""
    if weights == "mxfp4":
        return "w4a16_mxfp4" if activation_bits >= 16 else "w4a8_mxfp4_mxfp8"
    return {"int4": "int4_wo", "int4_128": "int4_wo", "int8": "sq", "fp8_channel": "fp8"}.get(weights, weights)
