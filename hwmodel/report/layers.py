"""Bottlenecks: every layer by what bounds it, the kinds of layers by op, and the table of ops."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from hwmodel.report import svg
from hwmodel.report.markup import (
    Data,
    colours,
    explanation,
    legend,
    percent,
    seconds,
    size,
    text_of,
    why,
    work,
    zoomed,
)
from hwmodel.report.page import Page

PARTS = ("c-weights", "c-kv", "c-act", "c-mem3", "c-mem1", "c-mem2", "c-overhead", "c-reserve")


def bottlenecks(page: Page) -> str:
    """The section."""
    answer = page.answer
    bounds = sorted({str(op["bound"]) for op in answer["ops"]}, key=lambda bound: (not bound.startswith("memory"), bound))
    kinds = colours(bounds)
    seen = {bound: kinds.get(bound, "c-overhead") for bound in bounds}
    picture = _columns(answer, kinds)
    return (
        f"<h2>Bottlenecks, layer by layer</h2>{legend(seen)}{zoomed('layer-chart', picture, order=True)}"
        f"<h3>Kinds of layers, by op</h3>{_by_op(answer)}{_formulas(page)}<h3>Ops</h3>{_table(page)}"
    )


def _formulas(page: Page) -> str:
    """Links to the formula of every kind of layer."""
    named = [(str(op["op"]), str(op["layer_kind"])) for op in page.answer["ops"]]
    names = {op.partition(".")[0]: kind for op, kind in named if "." in op}
    found = [text_of(why(name, kind, page.explained)) for name, kind in names.items() if name in page.explained]
    return f'<p class="faint">As formulas: {", ".join(found)}.</p>' if found else ""


def _kinds(answer: Data) -> dict[str, list[Data]]:
    """Ops by kind of layer."""
    found: dict[str, list[Data]] = {}
    for op in answer["ops"]:
        found.setdefault(str(op["layer_kind"]), []).append(op)
    return found


def _columns(answer: Data, kinds: Mapping[str, str]) -> str:
    """One column per layer: the time of its ops by bound."""
    ops, times = _kinds(answer), _layers_of(answer)
    rows = []
    for run in answer["layers"]:
        kind = str(run["kind"])
        parts: dict[str, float] = {}
        for op in ops.get(kind, ()):
            parts[str(op["bound"])] = parts.get(str(op["bound"]), 0.0) + op["time_s"] * op["count"] / times[kind]
        total = sum(parts.values()) or 1.0
        said = "\n".join(f"{bound}: {seconds(value)}, {percent(value / total)}" for bound, value in
                         sorted(parts.items(), key=lambda pair: -pair[1]))  # fmt: skip
        shown = {bound: (parts[bound], kinds.get(bound, "c-overhead")) for bound in kinds if bound in parts}
        below = f"{kind}\n{seconds(run['time_s'])}, all micro-batches\n{said}"
        first, count = int(run["index"]), int(run["count"])
        rows += [(f"layer {layer}: {below}", float(run["time_s"]), shown) for layer in range(first, first + count)]
    top = seconds(max((sum(value for value, _ in shown.values()) for _, _, shown in rows), default=0.0))
    return svg.columns(rows, f"time of each of {len(rows)} layers by what bounds its ops", top) if rows else ""


def _layers_of(answer: Data) -> dict[str, float]:
    """How many layers there are of each kind; 1 of what stands before and behind the layers."""
    found: dict[str, float] = {str(op["layer_kind"]): 1.0 for op in answer["ops"]}
    for kind in {str(run["kind"]) for run in answer["layers"]}:
        found[kind] = float(sum(int(run["count"]) for run in answer["layers"] if str(run["kind"]) == kind))
    return found


def _by_op(answer: Data) -> str:
    """One bar per kind of layer, its ops in a row."""
    times, totals = _layers_of(answer), dict[str, float]()
    for op in answer["ops"]:
        name = str(op["op"]).partition(".")[2] or str(op["op"])
        totals[name] = totals.get(name, 0.0) + op["time_s"] * op["count"]
    costly = sorted(totals, key=lambda name: -totals[name])[: len(PARTS) - 1]
    classes = {**dict(zip(costly, PARTS, strict=False)), "other": PARTS[-1]}
    rows = []
    step = float(answer["step"]["time_s"])
    for kind, ops in _kinds(answer).items():
        parts: dict[str, tuple[float, str, str]] = {}
        shares: dict[str, float] = {}
        for op in ops:
            name = str(op["op"]).partition(".")[2] or str(op["op"])
            key = name if name in classes else "other"
            shares[key] = shares.get(key, 0.0) + op["time_s"] * op["count"] / times[kind]
        for key, name in classes.items():
            if shares.get(key, 0.0) > 0:
                parts[key] = (shares[key], name, f"{kind}\n{key}: {seconds(shares[key])} a layer")
        total = sum(shares.values())
        if total > 0:
            said = f"{seconds(total)} · {percent(total * times[kind] / step)} of the step"
            rows.append((f"{times[kind]:g} × {kind}", said, parts))
    over = "" if sum(totals.values()) <= 1.005 * step else '<p class="faint">Shares exceed 100 % where work overlaps.</p>'
    return legend(classes) + over + svg.stacked(rows, "time of one layer of each kind by op")


def _table(page: Page) -> str:
    """Every op; its row opens the formula."""
    answer, explained = page.answer, {str(each["of"]): each for each in page.explanations}
    step = float(answer["step"]["time_s"])
    heads = ("op", "pool", "bound", "times", "each", "range", "of the step", "work", "bytes")
    rows = sorted(answer["ops"], key=lambda op: -op["time_s"] * op["count"])
    left = (' class="l"',) * 3 + ("",) * 6
    named = zip(heads, left, strict=True)
    head = "".join(f'<th scope="col"{kind}><button type="button">{name}</button></th>' for name, kind in named)
    bodies = []
    for at, op in enumerate(rows):
        name, share = escape(str(op["op"])), op["time_s"] * op["count"] / step
        each = explained.get(str(op["op"]))
        button = f'<button type="button" class="more" aria-expanded="false" aria-controls="op-{at}">{name}</button>'
        cells = f'<td class="l">{button if each else name}</td>'
        cells += "".join(f'<td class="l">{escape(str(op[key]))}</td>' for key in ("pool", "bound"))
        low, high = op.get("low_s", op["time_s"]), op.get("high_s", op["time_s"])
        figures = (
            (op["count"], f"{op['count']:g}"), (op["time_s"], seconds(op["time_s"])),
            (high - low, f"{seconds(low)} – {seconds(high)}"),
            (share, percent(share)), (op["flops"], work(op["flops"])), (op["bytes"], size(op["bytes"])),
        )  # fmt: skip
        cells += "".join(f'<td data-value="{float(value):.9g}">{escape(said)}</td>' for value, said in figures)
        more = f'<tr class="why" id="op-{at}" hidden><td colspan="{len(heads)}">{explanation(each)}</td></tr>' if each else ""
        bodies.append(f"<tbody><tr>{cells}</tr>{more}</tbody>")
    filter_ = '<div class="tools"><input id="filter" type="search" placeholder="filter ops" aria-label="filter ops"></div>'
    return (
        f'{filter_}<div class="scroll tall" tabindex="0"><table class="sort" id="ops-table"><thead><tr>{head}</tr></thead>'
        f"{''.join(bodies)}</table></div>"
    )
