"""How fast a design space is priced, and in how much memory.

Run alone: ``python tests/benchmarks/test_sweep.py [POINTS ...] [--long]`` prints points a second, CPU time a point and the peak
of memory for DeepSeek-V3 on Rubin and LPX (the shipped sweep) and for Llama-3.1-70B on H100, at 1e5, 1e6 and 1e7 points where
none are given, with --long at 1e8 too, and how far CPU times of a point are apart; as a test it prices a small part.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.yamlfile import Document
from hwmodel.sweep import drive
from hwmodel.sweep.chunks import CHUNK, pricer
from hwmodel.sweep.space import Space, space_from

LLAMA = {
    "scenario": "h100_llama_70b_decode",
    "axes": {
        "workload.batch": {"log": [1, 512]}, "workload.context": {"log": [512, 131072]},
        "cluster.pools.gpu.count": [4, 8, 16, 32],
        "cluster.pools.gpu.override.memory.hbm.bandwidth": {"linear": ["2 TB/s", "8 TB/s"]},
        "cluster.pools.gpu.override.links.nvlink.bandwidth": {"linear": ["200 GB/s", "900 GB/s"]},
        "cluster.pools.gpu.override.execution.launch": {"linear": ["1 us", "4 us"]},
    },
}  # fmt: skip
MUST = {"deepseek-v3, rubin and lpx": 500_000, "llama-3.1-70b, h100": 1_000_000}
"""Points a second on two cores that nothing else uses."""


@dataclass(frozen=True)
class Speed:
    """What a sweep took."""

    points: int
    per_s: float
    cpu_us: float
    peak_bytes: float


def spaces(points: int) -> dict[str, Space]:
    """The two design spaces with so many points."""
    shipped = yamlfile.load(catalog.find("sweeps", "sweep_rubin_lpx_deepseek_v3"))
    values: dict[str, Any] = dict(zip(MUST, (shipped.value, LLAMA), strict=True))
    random = {"random": {"points": points, "seed": 1}}
    return {name: space_from(Document(shipped.file, {**value, **random}, {}, ()), name) for name, value in values.items()}


def speed(space: Space, jobs: int) -> Speed:
    """Price a whole space; packing and compiling are not counted."""
    made = pricer(space)
    made.reduced(0)
    with patch.object(drive, "pricer", lambda *_: made):
        start = time.process_time()
        answer = drive.run_sweep(space, jobs=jobs)
        spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    return Speed(answer.evaluated, answer.points_per_s, 1e6 * spent / answer.evaluated, peak)


@pytest.mark.parametrize("name", MUST)
def test_points_per_second(name: str) -> None:
    found = speed(spaces(4 * CHUNK)[name], 2)
    print(f"\n{name}: {found.per_s:,.0f} points/s, {found.cpu_us:.2f} us of CPU a point, {found.peak_bytes / 1e9:.2f} GB")
    assert found.per_s > MUST[name] / (1 if os.environ.get("HWMODEL_STRICT_TIMING") else 20)
    assert found.peak_bytes < 2e9


def test_cost_of_a_point_does_not_depend_on_their_number() -> None:
    """Memory neither: chunks leave nothing but the front behind."""
    name = next(iter(MUST))
    few, many = (speed(spaces(points)[name], 1) for points in (2 * CHUNK, 8 * CHUNK))
    print(f"\n{few.cpu_us:.2f} us at {few.points:,} points, {many.cpu_us:.2f} us at {many.points:,}")
    assert many.cpu_us < few.cpu_us * (1.2 if os.environ.get("HWMODEL_STRICT_TIMING") else 2.0)
    assert many.peak_bytes - few.peak_bytes < 200e6


def told(counts: list[int]) -> None:
    """Print a line for every number of points, and how far the CPU time of a point is from alike."""
    found: dict[str, list[Speed]] = {name: [] for name in MUST}
    for count in counts:
        for name, space in spaces(count).items():
            tries = max(1, min(5, 500_000 // count))  # a few points are priced before the clock has seen much
            one = min((speed(space, len(os.sched_getaffinity(0))) for _ in range(tries)), key=lambda one: one.cpu_us)
            found[name].append(one)
            sys.stdout.write(
                f"{name}: {one.points:,} points, {one.per_s:,.0f} points/s (must {MUST[name]:,}), "
                f"{one.cpu_us:.2f} us of CPU a point, peak {one.peak_bytes / 1e9:.2f} GB\n"
            )
            sys.stdout.flush()
    for name, several in found.items():
        each = [one.cpu_us for one in several]
        sys.stdout.write(
            f"{name}: from {min(each):.2f} to {max(each):.2f} us of CPU a point, {max(each) / min(each) - 1:.0%}\n"
        )


if __name__ == "__main__":
    wanted = [int(float(text)) for text in sys.argv[1:] if text != "--long"] or [100_000, 1_000_000, 10_000_000]
    told([*wanted, *([100_000_000] if "--long" in sys.argv else [])])
