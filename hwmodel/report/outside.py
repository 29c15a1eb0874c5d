"""Experts outside the fast memory, as tables."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from hwmodel.optimize.outside import Outside
from hwmodel.report.markup import percent
from hwmodel.report.tables import seconds, table


def outside_answer(found: Outside, name: str) -> RenderableType:
    """The answer of ``hwmodel fit --experts``."""
    head = (
        f"{name}: {found.tokens:,.0f} tokens ask for {found.distinct:.4g} of the {found.experts} experts of a layer, "
        f"{found.tokens * found.topk / found.distinct:.3g} tokens for each; one has {found.expert_bytes / 1e6:,.1f} MB"
    )
    hits = [(f"{row.experts}", *map(percent, (row.lfu, row.lru, row.step))) for row in found.caches]
    columns = ("experts held", "most popular kept", "last used kept (LRU)", "at most, of one step's")
    parts: list[RenderableType] = [Text(head, style="bold"), "", table("hit rate of a cache of experts", columns, hits, 0)]
    asked = max(1, round(found.distinct))
    if found.places:
        rows = [
            (each.near, seconds(each.bring_s), seconds(each.compute_s),
             _tokens(each.crossing_tokens), f"{each.brought} of {asked}",
             seconds(each.one_by_one_s), seconds(each.side_by_side_s))
            for each in found.places
        ]  # fmt: skip
        names = ("held by", "bring one", "compute there", "bring from, tokens", "brought", "a layer, in turn", "side by side")
        parts += ["", table("where an expert of the mean tokens is the quicker to compute", names, rows, 1)]
    else:
        parts.append(Text("no other pool that a link joins to the first one could hold them", style="dim"))
    return Group(*parts)


def _tokens(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
