"""How long the calibration of one chip under one stack takes over the whole tables: a minute at most."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

SLACK = 1.0 if os.environ.get("HWMODEL_STRICT_TIMING") else 4.0


@pytest.mark.shared
def test_one_chip_under_one_stack(shared: Path, tmp_path: Path) -> None:
    """Processor time of the command, on the pair of which the tables hold most."""
    if not (shared / "measured" / "moe.csv").is_file():
        pytest.skip(f"the whole tables are absent: {shared / 'measured'} (set HWMODEL_SHARED)")
    out = tmp_path / "h100_sxm.vllm.yaml"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["calibrate", "h100_sxm", "--stack", "vllm", "--measured", str(shared / "measured"), "--out", str(out)]
    run = subprocess.run([sys.executable, "-m", "hwmodel", *command], check=False, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run.returncode == 0, run.stderr
    assert out.is_file()
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"\ncalibrate h100_sxm under vllm: {took:.1f} s of processor time (at most 60 s)")
    assert took < 60 * SLACK
