"""One step, from a scenario to an answer. The flow of the whole program, top to bottom: newcomers start here.

Scenario -> lower -> OpGraph -> partition -> placed OpGraph -> pack -> OpTable -> price -> Timeline -> Result
"""

from __future__ import annotations

from hwmodel.kernels import columns as c
from hwmodel.placing import place
from hwmodel.result import Placed, Result, assemble
from hwmodel.scenario import Scenario
from hwmodel.stages import executions, stage_counts
from hwmodel.timeline import makespan, period, program, schedule, seconds
from hwmodel.timing import Array, device_array, pack, points, price
from hwmodel.uncertainty import certain, spread

__all__ = ["Result", "run"]


def run(scenario: Scenario, *, ideal: bool = False) -> Result:
    """Price and schedule one step.

    Parameters
    ----------
    ideal
        The physical floor: efficiencies 1, overheads, latencies and reserves 0, activations on the chip, and
        step = max(FLOP / peak, bytes / bandwidth, link bytes / bandwidth) of the busiest chip.

    Raises
    ------
    InputError
        When the question cannot be priced at all. A plan that does not fit is priced all the same, `feasible` False.
    """
    workload, cluster = scenario.workload, scenario.cluster
    graph = place(scenario)  # lower, partition
    table = pack(graph, cluster, workload.routing)
    parts = 1 if ideal else workload.parts(max(graph.micro_batches, graph.pipeline_batches))
    point = points(table, graph.symbols(workload.symbols(parts)))
    device = device_array(table, cluster, ideal=ideal)
    priced = price(table, point, device)[0]
    order = program(graph, table, parts)
    timeline = schedule(order, table, priced)
    host = 0.0 if ideal else max((float(pool.chip.execution.step_s or 0) for pool in cluster.pools), default=0.0)

    def time_of(part: Array) -> float:
        whole = makespan if workload.phase == "prefill" else period
        return host + whole(order, seconds(order, part))

    placed = Placed(scenario, graph, table, priced, timeline, device, ideal)
    time = _ideal_time(placed) if ideal else time_of(priced)
    around = certain(len(table.ops)) if ideal else spread(table, cluster, point, priced, time_of, time)
    return assemble(placed, time, host, parts, around)


def _ideal_time(placed: Placed) -> float:
    """max(FLOP / peak, bytes / bandwidth, link bytes / bandwidth) of the busiest chip and of every way between pools."""
    longest = 0.0
    for counts in stage_counts(placed.graph):
        lanes: dict[tuple[str, str], float] = {}
        for op, priced in zip(placed.table.ops, placed.priced, strict=True):
            times = executions(placed.graph, op, counts)
            tier = f"memory {op.tier}"
            own = {"compute": priced[c.COMPUTE], tier: priced[c.MEMORY], "link": priced[c.WIRE]}
            where = op.way if op.kind in ("transfer", "load") else op.pool
            for key, value in own.items():
                lanes[(where, key)] = lanes.get((where, key), 0.0) + float(value) * times
        longest = max(longest, *lanes.values())
    return longest
