"""KV tiers: who leaves a full one, what writing costs, how long a drive lasts, pools that instances share."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from serving_cases import fleet, proportional, requests

from hwmodel.cli import cli
from hwmodel.kernels import serving_columns as c
from hwmodel.kernels.serving_columns import Serving
from hwmodel.kernels.serving_lists import relist
from hwmodel.kernels.serving_tiers import demote
from hwmodel.serve.engine import Run, simulate
from hwmodel.serve.forecast import forecast
from hwmodel.serve.kv import Eviction, Tier
from hwmodel.serve.metrics import hit_rate, ttft_s
from hwmodel.serve.offline import coarser
from hwmodel.serve.predictors.constant import Always, Never
from hwmodel.serve.predictors.noisy import Noisy
from hwmodel.serve.predictors.oracle import Oracle
from hwmodel.serve.profile import arrivals_over_time, lengths, pauses_s
from hwmodel.serve.readers import recorded
from hwmodel.serve.readers.closed import Call, closed_loop
from hwmodel.serve.requests import Requests
from hwmodel.serve.result import to_dict
from hwmodel.serve.simulate import answer, foreseen, kinds_of, load_service
from hwmodel.serve.synthetic import started
from hwmodel.serve.trace import Trace
from hwmodel.spec.errors import InputError

BLOCK = 16
TOKEN_S = 1e-3


# --- who leaves -------------------------------------------------------------------------------------------------------
class Arc:
    """ARC as Megiddo and Modha write it (FAST 2003, figure 4), on Python dictionaries: the oracle."""

    def __init__(self, size: int) -> None:
        self.c, self.p = size, 0.0
        self.t1, self.t2, self.b1, self.b2 = (OrderedDict[int, None]() for _ in range(4))

    def replace(self, x: int) -> None:
        if self.t1 and ((x in self.b2 and len(self.t1) == self.p) or len(self.t1) > self.p or not self.t2):
            self.b1[self.t1.popitem(last=False)[0]] = None
        else:
            self.b2[self.t2.popitem(last=False)[0]] = None

    def use(self, x: int) -> bool:
        """Whether x was there."""
        if x in self.t1 or x in self.t2:
            (self.t1 if x in self.t1 else self.t2).pop(x)
            self.t2[x] = None
            return True
        if x in self.b1:
            self.p = min(self.c, self.p + max(len(self.b2) / len(self.b1), 1))
            self.replace(x)
            del self.b1[x]
            self.t2[x] = None
        elif x in self.b2:
            self.p = max(0, self.p - max(len(self.b1) / len(self.b2), 1))
            self.replace(x)
            del self.b2[x]
            self.t2[x] = None
        else:
            if len(self.t1) + len(self.b1) == self.c:
                if len(self.t1) < self.c:
                    self.b1.popitem(last=False)
                    self.replace(x)
                else:
                    self.t1.popitem(last=False)
            elif (total := len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2)) >= self.c:
                if total == 2 * self.c:
                    self.b2.popitem(last=False)
                self.replace(x)
            self.t1[x] = None
        return False


def tier_of(policy: int, room: int, ids: int, worth: np.ndarray) -> Serving:
    """One instance with one tier below, nothing in it."""
    none, lists = np.zeros(0, np.int64), len(worth)
    cache = np.full((4, 1, 2, ids + lists), -1, np.int32)
    cache[[c.OLDER, c.NEWER], :, :, ids:] = np.arange(ids, ids + lists)
    tier, tier_s = np.zeros((1, 2, c.N_TIER), np.int64), np.zeros((1, 2, c.N_TIER_S))
    tier[0, 1, [c.ROOM, c.EVICTS, c.DUPLEX]] = room, policy, 1
    tier_s[0, 1, c.BEHIND_S] = np.inf
    real = np.zeros((0, 0))
    return Serving(
        req=np.zeros((0, 0), np.int64), when=real, inst=np.zeros((1, c.N_INSTANCE), np.int64), meter=real,
        batch=np.zeros((0, 0), np.int64), starts=none, blocks=none, cache=cache, tier=tier, tier_s=tier_s, table=real,
        rank=np.zeros((1, 1, c.N_RANK)),
        axes=real, axis=np.zeros((0, 0), np.int64), gaps=none, total=np.zeros(c.N_TOTAL), follow=none,
        used=np.zeros((1, 2, ids + lists), np.float32), forecast=none, worth=worth,
    )  # fmt: skip


@njit
def use_all(s: Serving, units: np.ndarray, hits: np.ndarray) -> None:
    """Use units one after the other: one that is there is read, another one comes in."""
    for i in range(units.shape[0]):
        hits[i] = s.cache[c.HOLDERS, 0, 1, units[i]] >= 0
        if hits[i]:
            relist(s, 0, 1, units[i], c.OFTEN)
        else:
            demote(s, 0, 1, units[i], 0, float(i), float(i))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([8, 20, 60]))
def test_arc_is_that_of_the_paper(room: int, seed: int, ids: int) -> None:
    rng = np.random.default_rng(seed)
    units = np.where(rng.random(600) < 0.5, rng.integers(0, ids, 600), rng.integers(0, max(2, ids // 4), 600))
    state, hits = tier_of(c.ARC, room, ids, np.zeros((4, 1))), np.zeros(600, np.bool_)
    use_all(state, units, hits)
    oracle = Arc(room)
    assert hits.tolist() == [oracle.use(int(x)) for x in units]
    assert state.tier_s[0, 1, c.TARGET] == oracle.p
    lengths = [len(found) for found in (oracle.t1, oracle.t2, oracle.b1, oracle.b2)]
    assert state.tier[0, 1, c.LENGTHS :].tolist() == lengths


@njit
def bring(s: Serving, units: np.ndarray, kinds: np.ndarray) -> None:
    """Units come in one a second."""
    for i in range(units.shape[0]):
        demote(s, 0, 1, units[i], kinds[i], float(i), float(i))


def there(state: Serving, ids: int) -> list[int]:
    return np.flatnonzero(state.cache[c.HOLDERS, 0, 1, :ids] >= 0).tolist()


def test_the_least_worth_leaves_and_what_is_worth_nothing_does_not_come() -> None:
    worth = np.array([[0.9] * 40, [0.5] * 8 + [0.1] * 32, [-np.inf] * 40])
    state = tier_of(c.RETURN, 2, 10, worth)
    bring(state, np.array([0, 1, 2]), np.array([0, 1, 0]))
    assert there(state, 10) == [0, 2], "of 0.9 and 0.5 the second goes"
    bring(state, np.array([3]), np.array([2]))
    assert there(state, 10) == [0, 2]
    bring(state, np.array([4]), np.array([1]))
    assert there(state, 10) == [0, 2], "a full tier does not take what is worth less than all it has"
    assert state.tier[0, 1, c.WRITES] == 3
    assert state.tier[0, 1, c.DROPPED] == 2
    aged = tier_of(c.RETURN, 2, 10, np.array([[0.9] * 8 + [0.1] * 40, [0.5] * 48]))
    bring(aged, np.array([0, 1, 2]), np.array([0, 1, 1]))
    assert there(aged, 10) == [1, 2], "2 s old the first is worth 0.1"


# --- in the engine ----------------------------------------------------------------------------------------------------
def visits(order: list[int], gap_s: float = 10.0, blocks: int = 4) -> Requests:
    """Requests of families that share their prompts, one every `gap_s`; a prompt is computed in 65 ms."""
    n = len(order)
    ids = np.array(order)[:, None] * blocks + np.arange(blocks)
    return requests(np.arange(n) * gap_s, blocks * BLOCK + 1, 1, starts=np.arange(n + 1) * blocks, blocks=ids.ravel())


def served(work: Requests, *tiers: Tier, pages: int = 5, eviction: Eviction = Eviction(), **given_: Any) -> Run:  # noqa: B008
    made = fleet(proportional(TOKEN_S), pages=pages, page=BLOCK, tiers=tiers, **given_)
    return simulate(work, replace(made, eviction=eviction))


def hits(run: Run) -> list[int]:
    return run.req[:, c.HIT].tolist()


def test_an_idle_prompt_is_found_until_its_timeout() -> None:
    """Ends at 0.065 s and comes back 9.935 s later, then 10 s after that."""
    work = visits([0, 0, 0])
    for ttl, expected in ((9.93, [0, 0, 0]), (9.94, [0, 64, 0]), (10.0, [0, 64, 64])):
        assert hits(served(work, eviction=Eviction("ttl", ttl)))[1] == expected[1]
    assert hits(served(work, eviction=Eviction("ttl", 1e9))) == [0, 64, 64]
    assert hits(served(work)) == [0, 64, 64]


def test_a_timeout_holds_in_the_tiers_below_too() -> None:
    work = visits([0, 1, 0, 1, 0])
    dram = Tier("dram", 100.0 * BLOCK, 1e9, 0.0)
    assert hits(served(work, dram)) == [0, 0, 64, 64, 64]
    assert hits(served(work, dram, eviction=Eviction("ttl", 15.0))) == [0, 0, 0, 0, 0]
    found = served(work, dram, eviction=Eviction("ttl", 25.0))
    assert hits(found) == [0, 0, 64, 64, 64]
    assert sum(served(work, dram, eviction=Eviction("ttl", 15.0)).tier[0, :, c.EXPIRED]) > 0


def test_longer_timeouts_raise_the_hit_rate() -> None:
    rng = np.random.default_rng(3)
    work = visits(rng.integers(0, 12, 300).tolist())
    found = [hit_rate(served(work, pages=100, eviction=Eviction("ttl", ttl))) for ttl in (20.0, 60.0, 200.0, 600.0)]
    assert (np.diff(found) > 0).all()


def test_writes_delay_reads_where_they_share_the_way() -> None:
    """4 units of 1 s to write each as the second prompt comes; the first one's return reads behind those that it puts out."""
    work = visits([0, 1, 0], gap_s=0.5)
    slow = {"write_bytes_per_s": 1.0 * BLOCK, "read_bytes_per_s": 1e6, "latency_s": 0.0}
    apart = served(work, Tier("ssd", 1e6, **slow))
    assert hits(apart) == [0, 0, 64]
    together = served(work, Tier("ssd", 1e6, **slow, duplex=False))
    assert hits(together) == [0, 0, 0], "the way is busy for longer than computing takes"
    later = served(visits([0, 1, 0], gap_s=6.0), Tier("ssd", 1e6, **slow, duplex=False))
    assert hits(later) == [0, 0, 64]
    assert later.when[2, c.LOADING_S] == pytest.approx(4 * BLOCK / 1e6, rel=1e-3)


