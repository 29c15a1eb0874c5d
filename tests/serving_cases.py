"""Requests and fleets that the serving tests share: made of a few numbers, none of them measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwmodel.serve.engine import Fleet, Group
from hwmodel.serve.requests import Requests
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.steps import Steps, by_tokens


def requests(arrival: Any, prompt: Any, output: Any, **given: Any) -> Requests:
    """Requests without prefixes, sessions or loops."""
    n = len(arrival)
    values: dict[str, Any] = {
        "starts": np.zeros(n + 1, np.int64), "blocks": np.zeros(0, np.int64), "block_tokens": 16,
        "session": np.full(n, -1), "after": np.full(n, -1), "gap_s": np.zeros(n), "tier": np.zeros(n, np.int64), **given,
    }  # fmt: skip
    lengths = [np.broadcast_to(np.asarray(value, np.int64), (n,)).copy() for value in (prompt, output)]
    return Requests(np.asarray(arrival, float), *lengths, **values)


def fleet(steps: Steps, kind: str = "vllm", *, instances: int = 1, pages: int = 1 << 20, page: int = 16, **given: Any) -> Fleet:
    """Equal instances of one scheduler."""
    whole = {key: given.pop(key) for key in ("routing", "prefix_cache") if key in given}
    group = {key: given.pop(key) for key in ("tiers", "token_bytes") if key in given}
    return Fleet((Group("gpu", instances, steps, Scheduler.kinds[kind](**given), pages, **group),), page, **whole)


def steady(seconds: float) -> Steps:
    """Every step takes as long."""
    return by_tokens(lambda tokens: np.full(len(tokens), seconds))


def proportional(seconds_per_token: float) -> Steps:
    """A step takes as long as it has tokens."""
    return by_tokens(lambda tokens: tokens * seconds_per_token)
