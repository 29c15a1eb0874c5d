"""What rules a plan out before it is placed: chips, money, and weights or caches that its split leaves too large."""

from __future__ import annotations

from typing import Any

from hwmodel.goal import Goal
from hwmodel.hardware import Pool
from hwmodel.optimize.held import Held, room
from hwmodel.optimize.space import Choice
from hwmodel.spec.units import show


def excluded(choice: Choice, goal: Goal, model: Held) -> str:
    """Why a plan need not be placed; empty when it may run."""
    cluster = choice.cluster
    if goal.max_chips and cluster.chips > goal.max_chips:
        return f"chips: {cluster.chips:,} are more than {goal.max_chips:,}"
    for kind, limit in (("purchase", goal.purchase_usd), ("rental", goal.hourly_usd_per_hour)):
        if limit is not None and (reason := _dear(choice, kind, float(limit))):
            return reason
    return next((reason for pool in cluster.pools if (reason := _full(choice, pool, model))), "")


def _full(choice: Choice, pool: Pool, model: Held) -> str:
    """Why a pool cannot hold its share, however well it is spread: no weight is divided by more than its own degrees."""
    moved, kept = _fields(choice, "disaggregate", ""), _fields(choice, "offload", "")
    home = choice.cluster.pools[0].name
    owner = {"rest": home, "ffn": moved["to"] if moved.get("move") == "ffn" else home, "experts": moved.get("to", home)}
    tensor = _fields(choice, "tensor", pool.name).get("degree", 1)
    stages = _fields(choice, "pipeline", pool.name).get("stages", 1)
    expert = _fields(choice, "expert", pool.name)
    split = expert["degree"] * expert.get("tensor", 1) if expert else tensor
    outside = float(kept.get("fraction", 0.0))
    inside = 1 - outside if kept and owner["experts"] == kept["pool"] else 1.0
    bytes_ = (model.rest * (owner["rest"] == pool.name) + model.ffn * (owner["ffn"] == pool.name)) / (tensor * stages)
    bytes_ += model.experts * inside * (owner["experts"] == pool.name) / (split * stages)
    if kept.get("to") == pool.name:
        bytes_ += model.experts * outside / (split if kept.get("mode") == "compute" else pool.count)
    if owner["rest"] == pool.name:
        bytes_ += model.cache / (tensor * stages * _fields(choice, "context", pool.name).get("degree", 1))
    if bytes_ <= room(pool):
        return ""
    return (
        f"memory: pool {pool.name} keeps at least {show(bytes_, 'bytes', 4)} of weights and one sequence's cache on each chip; "
        f"{pool.chip.name} has room for {show(room(pool), 'bytes', 4)}"
    )


def _fields(choice: Choice, kind: str, pool: str) -> dict[str, Any]:
    """What a plan says of a kind of strategy (for a pool, where it is one of a pool)."""
    found = (item[kind] for item in choice.strategies if kind in item)
    return next((fields for fields in found if not pool or fields["pool"] == pool), {})


def _dear(choice: Choice, kind: str, limit: float) -> str:
    total = 0.0
    for pool in choice.cluster.pools:
        price = pool.chip.price.purchase_usd if kind == "purchase" else pool.chip.price.rental_usd_per_hour
        if price is None:
            return f"budget: the {kind} price of {pool.chip.name} is not known"
        total += float(price) * pool.count
    unit = "USD" if kind == "purchase" else "USD/h"
    return f"budget: {total:,.0f} {unit} are more than {limit:,.0f} {unit}" if total > limit else ""
