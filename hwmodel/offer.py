"""What a service on this hardware costs: output, input and cached input apart, an agent's session, a fast mode, margins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from hwmodel.answered import Answered
from hwmodel.economics import (
    hourly,
    interactivity_line,
    margin,
    memory_said,
    prices_said,
    speed_price,
    usd_per_million,
)
from hwmodel.economics.step import Cost
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario, loaded
from hwmodel.spec.errors import InputError
from hwmodel.workload import Workload

CHUNK = 8192
"""Prompt tokens that one prefill step takes in, at most."""
SHORTEST = 64
SPEEDS = (1.5, 2.0, 2.5)
"""Fast modes that are priced: interactivity over that of the scenario."""


@dataclass(frozen=True)
class TokenCost:
    """Cost of a million tokens of one kind."""

    kind: str
    """output, input, or cached input."""
    usd_per_million: float
    usd_per_million_low: float
    usd_per_million_high: float
    joules_per_token: float | None
    sold_usd_per_million: float | None
    margin: float | None
    how: str


@dataclass(frozen=True)
class Fast:
    """A mode `times` as quick for its users."""

    times: float
    line_price: float | None
    """Cost per token over the standard mode by X(s) = (1 - a s) / b; None past the end of the line."""
    batch: int | None
    """Batch at which the line reaches that speed, and what the model finds there:"""
    times_found: float | None
    price_found: float | None


@dataclass(frozen=True)
class Offer(Answered):
    """The answer of ``hwmodel cost``."""

    scenario: str
    feasible: bool
    reasons: tuple[str, ...]
    tokens: tuple[TokenCost, ...]
    session: dict[str, float]
    """Tokens by kind and USD of one session."""
    streaming_share: float | None
    """a s: the part of the step that does not shrink with the batch; None for a batch of 1."""
    fast: tuple[Fast, ...]
    step: Cost
    """Cost of the scenario's own step, pool by pool."""
    assumptions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel cost --json`` prints it."""
        return {
            "scenario": self.scenario, "feasible": self.feasible, "reasons": list(self.reasons),
            "tokens": [asdict(row) for row in self.tokens], "session": self.session, "streaming_share": self.streaming_share,
            "fast": [asdict(row) for row in self.fast], "step": self.step.to_dict(), "assumptions": list(self.assumptions),
        }  # fmt: skip


def offer(scenario: Scenario | str, prefill: Scenario | str | None = None) -> Offer:
    """Price a decode scenario as a service, as ``hwmodel cost`` does: USD per million tokens, joules, a session, fast modes.

    Parameters
    ----------
    scenario
        Or its name or path.
    prefill
        A prefill scenario whose cluster takes in the prompts (its plan, batch and prices); the decode cluster when None.

    Raises
    ------
    InputError
        When the scenario does not decode, `prefill` does not prefill or prefills another model, or no price of a chip is known.
    """
    scenario, prefill = loaded(scenario), None if prefill is None else loaded(prefill)
    if scenario.workload.phase != "decode":
        raise InputError(
            f"scenario {scenario.name} is a {scenario.workload.phase} step; a service is priced from its decode step"
        )
    if prefill is not None and prefill.workload.phase != "prefill":
        raise InputError(f"scenario {prefill.name} is a {prefill.workload.phase} step; prompts need a prefill step")
    if prefill is not None and prefill.model.name != scenario.model.name:
        raise InputError(
            f"scenario {prefill.name} prefills {prefill.model.name}; "
            f"{scenario.name} decodes {scenario.model.name}: a service has one model"
        )
    made = run(scenario)
    taken = run(prefill) if prefill else _prompt(scenario, made)
    out, taking = _known(made), _known(taken)
    tokens = (_output(scenario, out), _input(taken, taking), _cached(scenario, made, taken, taking))
    share, fast = _fast(scenario, made, out)
    reasons = (*made.reasons, *(f"prefill: {text}" for text in taken.reasons))
    return Offer(
        scenario.name, not reasons, reasons, tokens, _session(scenario, tokens), share, fast, out,
        (f"prices: {scenario.economics.said()}", *_dated(scenario, taken.placed.scenario),
         *(f"{row.kind}: {row.how}" for row in tokens),
         f"session: every call at the cost of the scenario's context of {scenario.workload.context:,} tokens"),
    )  # fmt: skip


def _dated(*scenarios: Scenario) -> tuple[str, ...]:
    """Where the prices of all chips come from, and what memory does to them."""
    said = [line for each in scenarios for make in (prices_said, memory_said) for line in make(each.cluster, each.economics)]
    return tuple(dict.fromkeys(said))


def _known(result: Result) -> Cost:
    if result.cost is None:
        raise InputError(f"{result.scenario}: {result.cost_reason}")
    return result.cost


def _prompt(scenario: Scenario, made: Result) -> Result:
    """The step that takes in prompts: the mean chunk of prompts as long as the context, one per data-parallel group.

    Chunks are the longest that fit.
    """
    work = scenario.workload
    groups = made.placed.graph.degrees.get(f"{scenario.cluster.pools[0].name}.dp", 1)
    new = min(work.context, CHUNK)
    while True:
        chunk = Workload(
            phase="prefill", batch=min(groups, work.batch), new_tokens=new, cached=(work.context - new) // 2,
            routing=work.routing, kv_alloc=work.kv_alloc, kv_block=work.kv_block,
        )  # fmt: skip
        found = run(replace(scenario, workload=chunk))
        if found.feasible or new <= SHORTEST:
            return found
        new = max(SHORTEST, new // 2)


def _output(scenario: Scenario, spent: Cost) -> TokenCost:
    sold = scenario.economics.sold
    price = float(sold.output_usd_per_mtok) if sold and sold.output_usd_per_mtok else None
    usd = float(spent.usd_per_million_output_tokens or 0.0)
    return TokenCost("output", usd, spent.usd_per_million_low, spent.usd_per_million_high, spent.joules_per_token, price,
                     margin(usd, price) if price else None, "the scenario's own decode step")  # fmt: skip


def _input(taken: Result, spent: Cost) -> TokenCost:
    work, sold = taken.placed.scenario.workload, taken.placed.scenario.economics.sold
    price = float(sold.input_usd_per_mtok) if sold and sold.input_usd_per_mtok else None
    usd = float(spent.usd_per_million_input_tokens or 0.0)
    how = f"a prefill step of {work.batch:,} x {work.new_tokens:,} new tokens behind {work.cached:,}, on "
    how += " + ".join(f"{pool.count:,} {pool.chip.name}" for pool in taken.placed.scenario.cluster.pools)
    return TokenCost("input", usd, spent.usd_per_million_low, spent.usd_per_million_high, spent.joules_per_token, price,
                     margin(usd, price) if price else None, how)  # fmt: skip


def _cached(scenario: Scenario, made: Result, taken: Result, taking: Cost) -> TokenCost:
    """What a cached token costs: the attention of new tokens to it, and the memory it takes until its next use."""
    prices, work = scenario.economics, scenario.workload
    source = taken.placed.scenario
    new = max(1, prices.session.input_per_call)
    beside = source.workload.model_copy(update={"new_tokens": new, "cached": work.context})
    alone = source.workload.model_copy(update={"new_tokens": new, "cached": 0})
    times = [run(replace(source, workload=each)).step.time_s for each in (beside, alone)]
    cached = source.workload.batch * work.context
    read = taking.usd_per_hour / 3600 * max(0.0, times[0] - times[1]) / cached * 1e6 / float(prices.utilisation)
    keep = _kept_usd(made) * float(prices.session.keep_s) / 3600 * 1e6
    usd = read + keep
    price = float(prices.sold.cached_input_usd_per_mtok) if prices.sold and prices.sold.cached_input_usd_per_mtok else None
    how = f"{read:.3g} USD/Mtok for {new:,} new tokens that attend to it, {keep:.3g} for its share of memory over "
    how += f"{float(prices.session.keep_s):g} s"
    again = float(taking.usd_per_million_input_tokens or 0.0)
    if usd > again > read:
        worth = float(prices.session.keep_s) * (again - read) / keep
        how += f"; dearer than computing it again ({again:.3g}): worth keeping for up to {worth:.2g} s"
    low, high = (factor / float(prices.session.keep_s) for factor in (prices.session.keep_s.low, prices.session.keep_s.high))
    return TokenCost("cached input", usd, read + keep * low, read + keep * high, None, price,
                     margin(usd, price) if price else None, how)  # fmt: skip


def _kept_usd(made: Result) -> float:
    """USD per hour of the memory that one cached token takes: each chip's price times its share of that tier."""
    scenario = made.placed.scenario
    tokens = scenario.workload.batch * scenario.workload.context
    return sum(
        (hourly(scenario.cluster.pool(row.pool), scenario.economics) or (0.0, ""))[0]
        * row.kv_bytes
        / row.capacity_bytes
        / tokens
        for row in made.memory
    )


