"""Micro-batches that walk a chain of blocks over lanes: the schedule without a queue of events, with jumps over equal layers.

Where every block of a layer waits for the block before it and for nothing else, a micro-batch is one token: it is at one
place at any time. First come, first served on every lane is then the token that is ready first. The states of a run of equal
layers repeat, shifted in time, once the schedule is periodic (max-plus linear; Baccelli et al., Synchronization and Linearity,
1992, section 3.7): what is left of the run is a product.

Arrays of a chain
-----------------
first : (segments + 1,) first block of each segment; lane : (blocks,) int; segment, stage, count : (runs,) equal layers of one
step in order, from the embedding to the head; own : (blocks,) 1 for blocks inside a layer whose lane does nothing else;
inner : (runs,) 1 where a layer goes on in the block that the layer before it in
the run ended in; edge : (runs,) the same towards the run before (cyclic: steps follow one another); seconds : (blocks,) s.
A state is a row of integers per token: round, run, layer of the run, block of the layer, layers done.
"""

import numpy as np

from hwmodel.kernels.bare import bare

ROUND, RUN, LAYER, BLOCK, DONE = 0, 1, 2, 3, 4
N_STATE = 5
SAME = 1e-12
"""Relative difference of times below which two states are one."""


@bare
def block_end(
    at: np.ndarray, limit: int, first: np.ndarray, segment: np.ndarray, count: np.ndarray, inner: np.ndarray,
    edge: np.ndarray, seconds: np.ndarray,
) -> float:  # fmt: skip
    """Seconds (s) of the uninterrupted block that a token starts; moves its state behind it. `limit`: rounds until it stops."""
    total = 0.0
    while True:
        s = segment[at[RUN]]
        total += seconds[first[s] + at[BLOCK]]
        at[BLOCK] += 1
        if first[s] + at[BLOCK] < first[s + 1]:
            return total
        at[BLOCK] = 0
        at[LAYER] += 1
        at[DONE] += 1
        if at[LAYER] < count[at[RUN]]:
            if inner[at[RUN]] == 1:
                continue
            return total
        at[LAYER] = 0
        at[RUN] += 1
        if at[RUN] == segment.shape[0]:
            at[RUN] = 0
            at[ROUND] += 1
            if at[ROUND] == limit:
                return total
        if edge[at[RUN]] == 0:
            return total


@bare
def mark_delays(first: np.ndarray, own: np.ndarray, seconds: np.ndarray, skip: np.ndarray) -> None:
    """Write 1 into `skip` for blocks (s) that no token ever waits for.

    Tokens come to a lane of its own at least as far apart as the block before takes, which serves one token at a time.
    """
    for s in range(first.shape[0] - 1):
        gate = 0.0
        for k in range(first[s], first[s + 1]):
            skip[k] = 1 if own[k] == 1 and seconds[k] <= gate else 0
            if skip[k] == 0:
                gate = seconds[k]


@bare
def delay(at: np.ndarray, first: np.ndarray, segment: np.ndarray, seconds: np.ndarray, skip: np.ndarray) -> float:
    """Seconds (s) of the blocks before a token that it need not wait for; moves its state behind them."""
    total = 0.0
    k = first[segment[at[RUN]]] + at[BLOCK]
    while skip[k] == 1:
        total += seconds[k]
        k += 1
        at[BLOCK] += 1
    return total


@bare
def next_token(at: np.ndarray, ready: np.ndarray, limit: int) -> int:
    """The token that is ready first (of equal ones that of the lower layer, then of the lower number); -1 when all are done."""
    found = -1
    for b in range(ready.shape[0]):
        if at[b, ROUND] < limit and (
            found < 0 or ready[b] < ready[found] or (ready[b] == ready[found] and at[b, DONE] < at[found, DONE])
        ):
            found = b
    return found


@bare
def drained(
    at: np.ndarray, ready: np.ndarray, free: np.ndarray, limit: int, lanes: int, first: np.ndarray, lane: np.ndarray,
    segment: np.ndarray, stage: np.ndarray, count: np.ndarray, inner: np.ndarray, edge: np.ndarray, seconds: np.ndarray,
    skip: np.ndarray,
) -> float:  # fmt: skip
    """End (s) of the step number `limit` when nothing follows it; the state is used up."""
    end = 0.0
    for b in range(ready.shape[0]):
        end = max(end, ready[b])
    while True:
        b = next_token(at, ready, limit)
        if b < 0:
            return end
        run = at[b, RUN]
        where = stage[run] * lanes + lane[first[segment[run]] + at[b, BLOCK]]
        start = max(ready[b], free[where])
        ready[b] = start + block_end(at[b], limit, first, segment, count, inner, edge, seconds)
        free[where] = ready[b]
        end = max(end, ready[b])
        if at[b, ROUND] < limit:
            ready[b] += delay(at[b], first, segment, seconds, skip)


