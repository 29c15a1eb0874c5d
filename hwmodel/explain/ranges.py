"""How the low and the high end of an answer arise: which input moves it, and to which of its own ends."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hwmodel.explain.sheet import Sheet
from hwmodel.explain.totals import Formula
from hwmodel.result import Result

ENDS = {"low": -1.0, "high": 1.0}
NAMED = 4
"""Inputs of an op's range that are named."""
LEAST = 1e-4
"""Effects (logarithms) below it are one term together."""
NOTE = (
    "every input with a range is tried at both of its ends, alone; here the logarithm of the factor at the end that moves it "
    "this way, added as independent ones (root of the sum of squares)"
)
Move = tuple[str, float, float, str]
"""(input, logarithm of the factor at its low end, at its high end, what its ends are)."""


def range_names(result: Result) -> list[str]:
    """Ends of ranges that can be explained."""
    found = ["step"] if result.step.time_low_s < result.step.time_high_s else []
    spent = result.cost
    found += ["cost"] if spent is not None and spent.usd_per_million_low < spent.usd_per_million_high else []
    return [f"{name}:{end}" for name in found for end in ENDS]


def range_formula(result: Result, name: str, sheet: Sheet) -> Formula:
    """``step:low``, ``step:high``, ``cost:low`` or ``cost:high``."""
    of, _, end = name.partition(":")
    step, spent = result.step, result.cost
    if of == "step" or spent is None:
        moves = [(item.path, *item.ends, _values(*item.values)) for item in result.around.inputs] if result.around else []
        middle, value, unit = step.time_s, step.time_low_s if end == "low" else step.time_high_s, "s"
    else:
        said = ("hwmodel explain --op step:low, step:high", *["its stated range"] * len(spent.moved))
        moves = [(*move, words) for move, words in zip(spent.moved, said, strict=False)]
        middle, unit = spent.usd_per_million_output_tokens or spent.usd_per_million_input_tokens or 0.0, "USD/Mtok"
        value = spent.usd_per_million_low if end == "low" else spent.usd_per_million_high
    base = sheet.add(of, middle, unit, f"hwmodel explain --op {of}")
    squares = _squares(moves, ENDS[end], math.log(value / middle), sheet)
    sign = "-" if end == "low" else ""
    return f"{of}_{end} = {base} * {math.e!r} ** ({sign}(({squares}) ** 0.5))", value, unit, NOTE


def op_range(result: Result, position: int) -> str:
    """How the range of one op arises, in words; empty without one."""
    row = result.ops[position]
    if result.around is None or not row.low_s < row.high_s:
        return ""
    pairs = [(path, float(ends[0, position]), float(ends[1, position])) for path, ends in result.around.moves]
    moved = sorted(((max(a, b) - min(a, b), path, a, b) for path, a, b in pairs if max(abs(a), abs(b)) > LEAST), reverse=True)
    said = ", ".join(f"{path} (x {math.exp(a):.4g} to x {math.exp(b):.4g})" for _, path, a, b in moved[:NAMED])
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    logs = "root of the sum of squares of the logarithms of what each input does at the ends of its own range"
    return f"{row.low_s:.4g} to {row.high_s:.4g} s: {logs}: {said}{more}"


def _values(low: float, middle: float, high: float) -> str:
    return f"{low:.5g} to {high:.5g}, here {middle:.5g}"


def _squares(moves: Iterable[Move], sign: float, whole: float, sheet: Sheet) -> str:
    """The sum of squares that gives the logarithm of the whole factor; a rest where inputs are too small to name."""
    left, parts = whole**2, []
    for path, at_low, at_high, said in moves:
        own = max(0.0, sign * at_low, sign * at_high)
        if own < LEAST:
            continue
        which = "low" if sign * at_low > sign * at_high else "high"
        name = sheet.add(path, own, "", f"{path} at its {which} end ({said}): x {math.exp(sign * own):.4g}")
        parts.append(f"{name} ** 2")
        left -= own**2
    if left > 1e-12 * whole**2:
        parts.append(f"{sheet.add('rest', math.sqrt(left), '', 'inputs that move it by less than 0.01 % each')} ** 2")
    return " + ".join(parts) or "0"