def test_what_finds_the_buffer_full_is_not_kept() -> None:
    """A way of one unit a second and a buffer of one: of four that leave at once two are kept, those written first."""
    slow = Tier("ssd", 1e6, 1e6, 0.0, 1.0 * BLOCK, buffer_bytes=1.0 * BLOCK)
    found = served(visits([0, 1]), slow)
    assert found.tier[0, 1, [c.WRITES, c.UNWRITTEN]].tolist() == [2, 2]
    assert found.tier_s[0, 1, c.WRITING_S] == pytest.approx(2.0)


def test_a_pool_gives_one_instance_what_another_one_wrote() -> None:
    """Round robin over two instances: the prompt put out of the first is read by the second."""
    work = visits([0, 1, 2, 0, 3, 3])
    own, pool = (Tier("pool", 1e6, 1e6, 0.0, pooled=pooled) for pooled in (False, True))
    assert hits(served(work, own, instances=2, routing="round_robin"))[3] == 0
    found = served(work, pool, instances=2, routing="round_robin")
    assert hits(found)[3] == 64
    assert found.tier[:, 1, c.READS].tolist() == [0, 4]
    assert found.tier[1, 1, c.ROOM] == 0, "one pool, counted once"


def sessions(ends: str) -> Trace:
    """Conversations of one or two calls, a second apart: those marked r come back after 20 s, those marked - do not."""
    calls: list[Call] = []
    for k, mark in enumerate(ends):
        calls.append(Call(65, 1, 0, "end_turn", k, k, 0, -1, 0.0, 0.1, float(k)))
        if mark == "r":
            calls.append(Call(129, 1, 64, "end_turn", k, k, 0, len(calls) - 1, 20.0, 0.1))
    return closed_loop(calls, BLOCK, "")


