"""The Pareto section: throughput and cost against interactivity, plan by plan, with the points where plans change places."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from hwmodel.report.markup import Data, grid, legend, number, why, zoomed
from hwmodel.report.page import Page
from hwmodel.report.svg_front import Dot, Line, front
from hwmodel.sweep.names import CHIP, COST, USER

COLOURS = ("c-compute", "c-mem0", "c-link", "c-mem3", "c-mem1", "c-mem2", "c-overhead")
CLOSE = 1e-6
"""How near (relative) a batch is to a crossing to stand at it."""
WORDS = {CHIP: "tokens/s/chip", COST: "USD/Mtok"}


def pareto(page: Page) -> str:
    """The section."""
    found = page.tradeoff
    if found is None:
        none = "A saved answer holds one plan at one batch; <code>hwmodel report SCENARIO --html FILE</code> draws its front."
        return f'<h2>Pareto front</h2><p class="faint">{none}</p>'
    if not found["curves"]:
        return f'<h2>Pareto front</h2><p class="faint">{escape(str(found.get("reason") or "No plan of these chips fits."))}</p>'
    curves = list(found["curves"])
    kinds = {str(curve["name"]): COLOURS[min(at, len(COLOURS) - 1)] for at, curve in enumerate(curves)}
    measures = [CHIP] + [COST] * all(point[COST] is not None for curve in curves for point in curve["points"])
    pictures = [
        f"<div><h3>{WORDS[y]} over tokens/s/user{', lower is cheaper' if y == COST else ''}</h3>"
        f"{zoomed(f'front-{at}', _picture(found, kinds, y))}</div>"
        for at, y in enumerate(measures)
    ]
    note = (
        f"Every plan over its batches, a step of each priced and scheduled: as planned, those of the {found['plans']:,} plans "
        "of the same chips that are ahead somewhere, and the scenarios it is set against, each under its own plan. "
        "A plan that leaves a pool idle does not count its chips. Both axes are logarithmic; ◆ marks where the best changes."
    )
    return (
        f'<h2>Pareto front and crossovers</h2><p class="faint">{escape(note)}</p>{legend(kinds)}'
        f'<div class="{"two" if len(pictures) > 1 else "one"}">{"".join(pictures)}</div>'
        f"<h3>Where the best plan changes</h3>{_crossovers(found)}<h3>Ends of every front</h3>{_ends(curves, measures)}"
    )


def _picture(found: Data, kinds: dict[str, str], y: str) -> str:
    asked = int(found["batch"])
    lines = [
        Line(kinds[str(curve["name"])], bool(curve["own"]), tuple(_dot(curve, point, y, asked) for point in curve["points"]))
        for curve in found["curves"]
    ]
    crossings = [_crossing(row, y) for row in found["crossovers"] if row["y"] == y]
    return front(lines, crossings, f"{WORDS[y]} over tokens/s/user, one line a plan")


def _crossing(row: Data, y: str) -> Dot:
    below, above = (str(name) for name in row["between"])
    where = f"{number(row['at'])} tokens/s/user, {number(row['value'])} {WORDS[y]}"
    said = f"{where}\nahead below: {below}\nahead above: {above}"
    return Dot(float(row["at"]), float(row["value"]), said, label=number(row["at"], 3))


def _dot(curve: Data, point: Data, y: str, asked: int) -> Dot:
    low, high, user = float(point["ratio_low"]), float(point["ratio_high"]), float(point["tokens_per_s_per_user"])
    here = bool(curve["own"]) and int(point["batch"]) == asked
    cost = "" if point[COST] is None else f"\n{number(point[COST], 3)} USD/Mtok"
    name = f"{curve['name']}, the step of this page" if here else str(curve["name"])
    speed = f"{number(user)} tokens/s/user ({number(user / high)} to {number(user / low)})"
    said = f"{name}\nbatch {int(point['batch']):,}: {speed}\n{number(point[CHIP])} tokens/s/chip{cost}"
    return Dot(user, float(point[y]), said, marked=here)


def _crossovers(found: Data) -> str:
    rows, formulas = [], []
    known = {str(curve["name"]): curve for curve in found["curves"]}
    for at, row in enumerate(found["crossovers"]):
        named = f"crossover:{at}"
        around = "-" if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}"
        there = f"{number(row['value'])} {WORDS[str(row['y'])]}"
        below, above = (str(name) for name in row["between"])
        rows.append((why(named, number(row["at"]), {named}), why(named, around, {named}), there, below, above))
        title = f"{number(row['at'])} tokens/s/user, by {WORDS[str(row['y'])]}: {below} / {above}"
        formulas.append(
            f'<details id="why-{named}"><summary>{escape(title)}</summary>{_formula(row, known[below], known[above])}</details>'
        )
    if not rows:
        more = len(found["curves"]) > 1
        ahead = "One plan is ahead wherever it can go" if more else "No other plan of these chips is ahead anywhere"
        return f'<p class="faint">{ahead}: nothing crosses.</p>'
    note = (
        "The range is where the crossing lies with all steps at the quick or the slow end of their ranges: plans of the same "
        "chips move together, other scenarios apart; - where they do not cross at both ends."
    )
    heads = ("tokens/s/user", "range", "there", "best below", "best above")
    return grid(heads, rows, 0, (3, 4)) + f'<p class="faint">{note}</p>' + "".join(formulas)


def _formula(row: Data, below: Data, above: Data) -> str:
    """The points of both curves around a crossing: each curve serves an interactivity by its best batch at it or quicker."""
    y, at = str(row["y"]), float(row["at"])
    better = min if y == COST else max
    cells = []
    for curve in (below, above):
        points = sorted(curve["points"], key=lambda point: float(point[USER]))
        slower = [point for point in points if point[USER] < at * (1 - CLOSE)]
        quicker = [point for point in points if point[USER] > at * (1 + CLOSE)]
        beside = [point for point in points if abs(point[USER] / at - 1) <= CLOSE]
        for said, some in (("just slower", slower[-1:]), ("at it", beside[-1:]), ("just quicker", quicker[:1])):
            for point in some:
                serves = better(float(each[y]) for each in points if each[USER] >= point[USER])
                reach = f"{number(point[USER] / point['ratio_high'])} to {number(point[USER] / point['ratio_low'])}"
                cells.append((str(curve["name"]), said, f"{int(point['batch']):,}", number(point[USER], 6), reach,
                              number(point[y], 6), number(serves, 6)))  # fmt: skip
    what = "USD/h of its chips / (3600 * tokens/s) * 1e6" if y == COST else "tokens/s / chips"
    formula = (
        f"tokens/s/user = 1 / TPOT (decode); {WORDS[y]} = {what}; served(x) = best {WORDS[y]} of the batches at x or quicker"
    )
    heads = ("plan", "batch is", "batch", "tokens/s/user", "range", WORDS[y], "served there")
    ends = "the range of a point is tokens/s/user at the high and the low end of its step (step:high, step:low)"
    said = f"served(x) of the two change places at x = {number(at, 6)}; {ends}"
    return f'<code class="formula">{escape(formula)}</code><p class="faint">{escape(said)}.</p>{grid(heads, cells, 2)}'


def _ends(curves: Sequence[Data], measures: Sequence[str]) -> str:
    """The first and the last point of every curve."""
    rows = []
    for curve in curves:
        first, last = curve["points"][0], curve["points"][-1]
        figures = [f"{number(first[key])} to {number(last[key])}" for key in ("batch", "tokens_per_s_per_user", CHIP)]
        figures += [f"{number(first[COST], 3)} to {number(last[COST], 3)}"] if COST in measures else []
        rows.append((str(curve["name"]), f"{int(curve['chips']):,}", *figures))
    heads = ("plan", "chips", "batch", "tokens/s/user", *(WORDS[y] for y in measures))
    return grid(heads, rows, 1, (0,))
