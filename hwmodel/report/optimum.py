"""The best plan as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.optimize.optimum import UNITS, natural
from hwmodel.report.tables import seconds, table

if TYPE_CHECKING:
    from hwmodel.optimize.optimum import Candidate, Optimum, Target


def answer(found: Optimum, most: int) -> RenderableType:
    """The best plan, the front, the runners-up, what killed the others, and the proof.

    most : candidates to print
    """
    lines: list[RenderableType] = [Text(found.scenario.name, style="bold")]
    if found.scenario.title:
        lines.append(Text(found.scenario.title))
    lines += [*_best(found), ""]
    if found.front:
        lines += [_front(found), ""]
    alive = [item for item in found.candidates if item.feasible]
    if alive:
        lines += [_candidates(f"the best of {len(alive):,} plans that can run", alive[:most], found.goal.objective), ""]
    if found.reasons:
        lines += [Text("what killed the others: " + "; ".join(found.reasons))]
    return Group(*lines, *_proof(found))


def _best(found: Optimum) -> list[RenderableType]:
    target, result, choice = found.answer, found.answer.result, found.answer.choice
    wanted = [f"TPOT at most {seconds(found.goal.slo.tpot_s)}"] if found.goal.slo.tpot_s else []
    wanted += [f"TTFT at most {seconds(found.goal.slo.ttft_s)}"] if found.goal.slo.ttft_s else []
    asked = f"best {found.goal.objective}{', ' if wanted else ''}{', '.join(wanted)}"
    if result is None or choice is None or target.best.line is None:
        return [Text(f"{asked}: no plan meets it", style="bold red")]
    step, unit = result.step, UNITS[found.goal.objective]
    value = natural(found.goal.objective, target.best.value)
    rows = [
        (asked, f"{value:,.5g} {unit}"),
        ("plan", choice.label),
        (
            "batch",
            f"{target.best.batch:,} sequences" + (f" in {step.micro_batches} micro-batches" if step.micro_batches > 1 else ""),
        ),
        ("TPOT", f"{seconds(step.tpot_s or step.time_s)}  ({seconds(step.time_low_s)} to {seconds(step.time_high_s)} a step)"),
        ("tokens/s/user", f"{step.tokens_per_s_per_user:,.2f}"),
        ("tokens/s/chip", f"{step.tokens_per_s_per_chip:,.2f}"),
        ("bound", step.bound),
    ]
    if result.cost and result.cost.usd_per_million_output_tokens:
        rows.append(("cost", f"{result.cost.usd_per_million_output_tokens:.3g} USD/Mtok"))
    return [table("", ("", ""), rows, 2)]


def _front(found: Optimum) -> RenderableType:
    rows = []
    for target in found.front:
        step = target.result.step if target.result else None
        rows.append(
            (
                seconds(target.tpot_slo_s or 0.0), target.choice.label if target.choice else "no plan meets it",
                f"{target.best.batch:,}" if step else "-", str(step.micro_batches) if step else "-",
                seconds(step.tpot_s or step.time_s) if step else "-", _worth(found, target),
            )
        )  # fmt: skip
    columns = ("TPOT at most", "plan", "batch", "micro-batches", "TPOT", UNITS[found.goal.objective])
    return table("the best plan under other targets, each priced by `run`", columns, rows, 2)


def _worth(found: Optimum, target: Target) -> str:
    return f"{natural(found.goal.objective, target.best.value):,.5g}" if target.best.line else "-"


def _candidates(title: str, items: list[Candidate], objective: str) -> RenderableType:
    rows = [(item.plan, item.reason.partition(": ")[2] if item.reason else f"{item.objective:,.5g}") for item in items]
    return table(title, ("plan", UNITS[objective]), rows, 1)


def _proof(found: Optimum) -> list[RenderableType]:
    proof = found.proof
    if proof["gap"] is None:
        return [Text(f"proof: {proof['method']}")]
    return [
        Text(f"proof: {proof['method']}; gap {proof['gap']:.2g} after {proof['pieces']:,} pieces; "
             f"a step of more sequences was shorter by {proof['worst_dip_of_time_with_batch']:.2g} at the most"),
    ]  # fmt: skip
