"""Alibaba Bailian traces: one JSON object a request, blocks of 16 tokens, turns of a chat linked to their parents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hwmodel.serve.readers.gather import Gathered
from hwmodel.serve.readers.lines import Faults, field, json_rows, real, whole
from hwmodel.serve.readers.mooncake import hashes
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import shortened

NAME = "bailian"
SAYS = "Alibaba Bailian: chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, turn, hash_ids of 16 tokens"
FORM = "jsonl"
NEEDS = (frozenset({"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length", "hash_ids"}),)
BLOCK_TOKENS = 16


def read(path: Path, columns: Sequence[str] = ()) -> Trace:
    """The trace of a file: open loop as recorded (no answer times are), a session is a chat with all its turns.

    Classes of service are the `type`s. See https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon .
    """
    faults, rows = Faults(path), Gathered()
    sessions: dict[int, int] = {}
    count = 0
    for line, row in json_rows(path, faults):
        with faults.at(line):
            prompt = whole(field(row, "input_length"), "input_length")
            chat, parent = _id(field(row, "chat_id"), "chat_id"), _id(field(row, "parent_chat_id"), "parent_chat_id")
            own = sessions.get(parent, count)
            rows.add(
                real(field(row, "timestamp"), "timestamp"), prompt, whole(field(row, "output_length"), "output_length"), own,
                hashes(field(row, "hash_ids"), prompt, BLOCK_TOKENS), shortened(str(row.get("type", "all")), 40),
            )  # fmt: skip
            count += own == count
            sessions[chat] = own
    return rows.made(path, faults, "Bailian", BLOCK_TOKENS)


def _id(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name}: expected a whole number, got {shortened(str(value), 40)}")
    return value
