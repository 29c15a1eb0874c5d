"""The trace file says what the timeline says, in a form that viewers read."""

import itertools
import json
from collections import defaultdict

import pytest

from hwmodel.report import trace
from hwmodel.run import run
from hwmodel.scenario import load_scenario

H100 = "h100_llama_70b_decode"
CASES = {
    "decode": (H100, ["workload.batch=64"]),
    "afd": ("rubin_lpx_deepseek_v3", []),
    "pipeline": (H100, ["plan=[{pipeline: {stages: 4}}]", "workload.batch=64"]),
}


@pytest.fixture(scope="module", params=CASES)
def result(request):
    return run(load_scenario(*CASES[request.param]))


def complete(found):
    return [event for event in found["traceEvents"] if event["ph"] == "X"]


def test_the_file_is_strict_json_and_sorted(result, tmp_path):
    path = tmp_path / "trace.json"
    trace.write(result, path)
    found = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert found == trace.chrome_trace(result)
    times = [event["ts"] for event in complete(found)]
    assert times == sorted(times)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in complete(found))
    assert found["otherData"]["layers"].startswith("all")


def test_every_event_of_the_timeline_is_there(result):
    events = complete(trace.chrome_trace(result))
    assert len(events) == len(list(result.placed.timeline.events()))
    end = max(event["ts"] + event["dur"] for event in events)
    assert end == pytest.approx(result.placed.timeline.makespan_s * 1e6, abs=2e-3)
    layers = {event["args"]["layer"] for event in events if isinstance(event["args"]["layer"], int)}
    assert layers == set(range(len(result.placed.graph.sequence)))


def test_threads_hold_one_thing_at_a_time(result):
    threads = defaultdict(list)
    for event in complete(trace.chrome_trace(result)):
        start, finish = event["ts"], event["ts"] + event["dur"]
        threads[event["pid"], event["tid"]].append((round(start * 1000), round(finish * 1000)))
    for spans in threads.values():
        for one, following in itertools.pairwise(sorted(spans)):
            assert one[1] <= following[0]


def test_durations_add_up_to_the_busy_time_of_each_lane(result):
    found = trace.chrome_trace(result)
    names = {event["pid"]: event["args"]["name"] for event in found["traceEvents"] if event["name"] == "process_name"}
    busy, counts = defaultdict(float), defaultdict(int)
    for event in complete(found):
        busy[names[event["pid"]].partition(":")[0]] += event["dur"]
        counts[names[event["pid"]].partition(":")[0]] += 1
    wanted = defaultdict(float)
    for event in result.placed.timeline.events():
        wanted[trace.process_of(event.lane)] += event.finish_s - event.start_s
    assert set(busy) == set(wanted)
    for name, total in wanted.items():
        assert busy[name] == pytest.approx(total * 1e6, abs=2e-3 * counts[name])


def test_every_process_and_thread_has_a_name(result):
    found = trace.chrome_trace(result)
    named = {(event["pid"], event["tid"]) for event in found["traceEvents"] if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in complete(found)} == named
    text = json.dumps(found["traceEvents"])
    for pool in result.placed.scenario.cluster.pools:
        assert f"{pool.name}: {pool.count:,} x {pool.chip.name}" in text


def test_flops_add_up_to_those_of_the_ops(result):
    total = sum(event["args"]["flops"] for event in complete(trace.chrome_trace(result)))
    assert total == pytest.approx(sum(row.flops * row.count for row in result.ops), rel=1e-9)


def test_a_long_program_is_cut_at_a_whole_layer_and_says_so():
    result = run(load_scenario(*CASES["decode"]))
    found = trace.chrome_trace(result, limit=40)
    events = complete(found)
    assert len(events) <= 40
    assert {event["args"]["layer"] for event in events} == {"embedding", 0, 1, 2}
    assert found["otherData"]["layers"].startswith("first 4 of 82")
