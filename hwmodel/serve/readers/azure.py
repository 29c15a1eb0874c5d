"""Azure LLM inference traces of 2023 and 2024: wall clock, context and generated tokens; no prefixes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import CLASSES, Faults, csv_rows, label, whole
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import shortened

NAME = "azure"
SAYS = "Azure 2023 and 2024: TIMESTAMP (wall clock), ContextTokens, GeneratedTokens"
FORM = "csv"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
NEEDS = (frozenset(COLUMNS),)
DAY_S = 86_400
_CLOCK = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:(Z)|([+-])(\d\d):?(\d\d))?", re.ASCII)


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file; times count from the first request. See https://github.com/Azure/AzurePublicDataset ."""
    faults, rows = Faults(path), Gathered()
    first = 0
    for line, (stamp, prompt, output, *kind) in csv_rows(path, COLUMNS, faults, CLASSES):
        with faults.at(line):
            ns = clock_ns(stamp)
            first = first or ns  # integers: a float of this size would lose the digits behind the microsecond
            rows.add((ns - first) / 1e9, whole(prompt, "ContextTokens"), whole(output, "GeneratedTokens"), tier=label(kind))
    faults.stop(len(rows))
    midnight = math.fmod(first / 1e9 + rows.first_s, DAY_S)
    return rows.made(path, faults, "Azure", midnight_s=midnight, zero_s=min(rows.first_s, 0.0))


def clock_ns(text: str) -> int:
    """A date and time of ISO 8601, with up to 9 digits behind the second and an offset, in ns since the year 1 (UTC)."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a time such as 2023-11-16 18:15:46.6805900, got {shortened(repr(text), 40)}")
    year, month, day, hour, minute, second, digits, _, sign, east_h, east_min = found.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
        raise ValueError(f"expected a time of day, got {shortened(repr(text), 40)}")
    seconds = _day(int(year), int(month), int(day)) * DAY_S + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        seconds -= int(sign + "1") * (int(east_h) * 3600 + int(east_min) * 60)
    return seconds * 10**9 + int((digits or "0").ljust(9, "0"))


@lru_cache(maxsize=64)
def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal()
