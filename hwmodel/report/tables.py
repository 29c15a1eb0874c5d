"""Tables for the terminal. They return rich renderables; only the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hwmodel.spec.units import show

if TYPE_CHECKING:
    from hwmodel.fit import Fit
    from hwmodel.hardware import Chip
    from hwmodel.memory import MemoryRow
    from hwmodel.operation import Operation
    from hwmodel.result import Result


def seconds(value: float) -> str:
    """A time with the unit that reads best."""
    return show(value, "s", 4)


def gigabytes(value: float) -> str:
    """Bytes with the decimal unit that reads best."""
    return show(value, "bytes", 4) if value else "-"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1, *, fold: bool = False) -> Table:
    """A plain table; the first `left` columns are text, the others numbers.

    Where a table is too wide, its texts go on in the next line, the first column only under `fold`; nothing is cut off.
    """
    grid = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", title_style="bold")
    for number, column in enumerate(columns):
        whole = not fold if number == 0 else fold
        grid.add_column(column, justify="left" if number < left else "right", no_wrap=whole, overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, str | Text) else str(cell) for cell in row))
    return grid


def answer(result: Result, costliest: int = 5) -> RenderableType:
    """What a person wants to read first: whether it fits, how fast it is, what bounds it and what costs most."""
    return Group(
        _verdict(result), "", _memory(result.memory), "", _pools(result), "", _layers(result), "", _ops(result, costliest),
        "", *_footer(result),
    )  # fmt: skip


def _verdict(result: Result) -> RenderableType:
    step = result.step
    lines = [Text(result.scenario, style="bold")]
    if result.placed.scenario.title:
        lines.append(Text(result.placed.scenario.title))
    if result.feasible:
        lines.append(Text("fits", style="bold green"))
    else:
        lines.append(Text("does not run as planned (priced all the same):", style="bold red"))
        lines += [Text(f"  - {reason}", style="red") for reason in result.reasons]
    spread = "" if step.time_low_s == step.time_high_s else f"  ({seconds(step.time_low_s)} to {seconds(step.time_high_s)})"
    said = {"overhead": "overhead (launch, latency)"}
    rows = [("step time", seconds(step.time_s) + spread)]
    rows.append(("bound", said.get(step.bound, step.bound)))
    if step.tpot_s is not None:
        rows.append(("TPOT", seconds(step.tpot_s)))
    if step.ttft_s is not None:
        rows.append(("TTFT", seconds(step.ttft_s)))
    rows += [
        ("tokens/s", f"{step.tokens_per_s:,.1f}"),
        ("tokens/s/user", f"{step.tokens_per_s_per_user:,.2f}"),
        ("tokens/s/chip", f"{step.tokens_per_s_per_chip:,.2f}"),
    ]
    if step.micro_batches > 1:
        rows.append(("micro-batches", str(step.micro_batches)))
    if result.cost:
        joules = "" if result.cost.joules_per_token is None else f", {result.cost.joules_per_token:,.3g} J/token"
        made, taken = result.cost.usd_per_million_output_tokens, result.cost.usd_per_million_input_tokens
        money = f"{taken or 0:,.3g} USD/Mtok input" if made is None else f"{made:,.3g} USD/Mtok output"
        rows.append(("cost", f"{money}{joules}"))
    grid = Table(show_header=False, box=None, pad_edge=False)
    for row in rows:
        grid.add_row(*row)
    return Group(*lines, grid)


def _memory(rows: Sequence[MemoryRow]) -> Table:
    cells = [
        (
            row.pool, row.tier, gigabytes(row.capacity_bytes), gigabytes(row.weights_bytes), gigabytes(row.kv_bytes),
            gigabytes(row.activation_bytes), gigabytes(row.reserve_bytes),
            Text(gigabytes(row.free_bytes), style="red" if row.free_bytes < 0 else ""),
        )
        for row in rows
    ]  # fmt: skip
    return table("memory per chip", ("pool", "tier", "capacity", "weights", "KV", "activations", "reserve", "free"), cells, 2)


def _pools(result: Result) -> Table:
    rows = [
        (
            row.pool, f"{row.count} x {row.chip}", f"{row.busy_fraction:.0%}",
            *(
                f"{row.bound_s[key] / sum(row.bound_s.values()):.0%}"
                for key in ("compute", "memory", "link", "overhead", "idle")
            ),
            row.bound,
        )
        for row in result.pools
    ]  # fmt: skip
    found = table(
        "pools, share of the step by bound",
        ("pool", "chips", "busy", "compute", "memory", "link", "overhead", "idle", "bound"),
        rows,
        2,
    )
    for link in result.links:
        if link.source != link.target:
            found.add_row(f"{link.source} > {link.target}", gigabytes(link.bytes), f"{link.busy_fraction:.1%}")
    return found


def _layers(result: Result) -> Table:
    kinds: dict[tuple[str, str, float], int] = {}
    for row in result.layers:
        key = (row.kind, row.bound, row.time_s)
        kinds[key] = kinds.get(key, 0) + row.count
    rows = [(kind, count, seconds(time), bound) for (kind, bound, time), count in kinds.items()]
    return table("layers", ("kind", "count", "time each", "bound"), rows)


def _ops(result: Result, costliest: int) -> Table:
    rows = sorted(result.ops, key=lambda op: -op.time_s * op.count)[:costliest]
    total = sum(op.time_s * op.count for op in result.ops)
    cells = [
        (
            op.op, op.pool, f"{op.count:g}", seconds(op.time_s), f"{op.time_s * op.count / total:.1%}",
            show(op.flops, "flops_per_s", 3).replace("/s", ""), gigabytes(op.bytes), op.bound,
        )
        for op in rows
    ]  # fmt: skip
    return table(
        f"the {len(cells)} costliest ops",
        ("op", "pool", "times", "each", "of all op time", "work", "bytes", "bound"),
        cells,
        2,
    )


def _footer(result: Result) -> list[Text]:
    lines = []
    moving = [item for item in result.estimated_inputs if item["status"] != "published"][:3]
    if moving:
        text = ", ".join(f"{item['input']} ({item['status']}, {item['effect_on_time']:.1%})" for item in moving)
        lines.append(Text(f"inputs in doubt that move the step most: {text}", style="dim"))
    lines += [Text(f"note: {text}", style="dim") for text in result.assumptions]
    if result.cost is None:
        lines.append(Text(f"note: no cost: {result.cost_reason}", style="dim"))
    elif result.cost.basis:
        lines.append(Text(f"note: cost: {result.cost.basis}", style="dim"))
    return lines


def fit_answer(found: Fit, scenario: str) -> RenderableType:
    """The answer of ``hwmodel fit``."""
    grid = Table(show_header=False, box=None, pad_edge=False)
    grid.add_row(f"largest batch at {found.context:,} tokens a sequence", f"{found.max_batch:,}")
    most = ", all that the model was made for" if found.max_context == found.made_for > 0 else ""
    grid.add_row(f"longest context at batch {found.batch:,}", f"{found.max_context:,}{most}")
    grid.add_row("KV of one sequence, fullest chip", gigabytes(found.kv_bytes_per_sequence))
    law = f"{found.kv_bytes_per_token:,.10g} B per token + {found.kv_fixed_bytes:,.10g} B"
    grid.add_row("  as a law", f"{law}, in {found.kv_dtype} (from {found.kv_dtype_source})")
    lines = [Text(f"  - {reason}", style="red") for reason in found.reasons]
    if 0 < found.made_for < found.context:
        lines.append(
            Text(f"  - the model was made for {found.made_for:,} tokens; {found.context:,} are asked for", style="red")
        )
    return Group(
        Text(scenario, style="bold"),
        *lines,
        grid,
        "",
        _memory(found.memory),
        "",
        Text(f"limit: {found.limit}", style="dim"),
    )


def model_answer(found: dict[str, Any]) -> RenderableType:
    """The answer of ``hwmodel model``."""
    active = found["params_active"]
    kv = found["kv"]
    grid = Table(show_header=False, box=None, pad_edge=False)
    rows: list[tuple[str, str]] = [
        ("parameters", f"{found['params_total']:,}"),
        ("active per token", f"{active['all']:,.0f}"),
        ("  without input embedding", f"{active['excl_input_embedding']:,.0f}"),
        ("  without both embeddings", f"{active['excl_embeddings']:,.0f}"),
        ("weights", f"{gigabytes(found['weights_bytes'])} = {found['weights_bytes'] / 2**30:.2f} GiB"),
        (
            "KV cache",
            f"{kv['bytes_per_token']:,.0f} B per token + {kv['fixed_bytes_per_sequence']:,.0f} B per sequence, "
            f"in {kv['dtype']} (from {kv['dtype_source']})",
        ),
        ("  layout", str(kv["layout"])),
    ]
    if kv.get("bytes_at_context") is not None:
        rows.append((f"  {kv['batch']:,} x {kv['context']:,} tokens", gigabytes(kv["bytes_at_context"])))
        if kv["windows"]:
            rows.append(("  were windows kept in full", gigabytes(kv["bytes_at_context_full_length"])))
    rows.append(("attention : FFN", f"{found['attention_share']:.2%} : {found['ffn_share']:.2%} of the layers' parameters"))
    if found.get("mtp") and found["mtp"]["params"]:
        rows.append(("MTP modules, apart", f"{found['mtp']['params']:,} parameters, {gigabytes(found['mtp']['bytes'])}"))
    if found.get("vision") and found["vision"]["params"]:
        rows.append(("vision part, apart", f"{found['vision']['params']:,} parameters"))
    for row in rows:
        grid.add_row(*row)
    kinds: dict[tuple[str, str], int] = {}
    for run in found["layers"]:
        key = (str(run["attention"] or "-"), str(run["ffn"] or "-"))
        kinds[key] = kinds.get(key, 0) + run["count"]
    layers = table("layers", ("count", "attention", "FFN"), [(count, *key) for key, count in kinds.items()], 3)
    return Group(Text(found["name"], style="bold"), grid, "", layers)


def op_answer(found: Operation) -> RenderableType:
    """The answer of ``hwmodel op``."""
    shape = " ".join(f"{key}={value}" for key, value in found.shape.items() if value not in ("", 0))
    grid = Table(show_header=False, box=None, pad_edge=False)
    grid.add_row("time", f"{seconds(found.time_s)}  ({seconds(found.low_s)} to {seconds(found.high_s)})")
    grid.add_row("bound", found.bound)
    for name, value in found.terms.items():
        grid.add_row(f"  {name}", seconds(value))
    grid.add_row("work", show(found.flops, "flops_per_s", 4).replace("/s", ""))
    grid.add_row("bytes", gigabytes(found.bytes))
    grid.add_row("formula", found.formula)
    return Group(Text(f"{found.kind} {shape} {found.dtype} on {found.chip} ({found.stack})", style="bold"), grid)


def chips_answer(chips: Sequence[Chip]) -> RenderableType:
    """One line per chip."""
    rows = []
    for chip in chips:
        peaks = chip.peaks.by_dtype()
        best = max(peaks, key=lambda name: peaks[name])
        wide = next(name for name in ("bf16", "fp16", *peaks) if name in peaks)
        link = show(chip.links[0].bandwidth_bytes_per_s, "bytes_per_s", 3) if chip.links else "-"
        rows.append(
            (
                chip.name, chip.kind, f"{show(peaks[wide], 'flops_per_s', 3)} {wide}",
                f"{show(peaks[best], 'flops_per_s', 3)} {best}", gigabytes(chip.main.capacity_bytes),
                show(chip.main.bandwidth_bytes_per_s, "bytes_per_s", 3), chip.main.tier, link,
            )
        )  # fmt: skip
    return table(
        "",
        ("chip", "kind", "16 bit, dense", "fastest, dense", "memory", "bandwidth", "tier", "link per direction"),
        rows,
        2,
    )


def chip_answer(chip: Chip) -> RenderableType:
    """Every number of a chip with its range, status and source."""
    rows = []
    for path, number in chip.numbers():
        dimension = chip.dimension(path)
        span = f"{show(number.low, dimension, 4)} to {show(number.high, dimension, 4)}" if number.ranged else ""
        rows.append((path, show(number, dimension, 5), span, number.status, number.source))
    grid = table("", ("number", "value", "range", "status", "source"), rows, 5)
    lines: list[RenderableType] = [Text(f"{chip.name}: {chip.title}", style="bold"), grid]
    if chip.notes:
        lines.append(Text(chip.notes))
    if chip.unpublished:
        lines.append(Text(f"unpublished: {', '.join(chip.unpublished)}", style="dim"))
    return Group(*lines)
