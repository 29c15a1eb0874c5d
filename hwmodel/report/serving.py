"""Tables of a simulation."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.report.tables import table

MOST_CLASSES = 12
"""Of a table in text."""
ROWS = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("ITL", "itl_s"), ("E2E", "e2e_s"), ("queue", "queue_s"))


def served(found: dict[str, Any]) -> RenderableType:
    """The JSON of a simulation as people read it."""
    count = found["requests"]
    head = f"{count['finished']:,} of {count['in']:,} requests finished, {count['rejected']:,} rejected"
    head += f", in {_s(found['makespan_s'])}; {found['trace']}"
    cells = [(name, *(_s(found[key][column]) for column in ("mean", "p50", "p90", "p99", "max")))
             for name, key in ROWS if found[key]]  # fmt: skip
    parts: list[RenderableType] = [
        Text(found["scenario"], style="bold"), Text(head),
        table("", ("latency", "mean", "p50", "p90", "p99", "max"), cells, 1), _totals(found), _pools(found),
    ]  # fmt: skip
    if len(classes := found["goodput"]["classes"]) > 1:
        parts.insert(-1, _classes(classes))
    if found["tiers"]:
        kept = [(t["tier"], _gb(t["capacity_bytes"]), _gb(t["peak_bytes"]), f"{t['hits']:,}", _gb(t["read_bytes"]),
                 _gb(t["written_bytes"]), _life(t)) for t in found["tiers"]]  # fmt: skip
        parts.append(table("", ("tier", "capacity", "peak", "units found", "read", "written", "lasts"), kept, 1))
    if "find" in found:
        parts += ["", *_searched(found["find"])]
    return Group(*parts)


def _classes(classes: list[dict[str, Any]]) -> RenderableType:
    """Goodput of each class under its own targets; of many those with most requests."""
    most = sorted(classes, key=lambda one: -one["requests"])[:MOST_CLASSES]
    cells = [
        (one["class"], f"{one['requests']:,}", f"{one['share']:.1%}", f"{one['requests_per_s']:.3g}/s",
         *(_s(one[key][part]) if one[key] else "" for key in ("ttft_s", "tpot_s") for part in ("mean", "p99")),
         _slo(one["slo"]))
        for one in classes if one in most
    ]  # fmt: skip
    head = ("class", "requests", "good", "goodput", "TTFT mean", "p99", "TPOT mean", "p99", "targets")
    left = len(classes) - len(cells)
    return table("", head, [*cells, *([(f"{left} more classes",) + ("",) * (len(head) - 1)] if left else [])], 1)


def _slo(slo: dict[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('_s').upper()} {_s(limit)}" for name, limit in slo.items()) or "no target"


def _searched(found: dict[str, Any]) -> list[RenderableType]:
    """What a search tried, and how sure its answer is."""
    apart = "prefill" in found
    rows = [
        ((f"{t['prefill']} + {t['decode']}" if apart else str(t["instances"])), f"{t['rate_scale']:.3g}",
         f"{t['goodput_share']:.1%}", f"{t['goodput_low']:.1%} to {t['goodput_high']:.1%}", f"{t['good_per_s']:.3g}/s")
        for t in found["tried"]
    ]  # fmt: skip
    head = ("prefill + decode" if apart else "instances", "rate", "good", "95 % interval", "goodput")
    size = f"{found['prefill']} prefill + {found['decode']} decode" if apart else f"{found['instances']}"
    said = "found" if found["met"] else "nothing found; nearest"
    best = f"{said}: {size} instances ({found['chips']} chips) at {found['rate_scale']:.3g} times the rate: "
    best += f"{found['goodput_share']:.1%} good ({found['goodput_low']:.1%} to {found['goodput_high']:.1%} over "
    best += f"{_times(found['seeds'], 'seed')}); {_doubt(found['doubt'])}"
    return [table("searched", head, rows, 0), Text(best)]


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _doubt(said: dict[str, Any]) -> str:
    """Good requests at the ends of the step's interval."""
    return f"{said['share_low']:.1%} to {said['share_high']:.1%} if steps are as slow or quick as their 80 % interval allows"


def _life(tier: dict[str, Any]) -> str:
    return "" if tier["life_years"] is None else f"{tier['life_years']:,.1f} years"


def _kept(found: dict[str, Any]) -> str:
    """The rule by which idle KV stays."""
    keep = found["keep"]
    if keep["policy"] == "ttl":
        return f"for {_s(keep['timeout_s'])}"
    if keep["policy"] == "return":
        return f"by predicted return ({keep['predictor']}" + (
            f"; AUC over all calls {keep['auc']:.2f})" if keep["auc"] else ")"
        )
    return {"lru": "least recently used goes first", "arc": "adaptive replacement (ARC)"}[keep["policy"]]


