"""How wrong the model is, as tables that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.text import Text

from hwmodel.calibration import Calibration
from hwmodel.claims.rows import Claim
from hwmodel.measured import FILES
from hwmodel.published import FAR, LAYER, Figure, Published
from hwmodel.report.tables import table
from hwmodel.served.compare import MANY, EndToEnd, kind_of
from hwmodel.served.compare import summary as summary_of_served
from hwmodel.served.steady import Point, Steady
from hwmodel.validate import Group, Validation, summary

UNITS = {
    "tok_s_per_gpu": "tok/s/chip", "tok_s_per_npu": "tok/s/chip", "tok_s_per_chip": "tok/s/chip",
    "tokens_per_s_per_node": "tok/s/node", "tok_s_per_user": "tok/s/user", "tok_s": "tok/s", "tpot_ms": "ms TPOT",
    "ms_per_token": "ms/token", LAYER: "us/layer",
}  # fmt: skip
"""Metric of a published figure, as printed."""
WIDE = 0.25
"""Median error on unseen rows from which single times are not to be trusted."""


def accuracy(found: Validation) -> RenderableType:
    """The answer of ``hwmodel validate``."""
    parts: list[RenderableType] = []
    if found.groups:
        parts += [_groups(found.groups), "", _summary(found.groups)]
    if found.e2e:
        parts += ["", served(found.e2e)]
    if found.published.figures or found.published.left_out:
        parts += ["", systems(found.published)]
    if found.steady.points or found.steady.left_out:
        parts += ["", rates(found.steady)]
    parts += _left_out(found)
    return Lines(*parts)


def rates(found: Steady) -> RenderableType:
    """Throughput tables against the steady state: by model and chip, far misses with their reasons, rows left out."""
    groups: dict[tuple[str, str, str, str], list[Point]] = {}
    for point in found.points:
        key = (f"{point.model} {point.precision}", f"{point.gpu} {point.layout}", point.version,
               "chip" if point.calibrated else "likened")  # fmt: skip
        groups.setdefault(key, []).append(point)
    rows = []
    for key, members in groups.items():
        signed = [point.predicted / point.measured - 1 for point in members]
        worst = max(members, key=lambda point: point.error)
        rows.append((*key[:3], len(members), _pct(float(np.median([abs(value) for value in signed]))),
                     _signed(float(np.median(signed))), f"{worst.prompt}/{worst.output}",
                     _signed(worst.predicted / worst.measured - 1), key[3]))  # fmt: skip
    columns = ("model", "chip", "version", "rows", "median", "bias", "worst at", "error", "fit")
    lines: list[RenderableType] = (
        [table("steady state at the largest batch that fits, error, %", columns, rows, left=3)] if rows else []
    )
    lines += _of_rates(found)
    lines += [
        Text(f"{p.model} {p.gpu} {p.layout} {p.version}, {p.prompt}/{p.output}: {_signed(p.predicted / p.measured - 1)} %; "
             f"{p.batch} sequences, prompts {p.prefill:.0%} of the time: {p.note}", style="dim")
        for p in found.points if p.note
    ]  # fmt: skip
    lines += [Text(f"left out: {count:,} rows: {reason}", style="dim") for reason, count in found.left_out]
    return Lines(*lines)


def _of_rates(found: Steady) -> list[Text]:
    lines = []
    for own, what in ((True, "chips that were measured"), (False, "other chips")):
        if (value := found.median(own)) is not None:
            count = sum(point.calibrated == own for point in found.points)
            lines.append(Text(f"{what}: {count} rows, median error {_pct(value)} %"))
    return lines


def short(found: Validation, plain: Validation) -> RenderableType:
    """The answer of ``hwmodel validate --summary``: a line per kind of operation or of rows, uncalibrated beside calibrated."""
    lines: list[RenderableType] = []
    if found.groups:
        lines.append(_summary(found.groups, {family.name: family.median for family in summary(plain.groups)}))
    for said, one in (("", found), ("uncalibrated, ", plain)):
        lines += [
            *(Text(f"end to end, {said}{line}") for line in _of_served(one.e2e)),
            *(Text(f"published, {said}") + line for line in _of_systems(one.published)),
            *(Text(f"steady state, {said}") + line for line in _of_rates(one.steady)),
        ]
    return Lines(*lines, *map(Text, _bars(found.e2e)), *_unserved(found.e2e), *_left_out(found))


def claimed(found: Sequence[Claim]) -> RenderableType:
    """Every claim's printed figure beside what this program computes, and what is known of those that are bounded."""

    def said(claim: Claim) -> str:
        if "low" not in claim.inputs:
            return "yes" if claim.agrees else "NO"
        return f"{'within' if claim.agrees else 'NO:'} {claim.inputs['low']:.4g} to {claim.inputs['high']:.4g}"

    rows = [(c.number, c.claim, f"{c.expected:.6g}", f"{c.result:.5g} {c.unit}", said(c), c.formula) for c in found]
    notes = [Text(f"\n{c.number}: {c.claim}: {c.verdict}: {c.note}") for c in found if "low" in c.inputs]
    return Lines(table("", ("#", "claim", "claimed", "computed", "agrees", "formula"), rows, 6), *notes)


