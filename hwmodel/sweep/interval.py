"""Ranges of a step's time at every point: fitted once per plan to exact ranges of a few points, by what the time is made of.

`run` prices a step some fifty times to say how far its inputs' ranges move it. Here a few points are treated so, and the
logarithms of their two ends are fitted as linear in the shares of the step that every pool spends computing, reading memory,
communicating and on fixed costs, and that every lane works: an input moves a step about in proportion to the share of it that
follows the input. The error is measured on points that the fit has not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hwmodel.routing import Routing
from hwmodel.scenario import Scenario
from hwmodel.sweep.names import HIGH, LOW, TIME
from hwmodel.sweep.numbers import Numbers, symbols_of
from hwmodel.sweep.structures import Structure, with_routing
from hwmodel.timeline import periods, program, seconds
from hwmodel.timing import Array, device_array, price
from hwmodel.uncertainty import spread

HELD_OUT = 4
"""Every fourth point checks the fit."""


@dataclass(frozen=True)
class Fitted:
    """Weights of the shares."""

    names: tuple[str, ...]
    """Columns whose shares of the step count."""
    weights: Array
    """(1 + names, 2): of the logarithms of time / low and of high / time."""
    error: float
    """What 95 % of the ends of held-out points are off by at most, as a share of the time."""

    def ends(self, found: Mapping[str, Array]) -> tuple[Array, Array]:
        """(low, high) time of a step (s) from its columns."""
        time = found[TIME]
        logs = np.zeros((2, len(time)))
        for name, weight in zip(self.names, self.weights[1:], strict=True):
            logs[0] += weight[0] * found[name]
            logs[1] += weight[1] * found[name]
        logs = self.weights[0][:, None] + logs / time
        low, high = np.exp(np.maximum(logs, 0.0))
        return time / low, time * high


def share_names(found: Mapping[str, Array], pools: tuple[str, ...]) -> tuple[str, ...]:
    """Columns that a range is fitted by."""
    own = [f"{pool}.{part}_s" for pool in pools for part in ("compute", "memory", "link", "overhead")]
    return (*(name for name in own if name in found), *(name for name in found if name.endswith(".lane_s")))


def exact(of: Structure, scenario: Scenario, numbers: Numbers, routing: Routing, parts: int) -> tuple[float, float]:
    """Logarithms of time / low and of high / time of one point, as `run` finds them; `scenario` is that of the point."""
    table, cluster = with_routing(of, routing), scenario.cluster
    symbols = symbols_of(numbers, of.scenario, of.graph, of.table.symbols, np.array([float(parts)]))
    priced = price(table, symbols, device_array(table, cluster))[0]
    order = of.order if of.chain else program(of.graph, table, parts)
    host = cluster.host_s
    which = 0 if scenario.workload.phase == "prefill" else 1

    def time_of(part: Array) -> float:
        took = seconds(order, part)
        return host + (of.chain.times(took, parts) if of.chain else periods(order, took))[which]

    around = spread(table, cluster, symbols, priced, time_of)
    return float(-np.log(around.low)), float(np.log(around.high))


def fit(names: tuple[str, ...], shares: Array, logs: Array) -> Fitted:
    """Fit `logs` (points, 2) by `shares` (points, names)."""
    rows = np.concatenate([np.ones((len(shares), 1)), shares], axis=1)
    held = np.arange(len(rows)) % HELD_OUT == HELD_OUT - 1
    tried = _solved(rows[~held], logs[~held])
    off = np.abs(np.expm1(np.maximum(rows[held] @ tried, 0.0) - logs[held]))
    return Fitted(names, _solved(rows, logs), float(np.quantile(off, 0.95)) if held.any() else float("nan"))


def _solved(rows: Array, logs: Array) -> Array:
    """Least squares with a little ridge: shares of one pool add up to almost the same everywhere."""
    square = rows.T @ rows + 1e-6 * len(rows) * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(square, rows.T @ logs))


def with_ends(found: dict[str, Array], fitted: Fitted | None) -> dict[str, Array]:
    """The columns with the range behind the time."""
    if fitted is None:
        return found
    low, high = fitted.ends(found)
    return {
        TIME: found[TIME],
        LOW: low,
        HIGH: high,
        **{k: v for k, v in found.items() if k != TIME},
    }
