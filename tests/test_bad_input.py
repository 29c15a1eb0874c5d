"""Bad input: whatever a file, option or setting says, the answer is a placed message and exit status 2 - or an answer.

No traceback, no hang, no memory blow-up, no code run.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwmodel import cli
from hwmodel.hardware import chip_from, load_chip
from hwmodel.model import counts
from hwmodel.model.load import load_model
from hwmodel.run import run
from hwmodel.scenario import load_scenario, override, scenario_from
from hwmodel.spec import catalog, units, yamlfile
from hwmodel.spec.errors import InputError, Problem, shortened
from hwmodel.spec.yamlfile import Document

ROOT = Path(__file__).resolve().parents[1]
CHIP = (ROOT / "chips" / "h100_sxm.yaml").read_text()
LLAMA, RUBIN = "h100_llama_70b_decode", "rubin_lpx_deepseek_v3"
CONFIG: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 4096, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Fail rather than hang, where the platform has alarms (a compiled loop is not interrupted)."""
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: object) -> None:
        raise AssertionError(f"took over {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(capsys: Capture, *args: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of the command line."""
    with at_most(20), pytest.raises(SystemExit) as left:
        cli.main(list(args))
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def refused(capsys: Capture, *args: str) -> str:
    """What is said on standard error when the input is bad; nothing on standard output."""
    status, out, err = call(capsys, *args)
    assert (status, out) == (2, ""), err
    assert "Traceback" not in err
    assert "internal error" not in err
    assert all(len(line) < 3000 for line in err.splitlines())
    return err


# ---- chips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "report", "explain", "simulate", "optimize", "sweep", "fit"])
def test_rows_where_a_question_is_asked_for_say_where_rows_go(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = tmp_path / "points.csv"
    points.write_text("point,workload.batch,feasible\n0,1,true\n")
    said = refused(capsys, command, str(points), *(["--html", str(tmp_path / "page.html")] if command == "report" else []))
    assert f"points.csv: is no {'sweep' if command == 'sweep' else 'scenario'} but rows: points of a sweep go to" in said
    assert "'hwmodel plot' and 'compare', requests to 'hwmodel trace' and 'simulate --trace'" in said


@pytest.mark.parametrize(
    ("old", "new", "spot", "words"),
    [
        ("kind: gpu", "kind: gpuu", "gpuu", "kind: 'gpuu' is not one of gpu, tpu, "),
        ("kind: gpu", "kind: gpuu", "gpuu", "did you mean 'gpu'?"),
        ("kind: gpu", "kind: gpu\nkind: cpu", "kind: cpu", "key 'kind' is given twice (first on line 4)"),
        ("kind: gpu", "kind: gpu\nknd: 3", "knd", "unknown key 'knd', did you mean 'kind'?"),
        ('released: "2022"', "released: 2022", "2022", "released: expected text, got 2022; put it in quotes"),
        ("area: 814 mm2", "area: 814", "814", "area: 814 needs a unit, such as '814 mm2'"),
        ("area: 814 mm2", "area: 814 W", "814", "'814 W' is in W; expected mm2, such as '814 mm2'"),
        ("area: 814 mm2", "area: [1, 2]", "[1", "expected a quantity such as '814 mm2', got [1, 2]"),
        ("area: 814 mm2", "area: .nan", ".nan", "needs a unit"),
        ("area: 814 mm2", "area: -814 mm2", "-814", "must not be negative, got '-814 mm2'"),
        ("area: 814 mm2", "area: 1e400 mm2", "1e400", "expected a finite number, got '1e400 mm2'"),
        ("area: 814 mm2", "area: 1e40 mm2", "1e40", "is absurdly large: '1e40 mm2'"),
        ("area: 814 mm2", f"area: {'9' * 5000} mm2", "9999", "expected a quantity such as '814 mm2', got '9999"),
        ("area: 814 mm2", "area: {valu: 814 mm2}", "{valu", "unknown key 'valu' in a quantity"),
        ("area: 814 mm2", "area: {note: x}", "{note", "needs 'value'"),
        ("area: 814 mm2", "area: {value: 1 mm2, range: 3}", "{value", "range must be two quantities"),
        ("area: 814 mm2", "area: {value: 1 mm2, range: [2 mm2, 3 mm2]}", "{value", "does not hold the value"),
        ("area: 814 mm2", "area: {value: 2 mm2, range: [3 mm2, 1 mm2]}", "{value", "ends the wrong way round"),
        ("area: 814 mm2", "area: {value: 1 mm2, status: sure}", "{value", "status must be one of published, "),
        ("area: 814 mm2", "area: {value: 1 mm2, source: [x]}", "{value", "source must be text"),
        ("status: published\narea", "status: sure\narea", "sure", "status: 'sure' is not one of published, derived"),
        ("bf16: 989.4 TFLOP/s", "bf16: 989.4 TB/s", "989.4 TB/s",
         "peaks.bf16: '989.4 TB/s' is in B/s; expected FLOP/s, such as '989.4 TFLOP/s'"),
        ("bf16: 989.4 TFLOP/s", "bf16: 989.4 TFLOP/S", "989.4 TFLOP/S", "did you mean 'TFLOP/s'?"),
        ("bf16: 989.4 TFLOP/s", "bf16: 0 TFLOP/s", "0 TFLOP/s", "peaks.bf16: must be more than zero"),
        ("bf16: 989.4 TFLOP/s", "bf17: 989.4 TFLOP/s", "bf17", "peaks.bf17: unknown key 'bf17', did you mean 'bf16'?"),
        ("capacity: 80 GB", "capacity: 80 GB/s", "80 GB/s", "memory[1].capacity: '80 GB/s' is in B/s; expected B, such as"),
        ("bandwidth: 3.35 TB/s", "bandwith: 3.35 TB/s", "bandwith", "memory[1].bandwith: unknown key 'bandwith', did"),
        ("bandwidth: 3.35 TB/s", "bandwidth: 0 TB/s", "0 TB/s", "memory[1].bandwidth: must be more than zero"),
        ("range: [0.89, 0.93]", "range: [0, 1.2]", "{value: 0.91", "memory[1].efficiency: must be more than zero over"),
        ("value: 0.91, range: [0.89, 0.93]", "value: 1.5", "{value: 1.5", "efficiency: is a share of the peak: at most 1"),
        ("tier: hbm", "tier: l2", "l2\n", "memory[1].tier: 'l2' is named twice"),
        ("tier: hbm", "tier: h.b:m", "h.b:m", "memory[1].tier: a name is one word of letters, digits, _ and -"),
        ("tier: hbm", "tier: hbm\n    cache: true", "memory:", "memory: needs at least one tier that is not a cache"),
        ("name: nic", "name: nvlink", "nvlink\n    bandwidth: 50", "links[1].name: 'nvlink' is named twice"),
        ("domain: 8", "domain: 0", "0\n    topology", "links[0].domain: must be at least 1, got 0"),
        ("domain: 8", "domain: true", "true\n    topology", "links[0].domain: expected a number, got true"),
        ("topology: switch", "topology: star", "star", "links[0].topology: 'star' is not one of switch, all_to_all"),
        ("reduces: true", "reduces: maybe", "maybe", "links[0].reduces: expected true or false, got 'maybe'"),
        ("cores: 132", "cores: 0.5", "0.5", "execution.cores: must be at least 1"),
        ("[[128, 256], [128, 128], [64, 128], [64, 64]]", "[[0, -1]]", "0, -1", "execution.tiles[0][0]: must be at least 1"),
        ("[[128, 256], [128, 128], [64, 128], [64, 64]]", "[]", "[]", "execution.tiles: needs at least 1 of them"),
        ("[[128, 256], [128, 128], [64, 128], [64, 64]]", "[[1, 2, 3]]", "[1, 2", "execution.tiles[0]: "),
        ("cores: 132", "cors: 132", "tiles:", "execution: missing key 'cores'"),
        ("power:", "power: 3\nmore:", "3", "power: expected a mapping of keys to values, got 3"),
    ],
)  # fmt: skip
def test_chips(old: str, new: str, spot: str, words: str, capsys: Capture) -> None:
    text = CHIP.replace(old, new, 1)
    Path("bad.yaml").write_text(text)
    said = refused(capsys, "chips", "./bad.yaml")
    assert words in said
    start = (
        text.index(new.split(spot, maxsplit=1)[0] + spot.rstrip("\n")) + len(new.split(spot, maxsplit=1)[0])
        if spot in new
        else -1
    )
    if start >= 0:
        line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
        assert f"bad.yaml:{line}:{column}: " in said
        assert said.rstrip().endswith("^")


def test_all_problems_of_a_chip_at_once(capsys: Capture) -> None:
    text = CHIP.replace("kind: gpu", "kind: gpuu").replace("80 GB\n", "80\n").replace("cores: 132", "cors: 132")
    Path("bad.yaml").write_text(text)
    said = refused(capsys, "chips", "./bad.yaml")
    assert said.count("error: ") == 4
    assert all(word in said for word in ("'gpuu'", "80 needs a unit", "'cors', did you mean 'cores'", "missing key 'cores'"))


def test_unusable_numbers_of_a_chip_at_once(capsys: Capture) -> None:
    text = CHIP.replace("bf16: 989.4", "bf16: 0").replace("3.35 TB/s", "0 TB/s").replace("cores: 132", "cores: 0")
    Path("bad.yaml").write_text(text)
    assert refused(capsys, "chips", "./bad.yaml").count("must be more than zero") == 3


def test_only_the_first_problems_are_told(capsys: Capture) -> None:
    Path("bad.yaml").write_text(CHIP + "".join(f"\nk{number}: 1" for number in range(1000)))
    said = refused(capsys, "chips", "./bad.yaml")
    assert said.count("error: ") == 51
    assert "and 950 more problems" in said


def test_extended_chips(capsys: Capture) -> None:
    Path("one.yaml").write_text("extends: ./two.yaml\n")
    Path("two.yaml").write_text("extends: ./one.yaml\n")
    assert "two.yaml:1:10: extends: './one.yaml' leads back" in refused(capsys, "chips", "./one.yaml")
    Path("one.yaml").write_text("extends: h100\n")
    said = refused(capsys, "chips", "./one.yaml")
    assert "one.yaml:1:10: extends: no chip named 'h100', did you mean 'h100_sxm'?" in said
    Path("one.yaml").write_text("extends: [h100_sxm]\n")
    assert "one.yaml:1:10: extends: expected the name or path" in refused(capsys, "chips", "./one.yaml")
    Path("one.yaml").write_text("extends: ./two.yaml\nkind: cpu\n")
    Path("two.yaml").write_text("extends: h100_sxm\nkind: x\n")
    assert refused(capsys, "chips", "./one.yaml").startswith("error: two.yaml:2:7: kind: 'x' is not one of")
    layer = "extends: h100_sxm\nmemory:\n  - tier: hbm\n    bandwith: 3 TB/s\n  - {tier: ddr, capacity: 3 GB}\n"
    Path("one.yaml").write_text(layer)
    said = refused(capsys, "chips", "./one.yaml")
    assert "one.yaml:4:5: memory[1].bandwith: unknown key 'bandwith', did you mean 'bandwidth'?" in said
    assert "one.yaml:5:5: memory[2]: missing key 'bandwidth'" in said
    Path("one.yaml").write_text("extends: h100_sxm\nmemory: []\nlinks: [{name: [x]}]\n")
    said = refused(capsys, "chips", "./one.yaml")
    assert "one.yaml:3:16: links[0].name: expected text, got ['x']" in said


# ---- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.yaml", b"", "expected a mapping of keys to values, got nothing"),
        ("a.yaml", b"[1, 2]", "a.yaml:1:1: expected a mapping of keys to values, got [1, 2]"),
        ("a.yaml", b"a: 1\nb: \xff\xfe", "a.yaml:2:1: byte 8 is not UTF-8 text"),
        ("a.yaml", bytes(range(256)), "not UTF-8"),
        ("a.yaml", b"a: \x00", "not valid YAML: control characters"),
        ("a.yaml", b"a: [1, 2", "a.yaml:1:9: not valid YAML: "),
        ("a.yaml", b"a: b: c", "a.yaml:1:5: not valid YAML: mapping values are not allowed"),
        ("a.yaml", b"a: &x [1]\nb: *x", "a.yaml:1:4: anchors and aliases are not read"),
        ("a.yaml", b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]", "anchors and aliases are not read"),
        ("a.yaml", b"a: !!python/object/apply:os.system ['touch ran']", "tags such as '!!python/object/apply:os.system'"),
        ("a.yaml", b"a: !!int 3", "a.yaml:1:4: tags such as '!!int' are not read"),
        ("a.yaml", b"a: 1\n---\na: 2", "a second document ('---')"),
        ("a.yaml", b"[a]: 1", "a.yaml:1:1: a key must be a plain word"),
        ("a.yaml", b"? {a: b}\n: 1", "a key must be a plain word"),
        ("a.yaml", b"null: 1\n3: 2\ntrue: 3\n'': 4", "a.yaml:4:1: unknown key ''"),
        ("a.yaml", b"[" * 100_000, "nest"),
        ("a.yaml", b"".join(b" " * n + b"a:\n" for n in range(200)), "a.yaml:61:61: is nested more than 60 deep"),
        ("a.yaml", b"- " * 100_000, "nest"),
        ("a.yaml", b"a: " + b"9" * 10_000_000, "is 10,000,003 bytes; files over 4,000,000 bytes are not read"),
        ("a.yaml", b"a: " + b"9" * 3_000_000, "unknown key 'a'"),
        ("a.yaml", b"- a\n" * 500_000, "a.yaml:400000:3: more than 400,000 values"),
        ("a.json", b"", "a.json:1:1: not valid JSON"),
        ("a.json", b'{"a": 1,}', "a.json:1:9: not valid JSON: "),
        ("a.json", b'{"kind": "gpu",\n "kind": "cpu"}', "a.json:2:2: key 'kind' is given twice in one object (first on"),
        ("a.json", b"[" * 100_000 + b"]" * 100_000, "a.json: is nested too deeply"),
        ("a.json", b"[" * 100 + b"]" * 100, "a.json: is nested more than 60 deep"),
        ("a.json", b'{"a": 1' + b"0" * 5000 + b"}", "a.json: has a whole number of thousands of digits"),
        ("a.json", b'{"area": 1' + b"0" * 400 + b"}", "a.json:1:10: area: a number of over 40 digits needs a unit"),
        ("a.json", b'{"a": "\\ud800"}', "half of a surrogate pair"),
        ("a.json", b'{"\x1b[31m": NaN}', "not valid JSON"),
    ],
)  # fmt: skip
def test_files(name: str, data: bytes, words: str, capsys: Capture) -> None:
    Path(name).write_bytes(data)
    assert words in refused(capsys, "chips", f"./{name}")
    refused(capsys, "model", f"./{name}")
    refused(capsys, "run", f"./{name}")
    assert not Path("ran").exists()