def served(found: Sequence[EndToEnd]) -> RenderableType:
    """Errors end to end, and their medians over the groups."""
    rows = [
        (
            f"{g.model} {g.device} {g.stack} {g.precision or '-'} {g.mode}", g.rows, _pct(g.tpot_median), _pct(g.tpot_p90),
            _signed(g.tpot_bias), _pct(g.ttft_median), _pct(g.ttft_p90), _signed(g.ttft_bias),
        )
        for g in found if g.rows
    ]  # fmt: skip
    columns = ("model, device, stack, precision, mode", "rows", "TPOT", "p90", "bias", "TTFT", "p90", "bias")
    said = (*_of_served(found), *_bars(found), *drafting(found))
    return Lines(table("error end to end, %", columns, rows), *map(Text, said), *_unserved(found))


def _of_served(found: Sequence[EndToEnd]) -> list[str]:
    """By kind of rows the medians over the groups that bars count, and over all where there are others."""
    bars, lines = summary_of_served(found), []
    for name, whole in summary_of_served(found, 1).items():
        rows = sum(g.rows for g in found if kind_of(g.model, g.mode) == name)
        many = bars.get(name, (0,))[0]
        if many:
            lines.append(f"{name}: {many} groups of {MANY} rows or more: {_four(bars[name])}")
        if many < whole[0]:
            lines.append(f"{name}: all {whole[0]} groups, {rows:,} rows: {_four(whole)}")
    return lines


def _bars(found: Sequence[EndToEnd]) -> list[str]:
    """Which groups are held to a bar; nothing where all are."""
    bars, whole = (sum(one[0] for one in summary_of_served(found, least).values()) for least in (MANY, 1))
    said = f"the bars on these errors count groups (model, device, stack) of {MANY} rows or more: {bars} of the {whole} here"
    return [said] if bars < whole else []


def _four(errors: tuple[int, float, float, float, float]) -> str:
    tpot, worst, ttft, most = (_pct(value) for value in errors[1:])
    return f"TPOT median {tpot} %, worst {worst} %; TTFT median {ttft} %, worst {most} %"


def _unserved(found: Sequence[EndToEnd]) -> list[Text]:
    reasons: dict[str, int] = {}
    for g in found:
        for reason, count in g.skipped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return [Text(f"left out: {count:,} rows: {reason}", style="dim") for reason, count in reasons.items()]


def drafting(found: Sequence[EndToEnd]) -> list[str]:
    """Which setting fits the rows of DeepSeek, which say nothing of multi-token prediction; steps are priced without it."""
    fits: dict[str, list[str]] = {}
    for g in found:
        if "DeepSeek" in g.model and g.rows:
            many = f"on, some {1 + g.tpot_bias:.1f} tokens a step" if g.tpot_bias > WIDE else "off"
            setting = many if g.tpot_bias >= -WIDE else "neither: slower than steps without it"
            fits.setdefault(setting, []).append(
                f"{g.model.rpartition('/')[2]} {g.device} {g.stack} {g.precision or '-'} {g.mode}"
            )
    head = "DeepSeek: whether tokens were drafted (multi-token prediction) is not recorded; which setting fits the median row:"
    return [head, *(f"  {setting}: {', '.join(names)}" for setting, names in sorted(fits.items()))] if fits else []


def systems(found: Published) -> RenderableType:
    """Published figures of whole systems, why far misses are missed, and the rows left out."""
    rows = [
        (_name(f), f.layout + " prefill" * (f.phase == "prefill"), f.context, UNITS[f.metric], f"{f.measured:.4g}",
         f"{f.predicted:.4g}", _signed(f.predicted / f.measured - 1), f.calibrated)
        for f in found.figures
    ]  # fmt: skip
    columns = ("system, model", "step", "context", "unit", "published", "predicted", "error", "fit")
    lines: list[RenderableType] = (
        [table("published figures, error of the prediction, %", columns, rows, left=2)] if rows else []
    )
    lines += _of_systems(found)
    for f in found.figures:
        if f.error > FAR:
            signed = _signed(f.predicted / f.measured - 1)
            lines.append(Text(f"missed: {_name(f)}, {f.phase} at {f.context}, {signed} %: {f.note}"))
    counts: dict[str, int] = {}
    for item in found.left_out:
        said = f"{item.system}, {item.model}, {item.phase or '-'}, {item.metric}: {item.reason}"
        counts[said] = counts.get(said, 0) + 1
    lines += [
        Text(f"left out: {said}" + (f" ({count} rows)" if count > 1 else ""), style="dim") for said, count in counts.items()
    ]  # fmt: skip
    return Lines(*lines)


