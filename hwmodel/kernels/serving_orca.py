"""Iteration-level scheduling (Orca, OSDI 2022): after every iteration ended requests leave and new ones join, prompts whole."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_admit import BLOCKED, grow, let_in, wanted
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def schedule(s: Serving, k: int) -> None:
    """Set what each request of instance k computes next: all that run, then new ones in order of arrival."""
    budget = s.inst[k, c.BUDGET]
    i = 0
    while i < s.inst[k, c.BATCH]:
        r = s.batch[k, i]
        need = wanted(s, r)
        if not grow(s, k, r, need):
            return
        budget -= need
        i += 1
    while s.inst[k, c.HEAD] >= 0:
        took = let_in(s, k, budget)
        if took == BLOCKED:
            return
        budget -= took