def _totals(found: dict[str, Any]) -> RenderableType:
    good, floor = found["goodput"], found["floor"]
    slo = _slo(good["slo"])
    lines = [
        ("goodput", f"{good['share']:.1%} of the requests, {good['requests_per_s']:.3g}/s ({slo})"),
        *((("", _doubt(good["doubt"])),) if "doubt" in good else ()),
        ("output", f"{found['output_tokens_per_s']:,.1f} tokens/s"),
        ("prefix hits", f"{found['prefix_hit_rate']:.1%} of the input tokens"),
        *([("idle KV", _kept(found))] if found["tiers"] or found["keep"]["policy"] != "lru" else []),
        ("preemptions", f"{found['preemptions']:,}"),
        ("iterations", f"{found['iterations']:,}"),
        ("physical floor", f"TTFT {_s(floor['ttft_s'])}, TPOT {_s(floor['tpot_s'])}: the mean prompt and one sequence alone"),
    ]  # fmt: skip
    if slow := found["ttft_slowest"]:
        parts = ", ".join(
            f"{name} {_s(slow[f'{name}_s'])}"
            for name in ("queue", "load", "prefill", "transfer", "preemption")
            if slow[f"{name}_s"]
        )
        lines.append(("slowest 1 %", f"TTFT {_s(slow['ttft_s'])}: {parts}"))
    if moved := found["transfer_s"]:
        lines.append(("KV transfer", f"{_s(moved['mean'])} on average, p99 {_s(moved['p99'])}: before the second token"))
    if session := found["sessions"]:
        told = f"{session['finished']:,} finished; on average {_s(session['time_s']['mean'])}"
        told += f", {session['usd']:.3g} USD" if session["usd"] else ""
        told += f", {_j(session['joules'])}" if session["joules"] else ""
        lines.append(("sessions", told + " each"))
    if spent := found["cost"]:
        told = f"{spent['usd_per_million_output_tokens']:.3g} USD per million output tokens"
        joules = spent["joules_per_output_token"]
        lines.append(("cost", told + (f", {joules:.3g} J per output token" if joules else "") + ", if these carry all of it"))
        lines += [("", "by stage: " + "; ".join(map(_stage, spent["stages"])))]
    lines += [
        ("" if i else "theory", _check(one)) for i, one in enumerate(c for c in found["checks"] if c["relation"] != "at least")
    ]
    steps = [
        f"{item['pool']}: tables within {item['worst']:.2%} of {item['points']} exact steps, {item['mean']:.2%} on average"
        for item in found["step_times"]
    ]
    return table("", ("", ""), [*lines, *(("step times", text) for text in steps)], 2)


def _stage(row: dict[str, Any]) -> str:
    """Prefill over input tokens, decode over output tokens, both over all."""
    usd, joules = row["usd_per_million"], row["joules_per_token"]
    told = f"{row['tokens']} tokens " + ("-" if usd is None else f"{usd:.3g} USD/Mtok")
    return told + ("" if joules is None else f", {joules:.3g} J")


def _check(one: dict[str, Any]) -> str:
    """A simulated number beside what theory says of it."""
    share = one["name"] == "prefix hits"
    simulated, theory = (f"{one[key]:.1%}" if share else f"{one[key]:.4g}" for key in ("simulated", "theory"))
    return f"{one['name']} {simulated}; {theory} {one['relation']}: {one['note']}"


def _j(value: float) -> str:
    size, unit = next((size, unit) for size, unit in ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J")) if value >= size or size == 1)
    return f"{value / size:.3g} {unit}"


def _pools(found: dict[str, Any]) -> RenderableType:
    cells = [
        (p["pool"], f"{p['instances']} x {p['chips'] // p['instances']} {p['chip']}", p["scheduler"],
         f"{p['busy_fraction']:.1%}", f"{p['kv_tokens']:,}", f"{p['kv_peak_share']:.1%}") for p in found["pools"]
    ]  # fmt: skip
    return table("", ("pool", "instances", "scheduler", "busy", "KV tokens", "KV peak"), cells, 3)


def _s(value: float) -> str:
    if value >= 1:
        return f"{value:,.2f} s"
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 or value == 0 else f"{value * 1e6:.1f} us"


def _gb(value: float) -> str:
    return f"{value / 1e9:,.1f} GB"