def _of_systems(found: Published) -> list[Text]:
    lines = []
    whole, layers = found.median("systems"), found.median("layers")
    for what, value in (("systems", whole), ("attention layers", layers), ("all", found.median())):
        count = sum((f.metric == LAYER) == (what == "attention layers") or what == "all" for f in found.figures)
        if value is not None:
            lines.append(Text(f"{what}: {count} figures, median error {_pct(value)} %"))
    return lines


def _name(figure: Figure) -> str:
    system = figure.system if "AFD" in figure.system else figure.system.partition(" (")[0]
    return f"{system}, {figure.model.partition(' ')[0]}"


def _left_out(found: Validation) -> list[RenderableType]:
    compared = (found.groups, found.e2e, found.published.figures, found.steady.points)
    lines: list[RenderableType] = [] if any(compared) else ["no rows to compare"]
    return lines + [Text(f"left out: {count:,} rows: {reason}", style="dim") for reason, count in found.skipped.items()]


def _groups(groups: tuple[Group, ...]) -> RenderableType:
    rows = [
        (
            f"{g.op} {g.device} {g.stack} {g.dtype}", g.rows, _pct(g.q25), _pct(g.median), _pct(g.q75), _pct(g.p90),
            _signed(g.bias), "-" if g.held_out is None else _pct(g.held_out), _pct(g.roofline_median), g.calibrated,
            _pct(g.inside_80),
        )
        for g in groups
    ]  # fmt: skip
    columns = (
        "op, device, stack, dtype",
        "rows",
        "q25",
        "median",
        "q75",
        "p90",
        "bias",
        "held out",
        "roofline",
        "fit",
        "inside",
    )
    return table("error of the predicted time, |predicted / measured - 1|, %", columns, rows, fold=True)


def _summary(groups: tuple[Group, ...], beside: Mapping[str, float] | None = None) -> RenderableType:
    rows = []
    for f in summary(groups):
        plain = () if beside is None else (_pct(beside[f.name]),)
        held_out, far, spread = ("-" if value is None else _pct(value) for value in (f.held_out, f.held_out_p90, f.spread))
        held_out += f" / {far}" if f.held_out_p90 is not None else ""
        where = f"{f.worst.device} {f.worst.stack} {f.worst.dtype}"
        rows.append(
            (
                f.name,
                f.groups,
                _pct(f.median),
                _pct(f.p90),
                held_out,
                spread,
                *plain,
                _pct(f.roofline),
                _pct(f.worst.median),
                where,
            )
        )
    extra = () if beside is None else ("uncalibrated",)
    columns = ("operation", "groups", "median", "p90", "held out", "folds", *extra, "roofline", "worst", "in")
    return table("medians over the groups of the error of the predicted time, %", columns, rows)


def _pct(value: float) -> str:
    return f"{100 * value:.1f}"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}"


def trust(found: Calibration) -> RenderableType:
    """What a calibration rests on, how far it was off on rows it had not seen, and what not to trust."""
    rows = [
        (fit.key, str(fit.rows), "-" if fit.held_out is None else f"{fit.held_out.median:.1%}",
         "-" if fit.held_out is None else f"{fit.held_out.p90:.1%}", f"{fit.low:.2f} to {fit.high:.2f}",
         ", ".join(f"{name} {low:,.4g}-{high:,.4g}" for name, (low, high) in fit.domain.items()))
        for fit in found.fits
    ]  # fmt: skip
    columns = ("fit", "rows", "held out", "90 % below", "times lie at", "measured sizes")
    lines: list[RenderableType] = [
        table(f"{found.chip} under {found.stack}: errors on shapes that the fit had not seen", columns, rows, 1), "",
        Text("do not trust", style="bold"),
    ]  # fmt: skip
    doubts = {fit.key: fit.doubt for fit in found.fits if fit.doubt}
    lines += [Text(f"  {key}: {doubt}") for key, doubt in doubts.items()]
    far = [fit.key for fit in found.fits if fit.held_out is not None and fit.held_out.median > WIDE]
    if far:
        lines.append(Text(f"  single times of {', '.join(far)}: off by more than {WIDE:.0%} in the median on rows not seen"))
    missing = [kind for kind in FILES if kind not in {fit.op for fit in found.fits}]
    if missing:
        lines.append(Text(f"  {', '.join(missing)}: no rows, so nothing was fitted"))
    return Lines(*lines)
