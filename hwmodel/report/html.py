"""One self-contained page: no network, no dependency, everything from input files escaped."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from hwmodel import __version__
from hwmodel.report.page import BROKEN, Page, broken
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
    script, style = _part("page.js"), _part("page.css")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; base-uri 'none'"
    made = [(key, name, body) for key, (name, make) in SECTIONS.items() if (body := make(page))]
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in made)
    sections = "\n".join(f'<section id="{key}" aria-label="{escape(name)}">{body}</section>' for key, name, body in made)
    title = escape(title_of(page))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hwmodel {__version__}">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#verdict">to the answer</a>
<header><div><h1>{title}</h1><p class="sub">{_asked(page.answer)}</p></div></header>
<nav aria-label="sections"><ul>{links}</ul></nav>
<main>
{sections}
</main>
<footer><p>{_made_by(page.answer)}
Shapes under the pointer say their numbers; in a picture the arrow keys walk them and + and - zoom.</p></footer>
<div id="tip" hidden></div><div id="said" class="sr" aria-live="polite"></div>
<script>{script}</script>
</body>
</html>
"""


def write_html(page: Page, path: str | Path) -> None:
    """Write the page to a file."""
    Path(path).write_text(html(page), encoding="utf-8")


def _part(name: str) -> str:
    return resources.files("hwmodel.report").joinpath(name).read_text(encoding="utf-8")


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
