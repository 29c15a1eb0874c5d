"""One self-contained page: no network, no dependency, everything from input files escaped."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from hwmodel import __version__
from hwmodel.report.document import BROKEN, broken, document
from hwmodel.report.page import Page
from hwmodel.report.sections import SECTIONS, title_of


def html(page: Page) -> str:
    """The page as text. A content security policy lets only its own script run and nothing be fetched.

    Raises
    ------
    InputError
        When values of a saved answer cannot be shown.
    """
    try:
        return _whole(page)
    except BROKEN as error:
        if page.file:
            raise broken(error, page.file) from None
        raise


def _whole(page: Page) -> str:
    made = [(key, name, body) for key, (name, make) in SECTIONS.items() if (body := make(page))]
    foot = f"""{_made_by(page.answer)}
Shapes under the pointer say their numbers; in a picture the arrow keys walk them and + and - zoom."""
    return document(title_of(page), _asked(page.answer), made, foot, script=True)


def write_html(page: Page, path: str | Path) -> None:
    """Write the page to a file."""
    Path(path).write_text(html(page), encoding="utf-8")


def _made_by(answer: Mapping[str, Any]) -> str:
    key = answer.get("asked", {}).get("key")
    inputs = f", inputs {key}" if key else ""
    return escape(f"hwmodel {answer['version']}, page by {__version__}, Python {platform.python_version()}{inputs}.")


def _asked(answer: Mapping[str, Any]) -> str:
    """Model, chips, phase, batch, context."""
    asked = answer.get("asked", {})
    work = asked.get("workload", {})
    pools = [f"{row['pool']}: {int(row['count']):,} × {row['chip']}" for row in answer["pools"]]
    said = [str(answer["scenario"]), *([str(asked["model"])] if "model" in asked else []), " + ".join(pools)]
    said.append(str(answer["step"]["phase"]))
    for key, name in (("batch", "batch"), ("context", "context"), ("new_tokens", "new tokens")):
        if key in work:
            said.append(f"{name} {int(work[key]):,}")
    if asked.get("ideal"):
        said.append("physical floor")
    return escape("  ·  ".join(said))
