"""What a software stack adds to each op of a step that decodes, by the parameters that served steps were fitted with."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hwmodel.graph import OpGraph
from hwmodel.hardware import Cluster
from hwmodel.served.engines import category, quantising
from hwmodel.served.stack import Stack
from hwmodel.served.step import OVERLAP
from hwmodel.timing import OpTable

Array = NDArray[np.float64]


def around(graph: OpGraph, table: OpTable, cluster: Cluster, stack: Stack) -> Array:
    """Seconds to add to one execution of every op, shape (ops,); negative where kernels overlap. See `served.step`."""
    found = np.zeros(len(table.ops))
    for index, op in enumerate(table.ops):
        if op.kind in ("transfer", "load"):
            continue
        pool = cluster.pool(op.pool)
        found[index] = (stack.gap_fp4_s if "nvfp4" in pool.chip.peaks.by_dtype() else stack.gap_s) - OVERLAP
        found[index] -= stack.fused * quantising(op, pool.calibration)
        if op.family == "all_reduce":
            found[index] += stack.late_s * math.log2(max(1, graph.degrees.get(f"{op.pool}.tp", 1)))
        if category(op.kind, op.role, op.family) == "exchange":
            found[index] += stack.rank_s
    return found
