"""What moves an answer: every input changed by one per cent, and the step priced again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwmodel.memory import memory
from hwmodel.prices import Economics
from hwmodel.run import Result, again, run
from hwmodel.spec.number import Number
from hwmodel.uncertainty import varied

STEP = 0.01
Values = Mapping[str, float]


def elasticities(result: Result, values: Callable[[Result], Values], most: int = 3) -> dict[str, tuple[tuple[str, float], ...]]:
    """For every value of a result, the `most` inputs that move it most with their elasticities d ln value / d ln input.

    Inputs are every number of the chips and links, the prices of the scenario, its batch and context. Each is changed up
    and down by 1 %; the batch by one sequence per data-parallel group and micro-batch, as shares are whole.
    """
    base = values(result)
    found: dict[str, list[tuple[str, float]]] = {name: [] for name in base}
    for name, low, high, ratio in _moved(result):
        before, after = values(low), values(high)
        for key in base:
            down, up = before.get(key, 0.0), after.get(key, 0.0)
            if down > 0 and up > 0 and down != up:
                found[key].append((name, math.log(up / down) / math.log(ratio)))
    return {key: tuple(sorted(rows, key=lambda row: -abs(row[1]))[:most]) for key, rows in found.items()}


def _moved(result: Result) -> Iterator[tuple[str, Result, Result, float]]:
    """(input, result with it lower, with it higher, ratio of the two values)."""
    scenario = result.placed.scenario
    ratio = (1 + STEP) / (1 - STEP)
    for name, _, low, high in varied(scenario.cluster, _counts, _ends):
        yield name, again(result, low, scenario.economics), again(result, high, scenario.economics), ratio
    prices = scenario.economics
    for field in Economics.model_fields:
        number = getattr(prices, field)
        if isinstance(number, Number) and number > 0:
            ends = [number.at(min(end, 1.0) if field == "utilisation" else end) for end in _ends(number)]
            down, up = (again(result, scenario.cluster, prices.model_copy(update={field: end})) for end in ends)
            yield f"economics.{field}", down, up, float(ends[1]) / float(ends[0])
    yield from _work(result)


def _counts(path: str, number: Number) -> bool:
    return number > 0 and not path.startswith(("area", "clock")) and not path.endswith(".usd_per_gb")


def _ends(number: Number) -> tuple[float, float]:
    return float(number) * (1 - STEP), float(number) * (1 + STEP)


def _work(result: Result) -> Iterator[tuple[str, Result, Result, float]]:
    """The workload's own numbers, upwards only."""
    scenario = result.placed.scenario
    work = scenario.workload
    groups = result.placed.graph.degrees.get(f"{scenario.cluster.pools[0].name}.dp", 1) * result.step.micro_batches
    for key, more in (("batch", groups), ("context", None), ("new_tokens", None)):
        old = getattr(work, key)
        if old:
            new = old + (more or max(1, round(old * STEP)))
            changed = replace(scenario, workload=work.model_copy(update={key: new}))
            yield f"workload.{key}", result, run(changed, ideal=result.placed.ideal), new / old


def needed_bytes(result: Result) -> dict[str, float]:
    """Bytes that every tier must hold, by ``memory:POOL:TIER``, the reserve included."""
    placed = result.placed
    rows = memory(placed.graph, placed.scenario.cluster, placed.scenario.workload, ideal=placed.ideal)
    return {
        f"memory:{row.pool}:{row.tier}": row.capacity_bytes - row.free_bytes
        for row in rows
        if row.weights_bytes + row.kv_bytes + row.activation_bytes > 0
    }
