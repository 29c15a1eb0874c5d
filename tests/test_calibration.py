"""Measured rows to calibrations: the grid, the correction, the fit of known parameters, few rows, bad files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from scipy.sparse import csr_matrix, diags

from hwmodel.bounded import Bound
from hwmodel.calibrate import RUNS, calibrate, calibrate_all, fit_of, left_out, text_of
from hwmodel.calibration import Calibration, Fit, calibration_of, corrections, load_calibration
from hwmodel.gridfit import Lattice, Smoothness
from hwmodel.hardware import load_chip
from hwmodel.kernels import columns as c
from hwmodel.kernels.correction import FADE, N_AXES, correct
from hwmodel.likeness import WIDER, alike, calibration_for, drawn_from, kinship
from hwmodel.measured import Rows, form_of, read
from hwmodel.operation import operation
from hwmodel.replay import replay, times
from hwmodel.routing import drawn_loads
from hwmodel.run import run
from hwmodel.scenario import load_scenario
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError
from hwmodel.study import studies

LATTICE = Lattice(((0.0, 1.0, 3.0, 4.0), (2.0, 5.0)))


def fit(**changes: object) -> Fit:
    plain = {
        "op": "gemm",
        "dtype": "bf16",
        "launch": "5 us",
        "compute": 0.8,
        "memory": 0.7,
        "sharpness": 2,
        "low": 0.9,
        "high": 1.2,
    }
    return Fit.model_validate({**plain, **changes})


def gemms(device: str = "h100_sxm", count: int = 200, seed: int = 0, stack: str = "mine") -> Rows:
    """Rows whose times are those of a known fit."""
    rng = np.random.default_rng(seed)
    sizes = {name: 2.0 ** rng.integers(low, 14, count).astype(float) for name, low in (("m", 0), ("n", 7), ("k", 7))}
    rows = Rows("gemm", "gemm", device, stack, "bfloat16", (), "", sizes, np.ones(count), ("1",))
    known = Calibration(chip=device, stack=stack, fits=(fit(),))
    return replace(rows, measured_s=times(replay(rows, load_chip(device), known)))


# --- the grid ----------------------------------------------------------------------------------------------------------


def test_a_smooth_function_is_found_again() -> None:
    rng = np.random.default_rng(1)
    points = rng.uniform([0, 2], [4, 5], (400, 2))
    found = LATTICE.fit(points, 0.3 * points[:, 0] - 0.1 * points[:, 1], np.ones(400), Smoothness(0.01, 1e-6))
    assert found == pytest.approx(0.3 * LATTICE.knots[:, 0] - 0.1 * LATTICE.knots[:, 1], abs=1e-3)


def test_outliers_do_not_bend_the_grid() -> None:
    rng = np.random.default_rng(2)
    points = rng.uniform([0, 2], [4, 5], (400, 2))
    values = np.where(rng.random(400) < 0.1, 3.0, 0.1)
    assert np.abs(LATTICE.fit(points, values, np.ones(400), Smoothness(0.01, 1e-6)) - 0.1).max() < 0.05


def test_without_points_a_grid_is_its_centre() -> None:
    centre = np.arange(8.0)
    far = LATTICE.fit(np.array([[0.0, 2.0]]), np.array([0.0]), np.array([1e-9]), Smoothness(1.0, 1.0), centre)
    assert far == pytest.approx(centre, abs=1e-6)


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (2, 5, 3)])
def test_a_fit_without_outliers_solves_the_normal_equations(shape: tuple[int, ...]) -> None:
    """Whichever axis is longest."""
    rng = np.random.default_rng(5)
    lattice = Lattice(tuple(tuple(map(float, range(count))) for count in shape))
    points, values = rng.uniform(0, 4, (60, len(shape))), rng.normal(0, 0.1, 60)
    weight, centre = rng.uniform(0.5, 1, 60), rng.normal(0, 0.1, int(np.prod(shape)))
    design = lattice.weights(points).toarray()
    system = design.T @ (weight[:, None] * design) + 0.3 * lattice.roughness.toarray() + 0.2 * np.eye(len(centre))
    right = np.linalg.solve(system, design.T @ (weight * (values - design @ centre))) + centre
    found = lattice.fit(points, values, weight, Smoothness(0.3, 0.2, robust=10.0), centre)
    assert found == pytest.approx(right, abs=1e-12)
    there = np.empty(len(centre), dtype=int)
    there[lattice.nearest] = np.arange(len(centre))
    rows, columns = system.nonzero()
    across = int(np.prod(shape)) // max(shape)
    assert np.abs(there[rows] - there[columns]).max() <= 2 * across


def test_nothing_is_smoothed_across_a_step() -> None:
    stepped = Lattice(((0.0, 1.0, 2.0, 2.1, 3.0, 4.0),), ((3,),))
    points = np.concatenate([np.linspace(0, 2, 50), np.linspace(2.1, 4, 50)])[:, None]
    values = np.where(points[:, 0] > 2.05, 1.0, 0.0)
    assert stepped.fit(points, values, np.ones(100), Smoothness(1.0, 1e-6)) == pytest.approx([0, 0, 0, 1, 1, 1], abs=0.01)


@settings(max_examples=50)
@given(st.lists(st.floats(-1, 1), min_size=8, max_size=8), st.floats(0, 1))
def test_a_grid_that_is_held_grows_along_every_axis_and_stays_where_it_grew(values: list[float], growth: float) -> None:
    ramp = LATTICE.knots.sum(axis=1)
    unit = np.eye(8).reshape(*LATTICE.shape, 8)
    steps = np.concatenate([np.diff(unit, axis=axis).reshape(-1, 8) for axis in range(2)])
    bound = Bound(csr_matrix(steps), np.full(len(steps), -growth))
    found = LATTICE.kept(np.array(values), bound)
    assert (steps @ found + growth >= -0.002).all()
    assert LATTICE.kept(ramp, bound) == pytest.approx(ramp, abs=0.01)


def test_a_fit_that_may_not_fall_is_the_isotonic_regression() -> None:
    """Of one knot per point, without stiffness: by the pool of adjacent violators of SciPy."""
    rng = np.random.default_rng(3)
    values = np.linspace(0, 1, 40) + rng.normal(0, 0.5, 40)
    line = Lattice((tuple(map(float, range(40))),))
    bound = Bound(diags([-1.0, 1.0], [0, 1], shape=(39, 40)).tocsr(), np.zeros(39))
    found = line.fit(line.knots, values, np.ones(40), Smoothness(0.0, 1e-9, robust=10.0), bound=bound)
    assert found == pytest.approx(isotonic_regression(values).x, abs=0.005)


# --- the correction ----------------------------------------------------------------------------------------------------


def factor(size: float, knots: tuple[float, ...] = (0.0, 2.0, 4.0), permille: str = "0 100 300") -> float:
    grid = corrections([fit(correction={"axes": {"m": list(knots)}, "permille": permille})])
    device = np.zeros((1, 1, c.N_DEVICE))
    device[0, 0, c.CORRECTION] = 1
    out, features = np.ones((1, 1, c.N_OUT)), np.ones((1, 1, N_AXES))
    features[0, 0, 0] = size
    correct(features, np.zeros((1, c.N_WHERE), np.int64), device, grid.knots, grid.lengths, grid.starts, grid.values, out)
    assert out[0, 0, c.TIME] == out[0, 0, c.MEMORY]
    return float(np.log(out[0, 0, c.TIME]))


def test_a_correction_is_linear_between_knots_held_before_and_fades_behind() -> None:
    assert factor(2.0) == pytest.approx(0.05)
    assert factor(8.0) == pytest.approx(0.2)
    assert factor(0.01) == 0.0
    assert factor(2.0 ** (4 + FADE)) == pytest.approx(0.15)
    assert abs(factor(2.0**60)) < 1e-3


def test_a_correction_in_four_axes_is_the_table_at_its_knots() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-300, 300, (2, 3, 2, 4))
    axes = {"a": [0.0, 1.0], "b": [0.0, 1.0, 3.0], "c": [1.0, 2.0], "d": [0.0, 1.0, 2.0, 3.0]}
    grid = corrections([fit(), fit(correction={"axes": axes, "permille": " ".join(map(str, values.ravel()))})])
    device = np.zeros((1, 1, c.N_DEVICE))
    device[0, 0, c.CORRECTION] = 2
    for place in np.ndindex(*values.shape):
        out, features = np.ones((1, 1, c.N_OUT)), np.ones((1, 1, N_AXES))
        features[0, 0] = [2.0 ** list(axes.values())[axis][i] for axis, i in enumerate(place)]
        correct(features, np.zeros((1, c.N_WHERE), np.int64), device, grid.knots, grid.lengths, grid.starts, grid.values, out)
        assert np.log(out[0, 0, c.TIME]) == pytest.approx(values[place] / 1000, abs=1e-9)


# --- the fit -----------------------------------------------------------------------------------------------------------


def test_known_parameters_are_found_again() -> None:
    chip = load_chip("h100_sxm")
    found = calibrate("h100_sxm", "mine", [gemms()], {"h100_sxm": chip}, "2026-11-30").fits[0]
    assert found.launch_s == pytest.approx(5e-6, rel=0.1)
    assert found.memory == pytest.approx(0.7, rel=0.1)
    assert found.held_out is not None
    assert found.held_out.median < 0.02
    assert found.held_out.p90 < 0.1  # where 160 rows are sparse, what the shipped prior says of real chips comes in
    alone = fit_of(studies([gemms()], {"h100_sxm": chip})["gemm"], 0)
    assert alone.held_out is not None
    assert alone.held_out.median < 0.001
    assert alone.held_out.p90 < 0.06


def test_a_fit_is_the_same_every_time() -> None:
    chips = {"h100_sxm": load_chip("h100_sxm")}
    once, again = (text_of(calibrate("h100_sxm", "mine", [gemms(count=80)], chips, "2026-11-30")) for _ in range(2))
    assert once == again


def test_all_calibrations_come_from_the_tables_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in chips/calibrations/ already, a prior of few-row groups above all, does not change what is written."""
    table = (catalog.shipped("measured") / "collectives.csv").read_text().splitlines()
    rows = [line for line in table if line.startswith(("op,", "all_reduce,h100_sxm,nccl", "all_reduce,h200_sxm,nccl"))]
    (tmp_path / "collectives.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    first, again = (
        {path.name: path.read_text().partition("\n") for path in calibrate_all(tmp_path, tmp_path / folder, "2026-11-30")}
        for folder in ("chips/calibrations", "other")
    )
    assert {name: text[2] for name, text in first.items()} == {name: text[2] for name, text in again.items()}
    for folder, written in (("chips/calibrations", first), ("other", again)):
        assert all((tmp_path / folder / text[0].partition("$schema=")[2]).is_file() for text in written.values())
    assert {"h100_sxm.nccl.yaml", "gpu.nccl.yaml"} <= first.keys()


