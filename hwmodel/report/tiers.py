"""What lies in which memory tier, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.optimize.tiers import TierPlan
from hwmodel.report.tables import gigabytes, seconds, table


def tiers_answer(found: TierPlan, name: str) -> RenderableType:
    """The answer of ``hwmodel fit --tiers``."""
    if found.result is None:
        return Group(Text(name, style="bold"), Text(f"none of {found.ways:,} ways to use the tiers fits", style="bold red"))
    step = found.result.step
    head = f"{name}: {step.phase} step {seconds(step.time_s)} ({seconds(step.time_low_s)} to {seconds(step.time_high_s)})"
    rows = [
        (row.what, row.tier, gigabytes(row.bytes), gigabytes(row.read_bytes), f"{row.reads_per_step:.3g}") for row in found.held
    ]
    others = [(said(plan), seconds(time)) for plan, time in found.others]
    counted = f"the quickest of {found.fitting:,} ways that fit and move no more than they must; {found.ways:,} looked at"
    return Group(
        Text(head, style="bold"), Text(counted),
        Text(f"plan: {said(found.plan)}"), "",
        table("what lies where on a chip", ("tensors", "tier", "held", "read a step", "reads of each byte"), rows, 2), "",
        table("runners-up", ("plan", "step"), others, 1),
    )  # fmt: skip


def said(plan: Sequence[dict[str, Any]]) -> str:
    """Strategies in words."""
    words = []
    for item in plan:
        for kind, fields in item.items():
            what = f"{fields['fraction']:.4g} of the experts" if kind == "offload" else fields["what"]
            words.append(f"{what} in {fields['tier']}")
    return ", ".join(words) or "all in the first tier"
