"""How much fits: the largest batch at a context, the longest context at a batch, and what fills the memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hwmodel.answered import Answered
from hwmodel.memory import MemoryRow, memory, misfits
from hwmodel.placing import place
from hwmodel.scenario import Scenario, loaded
from hwmodel.workload import Workload

LARGEST = 1 << 40
FAR = 1 << 20
"""Tokens past every window and chunk."""


@dataclass(frozen=True)
class Fit(Answered):
    """What fits. 0 when not even one sequence (or one token of context) does."""

    max_batch: int
    """Sequences at the scenario's context."""
    max_context: int
    """Tokens per sequence at the scenario's batch; not more than the model was made for, when it states that."""
    memory: tuple[MemoryRow, ...]
    """At the scenario's own batch and context."""
    reasons: tuple[str, ...]
    """Why the scenario itself does not run, if it does not."""
    kv_bytes_per_sequence: float
    """Of the fullest chip, at the scenario's context."""
    limit: str
    """What stops a larger batch."""
    batch: int
    context: int
    """The scenario's own, at which the other one is searched."""
    kv_bytes_per_token: float
    kv_fixed_bytes: float
    """Of one sequence on the fullest chip: bytes = a x tokens + b, past every window."""
    kv_dtype: str
    kv_dtype_source: str
    made_for: int = 0
    """Tokens of context that the model was made for; 0 when it does not say."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel fit --json`` prints it."""
        found = asdict(self)
        found["memory"] = [{**asdict(row), "free_bytes": row.free_bytes} for row in self.memory]
        return found


def fit(scenario: Scenario | str) -> Fit:
    """Search the largest batch and the longest context that fit, by bisection: memory grows with both.

    Parameters
    ----------
    scenario
        Or its name or path.

    Raises
    ------
    InputError
        When the plan cannot be laid out at all. A plan that does not fit is answered, with its `reasons`.
    """
    return _searched(loaded(scenario))


def _searched(scenario: Scenario) -> Fit:
    work = scenario.workload
    placed = place(scenario)

    def rows(changed: Workload) -> list[MemoryRow]:
        return memory(placed, scenario.cluster, changed)

    def fits(**changes: int) -> bool:
        return not misfits(rows(work.model_copy(update=changes)), scenario.cluster)

    key = "new_tokens" if work.phase == "prefill" else "context"
    batch = largest(lambda n: fits(batch=n))
    limit = scenario.model.max_context or LARGEST
    context = largest(lambda n: fits(**{key: n}), limit)
    here = rows(work)
    over = misfits(rows(work.model_copy(update={"batch": batch + 1})), scenario.cluster)
    reasons = tuple(dict.fromkeys([*placed.reasons, *misfits(here, scenario.cluster)]))
    length = getattr(work, key)

    def one(tokens: int) -> float:
        return max(row.kv_bytes for row in rows(work.model_copy(update={"batch": 1, key: tokens})))

    far = max(length, FAR)
    slope = (one(2 * far) - one(far)) / far
    formats = scenario.formats
    return Fit(
        batch, context, tuple(here), reasons, one(length), over[0] if over else "nothing in sight", work.batch, length, slope,
        one(far) - slope * far, formats.kv.name, scenario.kv_from, scenario.model.max_context,
    )  # fmt: skip


def largest(holds: Callable[[int], bool], limit: int = LARGEST, near: int = 1) -> int:
    """The largest n up to `limit` for which a condition that can only become false holds; 0 if it does not hold at 1.

    near : a guess, from which the search spreads out
    """
    low, high, step = 0, min(limit, max(1, near)), 1
    if holds(high):
        while holds(high) and high < limit:
            low, high, step = high, min(limit, high + step), step * 2
        if holds(high):
            return high
    else:
        while high > 1 and not holds(low := max(1, high - step)):
            low, high, step = 0, low, step * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