@bare
def earliest(ready: np.ndarray) -> float:
    """The smallest of some times (s)."""
    found = ready[0]
    for b in range(1, ready.shape[0]):
        found = min(found, ready[b])
    return found


@bare
def repeats(
    at: np.ndarray, ready: np.ndarray, free: np.ndarray, old: np.ndarray, old_ready: np.ndarray, old_free: np.ndarray
) -> bool:
    """Whether all tokens stand equally many layers further in one run than in an older state, and all times moved alike."""
    layers, moved = at[0, LAYER] - old[0, LAYER], ready[0] - old_ready[0]
    if layers <= 0:
        return False
    tolerance = SAME * ready[0]
    idle, old_idle = earliest(ready), earliest(old_ready)
    for b in range(ready.shape[0]):
        if (
            at[b, ROUND] != at[0, ROUND] or at[b, RUN] != at[0, RUN] or old[b, ROUND] != at[b, ROUND]
            or old[b, RUN] != at[b, RUN]
            or at[b, BLOCK] != old[b, BLOCK] or at[b, LAYER] != old[b, LAYER] + layers
            or abs(ready[b] - old_ready[b] - moved) > tolerance
        ):  # fmt: skip
            return False
    # a lane that is free before the first token comes is as good as free then
    for k in range(free.shape[0]):  # noqa: SIM110  plain for numba
        if abs(max(free[k], idle) - max(old_free[k], old_idle) - moved) > tolerance:
            return False
    return True


@bare
def jump(at: np.ndarray, ready: np.ndarray, free: np.ndarray, layers: int, moved: float, count: int) -> None:
    """Repeat a cycle of `layers` layers that takes `moved` (s) as often as all tokens stay in their run of `count` layers."""
    furthest = 0
    for b in range(ready.shape[0]):
        furthest = max(furthest, at[b, LAYER])
    times = (count - 1 - furthest) // layers
    if times <= 0:
        return
    idle = earliest(ready)
    for k in range(free.shape[0]):
        free[k] = max(free[k], idle) + moved * times
    for b in range(ready.shape[0]):
        ready[b] += moved * times
        at[b, LAYER] += layers * times
        at[b, DONE] += layers * times


@bare
def a_round_on(state: np.ndarray, times: np.ndarray, lanes_free: np.ndarray) -> bool:
    """Whether every token stands where it stood at the end of the step before, all times (s) moved alike."""
    moved = times[0, 0] - times[3, 0]
    tolerance = SAME * times[0, 0]
    for b in range(times.shape[1]):
        if state[0, b, ROUND] != state[3, b, ROUND] + 1 or abs(times[0, b] - times[3, b] - moved) > tolerance:
            return False
        for k in (RUN, LAYER, BLOCK):
            if state[0, b, k] != state[3, b, k]:
                return False
    idle, old_idle = earliest(times[0]), earliest(times[3])
    for k in range(lanes_free.shape[1]):
        if abs(max(lanes_free[0, k], idle) - max(lanes_free[3, k], old_idle) - moved) > tolerance:
            return False
    return True


@bare
def keep_state(state: np.ndarray, times: np.ndarray, lanes_free: np.ndarray, source: int, target: int) -> None:
    """Copy a whole state, times in s."""
    for b in range(times.shape[1]):
        times[target, b] = times[source, b]
        for k in range(N_STATE):
            state[target, b, k] = state[source, b, k]
    for k in range(lanes_free.shape[1]):
        lanes_free[target, k] = lanes_free[source, k]


