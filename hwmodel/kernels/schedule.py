"""When ops start and end: micro-batches pass the layers over lanes that each do one thing at a time.

A lane (the chips of a pool, one direction of a way between pools) takes work first come, first served. What follows one
another on a lane without waiting for another lane is one block and is not interrupted, as on a stream: with one chain of
attention, transfer, FFN, transfer per layer this is the ping-pong pipeline of MegaScale-Infer (arXiv 2504.02263, section 4),
total = (L - 1) max(m T_f, T_a + T_e + 2 T_c) + T_a + T_e + 2 T_c + (m - 1) T_f with T_f = max(T_a, T_e, T_c); with stages of
layers, each with lanes of its own, it is a pipeline.

Arrays of a program
-------------------
segment, stage : (layers,) int, the layers in order; tasks : (segments + 1,) first op of each segment; lane : (ops,) int;
inputs : (ops + 1,) first input of each op; input : (inputs,) op index, or INPUT, or PREVIOUS; follow, after : the same
turned round, ops that read an op; seconds : (ops,) s.
"""

import numpy as np

from hwmodel.kernels.bare import bare

INPUT = -1
"""The op reads what the layer below left: the output of its last op."""
PREVIOUS = -2
"""The op may start when the layer below starts: weights fetched one layer ahead."""
N_WHOLE = 6
"""Rows of whole numbers that a schedule needs room for."""


@bare
def push(heap: np.ndarray, length: int, time: np.ndarray, order: np.ndarray, item: int) -> int:
    """Put an item on a binary heap that is sorted by time (s), then order; the new length."""
    i = length
    while i > 0:
        up = (i - 1) // 2
        other = heap[up]
        if time[other] < time[item] or (time[other] == time[item] and order[other] <= order[item]):
            break
        heap[i] = other
        i = up
    heap[i] = item
    return length + 1


@bare
def pop(heap: np.ndarray, length: int, time: np.ndarray, order: np.ndarray) -> int:
    """Take the first item off the heap of `length` items."""
    first = heap[0]
    item = heap[length - 1]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= length - 1:
            break
        right = child + 1
        if right < length - 1:
            a, b = heap[child], heap[right]
            if time[b] < time[a] or (time[b] == time[a] and order[b] < order[a]):
                child = right
        other = heap[child]
        if time[item] < time[other] or (time[item] == time[other] and order[item] <= order[other]):
            break
        heap[i] = other
        i = child
    heap[i] = item
    return first


@bare
def cut_blocks(
    segment: np.ndarray, stage: np.ndarray, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray, input_: np.ndarray,
    base: np.ndarray, batches: int, lanes: int, block: np.ndarray, head: np.ndarray, order: np.ndarray, waits: np.ndarray,
    where: np.ndarray,
) -> int:  # fmt: skip
    """Cut every micro-batch's ops into blocks: runs on one lane whose inputs, but for the first op's, are inside the run.

    base : (layers + 1,) first op of each layer; out: block (instances,) the block of each op instance, and per block its
    first instance, its place in the program, how many inputs it waits for and its lane. Returns the number of blocks.
    """
    layers = segment.shape[0]
    width = int(base[layers])
    blocks = 0
    for b in range(batches):
        for layer in range(layers):
            s = segment[layer]
            for t in range(tasks[s], tasks[s + 1]):
                i = b * width + base[layer] + t - tasks[s]
                at = stage[layer] * lanes + lane[t]
                joins = base[layer] + t > tasks[s] and blocks > 0 and where[blocks - 1] == at
                external = 0
                for k in range(inputs[t], inputs[t + 1]):
                    j = source(input_[k], b, layer, base, segment, tasks, width)
                    if j >= 0:
                        external += 1
                        if joins and block[j] != blocks - 1:
                            joins = False
                if not joins:
                    head[blocks] = i
                    order[blocks] = (layer * batches + b) * block.shape[0] + blocks
                    where[blocks] = at
                    waits[blocks] = external
                    blocks += 1
                block[i] = blocks - 1
    head[blocks] = batches * width
    return blocks


@bare
def first_ops(segment: np.ndarray, tasks: np.ndarray, base: np.ndarray) -> None:
    """Write the place of each layer's first op among all ops of a micro-batch, and their number; base : (layers + 1,)."""
    base[0] = 0
    for layer in range(segment.shape[0]):
        base[layer + 1] = base[layer] + tasks[segment[layer] + 1] - tasks[segment[layer]]


