"""What a reader must know to check an answer by hand, and what should make them doubt it."""

from __future__ import annotations

from hwmodel.calibration import doubt_of
from hwmodel.economics import memory_said
from hwmodel.graph import OpGraph
from hwmodel.routing import Routing
from hwmodel.scenario import Scenario
from hwmodel.timing import OpTable


def assumptions_of(scenario: Scenario, ideal: bool) -> tuple[str, ...]:
    """What the numbers rest on that no other line of the answer says."""
    if ideal:
        return (
            "physical floor: efficiencies 1, overheads, latencies and reserve 0, activations on the chip, the head on the "
            "last token, one micro-batch",
        )
    work, formats, routing = scenario.workload, scenario.formats, scenario.workload.routing
    reserves = ", ".join(f"{pool.name} {pool.memory_reserve:.0%}" for pool in scenario.cluster.pools)
    attention = (
        f"the scenario says {formats.attention.name}" if formats.attention else f"{formats.activations.name}, as activations"
    )
    found = [
        f"memory kept free: {reserves}",
        f"KV cache in {formats.kv.name} (from {scenario.kv_from}), {work.kv_alloc}; attention multiplies in: {attention}",
        f"expert popularity: {routing.kind}" + _law(routing),
        f"{_calibrated(scenario)}; ops follow one another",
    ]
    found += [f"prices: {scenario.economics.said()}", *memory_said(scenario.cluster, scenario.economics)]
    if work.phase == "mixed":
        found.append(
            f"mixed step: {work.prefill_batch} x {work.new_tokens} prompt tokens beside {work.batch} decodes; tokens/s counts "
            "the decodes"
        )
    return tuple(found)


def _law(routing: Routing) -> str:
    """What else a routing says beside its kind."""
    if routing.kind == "measured":
        return f" on {len(routing.counts)} layers" if len(routing.counts) > 1 else f" on layer {routing.counts[0].layer}"
    return f", s = {routing.s:g}" if routing.kind == "zipf" else ""


def _calibrated(scenario: Scenario) -> str:
    """Where efficiencies and overheads come from."""
    plain = "each chip's stated efficiencies and overheads; compute and memory overlap inside an op"
    pools = scenario.cluster.pools
    named = [f"{pool.name} as {pool.calibration.chip}.{pool.calibration.stack}" for pool in pools if pool.calibration]
    if not named:
        return f"uncalibrated: {plain}"
    rest = f"; else {plain}" if len(named) < len(pools) else "; what was not measured: as each chip's file states"
    return f"calibrated: {', '.join(named)}{rest}"


def warnings_of(scenario: Scenario, graph: OpGraph, table: OpTable) -> tuple[str, ...]:
    """What the model file, the chips and the plan made us assume, and what stands idle."""
    work = scenario.workload
    found = [*scenario.model.warnings, *table.notes, *graph.notes]
    found += [
        f"pool {pool.name}: {doubt}"
        for pool in scenario.cluster.pools if (doubt := doubt_of(pool.chip.name, pool.stack, pool.calibration))
    ]  # fmt: skip
    for pool in scenario.cluster.pools:
        groups = graph.degrees[f"{pool.name}.dp"]
        spread = any(axis == "tokens" for op in table.ops if op.pool == pool.name for axis, _ in op.shards)
        if spread and work.batch < groups:
            found.append(f"pool {pool.name}: {work.batch} sequences for {groups} data-parallel groups; the others stand idle")
    length = work.context if work.phase == "decode" else work.cached + work.new_tokens
    if 0 < scenario.model.max_context < max(length, work.context):
        found.append(f"model {scenario.model.name} was made for {scenario.model.max_context:,} tokens of context")
    return tuple(dict.fromkeys(found))
