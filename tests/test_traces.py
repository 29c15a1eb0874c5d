"""Traces: readers of every format, workloads from distributions, what is known of a trace without an engine."""

from __future__ import annotations

import csv
import gzip
import json
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.kernels.stack_distance import stack_depths
from hwmodel.plot_serving import draw_timeouts
from hwmodel.serve.offline import coarser, hit_over_size, hit_over_timeout, hit_tokens, statistics, unlimited_hit
from hwmodel.serve.readers import formats, read, recorded
from hwmodel.serve.readers.azure import clock_ns
from hwmodel.serve.requests import Requests
from hwmodel.serve.synthetic import Synthetic, arrivals, generate, started
from hwmodel.serve.trace import Trace, bare, ended
from hwmodel.spec.errors import InputError


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(at: object, prompt: object, output: object, ids: object) -> dict[str, object]:
    return {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": ids}


MOONCAKE = lines(mooncake(0, 1000, 5, [7, 9]), mooncake(1500, 1400, 6, [7, 9, 11]), mooncake(2500, 600, 7, [7, 30]))
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000001,374,44\n2023-11-17 00:00:01.0000001,396,109\n"
LENGTHS = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,44\n1.25,396,109\n"
SHAREGPT = "arrival_time_s,input_tokens,output_tokens,repeated_prefix_tokens_block16\n0.5,374,44,0\n1.25,396,109,16\n"
AGENTIC = (
    "trace_id,idx,depth,t_s,in_tokens,out_tokens,cached_prefix_tokens,type,stop,api_time_s,think_time_s,model\n"
    "a,0,0,0.0,200,10,0,n,tool_use,5.0,0.0,m\n"
    "a,0,1,0.0,100,10,0,n,tool_use,2.0,0.0,m\n"
    "a,1,1,6.0,150,10,64,n,end_turn,4.0,4.0,m\n"
    "a,2,0,35.0,300,0,192,n,,,30.0,m\n"
    "a,3,0,55.0,400,10,256,n,end_turn,1.0,50.0,m\n"
    "b,0,0,0.0,640,10,0,n,end_turn,3.0,0.0,m\n"
)
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,s1,2.0,GPT-4,472,18,490,Conversation log\n6,,1.0,ChatGPT,100,0,100,API log\n9,s1,2.0,GPT-4,900,20,920,API log\n"
)


def bailian(chat: object, parent: object, at: object, ids: object, kind: str = "text") -> dict[str, object]:
    return {"chat_id": chat, "parent_chat_id": parent, "type": kind, "turn": 1, **mooncake(at, 40, 3, ids)}


def tracelab(session: str, index: int, prompt: int, cached: int, begin: str, end: str, kind: str) -> dict[str, object]:
    events = [{"event_type": "user_message", "timestamp": begin}, {"event_type": kind, "timestamp": end}]
    return {"session_id": session, "round_index": index, "input_tokens_total": prompt, "prefix_tokens": cached,
            "output_tokens": 9, "timing_events": events}  # fmt: skip


BAILIAN = lines(bailian(1, -1, 0.5, [1, 2, 3]), bailian(2, 1, 3.5, [1, 2, 4], "image"), bailian(3, -1, 4.0, [5]))
TRACELAB = lines(
    tracelab("x", 0, 100, 32, "2026-06-01T05:40:20.000Z", "2026-06-01T05:40:30.000Z", "tool_call"),
    tracelab("x", 1, 150, 99, "2026-06-01T05:40:37.500Z", "2026-06-01T05:40:40.000Z", "text"),
)
SMALL = {"mooncake": MOONCAKE, "azure": AZURE, "lengths": LENGTHS, "agentic": AGENTIC, "burstgpt": BURST, "bailian": BAILIAN,
         "tracelab": TRACELAB}  # fmt: skip


