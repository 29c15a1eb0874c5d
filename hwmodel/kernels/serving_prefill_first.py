"""Prompts first (vLLM v0, SGLang): an iteration computes prompts or decodes, never both; prompts go first when they can."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_admit import BLOCKED, decodes, grow, let_in, wanted
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import inner
from hwmodel.kernels.serving_queue import best_first


@inner
def schedule(s: Serving, k: int) -> None:
    """Set what each request of instance k computes next: prompts begun, new prompts (longest cached prefix), else decodes."""
    budget = s.inst[k, c.BUDGET]
    preempted = s.inst[k, c.PREEMPTIONS]
    for i in range(s.inst[k, c.BATCH]):
        s.req[s.batch[k, i], c.TAKE] = 0
    i = 0
    while i < s.inst[k, c.BATCH] and budget > 0:
        r = s.batch[k, i]
        if not decodes(s, r):
            take = min(wanted(s, r), budget)
            if not grow(s, k, r, take):
                break
            budget -= take
        i += 1
    while s.inst[k, c.HEAD] >= 0 and s.inst[k, c.PREEMPTIONS] == preempted:
        if s.inst[k, c.LONGEST_PREFIX] == 1:
            best_first(s, k)
        took = let_in(s, k, budget)
        if took == BLOCKED:
            break
        budget -= took
    if budget < s.inst[k, c.BUDGET]:
        return
    i = 0
    while i < s.inst[k, c.BATCH]:
        if not grow(s, k, s.batch[k, i], 1):
            break
        i += 1
