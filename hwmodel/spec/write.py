"""Plain data to YAML text that people read: long numbers as blocks of lines, short lists on one line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from hwmodel.spec import catalog


class _Dumper(yaml.SafeDumper):
    """Block style, texts of several lines as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never: a file with aliases could not be read back."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    plain = all(isinstance(item, int | float | str) for item in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=plain)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def to_yaml(value: Any, header: str = "") -> str:
    """The text of a file; `header` becomes comment lines at its top."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return comment + yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=128, allow_unicode=True)


_ENDS = re.compile(r"[\s#]")


def modeline(kind: str, file: Path) -> str:
    """The line by which editors find the schema of a file at this path: where the shipped one lies from its folder.

    A file URL where no relative path leads there, or one that an editor would cut off at a blank.
    """
    schema = catalog.shipped("schemas") / f"{kind}.json"
    try:
        found = Path(os.path.relpath(schema, file.absolute().parent)).as_posix()
    except ValueError:  # on another drive
        found = schema.as_uri()
    return f"yaml-language-server: $schema={schema.as_uri() if _ENDS.search(found) else found}"
