"""From a scenario to its placed graph: the two hops that a run and a fit share."""

from __future__ import annotations

from hwmodel.graph import OpGraph
from hwmodel.lower.decoder import lower
from hwmodel.partition import partition
from hwmodel.scenario import Scenario


def place(scenario: Scenario) -> OpGraph:
    """Lower a scenario's model for its phase, drafting modules included, and apply its plan."""
    work = scenario.workload
    return partition(lower(scenario.model, work.phase, scenario.formats, work.drafts), scenario.plan, scenario.cluster)