def test_a_written_calibration_reads_as_it_was(tmp_path: Path) -> None:
    made = calibrate("h100_sxm", "mine", [gemms(count=80)], {"h100_sxm": load_chip("h100_sxm")}, "2026-11-30")
    path = tmp_path / "x.yaml"
    path.write_text(text_of(made))
    read_back = load_calibration(str(path))
    assert read_back.fits[0].correction == made.fits[0].correction
    assert read_back.fits[0].launch_s == pytest.approx(made.fits[0].launch_s, rel=1e-3)


@pytest.mark.parametrize("count", [1, 2])
def test_a_row_or_two_are_a_fit_with_a_wide_band(count: int) -> None:
    rows = gemms(count=count, seed=5)
    made = calibrate("h100_sxm", "mine", [rows], {"h100_sxm": load_chip("h100_sxm")}, "2026-11-30").fits[0]
    assert f"only {count} rows" in made.doubt
    assert made.low < 0.95
    assert made.high > 1.05


@pytest.mark.parametrize("count", [5, 12, 20])
def test_few_rows_are_sensible_and_say_so(count: int) -> None:
    """A chip 20 % slower than another: few rows find it, and shapes they did not hold are not far off."""
    chip, many = load_chip("h100_sxm"), gemms(count=300, seed=9)
    slow = replace(gemms(count=count, seed=3), measured_s=gemms(count=count, seed=3).measured_s * 1.2)
    made = calibrate("h100_sxm", "mine", [slow], {"h100_sxm": chip}, "2026-11-30")
    assert f"only {count} rows" in made.fits[0].doubt
    errors = np.abs(times(replay(many, chip, made)) / (1.2 * many.measured_s) - 1)
    assert np.median(errors) < 0.2
    assert made.fits[0].low < 0.97
    assert made.fits[0].high > 1.03


