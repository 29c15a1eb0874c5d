"""The time of one op as a formula of its chip's numbers and its shape."""

from __future__ import annotations

import math

import numpy as np

from hwmodel.economics.energy import operand_types
from hwmodel.explain.sheet import Sheet, shape_of, total
from hwmodel.graph import Op
from hwmodel.hardware import Chip, Link
from hwmodel.kernels import columns as c
from hwmodel.result import Result
from hwmodel.timing import Array, points, price

ALIKE = 1e-9


def op_formula(result: Result, position: int, sheet: Sheet) -> str:
    """The expression for the time of one execution of an op on one chip, in s; its terms go into `sheet`."""
    placed = result.placed
    op, row = placed.table.ops[position], placed.priced[position]
    if op.kind in ("transfer", "load"):
        return _way(result, op, row, sheet)
    if op.kind == "collective":
        return _collective(result, op, row, position, sheet)
    raw, device, p = _raw(result, position)
    chip = placed.scenario.cluster.pool(op.pool).chip
    fitted = placed.table.fitted[position] >= 0 and not placed.ideal
    compute = _compute(result, op, raw, device, position, sheet) if raw[c.COMPUTE] > 0 else ""
    memory = _memory(result, op, raw, device, sheet) if raw[c.MEMORY] > 0 else ""
    if compute and memory and p:
        sharpness = sheet.add("sharpness", p, "", _fit_source(result, position), "measured")
        longer = f"(({compute}) ** {sharpness} + ({memory}) ** {sharpness}) ** (1 / {sharpness})"
    else:
        longer = f"max({compute}, {memory})" if compute and memory else compute or memory or "0"
    if placed.ideal:
        return longer
    if not fitted:
        return f"{longer} + {sheet.chip('launch', chip, 'execution.launch')}"
    launch = sheet.add("launch", float(device[c.LAUNCH]), "s", _fit_source(result, position), "measured")
    whole = _evaluated(raw, device, p)
    correction = sheet.add(
        "correction", float(row[c.TIME]) / whole, "", f"{_fit_source(result, position)}, grid of sizes", "measured"
    )
    return f"({longer} + {launch}) * {correction}"


def _raw(result: Result, position: int) -> tuple[Array, Array, float]:
    """(the op priced without overlap and correction, its device row, sharpness of its overlap)."""
    placed = result.placed
    device = placed.device.copy()
    device[..., c.SHARPNESS] = device[..., c.CORRECTION] = 0.0
    work = placed.scenario.workload
    point = points(placed.table, placed.graph.symbols(work.symbols(result.step.micro_batches)))
    raw = price(placed.table, point, device)[0, position]
    row = placed.device[0, _row(result, position)]
    return raw, row, float(row[c.SHARPNESS])


def _row(result: Result, position: int) -> int:
    for group in result.placed.table.groups:
        found = np.flatnonzero(group.rows == position)
        if len(found):
            return int(group.where[found[0], c.ROW])
    raise IndexError(position)


def _evaluated(raw: Array, device: Array, p: float) -> float:
    compute, memory = float(raw[c.COMPUTE]), float(raw[c.MEMORY])
    longer = max(compute, memory)
    if p and min(compute, memory) > 0:
        longer = (compute**p + memory**p) ** (1 / p)
    return longer + float(device[c.LAUNCH])


def _fit_source(result: Result, position: int) -> str:
    pool, fit = result.placed.table.fits[int(result.placed.table.fitted[position])]
    calibration = result.placed.scenario.cluster.pool(pool).calibration
    name = f"{calibration.chip}.{calibration.stack}" if calibration else pool
    return f"calibration {name}, {fit.key}: {fit.doubt or f'{fit.rows} measured rows'}"


