"""The tutorial runs as it is printed; what answers offer a Python session; names load late."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hwmodel as hw

ROOT = Path(__file__).resolve().parents[1]


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(
        str(ROOT / "docs" / "tutorial.md"),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL,
    )
    assert found.attempted > 20
    assert found.failed == 0
    assert (tmp_path / "roofline.png").stat().st_size > 1000


def test_columns_are_the_table() -> None:
    result = hw.run(hw.load("h100_llama_70b_decode"))
    columns, rows = result.columns("ops"), result.to_dict()["ops"]
    assert [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)] == rows
    with pytest.raises(hw.InputError, match="no table 'op', did you mean 'ops'"):
        result.columns("op")


def test_a_notebook_shows_text_as_text() -> None:
    from dataclasses import replace

    scenario = replace(hw.load("h100_llama_70b_decode"), name="<script>alert(1)</script>")
    for found in (hw.run(scenario), hw.fit(scenario), hw.whatif(scenario), hw.compare([scenario])):
        shown = found._repr_html_()
        assert "<script>" not in shown
        assert shown.count("<table>") == shown.count("</table>") >= 1
        assert len(shown) < 40_000
    assert "&lt;script&gt;" in hw.run(scenario)._repr_html_()


def test_every_answer_is_frozen_plain_and_shown() -> None:
    scenario = hw.load("h100_llama_70b_decode")
    result = hw.run(scenario)
    answers = [
        result, hw.fit(scenario), hw.explain(result), hw.whatif(scenario), hw.compare([scenario]), hw.offer(scenario),
        hw.optimize(scenario), hw.simulate("w1_llama_8b_h100"), hw.tiers(hw.load("q07_memory_tiers")), hw.claims(),
    ]  # fmt: skip
    for answer in answers:
        plain = json.loads(json.dumps(answer.to_dict()))
        table = answer.tables()[0]
        columns = answer.columns(table)
        assert {len(values) for values in columns.values()} == {len(plain[table])}
        assert answer._repr_html_().startswith("<table>")
        if isinstance(answer, tuple):
            continue
        with pytest.raises(AttributeError):  # as FrozenInstanceError is
            setattr(answer, next(iter(vars(answer))), None)


def test_what_commands_say_of_measurements_and_racks_is_said_to_python(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same figures as the command line prints as JSON, and the same file; frozen."""
    from hwmodel.cli import cli

    def asked(*args: str) -> dict[str, object]:
        cli.main([*args, "--json"], standalone_mode=False)
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    compared = hw.validate(device="l40s", ops=["gemm"])
    assert json.loads(json.dumps(compared.to_dict())) == asked("validate", "--device", "l40s", "--op", "gemm")
    assert compared.columns("groups")["op"] == ["gemm"] * len(compared.groups)
    plan = hw.racks("deepseek-v3", "groq3_lpu", attention_chip="rubin", context=131072, batch=64, tpot_s=20e-3)
    rest = ("--attention-chip", "rubin", "--context", "131072", "--batch", "64", "--tpot", "20ms")
    assert plan.to_dict() == asked("racks", "deepseek-v3", "--chip", "groq3_lpu", *rest)
    assert repr(plan).endswith(f"racks of 256 groq3_lpu', racks={plan.racks.count})")
    made = hw.calibrate("l40s", "vllm", ops=["gemm"], date="2026-11-30")
    out = str(tmp_path / "a.yaml")
    cli.main(
        ["calibrate", "l40s", "--stack", "vllm", "--op", "gemm", "--date", "2026-11-30", "--out", out], standalone_mode=False
    )
    assert made.write(tmp_path / "b.yaml").read_text() == (tmp_path / "a.yaml").read_text()
    assert made.to_dict()["fits"][0]["op"] == made.columns("fits")["op"][0] == "gemm"
    for answer in (compared, plan, made):
        assert answer._repr_html_().startswith("<table>")
        with pytest.raises(AttributeError):
            setattr(answer, next(iter(vars(answer))), None)


def test_what_racks_and_rows_cannot_say_is_an_error() -> None:
    with pytest.raises(hw.InputError, match="has no routed experts"):
        hw.racks("llama-3.1-8b", "groq3_lpu")
    with pytest.raises(hw.InputError, match="needs a context and a time"):
        hw.racks("deepseek-v3", "groq3_lpu", attention_chip="rubin")
    with pytest.raises(hw.InputError, match="did you mean 'gemm'"):
        hw.calibrate("l40s", "vllm", ops=["gem"])


