"""Parameters of a stack from measured served rows: robust least squares on the logarithms of TTFT and TPOT."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hwmodel.served.rows import Served
from hwmodel.served.stack import Stack
from hwmodel.served.step import Loads, predict

Array = NDArray[np.float64]
RANGES = {
    "gap": (0.0, 2e-5, 3e-6, 1e-6), "gap_fp4": (0.0, 2e-5, 3e-6, 1e-6), "late": (0.0, 2e-5, 1e-6, 1e-6),
    "rank": (0.0, 1e-3, 1e-5, 1e-5), "sequence": (0.0, 2e-4, 2e-5, 2e-5), "sequence_lab": (0.0, 2e-4, 2e-5, 2e-5),
    "fused": (0.0, 1.0, 0.5, 0.3), "lag": (0.0, 2.0, 0.2, 0.1), "share": (0.3, 3.0, 1.0, 0.3), "lockstep": (0.0, 1.2, 0.2, 0.1),
    "prompt": (0.0, 5e-2, 2e-3, 2e-3), "start": (1e-3, 0.5, 2e-2, 2e-2), "stretch": (0.3, 5.0, 1.0, 0.3),
    "lab": (0.3, 8.0, 3.0, 1.0), "steps": (0.0, 20.0, 1.0, 1.0), "burst": (0.0, 2.0, 0.1, 0.1),
}  # fmt: skip
"""Least, most, start and scale of every parameter, SI."""
TIMES = ("gap", "gap_fp4", "late", "rank", "sequence", "sequence_lab", "prompt", "start")
FOLDS = 5


def fit_stack(name: str, rows: Sequence[Served], load: Loads, chosen: NDArray[np.int64], **said: str) -> Stack:
    """The stack's parameters from the chosen rows; a large group of rows does not drown small ones.

    The loss is Cauchy's: a benchmark that something else governs (prompts from a prefix cache, a limit on the batch) bends the
    others little.
    """
    part = load.pick(chosen)
    ttft = np.array([rows[i].ttft_s for i in chosen])
    tpot = np.array([rows[i].tpot_s for i in chosen])
    weight = _weights(rows)[chosen]
    moved = [key for key in RANGES if key not in _idle(part)]
    low, high, start, scale = (np.array([RANGES[key][side] for key in moved]) for side in range(4))

    def wrong(x: Array) -> Array:
        first, each = predict(part, _trial(name, moved, x))
        return np.concatenate([np.log(each / tpot) / 0.08 * weight, np.log(first / ttft) / 0.25 * weight])

    found = least_squares(
        wrong, start, bounds=(low, high), x_scale=scale, loss="cauchy", diff_step=1e-4, max_nfev=80
    )  # fmt: skip
    return _stack(name, moved, found.x, **said)


def _idle(part: Loads) -> set[str]:
    """Parameters that none of the rows depends on; they stay zero, or as the rows they are an exception to."""
    without = {
        "gap_fp4": not part.fp4.any(), "late": not (part.chips > 1).any(), "rank": not part.decode["exchanges"].any(),
        "sequence_lab": not part.lab.any(), "lab": not part.lab.any(), "lag": not part.behind.any(),
        "lockstep": not part.together.any(), "fused": not part.decode["quantised"].any(),
    }  # fmt: skip
    return {key for key, idle in without.items() if idle}


ALIKE = {"gap_fp4": "gap", "sequence_lab": "sequence", "lab": "stretch"}
"""What stands in for a parameter that no row shows."""


def _values(moved: Sequence[str], x: Array) -> dict[str, float]:
    """Every parameter."""
    found = dict.fromkeys(RANGES, 0.0) | dict(zip(moved, (float(value) for value in x), strict=True))
    return found | {key: found[other] for key, other in ALIKE.items() if key not in moved}


def _trial(name: str, moved: Sequence[str], x: Array) -> Stack:
    """The stack with unrounded numbers: what is written rounds away the small steps of a gradient."""
    values = {f"{key}_s" if key in TIMES else key: value for key, value in _values(moved, x).items()}
    return Stack.model_construct(stack=name, **values)  # type: ignore[arg-type]


def _stack(name: str, moved: Sequence[str], x: Array, **said: str) -> Stack:
    values: dict[str, Any] = {"stack": name, **said}
    for key, value in _values(moved, x).items():
        kept = round(value, 12)  # a picosecond, or a millionth of a millionth: what is less was fitted to 0
        values[key] = f"{kept * 1e6:.4g} us" if key in TIMES else float(f"{kept:.4g}")
    return Stack.model_validate(values)


def _weights(rows: Sequence[Served]) -> Array:
    """Groups of 25 rows or more count alike, smaller ones by their rows."""
    count = Counter(row.group[:3] for row in rows)
    return np.array([(25 / max(25, count[row.group[:3]])) ** 0.5 for row in rows])


def fitted_rows(rows: Sequence[Served], stack: str) -> NDArray[np.int64]:
    """Rows that a stack's parameters are fitted to. DeepSeek's are not: whether it drafted tokens is not recorded."""
    return np.array(
        [i for i, row in enumerate(rows) if row.group[2] == stack and "DeepSeek" not in row.group[0]], dtype=np.int64
    )


def held_out(rows: Sequence[Served], load: Loads) -> tuple[Array, Array]:
    """(TTFT, TPOT) of every row, each by parameters that saw no row of its configuration (model, layout, version); s."""
    names = sorted({row.config for row in rows})
    np.random.default_rng(0).shuffle(names)
    fold = np.array([{name: index % FOLDS for index, name in enumerate(names)}[row.config] for row in rows])
    ttft, tpot = np.zeros(len(rows)), np.zeros(len(rows))
    for stack in sorted({row.group[2] for row in rows}):
        own = np.array([row.group[2] == stack for row in rows])
        usable = fitted_rows(rows, stack)
        for number in range(FOLDS):
            out = np.flatnonzero(own & (fold == number))
            kept = usable[fold[usable] != number]
            if len(out) and len(kept):
                ttft[out], tpot[out] = predict(load.pick(out), fit_stack(stack, rows, load, kept))
    return ttft, tpot