def valid(trace: Trace) -> None:
    """What every `Requests` promises."""
    requests, n = trace.requests, len(trace)
    for name in ("arrival_s", "prompt", "output", "session", "after", "gap_s", "tier"):
        assert getattr(requests, name).shape == (n,), name
    for column in (trace.end_s, trace.chain, trace.depth, trace.step):
        assert column.shape == (n,)
    assert (requests.prompt >= 1).all()
    assert (requests.output >= 1).all()
    assert (requests.gap_s >= 0).all()
    assert (trace.end_s >= requests.arrival_s).all()
    assert (requests.after < np.arange(n)).all()
    waits = requests.after >= 0
    assert (requests.session[waits] == requests.session[requests.after[waits]]).all()
    np.testing.assert_allclose(requests.arrival_s[waits], trace.end_s[requests.after[waits]] + requests.gap_s[waits])
    if not waits.any():
        assert (np.diff(requests.arrival_s) >= 0).all()
    assert requests.starts.shape == (n + 1,)
    assert requests.starts[-1] == len(requests.blocks)
    sizes = np.diff(requests.starts)
    assert (sizes <= -(-requests.prompt // requests.block_tokens)).all()
    if len(requests.blocks):
        assert set(requests.blocks.tolist()) == set(range(requests.blocks.max() + 1))  # dense
        before: dict[int, int] = {}
        for i in range(n):
            last = -1
            for block in requests.blocks[requests.starts[i] : requests.starts[i + 1]].tolist():
                assert before.setdefault(block, last) == last  # chained: it always follows the same one
                last = block
    assert trace.step.max() < len(trace.steps)
    assert requests.tier.max() < len(requests.tiers)
    assert "/" not in requests.source


# --- formats ----------------------------------------------------------------------------------------------------------
def test_every_format_has_a_small_file_here() -> None:
    assert set(formats()) == {*SMALL, "csv"}


@pytest.mark.parametrize("name", SMALL)
def test_formats_are_found_from_the_columns(name: str, tmp_path: Path) -> None:
    path = file(tmp_path, "trace.any", SMALL[name])
    trace = recorded(path)
    valid(trace)
    assert (trace.requests.prompt == recorded(path, name).requests.prompt).all()
    zipped = tmp_path / "trace.gz"
    zipped.write_bytes(gzip.compress(SMALL[name].encode()))
    assert (read(zipped).arrival_s == trace.requests.arrival_s).all()
    assert len(bare(trace.requests)) == len(trace)


def test_mooncake_milliseconds_and_shared_blocks(tmp_path: Path) -> None:
    requests = read(file(tmp_path, "t.jsonl", MOONCAKE))
    assert requests.arrival_s.tolist() == [0, 1.5, 2.5]
    assert requests.block_tokens == 512
    assert requests.starts.tolist() == [0, 2, 5, 7]
    assert requests.blocks.tolist() == [0, 1, 0, 1, 2, 0, 3]
    assert hit_tokens(requests).tolist() == [0, 1024, 512]


def test_unsorted_arrivals_are_sorted_with_their_blocks(tmp_path: Path) -> None:
    rows = MOONCAKE.splitlines(keepends=True)
    requests = read(file(tmp_path, "t.jsonl", rows[2] + rows[0] + rows[1]))
    assert requests.prompt.tolist() == [1000, 1400, 600]
    assert hit_tokens(requests).tolist() == [0, 1024, 512]


def test_ids_that_stand_for_content_alone_are_chained(tmp_path: Path) -> None:
    text = lines(mooncake(0, 1024, 5, [1, 2]), mooncake(1, 1024, 5, [3, 2]))
    requests = read(file(tmp_path, "t.jsonl", text))
    assert len(set(requests.blocks.tolist())) == 4  # the second block of each follows another first one
    assert unlimited_hit(requests) == 0


def test_azure_counts_from_the_first_and_knows_the_time_of_day(tmp_path: Path) -> None:
    trace = recorded(file(tmp_path, "t.csv", AZURE))
    assert trace.requests.arrival_s.tolist() == [0, 1.5]
    assert trace.midnight_s == pytest.approx(86_399.5, abs=1e-4)
    utc, east = clock_ns("2024-05-10 00:00:00.009930+00:00"), clock_ns("2024-05-10T02:00:00.009930+02:00")
    assert utc == east
    assert clock_ns("2023-11-16 18:15:46.6805900") - clock_ns("2023-11-16 18:15:46.6805899") == 100


def test_lengths_and_named_columns_agree(tmp_path: Path) -> None:
    by_format = read(file(tmp_path, "a.csv", SHAREGPT))
    by_name = read(tmp_path / "a.csv", columns=("arrival_time_s", "input_tokens", "output_tokens"))
    w1 = read(file(tmp_path, "w1.csv", LENGTHS))
    for requests in (by_format, by_name, w1):
        assert requests.arrival_s.tolist() == [0.5, 1.25]
        assert requests.prompt.tolist() == [374, 396]
        assert requests.output.tolist() == [44, 109]


def test_named_columns_may_have_sessions(tmp_path: Path) -> None:
    path = file(tmp_path, "own.csv", "when,who,in,out\n1,bob,3,4\n2,,5,6\n3,bob,7,8\n")
    assert read(path, columns=("when", "in", "out", "who")).session.tolist() == [0, -1, 0]


def test_agent_runs_are_closed_loops_with_sub_agents(tmp_path: Path) -> None:
    trace = recorded(file(tmp_path, "t.csv", AGENTIC))
    requests = trace.requests
    assert requests.after.tolist() == [-1, 0, 1, 2, 3, -1]
    # the sub-agent starts at 5, its second call at 5 + 2 + 4, it ends at 15: 10 of the 30 s of the agent's pause
    assert trace.end_s[:3].tolist() == [5, 7, 15]
    assert requests.gap_s[:4].tolist() == [0, 0, 4, 20]
    assert requests.arrival_s[3] == 35
    # a duration that is not stated is the median, 3 s, and the next call starts when it did, 20 s after this one
    assert trace.end_s[3] == 38
    assert requests.arrival_s[4] == 55
    assert trace.chain.tolist() == [0, 1, 1, 0, 0, 2]
    assert requests.tier.tolist() == [0, 1, 1, 0, 0, 0]
    assert requests.output[3] == 1
    assert hit_tokens(requests).tolist() == [0, 0, 64, 192, 256, 0]
    assert [trace.steps[k] for k in trace.step] == ["tool_use", "tool_use", "end_turn", "", "end_turn", "end_turn"]


def test_tracelab_rounds_wait_for_the_last_input(tmp_path: Path) -> None:
    trace = recorded(file(tmp_path, "t.jsonl", TRACELAB))
    assert trace.requests.gap_s.tolist() == [0, 7.5]
    assert trace.end_s.tolist() == [10, 20]
    assert hit_tokens(trace.requests).tolist() == [0, 96]  # 99 of the 100 before, in whole blocks of 16
    assert trace.midnight_s == pytest.approx(5 * 3600 + 40 * 60 + 20, abs=1e-3)


def test_burstgpt_leaves_out_failed_calls_and_says_so(tmp_path: Path) -> None:
    requests = read(file(tmp_path, "t.csv", BURST))
    assert requests.prompt.tolist() == [472, 900]
    assert requests.session.tolist() == [0, 0]
    assert [requests.tiers[k] for k in requests.tier] == ["Conversation log", "API log"]
    assert "1 failed calls left out" in requests.source


def test_bailian_chats_are_sessions(tmp_path: Path) -> None:
    requests = read(file(tmp_path, "t.jsonl", BAILIAN))
    assert requests.session.tolist() == [0, 0, 1]
    assert hit_tokens(requests).tolist() == [0, 32, 0]
    assert [requests.tiers[k] for k in requests.tier] == ["text", "image", "text"]


# --- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("t.csv", LENGTHS + "nan,3,4\n", "t.csv:4: arrived_at: expected a number of at least 0, got nan"),
        ("t.csv", LENGTHS + "-1,3,4\n", "t.csv:4: arrived_at: expected a number of at least 0"),
        ("t.csv", LENGTHS + "1,0,4\n", "t.csv:4: num_prefill_tokens: expected a number of at least 1, got 0"),
        ("t.csv", LENGTHS + "1,3,-4\n", "t.csv:4: num_decode_tokens: expected a number of at least 1"),
        ("t.csv", LENGTHS + "1,3.5,4\n", "expected a whole number"),
        ("t.csv", LENGTHS + "1,1_0,4\n", "expected a number, got '1_0'"),
        ("t.csv", LENGTHS + "1,9e15,4\n", "expected a whole number up to"),
        ("t.csv", LENGTHS + "inf,3,4\n", "expected a number of at least 0, got inf"),
        ("t.csv", LENGTHS + "1,3\n", "t.csv:4: expected 3 values, got 2"),
        ("t.csv", LENGTHS + "1,3,x\n2,y,4\n", "t.csv:5: num_prefill_tokens: expected a number, got 'y'"),
        ("t.csv", LENGTHS.splitlines()[0] + "\n", "holds no requests"),
        ("t.csv", "", "is empty"),
        ("t.csv", "a,b\n1,2\n", "no known trace format has its columns (a, b)"),
        ("t.csv", AZURE + "yesterday,3,4\n", "t.csv:4: expected a time such as"),
        ("t.csv", AZURE + "2023-13-16 18:15:46,3,4\n", "t.csv:4: month must be"),
        ("t.csv", AGENTIC + "b,1,0,9,64,1,128,n,,1,1,m\n", "t.csv:8: cached_prefix_tokens: 128 is more than the 64"),
        ("t.jsonl", MOONCAKE + "{\n", "t.jsonl:4: no JSON"),
        ("t.jsonl", MOONCAKE + "[1]\n", "t.jsonl:4: expected an object"),
        ("t.jsonl", MOONCAKE + "[" * 100_000 + "\n", "t.jsonl:4: no JSON"),
        ("t.jsonl", MOONCAKE + lines(mooncake(True, 1, 1, [])), "timestamp: expected a number, got True"),
        ("t.jsonl", MOONCAKE + lines(mooncake(float("nan"), 1, 1, [])), "t.jsonl:4: timestamp: expected a number"),
        ("t.jsonl", MOONCAKE + lines(mooncake(0, 512, 1, [1, 2])), "2 blocks of 512 tokens for 512 tokens, expected at most 1"),
        ("t.jsonl", MOONCAKE + lines(mooncake(0, 512, 1, ["a"])), "hash_ids: expected a list of whole numbers"),
        ("t.jsonl", MOONCAKE + lines(mooncake(0, 512, 1, [2**70])), "63 bits"),
        ("t.jsonl", MOONCAKE + lines({"timestamp": 1, "input_lenght": 3}), "'input_length', did you mean 'input_lenght'?"),
        ("t.jsonl", BAILIAN + lines(bailian("x", -1, 1, [1])), "t.jsonl:4: chat_id: expected a whole number"),
        ("t.jsonl", TRACELAB + TRACELAB.splitlines()[1], "t.jsonl:3: round_index: 1 of this session is there twice"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(name: str, text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(file(tmp_path, name, text))
    assert expected in str(caught.value)


def test_all_mistakes_of_a_file_at_once_up_to_a_limit(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(file(tmp_path, "t.csv", LENGTHS + "1,0,4\n1,2,3\nx,2,3\n"))
    assert [str(problem).split(": ")[0].rpartition(":")[2] for problem in caught.value.problems] == ["4", "6"]
    with pytest.raises(InputError) as caught:
        read(file(tmp_path, "t.csv", LENGTHS + "1,0,4\n" * 1000))
    assert len(caught.value.problems) == 21


def test_files_that_are_no_text_are_told(tmp_path: Path) -> None:
    binary = tmp_path / "b.csv"
    binary.write_bytes(LENGTHS.encode() + b"\xff\xfe,1,2\n")
    short = tmp_path / "s.gz"
    short.write_bytes(gzip.compress((LENGTHS + "1,2,3\n" * 50_000).encode())[:-40])
    quote = file(tmp_path, "q.csv", LENGTHS + '"' + "1,2,3\n" * 50_000)
    for path in (binary, short, tmp_path / "none.csv", tmp_path, quote):
        with pytest.raises(InputError, match=r"cannot be read|no CSV|expected 3 values"):
            read(path)


def test_unknown_formats_and_columns_are_told(tmp_path: Path) -> None:
    path = file(tmp_path, "t.csv", LENGTHS)
    with pytest.raises(InputError, match="unknown trace format 'mooncack', did you mean 'mooncake'"):
        read(path, "mooncack")
    with pytest.raises(InputError, match="missing column 'arrived', did you mean 'arrived_at'"):
        read(path, columns=("arrived", "num_prefill_tokens", "num_decode_tokens"))
    with pytest.raises(InputError, match="expected the names of arrival, prompt and output"):
        read(path, columns=("arrived_at",))
    with pytest.raises(InputError, match="format csv only"):
        read(path, "azure", ("a", "b", "c"))


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "readers").mkdir()
    file(
        tmp_path / "readers", "pairs.py",
        "from hwmodel.serve.readers import named\n"
        "NAME, SAYS, FORM, NEEDS = 'pairs', 'pairs', 'csv', (frozenset({'t', 'p', 'o'}),)\n"
        "def read(path, columns=()):\n    return named.read(path, ('t', 'p', 'o'), 'pairs')\n",
    )  # fmt: skip
    monkeypatch.setenv("HWMODEL_PLUGINS", str(tmp_path))
    formats.cache_clear()
    try:
        assert read(file(tmp_path, "x.csv", "t,p,o\n1,2,3\n")).source == "x.csv (pairs)"
    finally:
        formats.cache_clear()


JUNK = st.sampled_from(
    ["", ",", '"', "\n", "nan", "-1", "1e400", "0", "[]", "null", "{", "}", "9" * 400, "\x00", "é", " ", "_", "true", "-", "T"]
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(SMALL)), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), JUNK), min_size=1, max_size=3))
def test_spoiled_files_are_told_or_read_but_never_crash(
    tmp_path_factory: pytest.TempPathFactory, name: str, cuts: list[tuple[float, int, str]]
) -> None:
    text = SMALL[name]
    for where, length, junk in cuts:
        at = int(where * len(text))
        text = text[:at] + junk + text[at + length :]
    path = file(tmp_path_factory.getbasetemp(), f"spoiled_{name}", text)
    for given_ in ("", name):
        with suppress(InputError):
            valid(recorded(path, given_))


