"""The commands of the README and of docs/ run, and print what the pages say they print; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from printed import PAGES, README, ROOT, blocks, check

SHOWN = [pytest.param(page, number, id=f"{page.stem}-{number}") for page in PAGES for number in range(len(blocks(page)))]


@pytest.mark.parametrize(("page", "number"), SHOWN)
def test_what_a_page_prints_is_real(page: Path, number: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(page, number, tmp_path, write=request.config.getoption("--write-golden"))


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.stem)
def test_links_of_a_page_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_readme_names_every_command() -> None:
    from hwmodel.cli import cli

    text = README.read_text()
    assert all(f"hwmodel {name}" in text for name in cli.commands)