def test_who_knows_keeps_those_who_return() -> None:
    """Room below for two of four prompts: LRU keeps the last two, who do not come back."""
    trace = sessions("rr--" * 3)
    dram = Tier("dram", 24.0 * BLOCK, 1e9, 0.0)
    found = {}
    for name, predictor in (("oracle", Oracle()), ("always", Always()), ("never", Never())):
        work = forecast(trace, predictor, 60.0, drop=0.01)
        found[name] = served(work, dram, pages=9, eviction=Eviction("return"))
    lru = served(trace.requests, dram, pages=9)
    assert hit_rate(found["oracle"]) == pytest.approx(6 * 64 / trace.requests.prompt.sum())
    assert hit_rate(found["oracle"]) > hit_rate(lru)
    assert ttft_s(found["oracle"]).mean() < ttft_s(lru).mean()
    assert hit_rate(found["always"]) <= hit_rate(found["oracle"])
    assert found["never"].tier[0, 1, c.WRITES] == 0
    assert found["never"].tier[0, 1, c.DROPPED] > 0
    assert found["oracle"].tier[0, 1, c.WRITES] < lru.tier[0, 1, c.WRITES], "what does not return is not written"


def test_a_forecast_says_the_same_worth_of_equal_chances_and_none_of_no_conversation() -> None:
    trace = sessions("r-r-")
    work = forecast(trace, Oracle(), 60.0, drop=0.01)
    assert work.forecast is not None
    assert work.worth is not None
    first = work.forecast[trace.requests.after < 0]
    assert first[0] == first[2] != first[1] == first[3]
    came, not_ = work.worth.table[first[0]], work.worth.table[first[1]]
    assert (not_ == -np.inf).all()
    assert came[0] > 0
    assert work.worth.auc == 1
    apart = forecast(replace(trace, chain=np.full(len(trace), -1)), Oracle(), 60.0)
    assert apart.forecast is not None
    assert not apart.forecast.any()
    short = work.first(2).forecast
    assert short is not None
    assert short.tolist() == work.forecast[:2].tolist()


