"""Place ops on devices: the exact method that a problem allows is taken, and the answer says which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hwmodel.optimize.dynamic import WIDEST, chain, layers, repeated, width
from hwmodel.optimize.milp import highs
from hwmodel.optimize.mincut import cut
from hwmodel.optimize.problem import Edge, Placement, Problem, Run, Stack, brute
from hwmodel.optimize.symmetric import stacked

__all__ = [
    "Edge", "Placement", "Problem", "Run", "Stack", "brute", "chain", "cut", "highs", "layers", "repeated", "solve", "stacked",
]  # fmt: skip


def solve(problem: Problem, *, limit_s: float = 60.0) -> Placement:
    """The optimum: dynamic programming unless a capacity binds or too many tensors live at once, else HiGHS.

    Without capacities the optimum is a lower bound of that with them; when it fits, it is the answer.
    """
    if width(problem) <= WIDEST:
        free = chain(replace(problem, capacity=np.full(len(problem.capacity), np.inf)))
        if not free.feasible or problem.fits(free.device):
            return free
    return highs(problem, limit_s=limit_s)
