"""One row per printed figure, and the library that rows are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from hwmodel.hardware import Chip, load_chip
from hwmodel.model.architecture import Model
from hwmodel.model.load import load_model

Value = float | int | str
RELATIVE_TOLERANCE = 1e-3
REPRODUCED, WITHIN, MISSED = "reproduced", "within its range", "not reproduced"
"""Verdicts: the figure itself; a figure between the ends that the ranges of the inputs give; neither."""


@dataclass(frozen=True)
class Claim:
    """One printed figure beside what this program computes for it."""

    number: int
    """Of the claim; its figures share it."""
    claim: str
    formula: str
    inputs: dict[str, Value]
    result: float
    unit: str
    expected: float
    """As printed."""
    agrees: bool
    note: str
    verdict: str
    """In words, the same as `agrees`."""


class Library:
    """Chips and models by name, loaded when first asked for; what is given stands in for the file of that name."""

    def __init__(self, chips: Iterable[Chip] = (), models: Iterable[Model] = ()) -> None:
        self._chips = {chip.name: chip for chip in chips}
        self._models = {model.name: model for model in models}

    def chip(self, name: str) -> Chip:
        """Find a chip by name."""
        if name not in self._chips:
            self._chips[name] = load_chip(name)
        return self._chips[name]

    def model(self, name: str) -> Model:
        """Find a model by name."""
        if name not in self._models:
            self._models[name] = load_model(name)
        return self._models[name]


Numbered = tuple[tuple[int, Callable[[Library], Iterator[Claim]]], ...]
"""Claims of one subject: the number of each, and what computes its rows."""


def row(
    claim: str,
    printed: str,
    result: float,
    formula: str,
    inputs: Mapping[str, Value],
    *,
    note: str = "",
    within: float = RELATIVE_TOLERANCE,
) -> Claim:
    """Make a row, its claim's number left to `hwmodel.claims.claims`.

    Parameters
    ----------
    printed
        Figure and unit with the digits the source gives: ``21.990 TB``, ``6.95 M tokens``.
    within
        Relative distance that still agrees, for a measured figure that is predicted; the note then says it.
    """
    figure, _, unit = printed.partition(" ")
    plain = {key: float(value) if isinstance(value, float) else value for key, value in inputs.items()}
    value = float(result)
    if within > RELATIVE_TOLERANCE:
        note = "; ".join(part for part in (note, f"agrees within {within:.0%}") if part)
    agrees = agree(value, figure, within)
    said = REPRODUCED if agrees else MISSED
    return Claim(0, claim, formula, plain, value, unit, float(figure), agrees, note, said)


def agree(result: float, printed: str, within: float = RELATIVE_TOLERANCE) -> bool:
    """Whether a result is within a relative distance of a printed figure, or half a unit of its last digit if that is more."""
    exponent = Decimal(printed).as_tuple().exponent
    half_unit = 0.5 * 10.0 ** int(exponent)
    return abs(result - float(printed)) <= max(within * abs(float(printed)), half_unit) * (1 + 1e-9)
