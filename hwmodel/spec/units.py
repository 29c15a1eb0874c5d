"""Units as a datasheet prints them, to SI floats and back.

A number's unit is part of the value in YAML (``3.35 TB/s``) and part of the name in Python (``bandwidth_bytes_per_s``).
GB and GiB differ; one FMA counts two FLOP; link bandwidths are per direction.
"""

from __future__ import annotations

import math
import re

from hwmodel.spec.errors import did_you_mean, shortened

DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12, "f": 1e-15}


def _scaled(prefixes: dict[str, float], *units: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + unit: scale * factor for unit in units for prefix, scale in prefixes.items()}


_BYTES = _scaled(DECIMAL, "B") | _scaled(BINARY, "B")
_BITS = _scaled(DECIMAL, "b", "bit", factor=0.125) | _scaled(BINARY, "b", factor=0.125)
_PER_SECOND = ("/s", "ps")

UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {unit + per: scale for unit, scale in (_BYTES | _BITS).items() for per in _PER_SECOND},
    "flops_per_s": _scaled(DECIMAL, "FLOP/s", "FLOPS", "FLOPs/s", "OP/s", "OPS", "flop/s", "flops"),
    "per_s": _scaled(DECIMAL, "/s", "op/s"),
    "s": _scaled(SMALL, "s")
    | {
        "min": 60.0,
        **dict.fromkeys(("h", "hour", "hours"), 3600.0),
        **dict.fromkeys(("day", "days"), 86400.0),
        **dict.fromkeys(("year", "years"), 8760.0 * 3600.0),
    },
    "hz": _scaled(DECIMAL, "Hz"),
    "watts": _scaled({**DECIMAL, **SMALL}, "W"),
    "joules_per_byte": _scaled(SMALL, "J/B", "J/byte") | _scaled(SMALL, "J/bit", "J/b", factor=8.0),
    "joules_per_flop": _scaled(SMALL, "J/FLOP", "J/OP", "J/op", "J/flop"),
    "usd": _scaled(DECIMAL, "USD", "$"),
    "usd_per_hour": {"USD/h": 1.0, "USD/hour": 1.0, "$/h": 1.0, "$/hour": 1.0},
    "usd_per_kwh": {"USD/kWh": 1.0, "$/kWh": 1.0, "USD/MWh": 1e-3, "$/MWh": 1e-3},
    "usd_per_gb": {"USD/GB": 1.0, "$/GB": 1.0, "USD/GiB": 1e9 / 2.0**30, "$/GiB": 1e9 / 2.0**30},
    "usd_per_mtok": {"USD/Mtok": 1.0, "$/Mtok": 1.0},
    "mm2": {"mm2": 1.0, "mm^2": 1.0},
    "number": {"": 1.0, "%": 0.01},
}
"""Known spellings of each dimension with the factor to the SI unit named by the dimension."""

_SHOWN = {
    "bytes": "B",
    "bytes_per_s": "B/s",
    "flops_per_s": "FLOP/s",
    "per_s": "/s",
    "s": "s",
    "hz": "Hz",
    "watts": "W",
    "joules_per_byte": "J/B",
    "joules_per_flop": "J/FLOP",
    "usd": "USD",
    "usd_per_hour": "USD/h",
    "usd_per_kwh": "USD/kWh",
    "usd_per_gb": "USD/GB",
    "usd_per_mtok": "USD/Mtok",
    "mm2": "mm2",
    "number": "",
}
_EXAMPLE = {
    "bytes": "80 GB' or '80 GiB",
    "bytes_per_s": "3.35 TB/s",
    "flops_per_s": "989.4 TFLOP/s",
    "per_s": "3.9 T/s",
    "s": "3 us",
    "hz": "1.8 GHz",
    "watts": "700 W",
    "joules_per_byte": "4 pJ/bit",
    "joules_per_flop": "0.5 pJ/FLOP",
    "usd": "5000 USD",
    "usd_per_hour": "2.5 USD/h",
    "usd_per_kwh": "0.08 USD/kWh",
    "usd_per_gb": "15 USD/GB",
    "usd_per_mtok": "2.19 USD/Mtok",
    "mm2": "814 mm2",
    "number": "0.9' or '90 %",
}
_PLAIN = ("number", "usd", "usd_per_hour", "usd_per_kwh", "usd_per_gb", "usd_per_mtok", "mm2")
"""Dimensions shown without a prefix."""
SMALLEST, LARGEST = 1e-30, 1e30
"""No quantity of hardware is outside (in SI units); what is, is a slip, and would drown every other number."""
_QUANTITY = re.compile(r"\s*([-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(.*?)\s*", re.DOTALL)


