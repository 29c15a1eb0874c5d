"""Kernels that other processes compile in a first run. Fresh processes, each with a cache that is empty at first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hwmodel.kernels import ahead

NAME = "stream.price"
BEGIN = f"""
import sys, time
from hwmodel.kernels.ahead import Helpers, found, given
kernel = found("{NAME}")
def end(helpers):
    kernel.compile(given("{NAME}"))
    print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()), len(helpers.processes))
"""


def answer(script: str, cache: Path) -> str:
    """What a process that compiles into the cache prints."""
    run = subprocess.run(
        [sys.executable, "-c", BEGIN + script],
        check=True, capture_output=True, text=True, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
    )  # fmt: skip
    assert not run.stderr
    return run.stdout.strip()


TAKEN = f"""
helpers = Helpers(["{NAME}"], 1)
while not helpers.ready:
    time.sleep(0.01)
end(helpers)
"""


def test_what_a_helper_compiles_is_read_and_not_compiled_again(tmp_path: Path) -> None:
    assert answer(TAKEN, tmp_path) == "1 0 1", "read, not compiled, one helper"


def test_what_is_asked_for_last_is_compiled_first_and_once(tmp_path: Path) -> None:
    script = f"""
helpers = Helpers(["schedule.scheduled", "{NAME}"], 0)
helpers.add(["tokens.steady", "{NAME}"])
print(helpers.left)
helpers.most = 1
helpers.add([])
while not helpers.ready:
    time.sleep(0.01)
helpers.add(["tokens.steady"])
print(sorted(helpers.ready), helpers.left)
"""
    first = answer(script, tmp_path).splitlines()
    assert first == [
        "['tokens.steady', 'schedule.scheduled', 'stream.price']", "['tokens.steady'] ['schedule.scheduled', 'stream.price']",
    ]  # fmt: skip


def test_the_loop_is_compiled_for_what_requests_share(tmp_path: Path) -> None:
    """A kernel for one type of arguments in the cache is none for another."""
    script = """
from hwmodel.kernels.ahead import LOOPS, in_cache
print([in_cache(LOOPS[shared]) for shared in (True, False)])
found(LOOPS[False]).compile(given(LOOPS[False]))
print([in_cache(LOOPS[shared]) for shared in (True, False)])
"""
    assert answer(script, tmp_path).splitlines() == ["[False, False]", "[False, True]"]


def test_no_helper_where_the_cache_has_everything(tmp_path: Path) -> None:
    answer(f'kernel.compile(given("{NAME}"))', tmp_path)
    assert answer(f'end(Helpers(["{NAME}"], 1))', tmp_path) == "1 0 0"


@pytest.mark.parametrize(
    "command", ['("no such program",)', '(sys.executable, "-c", "pass")', '(sys.executable, "-c", "print(input())")']
)
def test_without_the_help_of_helpers_a_process_compiles_alone(tmp_path: Path, command: str) -> None:
    """None can be started; it ends before it is asked; it says that it is done and has done nothing."""
    script = f'helpers = Helpers(["{NAME}"], 1, {command})\nfor thread in helpers.threads: thread.join()\nend(helpers)'
    assert answer(script, tmp_path).startswith("0 1 ")


def test_a_kernel_that_is_compiled_here_is_not_given_to_a_helper(tmp_path: Path) -> None:
    assert answer(f'helpers = Helpers(["{NAME}"], 0)\nend(helpers)\nprint(helpers._take())', tmp_path) == "0 1 0\nNone"


def test_a_helper_ends_when_it_is_asked_nothing_more() -> None:
    helper = subprocess.run(ahead.HELPER, check=True, input="", capture_output=True, text=True, timeout=60)
    assert (helper.stdout, helper.stderr) == ("", "")


COMMANDS = """
import sys
from hwmodel.cli import main
from hwmodel.kernels.ahead import TAKES, found, given
for command in (
    "compare rubin_deepseek_v3 rubin_lpx_deepseek_v3 --slo tpot=20ms", "simulate h100_1p1d_llama_8b --requests 20",
):
    try:
        main(command.split())
    except SystemExit:
        pass
of = {}
for name in TAKES:
    of.setdefault(found(name), []).append(given(name))
for name in TAKES:
    for types in found(name).signatures:
        print("types of", name.split()[0], types in of[found(name)])
"""


def test_kernels_are_compiled_ahead_for_the_types_that_they_are_called_with() -> None:
    """With other types they would be compiled once more."""
    run = subprocess.run([sys.executable, "-c", COMMANDS], check=True, capture_output=True, text=True)
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("types of")]
    assert {line[2] for line in lines} >= {*ahead.PERIOD, *ahead.SERVING, "serving_loop.serve"}
    assert all(line[3] == "True" for line in lines), lines