def _session(scenario: Scenario, tokens: tuple[TokenCost, ...]) -> dict[str, float]:
    session = scenario.economics.session
    seen = session.input_tokens - session.new_tokens
    cached = float(session.cache_hit) * seen
    counts = {"output": float(session.calls * session.output_per_call), "input": session.input_tokens - cached,
              "cached input": cached}  # fmt: skip
    usd = {row.kind: counts[row.kind] * row.usd_per_million / 1e6 for row in tokens}
    without = usd["output"] + session.input_tokens * next(row.usd_per_million for row in tokens if row.kind == "input") / 1e6
    return {
        "calls": float(session.calls), "output_tokens": counts["output"], "input_tokens": counts["input"],
        "cached_input_tokens": cached, "output_usd": usd["output"], "input_usd": usd["input"],
        "cached_input_usd": usd["cached input"], "usd": sum(usd.values()), "usd_without_reuse": without,
    }  # fmt: skip


def _fast(scenario: Scenario, made: Result, spent: Cost) -> tuple[float | None, tuple[Fast, ...]]:
    """The line through the scenario's step and that of half its batch, and the model at the batches it names."""
    work = scenario.workload
    if work.batch < 2:
        return None, ()
    half = run(replace(scenario, workload=work.model_copy(update={"batch": work.batch // 2})))
    a, b = interactivity_line((work.batch, made.step.time_s), (work.batch // 2, half.step.time_s))
    share = min(1.0, max(0.0, a / made.step.time_s))
    found = []
    for times in SPEEDS:
        price = speed_price(share, times)
        batch = round((made.step.time_s / times - a) / b) if b > 0 else 0
        if price == float("inf") or batch < 1:
            found.append(Fast(times, None, None, None, None))
            continue
        there = run(replace(scenario, workload=work.model_copy(update={"batch": batch})))
        usd = usd_per_million(spent.usd_per_hour, there.step.tokens_per_s, float(scenario.economics.utilisation))
        ratio = usd / float(spent.usd_per_million_output_tokens or 1.0)
        found.append(Fast(times, price, batch, made.step.time_s / there.step.time_s, ratio))
    return share, tuple(found)
