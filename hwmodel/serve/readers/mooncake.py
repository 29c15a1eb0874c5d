"""Mooncake traces: one JSON object a request, its prompt as hashes of blocks of 512 tokens, chained and shared by all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import CLASSES, Faults, field, json_rows, label, real, whole
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import shortened

NAME = "mooncake"
SAYS = "Mooncake: timestamp (ms), input_length, output_length, hash_ids of 512 tokens"
FORM = "jsonl"
NEEDS = (frozenset({"timestamp", "input_length", "output_length", "hash_ids"}),)
BLOCK_TOKENS = 512


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file; see https://github.com/kvcache-ai/Mooncake, FAST25-release."""
    faults, rows = Faults(path), Gathered()
    for line, row in json_rows(path, faults):
        with faults.at(line):
            prompt = whole(field(row, "input_length"), "input_length")
            rows.add(
                real(field(row, "timestamp"), "timestamp") / 1e3, prompt,
                whole(field(row, "output_length"), "output_length"),
                blocks=hashes(field(row, "hash_ids"), prompt, BLOCK_TOKENS), tier=label(row.get(name) for name in CLASSES),
            )  # fmt: skip
    return rows.made(path, faults, "Mooncake", BLOCK_TOKENS)


def hashes(ids: Any, prompt: int, block_tokens: int) -> list[int]:
    """The ids of a prompt's blocks, checked: whole numbers of 63 bits, at most one for every begun block."""
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ValueError(f"hash_ids: expected a list of whole numbers, got {shortened(str(ids), 40)}")
    if ids and not -(2**63) <= min(ids) <= max(ids) < 2**63:
        raise ValueError("hash_ids: expected numbers of at most 63 bits")
    most = -(-prompt // block_tokens)
    if len(ids) > most:
        raise ValueError(f"hash_ids: {len(ids)} blocks of {block_tokens} tokens for {prompt} tokens, expected at most {most}")
    return ids
