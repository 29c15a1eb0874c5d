"""Numbers that know where they came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from hwmodel.spec import units
from hwmodel.spec.errors import shortened

Status = Literal["published", "derived", "estimated", "measured"]
STATUSES: tuple[str, ...] = ("published", "derived", "estimated", "measured")
_FORM = {"value", "range", "source", "status", "note"}


class Number(float):
    """A float in SI units with its range, source and status.

    It takes part in arithmetic as a plain float; the provenance stays with the original.
    """

    __slots__ = ("high", "low", "source", "status")
    low: float
    high: float
    source: str
    status: str

    def __new__(
        cls,
        value: float,
        low: float | None = None,
        high: float | None = None,
        source: str = "",
        status: str = "",
    ) -> Number:
        """`low` and `high` default to `value`: no range known or needed."""
        self = super().__new__(cls, value)
        self.low = float(value if low is None else low)
        self.high = float(value if high is None else high)
        self.source = source
        self.status = status
        return self

    def __getnewargs__(self) -> tuple[float, float, float, str, str]:  # type: ignore[override]
        return (float(self), self.low, self.high, self.source, self.status)

    @property
    def ranged(self) -> bool:
        """Whether a range was stated."""
        return self.low < self.high

    def at(self, value: float) -> Number:
        """The same number with another value; range, source and status are those of the value where it states its own."""
        if isinstance(value, Number):
            return Number(value, value.low, value.high, value.source or self.source, value.status or self.status)
        return Number(value, source=self.source, status=self.status)


def cited(text: str, sources: Mapping[str, str]) -> str:
    """A source with its short names written out: ``PCIe 5 x16, data_sheet`` and {data_sheet: URL} give ``PCIe 5 x16, URL``."""
    if text in sources:
        return sources[text]
    return re.sub(r"\w+", lambda word: sources.get(word[0], word[0]) if "_" in word[0] else word[0], text)


class Unit:
    """Pydantic annotation: parse a quantity of one dimension into a `Number`."""

    def __init__(self, dimension: str) -> None:
        self.dimension = dimension

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda number: units.show(number, self.dimension, 6)
            ),
        )

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        plain: dict[str, Any] = {"type": "string", "examples": [units.example(self.dimension).split("'")[0]]}
        if self.dimension == "number":
            plain = {"type": ["number", "string"]}
        full = {
            "type": "object",
            "additionalProperties": False,
            "required": ["value"],
            "properties": {
                "value": plain,
                "range": {"type": "array", "items": plain, "minItems": 2, "maxItems": 2},
                "source": {"type": "string"},
                "status": {"enum": list(STATUSES)},
                "note": {"type": "string"},
            },
        }
        return {"anyOf": [plain, full], "description": f"a quantity in {self.dimension.replace('_', ' ')}"}

    def read(self, raw: object) -> Number:
        """Accept ``'3 us'`` or ``{value: 3 us, range: [2 us, 5 us], source: ..., status: ...}``."""
        if isinstance(raw, Number):
            return raw
        if not isinstance(raw, dict):
            return Number(units.parse(raw, self.dimension))
        unknown = sorted(str(key) for key in set(raw) - _FORM)
        if unknown:
            raise ValueError(f"unknown key '{shortened(unknown[0])}' in a quantity (known: {', '.join(sorted(_FORM))})")
        if "value" not in raw:
            raise ValueError(f"a quantity as a mapping needs 'value', such as '{units.example(self.dimension)}'")
        value = units.parse(raw["value"], self.dimension)
        low, high = self._range(raw.get("range"), value)
        status = raw.get("status") or ""
        if status and status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {shortened(repr(status))}")
        for key in ("source", "note"):
            if not isinstance(raw.get(key), str | None):
                raise ValueError(f"{key} must be text, got {shortened(repr(raw[key]))}")
        return Number(value, low, high, raw.get("source") or "", str(status))

    def _range(self, raw: object, value: float) -> tuple[float, float]:
        if raw is None:
            return value, value
        if not isinstance(raw, list | tuple) or len(raw) != 2:
            raise ValueError("range must be two quantities, [low, high]")
        low, high = (units.parse(bound, self.dimension) for bound in raw)
        if not low <= value <= high:
            shown = ", ".join(shortened(str(bound), 20) for bound in raw)
            order = "has its ends the wrong way round" if low > high else "does not hold the value"
            raise ValueError(f"range [{shown}] {order}")
        return low, high
