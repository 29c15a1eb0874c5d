"""How often one chip runs an op, pipeline stage by stage."""

from __future__ import annotations

from collections.abc import Mapping

from hwmodel.graph import Op, OpGraph


def executions(graph: OpGraph, op: Op, counts: Mapping[str, int]) -> float:
    """How often one chip runs an op per micro-batch, when it runs each segment `counts` times.

    The op of a hop between stages repeats as often as there are hops of its kind; a chip makes one, of the mean kind.
    """
    times = op.repeats.value({})
    return times / max(1, len(graph.stages) - 1) if op.note == "p2p" else counts[op.segment] * times


def stage_counts(graph: OpGraph) -> list[dict[str, int]]:
    """For each pipeline stage, how often its chips run each segment."""
    stages = graph.stages or (tuple(segment.count for segment in graph.segments),)
    return [{s.name: n for s, n in zip(graph.segments, counts, strict=True)} for counts in stages]
