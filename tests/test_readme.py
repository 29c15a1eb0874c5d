"""The README's commands run, and print what the README says they print."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)
FILE = re.compile(r"```yaml\n# (?P<name>\S+\.yaml)\n(?P<text>.*?)```", re.DOTALL)


def blocks() -> list[re.Match[str]]:
    return list(BLOCK.finditer(README.read_text()))


def output_of(command: str, folder: Path) -> str:
    """What a command prints to standard output, in a folder that holds the README's own files."""
    files = list(FILE.finditer(README.read_text()))
    assert files
    for file in files:
        (folder / file["name"]).write_text(file["text"])
    line = command.replace("hwmodel ", f"{sys.executable} -m hwmodel ").replace("| python ", f"| {sys.executable} ")
    bash = shutil.which("bash") or "bash"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder), "NO_COLOR": "1"}
    done = subprocess.run([bash, "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return "\n".join(text.rstrip() for text in done.stdout.splitlines()) + "\n"


@pytest.mark.parametrize("number", range(len(blocks())))
def test_readme_output_is_real(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    block = blocks()[number]
    found = output_of(block["command"], tmp_path)
    if request.config.getoption("--write-golden"):
        text = README.read_text()
        README.write_text(text[: block.start("output")] + found + text[block.end("output") :])
        return
    assert found == block["output"]


def test_readme_names_every_command() -> None:
    from hwmodel.cli import cli

    text = README.read_text()
    assert all(f"hwmodel {name}" in text for name in cli.commands)
