"""Lists of lengths with arrival times: the common workload W1, ShareGPT reduced to lengths, requests of a measured run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwmodel.serve.readers import named
from hwmodel.serve.readers.lines import header
from hwmodel.serve.trace import Trace

NAME = "lengths"
SAYS = "lengths: arrived_at, num_prefill_tokens, num_decode_tokens; or arrival_time_s (arrival_s), input_tokens, output_tokens"
FORM = "csv"
_KINDS = (
    ("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    ("arrival_time_s", "input_tokens", "output_tokens"),
    ("arrival_s", "input_tokens", "output_tokens"),
)
NEEDS = tuple(frozenset(kind) for kind in _KINDS)


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file.

    A column that says how many tokens of a prompt repeat an earlier request says not which request, so it makes no blocks.
    """
    names = header(path)[1]
    kind = next((kind for kind in _KINDS if names >= frozenset(kind)), _KINDS[0])
    return named.read(path, kind, "lengths")