def test_places_that_are_no_files(capsys: Capture) -> None:
    Path("folder").mkdir()
    assert "folder: is a folder, expected a file" in refused(capsys, "chips", "folder/")
    assert "folder: is a folder without a config.json" in refused(capsys, "model", "folder/")
    assert refused(capsys, "trace", "gone.csv") == "error: gone.csv: no such file\n"
    for line in (["trace", "gone.jsonl"], ["run", "gone.parquet"], ["report", "gone.csv", "--html", "page.html"]):
        assert f"{line[1]}: no such file" in refused(capsys, *line)
    assert "gone.yaml: no such file (chip)" in refused(capsys, "chips", "gone.yaml")
    Path("mine.yaml").write_text(CHIP)
    assert "no such file (chip), did you mean 'mine'?" in refused(capsys, "chips", "mina.yaml")
    if hasattr(os, "mkfifo"):
        os.mkfifo("pipe.yaml")
        os.mkfifo("pipe.json")
        assert "pipe.yaml: is no regular file" in refused(capsys, "chips", "pipe.yaml")
        assert "pipe.json: is no regular file" in refused(capsys, "model", "pipe.json")
    if Path("/dev/zero").exists():
        assert "/dev/zero: is no regular file" in refused(capsys, "run", "/dev/zero")
        assert "model: /dev/zero: is no regular file" in refused(capsys, "run", LLAMA, "--set", "model=/dev/zero")
    for name in ("", " ", "a\0b", "x" * 300, "x" * 300 + ".yaml", "x" * 5000, "\udcff", "\udcff.yaml", "[/b]"):
        for command in ("chips", "model", "run"):
            if name or command != "chips":
                refused(capsys, command, name)