def test_by_return_needs_a_forecast() -> None:
    with pytest.raises(InputError, match="needs a forecast"):
        served(visits([0]), eviction=Eviction("return"))


# --- the commands -----------------------------------------------------------------------------------------------------
def test_a_folder_gets_pictures_and_a_chrome_trace(tmp_path: Path) -> None:
    arguments = ["simulate", "w1_llama_8b_h100", "--requests", "50", "--json", "--out", str(tmp_path)]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    for name in ("over_time.png", "percentiles.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    told = json.loads((tmp_path / "trace.json").read_text())
    spans = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert {event["args"]["request"] for event in spans} == set(range(50))
    lanes: dict[tuple[int, int], float] = {}
    for event in spans:
        lane = (event["pid"], event["tid"])
        assert event["ts"] >= lanes.get(lane, -1.0) - 1e-3, "spans of a lane do not overlap"
        lanes[lane] = event["ts"] + event["dur"]


def test_the_series_halves_when_it_is_full_and_ends_with_nothing_left() -> None:
    found = simulate(requests(np.arange(3000) * 0.01, 5, 6), fleet(proportional(TOKEN_S)))
    assert found.iterations > 4096
    assert 2000 < len(found.series) <= 4096
    assert (np.diff(found.series[:, c.AT_S]) >= 0).all()
    assert found.series[:, c.RUNNING_].max() >= 1
    assert (found.series[:, c.USED_PAGES] >= found.series[:, c.RUNNING_] * (1 - 1e-9)).all()
    assert not found.series[-1, c.RUNNING_ :].any()
    time = np.diff(found.series[:, c.AT_S])
    busy = found.when[:, c.FINISH] - found.when[:, c.SCHEDULED]
    assert found.series[:-1, c.RUNNING_] @ time == pytest.approx(busy.sum()), "means over time, whatever became of the rows"


def test_an_idle_service_is_seen_idle_however_long_the_series() -> None:
    """3,000 requests of 10 ms, one a second: busy 1 % of the time, in every row that is a second long."""
    found = simulate(requests(np.arange(3000.0), 9, 2), fleet(proportional(TOKEN_S)))
    assert len(found.series) > 2000
    assert found.series[-1000:-3, c.RUNNING_] == pytest.approx(0.01, abs=1e-6)


def test_the_command_trace_describes_a_scenario_and_a_file(tmp_path: Path) -> None:
    made = CliRunner().invoke(cli, ["trace", "rubin_dram_ssd_agents", "--json", "--out", str(tmp_path)])
    assert made.exit_code == 0, made.output
    told = json.loads((tmp_path / "trace.json").read_text())
    assert told["statistics"]["sessions"] == 120
    assert (np.diff(told["hit_over_timeout"]["hit"]) > 0).all()
    assert (np.diff(told["hit_over_size"]["hit"]) >= 0).all()
    hit = {row["policy"]: row["limited"]["hit"] for row in told["returns"]["policies"] if row["limited"]}
    assert hit["never"] == 0 < hit["LRU"] <= hit["perfect information"] <= told["statistics"]["unlimited_hit"]
    for name in ("arrivals", "lengths", "reuse", "timeouts"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    (tmp_path / "own.csv").write_text("at,in,out,priority\n0,100,5,low\n1,300,5,high\n")
    asked = ["trace", str(tmp_path / "own.csv"), "--columns", "at,in,out", "--json", "--out", str(tmp_path / "own")]
    plain = CliRunner().invoke(cli, asked)
    assert plain.exit_code == 0, plain.output
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"trace.json", "arrivals.png", "lengths.png"}
    assert [(one["class"], one["prompt_mean"]) for one in json.loads(plain.stdout)["classes"]] == [("low", 100), ("high", 300)]
    assert json.loads(plain.stdout)["statistics"]["prompt_mean"] == 200
    assert json.loads(plain.stdout)["returns"] is None


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        ("{policy: ttl}", "timeout"), ("{policy: lru, auc: 0.7}", "policy return"), ("{policy: arc}", "state 'tiers'"),
        ("{policy: return, predictor: orakle}", "did you mean 'oracle'"), ("{policy: return, predictor: noisy}", "needs 'auc'"),
    ],
)  # fmt: skip
def test_mistakes_of_keep_are_told(keep: str, said: str) -> None:
    found = CliRunner().invoke(cli, ["simulate", "w1_llama_8b_h100", "--set", f"serving.keep={keep}"])
    text = found.output + str(found.exception or "") + str(getattr(found.exception, "problems", ""))
    assert found.exit_code != 0
    assert said in text


