"""The best plan as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.optimize.agreement import ONE_POOL
from hwmodel.optimize.expert_batch import WITHIN
from hwmodel.optimize.optimum import UNITS, natural
from hwmodel.report.tables import gigabytes, seconds, table

if TYPE_CHECKING:
    from hwmodel.optimize.expert_batch import ExpertBatch
    from hwmodel.optimize.optimum import Candidate, Optimum, Target


GAP = 1e-9
"""Of a placement: below it is rounding."""


def answer(found: Optimum, most: int, *, widths: bool = False) -> RenderableType:
    """The best plan, the front, the runners-up, what killed the others, and the proof.

    most : candidates to print
    widths : also what micro-batches and expert widths do to the experts
    """
    lines: list[RenderableType] = [Text(found.scenario.name, style="bold")]
    if found.scenario.title:
        lines.append(Text(found.scenario.title))
    lines += [*_best(found), ""]
    if found.experts:
        lines += [*_experts(found.experts), ""]
        lines += [_accumulation(found.experts), "", _widths(found.experts), ""] if widths else []
    if found.front:
        lines += [_front(found), ""]
    alive = [item for item in found.candidates if item.feasible]
    if alive:
        lines += [_candidates(f"the best of {len(alive):,} plans that can run", alive[:most], found.goal.objective), ""]
    if found.reasons:
        lines += [Text("what killed the others: " + "; ".join(found.reasons))]
    return Group(*lines, *_proof(found), *_placement(found))


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


def _experts(found: ExpertBatch) -> list[RenderableType]:
    rows = [
        (
            f"{row.pool}: {row.count:,} x {row.chip}, {row.weights}", f"{row.experts_per_chip} of {row.experts}",
            f"{row.tokens_per_expert:,.4g}", f"{row.distinct_experts:,.4g}", f"{row.knee:,.4g}", f"{row.tile_efficiency:.0%}",
            seconds(row.layer_s), row.bound,
        )
        for row in found.pools
    ]  # fmt: skip
    columns = ("experts on", "on a chip", "tokens each", "hit", "knee", "tiles full", "a layer", "bound")
    said = f"tokens per expert, one micro-batch: {found.tokens_per_expert:,.4g} in the mean of {found.experts} experts"
    return [table(said, columns, rows, 1), *_alone(found)]


def _alone(found: ExpertBatch) -> list[RenderableType]:
    """What would be best for the experts alone."""
    asked = f" under {seconds(found.tpot_slo_s)}" if found.tpot_slo_s else ""
    lines: list[RenderableType] = [Text(f"experts alone, fewest tokens within {WITHIN:.0%} of the best cost per token{asked}:")]
    for curve in found.curves:
        best = curve.optimum(found.tpot_slo_s)
        said = (
            f"{best.tokens_per_expert:,.4g} tokens each, {best.batch:,} a micro-batch" if best
            else "no batch is quick enough"
        )  # fmt: skip
        lines.append(Text(f"  {curve.label}: {said}{'' if curve.fits else '; they do not fit'}"))
    return lines


def _accumulation(found: ExpertBatch) -> RenderableType:
    rows = [
        (
            str(row["micro_batches"]), f"{row['tokens_per_expert']:,.4g}", f"{row['distinct_experts']:,.4g}",
            seconds(row["layer_s"]), f"{row['times_accumulated']:.2f}",
        )
        for row in found.accumulation
    ]  # fmt: skip
    columns = ("micro-batches", "tokens each", "hit", "a layer, all of them", "of accumulated")
    return table("the step's tokens through the experts in one or more micro-batches", columns, rows, 0)


def _widths(found: ExpertBatch) -> RenderableType:
    rows = [
        (
            f"EP{row['expert_groups']}" + (f" x TP{row['chips_per_group']}" if row["chips_per_group"] > 1 else ""),
            str(row["copies"]), str(row["experts_per_chip"]), f"{row['tokens_per_expert']:,.4g}", seconds(row["layer_s"]),
            f"{row['busiest_over_mean']:.2f}", gigabytes(row["weights_bytes_per_chip"]), "yes" if row["fits"] else "no",
        )
        for row in found.widths
    ]  # fmt: skip
    columns = ("width", "copies", "on a chip", "tokens each", "a layer", "busiest/mean", "weights a chip", "fits")
    return table("experts spread over fewer groups, the rest copies of them (data parallel)", columns, rows, 1)


def _placement(found: Optimum) -> list[RenderableType]:
    """Whether placing every op by itself agrees with the plan."""
    check = found.placement
    if check is None:
        return []
    if check["method"] is None:
        return [Text(f"placement: not checked: {check['notes'][0]}")]
    where: dict[str, list[str]] = {}
    for name, pool in check["classes"].items():
        where.setdefault(pool, []).append(name)
    said = "; ".join(f"{pool}: {', '.join(names)}" for pool, names in where.items())
    gap = check["gap"] if check["gap"] > GAP else 0.0
    verdict = "as planned" if check["agrees"] else "not as planned"
    verdict += " (on one pool)" if check["notes"][:1] == [ONE_POOL] else ""
    beside = "" if check["plan_s"] is None else f", the plan {seconds(check['plan_s'])}"
    time = f"one micro-batch, op after op, in {seconds(check['objective_s'])}{beside}" if check["classes"] else "nothing fits"
    return [Text(f"placement of every op by itself ({check['method']}, gap {gap:.2g}): {verdict}; {time}; {said}")]


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
    text = f"proof: {proof['method']}; gap {proof['gap']:.2g} after {proof['pieces']:,} pieces"
    if proof["gap"] > 2 * proof["gap_if_time_grows_with_batch"] + 1e-6:
        dip = proof["worst_dip_of_time_with_batch"]
        text += (
            f" ({proof['gap_if_time_grows_with_batch']:.2g} if more sequences never make a step shorter; they did by {dip:.1%})"
        )
    return [Text(text)]
