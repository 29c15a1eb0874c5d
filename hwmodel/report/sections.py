"""The sections of a page, each from the plain data of an answer."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from hwmodel.report import svg
from hwmodel.report.layers import bottlenecks
from hwmodel.report.markup import (
    Data,
    colours,
    explanation,
    grid,
    legend,
    listed,
    movers,
    number,
    percent,
    seconds,
    size,
    text_of,
    tile,
    why,
    zoomed,
)
from hwmodel.report.page import Page
from hwmodel.report.pareto import pareto
from hwmodel.spec.units import show


def title_of(page: Page) -> str:
    """The scenario's title, its name when it has none."""
    return str(page.answer.get("asked", {}).get("title") or page.answer["scenario"])


BOUND_WORDS = {
    "compute": "arithmetic", "link": "links between chips", "overhead": "launch and latency", "idle": "waiting",
    "dependency": "waiting", "memory": "reading memory",
}  # fmt: skip


def verdict(page: Page) -> str:
    """Whether it runs, how fast, for how much, and what to know before believing it."""
    answer, step = page.answer, page.answer["step"]

    def led(name: str) -> str:
        return name if name in page.explained else ""

    kind, said = ("good", "fits") if answer["feasible"] else ("bad", "does not run as planned")
    badge = f'<span class="badge {kind}">{said}</span>'
    around = ""
    if step["time_low_s"] < step["time_high_s"]:
        around = f"{seconds(step['time_low_s'])} to {seconds(step['time_high_s'])}"
    tiles = [tile("time per output token (TPOT)", seconds(step["tpot_s"]), around, led("tpot"))] if "tpot_s" in step else []
    if "ttft_s" in step:
        tiles.append(tile("time to first token (TTFT)", seconds(step["ttft_s"]), around, led("ttft")))
    tiles.append(tile("tokens/s of one user", number(step["tokens_per_s_per_user"]), "interactivity", led("tpot")))
    each = f"{number(step['tokens_per_s_per_chip'])} per chip"
    tiles.append(tile("tokens/s, all users", number(step["tokens_per_s"]), each, led("throughput")))
    tiles += _money(answer["cost"], led) if answer.get("cost") else []
    tiles.append(tile("bound by", step["bound"], _words(step["bound"]), led("step")))
    reasons = f"<h2>Why not</h2>{listed(answer['reasons'])}" if answer["reasons"] else ""
    return f'{badge}<p class="lead">{escape(_sentence(answer))}</p><div class="tiles">{"".join(tiles)}</div>{reasons}'


def _money(cost: Data, led: Callable[[str], str]) -> list[str]:
    made, taken = cost.get("usd_per_million_output_tokens"), cost.get("usd_per_million_input_tokens")
    name, usd = ("USD per Mtok output", made) if made is not None else ("USD per Mtok input", taken)
    low, high = cost.get("usd_per_million_low"), cost.get("usd_per_million_high")
    around = f"{float(low):.3g} to {float(high):.3g}" if low and high else ""
    tiles = [tile(name, f"{float(usd or 0):.3g}", around, led("cost"))]
    joules = cost.get("joules_per_token")
    if joules is not None:
        most = cost.get("joules_per_token_at_tdp")
        below = f"at most {float(most):.3g}" if most else ""
        tiles.append(tile("joules per token", f"{float(joules):.3g}", below, led("energy")))
    return tiles


def _words(bound: str) -> str:
    kind, _, tier = bound.partition(":")
    return BOUND_WORDS.get(kind, kind) + (f" ({tier})" if tier else "")


