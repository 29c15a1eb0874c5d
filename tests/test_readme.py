"""The commands of the README and of docs/ run, and print what the pages say they print; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from printed import PAGES, README, ROOT, blocks, check, output_of

SHOWN = [pytest.param(page, number, id=f"{page.stem}-{number}") for page in PAGES for number in range(len(blocks(page)))]


@pytest.mark.parametrize(("page", "number"), SHOWN)
def test_what_a_page_prints_is_real(page: Path, number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(page, number, tmp_path, write=request.config.getoption("--write-golden"))


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_picture_of_a_sweep_is_what_its_command_draws(tmp_path: Path) -> None:
    """Made again it looks the same; fonts of another version may move a few pixels."""
    from matplotlib.image import imread

    (command,) = (block["command"] for block in blocks(README) if "--out sweep_front.png" in block["command"])
    output_of(command, tmp_path)
    shown, drawn = imread(ROOT / "docs" / "pictures" / "sweep_front.png"), imread(tmp_path / "sweep_front.png")
    assert shown.shape == drawn.shape
    assert abs(shown - drawn).mean() < 0.01
    assert "](docs/pictures/sweep_front.png)" in README.read_text()


def test_readme_names_every_command() -> None:
    from hwmodel.cli import cli

    text = README.read_text()
    assert all(f"hwmodel {name}" in text for name in cli.commands)