@bare
def walk(
    state: np.ndarray, times: np.ndarray, lanes_free: np.ndarray, rounds: int, lanes: int, first: np.ndarray,
    lane: np.ndarray, segment: np.ndarray, stage: np.ndarray,
    count: np.ndarray, inner: np.ndarray, edge: np.ndarray, seconds: np.ndarray, skip: np.ndarray, ends: np.ndarray,
) -> None:  # fmt: skip
    """Ends (s) of 1, 2, ..., `rounds` steps one behind the other, each as if nothing followed it; ends : (rounds,) s, out.

    Room to work in: state (4, tokens, N_STATE) int, times (4, tokens), lanes_free (4, stages x lanes): now, kept, drained,
    and at the end of the last step.
    """
    at, ready, free = state[0], times[0], lanes_free[0]
    old, old_ready, old_free = state[1], times[1], lanes_free[1]
    trial = state[2, 0]
    at[:], ready[:], free[:] = 0, 0.0, 0.0
    keep_state(state, times, lanes_free, 0, 1)
    passed, keep = 0, 1
    target = 1
    while True:
        b = next_token(at, ready, rounds + 1)
        run = at[b, RUN]
        crosses = at[b, ROUND] == target
        where = stage[run] * lanes + lane[first[segment[run]] + at[b, BLOCK]]
        for k in range(N_STATE):
            trial[k] = at[b, k]
        took = block_end(trial, rounds + 2, first, segment, count, inner, edge, seconds)
        if crosses or (trial[ROUND] == target and (trial[RUN] > 0 or trial[LAYER] > 0 or trial[BLOCK] > 0)):
            if target > 1 and a_round_on(state, times, lanes_free):
                for k in range(target - 1, rounds):
                    ends[k] = ends[k - 1] + ready[0] - times[3, 0]
                return
            keep_state(state, times, lanes_free, 0, 3)
            keep_state(state, times, lanes_free, 0, 2)
            ends[target - 1] = drained(
                state[2], times[2], lanes_free[2], target, lanes, first, lane, segment, stage, count, inner, edge, seconds,
                skip,
            )  # fmt: skip
            target += 1
            if target > rounds:
                return
            for k in range(N_STATE):  # the drain worked there
                trial[k] = at[b, k]
            block_end(trial, rounds + 2, first, segment, count, inner, edge, seconds)
        start = max(ready[b], free[where])
        ready[b] = start + took
        free[where] = ready[b]
        layer = at[b, DONE]
        for k in range(N_STATE):
            at[b, k] = trial[k]
        ready[b] += delay(at[b], first, segment, seconds, skip)
        if b != 0 or trial[DONE] == layer:
            continue
        # token 0 is in a further layer: compare with an older one, kept twice as long every time (Brent, BIT 20, 1980)
        passed += 1
        if repeats(at, ready, free, old, old_ready, old_free):
            jump(at, ready, free, at[0, LAYER] - old[0, LAYER], ready[0] - old_ready[0], count[at[0, RUN]])
            passed, keep = 0, 1
        elif passed == keep:
            passed, keep = 0, 2 * keep
        else:
            continue
        keep_state(state, times, lanes_free, 0, 1)


@bare
def steady(
    tokens: int, alone: int, lanes: int, first: np.ndarray, lane: np.ndarray, segment: np.ndarray, stage: np.ndarray,
    count: np.ndarray, inner: np.ndarray, edge: np.ndarray, own: np.ndarray, seconds: np.ndarray, rounds: int,
    state: np.ndarray, times: np.ndarray, lanes_free: np.ndarray, skip: np.ndarray, ends: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """(makespan, period) in s: the end of an isolated step, and the time between two steps of a sequence in steady state.

    One token, or one lane, is a sum. Else the period is the last of the first `rounds` steps' when those before it took as
    long, and the mean from there to the last of `ends` when they did not. alone : 1 where there is one lane in all;
    state, times, lanes_free : room as in `walk`, for at least so many tokens; skip : (blocks,) int room; ends : (steps,) room.
    """
    total = 0.0
    for r in range(segment.shape[0]):
        layer = 0.0
        for k in range(first[segment[r]], first[segment[r] + 1]):
            layer += seconds[k]
        total += layer * count[r]
    if tokens == 1 or alone == 1:
        return tokens * total, tokens * total
    mark_delays(first, own, seconds, skip)
    at, ready = state[:, :tokens], times[:, :tokens]
    walk(at, ready, lanes_free, rounds, lanes, first, lane, segment, stage, count, inner, edge, seconds, skip, ends)
    last, many = ends[rounds - 1], ends.shape[0]
    if abs(last - 2.0 * ends[rounds - 2] + ends[rounds - 3]) <= 1e-9 * last:
        return ends[0], last - ends[rounds - 2]
    walk(at, ready, lanes_free, many, lanes, first, lane, segment, stage, count, inner, edge, seconds, skip, ends)
    return ends[0], (ends[many - 1] - last) / (many - rounds)
