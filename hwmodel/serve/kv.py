"""Room for the KV cache: how many tokens an instance holds, what a token weighs, and the tiers below."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hwmodel.kernels import serving_columns as c
from hwmodel.memory import memory
from hwmodel.model.counts import kv_law
from hwmodel.placing import place
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError


@dataclass(frozen=True)
class Tier:
    """Memory below the first tier that keeps units which left it, of one instance or a pool of all; bytes and seconds."""

    name: str
    capacity_bytes: float
    read_bytes_per_s: float
    latency_s: float
    write_bytes_per_s: float = math.inf
    duplex: bool = True
    """Reads and writes have a way each; else they wait for one another."""
    buffer_bytes: float = math.inf
    """What may wait to be written; a unit that finds it full is not kept."""
    pooled: bool = False
    """One for all instances, each with a way of its own."""
    endurance_bytes: float = math.inf
    """Bytes it can be written in its life."""
    usd_per_hour: float = 0.0


POLICIES = {"lru": c.LRU, "ttl": c.LRU, "arc": c.ARC, "return": c.RETURN}


@dataclass(frozen=True)
class Eviction:
    """Who leaves a full tier, the first one included; ARC rules those below it."""

    policy: str = "lru"
    ttl_s: float = 0.0
    """Of policy ttl: idle units are gone after it, from every tier; 0 for never."""


LEAST_RECENT = Eviction()


@dataclass(frozen=True)
class Room:
    """Of one instance."""

    tokens: int
    """That its chips hold beside weights and activations."""
    token_bytes: float
    """KV of one token, all layers and chips together."""


def room(scenario: Scenario, budget: int, context: int) -> Room:
    """Tokens of KV that one instance holds, and their bytes.

    Parameters
    ----------
    budget
        Tokens of a step: their activations take memory too.
    context
        Tokens of a typical sequence: windows and states make the bytes of a token depend on it.

    Raises
    ------
    InputError
        When not one token fits beside the weights.
    """
    asked = _with(scenario, {"phase": "decode", "context": context, "batch": 1})
    graph = place(asked)
    ranks = graph.degrees.get(f"{scenario.cluster.pools[0].name}.dp", 1)
    filling = _with(scenario, {"phase": "prefill", "new_tokens": max(1, min(budget, 1 << 15)), "cached": 0, "batch": ranks})
    active = {(row.pool, row.tier): row.activation_bytes for row in memory(place(filling), scenario.cluster, filling.workload)}
    many = 64 * ranks
    rows = memory(graph, scenario.cluster, asked.workload.model_copy(update={"batch": many}))
    found = []
    for row in rows:
        if row.kv_bytes > 0:
            free = row.capacity_bytes - row.reserve_bytes - row.weights_bytes - active.get((row.pool, row.tier), 0.0)
            found.append(free / (row.kv_bytes / (many * context)))
        elif row.free_bytes + row.activation_bytes < 0:
            raise InputError(f"pool {row.pool}: the weights do not fit {row.tier}")
    tokens = int(min(found, default=0.0))
    if tokens < 1:
        raise InputError(f"no token of KV cache fits beside the weights and the activations of {budget:,} tokens a step")
    law = kv_law(scenario.model, scenario.formats.kv)
    return Room(tokens, law.at(context) / context)


def _with(scenario: Scenario, update: dict[str, object]) -> Scenario:
    return replace(scenario, workload=scenario.workload.model_copy(update=update))
