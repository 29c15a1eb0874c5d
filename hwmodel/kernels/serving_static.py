"""Static batching: a batch is filled, its prompts are computed together, and nobody joins or leaves until the last one ends."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_admit import BLOCKED, grow, let_in, wanted
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner


@inner
def schedule(s: Serving, k: int) -> None:
    """Set what each request of instance k computes next. Rows that have ended go on being computed: they stay with 0 tokens."""
    if s.inst[k, c.BATCH] == 0:
        budget = s.inst[k, c.BUDGET]
        while s.inst[k, c.HEAD] >= 0:
            took = let_in(s, k, budget)
            if took == BLOCKED:
                break
            budget -= took
        return
    i = 0
    while i < s.inst[k, c.BATCH]:
        r = s.batch[k, i]
        s.req[r, c.TAKE] = 0
        if s.req[r, c.MADE] < s.req[r, c.GOAL]:
            grow(s, k, r, wanted(s, r))
        i += 1
