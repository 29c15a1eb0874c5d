"""vLLM v1: a token budget an iteration; what runs comes first, prompts are cut to what is left, the latest is preempted."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_admit import fill, grow, wanted
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import hot


@hot
def schedule(s: Serving, k: int) -> None:
    """Set what each request of instance k computes next; nobody is let in in an iteration that had to preempt."""
    budget = s.inst[k, c.BUDGET]
    preempted = s.inst[k, c.PREEMPTIONS]
    i = 0
    while i < s.inst[k, c.BATCH]:
        r = s.batch[k, i]
        take = min(wanted(s, r), budget)
        s.req[r, c.TAKE] = 0
        if take > 0:
            if not grow(s, k, r, take):
                break
            budget -= take
        i += 1
    fill(s, k, budget, preempted)
