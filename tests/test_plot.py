"""What the pictures show is what the result says; files are written, the same bytes each time."""

import importlib
import itertools
import math
import struct

import pytest

from hwmodel import figures
from hwmodel.kernels import columns as c
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec.errors import InputError

plot = importlib.import_module("hwmodel.plot")  # hw.plot is the function

H100 = "h100_llama_70b_decode"
CASES = {
    "decode": (H100, ["workload.batch=64"]),
    "afd": ("rubin_lpx_deepseek_v3", []),
    "prefill": (H100, ["workload.phase=prefill", "workload.new_tokens=2048", "workload.batch=1"]),
    "moe": (H100, ["model=mixtral-8x7b"]),
    "pipeline": (H100, ["plan=[{pipeline: {stages: 4}}]", "workload.batch=64"]),
    "too_big": (H100, ["workload.batch=512"]),
}


@pytest.fixture(scope="module", params=CASES)
def result(request):
    return run(load_scenario(*CASES[request.param]))


@pytest.fixture(scope="module")
def decode():
    return run(load_scenario(*CASES["decode"]))


@pytest.mark.parametrize("kind", plot.KINDS)
def test_a_picture_is_written(decode, kind, tmp_path):
    path = tmp_path / f"{kind}.png"
    plot.KINDS[kind](decode, path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert 1000 <= width <= 4000
    assert 300 <= height <= 3000
    assert len(data) > 15_000


def test_every_picture_of_every_case_can_be_drawn(result, tmp_path):
    for kind, draw in plot.KINDS.items():
        path = tmp_path / f"{kind}.svg"
        draw(result, path)
        assert path.stat().st_size > 10_000


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_same_result_gives_the_same_bytes(decode, suffix, tmp_path):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        plot.memory(decode, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_an_unknown_suffix_is_a_users_mistake(decode, tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        plot.layers(decode, tmp_path / "x.bmp")


def test_layer_bars_add_up_to_the_layers_of_the_result(result):
    bars = plot.layer_bars(result)
    for bar in bars:
        assert sum(bar.by_bound.values()) == pytest.approx(bar.time_s, rel=1e-9)
    drawn = sum(bar.time_s * bar.count for bar in bars if "layer" in bar.label)
    assert drawn == pytest.approx(sum(row.time_s * row.count for row in result.layers), rel=1e-9)
    assert sum(bar.count for bar in bars if "layer" in bar.label) == len(result.placed.graph.sequence)


def test_a_dot_stands_at_the_flops_and_bytes_of_its_op_below_its_ceilings(result):
    index = result.placed.table.index
    for pool in result.placed.scenario.cluster.pools:
        found = plot.dots(result, pool.name)
        tiers, peaks = plot.ceilings(result, pool.name)
        assert {tier.tier for tier in pool.chip.memory} == set(tiers)
        for dot in found:
            priced = result.placed.priced[index[dot.op.name]]
            assert dot.flops_per_s == pytest.approx(priced[c.FLOPS] / priced[c.TIME])
            moved = priced[c.WEIGHT_BYTES] + priced[c.KV_BYTES] + priced[c.ACTIVATION_BYTES]
            assert dot.intensity >= priced[c.FLOPS] / moved * (1 - 1e-9)
            assert dot.flops_per_s <= peaks[dot.dtype] * (1 + 1e-9)
            assert dot.flops_per_s <= tiers[dot.tier] * dot.intensity * (1 + 1e-9)


def test_bytes_through_the_slowest_tier_explain_the_memory_time(result):
    checked = 0
    for op, priced in zip(result.placed.table.ops, result.placed.priced, strict=True):
        if priced[c.MEMORY] <= 0 or priced[c.BOUND_TIER] < 0:
            continue
        device = result.placed.device[0, result.placed.table.device_rows.index(op.pool)]
        reached = device[c.TIER + int(priced[c.BOUND_TIER])]
        moved = figures.bytes_through(result, op, priced)
        assert moved / reached + device[c.RAMP] == pytest.approx(priced[c.MEMORY], rel=1e-9)
        checked += 1
    assert checked > 5


def test_shares_of_the_dots_are_within_the_step(decode):
    assert 0.5 < sum(dot.share for dot in plot.dots(decode, "gpu")) <= 1


def test_memory_bars_fill_the_capacity_or_say_that_they_do_not(result):
    for row, (label, capacity, uses) in zip(result.memory, plot.memory_bars(result), strict=True):
        assert row.pool in label
        assert row.tier in label
        filled = sum(uses.values())
        assert filled == pytest.approx(capacity) if row.free_bytes >= 0 else filled > capacity


def test_what_does_not_fit_is_marked(tmp_path):
    path = tmp_path / "memory.svg"
    plot.memory(run(load_scenario(*CASES["too_big"])), path)
    fits = tmp_path / "fits.svg"
    plot.memory(run(load_scenario(*CASES["decode"])), fits)
    red = f"stroke: {plot.RED.lower()}"
    assert red in path.read_text()
    assert red not in fits.read_text()


def test_the_window_holds_events_that_do_not_overlap_in_a_lane(result):
    start, end, events = plot.window(result)
    assert 0 <= start < end <= result.placed.timeline.makespan_s * (1 + 1e-9)
    lanes = {(event.lane, event.stage) for event in events}
    assert lanes <= set(plot.lanes_of(result))
    for lane in lanes:
        inside = sorted((e.start_s, e.finish_s) for e in events if (e.lane, e.stage) == lane)
        for one, following in itertools.pairwise(inside):
            assert one[1] <= following[0] + 1e-12


def test_the_window_is_a_few_layers_from_the_middle(decode):
    start, end, events = plot.window(decode)
    assert {event.layer for event in events} == {39, 40, 41}
    assert (end - start) / decode.step.time_s == pytest.approx(3 / 82, rel=0.1)


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"), [(2.0, "s", 2.0), (0.0179, "ms", 17.9), (2.2e-4, "us", 220.0), (3e-8, "ns", 30.0)]
)
def test_units_keep_numbers_readable(seconds, unit, shown):
    factor, name = plot.unit_of(seconds)
    assert name == unit
    assert math.isclose(seconds * factor, shown)