# ---- models --------------------------------------------------------------------------------------------------------

EXPLICIT = """
hidden_size: 1024
vocab_size: 32000
layers:
  - attention: {kind: attention, heads: 16, kv_heads: 4, head_dim: 64}
    ffn: {kind: moe, experts: 16, topk: 2, expert_inter: 512}
"""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"quantization_config": {"quant_method": "fp8", "ignore": ["re:(a+)+$"]}},
            "pattern 're:(a+)+$' is too complex",
        ),
        ({"quantization_config": {"quant_method": "fp8", "ignore": ["a*" * 20]}}, "at most 4 wildcards"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": ["re:(?i)x"]}}, "is too complex"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": ["re:" + "(" * 5000]}}, "is too complex"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": [3]}}, "expected a list of module names"),
        ({"num_local_experts": 10**7}, "num_local_experts: expected a whole number from 1 to 100,000"),
        (
            {"layer_types": [f"x{number}" for number in range(2000)], "num_hidden_layers": 2000},
            "unknown layer kind 'x0'",
        ),
        ({"hidden_size": 10**400}, "hidden_size: expected a whole number from 1 to 1,000,000, got a number of over 40"),
        ({"architectures": [["x"]]}, "architectures"),
    ],
)
def test_models(change: dict[str, Any], words: str, capsys: Capture) -> None:
    Path("bad.json").write_text(json.dumps({**CONFIG, **change}, indent=1))
    said = refused(capsys, "model", "bad.json")
    assert words in said
    assert "bad.json:" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("experts: 16", "experts: 10000000", "bad.yaml:6:31: layers[0].ffn.experts: must be at most 100,000"),
        ("kind: moe", "kind: mo", "layers[0].ffn.kind: unknown ffn kind 'mo', did you mean 'moe'?"),
        ("heads: 16", "heads: -16", "layers[0].attention.heads: must be at least 1, got -16"),
        ("heads: 16", "heads: true", "layers[0].attention.heads: expected a number, got true"),
        ("heads: 16", "haeds: 16", "did you mean 'heads'?"),
        ("vocab_size: 32000", "vocab_size: 1e300", "vocab_size: expected a whole number, got 1e+300"),
        ("layers:", "layer:", "bad.yaml:2:1: "),
    ],
)
def test_written_out_models(old: str, new: str, words: str, capsys: Capture) -> None:
    Path("bad.yaml").write_text(EXPLICIT.replace(old, new, 1))
    assert words in refused(capsys, "model", "./bad.yaml")


def test_many_layers_of_different_kinds(capsys: Capture) -> None:
    layer = "  - ffn: {{kind: ffn, inter: {}}}\n"
    text = EXPLICIT.partition("layers:")[0] + "layers:\n" + "".join(layer.format(n + 1) for n in range(500))
    Path("bad.yaml").write_text(text)
    assert "500 different kinds of layers" in refused(capsys, "model", "./bad.yaml")


def test_thousands_of_unknown_keys_are_summed_up(capsys: Capture) -> None:
    Path("odd.json").write_text(json.dumps({**CONFIG, **{f"odd_{number}": 1 for number in range(20_000)}}))
    status, _, err = call(capsys, "model", "odd.json", "--json")
    assert status == 0
    assert err.count("warning: ") <= 52
    assert "19,950 more keys are not understood" in err


