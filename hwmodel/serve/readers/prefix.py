"""Prefix blocks from what a provider says of its cache: how many tokens of a prompt an earlier call of the session had."""

from __future__ import annotations

from itertools import pairwise

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
    n = len(prompt)
    starts = column(n + 1, np.int64)
    total, alone = 0, True
    for part in parts(n, starts, prompt, session):
        starts[part.start + 1 : part.stop + 1] = total + np.cumsum(-(-prompt[part] // block_tokens))
        total = int(starts[part.stop])
        alone = alone and bool((np.diff(session[part.start : part.stop + 1]) >= 0).all())  # one session after the other
    blocks = column(total, np.int64)
    common = fresh = min(shared, _longest_root(prompt, session)) // block_tokens
    earlier: dict[int, list[int]] = {}
    for part in parts(n, starts, prompt, cached, session, chain, blocks, rows=FEW):
        begins = starts[part.start : part.stop + 1].tolist()
        rows = zip(session[part].tolist(), prompt[part].tolist(), cached[part].tolist(), pairwise(begins), strict=True)
        for i, (own, tokens, had, (begin, end)) in enumerate(rows, part.start):
            if alone and own not in earlier:
                earlier.clear()
            calls = earlier.setdefault(own, [])
            count, wanted, whole = 0, had // block_tokens, tokens // block_tokens
            if not calls:
                count = min(common, whole)
                blocks[begin : begin + count] = np.arange(count)
            elif wanted:
                which = np.array(calls[::-1])
                k = _source(which, wanted, prompt[which] // block_tokens, chain, int(chain[i]))
                count = min(wanted, int(prompt[k]) // block_tokens)
                blocks[begin : begin + count] = blocks[starts[k] : starts[k] + count]
            blocks[begin + count : end] = np.arange(fresh, fresh + end - begin - count)
            fresh += end - begin - count
            calls.append(i)
    return starts, blocks


def _longest_root(prompt: Ints, session: Ints) -> int:
    """Tokens of the longest prompt that begins a session."""
    seen, longest = column(2 + max((int(session[p].max()) for p in parts(len(session), session)), default=-1), np.bool_), 0
    for part in parts(len(session), session, prompt, seen):
        new, first = np.unique(session[part], return_index=True)
        own = first[~seen[new]]
        longest = max(longest, int(prompt[part][own].max(initial=0)))
        seen[new] = True
    return longest


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


def _source(calls: Ints, wanted: int, sizes: Ints, chain: Ints, own: int) -> int:
    """Which of the earlier calls of such sizes (whole blocks), last first, a prompt begins like."""
    if sizes.max() < wanted:
        return int(calls[sizes.argmax()])
    ends, mine = sizes == wanted, chain[calls] == own
    rank = np.where(sizes < wanted, -1, 2 * ends + mine)
    return int(calls[rank.argmax()])
