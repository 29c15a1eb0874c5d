"""The schedule: published pipelines, an independent event simulation, and the closed form over long runs."""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.kernels import schedule
from hwmodel.kernels.schedule import INPUT, PREVIOUS, exact
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.timeline import Program, periods, simulate

Task = tuple[int, float, tuple[int, ...]]
"""Lane, seconds, inputs: earlier tasks of the layer, or INPUT or PREVIOUS."""


@dataclass(frozen=True)
class Plan:
    """Layer kinds, runs of (kind, stage, count), micro-batches."""

    kinds: tuple[tuple[Task, ...], ...]
    runs: tuple[tuple[int, int, int], ...]
    batches: int

    @property
    def layers(self) -> list[tuple[int, int]]:
        """(kind, stage) from the bottom up."""
        return [(kind, stage) for kind, stage, count in self.runs for _ in range(count)]

    def program(self) -> tuple[Program, np.ndarray]:
        """What the kernel takes, and the seconds of every task."""
        tasks = [task for kind in self.kinds for task in kind]
        first = np.cumsum([0, *(len(kind) for kind in self.kinds)])
        inputs = [
            [one if one < 0 else one + int(first[k]) for one in task[2]] for k, kind in enumerate(self.kinds) for task in kind
        ]
        readers: list[list[int]] = [[] for _ in tasks]
        for reader, sources in enumerate(inputs):
            for source in sources:
                if source >= 0:
                    readers[source].append(reader)
        lanes = tuple(str(lane) for lane in range(max(task[0] for task in tasks) + 1))
        stages = 1 + max(stage for _, stage, _ in self.runs)
        layers = np.array(self.layers)
        packed = Program(
            layers[:, 0].copy(), layers[:, 1].copy(), first, np.array([task[0] for task in tasks]), *_ragged(inputs),
            *_ragged(readers), np.arange(len(tasks)), np.ones(len(tasks)), lanes, self.batches, stages,
        )  # fmt: skip
        return packed, np.array([task[1] for task in tasks], dtype=float)


def _ragged(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.cumsum([0, *map(len, rows)]), np.array([x for row in rows for x in row], dtype=np.int64)


def solve(plan: Plan) -> tuple[float, np.ndarray, np.ndarray]:
    packed, seconds = plan.program()
    return simulate(packed, seconds, packed.segment, packed.stage)


# --- published pipelines (theory.md 1.1; MegaScale-Infer, arXiv 2504.02263, eq. 5 where it holds) -------------------
def ping_pong(batches: int, attention: float, ffn: float, wire: float, *, shared: bool = False, layers: int = 61) -> Plan:
    back = 2 if shared else 3
    layer = ((0, attention, (INPUT,)), (2, wire, (0,)), (1, ffn, (1,)), (back, wire, (2,)))
    return Plan((layer,), ((0, 0, layers),), batches)


@pytest.mark.parametrize(
    ("batches", "wire", "shared", "expected"),
    [(3, 40, False, 18_480), (2, 40, False, 17_180), (1, 40, False, 17_080),
     (3, 60, False, 19_720), (3, 60, True, 22_140)],
)  # fmt: skip
def test_published_pipelines(batches: int, wire: float, shared: bool, expected: float) -> None:
    plan = ping_pong(batches, 100, 100, wire, shared=shared)
    packed, seconds = plan.program()
    assert solve(plan)[0] == expected
    assert periods(packed, seconds)[0] == pytest.approx(expected, rel=1e-12)
    assert solve(plan)[0] == reference(plan)[0]


@pytest.mark.parametrize("batches", [3, 4])
@pytest.mark.parametrize("wire", [0, 10, 25, 49])
def test_equation_5_holds_above_the_smallest_number_of_micro_batches(batches: int, wire: float) -> None:
    attention, ffn = 100.0, 80.0
    assert batches * attention >= 2 * (attention + wire)
    total = attention + ffn + 2 * wire + attention * (batches * 61 - 1)
    assert solve(ping_pong(batches, attention, ffn, wire))[0] == pytest.approx(total)


@pytest.mark.parametrize(
    ("batches", "attention", "ffn", "wire"), [(1, 70, 110, 13), (2, 90, 60, 200), (4, 33, 77, 5), (2, 50, 50, 0)]
)
def test_cycle_of_a_layer(batches: int, attention: float, ffn: float, wire: float) -> None:
    slow = max(attention, ffn, wire)
    cycle = max(batches * slow, attention + ffn + 2 * wire)
    ends = [solve(ping_pong(batches, attention, ffn, wire, layers=layers))[0] for layers in (61, 62)]
    assert ends[1] - ends[0] == pytest.approx(cycle)


_seconds = st.integers(1, 200).map(float)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(1, 6), _seconds, _seconds, _seconds, st.integers(1, 20))
def test_closed_form_of_ping_pong(batches: int, attention: float, ffn: float, wire: float, layers: int) -> None:
    slow, once = max(attention, ffn, wire), attention + ffn + 2 * wire
    total = (layers - 1) * max(batches * slow, once) + once + (batches - 1) * slow
    assert solve(ping_pong(batches, attention, ffn, wire, layers=layers))[0] == total