def _sentence(answer: Data) -> str:
    """The answer in words."""
    step = answer["step"]
    said = [f"A step takes {seconds(step['time_s'])}; most of it is {_words(step['bound'])}."]
    idle = [row for row in answer["pools"] if row["bound_s"].get("idle", 0.0) > 0.5 * step["time_s"]]
    said += [f"Pool {row['pool']} waits {percent(row['bound_s']['idle'] / step['time_s'])} of the step." for row in idle]
    held = [row for row in answer["memory"] if row["weights_bytes"] + row["kv_bytes"] + row["activation_bytes"] > 0]
    if held:
        tight = min(held, key=lambda row: row["free_bytes"] / row["capacity_bytes"])
        left = size(abs(tight["free_bytes"]))
        left = f"has {left} free" if tight["free_bytes"] >= 0 else f"lacks {left}"
        of = size(tight["capacity_bytes"])
        said.append(f"The tightest memory, {tight['tier']} of {tight['pool']}, {left} of {of} per chip.")
    doubts = [row for row in answer.get("estimated_inputs", ()) if row["status"] != "published"]
    if doubts:
        said.append(f"The input in doubt that matters most is {doubts[0]['input']}: its range moves the step by "
                    f"{percent(doubts[0]['effect_on_time'])}.")  # fmt: skip
    return " ".join(said)


def memory(page: Page) -> str:
    """What fills each tier of the fullest chip."""
    uses = {"weights": ("weights_bytes", "c-weights"), "KV cache": ("kv_bytes", "c-kv"),
            "activations": ("activation_bytes", "c-act"), "kept free": ("reserve_bytes", "c-reserve")}  # fmt: skip
    bars, pictures = page.answer["memory"], []
    for row in bars:
        parts = {
            name: (float(row.get(key, 0.0)), kind, f"{row['pool']} {row['tier']}\n{name}: {size(row.get(key, 0.0))}, "
                   f"{percent(row.get(key, 0.0) / row['capacity_bytes'])} of the tier")
            for name, (key, kind) in uses.items()
        }  # fmt: skip
        free = row["free_bytes"]
        right = f"{size(free)} free" if free >= 0 else f"{size(-free)} too much"
        picture = svg.stacked(
            [(f"{row['pool']} · {row['tier']}, {size(row['capacity_bytes'])}", right, parts)],
            f"memory {row['tier']} of one chip of {row['pool']}", float(row["capacity_bytes"]),
        )  # fmt: skip
        pictures.append(f"<div>{picture}</div>")
    columns = ("capacity_bytes", "weights_bytes", "kv_bytes", "activation_bytes", "reserve_bytes")
    cells = [
        (row["pool"], why(f"memory:{row['pool']}:{row['tier']}", str(row["tier"]), page.explained),
         *(size(row.get(key, 0.0)) for key in columns),
         size(row["free_bytes"]) if row["free_bytes"] >= 0 else "-" + size(-row["free_bytes"]))
        for row in bars
    ]  # fmt: skip
    table = grid(("pool", "tier", "capacity", "weights", "KV cache", "activations", "kept free", "free"), cells, 2)
    keys = legend({name: kind for name, (_, kind) in uses.items()} | {"free": "c-empty"})
    return f'<h2>Memory of one chip</h2>{keys}<div class="two">{"".join(pictures)}</div>{table}'


def pools(page: Page) -> str:
    """What every pool does with the step."""
    step = float(page.answer["step"]["time_s"])
    kinds = colours(())
    names = {"compute": "compute", "memory": "memory", "link": "link", "overhead": "launch, latency", "idle": "waits"}
    rows = []
    for row in page.answer["pools"]:
        held = {key: float(row["bound_s"].get(key, 0.0)) for key in names}
        parts = {
            key: (held[key], kinds[key], f"{row['pool']}: {said}\n{seconds(held[key])}, {percent(held[key] / step)}")
            for key, said in names.items()
        }
        rows.append((f"{row['pool']}: {int(row['count']):,} × {row['chip']}", f"busy {percent(row['busy_fraction'])}", parts))
    picture = svg.stacked(rows, "share of the step by what bounds it, one chip of each pool")
    busy = [
        (why(f"pool:{row['pool']}", str(row["pool"]), page.explained), percent(row["busy_fraction"]),
         *(percent(row["bound_s"].get(key, 0.0) / step) for key in names))
        for row in page.answer["pools"]
    ]  # fmt: skip
    table = grid(("pool", "busy", *names.values()), busy)
    links = [
        (why(f"link:{row['from']}>{row['to']}", _way(row), page.explained), size(row["bytes"]), seconds(row["time_s"]),
         percent(row["busy_fraction"]))
        for row in page.answer["links"]
    ]  # fmt: skip
    table += "<h3>Links</h3>" + grid(("link", "bytes per step", "time", "busy"), links) if links else ""
    keys = legend({said: kinds[key] for key, said in names.items()})
    return f"<h2>Pools: where the step goes</h2>{keys}{picture}{table}"


