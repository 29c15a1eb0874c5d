"""More work never takes less time: pairs of shapes of which one is twice the other, and how far a correction may fall between.

A correction is a ramp between the knots of its grid, the physical form a stair of tiles, waves and caches. So the condition is
put on doublings at the knots and between them, where the form may stand still.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.bounded import Bound
from hwmodel.features import GRIDS
from hwmodel.gridfit import Lattice
from hwmodel.hardware import Chip, with_number
from hwmodel.measured import form_of
from hwmodel.sample import Sample, physical, sample_of

Array = NDArray[np.float64]
Columns = dict[str, Array]


def _gemm(at: Array) -> Columns:
    return {"m": at[:, 0], "n": at[:, 1], "k": at[:, 2]}


def _decode(at: Array) -> Columns:
    one = np.ones(len(at))
    return {
        "batch": at[:, 0],
        "heads": np.rint(at[:, 2]),
        "kv_heads": one,
        "head_dim": at[:, 3],
        "window": 0 * one,
        "kv_len": at[:, 1],
    }


def _prefill(at: Array) -> Columns:
    """Every number of heads as one of each KV head, and as eight."""
    at, group = np.concatenate([at, at]), np.repeat([1.0, 8.0], len(at))
    window = np.where(at[:, 2] > 1.5, at[:, 2], 0.0)
    sizes = {"batch": at[:, 0] / group, "heads": group, "kv_heads": np.ones(len(at))}
    return {**sizes, "head_dim": at[:, 3], "window": window, "seq": at[:, 1]}


def _mla_decode(at: Array) -> Columns:
    return {"batch": at[:, 0], "seq": np.ones(len(at)), "kv_len": at[:, 1], "heads": at[:, 2]}


def _mla_prefill(at: Array) -> Columns:
    """Every number of heads as one of each sequence, and as 128."""
    at, heads = np.concatenate([at, at]), np.repeat([1.0, 128.0], len(at))
    return {"batch": at[:, 0] / heads, "seq": at[:, 1], "kv_len": at[:, 1], "heads": heads}


def _collective(at: Array) -> Columns:
    return {"bytes": at[:, 0], "chips": at[:, 1]}


def _moe(at: Array) -> Columns:
    """Layers of gated experts; `at` is tokens, experts, chosen, chips, elements of one matrix."""
    tokens, experts, chosen, chips, matrix = at.T
    words = {"dist": np.full(len(at), "balanced"), "gated": np.full(len(at), "true")}
    sizes = {
        "tokens": tokens,
        "hidden": np.full(len(at), WIDTH),
        "inter": np.rint(matrix / WIDTH),
        "topk": chosen,
        "experts": experts,
    }
    return {**sizes, "tp": np.ones(len(at)), "ep": chips, **words}


def _exchange(at: Array) -> Columns:
    """Tokens with 8 of 256 experts, as those of DeepSeek-V3, over nodes of eight chips; `at` is tokens, chips."""
    tokens, chips = at.T
    sizes = {"tokens_per_rank": tokens, "hidden": np.full(len(at), WIDTH), "topk": np.full(len(at), 8.0)}
    return {**sizes, "experts": np.full(len(at), 256.0), "ep": chips, "nodes": np.maximum(chips / 8, 1)}


WIDTH = 4096.0
"""Of a token, where only products of it with other sizes count."""
APART = 0.7
"""Most octaves from one size that is doubled to the next."""
SIZES: dict[str, tuple[Callable[[Array], Columns], tuple[int, ...], tuple[int, ...]]] = {
    "gemm": (_gemm, (0, 1, 2), ()),
    "attention_decode": (_decode, (0, 1), (2,)),
    "attention_prefill": (_prefill, (0, 1), ()),
    "mla_decode": (_mla_decode, (0, 1), (2,)),
    "mla_prefill": (_mla_prefill, (0, 1), ()),
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), (_collective, (0,), ())),
}
"""A shape at a place of a grid, the axes along which its time may not fall, and those looked at between their knots as well."""
COUNTS = 2.0 ** np.arange(0, 17.5, 0.5)
"""Tokens that are doubled, by half octaves."""
LAYERS: dict[str, tuple[Callable[[Array], Columns], Array]] = {
    "moe": (_moe, np.array([
        (experts, chosen, chips, 2.0**matrix)
        for experts in (8, 32, 128, 512) for chosen in (2, 8) for chips in (1, 4, 16, 128) if chips <= experts
        for matrix in np.arange(15, 27.5, 1.5)
    ])),
    **dict.fromkeys(("expert_dispatch", "expert_combine"), (_exchange, np.array([[4.0], [8.0], [16.0], [32.0], [64.0]]))),
}  # fmt: skip
"""Kinds whose sizes on a grid depend on each other: layers over which tokens are doubled, a row each."""


class Doublings:
    """Pairs of shapes of a kind of op, the second with twice the work of the first."""

    def __init__(self, kind: str) -> None:
        """Raise KeyError for a kind of which nothing says what may not fall."""
        self.kind = kind
        self.pairs = _on_lattice(kind) if kind in SIZES else _of_layers(kind)
        self._designs: dict[str, Any] = {}
        self._forms: dict[tuple[str, str], Array] = {}

    def bound(self, theta: Array, like: Sample) -> Bound:
        """The change of a correction from the first to the second: no less than minus what the form surely grows by.

        theta : (4,) parameters of `hwmodel.sample`; like : a group of the chip and the format at hand

        Between the steps of tiles a time with tiles stands still, and below them one without tiles grows less: what surely
        grows is the smaller of the two.
        """
        form = form_of(like.rows)
        if (like.chip.name, form) not in self._forms:
            self._forms[like.chip.name, form] = self._times(like, form)
        before, after = self._forms[like.chip.name, form]
        rises = [np.log(physical(theta, *b) / physical(theta, *a)) for a, b in zip(before, after, strict=True)]
        return Bound(self._designs[form], -np.maximum(np.min(rises, axis=0), 0.0))

    def _times(self, like: Sample, form: str) -> Array:
        """(first and second, with tiles and without, 3, pairs): compute, memory and fixed s at full rates."""
        chips = like.chip, with_number(like.chip, "execution.cores", 0.0)
        priced = [[_priced(columns, like, chip) for chip in chips] for columns in self.pairs]
        if form not in self._designs:  # places on a grid are of shape and format alone
            lattice = GRIDS[self.kind].lattice
            self._designs[form] = lattice.weights(_places(priced[1][0])) - lattice.weights(_places(priced[0][0]))
        return np.array([[_form(sample) for sample in samples] for samples in priced])


def _on_lattice(kind: str) -> tuple[Columns, Columns]:
    """At every knot and between them, an octave on along each axis."""
    lattice = GRIDS[kind].lattice
    shape, axes, between = SIZES[kind]
    apart = [APART if axis in axes else 1.0 if axis in between else np.inf for axis in range(len(lattice.axes))]
    fine = Lattice(tuple(_divided(knots, most) for knots, most in zip(lattice.axes, apart, strict=True))).knots
    first, second = [], []
    for axis in axes:
        inside = fine[fine[:, axis] < lattice.axes[axis][-1]]
        first.append(inside)
        second.append(inside + np.eye(len(lattice.axes))[axis])
    return shape(2.0 ** np.concatenate(first)), shape(2.0 ** np.concatenate(second))


def _of_layers(kind: str) -> tuple[Columns, Columns]:
    """Every layer with every count of tokens."""
    shape, layers = LAYERS[kind]
    tokens = np.tile(COUNTS, len(layers))[:, None]
    every = np.repeat(layers, len(COUNTS), axis=0)
    return shape(np.hstack([tokens, every])), shape(np.hstack([2 * tokens, every]))


def _divided(knots: tuple[float, ...], apart: float) -> tuple[float, ...]:
    """Knots, and between them as many more, evenly, as leave no two further apart."""
    parts = []
    for low, high in pairwise(knots):
        parts += np.linspace(low, high, max(1, int(np.ceil((high - low) / apart - 1e-9))), endpoint=False).tolist()
    return (*parts, knots[-1])


def _priced(columns: Columns, like: Sample, chip: Chip) -> Sample:
    """Shapes as a group's benchmark would run them."""
    own = like.rows
    count = len(next(iter(columns.values())))
    words = {key: np.full(count, value[0]) for key, value in own.columns.items() if value.dtype.kind != "f"}
    return sample_of(replace(own, columns={**words, **columns}, measured_s=np.ones(count)), chip)


def _form(sample: Sample) -> Array:
    """Of every op that is fitted, one after the other."""
    return np.stack([part.T.ravel() for part in (sample.compute, sample.memory, sample.fixed)])


def _places(sample: Sample) -> Array:
    """On a grid, in the same order, (ops, axes)."""
    return np.concatenate(np.moveaxis(sample.features, 1, 0))
