"""A plan laid out: placed on its cluster and packed once, to be asked about any amount of work on any numbers of its chips."""

from __future__ import annotations

from dataclasses import dataclass, field

from hwmodel.graph import OpGraph
from hwmodel.placing import place
from hwmodel.scenario import Scenario
from hwmodel.timeline import Program, makespan, period, program, seconds
from hwmodel.timing import Array, OpTable, pack, points
from hwmodel.workload import Workload


@dataclass(frozen=True)
class Laid:
    """A placed graph, its flat table, and the order of work for every number of micro-batches asked about so far."""

    graph: OpGraph
    table: OpTable
    _orders: dict[int, Program] = field(default_factory=dict, repr=False, compare=False)

    @property
    def most(self) -> int:
        """Micro-batches that a step is cut into where its batch fills them."""
        return max(self.graph.micro_batches, self.graph.pipeline_batches)

    def parts(self, work: Workload) -> int:
        """Micro-batches that a step of this work is cut into."""
        return work.parts(self.most)

    def order(self, parts: int) -> Program:
        """The order of work of so many micro-batches."""
        if parts not in self._orders:
            self._orders[parts] = program(self.graph, self.table, parts)
        return self._orders[parts]

    def point(self, work: Workload, parts: int) -> Array:
        """One of so many micro-batches as the table wants it, shape (1, symbols)."""
        return points(self.table, self.graph.symbols(work.symbols(parts)))

    def step_s(self, work: Workload, parts: int, priced: Array) -> float:
        """Seconds of a step from its priced ops, (ops, N_OUT), without the host: a period, or all of a prefill step."""
        whole, order = makespan if work.phase == "prefill" else period, self.order(parts)
        return whole(order, seconds(order, priced))


class OnLaid:
    """What rests on a plan laid out."""

    laid: Laid

    @property
    def graph(self) -> OpGraph:
        """The model's ops, placed."""
        return self.laid.graph

    @property
    def table(self) -> OpTable:
        """The same, flat."""
        return self.laid.table


def lay(scenario: Scenario) -> Laid:
    """Lower a scenario's model, spread it by the plan, flatten it.

    Raises
    ------
    InputError
        When the question cannot be priced at all.
    """
    graph = place(scenario)
    return Laid(graph, pack(graph, scenario.cluster, scenario.workload.routing))
