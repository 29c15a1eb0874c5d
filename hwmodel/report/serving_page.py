"""A simulation as one self-contained page: no network, no script, everything escaped."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from hwmodel import __version__
from hwmodel.report.document import BROKEN, broken, document
from hwmodel.report.markup import Data, grid, listed, number, percent, seconds, size, tile

PICTURES = {"over_time.png": "Load over time", "percentiles.png": "Percentiles"}
"""Pictures that stand in the page, where they lie beside the answer."""
ROWS = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2E", "e2e_s"), ("queue", "queue_s"),
        ("KV transfer", "transfer_s"))  # fmt: skip
PARTS = ("queue", "load", "prefill", "transfer", "preemption")


def is_simulation(path: str | Path) -> bool:
    """Whether a file is an answer of ``hwmodel simulate --json``."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "goodput" in found and "requests" in found


def write_simulation(path: str | Path, out: str | Path) -> None:
    """The page of a saved simulation, with the pictures beside it.

    Raises
    ------
    InputError
        When values of the answer cannot be shown.
    """
    path = Path(path)
    pictures = {PICTURES[name]: path.with_name(name).read_bytes() for name in PICTURES if path.with_name(name).is_file()}
    try:
        page = simulation_html(json.loads(path.read_text(encoding="utf-8")), pictures)
    except BROKEN as error:
        raise broken(error, str(path), "simulate") from None
    Path(out).write_text(page, encoding="utf-8")


def simulation_html(found: Data, pictures: Mapping[str, bytes]) -> str:
    """The page as text; pictures (PNG) by their titles."""
    bodies = {name: make(found) for name, make in SECTIONS.items()}
    bodies["Pictures"] = "".join(_picture(name, data) for name, data in pictures.items())
    made = [(name.lower(), name, f"<h2>{HEADS.get(name, name)}</h2>{body}") for name, body in bodies.items() if body]
    foot = escape(f"hwmodel {found['version']}, page by {__version__}.")
    return document(str(found["scenario"]), escape(str(found["trace"])), made, foot)


def _picture(name: str, data: bytes) -> str:
    code = base64.b64encode(data).decode()
    return f'<h3>{escape(name)}</h3><img alt="{escape(name)}" style="max-width:100%" src="data:image/png;base64,{code}">'


def _apart(stages: Mapping[str, Data], key: str, first: str) -> str:
    """What input tokens cost by themselves, and output tokens; of answers that were saved with it."""
    parts = [f"{name} apart {float(stages[name][key]):.3g}" for name in ("input", "output") if stages.get(name, {}).get(key)]
    return "; ".join([first, *parts]) if parts else ""


def _answer(found: Data) -> str:
    """How many were served, how well, for how much."""
    count, good = found["requests"], found["goodput"]
    doubt = good.get("doubt")
    around = f"{percent(doubt['share_low'])} to {percent(doubt['share_high'])} by the doubt of steps" if doubt else ""
    tiles = [tile("good requests", percent(good["share"]), around), tile("goodput", f"{number(good['requests_per_s'])} /s")]
    tiles += [tile(f"{name}, mean", seconds(found[key]["mean"]), f"p99 {seconds(found[key]['p99'])}")
              for name, key in ROWS[:2] if found[key]]  # fmt: skip
    tiles.append(tile("output tokens/s", number(found["output_tokens_per_s"])))
    if spent := found["cost"]:
        stages = {str(row["tokens"]): row for row in spent.get("stages", ())}
        tiles.append(tile("USD per Mtok output", f"{float(spent['usd_per_million_output_tokens']):.3g}",
                          _apart(stages, "usd_per_million", "carrying all")))  # fmt: skip
        if spent["joules_per_output_token"]:
            tiles.append(tile("joules per output token", f"{float(spent['joules_per_output_token']):.3g}",
                              _apart(stages, "joules_per_token", "carrying all")))  # fmt: skip
    if session := found["sessions"]:
        each = f"{float(session['usd']):.3g} USD each" if session["usd"] else ""
        tiles.append(tile("sessions", number(session["finished"]), each))
    lead = f"{count['finished']:,} of {count['in']:,} requests finished, {count['rejected']:,} rejected, in "
    lead += f"{seconds(found['makespan_s'])}. Targets: {_targets(good['slo'])}."
    return f'<p class="lead">{escape(lead)}</p><div class="tiles">{"".join(tiles)}</div>'


