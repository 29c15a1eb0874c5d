"""What the columns of a sweep's answer are called: those that several rooms ask for, and which are inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hwmodel.scenario import ScenarioSpec

POINT, FEASIBLE, REASON, BOUND = "point", "feasible", "reason", "bound"
TIME, LOW, HIGH = "time_s", "time_low_s", "time_high_s"
"""Of the step, and the ends of its range."""
TPOT, TTFT = "tpot_s", "ttft_s"
TOKENS, USER, CHIP = "tokens_per_s", "tokens_per_s_per_user", "tokens_per_s_per_chip"
COST, JOULES, WATTS = "usd_per_million_tokens", "joules_per_token", "watts"
BATCH, CONTEXT, NEW = "workload.batch", "workload.context", "workload.new_tokens"
OBJECTIVES = (USER, CHIP)
"""Of a front where none are said."""
ROOTS = frozenset({"scenario", *ScenarioSpec.model_fields})
"""First parts of the paths that an axis may have."""


def said(value: Any, *, whole: bool = False) -> str:
    """A value of a point in short: four digits, thousands with commas; a whole one in full."""
    if value is None:
        return "-"
    if whole or not isinstance(value, int | float) or isinstance(value, bool):
        return f"{value}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def with_range(names: Iterable[str]) -> list[str]:
    """Columns with the ends of the step's range behind its time."""
    return [new for name in names for new in ((name, LOW, HIGH) if name == TIME else (name,))]


def inputs(names: Iterable[str]) -> list[str]:
    """The columns that an axis set, in their order."""
    return [name for name in names if name.partition(".")[0] in ROOTS]


def chosen(names: Iterable[str]) -> list[str]:
    """Those whose values are worth a front of their own: scenarios, models, plans, chips and formats."""
    return [
        name for name in inputs(names)
        if name in ("scenario", "model", "plan") or name.startswith("dtypes.") or name.endswith(".chip")
    ]  # fmt: skip


def layers(names: Sequence[str]) -> list[str]:
    """Kinds of layers that have a time and what bounds it."""
    kinds = (name.removesuffix(f".{BOUND}") for name in names if name.endswith(f".{BOUND}"))
    return [kind for kind in kinds if f"{kind}.{TIME}" in names]


def short(names: Sequence[str]) -> list[str]:
    """Of every path as many last parts as tell it from the others."""
    found = []
    for name in names:
        parts = name.split(".")
        tails = [parts[-many:] for many in range(1, len(parts) + 1)]
        own = next((tail for tail in tails if sum(each.split(".")[-len(tail) :] == tail for each in names) == 1), parts)
        found.append(".".join(own))
    return found
