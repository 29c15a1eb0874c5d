"""What was asked, as plain data: enough to check an answer by, and to draw it again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hwmodel.scenario import Scenario


def asked(scenario: Scenario, ideal: bool = False) -> dict[str, Any]:
    """Model, formats, pools with the ceilings of their chips, links, plan, workload and prices; `key` is a hash of them."""
    formats, work = scenario.formats, scenario.workload
    found: dict[str, Any] = {
        "title": scenario.title,
        "model": scenario.model.name,
        "ideal": ideal,
        "dtypes": {
            "weights": formats.weights.name if formats.weights else "as stored",
            "activations": formats.activations.name,
            "kv": formats.kv.name,
            "attention": formats.attention.name if formats.attention else formats.activations.name,
        },
        "pools": [
            {
                "pool": pool.name, "chip": pool.chip.name, "title": pool.chip.title, "count": pool.count, "stack": pool.stack,
                "peaks_flops_per_s": {name: float(peak) for name, peak in pool.chip.peaks.by_dtype().items()},
                "bandwidth_bytes_per_s": {tier.tier: float(tier.bandwidth_bytes_per_s) for tier in pool.chip.memory},
                "unpublished": list(pool.chip.unpublished),
            }
            for pool in scenario.cluster.pools
        ],
        "links": [
            {"from": wire.from_, "to": wire.to, "bandwidth_bytes_per_s": float(wire.bandwidth_bytes_per_s),
             "latency_s": float(wire.latency_s), "per": wire.per or wire.to}
            for wire in scenario.cluster.wires
        ],
        "plan": [{type(step).kind: step.model_dump(mode="json", exclude_none=True)} for step in scenario.plan],
        "workload": work.model_dump(mode="json", exclude_defaults=True) | {"phase": work.phase},
        "prices": scenario.economics.said(),
    }  # fmt: skip
    chips = [pool.chip.model_dump(mode="json") for pool in scenario.cluster.pools]
    text = json.dumps([found, chips], sort_keys=True, default=str)
    return {**found, "key": hashlib.sha256(text.encode()).hexdigest()[:16]}
