"""A served step: what surrounds the ops. A closed loop of clients on an engine that batches iteration by iteration.

N clients of one copy of a model, prompts of P and outputs of S tokens in the mean, B of the clients decoding at a time:

    step = decode(B, P + S/2) - fused x (quantising activations) + lag x (experts) + (gap - OVERLAP) x (kernels)
           + late x log2(TP) x (all-reduces) + rank x (exchanges) + sequence x B
    TPOT = step + B / S x (share x (1 - L) x prefill + prompt)          prefill: of one prompt, packed with others
    TTFT = start + stretch x (prefill of the own prompt alone) + (burst + L) x (N - 1) x prefill + steps x TPOT
           + wait for memory

L is the share of prefills that clients in lockstep wait for before their first token instead of after it: prompts that arrive
together run in k = N P / PACK_TOKENS iterations, and the mean prompt waits for (1 + 1/k) / 2 of them. B is N less the clients
that wait, at most what the memory holds, by iteration. Parameters: one set per stack, never per model; `gap` differs by kind of
chip, `sequence` and `stretch` by harness, and `lag` and L are zero from some release on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.served.engines import CATEGORIES, by_deployment, decode_point, engine, prefill_point, room
from hwmodel.served.rows import Served, multiplies_fp4
from hwmodel.served.stack import Stack

Array = NDArray[np.float64]
FRACTIONS = (0.25, 0.5, 1.0)
"""Of the clients: batches at which decode is priced, linear in between."""
PARTS = (*CATEGORIES, "launches", "quantised", "reductions", "exchanges")
PACK_TOKENS = 8192
"""Prompt tokens that one prefill iteration takes at most (max_num_tokens and the like)."""
LEAST_GEMM = 0.5
"""Share of the products' time that fused quantisation leaves at least."""
OVERLAP = 3e-6
"""Most that a kernel's neighbours hide of its measured time, s: the next is launched before the last has drained. A choice of
the project; what is hidden in the mean is this less the fitted gap."""
LEAST_STEP = 0.3
"""Share of the ops' time that overlap leaves at least."""


@dataclass(frozen=True)
class Loads:
    """Prices and loads of rows; arrays are (rows,) unless said."""

    clients: Array
    prompt: Array
    output: Array
    limit: Array
    """Sequences that memory holds."""
    decode: Mapping[str, Array]
    """Seconds by category of op at FRACTIONS of the admitted clients, (rows, 3); ``launches``, ``reductions`` and
    ``exchanges`` are counts, ``quantised`` is part of the products' seconds."""
    own: Mapping[str, Array]
    """The same of one prompt alone."""
    packed: Mapping[str, Array]
    """The same per prompt, prompts of one iteration together."""
    decoders: Array
    """Engines that decode."""
    fillers: Array
    """Engines that prefill."""
    apart: Array
    """1 where prefill has its own engines."""
    lab: Array
    """1 where another harness than InferenceX measured."""
    ranks: Array
    """Attention data parallel ranks: each schedules its own sequences."""
    chips: Array
    """Chips of a tensor parallel group."""
    fp4: Array
    """1 where the chip multiplies 4-bit floats."""
    behind: Array
    """Releases before that whose expert kernels the tables hold."""
    together: Array
    """1 where prompts that arrive together run before any decode."""

    def pick(self, chosen: NDArray[np.int64]) -> Loads:
        """Some of the rows."""
        found: dict[str, Any] = {
            key: {name: part[chosen] for name, part in value.items()} if isinstance(value, dict) else value[chosen]
            for key, value in vars(self).items()
        }
        return Loads(**found)


def loads(rows: Sequence[Served], calibrated: bool = True) -> Loads:
    """Price everything the served model asks of the engine, once per deployment."""
    limit = np.array([room(row.deployment, round(row.prompt + row.output / 2)) for row in rows])
    own, packed = _prefill(rows, calibrated)

    def column(value: Callable[[Served], float]) -> Array:
        return np.array([float(value(row)) for row in rows])

    return Loads(
        column(lambda r: r.clients), column(lambda r: r.prompt), column(lambda r: r.output), limit,
        _decode(rows, limit, calibrated), own, packed, column(lambda r: r.copies[0]), column(lambda r: r.copies[1]),
        column(lambda r: r.prefill is not None), column(lambda r: r.lab),
        column(lambda r: r.deployment.layout.dp), column(lambda r: r.deployment.layout.tp),
        column(lambda r: multiplies_fp4(r.deployment.chip)), column(lambda r: r.behind), column(lambda r: r.together),
    )  # fmt: skip