def _compute(result: Result, op: Op, raw: Array, device: Array, position: int, sheet: Sheet) -> str:
    """Seconds of compute: matrix units, exponentials or vector units, whichever the kernel found to take them."""
    placed = result.placed
    chip, seconds, flops = placed.scenario.cluster.pool(op.pool).chip, float(raw[c.COMPUTE]), float(raw[c.FLOPS])
    symbols = placed.graph.symbols(placed.scenario.workload.symbols(result.step.micro_batches))
    shape = f"op {op.name}: {shape_of(op.dims, symbols)}"
    dtype = operand_types(placed.table).get(position)
    fitted, attention = placed.table.fitted[position] >= 0, op.kind.startswith(("attention", "scan"))
    share = float(device[c.ATTENTION_EFFICIENCY if attention else c.COMPUTE_EFFICIENCY])
    vector = float(device[c.VECTOR])
    if dtype is None or (op.kind == "scan" and flops and math.isclose(flops / vector if vector else 0, seconds, rel_tol=ALIKE)):
        work = sheet.add("vector_flops", seconds * vector, "FLOP", shape)
        return f"{work} / {sheet.chip('vector_rate', chip, 'execution.vector')}"
    peak = float(chip.peaks.by_dtype()[dtype])
    used = flops / (peak * share * seconds)
    if attention and not math.isclose(used, 1, rel_tol=1e-6):
        work = sheet.add(
            "exponentials", seconds * float(device[c.EXPONENTIALS]), "", f"{shape}; the softmax is slower than the products"
        )
        return f"{work} / {sheet.chip('exponential_rate', chip, 'execution.exponentials')}"
    work = sheet.add("flops", flops, "FLOP", shape)
    parts = [sheet.chip(f"peak_{dtype}", chip, f"peaks.{dtype}")]
    if fitted and not placed.ideal:
        parts.append(sheet.add("compute_share", share, "", _fit_source(result, position), "measured"))
    elif not placed.ideal:
        path = "efficiency.attention" if attention else "efficiency.compute"
        parts.append(sheet.chip("efficiency_" + path.partition(".")[2], chip, path))
    if not math.isclose(used, 1, rel_tol=ALIKE):
        said = "share of the tiles' work that is asked for, over whole waves of the cores; see hwmodel/kernels/tiles.py"
        parts.append(sheet.add("tile_use", used, "", f"{shape}; {said}"))
    return f"{work} / ({' * '.join(parts)})"


def _memory(result: Result, op: Op, raw: Array, device: Array, sheet: Sheet) -> str:
    """Seconds of the memory tier that takes longest."""
    placed = result.placed
    chip = placed.scenario.cluster.pool(op.pool).chip
    weights, kv, activations = (float(raw[at]) for at in (c.WEIGHT_BYTES, c.KV_BYTES, c.ACTIVATION_BYTES))
    cached = raw[c.BOUND_TIER] < 0
    tiers = [tier for tier in chip.memory if tier.cache == cached]
    tier = tiers[max(int(raw[c.BOUND_TIER]), 0)]
    main = chip.main.tier
    if not cached:
        spilled = activations > device[c.CACHE_BYTES] and device[c.FREE_ACTIVATIONS] == 0
        weights, activations = (value * ((op.tier or main) == tier.tier) for value in (weights, activations * spilled))
        kv *= (op.kv_tier or main) == tier.tier
    forms = placed.scenario.formats
    moved = [
        sheet.add(name, value, "B", f"op {op.name}: {said}")
        for name, value, said in (
            ("weight_bytes", weights, "weights read" + (", distinct experts of the step only" if op.experts else "")),
            ("kv_bytes", kv, f"KV cache in {forms.kv.name}, read or written"),
            ("activation_bytes", activations, "activations in and out" + ("" if cached else ", more than the cache holds")),
        )
        if value > 0
    ]
    rate = sheet.chip(f"bandwidth_{tier.tier}", chip, f"memory.{tier.tier}.bandwidth")
    at = c.CACHE_BANDWIDTH if cached else c.TIER + max(int(raw[c.BOUND_TIER]), 0)
    share = float(device[at]) / float(tier.bandwidth_bytes_per_s)
    if not math.isclose(share, 1, rel_tol=ALIKE):
        rate = f"({rate} * {_share_of_bandwidth(result, op, chip, tier.tier, share, sheet)})"
    seconds = f"{moved[0]} / {rate}" if len(moved) == 1 else f"({total(moved)}) / {rate}"
    if not cached and device[c.RAMP] > 0:
        seconds += f" + {sheet.chip('ramp', chip, 'execution.ramp')}"
    return seconds


def _share_of_bandwidth(result: Result, op: Op, chip: Chip, tier: str, share: float, sheet: Sheet) -> str:
    position = result.placed.table.index[op.name]
    if result.placed.table.fitted[position] >= 0:
        return sheet.add("memory_share", share, "", _fit_source(result, position), "measured")
    known = dict(chip.numbers())
    own = f"memory.{tier}.efficiency"
    return sheet.chip(f"efficiency_{tier}", chip, own if own in known else "efficiency.memory")