# ---- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("workload.batch", "expected key.path=value, such as workload.batch=64"),
        ("=5", "expected key.path=value"),
        ("workload..batch=5", "expected key.path=value"),
        (".".join("a" * 50) + "=5", "expected key.path=value"),
        ("workload.batch=", "workload.batch: expected a whole number, got nothing"),
        ("workload.batch=abc", "workload.batch: expected a whole number, got 'abc'"),
        ("workload.batch=1.5", "workload.batch: expected a whole number, got 1.5"),
        ("workload.batch=true", "workload.batch: expected a number, got true"),
        ("workload.batch=[1]", "workload.batch: expected a whole number, got [1]"),
        ("workload.batch=0", "workload.batch: must be at least 1, got 0"),
        ("workload.batch=1000000000", "workload.batch: must be at most 10,000,000, got 1000000000"),
        ("workload.context=1000000000000000", "workload.context: must be at most 10,000,000"),
        ("workload.batch={", "not valid YAML"),
        ("workload.batch=*a", "anchors and aliases are not read"),
        ("workload.batch=!!python/name:os.system", "tags such as '!!python/name:os.system' are not read"),
        ("workload.batch=" + "[" * 3000, "nest"),
        ("workload.batch=" + "9" * 6000, "workload.batch: expected a whole number, got '9999"),
        ("workload.batch=\x1b[31m", "control characters are not allowed"),
        ("workload.bach=4", "workload.bach: unknown key 'bach', did you mean 'batch'?"),
        ("wrkload.batch=4", "wrkload: unknown key 'wrkload', did you mean 'workload'?"),
        ("workload=5", "workload: expected a mapping of keys to values, got 5"),
        ("workload.batch.x=5", "workload.batch is a single value, it has no key 'x'"),
        ("workload.phase=decod", "workload.phase: 'decod' is not one of decode, prefill, mixed, did you mean 'decode'?"),
        ("workload.routing.s=.nan", "workload.routing.s: expected a number, got nan"),
        ("workload.routing={kind: zipf, s: 11}", "workload.routing.s: must be at most 10, got 11"),
        ("workload.speculative={draft: 99, acceptance: 0.5}", "workload.speculative.draft: must be at most 32, got 99"),
        ("workload.speculative={draft: 2, acceptance: 0.5}", "has no multi-token-prediction module to draft with"),
        ("plan.5.tensor.degree=3", "plan has 1 entry, the first is number 0; got 5"),
        ("plan.x.tensor.degree=3", "plan is a list: index it by number, not 'x'"),
        ("plan.²=3", "plan is a list: index it by number, not '²'"),
        ("plan." + "9" * 5000 + "=3", "plan is a list: index it by number"),
        ("cluster.links.0.latency=10us", "cluster.links is not in the file; set the whole list"),
        ("cluster.pools={}", "cluster.pools: needs at least 1 of them"),
        ("cluster.pools.gpu.count=1000000000000", "cluster.pools.gpu.count: must be at most 10,000,000"),
        ("cluster.pools.a>b.chip=h100_sxm", "a pool's name has letters, digits, _ and - only"),
        ("cluster.pools.a:b.chip=h100_sxm", "a pool's name has letters, digits, _ and - only"),
        ("cluster.pools={'a.b': {chip: h100_sxm}}", "got 'a.b'"),
        ("cluster.pools={'': {chip: h100_sxm}}", "got ''"),
        ("cluster.pools.gpu.chip=h100", "cluster.pools.gpu.chip: no chip named 'h100', did you mean 'h100_sxm'?"),
        ("cluster.pools.gpu.chip=3", "expected the name or path of a chip, or a chip written out, got 3"),
        ("cluster.pools.gpu.chip={extends: h100}", "cluster.pools.gpu.chip.extends: no chip named 'h100'"),
        ("cluster.pools.gpu.chip={extends: h100_sxm, memory: []}", "chip.memory: needs at least one tier"),
        ("cluster.pools.gpu.chip={extends: h100_sxm, peaks: 3}", "chip.peaks: expected a mapping of keys to values, got 3"),
        ("cluster.pools.gpu.memory_reserve=1", "memory_reserve: must be a share of the memory, less than 100 %"),
        ("cluster.pools.gpu.memory_reserve=.nan", "memory_reserve: expected a finite number, got nan"),
        ("cluster.pools.gpu.override.memory.hbm.bandwith=4 TB/s", "did you mean 'memory.hbm.bandwidth'?"),
        ("cluster.pools.gpu.override.memory.hbm.bandwidth=0 TB/s", "memory.hbm.bandwidth: must be more than zero"),
        ("cluster.pools.gpu.override.memory.hbm.bandwidth=4 TB", "'4 TB' is in B; expected B/s, such as '3.35 TB/s'"),
        ("cluster.pools.gpu.override.efficiency.compute=2", "efficiency.compute: is a share of the peak"),
        ("cluster.pools.gpu.override={1: 2}", "has no number '1'"),
        ("cluster.pools.gpu.override={memory: [1]}", "has no number 'memory'"),
        ("cluster.pools.gpu.override={memory.hbm.bandwidth: {value: 4 TB}}", "'4 TB' is in B; expected B/s"),
        ("cluster.pools.gpu.override={price: {rental: {value: 2 USD/h, range: [3 USD/h, 4 USD/h]}}}", "not hold the value"),
        ("cluster.pools.gpu.override={price: {rental: {value: 2 USD/h, rnge: 3}}}", "unknown key 'rnge' in a quantity"),
        ("cluster.pools.gpu.override={efficiency: {compute: {value: 0.7, range: [0, 0.8]}}}", "more than zero over its whole"),
        ("cluster.pools.gpu.override={peaks.bf16: 1e-300 FLOP/s}", "is absurdly small: '1e-300 FLOP/s'"),
        ("cluster.pools.gpu.override={execution.launch: 1e300 s}", "is absurdly large: '1e300 s'"),
        ("dtypes.weights=int3", "dtypes.weights: unknown dtype 'int3', did you mean 'int8'?"),
        ("dtypes.kv=8", "dtypes.kv: expected text, got 8; put it in quotes"),
        ("dtypes.weight=fp8", "dtypes.weight: unknown key 'weight', did you mean 'weights'?"),
        ("model=llama-3.1-70", "model: no model named 'llama-3.1-70', did you mean 'llama-3.1-70b'?"),
        ("model=3", "model: expected text, got 3; put it in quotes"),
        ("model=no/such.yaml", "model: no/such.yaml: no such file (model)"),
        ("x" * 5000 + "=3", "unknown key 'xxxx"),
    ],
)  # fmt: skip
def test_settings(setting: str, words: str, capsys: Capture) -> None:
    said = refused(capsys, "run", LLAMA, "--set", setting)
    assert words in said
    assert "error: --set " in said


def test_a_setting_is_named_where_it_leaves_a_gap(capsys: Capture) -> None:
    said = refused(capsys, "run", LLAMA, "--set", "workload.phase=prefill")
    assert "workload: phase prefill needs 'new_tokens'" in said
    assert "(with --set workload.phase=prefill)" in said


def test_all_settings_are_read(capsys: Capture) -> None:
    bad = ("workload.batch", "plan.9.x=1", "a=[")
    assert refused(capsys, "run", LLAMA, *(text for item in bad for text in ("--set", item))).count("error: ") == 3


