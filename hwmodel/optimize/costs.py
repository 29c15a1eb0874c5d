"""The best placement of a scenario's ops over its pools: all layers of a kind alike, or each by itself.

The objective is the latency of one step with one micro-batch, one op after another: the sum over all ops and transfers.
What runs beside something else (the shared expert while tokens travel) is counted in full, so that `run` of the same plan
takes at most this long, host time aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hwmodel.graph import Op, OpGraph
from hwmodel.optimize.assignment import assignment, shared, stack
from hwmodel.optimize.placement import Placement, Problem, solve, stacked
from hwmodel.optimize.pricing import prices
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError


@dataclass(frozen=True)
class BestPlacement:
    """Where everything goes."""

    placement: Placement
    """Objective, method, bound and gap; `device` by position in `problem.ops`."""
    problem: Problem
    """Ops by name; ``NUMBER.OP``, by layer from the bottom, where each layer is placed by itself."""
    classes: Mapping[str, str]
    """Device of each op class, named by layer kind and role ("mla+moe experts"); several joined by " + "; empty when nothing
    fits. A device is a pool, or ``A<B``: computed on pool A with weights that lie on pool B."""
    notes: tuple[str, ...]

    def device(self, op: str) -> str:
        """Device of an op, such as ``layer3.experts_up``."""
        return self.problem.devices[self.placement.device[self.problem.ops.index(op)]]


def best_placement(scenario: Scenario, *, capacity: bool = True, alike: bool = True) -> BestPlacement:
    """The placement of least latency, proved.

    Parameters
    ----------
    capacity
        Whether weights and caches must fit the main memory of the chips they are placed on.
    alike
        Whether all layers of a kind are placed in the same way, as plans can say it. If not, the objective is a bound of
        every placement that the prices know.

    Raises
    ------
    InputError
        When the plan has strategies other than those that shard a pool or place ops; for layers placed each by itself, when
        the model's output matrix is that of another op.
    """
    found = prices(scenario)
    if not alike and shared(found.graph):
        raise InputError("placement: layers are placed alike where the output matrix is not stored by itself (tied, or drafts)")
    if alike:
        problem = assignment(found, capacity=capacity)
        placement = solve(problem)
    else:
        layers = stack(found, capacity=capacity)
        problem = layers.unrolled()
        placement = stacked(layers)
    classes: dict[str, dict[str, None]] = {}
    for name, device in zip(problem.ops, placement.device, strict=False):  # no devices when nothing fits
        op = name if alike else name.partition(".")[2]
        if op in found.graph.nx:
            classes.setdefault(class_of(found.graph, found.graph.op(op)), {})[problem.devices[device]] = None
    return BestPlacement(placement, problem, {key: " + ".join(value) for key, value in classes.items()}, found.notes)


def class_of(graph: OpGraph, op: Op) -> str:
    """The class that an op is placed with: the kind of its layer and its role."""
    kind = graph.segment(op.segment).kind
    return kind if kind == op.role else f"{kind} {op.role}"