def _targets(slo: Data) -> str:
    return ", ".join(f"{name.removesuffix('_s').upper()} {seconds(limit)}" for name, limit in slo.items()) or "none"


def _latency(found: Data) -> str:
    """Percentiles, and where the slowest first tokens' time went."""
    columns = ("mean", "p50", "p90", "p99", "max")
    rows = [(name, *(seconds(row[each]) for each in columns)) for name, key in ROWS if (row := found.get(key))]
    told = grid(("", *columns), rows)
    if slow := found["ttft_slowest"]:
        parts = [(name, seconds(slow[f"{name}_s"]), percent(slow[f"{name}_s"] / slow["ttft_s"])) for name in PARTS]
        told += "<h3>The slowest hundredth of first tokens</h3>"
        told += grid(("part", "mean", "share"), [*parts, ("TTFT", seconds(slow["ttft_s"]), percent(1.0))])
    return told


def _classes(found: Data) -> str:
    """Goodput of every class under its own targets."""
    classes: Sequence[Data] = found["goodput"].get("classes", ())
    if len(classes) < 2:
        return ""
    rows = [
        (one["class"], f"{one['requests']:,}", percent(one["share"]), f"{number(one['requests_per_s'])} /s",
         *(seconds(one[key][part]) if one[key] else "" for key in ("ttft_s", "tpot_s") for part in ("mean", "p99")),
         _targets(one["slo"])) for one in classes
    ]  # fmt: skip
    head = ("class", "requests", "good", "goodput", "TTFT mean", "p99", "TPOT mean", "p99", "targets")
    return grid(head, rows, 1, (8,))


def _pools(found: Data) -> str:
    rows = [
        (p["pool"], f"{p['instances']} × {p['chips'] // p['instances']} {p['chip']}", p["scheduler"],
         percent(p["busy_fraction"]), f"{p['kv_tokens']:,}", percent(p["kv_peak_share"]), f"{p['preemptions']:,}")
        for p in found["pools"]
    ]  # fmt: skip
    told = grid(("pool", "instances", "scheduler", "busy", "KV tokens", "KV peak", "preemptions"), rows, 3)
    if found["tiers"]:
        told += "<h3>Tiers of the KV cache</h3>" + grid(
            ("tier", "capacity", "peak", "units found", "read", "written", "lasts"),
            [(t["tier"], size(t["capacity_bytes"]), size(t["peak_bytes"]), f"{t['hits']:,}", size(t["read_bytes"]),
              size(t["written_bytes"]), f"{t['life_years']:,.1f} years" if t["life_years"] else "") for t in found["tiers"]],
        )  # fmt: skip
    if found["checks"]:
        checks = [(one["name"], f"{one['simulated']:.4g}", f"{one['relation']} {one['theory']:.4g}", one["note"])
                  for one in found["checks"]]  # fmt: skip
        told += "<h3>Beside theory</h3>" + grid(("", "simulated", "theory", "of"), checks, 1, (3,))
    return told + f"<p>Prefix hits: {percent(found['prefix_hit_rate'])} of the input tokens.</p>"


def _searched(found: Data) -> str:
    if "find" not in found:
        return ""
    rows = [
        (f"{t['prefill']} + {t['decode']}" if "prefill" in t else str(t["instances"]), f"{t['rate_scale']:.3g}",
         percent(t["goodput_share"]), f"{percent(t['goodput_low'])} to {percent(t['goodput_high'])}", number(t["good_per_s"]))
        for t in found["find"]["tried"]
    ]  # fmt: skip
    return grid(("instances", "rate", "good", "95 % interval", "good /s"), rows)


def _doubts(found: Data) -> str:
    """How near the step times are, and what to know."""
    rows = [(s["pool"], f"{s['points']:,}", percent(s["mean"]), percent(s["worst"])) for s in found["step_times"]]
    told = "<p>Step times are tables; against exact pricing of random steps:</p>" + grid(
        ("pool", "steps", "mean", "worst"), rows
    )
    return told + (listed(found["warnings"]) if found["warnings"] else "")


SECTIONS: dict[str, Callable[[Data], str]] = {
    "Answer": _answer, "Classes": _classes, "Latency": _latency, "Pools": _pools, "Searched": _searched, "Doubts": _doubts,
}  # fmt: skip
"""Name in the navigation, and what makes it."""
HEADS = {"Classes": "Classes of requests", "Doubts": "How near the step times are"}
"""Headings that say more than the navigation."""
