"""Prefix blocks from what a provider says of its cache: how many tokens of a prompt an earlier call of the session had."""

from __future__ import annotations

import numpy as np

from hwmodel.serve.requests import Ints
from hwmodel.serve.scratch import column, parts

FEW = 1 << 10
"""Requests whose blocks are worked on at a time."""


def rebuilt(prompt: Ints, cached: Ints, session: Ints, chain: Ints, block_tokens: int, shared: int = 0) -> tuple[Ints, Ints]:
    """First block of every call, and the blocks: ids that make an unlimited cache hit just what was cached.

    A call begins with the first ``cached // block_tokens`` whole blocks of an earlier call of its session and goes on with
    new ones. Of the earlier calls that are long enough it takes one that ends there, else any; of these the last of its own
    chain, else the last. Where none is long enough (what it shares came from outside the session) it takes the longest.
    The last block of a prompt, partly filled, is its own.

    Parameters
    ----------
    prompt, cached
        (n,) tokens, calls of a session in the order of its time.
    session, chain
        (n,) numbers.
    shared
        Tokens that the first prompts of all sessions begin with.

    Returns
    -------
    (n + 1,) starts and the ids, dense from 0.
    """
    whole = prompt // block_tokens
    sizes = -(-prompt // block_tokens)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    blocks = np.empty(starts[-1], np.int64)
    roots = np.unique(session, return_index=True)[1]
    common = fresh = int(min(shared // block_tokens, whole[roots].max(initial=0)))
    earlier: dict[int, list[int]] = {}
    for i, (wanted, begin, end) in enumerate(zip((cached // block_tokens).tolist(), starts, starts[1:], strict=False)):
        calls = earlier.setdefault(int(session[i]), [])
        count = 0
        if not calls:
            count = int(min(common, whole[i]))
            blocks[begin : begin + count] = np.arange(count)
        elif wanted:
            k = _source(np.array(calls[::-1]), wanted, whole, chain, int(chain[i]))
            count = int(min(wanted, whole[k]))
            blocks[begin : begin + count] = blocks[starts[k] : starts[k] + count]
        blocks[begin + count : end] = np.arange(fresh, fresh + end - begin - count)
        fresh += int(end - begin - count)
        calls.append(i)
    return starts, blocks


def begun(prompt: Ints, block_tokens: int, shared: int) -> tuple[Ints, Ints]:
    """The same of calls that have nothing in common but the `shared` tokens that they begin with."""
    n = len(prompt)
    starts = column(n + 1, np.int64)
    total = longest = 0
    for part in parts(n, starts, prompt):
        starts[part.start + 1 : part.stop + 1] = total + np.cumsum(-(-prompt[part] // block_tokens))
        total, longest = int(starts[part.stop]), max(longest, int(prompt[part].max()))
    common = fresh = min(shared, longest) // block_tokens
    blocks = column(total, np.int64)
    for part in parts(n, starts, prompt, blocks, rows=FEW):
        begin, sizes = starts[part], np.diff(starts[part.start : part.stop + 1])
        place = np.arange(begin[0], starts[part.stop]) - np.repeat(begin, sizes)
        own = place >= np.repeat(np.minimum(common, prompt[part] // block_tokens), sizes)
        blocks[begin[0] : starts[part.stop]] = np.where(own, fresh + np.cumsum(own) - 1, place)
        fresh += int(own.sum())
    return starts, blocks


def _source(calls: Ints, wanted: int, whole: Ints, chain: Ints, own: int) -> int:
    """Which of the earlier calls, last first, a prompt begins like."""
    sizes = whole[calls]
    if sizes.max() < wanted:
        return int(calls[sizes.argmax()])
    ends, mine = sizes == wanted, chain[calls] == own
    rank = np.where(sizes < wanted, -1, 2 * ends + mine)
    return int(calls[rank.argmax()])
