"""Classes of requests, goodput under the targets of each; and what a time to first token consists of, by hand."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from serving_cases import fleet, proportional, requests

from hwmodel.cli import cli
from hwmodel.kernels import serving_columns as c
from hwmodel.report.serving_files import saved_columns
from hwmodel.serve.classes import banded, classed
from hwmodel.serve.engine import Fleet, Group, Wire, simulate
from hwmodel.serve.kv import Tier
from hwmodel.serve.metrics import PARTS, slowest_parts, ttft_parts, ttft_s, within
from hwmodel.serve.readers import read
from hwmodel.serve.schedulers import Scheduler
from hwmodel.serve.spec import ClassSpec, Slo
from hwmodel.simulation import simulate as ask
from hwmodel.spec.errors import InputError


def targets(**seconds: float) -> Slo:
    return Slo.model_validate({name: f"{value!r} s" for name, value in seconds.items()})


# --- classes ----------------------------------------------------------------------------------------------------------
def test_bands_end_with_their_tokens() -> None:
    work = banded(requests([0.0] * 4, [1, 100, 101, 9999], 1), {"short": 100, "middle": 1000, "long": None})
    assert work.tiers == ("short", "middle", "long")
    assert work.tier.tolist() == [0, 0, 1, 2]
    with pytest.raises(InputError, match="9,999 tokens is in no class"):
        banded(requests([0.0], 9999, 1), {"short": 100, "middle": 1000})


def test_a_request_is_good_by_the_targets_of_its_class() -> None:
    """One at a time, 1 ms a token, prompts of 100: first tokens after 100, 200, 300, 400 ms; classes in turn.

    All within 150 ms: one of four. The second class has 350 ms of its own: the first of one class, the first of the other.
    """
    work = requests([0.0] * 4, 100, 1, tier=np.array([0, 1, 0, 1]), tiers=("chat", "batch"))
    served = fleet(proportional(1e-3), max_sequences=1)
    slo = {"ttft": 0.15}
    assert within(simulate(work, served), slo).tolist() == [True, False, False, False]
    own = classed(work, {"batch": ClassSpec(slo=targets(ttft=0.35))})
    assert within(simulate(own, served), slo).tolist() == [True, True, False, False]
    other = classed(work, {"batch": ClassSpec(slo=targets(e2e=0.25))})
    assert within(simulate(other, served), slo).tolist() == [True, False, False, False], "a target of its own comes beside"
    assert own.first(2).scaled(2.0).limits is not None
    with pytest.raises(InputError, match="did you mean 'batch'"):
        classed(work, {"bach": ClassSpec(slo=targets(ttft=1))})


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("t.csv", "arrived_at,num_prefill_tokens,num_decode_tokens,tenant\n0,10,2,acme\n1,20,2,zeta\n2,30,2,acme\n", ()),
        ("t.csv", "at,in,out,sla\n0,10,2,acme\n1,20,2,zeta\n2,30,2,acme\n", ("at", "in", "out", "", "sla")),
        ("t.csv", "at,in,out,priority\n0,10,2,acme\n1,20,2,zeta\n2,30,2,acme\n", ("at", "in", "out")),
        ("t.csv", "at,who,in,out,kind\n0,x,10,2,acme\n1,,20,2,zeta\n2,x,30,2,acme\n", ("at", "in", "out", "who", "kind")),
        ("t.csv", "TIMESTAMP,ContextTokens,GeneratedTokens,class\n"
         "2023-11-16 18:00:00,10,2,acme\n2023-11-16 18:00:01,20,2,zeta\n"
         "2023-11-16 18:00:02,30,2,acme\n", ()),
        ("t.jsonl", "".join(json.dumps({"timestamp": 1000 * i, "input_length": 10 * i + 10, "output_length": 2, "hash_ids": [],
                                        "type": kind}) + "\n" for i, kind in enumerate(("acme", "zeta", "acme"))), ()),
    ],
)  # fmt: skip
def test_a_column_of_the_trace_says_the_class(name: str, text: str, columns: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    work = read(tmp_path / name, "", columns)
    assert [work.tiers[k] for k in work.tier] == ["acme", "zeta", "acme"]
    assert work.prompt.tolist() == [10, 20, 30]
    assert work.session.tolist() == ([0, -1, 0] if "who" in columns else [-1, -1, -1])


def said(*arguments: str) -> dict[str, Any]:
    found = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", *arguments, "--json"])
    assert found.exit_code == 0, found.output
    told: dict[str, Any] = json.loads(found.stdout)
    return told


def test_the_command_tells_goodput_by_class(tmp_path: Path) -> None:
    """By bands, with targets of one of them; shares weighed by requests are that of all, in JSON, text, rows and page."""
    asked = ("--requests", "300", "--slo", "ttft=40ms,tpot=9ms", "--bands", "short=500,long", "--slo", "long:ttft=60ms",
             "--out", str(tmp_path))  # fmt: skip
    told = said(*asked)
    short, long = told["goodput"]["classes"]
    assert (short["class"], long["class"]) == ("short", "long")
    assert short["slo"] == {"ttft_s": 0.04, "tpot_s": 0.009}
    assert long["slo"] == {"ttft_s": 0.06, "tpot_s": 0.009}
    assert short["requests"] + long["requests"] == 300
    weighed = (short["requests"] * short["share"] + long["requests"] * long["share"]) / 300
    assert weighed == pytest.approx(told["goodput"]["share"])
    assert short["requests_per_s"] + long["requests_per_s"] == pytest.approx(told["goodput"]["requests_per_s"])
    tighter = said("--requests", "300", "--slo", "ttft=40ms,tpot=9ms", "--bands", "short=500,long")
    assert tighter["goodput"]["classes"][0] == short
    assert tighter["goodput"]["classes"][1]["share"] < long["share"]
    rows = [line.split(",") for line in (tmp_path / "requests.csv").read_text().splitlines()]
    kind, good = rows[0].index("class"), rows[0].index("good")
    assert sum(row[kind] == "long" and row[good].lower() == "true" for row in rows[1:]) == round(
        long["share"] * long["requests"]
    )
    page = (tmp_path / "report.html").read_text()
    assert f'<td class="l">long</td><td>{long["requests"]}</td>' in page
    assert page.count("data:image/png;base64,") == 2
    assert "<script" not in page
    levels = [int(level) for level in re.findall(r"<h([1-6])>", page)]
    assert levels[:2] == [1, 2]
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert (
        CliRunner().invoke(cli, ["report", str(tmp_path / "simulate.json"), "--html", str(tmp_path / "p.html")]).exit_code == 0
    )
    assert (tmp_path / "p.html").read_text() == page
    for kind, more in (("over_time", ()), ("percentiles", ("--x", "e2e_s")), ("xy", ("--x", "prompt", "--y", "ttft_s"))):
        drawn = ["plot", str(tmp_path / "simulate.json"), "--kind", kind, "--out", str(tmp_path / f"own_{kind}.png"), *more]
        assert CliRunner().invoke(cli, drawn).exit_code == 0
        assert (tmp_path / f"own_{kind}.png").read_bytes()[:4] == b"\x89PNG"
    wrong = CliRunner().invoke(cli, ["plot", str(tmp_path / "simulate.json"), "--kind", "xy", "--x", "class", "--out", "p.png"])
    assert wrong.exit_code == 2
    assert "'class' is none" in wrong.output
    missed = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", "--bands", "short=500,long", "--slo", "lang:ttft=60ms"])
    assert missed.exit_code == 2
    assert "--slo: no class 'lang' in --bands, did you mean 'long'?" in missed.output
    plain = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", *asked[:-2]])
    line = next(line for line in plain.stdout.splitlines() if line.startswith("long"))
    assert f"{long['share']:.1%}" in line
    assert "TTFT 60.00 ms, TPOT 9.00 ms" in line


def test_columns_that_were_saved_are_read_by_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    with pytest.raises(InputError, match=r"requests.csv: cannot be read: a simulation leaves it with --out DIR"):
        saved_columns(path)
    path.write_text('class,ttft_s,note\nchat,0.5,"a, b"\n"code",,\n')
    found = saved_columns(path)
    assert {name: values.tolist() for name, values in found.items() if name != "ttft_s"} == {
        "class": ["chat", "code"], "note": ["a, b", ""],
    }  # fmt: skip
    assert found["ttft_s"][0] == 0.5
    assert np.isnan(found["ttft_s"][1])
    path.write_text("class,ttft_s\nchat,0.5\ncode\n")
    with pytest.raises(InputError, match=r"requests.csv:3: expected 2 values, got 1"):
        saved_columns(path)
    path.write_text("")
    with pytest.raises(InputError, match=r"requests.csv: is empty"):
        saved_columns(path)


def test_python_and_the_scenario_have_classes_too() -> None:
    settings = ["serving.trace.requests=100", "serving.classes={short: {prompt: 500, slo: {ttft: 1 us}}, long: {}}"]
    short, long = ask("w1_llama_8b_h100", settings).to_dict()["goodput"]["classes"]
    assert (short["class"], short["share"]) == ("short", 0.0)
    assert long["share"] > 0.9


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--bands", "short=1000,middle,long"], "only the last one is open"), (["--bands", "a=x"], "NAME=TOKENS"),
        (["--bands", "a=5,b=3"], "from short to long"), (["--slo", "chat:ttft=1s"], "no requests of class 'chat'"),
        (["--slo", "chat:ttft"], "ttft=TIME"),
        (["--set", "serving.classes={a: {prompt: 9}, b: {prompt: 3}}"], "from short to long"),
    ],
)  # fmt: skip
def test_mistakes_of_classes_are_told(arguments: list[str], why: str) -> None:
    found = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", *arguments])
    text = found.output + str(found.exception or "") + str(getattr(found.exception, "problems", ""))
    assert found.exit_code != 0
    assert why in text


# --- what a time to first token consists of ---------------------------------------------------------------------------
def test_parts_of_a_first_token_that_was_preempted() -> None:
    """Two prompts of 40 and 80 tokens, 16 tokens a step, 1 ms each, in 100 tokens of cache.

    The first is done after 48 ms (16 + 16 + 8 and 8 of the second). The second began at 32 ms and is preempted whenever the
    first one's answer wants a page, the last time before 294 ms, when it begins for good: two steps of 15 tokens beside one of
    the answer, then, the first one gone at 326 ms, its other 50 tokens: 82 ms of prefill.
    """
    rule = Scheduler.kinds["vllm"](max_tokens=16)
    found = simulate(requests([0.0, 0.0], [40, 80], [24, 2]), Fleet((Group("gpu", 1, proportional(1e-3), rule, 25),), 4))
    parts = {name: values.tolist() for name, values in ttft_parts(found).items()}
    assert found.when[0, c.FINISH] == pytest.approx(0.326)
    assert parts["queue"] == pytest.approx([0, 0.032])
    assert parts["preemption"] == pytest.approx([0, 0.294 - 0.032])
    assert parts["prefill"] == pytest.approx([0.048, 0.032 + 0.050])
    assert parts["load"] == parts["transfer"] == [0, 0]
    assert sum(parts[name][1] for name in PARTS) == pytest.approx(ttft_s(found)[1])
    told = slowest_parts(found)
    assert told is not None
    assert told["preemption_s"] == pytest.approx(0.262)
    assert told["ttft_s"] == pytest.approx(sum(told[f"{name}_s"] for name in PARTS))


def test_parts_of_a_first_token_whose_prompt_was_read_from_a_tier() -> None:
    """Prompts of 65 tokens, blocks of 16, 1 ms a token, room for one: the first one's 4 blocks go to DRAM as the second comes.

    At 1.0 s the first comes back beside a third that arrived at 0.99 s and computes 65 ms: it waits 55 ms, reads 64 tokens in
    1 ms + 64 x 0.1 ms, and computes one token.
    """
    ids = np.concatenate([np.array(order) * 4 + np.arange(4) for order in (0, 1, 2, 0)])
    work = requests([0.0, 0.5, 0.99, 1.0], 65, 1, starts=np.arange(5) * 4, blocks=ids)
    dram = Tier("dram", 1e6, 10_000.0, 1e-3)
    found = simulate(work, fleet(proportional(1e-3), pages=5, page=16, tiers=(dram,)))
    parts = {name: values[3] for name, values in ttft_parts(found).items()}
    assert parts["queue"] == pytest.approx(0.055)
    assert parts["load"] == pytest.approx(7.4e-3)
    assert parts["prefill"] == pytest.approx(1e-3)
    assert sum(parts.values()) == pytest.approx(ttft_s(found)[3])


def test_a_moved_cache_delays_the_second_token_and_not_the_first() -> None:
    """Prefill of 100 ms at its own instance gives the first token; 0.7 s of transfer are no part of it."""
    rule = Scheduler.kinds["vllm"]()
    groups = tuple(
        Group(role, 1, proportional(1e-3), rule, 1 << 20, role, wire=Wire(2e-3, 0.5)) for role in ("prefill", "decode")
    )
    found = simulate(requests([0.0], 100, 2), Fleet(groups))
    parts = {name: values[0] for name, values in ttft_parts(found).items()}
    assert parts == pytest.approx({"queue": 0, "load": 0, "prefill": 0.1, "transfer": 0, "preemption": 0})
    assert found.when[0, c.TRANSFER_S] == pytest.approx(0.7)


def test_parts_add_up_under_pressure() -> None:
    """Many requests in little memory, with a tier: every part is no less than 0, and they make the whole."""
    rng = np.random.default_rng(5)
    n = 300
    family = rng.integers(0, 12, n)
    count = rng.integers(2, 9, n)
    ids = np.concatenate([f * 10 + np.arange(k) for f, k in zip(family, count, strict=True)])
    work = requests(np.sort(rng.uniform(0, 30, n)), count * 16 + 5, rng.integers(1, 60, n),
                    starts=np.concatenate([[0], np.cumsum(count)]), blocks=ids)  # fmt: skip
    found = simulate(work, fleet(proportional(1e-3), pages=24, page=16, max_tokens=64, tiers=(Tier("dram", 600.0, 1e5, 1e-4),)))
    assert found.finished.all()
    parts = ttft_parts(found)
    assert all((values >= 0).all() for values in parts.values())
    assert sum(parts.values()) == pytest.approx(ttft_s(found))
    assert parts["load"].max() > 0
    assert parts["preemption"].max() > 0