# ---- plans and clusters ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("5", "plan: expected a list, got 5"),
        ("[5]", "plan[0]: expected a mapping of keys to values, got 5"),
        ("[null]", "plan[0]: expected a mapping of keys to values, got nothing"),
        ("[{}]", "plan[0]: expected one strategy, such as 'tensor: {degree: 4}', got none"),
        ("[{tensor: {degree: 4}, expert: {degree: 2}}]", "such as 'tensor: {degree: 4}', got 'tensor' and 'expert'"),
        ("[{tensr: {degree: 2}}]", "plan[0].tensr: unknown strategy 'tensr', did you mean 'tensor'?"),
        ("[{null: {}}]", "unknown strategy 'null' (known: context, data, "),
        ("[{tensor: 4}]", "expected the fields of 'tensor' as a mapping, such as {degree: ...}, got 4"),
        ("[{tensor: {}}]", "plan[0].tensor: missing key 'degree'"),
        ("[{tensor: {degre: 2}}]", "plan[0].tensor.degre: unknown key 'degre', did you mean 'degree'?"),
        ("[{tensor: {degree: 0}}]", "plan[0].tensor.degree: must be at least 1, got 0"),
        ("[{tensor: {degree: 2, pool: gpux}}]", "plan[0].tensor.pool: no pool named 'gpux', did you mean 'gpu'?"),
        ("[{single: {pool: x}}]", "plan[0].single.pool: no pool named 'x' (known: gpu, lpx)"),
        ("[{tensor: {degree: 2}}, {tensor: {degree: 4}}]", "plan[1].tensor: plan[0] is 'tensor' for pool gpu already"),
        ("[{expert: {degree: 2}}, {expert: {degree: 2}}]", "plan[1].expert: plan[0] is 'expert' for pool gpu already"),
        ("[{data: {degree: 2}}, {data: {degree: 3, pool: gpu}}]", "plan[0] is 'data' for pool gpu already"),
        ("[{pipeline: {stages: 2}}, {pipeline: {stages: 3}}]", "plan[0] is 'pipeline' for pool gpu already"),
        ("[{offload: {to: lpx}}, {offload: {to: lpx}}]", "plan[1].offload: plan[0] is 'offload' for pool gpu already"),
        ("[{disaggregate: {to: lpx}}, {disaggregate: {to: lpx}}]", "plan[0] is 'disaggregate' already"),
        ("[{layers: {split: {gpu: 30, lpy: 31}}}]", "plan[0].layers.split.lpy: no pool named 'lpy', did you mean 'lpx'?"),
        ("[{disaggregate: {move: heads, to: lpx}}]", "'heads' is not one of experts, ffn, attention"),
        ("[{disaggregate: {to: lpx, micro_batches: 10000000}}]", "micro_batches: must be at most 128, got 10000000"),
        ("[{micro_batch: {count: 10000000}}]", "plan[0].micro_batch.count: must be at most 128, got 10000000"),
        ("[{pipeline: {stages: 10000000}}]", "plan[0].pipeline.stages: must be at most 512"),
        ("[{pipeline: {stages: 4, micro_batches: 10000000}}]", "plan[0].pipeline.micro_batches: must be at most 128"),
        ("[{expert: {degree: 8, dispatch: fp3}}]", "plan[0].expert.dispatch: unknown dtype 'fp3'"),
        ("[{expert: {degree: 8, exchange: mail}}]", "'mail' is not one of auto, all_to_all, all_reduce"),
        ("[{offload: {}}]", "say where the experts are kept: either 'to: POOL' or 'tier: TIER'"),
        ("[{offload: {to: gpu}}]", "plan[0].offload.to: pool gpu has the experts already"),
        ("[{offload: {tier: l2}}]", "plan[0].offload.tier: chip rubin keeps nothing in a tier 'l2' (known: hbm, lpddr)"),
        ("[{offload: {to: lpx, fraction: .nan}}]", "plan[0].offload.fraction: expected a number, got nan"),
    ],
)  # fmt: skip
def test_plans(plan: str, words: str, capsys: Capture) -> None:
    assert words in refused(capsys, "run", RUBIN, "--set", f"plan={plan}")


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ("[]", "pools 'gpu' and 'lpx' exchange tensors but no link joins them; add to cluster.links: {from: gpu, to: lpx"),
        ("3", "cluster.links: expected a list, got 3"),
        ("[{from: gpu, to: gpu, bandwidth: 1 GB/s, latency: 1 us}]", "cluster.links[0]: joins pool gpu to itself"),
        ("[{from: gpu, to: lpy, bandwidth: 1 GB/s, latency: 1 us}]", "cluster.links[0].to: no pool named 'lpy', did you"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1 us, per: x}]", "cluster.links[0].per: no pool named 'x'"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1 us, per: lpx, over: nik}]",
         "cluster.links[0].over: rubin of pool gpu has no link 'nik'; it has nvlink, nic, c2c, pcie"),
        ("[{from: gpu, to: lpx, bandwidth: 0 GB/s, latency: 1 us}]", "cluster.links[0].bandwidth: must be more than zero"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB, latency: 1 us}]", "'1 GB' is in B; expected B/s, such as '3.35 TB/s'"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1}]", "cluster.links[0].latency: 1 needs a unit, such as '3 us'"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1 us, efficiency: 0}]", "efficiency: must be more than zero"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1 us, efficiency: 110 %}]", "at most 1, or 100 %"),
        ("[{from: gpu, to: lpx, bandwidth: 1 GB/s, latency: 1 us},"
         " {from: lpx, to: gpu, bandwidth: 1 GB/s, latency: 1 us}]", "cluster.links[1]: joins lpx and gpu, as links[0] does"),
    ],
)  # fmt: skip
def test_links_between_pools(links: str, words: str, capsys: Capture) -> None:
    assert words in refused(capsys, "run", RUBIN, "--set", f"cluster.links={links}")


@pytest.mark.parametrize(
    "plan",
    [
        "[{tensor: {degree: 3}}]", "[{tensor: {degree: 10000000}}]", "[{expert: {degree: 10000000}}]",
        "[{context: {degree: 7}}]", "[{data: {degree: 3}}]", "[{pipeline: {stages: 62}}]", "[{layers: {split: {}}}]",
        "[{layers: {split: {gpu: 3, lpx: 4}}}]", "[{offload: {to: lpx, fraction: 0.001}}]", "[{single: {pool: lpx}}]",
        "[{disaggregate: {to: lpx, move: attention}}]", "[{disaggregate: {to: gpu}}]",
        "[{offload: {to: lpx}}, {disaggregate: {to: lpx}}]", "[{expert: {degree: 3, pool: lpx}}]",
    ],
)  # fmt: skip
def test_infeasible_plans_are_priced(plan: str, capsys: Capture) -> None:
    status, out, _ = call(capsys, "run", RUBIN, "--json", "--set", f"plan={plan}")
    answer = json.loads(out)
    assert status == 3
    assert answer["feasible"] is False
    assert answer["reasons"]
    assert answer["step"]["time_s"] > 0