def test_agents_below_agents_are_waited_for(tmp_path: Path) -> None:
    """Main 0-5 s; its sub-agent 5-10 and, after a pause of 20, on; below that one 10-12 s; the main's pause is 60 s."""
    rows = ((0, 0, 0, 5, 0), (0, 1, 0, 5, 0), (0, 2, 0, 2, 0), (1, 1, 25, 5, 20), (1, 0, 65, 1, 60))
    body = "".join(f"r,{idx},{depth},{at},100,1,0,n,tool_use,{took},{pause},m\n" for idx, depth, at, took, pause in rows)
    trace = recorded(file(tmp_path, "t.csv", AGENTIC.splitlines()[0] + "\n" + body))
    assert trace.requests.after.tolist() == [-1, 0, 1, 2, 3]
    assert trace.requests.arrival_s.tolist() == [0, 5, 10, 30, 65]
    assert trace.requests.gap_s.tolist() == [0, 0, 0, 18, 30]
    assert trace.chain.tolist() == [0, 1, 2, 1, 0]


# --- without an engine ------------------------------------------------------------------------------------------------
prompts = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=25)


def asked(contents: list[list[int]], every_s: float = 1.0) -> Requests:
    """Requests whose prompts are these blocks of one token, one after the other."""
    known: dict[tuple[int, ...], int] = {}
    blocks = [known.setdefault(tuple(text[: k + 1]), len(known)) for text in contents for k in range(len(text))]
    n = len(contents)
    sizes = np.array([len(text) for text in contents])
    none, zero = np.full(n, -1), np.zeros(n, np.int64)
    return Requests(np.arange(n) * every_s, sizes, zero + 1, np.concatenate(([0], np.cumsum(sizes))), np.array(blocks), 1,
                    none, none, np.zeros(n), zero)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(prompts)
