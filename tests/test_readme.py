"""The commands of the README run, and print what it says they print."""

from __future__ import annotations

from pathlib import Path

import pytest
from printed import README, blocks, check


@pytest.mark.parametrize("number", range(len(blocks(README))))
def test_readme_output_is_real(number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(README, number, tmp_path, write=request.config.getoption("--write-golden"))


def test_readme_names_every_command() -> None:
    from hwmodel.cli import cli

    text = README.read_text()
    assert all(f"hwmodel {name}" in text for name in cli.commands)
