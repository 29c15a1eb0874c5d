"""The totals of an answer as formulas: step, TPOT, memory, dollars, joules."""

from __future__ import annotations

import math
from collections.abc import Callable

from hwmodel.economics.step import PoolCost, rented
from hwmodel.explain.sheet import Sheet, total
from hwmodel.figures import layer_bars
from hwmodel.hardware import Pool
from hwmodel.memory import MemoryRow
from hwmodel.prices import HOURS_PER_YEAR
from hwmodel.result import BOUNDS, Result

Formula = tuple[str, float, str, str]
"""(formula, value, unit, note)."""


def layer_formula(result: Result, segment: str, sheet: Sheet) -> Formula:
    """One layer: its ops one after the other, all micro-batches."""
    parts = []
    for row in result.ops:
        op = result.placed.graph.op(row.op)
        if op.segment != segment or row.time_s <= 0:
            continue
        times = op.repeats.value({}) * result.step.micro_batches
        name = sheet.add(row.op.partition(".")[2], row.time_s, "s", f"op {row.op}: hwmodel explain --op {row.op}")
        parts.append(name if times == 1 else f"{times:g} * {name}")
    value = next((bar.time_s for bar in layer_bars(result, segment)), 0.0)
    return f"layer = {total(parts)}", value, "s", "ops one after the other; other micro-batches and pools may run beside them"


def step_formula(result: Result, sheet: Sheet) -> Formula:
    """The step: host work and all layers where they follow one another, else what the busiest pool does and waits for."""
    value, placed = result.step.time_s, result.placed
    parts, found = [], placed.host_s
    if placed.host_s:
        slowest = max(placed.scenario.cluster.pools, key=lambda pool: float(pool.chip.execution.step_s or 0))
        parts.append(sheet.chip("host", slowest.chip, "execution.step"))
    for segment in placed.graph.segments:
        bar = next((bar for bar in layer_bars(result, segment.name)), None)
        if bar is None:
            continue
        found += bar.time_s * bar.count
        one = sheet.add(segment.name, bar.time_s, "s", f"layers of kind {segment.kind}: hwmodel explain --op {segment.name}")
        parts.append(f"{bar.count} * {one}" if bar.count > 1 else one)
    if math.isclose(found, value, rel_tol=1e-9) and not placed.ideal:
        return f"step = {total(parts)}", value, "s", "layers one after the other"
    other = Sheet()
    busiest = max(result.pools, key=lambda row: row.busy_fraction)
    said = f"one chip of pool {busiest.pool}, the busiest"
    least = 1e-12 * value
    names = [
        other.add(key, busiest.bound_s[key], "s", f"{said}: bound by {key}") for key in BOUNDS if busiest.bound_s[key] > least
    ]
    if busiest.bound_s["idle"] > least:
        names.append(other.add("idle", busiest.bound_s["idle"], "s", f"{said}: it waits; see hwmodel/timeline.py"))
    sheet.replace(other)
    note = "micro-batches and pools overlap: the schedule of all ops gives the step, of which this is the busiest chip's share"
    return f"step = {total(names)}", value, "s", note


def ttft_formula(result: Result, sheet: Sheet) -> Formula | None:
    """Time to first token, of a step that prefills."""
    if result.step.ttft_s is None:
        return None
    step = sheet.add("step", result.step.time_s, "s", "hwmodel explain --op step")
    return f"ttft = {step}", result.step.ttft_s, "s", "prompts alone, none waiting; 'hwmodel simulate' has the queue"


def tpot_formula(result: Result, sheet: Sheet) -> Formula | None:
    """Time per output token."""
    if result.step.tpot_s is None:
        return None
    step = sheet.add("step", result.step.time_s, "s", "hwmodel explain --op step")
    work = result.placed.scenario.workload
    if work.speculative is None:
        return f"tpot = {step}", result.step.tpot_s, "s", "one token per sequence and step"
    said = f"{work.speculative.draft} drafted, each accepted with {work.speculative.acceptance:g}"
    tokens = sheet.add("tokens_per_step", work.speculative.tokens_per_step, "", said)
    return f"tpot = {step} / {tokens}", result.step.tpot_s, "s", "drafted tokens that are accepted come for free"


def rate_formula(result: Result, sheet: Sheet) -> Formula:
    """Tokens per second of all users."""
    tokens = sheet.add("tokens", result.step.tokens, "", "scenario: workload, of all sequences of a step", "given")
    step = sheet.add("step", result.step.time_s, "s", "hwmodel explain --op step")
    return f"tokens_per_s = {tokens} / {step}", result.step.tokens_per_s, "1/s", ""