def test_unlimited_hits_are_the_longest_common_prefixes(contents: list[list[int]]) -> None:
    def common(a: list[int], b: list[int]) -> int:
        return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    expected = [max((common(text, old) for old in contents[:i]), default=0) for i, text in enumerate(contents)]
    assert hit_tokens(asked(contents)).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(prompts, st.integers(1, 12))
def test_stack_distances_are_those_of_an_lru_cache(contents: list[list[int]], size: int) -> None:
    """A cache run block by block is the oracle."""
    requests = asked(contents)
    stack: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for i in range(len(contents)):
        ids = requests.blocks[requests.starts[i] : requests.starts[i + 1]].tolist()
        recent = list(reversed(stack))[:size]
        hits += next((k for k, block in enumerate(ids) if block not in recent), len(ids))
        for block in reversed(ids):
            stack[block] = None
            stack.move_to_end(block)
    assert hit_over_size(requests, [size]).hit[0] == pytest.approx(hits / requests.prompt.sum())


def test_stack_distance_kernel_equals_its_python() -> None:
    rng = np.random.default_rng(3)
    requests = asked([rng.integers(0, 2, rng.integers(1, 8)).tolist() for _ in range(60)])
    order = np.arange(len(requests))
    given_ = (requests.starts, requests.blocks, order, int(requests.blocks.max()) + 1)
    assert (stack_depths(*given_) == stack_depths.py_func(*given_)).all()


