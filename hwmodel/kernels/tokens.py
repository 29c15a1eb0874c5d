"""Micro-batches that walk a chain of blocks over lanes: the schedule without a queue of events, with jumps over equal layers.

Where every block of a layer waits for the block before it and for nothing else, a micro-batch is one token: it is at one
place at any time. First come, first served on every lane is then the token that is ready first. The states of a run of equal
layers repeat, shifted in time, once the schedule is periodic (max-plus linear; Baccelli et al., Synchronization and Linearity,
1992, section 3.7): what is left of the run is a product.

A step is a list of visits: blocks one behind the other on one lane, not interrupted. Steps follow one another; where the last
visit of one goes on in the first of the next (`joined`), a token that has come round takes both at once. A state is two rows of
integers, the visit that every token comes to next and its step, and the times from which tokens and lanes are free.
"""

from typing import NamedTuple

import numpy as np

from hwmodel.kernels.bare import bare, within

SAME = 1e-12
"""Relative difference of times below which two states are one."""
POSITION, STEP = 0, 1
N_STATE = 2


class Way(NamedTuple):
    """The visits of one step in order, without the last where it is joined to the first."""

    place: np.ndarray
    """(visits,) int lane of a stage."""
    kind: np.ndarray
    """(visits,) int which durations."""
    run: np.ndarray
    """(visits,) int run of equal layers in which a visit starts; -1 for the first visit."""
    layer: np.ndarray
    """(visits,) int layer of the run in which a visit starts."""
    done: np.ndarray
    """(visits,) int layers of the step that are done before a visit; of tokens ready at once the one with fewer is first."""
    counts: np.ndarray
    """(runs,) int layers."""
    per: np.ndarray
    """(runs,) int visits a layer."""
    first: np.ndarray
    """(kinds + 1,) int first block of each kind of visit in `block`; the last kind is the end of a step that is joined."""
    block: np.ndarray
    """Blocks that a kind of visit is made of."""
    lone: np.ndarray
    """(blocks,) int kind of visit that a block inside a layer is alone in, whose lane does nothing else; else -1."""
    starts: np.ndarray
    """(blocks,) int 1 for the first block of a kind of layer."""
    times: np.ndarray
    """(blocks,) executions in a step."""
    layers: int
    """Of a step."""
    joined: int
    alone: int
    """1 where there is one lane in all."""
    places: int


@bare
def durations(way: Way, seconds: np.ndarray, made: np.ndarray, skip: np.ndarray) -> None:
    """Write how long every kind of visit takes (s), and 1 into `skip` for those that no token ever waits for.

    Tokens come to a lane of its own at least as far apart as the block before takes, which serves one token at a time.
    """
    for k in range(made.shape[0]):
        made[k], skip[k] = 0.0, 0
        for e in range(way.first[k], way.first[k + 1]):
            made[k] += seconds[way.block[e]]
    gate = 0.0
    for k in range(seconds.shape[0]):
        if way.starts[k] == 1:
            gate = 0.0
        if way.lone[k] >= 0 and seconds[k] <= gate:
            skip[way.lone[k]] = 1
        else:
            gate = seconds[k]


@within
def next_token(at: np.ndarray, ready: np.ndarray, tokens: int, way: Way, limit: int) -> int:
    """The token that is ready first (of equal ones that of the lower layer, then of the lower number).

    -1 when all have ended step number `limit`.
    """
    found, least, done = -1, 0.0, 0
    for b in range(tokens):
        if found >= 0 and ready[b] > least:
            continue
        if at[STEP, b] > limit or (at[STEP, b] == limit and (at[POSITION, b] > 0 or way.joined == 0)):
            continue
        own = way.done[at[POSITION, b]] + at[STEP, b] * way.layers
        if found < 0 or ready[b] < least or own < done:
            found, least, done = b, ready[b], own
    return found


@within
def go_on(at: np.ndarray, b: int, way: Way, made: np.ndarray, skip: np.ndarray) -> float:
    """Move a token behind its visit, and behind those after it that it need not wait for; the seconds (s) of these."""
    total = 0.0
    v = at[POSITION, b] + 1
    last = way.place.shape[0]
    while v < last and skip[way.kind[v]] == 1:
        total += made[way.kind[v]]
        v += 1
    if v == last:
        v = 0
        at[STEP, b] += 1
    at[POSITION, b] = v
    return total