@pytest.mark.parametrize(("batches", "per_layer"), [(4, 40.295), (3, 30.295), (2, 28 + 10 / 61)])
def test_four_stages_per_layer(batches: int, per_layer: float) -> None:
    """AIC++ (arXiv 2605.28302): M s_max + the others' sum / L, where M s_max is no less than the sum of all stages."""
    stages = (10.0, 5.0, 8.0, 5.0)
    found = solve(ping_pong(batches, stages[0], stages[2], stages[1]))[0] / 61
    assert found == pytest.approx(per_layer, abs=0.0005)
    if batches * max(stages) >= sum(stages):
        assert found == pytest.approx(batches * max(stages) + (sum(stages) - max(stages)) / 61, rel=1e-12)


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_links_that_both_directions_share_bind_first(batches: int) -> None:
    for wire in (10, 40, 60, 90):
        own, shared = (solve(ping_pong(batches, 100, 100, wire, shared=one))[0] for one in (False, True))
        assert shared >= own
        if 2 * wire <= 100:
            continue
        assert shared >= 61 * batches * 2 * wire  # every micro-batch crosses twice a layer


@pytest.mark.parametrize("stages", [1, 2, 5])
@pytest.mark.parametrize("batches", [1, 3, 8])
def test_pipeline_of_stages(stages: int, batches: int) -> None:
    plan = Plan((((0, 7.0, (INPUT,)),),), tuple((0, stage, 4) for stage in range(stages)), batches)
    packed, seconds = plan.program()
    # fill and drain: (stages + batches - 1) of a stage; steady: the busier of a stage and a sequence's own way
    assert solve(plan)[0] == (stages + batches - 1) * 28
    makespan, period = periods(packed, seconds)
    assert makespan == pytest.approx((stages + batches - 1) * 28)
    assert period == pytest.approx(max(stages, batches) * 28)


# --- an independent simulation --------------------------------------------------------------------------------------
def reference(plan: Plan) -> tuple[float, dict[tuple[int, int, int], tuple[float, float]]]:
    """(end, (start, finish) of every (batch, layer, task)) by a clock of events.

    A lane of a stage takes blocks by the time they became ready, then by layer, micro-batch and place. A block is what
    follows one another on a lane and waits for nothing outside itself.
    """
    layers = plan.layers
    places = [
        (b, n, t) for b in range(plan.batches) for n, (kind, _) in enumerate(layers) for t in range(len(plan.kinds[kind]))
    ]

    def inputs(place: tuple[int, int, int]) -> list[tuple[int, int, int]]:
        b, n, t = place
        found = []
        for one in plan.kinds[layers[n][0]][t][2]:
            below = n - {INPUT: 1, PREVIOUS: 2}.get(one, 0)
            if below >= 0:
                found.append((b, below, one if one >= 0 else len(plan.kinds[layers[below][0]]) - 1))
        return found

    lane = {p: (layers[p[1]][1], plan.kinds[layers[p[1]][0]][p[2]][0]) for p in places}
    blocks: list[list[tuple[int, int, int]]] = []
    block_of: dict[tuple[int, int, int], int] = {}
    for place in places:
        last = blocks[-1][-1] if blocks else None
        same = last is not None and last[0] == place[0] and lane[last] == lane[place]
        if not same or any(block_of[source] != len(blocks) - 1 for source in inputs(place)):
            blocks.append([])
        blocks[-1].append(place)
        block_of[place] = len(blocks) - 1
    missing = [{(source, place) for place in block for source in inputs(place) if block_of[source] != number}
               for number, block in enumerate(blocks)]  # fmt: skip
    readers = defaultdict(list)
    for number, waits in enumerate(missing):
        for source, place in waits:
            readers[source].append((number, place))
    queue: dict[tuple[int, int], list[tuple[float, int, int, int]]] = defaultdict(list)
    idle = defaultdict(lambda: True)
    times: dict[tuple[int, int, int], tuple[float, float]] = {}
    events: list[tuple[float, int, tuple[int, int, int]]] = []

    def enqueue(number: int, now: float) -> None:
        head = blocks[number][0]
        heapq.heappush(queue[lane[head]], (now, head[1], head[0], number))

    for number, waits in enumerate(missing):
        if not waits:
            enqueue(number, 0.0)
    now = 0.0
    while True:
        for where, ready in queue.items():
            if idle[where] and ready:
                *_, number = heapq.heappop(ready)
                at = now
                for place in blocks[number]:
                    times[place] = (at, at + plan.kinds[layers[place[1]][0]][place[2]][1])
                    at = times[place][1]
                    heapq.heappush(events, (at, number, place))
                idle[where] = False
        if not events:
            break
        now = events[0][0]
        while events and events[0][0] == now:
            _, number, place = heapq.heappop(events)
            for reader, user in readers[place]:
                missing[reader].discard((place, user))
                if not missing[reader]:
                    enqueue(reader, now)
            if place == blocks[number][-1]:
                idle[lane[place]] = True
    assert len(times) == len(places)
    return max(finish for _, finish in times.values()), times