def _way(row: Data) -> str:
    return f"{row['from']} → {row['to']}" if row["from"] != row["to"] else f"inside {row['from']}"


def roofline(page: Page) -> str:
    """Every op that multiplies matrices under the ceilings of its chip."""
    pictures = []
    kinds = colours(str(dot["bound"]) for roof in page.rooflines for dot in roof["dots"])
    for roof in page.rooflines:
        dots = [
            {**dot, "class": kinds.get(str(dot["bound"]), "c-overhead"),
             "tip": f"{dot['op']} {dot['dtype']}\n{number(dot['intensity'])} FLOP/B, "
                    f"{show(dot['flops_per_s'], 'flops_per_s', 3)}\n{percent(dot['share'])} of the step, {dot['bound']}"}
            for dot in roof["dots"]
        ]  # fmt: skip
        used = {str(dot["dtype"]) for dot in roof["dots"]} - {""} or set(roof["peaks"])
        peaks = {name: float(value) for name, value in roof["peaks"].items() if name in used}
        tiers = {name: float(value) for name, value in roof["tiers"].items()}
        said = {name: f"{name} {show(value, 'bytes_per_s', 3)}" for name, value in tiers.items()}
        said |= {name: f"{name} {show(value, 'flops_per_s', 3)}" for name, value in peaks.items()}
        picture = svg.roofline(tiers, peaks, dots, f"roofline of one {roof['chip']}", said)
        pictures.append(f"<div><h3>{escape(str(roof['pool']))}: one {escape(str(roof['chip']))}</h3>{picture}</div>")
    if not pictures:
        return ""
    seen = {str(dot["bound"]): kinds[str(dot["bound"])] for roof in page.rooflines for dot in roof["dots"]
            if str(dot["bound"]) in kinds}  # fmt: skip
    note = (
        '<p class="faint">FLOP per byte across, FLOP/s up, both logarithmic; the area of a dot is its share of the step. '
        '<a href="#ops-table">The table of ops</a> has the formula of each.</p>'
    )
    kind = "two" if len(pictures) > 1 else "one"
    return f'<h2>Roofline</h2>{note}{legend(seen)}<div class="{kind}">{"".join(pictures)}</div>'


ROLES = {"communication": "c-link", "norm": "c-mem3"}
PARTS = {"attention": "c-compute", "ffn": "c-mem0"}


def timeline(page: Page) -> str:
    """Lanes against time."""
    line = page.timeline
    if line is None:
        return ('<h2>Timeline</h2><p class="faint">A saved answer holds no schedule; '
                "<code>hwmodel report SCENARIO --html FILE</code> draws it.</p>")  # fmt: skip
    start, span = float(line["start_s"]), float(line["end_s"]) - float(line["start_s"])
    events = [
        (int(e["lane"]), 100 * (e["start_s"] - start) / span, 100 * (e["end_s"] - start) / span,
         ROLES.get(str(e["role"])) or PARTS.get(str(e["part"]), "c-overhead"),
         f"{e['op']}\nlayer {int(e['layer']) - 1}, micro-batch {e['batch']}\n{seconds(e['end_s'] - e['start_s'])} from "
         f"{seconds(e['start_s'])}")
        for e in line["events"]
    ]  # fmt: skip
    ticks = [(50.0 * n, seconds(start + span * n / 2) if start + span * n else "0") for n in range(3)]
    picture = svg.lanes([str(name) for name in line["lanes"]], events, "timeline of the step by lane", ticks)
    cut = f" {line['left_out']:,} further ops are left out." if line["left_out"] else ""
    what = "A few layers from the middle of the step, steady state." if start else "The step from its start."
    seen = {
        "attention": "c-compute",
        "FFN, experts": "c-mem0",
        "communication": "c-link",
        "norms": "c-mem3",
        "embedding, head": "c-overhead",
    }
    return f'<h2>Timeline</h2><p class="faint">{what}{cut}</p>{legend(seen)}{zoomed("timeline-chart", picture)}'