def test_arrivals_lengths_and_pauses_of_a_trace() -> None:
    """Eight requests in 7 s in two parts of 3.5 s; two classes; a session that comes back after 2 s and then no more."""
    work = requests(
        np.arange(8.0), [10, 20, 30, 40, 50, 60, 70, 80], 2, tier=np.array([1, 0, 0, 0, 1, 0, 0, 0]), tiers=("a", "b")
    )
    found = arrivals_over_time(work)
    assert found.edges_s.tolist() == [0, 3.5, 7]
    assert (found.requests_per_s * 3.5).tolist() == [4, 4]
    assert (found.prompt_per_s * 3.5).tolist() == [100, 260]
    assert {name: prompt.tolist() for name, (prompt, _) in lengths(work).items()} == {
        "a": [20, 30, 40, 60, 70, 80],
        "b": [10, 50],
    }
    trace = closed_loop([Call(10, 1, 0, "tool_use", 0, 0), Call(20, 1, 10, "end_turn", 0, 0, 0, 0, 2.0)], 16, "")
    assert {name: values.tolist() for name, values in pauses_s(trace).items()} == {"tool_use": [2.0], "end_turn": [np.inf]}


# --- the agents' runs -------------------------------------------------------------------------------------------------
def test_agents_on_a_small_cluster_with_little_dram(shared: Path) -> None:
    """30 runs in closed loops: longer timeouts raise the hit rate; policies side by side in hit rate, TTFT and USD."""
    trace = recorded(shared / "traces" / "agentic_weka" / "weka_requests.csv.gz")
    count = int(np.flatnonzero(trace.requests.session >= 30)[0])
    columns = {name: getattr(trace, name)[:count] for name in ("end_s", "chain", "depth", "step")}
    trace = started(replace(trace, requests=coarser(trace.requests.first(count), 8), **columns), 0.01)
    base = ["serving.instances=1", "serving.tiers=[{tier: dram, capacity: 50 GB, bandwidth: 800 GB/s}]",
            "serving.kv_tokens=1500000"]  # fmt: skip
    kinds = kinds_of(load_service("rubin_dram_ssd_agents", base), trace.requests)
    told: dict[str, dict[str, Any]] = {}
    keeps = {"lru": "{policy: lru}", "arc": "{policy: arc}", "AUC 0.69": "{policy: return, predictor: noisy, auc: 0.69}",
             "oracle": "{policy: return, predictor: oracle}", "never": "{policy: return, predictor: never, drop: 0.01}",
             **{f"ttl {t}": f"{{policy: ttl, timeout: {t}}}" for t in ("1 min", "10 min", "1 h")}}  # fmt: skip
    for name, keep in keeps.items():
        service = load_service("rubin_dram_ssd_agents", [*base, f"serving.keep={keep}"])
        told[name] = to_dict(answer(service, foreseen(service, trace), kinds=kinds))
    hit = {name: found["prefix_hit_rate"] for name, found in told.items()}
    assert hit["ttl 1 min"] + 0.02 < hit["ttl 10 min"] < hit["ttl 1 h"] <= hit["lru"] + 0.002
    assert abs(hit["AUC 0.69"] - hit["lru"]) < 0.03
    assert abs(hit["oracle"] - hit["lru"]) < 0.03
    assert hit["never"] < hit["oracle"]
    assert told["ttl 1 min"]["ttft_s"]["mean"] > told["oracle"]["ttft_s"]["mean"]
    assert told["ttl 1 min"]["sessions"]["usd_busy"] > told["oracle"]["sessions"]["usd_busy"]
    assert told["never"]["tiers"][0]["written_bytes"] == 0 < told["lru"]["tiers"][0]["written_bytes"]


