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
    "gap": (1e-9, 2e-5, 1e-7), "sequence": (1e-7, 2e-4, 2e-5), "fused": (1e-9, 3e-5, 1e-6), "share": (0.3, 3.0, 1.0),
    "prompt": (1e-6, 5e-2, 2e-3), "start": (1e-3, 0.5, 2e-2), "stretch": (0.5, 5.0, 1.0), "lab": (0.5, 8.0, 3.0),
    "steps": (1e-2, 20.0, 1.0), "burst": (1e-3, 2.0, 0.1),
}  # fmt: skip
"""Least, most and start of every parameter, SI."""
TIMES = ("gap", "sequence", "fused", "prompt", "start")
FOLDS = 5


def fit_stack(name: str, rows: Sequence[Served], load: Loads, chosen: NDArray[np.int64], **said: str) -> Stack:
    """The stack's parameters from the chosen rows; a large group of rows does not drown small ones."""
    low, high, start = (np.log([bounds[side] for bounds in RANGES.values()]) for side in range(3))
    part = load.pick(chosen)
    ttft = np.array([rows[i].ttft_s for i in chosen])
    tpot = np.array([rows[i].tpot_s for i in chosen])
    weight = np.array([_weights(rows)[i] for i in chosen])

    def wrong(x: Array) -> Array:
        first, each = predict(part, _trial(name, x))
        return np.concatenate([np.log(each / tpot) / 0.08 * weight, np.log(first / ttft) / 0.25 * weight])

    found = least_squares(wrong, start, bounds=(low, high), loss="soft_l1", max_nfev=80)
    return _stack(name, found.x, **said)


def _trial(name: str, logs: Array) -> Stack:
    """The stack with unrounded numbers: what is written rounds away the small steps of a gradient."""
    values: dict[str, Any] = {"stack": name}
    for key, value in zip(RANGES, np.exp(logs), strict=True):
        values[f"{key}_s" if key in TIMES else key] = float(value)
    return Stack.model_construct(**values)


def _stack(name: str, logs: Array, **said: str) -> Stack:
    values: dict[str, Any] = {"stack": name, **said}
    for key, value in zip(RANGES, np.exp(logs), strict=True):
        values[key] = f"{value * 1e6:.6g} us" if key in TIMES else float(f"{value:.6g}")
    return Stack.model_validate(values)


def _weights(rows: Sequence[Served]) -> list[float]:
    count = Counter(row.group[:3] for row in rows)
    return [float(min(1.5, (25 / max(10, count[row.group[:3]])) ** 0.5)) for row in rows]


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