def test_rows_of_another_chip_are_not_ours() -> None:
    with pytest.raises(InputError, match="no measured rows of h100_sxm under theirs"):
        calibrate("h100_sxm", "theirs", [gemms()], {"h100_sxm": load_chip("h100_sxm")})


@given(st.integers(8, 300), st.integers(1, 8), st.integers(1, 10_000), st.floats(0.1, 2.0))
def test_drawn_loads_are_whole_and_bounded(experts: int, topk: int, tokens: int, a: float) -> None:
    loads = drawn_loads(experts, topk, tokens, a)
    assert loads.sum() == pytest.approx(tokens * topk, rel=1e-3)
    assert loads.max() <= tokens * (1 + 1e-9)
    assert (np.diff(loads) >= -1e-9).all()


# --- files and answers -------------------------------------------------------------------------------------------------

SHIPPED = catalog.names("chips/calibrations")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_calibrations_are_whole(name: str) -> None:
    found = load_calibration(name)
    assert f"{found.chip}.{found.stack}" == name
    assert found.date
    assert found.data
    keys = [item.key for item in found.fits]
    assert len(keys) == len(set(keys))
    for item in found.fits:
        assert item.low < 1 < item.high
        assert found.prior or item.held_out is not None


def test_a_stack_changes_times_and_their_range_and_ideal_does_not_know_it() -> None:
    plain = run(load_scenario("h100_llama_70b_decode"))
    calibrated = run(load_scenario("h100_llama_70b_decode", ["cluster.pools.gpu.stack=vllm"]))
    assert calibrated.step.time_s != plain.step.time_s
    assert calibrated.step.time_low_s < calibrated.step.time_s < calibrated.step.time_high_s
    assert any("calibrated: gpu as h100_sxm.vllm" in text for text in calibrated.assumptions)
    assert any("calibration" in item["input"] for item in calibrated.estimated_inputs)
    ideal = [run(load_scenario("h100_llama_70b_decode", extra), ideal=True) for extra in ([], ["cluster.pools.gpu.stack=vllm"])]
    assert ideal[0].step.time_s == ideal[1].step.time_s


