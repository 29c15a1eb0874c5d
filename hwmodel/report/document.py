"""The frame of every page, one self-contained document that fetches nothing, and what is said of answers that break it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib import resources

from hwmodel import __version__
from hwmodel.spec.errors import InputError, Problem, shortened

Section = tuple[str, str, str]
"""Key, name in the navigation, and markup."""


def document(title: str, sub: str, sections: Sequence[Section], foot: str, *, script: bool = False) -> str:
    """The whole text; a content security policy lets only its own script run, or none, and nothing be fetched.

    title and names of sections are escaped here; sub, foot and the bodies of sections are markup.
    """
    style, code = _part("page.css"), _part("page.js") if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f" script-src 'sha256-{digest}';" if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:;{allowed} base-uri 'none'"
    links = "".join(f'<li><a href="#{key}">{escape(name)}</a></li>' for key, name, _ in sections)
    bodies = "\n".join(f'<section id="{key}" aria-label="{escape(name)}">{body}</section>' for key, name, body in sections)
    active = f'<div id="tip" hidden></div><div id="said" class="sr" aria-live="polite"></div>\n<script>{code}</script>\n'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="hwmodel {__version__}">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#{sections[0][0]}">to the answer</a>
<header><div><h1>{escape(title)}</h1><p class="sub">{sub}</p></div></header>
<nav aria-label="sections"><ul>{links}</ul></nav>
<main>
{bodies}
</main>
<footer><p>{foot}</p></footer>
{active if script else ""}</body>
</html>
"""


def _part(name: str) -> str:
    return resources.files("hwmodel.report").joinpath(name).read_text(encoding="utf-8")


BROKEN = (KeyError, IndexError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError)
"""What goes wrong when values of a saved answer are none."""


def broken(error: Exception, file: str, command: str = "run") -> InputError:
    """What to tell of an answer, saved by a command, whose values are none."""
    said = f"{type(error).__name__}: {shortened(str(error))}"
    return InputError(Problem(f"is no whole answer of 'hwmodel {command} --json' ({said})", file=file))
