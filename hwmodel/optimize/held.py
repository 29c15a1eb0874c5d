"""What a model keeps, undivided: weights by part, and the cache of one sequence."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Pool
from hwmodel.workload import Workload


@dataclass(frozen=True)
class Held:
    """Bytes of a lowered model, undivided."""

    experts: float
    """Of the routed experts."""
    ffn: float
    """Of the other feed-forward parts."""
    rest: float
    """Of attention, embedding and head."""
    cache: float
    """That one sequence of the workload keeps."""

    @property
    def weights(self) -> float:
        """Of all parts."""
        return self.experts + self.ffn + self.rest


def held(lowered: OpGraph, work: Workload) -> Held:
    """Measure a lowered model."""
    parts = {"experts": 0.0, "ffn": 0.0, "rest": 0.0}
    cache = 0.0
    context = work.cached + work.new_tokens if work.phase == "prefill" else work.context
    for op in lowered.ops():
        times = lowered.segment(op.segment).count if lowered.segment(op.segment).first >= 0 else 1
        part = "experts" if op.role == "experts" else "ffn" if op.part == "ffn" and op.role != "norm" else "rest"
        parts[part] += times * _stored(op)
        if op.kept is not None and op.phase in ("all", "prefill" if work.phase == "prefill" else "decode"):
            cache += times * op.kept.bytes_per_sequence(context, {}, windowed=work.kv_alloc == "windowed")
    return Held(**parts, cache=cache)


def _stored(op: Op) -> float:
    ones = dict.fromkeys((symbol for stored in op.stored for symbol in stored.elements.symbols | stored.copies.symbols), 1.0)
    return sum(stored.bytes(ones) for stored in op.stored)


def room(pool: Pool) -> float:
    """Bytes that weights and caches may take of one chip's main memory."""
    return float(pool.chip.main.capacity_bytes) * (1 - pool.memory_reserve)
