"""When ops start and end: micro-batches pass the layers over lanes that each do one thing at a time, in program order.

A program is a list of runs: `count` equal layers of one segment on one pipeline stage. Program order is layer, then
micro-batch, then op; a lane starts its next op when the op's inputs are there and the lane is free. With one chain of
attention, transfer, FFN, transfer this is the ping-pong pipeline of MegaScale-Infer (arXiv 2504.02263, section 4):
total = (L - 1) max(m T_f, T_a + T_e + 2 T_c) + T_a + T_e + 2 T_c + (m - 1) T_f, T_f = max(T_a, T_e, T_c).

Arrays of a program
-------------------
segment, count, stage : (runs,) int; tasks : (segments + 1,) first op of each segment; lane : (ops,) int;
inputs : (ops + 1,) first input of each op; input : (inputs,) op index, or INPUT, or PREVIOUS; seconds : (ops,) s.
"""

import numpy as np
from numba import njit

INPUT = -1
"""The op reads what the layer below left."""
PREVIOUS = -2
"""The op may start when the layer below starts: weights fetched one layer ahead."""


@njit(cache=True, nogil=True)
def advance(
    segment: int, stage: int, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray, input_: np.ndarray, seconds: np.ndarray,
    free: np.ndarray, ready: np.ndarray, began: np.ndarray, end: np.ndarray, start: np.ndarray, finish: np.ndarray,
) -> None:  # fmt: skip
    """One layer of all micro-batches. `free` (stages, lanes), `ready` and `began` (micro-batches) are in and out (s).

    start, finish : (micro-batches, ops) receive the times (s) of this layer's ops; end : (ops,) scratch.
    """
    for b in range(ready.shape[0]):
        last = ready[b]
        first = np.inf
        for t in range(tasks[segment], tasks[segment + 1]):
            at = 0.0
            for i in range(inputs[t], inputs[t + 1]):
                source = input_[i]
                if source == INPUT:
                    at = max(at, ready[b])
                elif source == PREVIOUS:
                    at = max(at, began[b])
                else:
                    at = max(at, end[source])
            at = max(at, free[stage, lane[t]])
            end[t] = at + seconds[t]
            free[stage, lane[t]] = end[t]
            start[b, t], finish[b, t] = at, end[t]
            last = max(last, end[t])
            first = min(first, at)
        began[b] = ready[b]
        ready[b] = last


@njit(cache=True, nogil=True)
def exact(
    segment: np.ndarray, count: np.ndarray, stage: np.ndarray, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray,
    input_: np.ndarray, seconds: np.ndarray, batches: int, lanes: int, stages: int, start: np.ndarray, finish: np.ndarray,
) -> float:  # fmt: skip
    """Seconds (s) from the start of a step to its last finish, every op scheduled; start, finish : (layers, batches, ops)."""
    free = np.zeros((stages, lanes))
    ready, began = np.zeros(batches), np.zeros(batches)
    end = np.zeros(seconds.shape[0])
    layer = 0
    for r in range(segment.shape[0]):
        for _ in range(count[r]):
            advance(segment[r], stage[r], tasks, lane, inputs, input_, seconds, free, ready, began, end, start[layer], finish[layer])
            layer += 1
    return latest(ready)


@njit(cache=True)
def latest(times: np.ndarray) -> float:
    """The largest of some times (s)."""
    found = 0.0
    for t in times:
        found = max(found, t)
    return found


@njit(cache=True)
def copied(source: np.ndarray, target: np.ndarray) -> None:
    """Copy a vector; slices compile ten times slower."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@njit(cache=True, nogil=True)
def closed(
    segment: np.ndarray, count: np.ndarray, stage: np.ndarray, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray,
    input_: np.ndarray, seconds: np.ndarray, batches: int, lanes: int, stages: int, rounds: int, out: np.ndarray,
) -> None:  # fmt: skip
    """The same without walking every layer: once two layers of a run shift all times equally, the rest of the run is a jump.

    The layers form a max-plus linear system, whose times grow by its eigenvalue per layer once periodic (Baccelli et al.,
    Synchronization and Linearity, 1992, section 3.7); a run that is not yet periodic is walked on. `rounds` steps follow
    one another, a micro-batch's next step waiting for its own last; out : (2,) s: end of the first step, and the period
    (the last step's end less the one before).
    """
    free = np.zeros((stages, lanes))
    ready, began = np.zeros(batches), np.zeros(batches)
    end = np.zeros(seconds.shape[0])
    start = np.zeros((batches, seconds.shape[0]))
    finish = np.zeros((batches, seconds.shape[0]))
    old_free, old_ready, old_began = np.zeros(lanes), np.zeros(batches), np.zeros(batches)
    before = 0.0
    for turn in range(rounds):
        for r in range(segment.shape[0]):
            left = count[r]
            growth = -1.0
            while left > 0:
                copied(free[stage[r]], old_free)
                copied(ready, old_ready)
                copied(began, old_began)
                advance(segment[r], stage[r], tasks, lane, inputs, input_, seconds, free, ready, began, end, start, finish)
                left -= 1
                step = ready[0] - old_ready[0]
                if left > 1 and abs(step - growth) <= 1e-13 * ready[0] and _shifted(old_free, free[stage[r]], old_ready, ready, old_began, began, step):
                    jump = step * left
                    for b in range(batches):
                        ready[b] += jump
                        began[b] += jump
                    for k in range(lanes):
                        if free[stage[r], k] > old_free[k]:
                            free[stage[r], k] += jump
                    left = 0
                growth = step
        now = latest(ready)
        if turn == 0:
            out[0] = now
        out[1] = now - before
        before = now


@njit(cache=True, nogil=True)
def _shifted(
    old_free: np.ndarray, free: np.ndarray, old_ready: np.ndarray, ready: np.ndarray, old_began: np.ndarray, began: np.ndarray,
    step: float,
) -> bool:  # fmt: skip
    """Whether every time moved by `step` (s) in the last layer; lanes that were not used stayed where they were."""
    tiny = 1e-12 * (abs(ready[0]) + step)
    for b in range(ready.shape[0]):
        if abs(ready[b] - old_ready[b] - step) > tiny or abs(began[b] - old_began[b] - step) > tiny:
            return False
    for k in range(free.shape[0]):
        moved = free[k] - old_free[k]
        if moved != 0.0 and abs(moved - step) > tiny:
            return False
    return True