def test_an_expert_degree_on_a_dense_model_is_infeasible(capsys: Capture) -> None:
    status, out, _ = call(capsys, "run", LLAMA, "--json", "--set", "plan=[{expert: {degree: 2}}]")
    assert status == 3
    assert "nothing to split by expert" in json.loads(out)["reasons"][0]


@pytest.mark.parametrize(
    "sets",
    [
        ("workload.batch=10000000", "workload.context=10000000", "cluster.pools.gpu.count=10000000"),
        (
            "workload.batch=10000000",
            "workload.phase=prefill",
            "workload.new_tokens=10000000",
            "workload.cached=10000000",
        ),
        ("workload.batch=10000000", "workload.phase=mixed", "workload.new_tokens=10000000", "plan=[]"),
        ("workload.routing={kind: zipf, s: 10}", "workload.batch=10000000"),
        ("plan=[{context: {degree: 8}}, {expert: {degree: 8}}]", "workload.phase=prefill", "workload.new_tokens=100"),
        ("workload.speculative={draft: 32, acceptance: 1}",),
    ],
)
def test_the_largest_questions_are_answered(sets: tuple[str, ...], capsys: Capture) -> None:
    status, out, _ = call(capsys, "run", RUBIN, "--json", *(text for item in sets for text in ("--set", item)))
    assert status in (0, 3)
    assert json.loads(out)["step"]["time_s"] > 0


def test_all_problems_of_a_scenario_at_once(capsys: Capture) -> None:
    Path("bad.yaml").write_text(
        "model: lama-3.1-8b\nclustr: {}\ndtypes: {kv: fp3}\ncluster:\n  pools:\n    gpu: {chip: h100, count: -1}\n"
        "plan:\n  - tensr: {}\n  - tensor: {degre: 4}\nworkload: {phase: decode, batch: 16, contxt: 3}\n"
    )
    said = refused(capsys, "run", "./bad.yaml")
    expected = ["2:1: clustr: unknown key", "6:30: cluster.pools.gpu.count: must be at least 1",
                "10:38: workload.contxt: unknown",
                "1:8: model: no model named", "8:5: plan[0].tensr: unknown strategy",
                "9:14: plan[1].tensor.degre: unknown key",
                "6:17: cluster.pools.gpu.chip: no chip named 'h100', did you mean 'h100_sxm'?"]  # fmt: skip
    assert [item for item in expected if f"bad.yaml:{item}" not in said] == []
    lines = [int(row.split(":")[2]) for row in said.splitlines() if row.startswith("error: ")]
    assert lines == sorted(lines)


def test_what_fits_the_schema_but_not_together_at_once(capsys: Capture) -> None:
    Path("bad.yaml").write_text(
        "model: lama-3.1-8b\ndtypes: {kv: fp3, weights: int5}\ncluster:\n  pools:\n    g>u: {chip: h100, memory_reserve: 2}\n"
        "  links: [{from: a, to: b, bandwidth: 1 GB/s, latency: 1 us}]\nplan: [{tensor: {degree: 4, pool: x}}]\n"
        "workload: {context: 3}\n"
    )
    said = refused(capsys, "run", "./bad.yaml")
    expected = ["1:8: model:", "2:14: dtypes.kv:", "2:28: dtypes.weights:", "5:5: cluster.pools.g>u: a pool's name",
                "5:17: cluster.pools.g>u.chip:", "5:39: cluster.pools.g>u.memory_reserve:", "6:18: cluster.links[0].from:",
                "6:25: cluster.links[0].to:", "7:35: plan[0].tensor.pool:"]  # fmt: skip
    assert [item for item in expected if f"bad.yaml:{item}" not in said] == []


def test_a_stack_without_a_calibration_of_the_chip_is_noted(capsys: Capture) -> None:
    status, _, err = call(capsys, "run", LLAMA, "--json", "--set", "cluster.pools.gpu.stack=vllm", "--set",
                          "cluster.pools.gpu.chip=rtx4090")  # fmt: skip
    assert status in (0, 3)
    assert "rtx4090 was not measured under stack 'vllm'" in err


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        (("run", LLAMA, "--set", "cluster.pools.gpu.stack=vlm"), "=vlm: cluster.pools.gpu.stack: "),
        (("run", "--model", "llama-3.1-8b", "--chip", "h100_sxm", "--stack", "vlm"), " vlm: cluster.pools.chips.stack: "),
        (("op", "gemm", "m=1", "n=8", "k=8", "--dtype", "bf16", "--chip", "h100_sxm", "--stack", "vlm"), "--stack: "),
    ],
)  # fmt: skip
def test_an_unknown_stack_is_an_error(asked: tuple[str, ...], where: str, capsys: Capture) -> None:
    """A misspelt name must not quietly price another software than the one that was meant."""
    said = refused(capsys, *asked)
    assert f"{where}no stack named 'vlm', did you mean 'vllm'? (known: custom_sglang" in said
    assert "trtllm, vllm); 'uncalibrated' takes" in said


def test_a_stack_of_one_s_own_is_known_by_its_calibration_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("run", LLAMA, "--json", "--set", "cluster.pools.gpu.stack=mine")
    assert "no stack named 'mine'" in refused(capsys, *asked)
    stated = catalog.find("stacks", "vllm").read_text().replace("stack: vllm", "stack: mine")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "mine.yaml").write_text(stated)
    status, _, err = call(capsys, *asked)
    assert status == 0
    assert "was not measured under stack 'mine'" in err
    (tmp_path / "chips" / "calibrations").mkdir(parents=True)
    fit = "{op: gemm, dtype: bf16, launch: 9 us, low: 0.9, high: 1.1}"
    (tmp_path / "chips" / "calibrations" / "h100_sxm.mine.yaml").write_text(f"chip: h100_sxm\nstack: mine\nfits: [{fit}]\n")
    (tmp_path / "stacks" / "mine.yaml").unlink()
    status, _, err = call(capsys, *asked)
    assert status == 0
    assert "mine" not in err


# ---- operations ------------------------------------------------------------------------------------------------------

