"""Kill -9 twenty times at random moments, resume each time: the file is that of a sweep nobody touched, byte for byte.

Run alone: ``python tests/benchmarks/test_sweep_kills.py [KILLS]`` prints what was killed where. Chunks are of 2,048 points, so
that many moments fall into the writing of one: a quarter of the kills strike anywhere from the start of the process, the others
within six chunks from the first that it wrote.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CHUNK, CHUNKS = 2048, 60
SWEEP = {
    "scenario": "h100_llama_70b_decode", "interval": 0,
    "axes": {
        "workload.batch": {"log": [1, 600]}, "workload.context": {"log": [100, 40000]},
        "plan": {"tp4": [{"tensor": {"degree": 4}}], "pp4": [{"pipeline": {"stages": 4}}]},
        "cluster.pools.gpu.override.memory.hbm.bandwidth": {"linear": ["2 TB/s", "8 TB/s"]},
    },
    "random": {"points": CHUNK * CHUNKS - 100, "seed": 3}, "where": ["tokens_per_s_per_user >= 15"],
}  # fmt: skip
SMALL_CHUNKS = f"from hwmodel.sweep import chunks; chunks.CHUNK = {CHUNK}; from hwmodel.cli import main; main()"


@dataclass
class Killed:
    """What became of a sweep that was killed again and again."""

    kills: list[str] = field(default_factory=list)
    """Where each struck: how many chunks were done."""
    same: bool = True
    rounds: int = 0
    """How often the whole file was finished."""


def start(sweep: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SMALL_CHUNKS, "sweep", str(sweep), "--out", str(out), "--jobs", "2", *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def done(out: Path) -> int:
    """Chunks that the manifest says are on disk."""
    manifest = out.with_name(f"{out.name}.manifest.json")
    return int(json.loads(manifest.read_text())["done"]) if manifest.exists() else 0


def kill(process: subprocess.Popen[bytes], out: Path, draw: random.Random, startup_s: float, chunk_s: float) -> bool:
    """Strike at a random moment; False when the sweep was through before."""
    before, begun = done(out), time.monotonic()
    if draw.random() < 0.25:
        delay = draw.uniform(0, 1.2 * startup_s)
    else:
        while process.poll() is None and done(out) == before and time.monotonic() < begun + 120:
            time.sleep(0.001)
        delay = draw.uniform(0, 6 * chunk_s)
    time.sleep(delay)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def killed(folder: Path, suffix: str, kills: int, seed: int) -> Killed:
    """Kill a sweep so many times, resuming it each time, and compare what it leaves when it is let through."""
    sweep, whole, cut = folder / "sweep.yaml", folder / f"whole{suffix}", folder / f"cut{suffix}"
    sweep.write_text(json.dumps(SWEEP))
    begun = time.monotonic()
    process = start(sweep, whole)
    while process.poll() is None and not done(whole):
        time.sleep(0.005)
    startup_s = time.monotonic() - begun
    assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
    chunk_s = (time.monotonic() - begun - startup_s) / CHUNKS
    draw, found, fresh = random.Random(seed), Killed(), True
    while len(found.kills) < kills or not found.rounds:
        process = start(sweep, cut, *([] if fresh else ["--resume"]))
        fresh = False
        if len(found.kills) < kills and kill(process, cut, draw, startup_s, chunk_s):
            found.kills.append(f"{done(cut)}")
            continue
        assert process.wait() == 0, process.stderr.read().decode() if process.stderr else ""
        found.same &= cut.read_bytes() == whole.read_bytes()
        found.rounds, fresh = found.rounds + 1, True
    left = {path.name for path in folder.iterdir()} - {sweep.name, whole.name, cut.name}
    assert left == {f"{whole.name}.manifest.json", f"{cut.name}.manifest.json"}
    return found


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_sweep_killed_twenty_times_leaves_the_same_file(suffix: str, tmp_path: Path) -> None:
    if suffix == ".parquet":
        pytest.importorskip("polars")
    found = killed(tmp_path, suffix, 20, seed=7)
    print(f"\n{suffix}: killed with {', '.join(found.kills)} of {CHUNKS} chunks done; finished {found.rounds} times")
    assert len(found.kills) == 20
    assert found.same


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for kind in (".csv", ".parquet"):
        with tempfile.TemporaryDirectory() as place:
            told = killed(Path(place), kind, wanted, seed=7)
        words = "identical" if told.same else "DIFFERENT"
        sys.stdout.write(f"{kind}: {len(told.kills)} kills at {', '.join(told.kills)} of {CHUNKS} chunks; {words}\n")