def cost(page: Page) -> str:
    """Dollars and joules by pool and use."""
    spent = page.answer.get("cost")
    if not spent:
        reason = page.answer.get("cost_reason")
        return f"<h2>Cost</h2><p>No cost: {escape(str(reason))}</p>" if reason else ""
    parts = ["<h2>Dollars and joules</h2>"]
    if spent.get("pools"):
        cells = [
            (row["pool"], number(row["usd_per_hour"]), f"{row['usd_per_million_tokens']:.3g}",
             f"{max(0.0, round(row['idle_usd_per_million_tokens'], 9)):.3g}",
             "-" if row["watts"] is None else f"{row['watts'] / 1e3:,.4g} kW",
             "-" if row["joules_per_token"] is None else f"{row['joules_per_token']:.3g}")
            for row in spent["pools"]
        ]  # fmt: skip
        parts.append(grid(("pool", "USD/h", "USD/Mtok", "of it for waiting", "power", "J/token"), cells))
    uses = sorted(spent.get("energy", ()), key=lambda use: -use["joules_per_token"])[:9]
    if uses:
        kinds = ("c-weights", "c-kv", "c-act", "c-mem3", "c-mem1", "c-mem2", "c-overhead", "c-reserve", "c-link")
        bar = {
            f"{use['pool']}: {use['part']}": (
                float(use["joules_per_token"]), kind,
                f"{use['pool']}: {use['part']}\n{use['joules_per_token']:.3g} J/token ({use['status']})",
            )
            for use, kind in zip(uses, kinds, strict=False)
        }  # fmt: skip
        total = f"{float(spent['joules_per_token']):.3g} J" if spent.get("joules_per_token") is not None else ""
        parts.append("<h3>Energy of a token</h3>" + svg.stacked([("by use", total, bar)], "energy of a token by use"))
        parts.append(legend({name: kind for name, (_, kind, _) in bar.items()}))
    known = [text_of(why(name, name, page.explained)) for name in ("cost", "energy") if name in page.explained]
    said = f" As formulas: {', '.join(known)}." if known else ""
    parts.append(f'<p class="faint">{escape(str(spent.get("basis", "")))}.{said}</p>')
    return "".join(parts)


def sensitivity(page: Page) -> str:
    """What the ranges of inputs do to the step, and what one per cent of any input does to each total."""
    rows = [
        (str(row["input"]), float(row["effect_on_time"]), percent(row["effect_on_time"]), "c-up")
        for row in page.answer.get("estimated_inputs", ())[:10]
    ]
    parts = []
    if rows:
        longest = max(value for _, value, _, _ in rows)
        bars = [(name, said, {"effect": (value, kind, f"{name}\n{said}")}) for name, value, said, kind in rows]
        picture = svg.stacked(bars, "effect of the inputs' ranges on the step", longest)
        parts.append(f"<h3>Share of the step that an input's stated range moves</h3>{picture}")
    for each in page.explanations:
        pairs = movers(each) if each["of"] in ("step", "cost", "energy") else []
        if pairs:
            moved = [(name, value, f"{value:+.2f} %", "c-up" if value > 0 else "c-down") for name, value in pairs]
            picture = svg.tornado(moved, f"elasticities of {each['of']}")
            name = text_of(why(str(each["of"]), str(each["of"]), page.explained))
            parts.append(f"<h3>{name}: per 1 % more of the input</h3>{picture}")
    inside = "".join(f"<div>{part}</div>" for part in parts)
    return f'<h2>Sensitivity</h2><div class="two">{inside}</div>' if parts else ""