@st.composite
def plans(draw: st.DrawFn, longest: int = 4) -> Plan:
    lanes = draw(st.integers(1, 4))
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        tasks: list[Task] = []
        for t in range(draw(st.integers(1, 6))):
            earlier = draw(st.sets(st.integers(0, t - 1), max_size=2)) if t else set()
            outside = draw(st.sampled_from([INPUT, INPUT, INPUT, PREVIOUS]))
            inputs = tuple(sorted(earlier)) or (outside,)
            tasks.append((draw(st.integers(0, lanes - 1)), float(draw(st.integers(1, 20))), inputs))
        # the last op stands for the layer's output: whatever nothing reads goes into it
        read = {one for task in tasks[:-1] for one in task[2]}
        loose = {t for t in range(len(tasks) - 1) if t not in read}
        lane, seconds, inputs = tasks[-1]
        tasks[-1] = (lane, seconds, tuple(sorted(loose | {one for one in inputs if one >= 0})) or inputs)
        kinds.append(tuple(tasks))
    stage, runs = 0, []
    for _ in range(draw(st.integers(1, 4))):
        runs.append((draw(st.integers(0, len(kinds) - 1)), stage, draw(st.integers(1, longest))))
        stage += draw(st.integers(0, 1))
    return Plan(tuple(kinds), tuple(runs), draw(st.integers(1, 4)))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(plans())
def test_exact_equals_the_event_simulation(plan: Plan) -> None:
    end, start, finish = solve(plan)
    expected, times = reference(plan)
    assert end == expected
    base = np.cumsum([0, *(len(plan.kinds[kind]) for kind, _ in plan.layers)])
    for (b, n, t), (begin, stop) in times.items():
        assert (start[b, base[n] + t], finish[b, base[n] + t]) == (begin, stop), (b, n, t)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(plans())
def test_lanes_do_one_thing_and_inputs_come_first(plan: Plan) -> None:
    end, start, finish = solve(plan)
    layers = plan.layers
    base = np.cumsum([0, *(len(plan.kinds[kind]) for kind, _ in layers)])
    lanes = defaultdict(list)
    busy: dict[tuple[int, int], float] = defaultdict(float)
    total = 0.0
    for b in range(plan.batches):
        for n, (kind, stage) in enumerate(layers):
            for t, (lane, seconds, inputs) in enumerate(plan.kinds[kind]):
                at = base[n] + t
                assert finish[b, at] == start[b, at] + seconds
                lanes[stage, lane].append((start[b, at], finish[b, at]))
                busy[stage, lane] += seconds
                total += seconds
                for one in inputs:
                    below = n - {INPUT: 1, PREVIOUS: 2}.get(one, 0)
                    if below >= 0:
                        source = base[n] + one if one >= 0 else base[below + 1] - 1
                        assert start[b, at] >= finish[b, source]
    for spans in lanes.values():
        spans.sort()
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans))
    path = reference(replace(plan, batches=1, kinds=_own_lanes(plan.kinds)))[0]
    assert max(path, *busy.values()) <= end <= total


