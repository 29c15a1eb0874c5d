"""What may differ between points of one structure, as arrays over points: workload, pool sizes, chips, links, prices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.scenario import Scenario
from hwmodel.timing import Array, Ints

WORKLOAD_FIELDS = ("batch", "context", "new_tokens", "cached", "prefill_batch")
"""Fields of a workload that are numbers of a point."""


@dataclass(frozen=True)
class Numbers:
    """Values of many points, each (points,); what is absent is as the scenario says."""

    points: int
    workload: Mapping[str, Array] = field(default_factory=dict)
    counts: Mapping[str, Array] = field(default_factory=dict)
    """Chips of a pool."""
    reserves: Mapping[str, Array] = field(default_factory=dict)
    """Share of memory that a pool leaves free."""
    chips: Mapping[tuple[str, str], Array] = field(default_factory=dict)
    """(pool, path of a number of its chip), SI."""
    wires: Mapping[tuple[int, str], Array] = field(default_factory=dict)
    """(index, field) of a link between pools, SI."""
    micro_batches: Array | None = None
    """Parts that the plan cuts the batch into."""
    routing: NDArray[np.int64] | None = None
    """Which of the sweep's routings."""

    def taken(self, where: Ints) -> Numbers:
        """Those of some points."""
        return Numbers(
            len(where),
            {key: values[where] for key, values in self.workload.items()},
            {key: values[where] for key, values in self.counts.items()},
            {key: values[where] for key, values in self.reserves.items()},
            {key: values[where] for key, values in self.chips.items()},
            {key: values[where] for key, values in self.wires.items()},
            None if self.micro_batches is None else self.micro_batches[where],
            None if self.routing is None else self.routing[where],
        )  # fmt: skip

    def cuts(self, where: Ints) -> Numbers:
        """What the number of micro-batches and the structure go by, of some points."""
        batch = {key: values[where] for key, values in self.workload.items() if key == "batch"}
        counts = {key: values[where] for key, values in self.counts.items()}
        micro = None if self.micro_batches is None else self.micro_batches[where]
        return Numbers(len(where), batch, counts, micro_batches=micro)

    def work(self, name: str, scenario: Scenario) -> Array:
        """A field of the workload."""
        found = self.workload.get(name)
        return np.full(self.points, float(getattr(scenario.workload, name))) if found is None else found

    def count(self, pool: str, cluster: Cluster) -> Array:
        """Chips of a pool."""
        found = self.counts.get(pool)
        return np.full(self.points, float(cluster.pool(pool).count)) if found is None else found

    def chip(self, pool: str, path: str, otherwise: float) -> Array | float:
        """A number of a pool's chip; one float where it does not vary."""
        return self.chips.get((pool, path), otherwise)

    def wire(self, index: int, name: str, otherwise: float) -> Array | float:
        """A number of a link between pools."""
        return self.wires.get((index, name), otherwise)


def parts_of(numbers: Numbers, scenario: Scenario, graph: OpGraph) -> Array:
    """Micro-batches of every point, as `Workload.parts` counts them; (points,)."""
    batch = numbers.work("batch", scenario)
    own = float(graph.micro_batches) if numbers.micro_batches is None else numbers.micro_batches
    wanted = np.minimum(np.maximum(own, float(graph.pipeline_batches)), batch)
    return np.ceil(batch / np.ceil(batch / wanted))


def symbols_of(numbers: Numbers, scenario: Scenario, graph: OpGraph, names: tuple[str, ...], parts: Array) -> Array:
    """Symbols of one of `parts` micro-batches at every point, as `Workload.symbols` and the plan have them.

    Returns
    -------
    (points, names)
    """
    return np.ascontiguousarray(symbol_rows(numbers, scenario, graph, names, parts).T)


def symbol_rows(numbers: Numbers, scenario: Scenario, graph: OpGraph, names: tuple[str, ...], parts: Array) -> Array:
    """As `symbols_of`, with the points last: (names, points)."""
    found = np.empty((len(names), numbers.points))
    workload = _workload(numbers, scenario, parts)
    for row, name in enumerate(names):
        if name in workload:
            found[row] = workload[name]
            continue
        pool, _, kind = name.rpartition(".")
        if kind in ("dp", "edp") and pool in numbers.counts:
            tp, cp, pp, ep, etp = (graph.degrees[f"{pool}.{one}"] for one in ("tp", "cp", "pp", "ep", "etp"))
            group = tp * cp * pp if kind == "dp" else pp * (ep * etp if ep * etp > 1 else tp * cp)
            found[row] = np.maximum(1.0, np.floor(numbers.counts[pool] / group))
        else:
            found[row] = float(graph.degrees.get(name, 1))
    return found


def _workload(numbers: Numbers, scenario: Scenario, parts: Array) -> dict[str, Array | float]:
    work = scenario.workload
    batch, new, cached = (numbers.work(name, scenario) for name in ("batch", "new_tokens", "cached"))
    share = np.ceil(batch / parts)
    prefills: Array | float = 0.0
    if work.phase == "prefill":
        prefills = share
    elif work.phase == "mixed":
        several = numbers.work("prefill_batch", scenario)
        chunks = parts / several
        cut = several < parts
        prefills = np.where(cut, 1.0, np.ceil(several / parts))
        cached = np.where(cut, cached + new * (1 - 1 / chunks) / 2, cached)
        new = np.where(cut, new / chunks, new)
    return {
        "decode_sequences": 0.0 if work.phase == "prefill" else share,
        "decode_queries": 1.0 + (work.speculative.draft if work.speculative else 0),
        "decode_context": numbers.work("context", scenario),
        "prefill_sequences": prefills,
        "prefill_new": new,
        "prefill_cached": cached,
    }
