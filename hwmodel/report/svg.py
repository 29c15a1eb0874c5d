"""Small pictures as SVG text. Across in per cent of the width, so that they stretch with the page; down in pixels.

Every text and attribute is escaped here. Colours are classes of the page's style.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from hwmodel.spec.units import show


def tag(name: str, inside: str = "", **attributes: object) -> str:
    """One element; ``class_`` and ``data_tip`` become ``class`` and ``data-tip``; None is left out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    said = "".join(f' {key}="{escape(_number(value))}"' for key, value in given.items())
    return f"<{name}{said}>{inside}</{name}>"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def pct(value: float) -> str:
    """A position across."""
    return f"{value:.4g}%"


def rect(x: float, y: float, width: float, height: float, kind: str, tip: str = "", mark: bool = True) -> str:
    """A box; with a tip it can be pointed at."""
    return tag(
        "rect", x=pct(x), y=y, width=pct(max(width, 0.0)), height=height, class_=f"{kind} mark" if tip and mark else kind,
        data_tip=tip or None,
    )  # fmt: skip


def text(x: float, y: float, said: str, kind: str = "t", anchor: str | None = None) -> str:
    """A line of text."""
    return tag("text", escape(said), x=pct(x), y=y, class_=kind, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return tag("line", x1=pct(x1), y1=y1, x2=pct(x2), y2=y2, class_=kind)


def chart(inside: str, height: float, label: str, kind: str = "") -> str:
    """A picture with a label that is read aloud; its marks are walked with the arrow keys."""
    return tag("svg", inside, class_=f"chart {kind}".strip(), width="100%", height=height, role="group", aria_label=label,
               tabindex="0")  # fmt: skip


Bar = tuple[str, str, Mapping[str, tuple[float, str, str]]]
"""Name, text at the right, {part: (value, class, tip)}."""


def stacked(rows: Sequence[Bar], label: str, limit: float | None = None) -> str:
    """Horizontal bars, all on one scale; a mark at `limit`."""
    longest = max([limit or 0.0, *(sum(value for value, _, _ in parts.values()) for _, _, parts in rows)]) or 1.0
    drawn, y = [], 0
    for name, right, parts in rows:
        drawn += [text(0, y + 14, name, "t strong"), text(100, y + 14, right, "t", "end")]
        x = 0.0
        drawn.append(rect(0, y + 20, 100 * (limit or longest) / longest, 20, "c-empty"))
        for value, kind, tip in parts.values():
            drawn.append(rect(x, y + 20, 100 * value / longest, 20, kind, tip))
            x += 100 * value / longest
        if limit is not None and longest > limit * 1.0001:
            drawn.append(line(100 * limit / longest, y + 16, 100 * limit / longest, y + 44, "edge"))
        y += 58
    return chart("".join(drawn), y - 12, label)


def columns(rows: Sequence[tuple[str, float, Mapping[str, tuple[float, str]]]], label: str, top: str, height: int = 190) -> str:
    """One column per row: (tip, value to sort by, {part: (value, class)}); the page sorts and zooms them. `top`: the scale."""
    longest = max(sum(value for value, _ in parts.values()) for _, _, parts in rows) or 1.0
    width, drawn = 100 / len(rows), []
    for place, (tip, value, parts) in enumerate(rows):
        boxes, y = [], float(height)
        for share, kind in parts.values():
            tall = share / longest * (height - 4)
            y -= tall
            boxes.append(tag("rect", x="6%", y=y, width="88%", height=tall, class_=kind))
        hit = tag("rect", x="0", y=0, width="100%", height=height, class_="hit")
        drawn.append(tag("svg", "".join(boxes) + hit, x=pct(place * width), y=18, width=pct(width), height=height,
                         class_="mark col", data_tip=tip, data_value=f"{value:.9g}", data_place=place))  # fmt: skip
    marks = [text(0, 12, f"{top} at the top", "t faint"), text(0, height + 34, "layer 0", "t faint"),
             text(100, height + 34, f"layer {len(rows) - 1}", "t faint", "end")]  # fmt: skip
    return chart("".join([*drawn, *marks]), height + 40, label, "columns")


def lanes(
    names: Sequence[str],
    events: Iterable[tuple[int, float, float, str, str]],
    label: str,
    ticks: Sequence[tuple[float, str]],
) -> str:
    """Lanes against time: (lane, start, end in per cent, class, tip)."""
    drawn = [text(0, 44 * index + 13, name, "t strong lane") for index, name in enumerate(names)]
    drawn += [rect(0, 44 * index + 18, 100, 20, "c-empty") for index in range(len(names))]
    for lane, start, end, kind, tip in events:  # what is too thin to see is drawn a little wider, without an edge
        thin = end - start < 0.3
        drawn.append(rect(start, 44 * lane + 18, max(0.12, end - start), 20, kind if thin else f"{kind} gap", tip))
    bottom = 44 * len(names)
    for x, said in ticks:
        drawn.append(line(x, 18, x, bottom, "grid"))
        drawn.append(text(x, bottom + 14, said, "t faint", "start" if x < 2 else "end" if x > 98 else "middle"))
    return chart("".join(drawn), bottom + 20, label, "lanes")


def roofline(
    tiers: Mapping[str, float], peaks: Mapping[str, float], dots: Sequence[Mapping[str, object]], label: str,
    said: Mapping[str, str], height: int = 320,
) -> str:  # fmt: skip
    """FLOP per byte against FLOP/s, both logarithmic; `dots` have intensity, flops_per_s, share, class, tip; `said`: names."""
    xs = [_float(dot["intensity"]) for dot in dots] + [max(peaks.values()) / max(tiers.values())]
    ys = [_float(dot["flops_per_s"]) for dot in dots] + list(peaks.values())
    left, right = math.floor(math.log10(min(xs)) - 0.2), math.ceil(math.log10(max(xs)) + 0.4)
    low, high = math.floor(math.log10(min(ys)) - 0.2), math.log10(max(ys)) + 0.35

    def across(value: float) -> float:
        return 100 * (math.log10(value) - left) / (right - left)

    def down(value: float) -> float:
        return 8 + (height - 30) * (high - math.log10(value)) / (high - low)

    floor = down(10.0**low)
    drawn = []
    for power in range(left, right + 1):
        x = across(10.0**power)
        drawn.append(line(x, 8, x, floor, "grid"))
        anchor = "start" if power == left else "end" if power == right else "middle"
        drawn.append(text(x, floor + 15, f"{10.0**power:g}", "t faint", anchor))
    for power in range(math.ceil(low), math.floor(high) + 1):
        drawn.append(line(0, down(10.0**power), 100, down(10.0**power), "grid"))
        if power > low + 0.1:
            drawn.append(text(0, down(10.0**power) - 3, show(10.0**power, "flops_per_s", 3), "t faint"))
    names = []
    for index, (tier, rate) in enumerate(tiers.items()):
        start, end = max(10.0**left, 10.0**low / rate), min(max(peaks.values()) / rate, 10.0**right)
        if end <= start:
            continue
        drawn.append(line(across(start), down(start * rate), across(end), down(end * rate), "roof"))
        at = start * (end / start) ** (0.45 + 0.2 * (index % 2))  # the first left of its line, the next right
        side = -0.8 if index % 2 == 0 and across(at) > 30 else 0.8
        names.append(text(across(at) + side, down(at * rate) + 5 * side, said[tier], "t halo", "end" if side < 0 else "start"))
    for dtype, peak in peaks.items():
        drawn.append(line(across(peak / max(tiers.values())), down(peak), 100, down(peak), "roof"))
        drawn.append(text(99.5, down(peak) - 4, said[dtype], "t faint", "end"))
    for dot in dots:
        radius = 3.5 + 16 * math.sqrt(min(1.0, _float(dot["share"])))
        drawn.append(tag("circle", cx=pct(across(_float(dot["intensity"]))), cy=down(_float(dot["flops_per_s"])), r=radius,
                         class_=f"{dot['class']} dot mark", data_tip=dot["tip"]))  # fmt: skip
    return chart("".join([*drawn, *names]), height, label, "roofline")


def _float(value: object) -> float:
    return float(value)  # type: ignore[arg-type]


def tornado(rows: Sequence[tuple[str, float, str, str]], label: str) -> str:
    """Bars to either side of a middle: (name, value, text, class)."""
    longest = max((abs(value) for _, value, _, _ in rows), default=1.0) or 1.0
    drawn = [line(50, 0, 50, 40 * len(rows), "axis")]
    for index, (name, value, said, kind) in enumerate(rows):
        y, width = 40 * index, 46 * abs(value) / longest
        drawn.append(text(0, y + 13, name, "t"))
        drawn.append(text(100, y + 13, said, "t strong", "end"))
        drawn.append(rect(50 if value > 0 else 50 - width, y + 18, width, 14, kind, f"{name}: {said}"))
    return chart("".join(drawn), 40 * len(rows), label)