@bare
def drained(
    at: np.ndarray, ready: np.ndarray, free: np.ndarray, tokens: int, limit: int, way: Way, made: np.ndarray, skip: np.ndarray
) -> float:
    """End (s) of the step number `limit` when nothing follows it; the state is used up."""
    end = 0.0
    for b in range(tokens):
        end = max(end, ready[b])
    while True:
        b = next_token(at, ready, tokens, way, limit)
        if b < 0:
            return end
        v = at[POSITION, b]
        ends = v == 0 and at[STEP, b] == limit  # what is left of a step that is joined to the next
        took = made[made.shape[0] - 1] if ends else made[way.kind[v]]
        if v == 0 and way.joined == 1 and 0 < at[STEP, b] < limit:
            took += made[made.shape[0] - 1]
        now = max(ready[b], free[way.place[v]]) + took
        free[way.place[v]] = now
        end = max(end, now)
        ready[b] = now + go_on(at, b, way, made, skip)


@within
def earliest(ready: np.ndarray, tokens: int) -> float:
    """The smallest of some times (s)."""
    found = ready[0]
    for b in range(1, tokens):
        found = min(found, ready[b])
    return found


@within
def moved_alike(ready: np.ndarray, free: np.ndarray, old_ready: np.ndarray, old_free: np.ndarray, tokens: int) -> bool:
    """Whether all times (s) differ from older ones by as much; a lane free before a token comes is as good as free then."""
    moved, tolerance = ready[0] - old_ready[0], SAME * ready[0]
    for b in range(1, tokens):
        if abs(ready[b] - old_ready[b] - moved) > tolerance:
            return False
    idle, old_idle = earliest(ready, tokens), earliest(old_ready, tokens)
    for k in range(free.shape[0]):  # noqa: SIM110  plain for numba
        if abs(max(free[k], idle) - max(old_free[k], old_idle) - moved) > tolerance:
            return False
    return True


@within
def layers_on(at: np.ndarray, old: np.ndarray, tokens: int, way: Way) -> int:
    """How many layers further all tokens stand in one run, each at the same visit (no unit); 0 where they do not."""
    run = way.run[at[POSITION, 0]]
    if run < 0:
        return 0
    layers = way.layer[at[POSITION, 0]] - way.layer[old[POSITION, 0]]
    for b in range(tokens):
        v, before = at[POSITION, b], old[POSITION, b]
        if (
            at[STEP, b] != at[STEP, 0] or old[STEP, b] != at[STEP, 0] or way.run[v] != run or way.run[before] != run
            or v - before != layers * way.per[run]
        ):  # fmt: skip
            return 0
    return max(layers, 0)


@within
def jump(at: np.ndarray, ready: np.ndarray, free: np.ndarray, tokens: int, layers: int, moved: float, way: Way) -> None:
    """Repeat a cycle of `layers` layers that takes `moved` (s) as often as all tokens stay in their run of layers."""
    furthest = 0
    for b in range(tokens):
        furthest = max(furthest, way.layer[at[POSITION, b]])
    run = way.run[at[POSITION, 0]]
    times = (way.counts[run] - 1 - furthest) // layers
    if times <= 0:
        return
    idle = earliest(ready, tokens)
    for k in range(free.shape[0]):
        free[k] = max(free[k], idle) + moved * times
    for b in range(tokens):
        ready[b] += moved * times
        at[POSITION, b] += layers * times * way.per[run]
        if at[POSITION, b] == way.place.shape[0]:  # the last visit of the last layer, joined to the next step
            at[POSITION, b] = 0
            at[STEP, b] += 1


@within
def a_step_on(at: np.ndarray, old: np.ndarray, tokens: int) -> bool:
    """Whether every token stands where it stood a step before (times in s are compared elsewhere)."""
    for b in range(tokens):  # noqa: SIM110  plain for numba
        if at[POSITION, b] != old[POSITION, b] or at[STEP, b] != old[STEP, b] + 1:
            return False
    return True


