"""What every answer offers a Python session: columns of its tables, and a short form for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from hwmodel.spec.errors import InputError, did_you_mean

ROWS = 12
"""Rows of a table that a notebook shows."""


class Answered:
    """An answer that `to_dict` gives as plain data, in SI units as the names of its keys say."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the command line prints it with ``--json``."""
        raise NotImplementedError

    def tables(self) -> list[str]:
        """Names of the parts that are tables, as `columns` takes them."""
        return [name for name, value in self.to_dict().items() if _is_table(value)]

    def columns(self, table: str = "") -> dict[str, list[Any]]:
        """A table by columns, each a list of one value per row; ready for a data frame.

        Parameters
        ----------
        table
            Such as ``ops``, ``memory`` or ``pools`` of a run; the first one when empty. `tables` names them.

        Raises
        ------
        InputError
            When the answer has no such table.
        """
        names = self.tables()
        chosen = table or (names[0] if names else "")
        if chosen not in names:
            raise InputError(f"the answer has no table '{chosen}'{did_you_mean(chosen, names)}")
        rows = self.to_dict()[chosen]
        keys = dict.fromkeys(key for row in rows for key in row)
        return {key: [row.get(key) for row in rows] for key in keys}

    def _repr_html_(self) -> str:
        """Single values, and the first rows of the first table; every text is escaped."""
        found, names = self.to_dict(), self.tables()
        columns = self.columns() if names else {}
        return html_table(_flat(found), names[0] if names else "", columns, len(found[names[0]]) if names else 0)


def html_table(single: Mapping[str, Any], title: str, columns: Mapping[str, list[Any]], count: int) -> str:
    """Single values and the first rows of a table of `count` rows; what is neither text nor number is left out."""
    values = {name: value for name, value in single.items() if isinstance(value, str | int | float) and value != ""}
    parts = ["<table>", *(f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in values.items())]
    parts.append("</table>")
    if title:
        shown = {key: own for key, own in columns.items() if not isinstance(own[0], dict | list)}
        head = "".join(f"<th>{escape(key)}</th>" for key in shown)
        rows = ["".join(f"<td>{_text(own[n])}</td>" for own in shown.values()) for n in range(min(count, ROWS))]
        more = f" ({ROWS} of {count} rows)" if count > ROWS else ""
        parts += [f"<p>{escape(title)}{more}</p><table><tr>{head}</tr>", *(f"<tr>{row}</tr>" for row in rows), "</table>"]
    return "".join(parts)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _flat(found: Mapping[str, Any]) -> dict[str, Any]:
    """Single values, and those of the parts that hold single values only."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        inner = value.items() if isinstance(value, Mapping) and name in ("step", "cost", "goodput") else ((None, value),)
        flat |= {f"{name}.{key}" if key else name: item for key, item in inner}
    return flat


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape("" if value is None else str(value))