def test_hit_rate_over_timeout_by_hand() -> None:
    """Prompts AB, A, ABC at 0, 10, 30 s; answers take no time: A is idle 10 and 20 s, B 30 s."""
    trace = bare(asked([[0, 1], [0], [0, 1, 2]]))
    moved = Requests(**{**vars(trace.requests), "arrival_s": np.array([0.0, 10.0, 30.0])})
    curve = hit_over_timeout(bare(moved), [5, 10, 20, 30])
    assert (curve.hit * 6).tolist() == pytest.approx([0, 1, 2, 3])
    assert curve.unlimited == pytest.approx(3 / 6)
    # held at a timeout of 10 s: A 0-20, B 0-10 of 30 s, and nothing after the last request
    assert curve.held_tokens[1] == pytest.approx((20 + 10) / 30)


def test_answers_keep_blocks_in_use() -> None:
    requests = asked([[0], [0]], 100.0)
    busy = Trace(requests, np.array([95.0, 101.0]), requests.session, requests.tier, requests.tier)
    assert hit_over_timeout(busy, [6]).hit[0] == 0.5
    assert hit_over_timeout(bare(requests), [6]).hit[0] == 0


@settings(max_examples=40, deadline=None)
@given(prompts, st.integers(2, 3))
def test_coarser_blocks_lose_less_than_one_of_them(contents: list[list[int]], factor: int) -> None:
    requests = asked(contents)
    wide = coarser(requests, factor)
    lost = hit_tokens(requests) - hit_tokens(wide)
    assert (lost >= 0).all()
    assert (lost < factor).all()
    assert (hit_tokens(wide) % factor == 0).all()