ATTENTION = ("batch=1", "heads=32", "kv_heads=8", "head_dim=128")
MOE = ("tokens=100", "hidden=64", "inter=64", "topk=2", "experts=8", "tp=1", "ep=1")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("gem", "m=1"), "unknown op 'gem', did you mean 'gemm'?"),
        (("gemm", "m=1"), "op gemm: missing n=, k="),
        (("gemm", "m=1", "n=1", "k=1", "j=2"), "op gemm: unknown key 'j' (known: k, m, n)"),
        (("gemm", "m", "n=1", "k=1"), "expected KEY=VALUE, such as m=128; got 'm'"),
        (("gemm", "m=1", "m=2", "n=1", "k=1"), "m= is given twice"),
        *((("gemm", f"m={value}", "n=1", "k=1"), "op gemm: m= expects a whole number from 1 to 1,000,000,000,000, got")
          for value in ("0", "-5", "x", "1.5", "nan", "inf", "1e300", "", "9" * 5000)),
        (("attention_decode", *ATTENTION[:2], "kv_heads=5", "head_dim=1", "kv_len=1"), "32 heads are not a multiple of 5"),
        (("attention_decode", *ATTENTION, "kv_len=1", "kv_dtype=fp3"), "unknown dtype 'fp3', did you mean 'fp32'?"),
        (("attention_prefill", *ATTENTION, "seq=1", "window=-1"), "window= expects a whole number from 0"),
        (("moe", *MOE[:5], "tp=1", "ep=3"), "ep=3 must divide experts=8"),
        (("moe", *MOE[:3], "topk=9", *MOE[4:]), "topk 9 is more than the 8 experts"),
        (("moe", *MOE[:4], "experts=1e9", *MOE[5:]), "experts= expects a whole number from 1 to 100,000"),
        *((("moe", *MOE, f"dist={value}"), "dist= expects balanced, zipf_S or power_law_S") for value in
          ("zipf", "zipf_nan", "zipf_inf", "zipf_-1", "zipf_11", "pareto_1", "")),
        (("moe", *MOE, "gated=perhaps"), "gated= expects true or false, got 'perhaps'"),
    ],
)  # fmt: skip
def test_operations(args: tuple[str, ...], words: str, capsys: Capture) -> None:
    assert words in refused(capsys, "op", *args, "--chip", "h100_sxm", "--dtype", "bf16")


def test_operations_on_a_chip(capsys: Capture) -> None:
    shape = ("m=1", "n=1", "k=1")
    said = refused(capsys, "op", "gemm", *shape, "--chip", "h100_sxm", "--dtype", "b16")
    assert "unknown dtype 'b16', did you mean 'bf16'?" in said
    said = refused(capsys, "op", "gemm", *shape, "--chip", "lpddr5x_pim", "--dtype", "bf16")
    assert "chip lpddr5x_pim multiplies" in said


@pytest.mark.parametrize(
    "args",
    [
        ("gemm", "m=1e12", "n=1e12", "k=1e12"),
        ("attention_decode", "batch=1e12", *ATTENTION[1:], "kv_len=1e12", "window=1e12"),
        ("moe", "tokens=1e12", *MOE[1:]),
        ("moe", "tokens=1e12", *MOE[1:3], "topk=8", "experts=100000", "tp=1", "ep=1", "dist=zipf_0.8"),
        ("all_reduce", "chips=1", "bytes=1"),
        ("p2p", "chips=1e12", "bytes=1e12"),
    ],
)
def test_the_largest_operations_are_answered(args: tuple[str, ...], capsys: Capture) -> None:
    status, out, _ = call(capsys, "op", *args, "--chip", "h100_sxm", "--dtype", "bf16", "--json")
    assert status == 0
    assert json.loads(out)["time_s"] >= 0


# ---- usage -----------------------------------------------------------------------------------------------------------

OPTIONS = ("--model", "llama-3.1-8b", "--chip", "h100_sxm")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("rnu",), "No such command 'rnu', did you mean 'run'?"),
        (("run",), "name a scenario, or give --model and --chip"),
        (("run", "--foo"), "No such option '--foo'"),
        (("run", "h100_llama_70b_decod"), "no scenario named 'h100_llama_70b_decod', did you mean 'h100_llama_70b_decode'?"),
        (("run", LLAMA, "--tp", "2"), "--tp goes without a scenario"),
        (("run", "--model", "llama-3.1-8b"), "give --chip"),
        (("run", *OPTIONS, "--count", "0"), "0 is not in the range"),
        (("run", *OPTIONS, "--count", "1000000000000"), "--count 1000000000000: cluster.pools.chips.count: must be at most"),
        (("run", *OPTIONS, "--batch", "1000000000"), "--batch 1000000000: workload.batch: must be at most 10,000,000"),
        (("run", *OPTIONS, "--context", "1000000000000000"), "--context 1000000000000000: workload.context: must be at most"),
        (("run", *OPTIONS, "--pp", "100000"), "--pp 100000: plan[0].pipeline.stages: must be at most 512, got 100000"),
        (("run", *OPTIONS, "--phase", "decod"), "'decod' is not one of"),
        (("run", *OPTIONS, "--weights", "fp3"), "--weights fp3: dtypes.weights: unknown dtype 'fp3'"),
        (("run", *OPTIONS[:2], "--chip", "h100"), "--chip h100: cluster.pools.chips.chip: no chip named 'h100', did"),
        (("run", "--model", "llama-3.1-8", *OPTIONS[2:]), "--model llama-3.1-8: model: no model named 'llama-3.1-8', did"),
        (("run", *OPTIONS, "--set", "workload.bach=2"), "did you mean 'batch'?"),
        (("model", "deepseek-v3", "--kv", "fp3"), "unknown dtype 'fp3'"),
        (("model", "deepseek-v3", "--context", "9" * 400), "is not in the range"),
        (("schema", "chips"), "'chips' is not one of 'chip', 'model', 'scenario'"),
        (("op", "gemm"), "Missing option '--chip'"),
        (("plot", LLAMA, "--kind", "pi", "--out", "x.png"), "unknown kind of plot 'pi'"),
        (("fit", LLAMA, "--set", "workload.batch=0"), "workload.batch: must be at least 1"),
    ],
)  # fmt: skip
def test_usage(args: tuple[str, ...], words: str, capsys: Capture) -> None:
    assert words in " ".join(refused(capsys, *args).split())


def test_text_of_files_is_no_markup(capsys: Capture) -> None:
    text = CHIP.replace("title: NVIDIA H100 SXM5 80 GB", "title: '[/red] :boom:'").replace(
        "source: nvidia_h100", "source: '[/b]'"
    )
    Path("odd.yaml").write_text(text)
    status, out, _ = call(capsys, "chips", "./odd.yaml")
    assert status == 0
    assert "[/red] :boom:" in out


def test_control_characters_do_not_reach_the_terminal() -> None:
    problem = Problem("got '\x1b[31m'\n", "a\x07b", "c\r.yaml", 1, 3, "x\x1b[2J\ty")
    assert all(ch.isprintable() or ch == "\n" for ch in str(problem))
    assert str(problem).count("\n") == 2
    assert len(shortened("y" * 10**6, 100)) <= 100


# ---- nothing else ever comes out -------------------------------------------------------------------------------------