def example(dimension: str) -> str:
    """A well-formed quantity of that dimension, for error messages."""
    return _EXAMPLE[dimension]


def parse(value: object, dimension: str) -> float:
    """SI value of a quantity such as ``'3.35 TB/s'``.

    Raises
    ------
    ValueError
        With a message that says what was expected, for a missing or foreign unit, a non-number, NaN, infinity, a
        negative or an absurd value.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected a quantity such as '{example(dimension)}', got {_shown(value)}")
    if isinstance(value, int | float):
        if dimension != "number":
            raise ValueError(f"{_shown(value)} needs a unit, such as '{example(dimension)}'")
        # an integer of hundreds of digits is no float
        return _checked(float(max(min(value, 10**300), -(10**300)) if isinstance(value, int) else value), value)
    match = _QUANTITY.fullmatch(value) if len(value) < 80 else None
    if match is None:
        raise ValueError(f"expected a quantity such as '{example(dimension)}', got {_shown(value)}")
    number, unit = match.groups()
    if unit not in UNITS[dimension]:
        raise ValueError(_unit_problem(value, unit, dimension))
    scale, plain = UNITS[dimension][unit], float(number.replace("_", ""))
    # dividing by 1e6 rather than multiplying by 1e-6 keeps '5 us' at 5e-06
    return _checked(plain / round(1 / scale) if scale < 1 and (1 / scale).is_integer() else plain * scale, value)


def show(value: float, dimension: str, digits: int = 4) -> str:
    """A quantity with the prefix that keeps it between 1 and 1000: ``3.35 TB/s``."""
    unit = _SHOWN[dimension]
    if dimension in _PLAIN or value == 0 or not math.isfinite(value):
        return f"{value:.{digits}g} {unit}".strip()
    prefixes = {**{k: v for k, v in SMALL.items() if k != "µ"}, **{k: v for k, v in DECIMAL.items() if k != "K"}}
    allowed = sorted((scale, prefix) for prefix, scale in prefixes.items() if prefix + unit in UNITS[dimension])
    scale, prefix = next((pair for pair in reversed(allowed) if abs(value) >= pair[0] * (1 - 0.5 * 10**-digits)), allowed[0])
    return f"{value / scale:.{digits}g} {prefix}{unit}"


def _checked(result: float, value: object) -> float:
    if math.isnan(result) or result == math.inf:
        raise ValueError(f"expected a finite number, got {_shown(value)}")
    if result < 0:
        raise ValueError(f"must not be negative, got {_shown(value)}")
    if result and not SMALLEST <= result <= LARGEST:
        raise ValueError(f"is absurdly {'large' if result > 1 else 'small'}: {_shown(value)}")
    return result


def _unit_problem(value: str, unit: str, dimension: str) -> str:
    if not unit:
        return f"{_shown(value)} needs a unit, such as '{example(dimension)}'"
    home = next((other for other, table in UNITS.items() if unit in table and other != "number"), None)
    if home is not None and dimension == "number":
        return f"{_shown(value)} has a unit; expected a plain number such as '{example(dimension)}'"
    if home is not None:
        return f"{_shown(value)} is in {_SHOWN[home]}; expected {_SHOWN[dimension]}, such as '{example(dimension)}'"
    wrong = f"'{shortened(unit, 20)}' is not a known unit"
    alike = [known for known in UNITS[dimension] if known.casefold() == unit.casefold()]
    hint = did_you_mean(unit, alike or UNITS[dimension]) if dimension != "number" else ""
    return wrong + (hint if "did you mean" in hint else f"; expected a quantity such as '{example(dimension)}'")


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of over 40 digits"
    return shortened(repr(value), 60)