def test_curves_rise_to_the_unlimited_cache() -> None:
    rng = np.random.default_rng(0)
    requests = asked([rng.integers(0, 2, rng.integers(1, 9)).tolist() for _ in range(200)])
    over_time = hit_over_timeout(bare(requests), [1, 2, 4, 8, 1e6])
    over_size = hit_over_size(requests, [1, 4, 16, 64, 1e6])
    for curve in (over_time, over_size):
        assert (np.diff(curve.hit) >= 0).all()
        assert curve.hit[0] < curve.hit[-1] == pytest.approx(curve.unlimited)


def test_the_picture_of_timeouts_is_the_same_twice(tmp_path: Path) -> None:
    curve = hit_over_timeout(bare(asked([[0, 1], [0], [0, 1]], 60.0)), [30, 60, 120, 3600])
    for name in ("a.png", "b.png"):
        draw_timeouts({"small": curve}, tmp_path / name, "foot")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(InputError, match="a picture is written as"):
        draw_timeouts({"small": curve}, tmp_path / "a.bmp")


# --- from distributions -----------------------------------------------------------------------------------------------
POISSON = {"rate": "4 /s", "requests": 40_000, "prompt": {"mean": 1000, "sigma": 0.8}, "output": {"mean": 200, "sigma": 0.5}}
AGENTS = {
    "kind": "sessions", "rate": "1 /s", "sessions": 60, "prompt": {"mean": 2000}, "output": {"mean": 100}, "shared": 640,
    "seed": 5,
    "agents": {
        "calls": {"mean": 20, "sigma": 0.5}, "tool": {"mean": "3 s", "sigma": 1}, "human": {"mean": "2 min"}, "turn": 8,
        "appended": {"mean": 400, "sigma": 1}, "context_max": 8000,
        "sub_agents": {"share": 0.2, "calls": {"mean": 3}, "prompt": {"mean": 500}},
    },
}  # fmt: skip


def test_poisson_and_gamma_have_their_moments() -> None:
    for cv in (0.5, 1.0, 3.0):
        kind = "poisson" if cv == 1 else "gamma"
        trace = generate(Synthetic.model_validate({**POISSON, "kind": kind, "cv": cv}))
        valid(trace)
        gaps = np.diff(trace.requests.arrival_s)
        assert gaps.mean() == pytest.approx(0.25, rel=4 * cv / 200)  # 4 standard errors
        assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.08)
        logs = np.log(trace.requests.prompt)
        assert trace.requests.prompt.mean() == pytest.approx(1000, rel=0.02)
        assert logs.std() == pytest.approx(0.8, rel=0.02)


def test_the_same_seed_gives_the_same_and_another_rate_only_moves_it() -> None:
    one, two = (generate(Synthetic.model_validate(POISSON)).requests for _ in range(2))
    assert (one.arrival_s == two.arrival_s).all()
    assert (one.prompt == two.prompt).all()
    faster = generate(Synthetic.model_validate({**POISSON, "rate": "8 /s"})).requests
    assert (faster.prompt == one.prompt).all()
    np.testing.assert_allclose(faster.arrival_s * 2, one.arrival_s)
    other = generate(Synthetic.model_validate({**POISSON, "seed": 1})).requests
    assert (other.prompt != one.prompt).any()


