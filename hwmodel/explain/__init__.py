"""Every number of an answer as a formula with its numbers, their sources, and what moves it most."""

from __future__ import annotations

from hwmodel.elasticity import elasticities, needed_bytes
from hwmodel.explain.lanes import link_formula, link_name, pool_formula, pool_name
from hwmodel.explain.ops import op_formula
from hwmodel.explain.sheet import Explanation, Sheet, Term
from hwmodel.explain.totals import TOTALS, layer_formula, memory_formula
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError, did_you_mean, shortened

__all__ = ["Explanation", "Term", "explain", "explain_all", "names"]

ONE = "one execution on one chip"


def names(result: Result) -> list[str]:
    """Everything that can be explained: totals, memory, pools, links, layers, ops."""
    totals = [name for name, make in TOTALS.items() if make(result, Sheet()) is not None]
    segments = [segment.name for segment in result.placed.graph.segments if segment.count]
    lanes = [*map(pool_name, result.pools), *map(link_name, result.links)]
    return [*totals, *needed_bytes(result), *lanes, *segments, *(op.name for op in result.placed.table.ops)]


def explain(result: Result | Scenario | str, of: str = "step") -> Explanation:
    """Explain one number.

    Parameters
    ----------
    result
        Or a scenario, its name or path, which is run.
    of
        ``step``, ``ttft``, ``tpot``, ``throughput``, ``cost``, ``energy``, ``memory:POOL:TIER``, ``pool:POOL`` (how busy),
        ``link:POOL>POOL`` (how long its bytes take), a layer or an op by name (of equal ops of several layer kinds, the first
        that goes by the short name).

    Raises
    ------
    InputError
        For a name that the answer does not have, with the nearest one.
    """
    result = result if isinstance(result, Result) else run(result)
    known = names(result)
    name = next((each for each in known if each == of), None)
    name = name or next((each for each in known if each.partition(".")[2] == of), None)
    name = name or next((s.name for s in result.placed.graph.segments if s.kind == of), None)
    if name is None:
        totals = ", ".join(each for each in known if each in TOTALS or ":" in each)
        near = did_you_mean(of, known)
        every = "" if "did you mean" in near else f"; explained are {totals}, and every layer and op that 'hwmodel run' names"
        raise InputError(f"nothing of {result.scenario} is called '{shortened(of)}'{near or every}")
    return _one(result, name, elasticities(result, _values)[name])


def explain_all(result: Result, ops: bool = False) -> list[Explanation]:
    """Explain the totals and the memory, with all layers and ops if asked; one pass over the inputs serves them all."""
    moved = elasticities(result, _values)
    count = len(names(result)) if ops else len(TOTALS) + len(result.memory)
    whole = [name for name in names(result)[:count] if ops or name in TOTALS or name.startswith("memory:")]
    return [_one(result, name, moved[name]) for name in whole]


def _one(result: Result, name: str, moved: tuple[tuple[str, float], ...]) -> Explanation:
    sheet = Sheet()
    if name in TOTALS:
        made = TOTALS[name](result, sheet)
    elif name.startswith("memory:"):
        row = next(row for row in result.memory if name == f"memory:{row.pool}:{row.tier}")
        made = memory_formula(result, row, sheet)
    elif name.startswith("pool:"):
        made = pool_formula(result, next(row for row in result.pools if name == pool_name(row)), sheet)
    elif name.startswith("link:"):
        made = link_formula(result, next(row for row in result.links if name == link_name(row)), sheet)
    elif name in result.placed.table.index:
        position = result.placed.table.index[name]
        made = f"time = {op_formula(result, position, sheet)}", result.ops[position].time_s, "s", _rule(result, position)
    else:
        made = layer_formula(result, name, sheet)
    if made is None:  # `names` lists what can be made
        raise InputError(f"{result.scenario} has no {name}: {result.cost_reason}")
    formula, value, unit, note = made
    return Explanation(name, formula, value, unit, sheet.terms(), moved, note)


def _rule(result: Result, position: int) -> str:
    """What of an op's formula others count in another way."""
    op = result.placed.table.ops[position]
    if op.kind in ("transfer", "load", "collective"):
        return f"{ONE}; each message waits for one latency, one way: there is no second one for an answer or a drain"
    keys, values, read, kv = (op.consts.get(name, 0.0) for name in ("key_width", "value_width", "read_width", "kv_bytes"))
    if read and read < keys + values:
        both = f"{read * kv:,g} B per position and layer; a kernel that reads values apart moves {(keys + values) * kv:,g} B"
        return f"{ONE}; keys and values share a latent that is read once, {both}"
    return ONE


def _values(result: Result) -> dict[str, float]:
    """Every explainable number of a result."""
    step, spent = result.step, result.cost
    found = {"step": step.time_s, "throughput": step.tokens_per_s, **needed_bytes(result)}
    if step.ttft_s is not None:
        found["ttft"] = step.ttft_s
    if step.tpot_s is not None:
        found["tpot"] = step.tpot_s
    if spent is not None:
        found["cost"] = spent.usd_per_million_output_tokens or spent.usd_per_million_input_tokens or 0.0
        found["energy"] = spent.joules_per_token or 0.0
    found |= {pool_name(pool): pool.busy_fraction for pool in result.pools}
    found |= {link_name(link): link.time_s for link in result.links}
    for row in result.ops:
        found[row.op] = row.time_s
        segment = result.placed.graph.op(row.op).segment
        found[segment] = found.get(segment, 0.0) + row.time_s * row.count
    return found
