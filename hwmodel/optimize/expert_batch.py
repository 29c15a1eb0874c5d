"""Tokens per expert: what a plan gives them, and what each device would make of more or fewer.

A curve is one device with the routed experts of all layers, priced over step batches: nothing else is counted, so that its TPOT
is a floor and its throughput a ceiling of what a plan reaches when attention and transfers keep pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hwmodel.graph import Op
from hwmodel.kernels import columns as c
from hwmodel.kernels.experts import grouped_time
from hwmodel.kernels.routing import distinct_experts, routed_tokens
from hwmodel.optimize.expert_layout import Layout, layouts, widths_of
from hwmodel.optimize.fixed import Fixed
from hwmodel.optimize.knee import step_batch
from hwmodel.optimize.packed import tokens_of
from hwmodel.result import Result, bound_of
from hwmodel.scenario import Scenario
from hwmodel.timing import Array

WITHIN = 0.05
"""How far (relative) from the best cost per token an optimum may be, for fewer tokens per expert."""
SPACING = 1.01
"""Ratio of neighbouring batches of a curve."""
MOST_TOKENS = 4096
"""Tokens per expert where curves end."""
CUTS = (1, 2, 3, 4, 8)


@dataclass(frozen=True)
class PoolBatch:
    """The routed experts of one pool in one micro-batch, on its busiest chip; of the layer kind that occurs most."""

    pool: str
    chip: str
    count: int
    weights: str
    """Where they lie: a memory tier, or the pool that they are streamed from."""
    experts: int
    """Of a layer that lie there."""
    experts_per_chip: int
    """On the busiest chip."""
    tokens: float
    """Of a micro-batch, choosing among all experts."""
    tokens_per_expert: float
    """Mean of the busiest chip."""
    distinct_experts: float
    """Expected experts of the pool that any token chooses."""
    knee: float
    """Tokens per expert at which the stated peak and bandwidth take equally long."""
    tile_efficiency: float
    """Useful share of the arithmetic: what tiles, waves and too few tokens leave of the reached peak."""
    layer_s: float
    """The expert ops of one layer."""
    bound: str
    """Of the longest of them."""


@dataclass(frozen=True)
class Optimum:
    """The fewest tokens per expert whose cost per token is close to the best that meets the target."""

    tokens_per_expert: float
    batch: int
    """Tokens of the step (of the micro-batch, for a device alone)."""
    tpot_s: float
    tokens_per_s_per_chip: float


@dataclass(frozen=True)
class Curve:
    """One device, or the whole plan, over tokens per expert."""

    label: str
    chips: int
    knee: float | None
    """None for the whole plan."""
    knee_batch: float | None
    """Tokens of a step that bring every expert to the knee."""
    fits: bool
    """Whether the chips hold the experts."""
    batch: Array
    tokens_per_expert: Array
    tokens_per_s_per_chip: Array
    tpot_s: Array

    def optimum(self, tpot_s: float | None = None, within: float = WITHIN) -> Optimum | None:
        """The fewest tokens per expert within a share of the best cost per token; None when nothing meets the target."""
        meets = self.tpot_s <= (np.inf if tpot_s is None else tpot_s)
        if not meets.any():
            return None
        rate = np.where(meets, self.tokens_per_s_per_chip, 0.0)
        at = int(np.argmax(rate >= rate.max() / (1 + within)))
        return Optimum(float(self.tokens_per_expert[at]), int(self.batch[at]), float(self.tpot_s[at]), float(rate[at]))


@dataclass(frozen=True)
class ExpertBatch:
    """The per-expert batch of an answer, and the study around it."""

    experts: int
    topk: float
    tokens_per_expert: float
    """Mean over all experts, of one micro-batch."""
    tpot_slo_s: float | None
    pools: tuple[PoolBatch, ...]
    curves: tuple[Curve, ...]
    accumulation: tuple[dict[str, Any], ...]
    widths: tuple[dict[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without the points of the curves."""
        devices = [
            {
                "device": curve.label, "chips": curve.chips, "fits": curve.fits, "knee": curve.knee,
                "knee_batch": curve.knee_batch,
                "optimum": None if (best := curve.optimum(self.tpot_slo_s)) is None else asdict(best),
            }
            for curve in self.curves
        ]  # fmt: skip
        return {
            "experts": self.experts, "topk": self.topk, "tokens_per_expert": self.tokens_per_expert,
            "tpot_slo_s": self.tpot_slo_s, "pools": [asdict(row) for row in self.pools], "devices": devices,
            "accumulation": list(self.accumulation), "widths": list(self.widths),
        }  # fmt: skip


