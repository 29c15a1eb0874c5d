"""A model's routed experts spread over the chips of one pool, priced at many batches at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hwmodel.graph import Op, OpGraph
from hwmodel.hardware import Cluster, Pool, load_chip
from hwmodel.kernels import columns as c
from hwmodel.loads import rank_imbalance
from hwmodel.lower.decoder import lower
from hwmodel.optimize.held import room
from hwmodel.partition import Strategy, partition
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.timing import Array, OpTable, device_array, pack, points, price
from hwmodel.workload import Workload


@dataclass(frozen=True)
class Layout:
    """All routed experts of a scenario's model on one pool: `degree` groups of `tensor` chips, and copies of them."""

    scenario: Scenario
    pool: Pool
    degree: int
    tensor: int = 1
    stages: int = 1
    """Pipeline stages that share the layers; the pool is one of them."""

    @property
    def chips(self) -> int:
        """Of all stages."""
        return self.pool.count * self.stages

    @property
    def label(self) -> str:
        """In words."""
        parts = [f"{name}{n}" for name, n in (("EP", self.degree), ("TP", self.tensor), ("PP", self.stages)) if n > 1]
        split = f", {' x '.join(parts)}" if parts else ""
        return f"{self.chips:,} x {self.pool.chip.name}{split}"

    @property
    def copies(self) -> int:
        """Copies of every expert."""
        return max(1, self.pool.count // (self.degree * self.tensor))

    @cached_property
    def graph(self) -> OpGraph:
        """Everything on the pool; only the experts are looked at."""
        fields = {"pool": self.pool.name, "degree": self.degree, "tensor": self.tensor}
        plan = [Strategy.kinds["expert"].model_validate(fields)] if self.degree * self.tensor > 1 else []
        lowered = lower(self.scenario.model, "decode", self.scenario.formats)
        return partition(lowered, plan, Cluster((self.pool,)), check=False)

    @cached_property
    def table(self) -> OpTable:
        """Packed."""
        return pack(self.graph, Cluster((self.pool,)), self.scenario.workload.routing)

    @cached_property
    def ops(self) -> tuple[Op, ...]:
        """The expert ops."""
        return tuple(op for op in self.table.ops if op.role == "experts")

    @property
    def grouped(self) -> Op:
        """The first of the expert products."""
        return next(op for op in self.ops if op.experts)

    @property
    def experts(self) -> int:
        """Of a layer."""
        return self.grouped.experts.total if self.grouped.experts else 0

    @property
    def topk(self) -> float:
        """That a token chooses."""
        return self.grouped.experts.topk if self.grouped.experts else 0.0

    @property
    def layers(self) -> int:
        """With experts."""
        return sum(self.graph.segment(name).count for name in {op.segment for op in self.ops})

    @property
    def held(self) -> int:
        """Experts of a layer on one chip."""
        return -(-self.experts // self.degree)

    @cached_property
    def weights_bytes(self) -> float:
        """Of the experts of all layers of a stage on one chip."""
        symbols = self.graph.symbols(Workload(context=1).symbols())
        whole = sum(s.bytes(symbols) * self.graph.segment(op.segment).count for op in self.ops for s in op.stored)
        return whole / self.stages

    @property
    def fits(self) -> bool:
        """Whether a chip's main memory holds them."""
        return self.weights_bytes <= room(self.pool)

    @cached_property
    def knee(self) -> float:
        """Tokens per expert at which the stated peak and bandwidth take equally long."""
        op, chip = self.grouped, self.pool.chip
        group = next(group for group in self.table.groups if group.kind == "experts")
        dtype = c.DTYPES[int(group.where[list(group.rows).index(self.table.index[op.name]), c.DTYPE])]
        return float(chip.peaks.by_dtype()[dtype]) * op.consts["weight_bytes"] / (2 * float(chip.main.bandwidth_bytes_per_s))

    def seconds(self, tokens: Array) -> Array:
        """Time (s) of all layers' expert ops on the busiest chip, for each number of tokens, exchanges apart."""
        base = points(self.table, self.graph.symbols(Workload(context=1).symbols()))
        symbols = np.repeat(base, len(tokens), axis=0)
        symbols[:, self.table.symbols.index("decode_sequences")] = tokens
        priced = price(self.table, symbols, device_array(self.table, Cluster((self.pool,))))
        times = np.zeros(len(tokens))
        for op in self.ops:
            count = self.graph.segment(op.segment).count * op.repeats.value({})
            times += priced[:, self.table.index[op.name], c.TIME] * count
        return times

    def imbalance(self, tokens: float) -> float:
        """Expected tokens of the busiest group over the mean, uniform routing, of one copy's tokens."""
        return rank_imbalance(max(tokens, 1e-9), self.experts, round(self.topk), self.degree)


def layouts(
    scenario: Scenario, plan: Iterable[Strategy], holders: Iterable[str] = (), chips: Sequence[str] = ()
) -> list[Layout]:
    """The experts on every pool of a scenario that can multiply them, then on as few of each named chip as hold them.

    A pool is divided as the plan says; of a pool that is none of the plan's `holders`, where the plan does not say, into as
    many groups as divide it.

    Raises
    ------
    InputError
        For an unknown chip, or a model without routed experts.
    """
    total = max((int(getattr(layer.ffn, "experts", 0)) for layer in scenario.model.kinds), default=0)
    if not total:
        raise InputError(f"model {scenario.model.name} has no routed experts")
    first = scenario.cluster.pools[0].name
    said = {(s.kind, getattr(s, "pool", "") or first): s for s in plan}
    found = []
    for whole in scenario.cluster.pools:
        stages = getattr(said.get(("pipeline", whole.name)), "stages", 1)
        pool = replace(whole, count=max(1, whole.count // stages))
        degree, tensor = max(n for n in range(1, min(total, pool.count) + 1) if pool.count % n == 0), 1
        if how := said.get(("expert", pool.name)):
            degree, tensor = getattr(how, "degree", 1), getattr(how, "tensor", 1)
        elif pool.name in holders:  # whole experts, or as the dense parts are split
            degree, tensor = 1, getattr(said.get(("tensor", pool.name)), "degree", 1)
        found.append(Layout(scenario, pool, degree, tensor, stages))
    found += [fewest(scenario, name, total) for name in chips]
    return [one for one in found if _works(one)]


def fewest(scenario: Scenario, chip: str, total: int) -> Layout:
    """The fewest chips that hold all experts, whole ones as far as one holds any."""
    pool = Pool(f"chips of {chip}", load_chip(chip), 1)
    whole = Layout(scenario, pool, 1).weights_bytes
    each, space = whole / total, room(pool)
    if each <= space:
        groups = -(-total // min(total, int(space // each)))
        return Layout(scenario, replace(pool, count=groups), groups)
    inside = int(np.ceil(each / space))
    return Layout(scenario, replace(pool, count=total * inside), total, inside)


def _works(layout: Layout) -> bool:
    """Whether the chip multiplies the experts' types."""
    try:
        return bool(layout.table)
    except InputError:
        return False


def widths_of(layout: Layout, most: int = 8) -> list[Layout]:
    """Other numbers of expert groups on the same chips, the widest first."""
    units = layout.pool.count // layout.tensor
    fitting = [n for n in range(min(units, layout.experts), 0, -1) if units % n == 0]
    return [replace(layout, degree=degree) for degree in fitting[:most]]