@pytest.mark.parametrize("stack", ["uncalibrated", "vllm", "trtllm"])
def test_what_bounds_an_op_adds_up_to_its_time(stack: str) -> None:
    """Also where compute and memory overlap imperfectly, and under a correction."""
    found = run(load_scenario("h100_mixtral_decode", [f"cluster.pools.gpu.stack={stack}"])).placed.priced
    parts = np.maximum(found[:, c.COMPUTE], found[:, c.MEMORY]) + found[:, c.WIRE] + found[:, c.OVERHEAD]
    assert parts == pytest.approx(found[:, c.TIME], rel=1e-9)


def test_uncalibrated_is_a_stack() -> None:
    plain = run(load_scenario("h100_llama_70b_decode"))
    named = run(load_scenario("h100_llama_70b_decode", ["cluster.pools.gpu.stack=uncalibrated"]))
    assert named.step.time_s == plain.step.time_s
    assert not named.warnings


def test_a_chip_without_measurements_takes_what_its_kind_has_in_common() -> None:
    found = calibration_of("rubin", "gpu", "vllm")
    assert found is not None
    assert found.prior
    assert calibration_of("groq3_lpu", "sram_dataflow", "vllm") is None
    op = operation("gemm", load_chip("rubin"), "bf16", {"m": 64, "n": 8192, "k": 8192}, calibration=found)
    assert op.low_s < op.time_s < op.high_s
    assert "as measured" in op.formula
    assert "as measured" not in operation("gemm", load_chip("rubin"), "bf16", {"m": 64, "n": 8192, "k": 8192}).formula


