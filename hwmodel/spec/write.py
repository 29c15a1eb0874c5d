"""Plain data to YAML text that people read: long numbers as blocks of lines, short lists on one line."""

from __future__ import annotations

from typing import Any

import yaml


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