def formulas(page: Page) -> str:
    """Totals as formulas."""
    ops = {str(row["op"]) for row in page.answer["ops"]}
    found = []
    for each in page.explanations:
        if each["of"] in ops:
            continue
        name = escape(str(each["of"]))
        value = escape(_said(float(each["value"]), str(each["unit"])))
        found.append(f'<details id="why-{name}"><summary>{name} <span>{value}</span></summary>{explanation(each)}</details>')
    note = "<p>Each formula with its printed numbers gives the printed result. Ops are explained in the table of ops.</p>"
    return f"<h2>Every number explained</h2>{note}{''.join(found)}" if found else ""


def _said(value: float, unit: str) -> str:
    """A result with the unit that reads best."""
    known = {"s": seconds, "B": size}
    return known[unit](value) if unit in known else f"{value:,.6g} {unit}"


def doubts(page: Page) -> str:
    """Warnings, assumptions, what no one has published, and inputs with their sources."""
    answer, parts = page.answer, ["<h2>Sources and doubts</h2>"]
    if answer.get("warnings"):
        parts.append(f'<h3 class="warn">Warnings</h3>{listed(answer["warnings"])}')
    if answer.get("assumptions"):
        parts.append(f"<h3>Assumptions</h3>{listed(answer['assumptions'])}")
    missing = {row["chip"]: row.get("unpublished") for row in answer.get("asked", {}).get("pools", ())}
    lines = [f"{chip}: {', '.join(str(what) for what in parts_)}" for chip, parts_ in missing.items() if parts_]
    if lines:
        parts.append(f"<h3>Not published by anyone</h3>{listed(lines)}")
    known = answer.get("estimated_inputs", ())
    rows = [(row["input"], row["status"], percent(row["effect_on_time"]), row["source"]) for row in known]
    if rows:
        parts.append("<h3>Inputs with a range, by what it does to the step</h3>")
        parts.append(grid(("input", "status", "effect", "source"), rows, 2, (3,)))
    return "".join(parts)


def inputs(page: Page) -> str:
    """What was asked."""
    asked = page.answer.get("asked")
    if not asked:
        return ""
    rows = [("model", asked.get("model", "")), ("key", asked.get("key", "")), ("version", page.answer["version"])]
    rows += [(f"dtype of {name}", value) for name, value in asked.get("dtypes", {}).items()]
    rows += [(f"pool {row['pool']}", f"{int(row['count']):,} × {row['chip']} {row.get('title', '')}"
              + (f", stack {row['stack']}" if row.get("stack") else "")) for row in asked.get("pools", ())]  # fmt: skip
    for row in asked.get("links", ()):
        wide = show(row["bandwidth_bytes_per_s"], "bytes_per_s", 4)
        rows.append((f"link {row['from']} to {row['to']}", f"{wide} per {row['per']} chip, {seconds(row['latency_s'])}"))
    rows += [(f"plan {number_ + 1}", _plain(step)) for number_, step in enumerate(asked.get("plan", ()))]
    rows += [(f"workload {name}", _plain(value)) for name, value in asked.get("workload", {}).items()]
    rows.append(("prices", asked.get("prices", "")))
    return "<h2>Inputs and versions</h2>" + grid(("input", "value"), [(name, str(value)) for name, value in rows], 2, (1,))


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_plain(inner)}" for key, inner in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


SECTIONS: dict[str, tuple[str, Callable[[Page], str]]] = {
    "verdict": ("Answer", verdict),
    "memory": ("Memory", memory),
    "pools": ("Pools", pools),
    "layers": ("Bottlenecks", bottlenecks),
    "roofline": ("Roofline", roofline),
    "timeline": ("Timeline", timeline),
    "pareto": ("Pareto", pareto),
    "cost": ("Cost", cost),
    "sensitivity": ("Sensitivity", sensitivity),
    "why": ("Explained", formulas),
    "doubts": ("Sources", doubts),
    "inputs": ("Inputs", inputs),
}
"""Key, name in the navigation, and what makes it."""