@within
def keep_state(state: np.ndarray, times: np.ndarray, lanes_free: np.ndarray, tokens: int, target: int) -> None:
    """Copy a whole state, times in s, from number 0."""
    for b in range(tokens):
        times[target, b] = times[0, b]
        state[target, POSITION, b], state[target, STEP, b] = state[0, POSITION, b], state[0, STEP, b]
    for k in range(lanes_free.shape[1]):
        lanes_free[target, k] = lanes_free[0, k]


@bare
def walk(
    tokens: int, way: Way, made: np.ndarray, skip: np.ndarray, rounds: int, state: np.ndarray, times: np.ndarray,
    lanes_free: np.ndarray, ends: np.ndarray,
) -> None:  # fmt: skip
    """Ends (s) of 1, 2, ..., `rounds` steps one behind the other, each as if nothing followed it; ends : (rounds,) s, out.

    made : (kinds,) s; skip : (kinds,) int. Room to work in, for at least so many tokens: state (4, N_STATE, tokens) int,
    times (4, tokens), lanes_free (4, places): now, kept, drained, and at the end of the last step.
    """
    at, ready, free = state[0], times[0], lanes_free[0]
    at[:], ready[:], free[:] = 0, 0.0, 0.0
    keep_state(state, times, lanes_free, tokens, 1)
    passed, keep, target = 0, 1, 1
    joint = made[made.shape[0] - 1] if way.joined == 1 else 0.0
    while True:
        b = next_token(at, ready, tokens, way, rounds + 1)
        v = at[POSITION, b]
        if v == 0 and at[STEP, b] == target:
            if target > 1 and a_step_on(at, state[3], tokens) and moved_alike(ready, free, times[3], lanes_free[3], tokens):
                for k in range(target - 1, rounds):
                    ends[k] = ends[k - 1] + ready[0] - times[3, 0]
                return
            keep_state(state, times, lanes_free, tokens, 3)
            keep_state(state, times, lanes_free, tokens, 2)
            ends[target - 1] = drained(state[2], times[2], lanes_free[2], tokens, target, way, made, skip)
            target += 1
            if target > rounds:
                return
        took = made[way.kind[v]] + (joint if v == 0 and at[STEP, b] > 0 else 0.0)
        now = max(ready[b], free[way.place[v]]) + took
        free[way.place[v]] = now
        done, step = way.done[v], at[STEP, b]
        ready[b] = now + go_on(at, b, way, made, skip)
        if b != 0 or (way.done[at[POSITION, 0]] == done and at[STEP, 0] == step):
            continue
        # token 0 is in a further layer: compare with an older one, kept twice as long every time (Brent, BIT 20, 1980)
        passed += 1
        layers = layers_on(at, state[1], tokens, way)
        if layers > 0 and moved_alike(ready, free, times[1], lanes_free[1], tokens):
            jump(at, ready, free, tokens, layers, ready[0] - times[1, 0], way)
            passed, keep = 0, 1
        elif passed == keep:
            passed, keep = 0, 2 * keep
        else:
            continue
        keep_state(state, times, lanes_free, tokens, 1)


@bare
def steady(
    tokens: int, way: Way, seconds: np.ndarray, rounds: int, made: np.ndarray, skip: np.ndarray, state: np.ndarray,
    times: np.ndarray, lanes_free: np.ndarray, ends: np.ndarray,
) -> tuple[float, float]:  # fmt: skip
    """(makespan, period) in s: the end of an isolated step, and the time between two steps of a sequence in steady state.

    One token, or one lane, is a sum. Else the period is the last of the first `rounds` steps' when those before it took as
    long, and the mean from there to the last of `ends` when they did not. seconds : (blocks,) s. Room: made, skip : (kinds,)
    s and int; state, times, lanes_free as in `walk`; ends : (steps,).
    """
    if tokens == 1 or way.alone == 1:
        total = 0.0
        for k in range(seconds.shape[0]):
            total += seconds[k] * way.times[k]
        return tokens * total, tokens * total
    durations(way, seconds, made, skip)
    walk(tokens, way, made, skip, rounds, state, times, lanes_free, ends)
    last, many = ends[rounds - 1], ends.shape[0]
    if abs(last - 2.0 * ends[rounds - 2] + ends[rounds - 3]) <= 1e-9 * last:
        return ends[0], last - ends[rounds - 2]
    walk(tokens, way, made, skip, many, state, times, lanes_free, ends)
    return ends[0], (ends[many - 1] - last) / (many - rounds)
