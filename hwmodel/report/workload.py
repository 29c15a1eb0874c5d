"""Tables of a trace: its figures, hit rates of caches, policies side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.report.tables import table

MOST_CLASSES = 12
"""Of a table in text: those with most requests."""


def overview_answer(found: dict[str, Any]) -> RenderableType:
    """The JSON of ``hwmodel trace`` as people read it."""
    s = found["statistics"]
    lines = [
        ("requests", f"{s['requests']:,} in {_time(s['span_s'])}" + (f", {s['rate_per_s']:.3g}/s" if s["rate_per_s"] else "")),
        ("prompt", f"mean {s['prompt_mean']:,.0f}, median {s['prompt_median']:,.0f}, most {s['prompt_max']:,} tokens"),
        ("output", f"mean {s['output_mean']:,.0f}, median {s['output_median']:,.0f}, most {s['output_max']:,} tokens"),
    ]  # fmt: skip
    if s["sessions"]:
        lines.append(("sessions", f"{s['sessions']:,}, {s['calls_per_session']:.1f} calls each"))
    lines.append(("cache without limit", f"hits {s['unlimited_hit']:.1%} of the input tokens"))
    parts: list[RenderableType] = [Text(found["trace"], style="bold"), table("", ("", ""), lines, 2)]
    if len(classes := found["classes"]) > 1:
        kinds = [(one["class"], f"{one['requests']:,}", f"{one['prompt_mean']:,.0f}", f"{one['prompt_p99']:,.0f}",
                  f"{one['output_mean']:,.0f}") for one in classes[:MOST_CLASSES]]  # fmt: skip
        parts.append(table("", ("class", "requests", "prompt, mean", "p99", "output, mean"), kinds, 1))
    if times := found["hit_over_timeout"]:
        rows = [(_time(limit), f"{hit:.1%}", f"{held:,.0f}")
                for limit, hit, held in zip(times["timeout_s"], times["hit"], times["held_tokens"], strict=True)]  # fmt: skip
        parts.append(table("", ("idle KV goes after", "hit rate", "tokens held, mean"), rows, 0))
    if sizes := found["hit_over_size"]:
        cells = [(f"{size:,.0f}", f"{hit:.1%}") for size, hit in zip(sizes["size_tokens"], sizes["hit"], strict=True)]
        parts.append(table("", ("cache of tokens (LRU)", "hit rate"), cells, 0))
    if returns := found["returns"]:
        parts += _returns(returns)
    return Group(*parts)


def _returns(found: dict[str, Any]) -> list[RenderableType]:
    head = f"Who comes back within {_time(found['horizon_s'])} ({found['returning']:.1%} of all calls do), on {found['on']}: "
    keeps = ", ".join(f"{name} {_time(limit)}" for name, limit in found["break_even_s"].items())
    rows = []
    for row in found["policies"]:
        rented, limited = row["rented"], row["limited"]
        rows.append((row["policy"], "" if row["auc"] is None else f"{row['auc']:.2f}", *_cells(limited), *_cells(rented)))
    return [
        Text(head + f"{found['memory_tokens']:,.0f} tokens of KV, or rented by the byte; KV pays for {keeps}"),
        table("", ("policy", "AUC", "hit rate", "TTFT saved", "USD", "rented: hit rate", "TTFT saved", "USD"), rows, 1),
    ]


def _cells(outcome: dict[str, float] | None) -> tuple[str, str, str]:
    if outcome is None:
        return "", "", ""
    return f"{outcome['hit']:.1%}", f"{outcome['ttft_saved_s']:.3f} s", f"{outcome['usd']:,.2f}"


def _time(value: float) -> str:
    for size, name in ((86_400, "days"), (3600, "h"), (60, "min")):
        if value >= size * (2 if name == "days" else 1):
            return f"{value / size:,.3g} {name}"
    return f"{value:,.3g} s"
