"""Sarathi-Serve (OSDI 2024): every decode of the batch, then prompts already begun, then new ones, up to the token budget."""

from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_admit import decodes, fill, grow, wanted
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_jit import hot


@hot
def schedule(s: Serving, k: int) -> None:
    """Set what each request of instance k computes next: decodes are never stalled by prompts."""
    budget = s.inst[k, c.BUDGET]
    preempted = s.inst[k, c.PREEMPTIONS]
    for decoding in (True, False):
        i = 0
        while i < s.inst[k, c.BATCH]:
            r = s.batch[k, i]
            if decodes(s, r) == decoding:
                take = min(wanted(s, r), budget)
                s.req[r, c.TAKE] = 0
                if take > 0:
                    if not grow(s, k, r, take):
                        break
                    budget -= take
            i += 1
    fill(s, k, budget, preempted)