def test_a_chip_much_like_a_measured_one_takes_its_measurements() -> None:
    chip, measured = load_chip("b300_sxm"), load_chip("b200_sxm")
    assert alike(chip, chip) == 1
    assert alike(chip, measured) > 0.9
    assert alike(chip, load_chip("l40s")) < 0.05
    found, own = calibration_for(chip, "trtllm"), calibration_for(measured, "trtllm")
    assert found is not None
    assert own is not None
    assert found.prior
    assert not own.prior
    for lent, fit_ in zip(found.fits, own.fits, strict=True):
        assert lent.compute == fit_.compute
        assert lent.low < fit_.low < 1 < fit_.high < lent.high
        assert "measured on b200_sxm" in lent.doubt
    assert calibration_for(chip, "uncalibrated") is None
    unlike = calibration_for(load_chip("rtx4090"), "vllm")
    assert unlike is not None
    assert unlike.chip == "gpu"


@pytest.mark.shared
@pytest.mark.parametrize(("device", "lender"), [("h200_sxm", "h100_sxm"), ("gb200", "b200_sxm")])
def test_what_a_like_chip_lends_holds(device: str, lender: str, shared: Path) -> None:
    """Rows of one chip by the calibration of its like: as near, and as often inside the band, as a chip that was left out."""
    inside, errors = [], []
    for rows in read(shared / "measured", ["gemm", "mla_decode"]):
        found = load_calibration(f"{lender}.{rows.stack}") if rows.device == device else None
        item = found.find(rows.kind, form_of(rows)) if found else None
        if found is not None and item is not None:
            ratio = rows.measured_s / times(replay(rows, load_chip(device), found))
            errors.append(np.median(np.abs(1 / ratio - 1)))
            inside.append(np.mean((ratio >= item.low**WIDER) & (ratio <= item.high**WIDER)))
    assert np.median(errors) < 0.1
    assert 0.70 <= np.mean(inside) <= 0.92


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"axes": {"m": [0, 2, 1]}, "permille": "1 2 3"}, "knots must ascend"),
        ({"axes": {"m": [0, 2, 3]}, "permille": "1 2"}, "expected 3 numbers"),
        ({"axes": {"m": [0, 2, 3]}, "permille": "1 2 x"}, "expected whole numbers"),
    ],
)
def test_a_broken_calibration_is_located(tmp_path: Path, change: dict[str, object], words: str) -> None:
    import json

    plain = json.loads(fit().model_dump_json(by_alias=True, exclude_defaults=True))
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps({"chip": "x", "stack": "y", "fits": [{**plain, "correction": change}]}, indent=1))
    with pytest.raises(InputError, match=words) as error:
        load_calibration(str(path))
    assert error.value.problems[0].line