def test_a_page_is_what_the_command_writes(tmp_path: Path) -> None:
    from hwmodel.cli import cli

    name, other = "h100_llama_70b_decode", "q03_hbm_gpu"
    cli.main(["report", name, "--against", other, "--html", str(tmp_path / "a.html")], standalone_mode=False)
    assert hw.report(name, tmp_path / "b.html", [other]).read_text() == (tmp_path / "a.html").read_text()
    service = hw.simulate("w1_llama_8b_h100", ["serving.trace.requests=50"])
    assert "w1_llama_8b_h100" in hw.report(service, tmp_path / "c.html").read_text()
    with pytest.raises(hw.InputError, match="set against nothing"):
        hw.report(service, tmp_path / "d.html", [name])


def test_a_simulation_says_in_a_line_what_it_gave() -> None:
    service = hw.simulate("w1_llama_8b_h100", ["serving.trace.requests=50"])
    said, plain = repr(service), service.to_dict()
    assert said.startswith("Simulation('w1_llama_8b_h100', requests=50, finished=50, ttft_p50_s=")
    assert f"ttft_p50_s={plain['ttft_s']['p50']:.3g}, tpot_p50_s={plain['tpot_s']['p50']:.3g})" in said
    assert len(said) < 150


def test_a_name_stands_for_its_scenario() -> None:
    name, tiered = "h100_llama_70b_decode", "q07_memory_tiers"
    scenario = hw.load(name)
    assert hw.run(name).to_dict() == hw.run(scenario).to_dict()
    assert hw.fit(name) == hw.fit(scenario)
    assert hw.offer(name).to_dict() == hw.offer(scenario).to_dict()
    assert hw.explain(name, "cost").to_dict() == hw.explain(hw.run(scenario), "cost").to_dict()
    assert hw.whatif(name).tpot_s == hw.whatif(scenario).tpot_s
    assert hw.optimize(name).to_dict() == hw.optimize(scenario).to_dict()
    assert hw.tiers(tiered).to_dict() == hw.tiers(hw.load(tiered)).to_dict()
    assert hw.compare([name, scenario]).rows[0]["tokens_per_s"] == hw.run(name).step.tokens_per_s
    with pytest.raises(hw.InputError, match="did you mean 'h100_llama_70b_decode'"):
        hw.run("h100_llama_70b_decod")


def test_a_sweep_and_a_simulation_are_drawn_as_a_run_is(tmp_path: Path) -> None:
    swept = hw.sweep("h100_llama_70b_decode", {"workload.batch": [1, 8, 64], "workload.context": [2048, 8192]})
    service = hw.simulate("w1_llama_8b_h100", ["serving.trace.requests=50"])
    drawn = [hw.plot("h100_llama_70b_decode", "memory", tmp_path / "memory.svg")]
    drawn += [hw.plot(swept, kind, tmp_path / f"{kind}.svg") for kind in ("pareto", "heatmap")]
    drawn += [hw.plot(service, kind, tmp_path / f"{kind}.svg") for kind in ("over_time", "percentiles")]
    assert all(b"</svg>" in path.read_bytes() for path in drawn)
    for answer, near in ((swept, "pareto"), (service, "over_time")):
        with pytest.raises(hw.InputError, match=f"unknown kind of plot 'roofline' .known: .*{near}"):
            hw.plot(answer, "roofline", tmp_path / "x.svg")


def test_columns_of_a_sweep_cannot_be_written_to() -> None:
    swept = hw.sweep("h100_llama_70b_decode", {"workload.batch": [1, 8]})
    with pytest.raises(ValueError, match="read-only"):
        swept.numbers["tpot_s"][0] = 0.0


def test_every_public_name_is_there_and_said_what_it_does() -> None:
    for name in hw.__all__:
        assert name in dir(hw)
        if name != "__version__":
            assert (getattr(hw, name).__doc__ or "").strip(), name
    assert callable(hw.plot)
    assert callable(hw.run)
    assert callable(hw.optimize)
    assert (Path(hw.__file__).parent / "py.typed").is_file()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, hwmodel; print(sorted({'numpy', 'numba', 'matplotlib', 'pydantic', 'networkx'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
