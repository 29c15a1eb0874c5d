"""A trace without an engine: its figures, what caches of a size or a timeout would hit, what foreseeing returns is worth."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from hwmodel.economics import cost
from hwmodel.run import run
from hwmodel.serve.foresight import Foresight, foresight
from hwmodel.serve.keeping import Outcome, Prices, priced
from hwmodel.serve.kv import room
from hwmodel.serve.offline import Curve, coarser, hit_over_size, hit_over_timeout, statistics
from hwmodel.serve.profile import lengths
from hwmodel.serve.returns import HORIZON_S
from hwmodel.serve.simulate import Service
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError

TIMEOUTS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)
"""1 minute to 1 hour."""
CHUNK = 8192
"""New tokens of the prompt by which the price of a token is judged."""
BLOCKS = 4_000_000
"""Blocks of a trace beyond which curves over size take coarser ones."""


def over_timeout(trace: Trace) -> Curve | None:
    """Hit rate over eviction timeout; None where a trace says nothing of prefixes."""
    return hit_over_timeout(trace, TIMEOUTS_S) if len(trace.requests.blocks) else None


def over_size(trace: Trace) -> Curve | None:
    """Hit rate over the size of one cache, from a long prompt's to that of everything; None without prefixes."""
    requests = trace.requests
    if not len(requests.blocks):
        return None
    factor = int(2 ** max(0.0, np.ceil(np.log2(len(requests.blocks) / BLOCKS))))
    distinct = int(np.count_nonzero(np.bincount(requests.blocks))) * requests.block_tokens
    low = min(int(requests.prompt.max()), distinct)
    sizes = np.geomspace(low, max(distinct, low + 1), 9).tolist()
    return hit_over_size(coarser(requests, factor) if factor > 1 else requests, sizes)


def prices_of(service: Service, trace: Trace) -> tuple[Prices, float]:
    """What KV costs on one instance of a service, with its tiers; and the tokens that its first tier holds.

    A token of a prompt is priced in a chunk of 8,192 behind the mean prompt. A tier's rent is its `rental`; where none is
    stated, a twentieth of that of the first tier's bytes. A second that a user waits is worth an instance's second.

    Raises
    ------
    InputError
        When the chips have no price.
    """
    scenario = service.scenario
    context = max(1, int(trace.requests.prompt.mean()))
    work = {"phase": "prefill", "batch": 1, "new_tokens": CHUNK, "cached": context}
    token_s = run(replace(scenario, workload=scenario.workload.model_copy(update=work))).step.time_s / CHUNK
    spent, why = cost(scenario.cluster, 1.0, scenario.economics)
    if spent is None:
        raise InputError(f"no price of {scenario.name}: {why}")
    held = room(scenario, CHUNK, context)
    free = held.tokens * held.token_bytes
    below = []
    for tier in service.serving.tiers:
        rent = 1 / 20
        if tier.rental_usd_per_hour is not None:
            rent = float(tier.rental_usd_per_hour) / float(tier.capacity_bytes) * free / spent.usd_per_hour
        below.append((tier.tier, rent, float(tier.bandwidth_bytes_per_s)))
    found = priced(token_s, spent.usd_per_hour, held.token_bytes, free, tuple(below), spent.usd_per_hour / 3600)
    return found, float(held.tokens)


def overview(trace: Trace, service: Service) -> dict[str, Any]:
    """Everything `hwmodel trace` says, as plain data; seconds and tokens."""
    found: dict[str, Any] = {"trace": trace.requests.source, "statistics": _plain(asdict(statistics(trace.requests)))}
    found["classes"] = [
        {"class": name, "requests": len(prompt), "prompt_mean": float(prompt.mean()),
         "prompt_p99": float(np.percentile(prompt, 99)), "output_mean": float(output.mean())}
        for name, (prompt, output) in lengths(trace.requests).items()
    ]  # fmt: skip
    for name, curve in (("hit_over_timeout", over_timeout(trace)), ("hit_over_size", over_size(trace))):
        found[name] = None if curve is None else {
            "timeout_s" if name == "hit_over_timeout" else "size_tokens": curve.limit.tolist(), "hit": curve.hit.tolist(),
            "held_tokens": curve.held_tokens.tolist(), "unlimited": curve.unlimited,
        }  # fmt: skip
    if (trace.chain >= 0).any():
        prices, tokens = prices_of(service, trace)
        side = foresight(trace, prices, tokens, 0, HORIZON_S)
        found["returns"] = {
            "on": service.scenario.name, "horizon_s": HORIZON_S, "returning": float(side.returns.came.mean()),
            "prefill_s_per_token": prices.prefill_s_per_token, "memory_tokens": tokens,
            "break_even_s": dict(zip((tier.name for tier in prices.tiers), side.break_even_s, strict=True)),
            "policies": _policies(side),
        }  # fmt: skip
    else:
        found["returns"] = None
    return found


def _policies(side: Foresight) -> list[dict[str, Any]]:
    return [
        _plain({"policy": row.name, "auc": row.auc, "rented": _outcome(row.rented), "limited": _outcome(row.limited)})
        for row in side.rows
    ]


def _outcome(outcome: Outcome | None) -> dict[str, float] | None:
    """Hit rate, s to the first token that hits save per call, and USD over the trace."""
    if outcome is None:
        return None
    return {"hit": outcome.hit, "ttft_saved_s": outcome.saved_s, "usd": outcome.usd, "recomputed_tokens": outcome.recomputed}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NaN as null."""
    return {key: None if isinstance(value, float) and not np.isfinite(value) else value for key, value in values.items()}