def test_broken_tables_are_located(tmp_path: Path) -> None:
    (tmp_path / "gemm.csv").write_text(
        "device,backend,version,kernel,dtype,m,n,k,latency_us\nh100_sxm,v,1,k,bfloat16,1,x,3,5\n"
    )
    with pytest.raises(InputError, match="expected a number") as error:
        read(tmp_path)
    assert "gemm.csv:2" in str(error.value.problems[0])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds none of the known tables"):
        read(tmp_path / "empty")


# --- chips that were left out --------------------------------------------------------------------------------------------


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["gemm", "attention_decode", "mla_decode", "all_reduce"])
def test_the_interval_of_a_left_out_chip_holds(kind: str, shared: Path) -> None:
    """Leave one device out: 70 to 92 % of its rows lie in the 80 % interval that the other devices give."""
    from hwmodel.calibrate import known_chips

    groups = read(shared / "measured", [kind])
    study = studies(groups, known_chips(groups))[kind]
    inside: list[float] = []
    errors: list[float] = []
    large: list[float] = []
    for device in sorted({sample.rows.device for sample in study.samples}):
        rest = study.without(device)
        for rows in (sample.rows for sample in study.samples if sample.rows.device == device):
            form = form_of(rows)
            others = sorted({s.rows.device for s in rest.samples if form_of(s.rows) == form})
            logs = np.concatenate([np.log(left_out(rest, rows.stack, form, other)) for other in others] or [np.zeros(0)])
            ratio = left_out(study, rows.stack, form, device)
            if len(ratio):
                errors.append(float(np.median(np.abs(ratio - 1))))
            if len(ratio) and kind == "attention_decode":
                large.append(float(np.median(np.abs(ratio - 1)[kv_bytes(rows) > 64e6])))
            if len(logs) and len(ratio):
                low, high = np.quantile(-logs, [0.1, 0.9])
                inside.append(float(np.mean((-np.log(ratio) >= low) & (-np.log(ratio) <= high))))
    assert 0.70 <= np.mean(inside) <= 0.92
    assert np.median(errors) < {"gemm": 0.14, "attention_decode": 0.20, "mla_decode": 0.20, "all_reduce": 0.27}[kind]
    assert not large or np.median(large) < 0.18


def kv_bytes(rows: Rows) -> np.ndarray:
    """Of the caches that each row reads, (rows,); a window reads no more than itself."""
    at = rows.columns
    read_ = np.where(at["window"] > 0, np.minimum(at["window"], at["kv_len"]), at["kv_len"])
    return at["batch"] * read_ * 2 * at["kv_heads"] * at["head_dim"] * (1 if form_of(rows).endswith("fp8") else 2)


@pytest.mark.shared
@pytest.mark.parametrize(("kind", "most"), [("gemm", 0.16), ("mla_decode", 0.30)])
def test_a_chip_unlike_all_others_is_told_from_them(kind: str, most: float, shared: Path) -> None:
    """Each chip left out together with those that would lend it their measurements: what a prior and its band are made of."""
    from hwmodel.calibrate import known_chips

    groups = read(shared / "measured", [kind])
    study = studies(groups, known_chips(groups))[kind]
    ratios = [left_out(study, s.rows.stack, form_of(s.rows), s.rows.device, like=False) for s in study.samples]
    assert np.median([np.median(np.abs(ratio - 1)) for ratio in ratios if len(ratio)]) < most


@pytest.mark.parametrize("stack", sorted(RUNS))
def test_the_prior_of_a_stack_holds_the_collectives_it_runs(stack: str) -> None:
    """By link, as the tables of the library that the stack runs have them; a chip without measurements is priced with them."""
    prior = load_calibration(f"gpu.{stack}")
    assert {fit_.op for fit_ in prior.fits} >= set(RUNS[stack])
    for kind, library in RUNS[stack].items():
        theirs = load_calibration(f"gpu.{library}")
        for fit_ in (item for item in theirs.fits if item.op == kind):
            ours = prior.find(kind, fit_.dtype, fit_.link)
            assert ours == fit_
            assert fit_.low < 1 < fit_.high
    rubin = calibration_for(load_chip("rubin"), stack)
    shape = {"chips": 8, "bytes": 1 << 20}
    found = operation("all_reduce", load_chip("rubin"), "bf16", shape, calibration=rubin)
    assert "as measured" in found.formula
    assert found.time_s != operation("all_reduce", load_chip("rubin"), "bf16", shape).time_s


