"""The grids of corrections: by which sizes, with which knots, how stiff. One entry per kind of op that measurements know."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.gridfit import Lattice, Smoothness

COMMON = Smoothness(0.05, 0.02, robust=0.1)
"""Of a grid over all groups of a kind of op."""


@dataclass(frozen=True)
class Grid:
    """Axes of a correction, and the stiffness of one group's grid and of that of all groups."""

    names: tuple[str, ...]
    lattice: Lattice
    own: Smoothness
    pooled: Smoothness | None = COMMON
    """None: what libraries do has too little in common."""


def _octaves(low: float, high: float, step: float = 1.0) -> tuple[float, ...]:
    """Knots from low to high (log2), evenly."""
    count = round((high - low) / step)
    return tuple(low + step * i for i in range(count + 1))


_WIDTHS = (6.0, 7.0, 8.0, 9.0)
_GROUPS = (0.0, 1.0, 3.0, 5.0, 5.3, 7.0)
"""Query heads per KV head. One a head, or more than 32, run other kernels than those that pack a group into a tile."""
_EXCHANGE = Grid(("bytes", "chips"), Lattice((_octaves(8, 30, 2), (1.0, 2.0, 3.0))), Smoothness(0.02, 0.003), None)
_SENT = Grid(("bytes", "chips"), Lattice((_octaves(12, 32, 2), (2.0, 3.0, 4.0, 5.0, 6.0))), Smoothness(0.05, 0.003), None)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
EXCHANGES = (*COLLECTIVES, "expert_dispatch", "expert_combine")
"""Kinds that links carry."""
GRIDS: dict[str, Grid] = {
    "gemm": Grid(
        ("m", "n", "k"), Lattice((_octaves(0, 15), _octaves(5, 16), _octaves(5, 16))), Smoothness(0.1, 0.003)
    ),
    "attention_decode": Grid(
        ("caches", "seen", "group", "width"),
        Lattice((_octaves(0, 14, 1.75), _octaves(1, 17, 1.6), _GROUPS, _WIDTHS), ((), (), (1, 4))),
        Smoothness(0.02, 0.003, 0.1),
    ),
    "attention_prefill": Grid(
        ("heads", "new", "window", "width"),
        Lattice((_octaves(0, 13, 13 / 7), _octaves(0, 14, 14 / 9), (0.0, 7.0, 10.0, 13.0), _WIDTHS), ((), (), (1, 2, 3), (3,))),
        Smoothness(0.02, 0.003),
    ),
    "mla_decode": Grid(
        ("caches", "seen", "group"),
        Lattice((_octaves(0, 10), (1.0, 4.0, *_octaves(6, 12), 14.0, 17.0), (0.0, 2.0, 4.0, 5.0, 6.0, 7.0))),
        Smoothness(0.02, 0.003),
    ),
    "mla_prefill": Grid(
        ("heads", "new"), Lattice((_octaves(0, 14), _octaves(0, 15))), Smoothness(0.02, 0.003)
    ),
    **dict.fromkeys(COLLECTIVES, _EXCHANGE),
    **dict.fromkeys(("expert_dispatch", "expert_combine"), _SENT),
    "moe": Grid(
        ("each", "hit", "matrix", "entering"),
        Lattice((_octaves(0, 14, 2), _octaves(0, 9, 2.25), _octaves(15, 27, 3), (0.0, 2.0, 4.0, 7.0))),
        Smoothness(0.05, 0.003, 0.05),
    ),
}  # fmt: skip
