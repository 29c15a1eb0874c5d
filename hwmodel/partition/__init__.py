"""Who computes what: a plan is a tuple of strategies, each a file here. Importing the package finds them all."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.kernels import plugins
from hwmodel.partition.data import Data, data_degrees
from hwmodel.partition.single import Single
from hwmodel.partition.strategy import DEGREES, Strategy
from hwmodel.partition.verify import totals, verify

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")
plugins("partition")

__all__ = ["Strategy", "partition"]


def partition(graph: OpGraph, plan: Sequence[Strategy], cluster: Cluster, *, check: bool = True) -> OpGraph:
    """Place and shard a lowered graph; the input stays as it was.

    Strategies apply in the order of their rank; `verify` runs after each (a search checks its answer only: `check` False
    takes half the time). What makes the plan impossible is collected in
    ``reasons`` of the result, which is complete all the same.
    """
    placed = graph.copy()
    for pool in cluster.pools:
        placed.degrees |= {f"{pool.name}.{kind}": 1 for kind in DEGREES}
    for strategy in plan:
        for symbol, value in strategy.degrees(cluster).items():
            cluster.pool(symbol.rpartition(".")[0])
            placed.degrees[symbol] = value
    derived, reasons = data_degrees(placed.degrees, cluster)
    placed.degrees |= derived
    placed.reasons += reasons
    stated = {strategy.pool or cluster.pools[0].name for strategy in plan if isinstance(strategy, Data)}
    rest = [Data(pool=pool.name) for pool in cluster.pools if pool.name not in stated]
    before = totals(graph) if check else None
    for strategy in sorted([Single(), *plan, *rest], key=lambda s: s.rank):
        strategy.apply(placed, cluster)
        if before is not None:
            verify(placed, before, strategy)
    for load in placed.ops(lambda op: op.kind == "load"):  # a chip receives its share of what the op behind it reads
        for axis, degree in placed.op(load.name.removesuffix(".load")).shards:
            load = load.shard((axis,), degree)  # noqa: PLW2901
        placed.put(load)
    return placed