def memory_formula(result: Result, row: MemoryRow, sheet: Sheet) -> Formula:
    """What one tier of one chip must hold."""
    pool = result.placed.scenario.cluster.pool(row.pool)
    capacity = sheet.chip("capacity", pool.chip, f"memory.{row.tier}.capacity")
    share = 0.0 if result.placed.ideal else pool.memory_reserve
    parts = [f"{capacity} * {sheet.add('reserve', share, '', 'scenario: memory_reserve; 8 % when absent', 'given')}"]
    work, formats = result.placed.scenario.workload, result.placed.scenario.formats
    length = work.context or work.new_tokens
    uses = (
        ("weights", row.weights_bytes, "weights and their scales on the fullest chip"),
        (
            "kv",
            row.kv_bytes,
            f"KV cache in {formats.kv.name}, batch {work.batch:,}, context {length:,}",
        ),
        ("activations", row.activation_bytes, "input and output of the widest op, the residual stream, streamed weights"),
    )
    parts += [sheet.add(name, value, "B", said) for name, value, said in uses if value > 0]
    value = share * row.capacity_bytes + row.weights_bytes + row.kv_bytes + row.activation_bytes
    verdict = "fits" if row.free_bytes >= 0 else "does not fit"
    return f"needed = {total(parts)}", value, "B", f"{verdict}: capacity less needed leaves {row.free_bytes / 1e9:,.4g} GB"


def cost_formula(result: Result, sheet: Sheet) -> Formula | None:
    """USD per million tokens: all pools, idle or not."""
    spent = result.cost
    if spent is None:
        return None
    parts = [_hourly(result, pool, row, sheet)
             for pool, row in zip(result.placed.scenario.cluster.pools, spent.pools, strict=True)]  # fmt: skip
    rate = sheet.add("tokens_per_s", result.step.tokens_per_s, "1/s", "hwmodel explain --op throughput")
    used = sheet.add("utilisation", spent.prices.utilisation, "", "scenario: economics.utilisation", "given")
    made, taken = spent.usd_per_million_output_tokens, spent.usd_per_million_input_tokens
    kind = "output" if made is not None else "input"
    value = float(made if made is not None else taken or 0.0)
    return f"usd_per_mtok = ({total(parts)}) / ({rate} * 3600 * {used}) * 1e6", value, "USD/Mtok", f"of {kind} tokens"


def _hourly(result: Result, pool: Pool, row: PoolCost, sheet: Sheet) -> str:
    """USD per hour of a pool."""
    prices = result.placed.scenario.economics
    count = sheet.add(f"chips_{pool.name}", pool.count, "", "scenario: cluster.pools", "given")
    if rented(pool.chip, prices):
        return f"{count} * {sheet.chip(f'rental_{pool.name}', pool.chip, 'price.rental')}"
    purchase = sheet.chip(f"purchase_{pool.name}", pool.chip, "price.purchase")
    yearly = sheet.add(
        "yearly_share", prices.yearly_share, "1/year", "economics: annuity of life and cost_of_capital, plus upkeep"
    )
    moved = row.purchase_usd - float(pool.chip.price.purchase_usd or 0.0)
    if moved:
        more = sheet.add(
            f"beside_{pool.name}", moved, "USD", "economics: host, network, rack, memory at today's price", "given"
        )
        purchase = f"({purchase} + {more})"
    one = f"{count} * {purchase} * {yearly} / {HOURS_PER_YEAR:g}"
    if not row.electricity_usd_per_hour:
        return one
    said = "economics: mean power at the wall x electricity"
    return f"{one} + {sheet.add(f'electricity_{pool.name}', row.electricity_usd_per_hour, 'USD/h', said)}"


def energy_formula(result: Result, sheet: Sheet) -> Formula | None:
    """Joules per token of the chips of all pools."""
    spent = result.cost
    if spent is None or spent.joules_per_token is None:
        return None
    tokens = sheet.add("tokens", result.step.tokens, "", "scenario: workload, of all sequences of a step", "given")
    plain = math.isclose(sum(use["joules_per_token"] for use in spent.energy), spent.joules_per_token, rel_tol=1e-9)
    if not plain:
        names = [sheet.add(f"joules_{row.pool}", row.joules_per_token or 0.0, "J", f"pool {row.pool}, per token, idle hours "
                           "included, each chip at most at its TDP") for row in spent.pools]  # fmt: skip
        return f"joules_per_token = {total(names)}", spent.joules_per_token, "J", "chips only; idle hours or a TDP count"
    parts = []
    for use in spent.energy:
        name = f"{use['pool']} {use['part']}"
        unit = "FLOP" if "matrix" in name else "s" if use["part"] in ("idle", "running") else "B"
        amount = use["joules_per_token"] * result.step.tokens / use["each"] if use["each"] else 0.0
        if not amount:
            continue
        work = sheet.add(
            f"{name} amount", amount, unit, f"{name}: of a step, all chips{' (chip-seconds)' if unit == 's' else ''}"
        )
        each = sheet.add(
            f"{name} each", use["each"], "W" if unit == "s" else f"J/{unit}", use["source"], use["status"] or "given"
        )
        parts.append(f"{work} * {each}")
    return f"joules_per_token = ({total(parts)}) / {tokens}", spent.joules_per_token, "J", "chips only; see economics.running"


Maker = Callable[[Result, Sheet], Formula | None]
TOTALS: dict[str, Maker] = {
    "step": step_formula, "ttft": ttft_formula, "tpot": tpot_formula, "throughput": rate_formula, "cost": cost_formula,
    "energy": energy_formula,
}  # fmt: skip
"""By the name that ``--op`` takes; memory is ``memory:POOL:TIER``."""