def _way(result: Result, op: Op, row: Array, sheet: Sheet) -> str:
    """Between pools: latency + bytes / what all chips of the way carry together."""
    if row[c.TIME] <= 0:
        return "0"
    source, target = op.way.split(">")
    wire = result.placed.scenario.cluster.wire(source, target)
    name = f"link {source}-{target}"
    each = "all chips of the way together" if op.kind == "transfer" else "share of one receiving chip"
    sent = sheet.add("sent_bytes", float(row[c.WIRE_BYTES]), "B", f"op {op.name}: the whole tensor, one micro-batch"
                     if op.kind == "transfer" else f"op {op.name}: weights of one receiving chip")  # fmt: skip
    rate = float(row[c.WIRE_BYTES] / row[c.WIRE])
    per = result.placed.scenario.cluster.pool(wire.per or wire.to)
    plain = float(wire.bandwidth_bytes_per_s) * per.count * (1.0 if result.placed.ideal else float(wire.efficiency))
    if op.kind == "transfer" and math.isclose(plain, rate, rel_tol=1e-9) and not result.placed.ideal:
        wide = sheet.add("bandwidth", wire.bandwidth_bytes_per_s, "B/s", f"{name}, per {per.name} chip", "given")
        count = sheet.add(f"chips_{per.name}", per.count, "", "scenario: cluster.pools", "given")
        carried = f"({wide} * {count} * {sheet.add('efficiency', wire.efficiency, '', name, 'given')})"
    else:
        said = f"{name}: {each}; at most what the links that it leaves over, or the far memory, carry"
        carried = sheet.add("carried", rate, "B/s", said)
    if row[c.OVERHEAD] <= 0:
        return f"{sent} / {carried}"
    return f"{sent} / {carried} + {sheet.add('latency', wire.latency_s, 's', name, 'given')}"


def _collective(result: Result, op: Op, row: Array, position: int, sheet: Sheet) -> str:
    """Inside a pool: bytes one chip sends / what it reaches + latencies; 0 where a static schedule hides it."""
    chip = result.placed.scenario.cluster.pool(op.pool).chip
    if row[c.TIME] <= 0:
        hidden = row[c.WIRE] + row[c.OVERHEAD] > 0
        return (
            "0"
            if not hidden
            else f"0 * {sheet.add('hidden', float(row[c.WIRE] + row[c.OVERHEAD]), 's', 'hidden behind compute')}"
        )
    link = next((link for link in chip.links if link.name == op.way), chip.links[0])
    said = f"op {op.name}: {op.note or 'collective'} over {link.name} of {chip.name}; see hwmodel/kernels/collective.py"
    if result.placed.table.fitted[position] >= 0 and not result.placed.ideal:
        return sheet.add("exchange", float(row[c.TIME]), "s", _fit_source(result, position), "measured")
    sent = sheet.add("sent_bytes", float(row[c.WIRE_BYTES]), "B", said)
    return f"{sent} / {_reached(result, chip, link, row, sheet)}{_latencies(chip, link, row, sheet)}"


def _reached(result: Result, chip: Chip, link: Link, row: Array, sheet: Sheet) -> str:
    rate, whole = float(row[c.WIRE_BYTES] / row[c.WIRE]), float(link.bandwidth_bytes_per_s)
    share = 1.0 if result.placed.ideal else float(link.efficiency or chip.efficiency.link)
    if not math.isclose(rate, whole * share, rel_tol=1e-9):
        return sheet.add("reached", rate, "B/s", f"{link.name}: lanes to the peers of the group, or two levels of links")
    wide = sheet.chip(f"bandwidth_{link.name}", chip, f"links.{link.name}.bandwidth")
    if result.placed.ideal:
        return wide
    own = f"links.{link.name}.efficiency"
    return f"({wide} * {sheet.chip('efficiency_link', chip, own if link.efficiency else 'efficiency.link')})"


def _latencies(chip: Chip, link: Link, row: Array, sheet: Sheet) -> str:
    if row[c.OVERHEAD] <= 0:
        return ""
    times = float(row[c.OVERHEAD]) / float(link.latency_s) if link.latency_s else 0.0
    if not times or not math.isclose(times, round(times), rel_tol=1e-9):
        return f" + {sheet.add('latencies', float(row[c.OVERHEAD]), 's', f'{link.name}: hops of all levels')}"
    one = sheet.chip(f"latency_{link.name}", chip, f"links.{link.name}.latency")
    return f" + {one}" if round(times) == 1 else f" + {sheet.add('hops', round(times), '', 'hops one after the other')} * {one}"
