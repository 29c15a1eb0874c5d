"""One step, from a scenario to an answer. The flow of the whole program, top to bottom: newcomers start here.

Scenario -> lower -> OpGraph -> partition -> placed OpGraph -> pack -> OpTable -> price -> Timeline -> Result
"""

from __future__ import annotations

from dataclasses import replace

from hwmodel.hardware import Cluster
from hwmodel.kernels import columns as c
from hwmodel.laid import Laid, lay
from hwmodel.prices import Economics
from hwmodel.result import Placed, Result, assemble
from hwmodel.scenario import Scenario, loaded
from hwmodel.stages import executions, stage_counts
from hwmodel.timeline import schedule
from hwmodel.timing import Array, device_array, price
from hwmodel.uncertainty import certain, spread
from hwmodel.workload import Workload

__all__ = ["Result", "again", "run"]


def run(scenario: Scenario | str, *, ideal: bool = False, ranges: bool = True) -> Result:
    """Price and schedule one step.

    Parameters
    ----------
    scenario
        Or its name or path.
    ideal
        The physical floor: efficiencies 1, overheads, latencies and reserves 0, activations on the chip, and
        step = max(FLOP / peak, bytes / bandwidth, link bytes / bandwidth) of the busiest chip.
    ranges
        Also price both ends of every stated range, for the answer's own; without, an answer takes a fifth of the time.

    Raises
    ------
    InputError
        When the question cannot be priced at all. A plan that does not fit is priced all the same, `feasible` False.
    """
    question = loaded(scenario)
    return _priced(question, lay(question), ideal=ideal, ranges=ranges)  # lower, partition, pack


def again(
    result: Result, cluster: Cluster, economics: Economics, workload: Workload | None = None, *, ranges: bool = False
) -> Result:
    """The same placed step with other numbers of chips, links, prices and work.

    cluster : the pools, chips and links of the result's own, numbers apart
    workload : the result's own when None; of the same phase, routing and drafts
    ranges : whether the answer has those of its inputs
    """
    placed = result.placed
    work = workload or placed.scenario.workload
    scenario = replace(placed.scenario, cluster=cluster, economics=economics, workload=work)
    return _priced(scenario, placed.laid, ideal=placed.ideal, ranges=ranges)


def _priced(scenario: Scenario, laid: Laid, *, ideal: bool, ranges: bool) -> Result:
    workload, cluster, table = scenario.workload, scenario.cluster, laid.table
    parts = 1 if ideal else laid.parts(workload)
    point = laid.point(workload, parts)
    device = device_array(table, cluster, ideal=ideal)
    priced = price(table, point, device)[0]
    timeline = schedule(laid.order(parts), table, priced)
    host = 0.0 if ideal else cluster.host_s

    def time_of(part: Array) -> float:
        return host + laid.step_s(workload, parts, part)

    placed = Placed(scenario, laid, priced, timeline, device, ideal, host)
    time = _ideal_time(placed) if ideal else time_of(priced)
    around = spread(table, cluster, point, priced, time_of, time) if ranges and not ideal else certain(len(table.ops))
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
