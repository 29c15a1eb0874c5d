"""Where the shared data is, and the switch that writes golden files anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden anew; say in the change list what moved")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The shared data: HWMODEL_SHARED, else ../shared; the test is skipped when there is none."""
    folder = Path(os.environ.get("HWMODEL_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip("shared data is absent (set HWMODEL_SHARED)")
    return folder