def expert_batch(result: Result, tpot_s: float | None = None, scenario: Scenario | None = None) -> ExpertBatch | None:
    """What an answer's experts see; None for a model without routed experts.

    Parameters
    ----------
    tpot_s
        Target of the optima.
    scenario
        The question whose pools are compared; the answer's own when None.
    """
    routed = next((op.experts for op in result.placed.table.ops if op.experts), None)
    if routed is None:
        return None
    own = result.placed.scenario
    pools = pool_batches(result)
    tokens = tokens_of_step(own) / result.step.micro_batches
    found = layouts(scenario or own, own.plan, {row.pool for row in pools})
    home = next((one for one in found if one.pool.name == pools[0].pool), found[0])
    return ExpertBatch(
        routed.total, routed.topk, tokens * routed.topk / routed.total, tpot_s, pools,
        tuple(curve(one, own, result.step.micro_batches) for one in found),
        tuple(accumulation(home, own)), tuple(widths(home, own, result.step.micro_batches)),
    )  # fmt: skip


def tokens_of_step(scenario: Scenario) -> float:
    """Tokens of a step that pass the experts, all micro-batches."""
    work = scenario.workload
    if work.phase == "prefill":
        return float(work.batch * work.new_tokens)
    queries = 1 + (work.speculative.draft if work.speculative else 0)
    return float(work.batch * queries + (work.prefill_batch * work.new_tokens if work.phase == "mixed" else 0))


# --- what a plan gives its experts ------------------------------------------------------------------------------------
def pool_batches(result: Result) -> tuple[PoolBatch, ...]:
    """The routed experts of every pool that holds some, by where their weights lie."""
    placed = result.placed
    counts = {s.name: s.count for s in placed.graph.segments}
    where: dict[tuple[str, str], list[int]] = {}
    for position, op in enumerate(placed.table.ops):
        if op.kind == "experts":
            where.setdefault((op.pool, _home(result, op)), []).append(position)
    found = []
    for (pool, home), rows in where.items():
        commonest = max((placed.table.ops[row].segment for row in rows), key=lambda name: counts[name])
        found.append(_pool_batch(result, pool, home, [row for row in rows if placed.table.ops[row].segment == commonest]))
    return tuple(sorted(found, key=lambda row: -row.tokens))


def _home(result: Result, op: Op) -> str:
    """The pool that weights are streamed from, else the tier they lie in."""
    placed = result.placed
    return placed.graph.homes.get(f"{op.name}.load", "") or op.tier or placed.scenario.cluster.pool(op.pool).chip.main.tier


def _pool_batch(result: Result, pool: str, home: str, rows: Sequence[int]) -> PoolBatch:
    placed = result.placed
    own, symbols = placed.scenario.cluster.pool(pool), placed.graph.symbols(_work(result))
    group = next(group for group in placed.table.groups if group.kind == "experts")
    place = {int(row): index for index, row in enumerate(group.rows)}
    first, compute = rows[0], 0.0
    for row in rows:
        op, at = placed.table.ops[row], group.where[place[row]]
        device = placed.device[0, at[c.ROW]]
        peak = device[c.PEAK + at[c.DTYPE]] * device[c.COMPUTE_EFFICIENCY]
        size = [op.dims[key].value(symbols) for key in ("tokens", "n", "k")]
        compute += peak * float(grouped_time(size[0], size[1], size[2], peak, group.bins[place[row]], device))
    bins, tokens = group.bins[place[first]], placed.table.ops[first].dims["tokens"].value(symbols)
    op, held = placed.table.ops[first], float(bins[:, 1].sum())
    layer = [
        (other, placed.priced[index])
        for index, other in enumerate(placed.table.ops)
        if other.segment == op.segment and _belongs(result, other, pool, home)
    ]
    longest = max(layer, key=lambda pair: float(pair[1][c.TIME]))
    flops, of, work = float(placed.priced[list(rows), c.FLOPS].sum()), op.experts, placed.scenario.workload
    assert of is not None
    everywhere = work.routing.bins(of.total, of.topk, of.held, 1, of.first, ranked=of.ranked)
    bound = "link" if longest[0].kind == "load" else bound_of(*longest, placed.scenario.cluster)
    return PoolBatch(
        pool, own.chip.name, own.count, home, of.held, round(held), tokens, float(routed_tokens(tokens, bins)) / held,
        float(distinct_experts(tokens, everywhere)), _knee(result, op, group.where[place[first]]),
        flops / compute if compute else 1.0, sum(float(row[c.TIME]) for _, row in layer), bound,
    )  # fmt: skip


def _work(result: Result) -> dict[str, float]:
    return result.placed.scenario.workload.symbols(result.step.micro_batches)


def _belongs(result: Result, op: Op, pool: str, home: str) -> bool:
    """Whether an op is one of the experts of a pool, or brings their weights."""
    if op.kind == "load":
        return op.way == f"{home}>{pool}"
    return op.role == "experts" and op.pool == pool and (op.kind != "experts" or _home(result, op) == home)


