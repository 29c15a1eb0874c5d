"""Commands that a page prints with their output: found, run, and written anew."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)
FILE = re.compile(r"```yaml\n# (?P<name>\S+\.yaml)\n(?P<text>.*?)```", re.DOTALL)
README, QUESTIONS = ROOT / "README.md", ROOT / "docs" / "questions.md"
PAGES = [README, *(page for page in sorted((ROOT / "docs").glob("*.md")) if page != QUESTIONS)]
"""All that shows commands with their output; the ten questions have a test of their own."""


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text()))


def output_of(command: str, folder: Path) -> str:
    """What a command prints to standard output, in a folder that holds the files that the pages show."""
    files = [file for page in PAGES for file in FILE.finditer(page.read_text())]
    assert files
    for file in files:
        (folder / file["name"]).write_text(file["text"])
    line = command.replace("hwmodel ", f"{sys.executable} -m hwmodel ", 1).replace("| python ", f"| {sys.executable} ")
    bash = shutil.which("bash") or "bash"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder), "NO_COLOR": "1"}
    done = subprocess.run([bash, "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in (0, 3), done.stderr
    return "\n".join(text.rstrip() for text in done.stdout.splitlines()) + "\n"


def check(page: Path, number: int, folder: Path, *, write: bool) -> None:
    """The block prints what it says; with `write` it is made to say so."""
    block = blocks(page)[number]
    found = output_of(block["command"], folder)
    if write:
        text = page.read_text()
        page.write_text(text[: block.start("output")] + found + text[block.end("output") :])
        return
    assert found == block["output"]