def exact(
    segment: np.ndarray, stage: np.ndarray, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray, input_: np.ndarray,
    follow: np.ndarray, after: np.ndarray, seconds: np.ndarray, batches: int, lanes: int, stages: int, start: np.ndarray,
    finish: np.ndarray,
) -> float:  # fmt: skip
    """Schedule every op; seconds (s) from 0 to the last finish. start, finish : (batches, ops of all layers), s, out."""
    base = np.empty(segment.shape[0] + 1, np.int64)
    whole, times = np.zeros((N_WHOLE, start.size + 1), np.int64), np.zeros(start.size + stages * lanes)
    return float(scheduled(
        segment, stage, tasks, lane, inputs, input_, follow, after, seconds, batches, lanes, base, whole, times, start, finish,
    ))  # fmt: skip


@bare
def scheduled(
    segment: np.ndarray, stage: np.ndarray, tasks: np.ndarray, lane: np.ndarray, inputs: np.ndarray, input_: np.ndarray,
    follow: np.ndarray, after: np.ndarray, seconds: np.ndarray, batches: int, lanes: int, base: np.ndarray,
    whole: np.ndarray, times: np.ndarray, start: np.ndarray, finish: np.ndarray,
) -> float:  # fmt: skip
    """As `exact` (s), in room of zeros.

    base : (layers + 1,) int; whole : (N_WHOLE, instances of ops + 1) int; times : (instances + lanes of all stages,) s
    """
    first_ops(segment, tasks, base)
    layers = segment.shape[0]
    width = int(base[layers])
    total = batches * width
    block, head, order, waits, where, heap = whole[0], whole[1], whole[2], whole[3], whole[4], whole[5]
    blocks = cut_blocks(
        segment, stage, tasks, lane, inputs, input_, base, batches, lanes, block[:total], head, order, waits, where
    )
    time, free = times[:total], times[total:]
    waiting = 0
    for k in range(blocks):
        if waits[k] == 0:
            waiting = push(heap, waiting, time, order, k)
    last = 0.0
    while waiting > 0:
        k = pop(heap, waiting, time, order)
        waiting -= 1
        now = float(max(time[k], free[where[k]]))
        b = head[k] // width
        layer = order[k] // (batches * total)
        for i in range(head[k], head[k + 1]):
            place = i - b * width
            while place >= base[layer + 1]:
                layer += 1
            t = place - base[layer] + tasks[segment[layer]]
            start[b, place] = now
            now += seconds[t]
            finish[b, place] = now
            first = b * width + base[layer] - tasks[segment[layer]]
            for n in range(follow[t], follow[t + 1]):
                waiting = release(first + after[n], k, now, block, waits, time, heap, waiting, order)
            if place == base[layer + 1] - 1:
                for ahead in range(1, min(3, layers - layer)):
                    wanted = INPUT if ahead == 1 else PREVIOUS
                    u = segment[layer + ahead]
                    for n in range(tasks[u], tasks[u + 1]):
                        if input_[inputs[n]] == wanted:
                            reader = b * width + base[layer + ahead] + n - tasks[u]
                            waiting = release(reader, k, now, block, waits, time, heap, waiting, order)
        free[where[k]] = now
        last = max(last, now)
    return last


@bare
def source(wanted: int, b: int, layer: int, base: np.ndarray, segment: np.ndarray, tasks: np.ndarray, width: int) -> int:
    """Instance of the op that an input names; -1 when nothing is waited for."""
    if wanted >= 0:
        return b * width + base[layer] + wanted - tasks[segment[layer]]
    below = layer - 1 if wanted == INPUT else layer - 2
    if below < 0:
        return -1
    return b * width + base[below + 1] - 1


@bare
def release(
    instance: int,
    by: int,
    now: float,
    block: np.ndarray,
    waits: np.ndarray,
    time: np.ndarray,
    heap: np.ndarray,
    waiting: int,
    order: np.ndarray,
) -> int:
    """One input of an instance's block is there at `now` (s); queue the block when it was the last. The queue's new length."""
    k = block[instance]
    if k == by:
        return waiting
    waits[k] -= 1
    time[k] = max(time[k], now)
    if waits[k] == 0:
        return push(heap, waiting, time, order, k)
    return waiting