def _decode(rows: Sequence[Served], limit: Array, calibrated: bool) -> dict[str, Array]:
    found = {name: np.zeros((len(rows), len(FRACTIONS))) for name in PARTS}
    for what, where in by_deployment(rows).items():
        points = []
        for i in where:
            row, most = rows[i], min(rows[i].clients / rows[i].copies[0], max(limit[i], 1))
            points += [decode_point(share * most, row.prompt + row.output / 2) for share in FRACTIONS]
        for name, part in engine(what, "decode", calibrated).parts(points).items():
            found[name][where] = part.reshape(len(where), -1)
    return found


def _prefill(rows: Sequence[Served], calibrated: bool) -> tuple[dict[str, Array], dict[str, Array]]:
    own, packed = ({name: np.zeros(len(rows)) for name in PARTS} for _ in range(2))
    engines = [row.prefill or row.deployment for row in rows]
    for what in dict.fromkeys(engines):
        where = [i for i in range(len(rows)) if engines[i] == what]
        ranks = what.layout.dp
        many = [max(1, min(int(PACK_TOKENS // rows[i].prompt), round(rows[i].clients / ranks))) for i in where]
        points = [prefill_point(ranks, rows[i].prompt) for i in where]
        points += [prefill_point(ranks * k, rows[i].prompt) for i, k in zip(where, many, strict=True)]
        for name, part in engine(what, "prefill", calibrated).parts(points).items():
            own[name][where], packed[name][where] = part.reshape(2, len(where))
            packed[name][where] /= np.array(many) * ranks
    return own, packed


def total(parts: Mapping[str, Array], fused: float) -> Array:
    """Seconds of all ops; quantisation that products share with the op before them is taken off."""
    off = np.minimum(parts["quantised"] * fused, LEAST_GEMM * parts["gemm"])
    return np.asarray(sum(parts[name] for name in CATEGORIES) - off)


def decoding(load: Loads, stack: Stack) -> Array:
    """Seconds of a decode step at FRACTIONS of the admitted clients, without what it costs per sequence; (rows, 3)."""
    parts = load.decode
    ops = total(parts, stack.fused) + stack.lag * load.behind[:, None] * parts["experts"]
    gap = np.where(load.fp4 > 0, stack.gap_fp4_s, stack.gap_s)[:, None] - OVERLAP
    waits = stack.late_s * np.log2(load.chips)[:, None] * parts["reductions"] + stack.rank_s * parts["exchanges"]
    return np.asarray(np.maximum(ops + gap * parts["launches"], LEAST_STEP * ops) + waits)


def predict(load: Loads, stack: Stack) -> tuple[Array, Array]:
    """(TTFT, TPOT) in s of every row under one stack."""
    p = stack
    admitted = np.maximum(1.0, np.minimum(load.clients / load.decoders, load.limit))
    ops, own, packed = decoding(load, p), total(load.own, p.fused), total(load.packed, p.fused)
    rounds = np.maximum(1.0, admitted * load.prompt / PACK_TOKENS)
    early = p.lockstep * load.together * (1 + 1 / rounds) / 2
    fill = p.share * np.maximum(0.0, 1 - early) * packed + p.prompt_s / load.ranks
    sequence = np.where(load.lab > 0, p.sequence_lab_s, p.sequence_s) / load.ranks
    mixed = 1.0 - load.apart  # decode waits for prefill where one engine does both
    others = np.where(load.apart > 0, load.clients / load.fillers, admitted) - 1.0
    first = p.start_s + np.where(load.lab > 0, p.lab, p.stretch) * own + packed * (p.burst + early) * others
    batch, tpot, waiting = admitted.copy(), ops[:, -1].copy(), first
    for _ in range(40):
        step = _between(ops, batch / admitted) + sequence * batch
        tpot = step + mixed * batch / load.output * fill
        waiting = first + p.steps * mixed * tpot
        life = load.output * tpot
        # a prefill pool that cannot keep up makes clients wait, and leaves fewer to decode
        waiting = np.maximum(waiting, load.apart * (load.clients * packed / load.fillers - life))
        kept = np.where(load.apart > 0, load.fillers * life / packed / load.decoders, admitted)
        batch = 0.5 * batch + 0.5 * np.maximum(1.0, np.minimum(kept, admitted * life / (life + mixed * waiting)))
    queued = np.maximum(0.0, load.clients / load.decoders - admitted) / admitted * (load.output * tpot + waiting)
    return waiting + queued, tpot


def _between(decode: Array, fraction: Array) -> Array:
    """Decode time at a share of the batches it was priced at."""
    found = decode[:, 0].copy()
    for (low, left), (high, right) in pairwise(zip(FRACTIONS, decode.T, strict=True)):
        found += np.clip((fraction - low) / (high - low), 0.0, 1.0) * (right - left)
    return found
