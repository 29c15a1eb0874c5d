"""A saved answer asked again: where the same question still gives the same numbers, its page has all that a live one has."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from hwmodel.report.document import BROKEN, broken
from hwmodel.report.page import Data, Page, page_of
from hwmodel.run import run
from hwmodel.scenario import Scenario, load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError

COMPARED = ("feasible", "step", "memory", "pools", "links", "layers", "ops", "cost")
"""Parts of an answer that must be the same."""
SAME = 1e-9
"""Relative."""
NAME = re.compile(r"\w[\w.-]*")
"""A scenario by name; no path of a saved answer is opened."""
HEADLINES = ("step", "tpot", "ttft", "throughput", "cost", "energy")


def explained(page: Page) -> Page:
    """The page of a saved answer with formulas, schedule and fronts, or with a word on why it has none.

    Raises
    ------
    InputError
        When values of the answer are none.
    """
    name = str(page.answer["scenario"])
    try:
        commands, settings = _commands(page, name), tuple(_settings(page.answer.get("asked", {})))
        ideal = bool(page.answer.get("asked", {}).get("ideal"))
    except BROKEN as error:
        raise broken(error, page.file) from None
    scenarios = list(_scenarios(Path(page.file), name, settings))
    for scenario in scenarios:
        result = run(scenario, ideal=ideal)
        found = _plain(result.to_dict())
        if all(_same(found[key], page.answer.get(key)) for key in COMPARED):
            return replace(page_of(result), answer=page.answer, file=page.file)
    why = "gives other numbers now: another version, changed files, or --set" if scenarios else "is not found here"
    return replace(page, unexplained=f"The page has no formulas: asked again, scenario {name} {why}.", commands=commands)


def _scenarios(file: Path, name: str, settings: tuple[str, ...]) -> Iterator[Scenario]:
    """The scenario as its file says, and with what the answer says of its workload, plan and counts."""
    if not NAME.fullmatch(name):
        return
    paths = [name] if name in catalog.names("scenarios") else []
    paths += [str(path) for path in (Path(f"{name}.yaml"), file.parent / f"{name}.yaml") if path.is_file()]
    for path in dict.fromkeys(paths):
        for changes in ((), settings):
            try:
                scenario = load_scenario(path, changes)
            except InputError:
                continue
            yield scenario


def _settings(question: Data) -> Iterator[str]:
    """What `--set` can say of a question; prices, links and numbers of chips stay as the file has them."""
    for key in ("workload", "plan"):
        if key in question:
            yield f"{key}={json.dumps(question[key])}"
    for pool in question.get("pools", ()):
        yield f"cluster.pools.{pool['pool']}.count={pool['count']}"
        yield f"cluster.pools.{pool['pool']}.chip={pool['chip']}"


def _plain(found: Any) -> Any:
    return json.loads(json.dumps(found))


def _same(one: Any, other: Any) -> bool:
    """Whether two pieces of plain data are equal, numbers but for rounding."""
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=SAME, abs_tol=1e-18)
    return bool(one == other)


def _commands(page: Page, name: str) -> tuple[str, ...]:
    """How each headline number is explained by hand."""
    answer: Data = page.answer
    step, cost = answer["step"], answer.get("cost") or {}
    given = {"tpot": "tpot_s" in step, "ttft": "ttft_s" in step, "cost": bool(cost),
             "energy": cost.get("joules_per_token") is not None}  # fmt: skip
    return tuple(f"hwmodel explain {quote(name)} --op {each}" for each in HEADLINES if given.get(each, True))