def test_a_shared_system_prompt_is_a_shared_prefix() -> None:
    requests = generate(Synthetic.model_validate({**POISSON, "requests": 50, "shared": 128})).requests
    assert hit_tokens(requests).tolist() == [0] + [128] * 49


def test_sessions_grow_reuse_and_wait() -> None:
    trace = generate(Synthetic.model_validate(AGENTS))
    valid(trace)
    requests = trace.requests
    assert len(np.unique(requests.session)) == 60
    assert trace.depth.max() == 1
    assert requests.prompt[trace.depth == 0].max() <= 8000
    hits = hit_tokens(requests)
    anew = 0
    for i in np.flatnonzero((requests.after >= 0) & (trace.depth == 0)):
        before = np.flatnonzero((trace.chain == trace.chain[i]) & (np.arange(len(trace)) < i))[-1]
        grew = (
            hits[i] == requests.prompt[before] // 64 * 64
            and requests.prompt[i] > requests.prompt[before] + requests.output[before]
        )
        anew += not grew
        assert grew or hits[i] == 2640 // 64 * 64
    assert 0 < anew < len(trace) / 5
    firsts = np.flatnonzero(requests.after < 0)
    assert hits[firsts].tolist() == [0] + [640] * 59
    last = [np.flatnonzero(trace.chain == chain)[-1] for chain in np.unique(trace.chain)]
    assert {trace.steps[k] for k in trace.step[last]} == {"end_turn"}
    np.testing.assert_allclose(ended(requests)[: requests.starts.size // 2], trace.end_s[: requests.starts.size // 2])


def test_sessions_start_at_random_when_asked(tmp_path: Path) -> None:
    trace = recorded(file(tmp_path, "t.csv", AGENTIC))
    moved = started(trace, 0.1, seed=2)
    valid(moved)
    first = moved.requests.arrival_s[[0, 5]]
    assert first[0] == 0
    assert first[1] == pytest.approx(float(arrivals(np.random.default_rng(2), 2, 0.1)[1]))
    np.testing.assert_allclose(moved.end_s - moved.requests.arrival_s, trace.end_s - trace.requests.arrival_s)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rate": "0 /s"}, "rate must be more than 0"),
        ({"requests": None}, "needs 'requests'"),
        ({"sessions": 3}, "takes 'requests', not 'sessions'"),
        ({"kind": "sessions", "requests": None, "sessions": 3}, "needs 'agents'"),
        ({"cv": 2}, "cv of poisson is 1"),
        ({"prompt": {"mean": 0}}, "greater than or equal to 1"),
        ({"rate": "4 s"}, "expected /s"),
    ],
)
def test_workloads_that_make_no_sense_are_told(change: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Synthetic.model_validate({**POISSON, **change})


# --- the shared traces ------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def traces(shared: Path) -> Path:
    return shared / "traces"


@pytest.fixture(scope="module")
def agentic(traces: Path) -> Trace:
    return recorded(traces / "agentic_weka" / "weka_requests.csv.gz")


def test_mooncake_trace_is_as_published(traces: Path) -> None:
    requests = read(traces / "mooncake" / "conversation_trace.jsonl")
    found = statistics(requests)
    assert (found.requests, found.prompt_max, found.output_max, found.distinct_blocks) == (12_031, 126_195, 2_000, 182_790)
    assert found.span_s == pytest.approx(3537.0, abs=0.01)
    assert (round(found.prompt_mean), round(found.output_mean, 1), round(found.rate_per_s, 2)) == (12_035, 342.6, 3.40)
    assert round(found.unlimited_hit, 3) == 0.374
    assert round(unlimited_hit(requests.first(2000)), 3) == 0.294
    curve = hit_over_size(requests, [1e6, 1e7, 1e8])
    assert (np.diff(curve.hit) > 0).all()
    assert curve.hit[-1] == pytest.approx(found.unlimited_hit)


def test_azure_trace_and_w1_are_as_published(traces: Path) -> None:
    azure = read(traces / "azure_2023" / "AzureLLMInferenceTrace_conv.csv")
    found = statistics(azure)
    assert (found.requests, found.prompt_max, found.output_max) == (19_366, 14_050, 1_000)
    assert (round(found.span_s, 1), round(found.prompt_mean, 1), round(found.output_mean, 1)) == (3501.7, 1154.7, 211.1)
    assert (found.prompt_median, found.output_median) == (1020, 129)
    w1 = read(traces / "w1" / "w1.csv")
    fits = np.flatnonzero((azure.prompt + azure.output <= 4096) & (azure.output >= 2))[:1000]
    assert (w1.prompt == azure.prompt[fits]).all()
    assert w1.output.sum() == 260_164
    np.testing.assert_allclose(w1.arrival_s, azure.arrival_s[fits] - azure.arrival_s[fits[0]], atol=1e-6)


def test_sharegpt_workloads_are_the_requests_of_the_measured_runs(traces: Path) -> None:
    folder = traces / "measured_vllm"
    for workload, run in (("llama-3.1-8b", "Llama-3.1-8B"), ("qwen3", "Qwen3-30B-A3B-Instruct-2507")):
        asked_, ran = read(folder / f"workload_sharegpt_{workload}.csv"), read(folder / f"RTXPRO6000_{run}.requests.csv")
        assert len(asked_) == len(ran) == 300
        assert (asked_.prompt == ran.prompt).all()
        assert (asked_.output == ran.output).all()


def test_agent_runs_are_as_published(agentic: Trace) -> None:
    found = statistics(agentic.requests)
    assert (found.requests, found.sessions, found.prompt_max, found.prompt_median) == (19_211, 300, 880_502, 104_912)
    assert (round(found.prompt_mean), round(found.output_mean)) == (126_535, 444)
    assert round(found.calls_per_session, 1) == 64.0
    assert round(found.unlimited_hit, 3) == 0.963
    assert (agentic.depth == 1).sum() == 354
    names = [agentic.steps[k] for k in agentic.step]
    assert [names.count(name) for name in ("tool_use", "end_turn", "")] == [16_384, 1_125, 1_702]


def test_agent_runs_hit_what_the_file_says_call_by_call(agentic: Trace, traces: Path) -> None:
    with gzip.open(traces / "agentic_weka" / "weka_requests.csv.gz", "rt") as text:
        rows = list(csv.DictReader(text))
    assert (hit_tokens(agentic.requests) == [int(row["cached_prefix_tokens"]) for row in rows]).all()
    # starts are stated in whole seconds; replayed at the provider's speed the main agents' calls start when they did
    said = np.array([float(row["t_s"]) for row in rows])
    main = agentic.depth == 0
    assert np.abs(agentic.requests.arrival_s - said)[main].max() < 20
    assert np.median(np.abs(agentic.requests.arrival_s - said)[main]) < 2


def test_longer_timeouts_raise_the_agents_hit_rate(agentic: Trace) -> None:
    curve = hit_over_timeout(agentic, [60, 300, 600, 3600])
    assert (np.diff(curve.hit) > 0).all()
    assert (np.diff(curve.held_tokens) > 0).all()
    # TraceLab, other runs: 85.4 % at a minute, 98.6 % at an hour, 95.7 % cached by real providers
    assert curve.hit[0] == pytest.approx(0.823, abs=0.002)
    assert curve.hit[-1] == pytest.approx(0.960, abs=0.002)
    assert curve.hit[-1] < curve.unlimited


def test_tracelab_rounds_are_read(traces: Path) -> None:
    trace = recorded(traces / "tracelab" / "round_trace.jsonl")
    valid(trace)
    requests = trace.requests
    assert np.bincount(requests.session).tolist() == [10, 9]
    assert requests.prompt[:2].tolist() == [32_272, 35_740]
    with (traces / "tracelab" / "round_trace.jsonl").open() as text:
        said = np.array([json.loads(line)["prefix_tokens"] for line in text])
    hits = hit_tokens(requests)
    first = requests.after < 0
    assert (hits[first] == 0).all()
    # all that the provider had of an earlier prompt, in whole blocks; what it had of an answer is no block of a prompt
    longest = np.concatenate([np.maximum.accumulate(requests.prompt[requests.session == k]) for k in (0, 1)])
    most = np.minimum(said[1:], longest[:-1])[~first[1:]]
    assert (hits[~first] == most // 16 * 16).all()
    assert (said[~first] >= hits[~first]).all()


def test_all_shared_traces_keep_their_promises(traces: Path) -> None:
    for path in ("w1/w1.csv", "azure_2023/AzureLLMInferenceTrace_conv.csv", "mooncake/conversation_trace.jsonl"):
        valid(recorded(traces / path))