def _own_lanes(kinds: tuple[tuple[Task, ...], ...]) -> tuple[tuple[Task, ...], ...]:
    """Every task on a lane of its own: what is left is the critical path."""
    number = iter(range(1000))
    return tuple(tuple((next(number), seconds, inputs) for _, seconds, inputs in kind) for kind in kinds)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(plans(longest=60))
def test_closed_form_equals_the_whole_schedule(plan: Plan) -> None:
    packed, seconds = plan.program()
    makespan, period = periods(packed, seconds)
    assert makespan == pytest.approx(solve(plan)[0], rel=1e-9)
    one, two, three, many = (
        simulate(packed, seconds, np.tile(packed.segment, n), np.tile(packed.stage, n))[0] for n in (1, 2, 3, 11)
    )
    if three - two == pytest.approx(two - one, rel=1e-9):
        assert period == pytest.approx(three - two, rel=1e-9)
    else:  # not steady after three steps: the mean of the next eight
        assert period == pytest.approx((many - three) / 8, rel=1e-9)


@settings(derandomize=True, max_examples=10, deadline=None)
@given(plans())
def test_compiled_equals_interpreted(plan: Plan) -> None:
    compiled = schedule.scheduled
    packed, seconds = plan.program()
    width = sum(len(plan.kinds[kind]) for kind, _ in plan.layers)
    found = []
    for kernel in (compiled, compiled.py_func):
        start = np.zeros((plan.batches, width))
        finish = np.zeros_like(start)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(schedule, "scheduled", kernel)
            end = exact(
                packed.segment, packed.stage, packed.tasks, packed.lane, packed.inputs, packed.input, packed.follow,
                packed.after, seconds, plan.batches, len(packed.lanes), packed.stages, start, finish,
            )  # fmt: skip
        found.append((end, start.tolist(), finish.tolist()))
    assert found[0] == found[1]


# --- real graphs ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("rubin_lpx_deepseek_v3", []),
        ("rubin_lpx_deepseek_v3", ["plan.0.disaggregate.micro_batches=4"]),
        ("h100_llama_70b_decode", ["plan.0={pipeline: {stages: 4}}"]),
        ("h100_llama_70b_decode", ["plan.0={tensor: {degree: 2}}", "cluster.pools.gpu.count=2"]),
    ],
)
def test_timeline_of_a_scenario_is_a_schedule(name: str, changes: list[str]) -> None:
    result = run(load_scenario(name, changes))
    line = result.placed.timeline
    lanes = defaultdict(list)
    for event in line.events():
        lanes[event.stage, event.lane].append((event.start_s, event.finish_s))
    for spans in lanes.values():
        spans.sort()
        assert all(later[0] >= earlier[1] - 1e-15 for earlier, later in pairwise(spans))
    assert periods(line.program, np.array([0.0] * len(line.program.order))) == (0, 0)
    busiest = max(sum(stop - begin for begin, stop in spans) for spans in lanes.values())
    assert line.period_s >= busiest * (1 - 1e-9)
    assert line.makespan_s >= line.period_s * (1 - 1e-9)
    assert max(stop for spans in lanes.values() for _, stop in spans) == pytest.approx(line.makespan_s)


@pytest.mark.parametrize(("first", "second"), [(6, 6), (6, 9), (9, 6), (20, 7), (7, 20), (40, 40)])
@pytest.mark.parametrize("batches", [2, 3])
def test_runs_on_lanes_of_their_own_count_together(first: int, second: int, batches: int) -> None:
    """Layers of one op of a second, then others on another lane: a two-stage flow shop, a + (m - 1) max(a, b) + b.

    Cut short, each run alone grows by all micro-batches a layer, but both together by one less where they are as long.
    """
    plan = Plan((((0, 1.0, (INPUT,)),), ((1, 1.0, (INPUT,)),)), ((0, 0, first), (1, 0, second)), batches)
    packed, seconds = plan.program()
    expected = first + (batches - 1) * max(first, second) + second
    assert simulate(packed, seconds, packed.segment, packed.stage)[0] == expected
    assert periods(packed, seconds)[0] == pytest.approx(expected, rel=1e-12)