def _knee(result: Result, op: Op, where: Any) -> float:
    """F b_w / (2 BW) with the bandwidth of where the weights come from."""
    placed, pool = result.placed, result.placed.scenario.cluster.pool(op.pool)
    flops = float(pool.chip.peaks.by_dtype()[c.DTYPES[int(where[c.DTYPE])]])
    if home := placed.graph.homes.get(f"{op.name}.load"):
        way = f"load:{home}>{op.pool}"
        bandwidth = float(placed.device[0, placed.table.device_rows.index(way), c.LINK])
    else:
        bandwidth = float((pool.chip.tier(op.tier) if op.tier else pool.chip.main).bandwidth_bytes_per_s)
    return flops * op.consts["weight_bytes"] / (2 * bandwidth)


# --- what devices make of more or fewer -------------------------------------------------------------------------------
def curve(layout: Layout, scenario: Scenario, parts: int = 1, most: float = MOST_TOKENS) -> Curve:
    """One device over the tokens of a micro-batch; a step has `parts` of them, one after the other.

    TPOT = parts x time of all expert layers, throughput = tokens / time of all expert layers / chips of a pipeline stage.
    """
    batches = spaced(max(1, int(step_batch(most, layout.experts, 1) / layout.topk)))
    seconds = layout.seconds(batches)
    return Curve(
        layout.label, layout.chips, layout.knee, layout.knee * layout.experts / layout.topk, layout.fits, batches,
        batches * layout.topk / layout.experts, batches / seconds / layout.pool.count,
        parts * seconds / tokens_per_sequence(scenario),
    )  # fmt: skip


def tokens_per_sequence(scenario: Scenario) -> float:
    """Tokens that a step makes of a sequence; 1 for a prefill."""
    return 1.0 if scenario.workload.phase == "prefill" else tokens_of(scenario)


def whole(scenario: Scenario, points: int = 80) -> Curve | None:
    """The scenario's own plan, attention and transfers included, up to the largest batch that fits; None if none does."""
    plan, cluster = Fixed(scenario), scenario.cluster
    routed = next((op.experts for op in plan.laid.table.ops if op.experts), None)
    most = plan.largest(cluster)
    if routed is None or not most:
        return None
    parts = plan.laid.parts(plan.work(most))
    batches = parts * np.unique(np.geomspace(1, most // parts, points).round().astype(np.int64))
    seconds = np.array([plan.step_s(cluster, int(batch)) for batch in batches])
    scale = tokens_of_step(scenario) / scenario.workload.batch
    each = np.array([-(-batch // plan.laid.parts(plan.work(int(batch)))) for batch in batches]) * scale
    made = batches * tokens_of(scenario) / seconds / cluster.chips
    tokens = each * routed.topk / routed.total
    tpot = seconds / tokens_per_sequence(scenario)
    return Curve("whole plan", cluster.chips, None, None, True, batches.astype(float), tokens, made, tpot)


def spaced(most: int) -> Array:
    """Whole numbers from 1 to `most`, neighbours at most 1 % apart from 100 on."""
    steps = int(np.ceil(np.log(most) / np.log(SPACING))) + 1
    return np.unique(np.geomspace(1, most, max(2, steps)).round())


def accumulation(layout: Layout, scenario: Scenario, cuts: Sequence[int] = CUTS) -> list[dict[str, Any]]:
    """The step's tokens through the experts at once, and in several micro-batches, each of which reads its experts anew."""
    tokens = tokens_of_step(scenario)
    everywhere = scenario.workload.routing.bins(layout.experts, layout.topk, layout.experts, 1)
    found: list[dict[str, Any]] = []
    for parts in (cut for cut in cuts if cut <= tokens):
        each = tokens / parts
        seconds = parts * float(layout.seconds(np.array([each]))[0]) / layout.layers
        found.append({
            "micro_batches": parts, "tokens_per_expert": each * layout.topk / layout.experts,
            "distinct_experts": float(distinct_experts(each, everywhere)), "layer_s": seconds,
            "times_accumulated": seconds / found[0]["layer_s"] if found else 1.0,
        })  # fmt: skip
    return found


def widths(layout: Layout, scenario: Scenario, parts: int) -> list[dict[str, Any]]:
    """Expert groups of other widths on the same chips, the rest copies of them that share the tokens (data parallel)."""
    tokens = tokens_of_step(scenario) / parts
    found = []
    for one in widths_of(layout):
        seconds = float(one.seconds(np.array([tokens]))[0])
        found.append({
            "expert_groups": one.degree, "chips_per_group": one.tensor, "copies": one.copies, "experts_per_chip": one.held,
            "tokens_per_expert": tokens * one.topk / one.experts / one.copies, "layer_s": seconds / one.layers,
            "busiest_over_mean": one.imbalance(tokens / one.copies), "weights_bytes_per_chip": one.weights_bytes,
            "fits": one.fits,
        })  # fmt: skip
    return found
