"""A formula with its numbers, each with unit, source and status."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hwmodel.answered import Answered
from hwmodel.hardware import Chip
from hwmodel.spec.number import Number

UNITS = {
    "bytes": "B", "bytes_per_s": "B/s", "flops_per_s": "FLOP/s", "per_s": "1/s", "s": "s", "watts": "W", "usd": "USD",
    "usd_per_hour": "USD/h", "joules_per_byte": "J/B", "number": "", "hz": "Hz", "mm2": "mm2",
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One number of a formula."""

    symbol: str
    value: float
    unit: str
    source: str
    status: str
    """published, measured, estimated, assumed, derived (from the model, the plan and the workload), or given (the scenario)."""


@dataclass(frozen=True)
class Explanation(Answered):
    """One number of an answer: how it comes about, and what moves it most."""

    of: str
    formula: str
    """``symbol = expression`` of the terms' symbols, + - * / ** min max."""
    value: float
    unit: str
    terms: tuple[Term, ...]
    most_sensitive: tuple[tuple[str, float], ...]
    """(input, elasticity): the answer moves by that many per cent when the input moves by one."""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel explain --json`` prints it."""
        return {
            "of": self.of, "formula": self.formula, "value": self.value, "unit": self.unit,
            "terms": [asdict(term) for term in self.terms],
            "most_sensitive": [{"input": name, "elasticity": value} for name, value in self.most_sensitive],
            "note": self.note,
        }  # fmt: skip


def symbol_of(name: str) -> str:
    """A name as a symbol of a formula: ``layer3.topk>lpx`` as ``layer3_topk_to_lpx``."""
    return re.sub(r"\W+", "_", name.replace(">", " to ")).strip("_") or "x"


class Sheet:
    """Terms as a formula gathers them; equal symbols with unlike values get a number."""

    def __init__(self) -> None:
        self._terms: dict[str, Term] = {}

    def add(self, symbol: str, value: float, unit: str, source: str, status: str = "derived") -> str:
        """Write a term; returns the symbol it stands under."""
        if isinstance(value, Number) and value.status:
            status, source = value.status, value.source or source
        base, number = symbol_of(symbol), 1
        found = Term(base, float(value), unit, source, status)
        while self._terms.get(found.symbol, found) != found:
            number += 1
            found = Term(f"{base}_{number}", float(value), unit, source, status)
        self._terms[found.symbol] = found
        return found.symbol

    def chip(self, symbol: str, chip: Chip, path: str) -> str:
        """Write a number of a chip by its path, with its provenance."""
        number = dict(chip.numbers())[path]
        return self.add(
            symbol, float(number), UNITS[chip.dimension(path)], f"{chip.name}.{path}: {number.source}", number.status or "given"
        )

    def replace(self, other: Sheet) -> None:
        """Drop the terms for those of another sheet."""
        self._terms = other._terms

    def terms(self) -> tuple[Term, ...]:
        """All terms in the order they were written."""
        return tuple(self._terms.values())


def total(parts: Iterable[str]) -> str:
    """A sum; 0 when there is nothing to add."""
    return " + ".join(parts) or "0"


def shape_of(dims: Mapping[str, Any], symbols: Mapping[str, float]) -> str:
    """``m = 16, n = 2,560``."""
    return ", ".join(f"{name} = {dim.value(symbols):,.10g}" for name, dim in dims.items())