JUNK = st.sampled_from(
    [None, True, False, -1, 0, 1, 3, 10**9, 10**40, 10**400, -(10**400), 0.5, -0.0, 1e-320, 1e300, float("nan"), float("inf"),
     "", " ", "x", "12", "1 GB", "1 GB/s", "-3 us", "0 s", "1e-300 s", "1e300 FLOP/s", "nan W", "3 %", "h100_sxm", "gpu",
     "fp8", "h100_sxm.yaml", "./x.yaml", "/dev/zero", "\x1b[31m", "é\u2028ü", "a.b", "a>b", "x" * 5000, [], [1], [None],
     ["x"], [[1, 2]], {}, {"a": 1}, {"value": "1 GB"}, {"value": 3, "range": [1, 2]}, {"value": "3 us", "range": ["1 s", 0]},
     [{}], [{"tier": "hbm"}], {"extends": "h100_sxm"}, {"kind": "zipf"}, {"tensor": {"degree": 2}},
     [{"tensor": {"degree": 2}}]]
).map(copy.deepcopy)  # fmt: skip
KEYS = st.sampled_from(
    ["x", "", "extends", "name", "value", "source", "status", "batch", "tier", "0", "a.b", "a>b", "\x00", "null"]
)


def fuzz(examples: int) -> settings:
    """The same examples on every run."""
    return settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a nested value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] * bool(at) + [path for key, item in inside for path in paths(item, (*at, key))]


def mutate(value: Any, data: st.DataObject) -> Any:
    """Replace, delete, rename, add or duplicate something, up to three times."""
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(value) or [("x",)]))
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        key = path[-1]
        action = data.draw(st.sampled_from(["replace", "replace", "delete", "rename", "add", "wrap", "double"]))
        if action == "replace":
            parent[key] = data.draw(JUNK)
        elif action == "delete":
            del parent[key]
        elif action == "wrap":
            parent[key] = data.draw(st.sampled_from([[parent[key]], {"x": parent[key]}, str(parent[key])]))
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[key]))
        elif action == "rename":
            parent[data.draw(KEYS)] = parent.pop(key)
        else:
            parent[data.draw(KEYS)] = data.draw(JUNK)
    return value


def survives(make: Callable[[], object]) -> None:
    """An `InputError` that says something, or a result, within a few seconds."""
    said = None
    with at_most(20):
        try:
            make()
        except InputError as error:
            said = error
    if said is not None:
        assert said.problems
        assert all(problem.message for problem in said.problems)
        assert len(str(said).encode()) < 300_000


CHIPS = [yamlfile.load(ROOT / "chips" / f"{name}.yaml").value for name in ("h100_sxm", "groq3_lpu", "lpddr5x_pim")]
SCENARIOS = [yamlfile.load(ROOT / "scenarios" / f"{name}.yaml").value for name in (LLAMA, RUBIN)]
GRAPHS = [yamlfile.load(ROOT / "graphs" / f"{name}.yaml").value for name in ("deepseek-v3", "llama-3.1-8b")]


@fuzz(150)
@given(st.sampled_from(CHIPS), st.data())
def test_mutated_chips(chip: Any, data: st.DataObject) -> None:
    value = mutate(chip, data)
    survives(lambda: chip_from(Document("chip.yaml", value, {}, ())).numbers())


@fuzz(120)
@given(st.sampled_from(SCENARIOS), st.data())
def test_mutated_scenarios(scenario: Any, data: st.DataObject) -> None:
    value = mutate(scenario, data)
    survives(lambda: json.dumps(run(scenario_from(Document("s.yaml", value, {}, ()), "s")).to_dict(), allow_nan=False))


@fuzz(40)
@given(st.sampled_from(CHIPS[:2]), st.data())
def test_mutated_chips_in_scenarios(chip: Any, data: st.DataObject) -> None:
    value = copy.deepcopy(SCENARIOS[0])
    value["model"] = "llama-3.1-8b"
    value["cluster"]["pools"]["gpu"]["chip"] = mutate(chip, data)
    survives(lambda: json.dumps(run(scenario_from(Document("s.yaml", value, {}, ()), "s")).to_dict(), allow_nan=False))


@fuzz(120)
@given(st.sampled_from([*GRAPHS, CONFIG]), st.data())
def test_mutated_models(model: Any, data: st.DataObject) -> None:
    text = json.dumps(mutate(model, data))
    Path("m.json").write_text(text)
    survives(lambda: json.dumps(counts.describe(load_model("m.json"), context=100), allow_nan=False))


@fuzz(60)
@given(st.data())
def test_mutated_models_are_priced(data: st.DataObject) -> None:
    Path("m.json").write_text(json.dumps(mutate(CONFIG, data)))
    value = {**SCENARIOS[0], "model": "./m.json"}
    survives(lambda: json.dumps(run(scenario_from(Document("s.yaml", value, {}, ()), "s")).to_dict(), allow_nan=False))


@fuzz(60)
@given(st.sampled_from(SCENARIOS), st.data())
def test_mutated_settings(scenario: Any, data: st.DataObject) -> None:
    document = Document("s.yaml", scenario, {}, ())
    path = data.draw(st.sampled_from(paths(scenario)))
    key = ".".join(str(part) for part in path) + data.draw(st.sampled_from(["", ".x", ".0", "x", "."]))
    text = f"{key}={data.draw(st.one_of(JUNK.map(str), JUNK.map(yaml.safe_dump), st.text(max_size=20)))}"
    survives(lambda: run(scenario_from(override(document, [text]), "s")))


@fuzz(150)
@given(st.sampled_from([CHIP, (ROOT / "scenarios" / f"{RUBIN}.yaml").read_text(), json.dumps(CONFIG)]), st.data())
def test_mutilated_text(text: str, data: st.DataObject) -> None:
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        end = start + data.draw(st.sampled_from([0, 0, 1, 2, 30]))
        raw[start:end] = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from(
            [b"\n", b"\t", b"  ", b": ", b"- ", b"[", b"{", b"}", b'"', b"'", b"|", b">", b"#",
            b"*a", b"&a ", b"!!x ", b"---\n", b"? "]
        )))  # fmt: skip
    for name in ("t.yaml", "t.json"):
        Path(name).write_bytes(bytes(raw))
        survives(lambda name=name: load_chip(f"./{name}"))
        survives(lambda name=name: load_scenario(f"./{name}"))
        survives(lambda name=name: load_model(f"./{name}"))


@fuzz(100)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_random_bytes(raw: bytes) -> None:
    for name in ("t.yaml", "t.json"):
        Path(name).write_bytes(raw)
        survives(lambda name=name: load_chip(f"./{name}"))
        survives(lambda name=name: load_model(f"./{name}"))


@fuzz(200)
@given(st.one_of(st.text(max_size=30), JUNK), st.sampled_from(sorted(units.UNITS)))
def test_any_quantity(raw: object, dimension: str) -> None:
    try:
        value = units.parse(raw, dimension)
    except ValueError:
        return
    assert value == 0 or units.SMALLEST <= value <= units.LARGEST