def test_the_more_a_predictor_knows_the_more_is_found(shared: Path) -> None:
    """300 runs on one instance, 3 M tokens of HBM and 200 GB of DRAM, begun at random under two seeds.

    Who knows returns finds most, then AUC 0.69, then LRU. `always` is below LRU for most seeds (10 of 12): sure of a return
    within the horizon, it thinks it the nearer the longer none has come, and keeps those that never come until the horizon is
    over; `never` knows no one from another.
    """
    full = recorded(shared / "traces" / "agentic_weka" / "weka_requests.csv.gz")
    runs = replace(full, requests=coarser(full.requests, 8))
    base = ["serving.instances=1", "serving.tiers=[{tier: dram, capacity: 200 GB, bandwidth: 800 GB/s}]",
            "serving.kv_tokens=3000000"]  # fmt: skip
    lru, return_ = (
        load_service("rubin_dram_ssd_agents", [*base, f"serving.keep={{policy: {name}}}"]) for name in ("lru", "return")
    )
    kinds = kinds_of(lru, runs.requests)
    for seed in (0, 1):
        trace = started(runs, 0.01, seed)
        who = {"oracle": Oracle(), "AUC 0.69": Noisy(auc=0.69, seed=seed), "always": Always(), "never": Never()}
        hit = {name: hit_rate(answer(return_, forecast(trace, predictor), kinds=kinds).run) for name, predictor in who.items()}
        hit["LRU"] = hit_rate(answer(lru, trace.requests, kinds=kinds).run)
        assert hit["oracle"] > hit["AUC 0.69"] > max(hit["LRU"], hit["always"]), hit
        assert min(hit["LRU"], hit["always"]) > hit["never"], hit