@pytest.mark.shared
def test_collectives_of_a_stack_hold_on_a_chip_that_was_left_out(shared: Path) -> None:
    """All-reduces of serving stacks, each device left out in turn: typical parameters are near and their band holds."""
    from hwmodel.calibrate import known_chips

    groups = read(shared / "measured", ["all_reduce"])
    study = studies(groups, known_chips(groups))["all_reduce"]
    errors, inside = [], []
    for stack in (RUNS[name]["all_reduce"] for name in RUNS):
        devices = sorted({s.rows.device for s in study.samples if s.rows.stack == stack})
        for device in devices:
            ratio = left_out(study, stack, "bytes", device)
            logs = np.log(np.concatenate([left_out(study, stack, "bytes", other) for other in devices if other != device]))
            low, high = np.quantile(-logs, [0.1, 0.9])
            errors.append(np.median(np.abs(ratio - 1)))
            inside.append(np.mean((-np.log(ratio) >= low) & (-np.log(ratio) <= high)))
    assert np.median(errors) < 0.30
    assert 0.70 <= np.mean(inside) <= 0.92


def test_a_prior_weighs_the_chips_that_are_like() -> None:
    """Between the parameters of its members, nearest to those of the chip most like it; equal members change nothing."""
    chip, members = load_chip("a800_sxm"), ("a100_sxm", "b200_sxm", "l40s")
    prior = load_calibration("gpu.trtllm")
    item = prior.find("mla_decode", "bf16/bf16")
    assert item is not None
    drawn = drawn_from(item, {name: kinship(chip, load_chip(name)) for name in item.members})
    own = item.members["a100_sxm"]
    assert kinship(chip, load_chip("a100_sxm")) == 1
    assert min(part.memory for part in item.members.values()) <= drawn.memory < item.memory
    assert abs(np.log(drawn.memory / own.memory)) < abs(np.log(item.memory / own.memory))
    even = drawn_from(item, dict.fromkeys(item.members, 1.0))
    assert even.compute == pytest.approx(item.compute, rel=2e-3)
    assert even.launch_s == pytest.approx(item.launch_s, rel=2e-3)
    assert {*members} <= {*item.members}


def test_a_prior_of_collectives_keeps_links_apart() -> None:
    """Chips on NVLink and cards on PCIe reach other shares of their links; a chip takes what chips with its link reach."""
    prior = calibration_of("rubin", "gpu", "nccl")
    assert prior is not None
    found = {link: prior.find("all_reduce", "bytes", link) for link in ("nvlink", "pcie", "tin cans", "")}
    assert found["nvlink"] is not None
    assert found["pcie"] is not None
    assert found["nvlink"].memory > 2 * found["pcie"].memory
    assert found["tin cans"] == found[""]
    assert found[""] is not None
    assert found["pcie"].memory < found[""].memory < found["nvlink"].memory
    step = {
        chip: operation("all_reduce", load_chip(chip), "bf16", {"chips": 4, "bytes": 1 << 28}, calibration=prior).time_s
        for chip in ("rubin", "rtx4090")
    }
    for chip, link in (("rubin", "nvlink"), ("rtx4090", "pcie")):
        fit_ = found[link]
        assert fit_ is not None
        alone = prior.model_copy(update={"fits": (fit_.model_copy(update={"link": ""}),)})
        by_hand = operation("all_reduce", load_chip(chip), "bf16", {"chips": 4, "bytes": 1 << 28}, calibration=alone).time_s
        assert step[chip] == pytest.approx(by_hand, rel=1e-12)
