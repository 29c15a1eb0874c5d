"""Claims of vendors that no public measurement settles: bounded by what this program knows, with what must be true for them.

A row agrees when the printed figure lies between `low` and `high`, what the ranges of the inputs allow; what physics allows
beyond them (`physical_floor`) makes no row agree, it only keeps a claim from being excluded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from hwmodel.claims.rows import MISSED, WITHIN, Claim, Library, Numbered, Value
from hwmodel.hardware import Chip, Cluster, Pool, Wire, with_number
from hwmodel.lower.decoder import Formats
from hwmodel.lower.moe import Moe
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt
from hwmodel.partition.context import Context
from hwmodel.partition.disaggregate import Disaggregate
from hwmodel.partition.expert import Expert
from hwmodel.partition.pipeline import Pipeline
from hwmodel.partition.tensor import Tensor
from hwmodel.result import Step
from hwmodel.run import Result, run
from hwmodel.scenario import Scenario
from hwmodel.spec.number import Number
from hwmodel.workload import Speculative, Workload

LPU, NEW, OLD = "groq3_lpu", "rubin", "gb200"
LAUNCH = "execution.launch"
NVL72 = 72
FP8 = fmt("fp8")
STAGES = 16
"""Of a rack of 256 LPUs, one after the other."""
EXPERTS = 768
SHARDS = 6
"""Chips that hold one expert of all 60 layers: 441 MB of 500."""
RACKS = round(EXPERTS * SHARDS / 256 * 8 / 5)
"""Rubin NVL72 that share the 18 racks of experts: 8 to 5 is the deployment that a broker names."""


def bounded(
    claim: str, printed: str, result: float, ends: tuple[float, float], formula: str, inputs: Mapping[str, Value], note: str
) -> Claim:
    """Make a row whose printed figure is compared with a range instead of a value."""
    figure, _, unit = printed.partition(" ")
    low, high = ends
    agrees = low <= float(figure) <= high
    return Claim(0, claim, formula, {**inputs, "low": low, "high": high}, result, unit, float(figure), agrees, note,
                 WITHIN if agrees else MISSED)  # fmt: skip


def gemma_on_lpx(known: Library) -> Iterator[Claim]:
    """One user of Gemma-4-31B at 100,000 tokens, all of the decode step on LPUs (NVIDIA, Artificial Analysis, August 2026)."""
    model, chip, context, rate, named = known.model("gemma-4-31b"), known.chip(LPU), 100_000, 3431.0, 64
    held = counts.weights_bytes(model, FP8) + counts.kv_law(model, FP8).at(context)
    inputs: dict[str, Value] = {"model": model.name, "chip": chip.name, "context": context, "dtypes": "fp8"}
    capacity = float(chip.main.capacity_bytes)
    full = held / capacity
    yield bounded(
        "LPUs that hold Gemma-4-31B and its cache, at least", f"{named} chips", full, (full * 0.5, full), "(W + KV) / C",
        {**inputs, "held_bytes": held, "capacity_bytes": capacity},
        f"the count is not published; the press says at least {named}: true with 4-bit weights or cache at the low end, "
        "too few at 8 bits. A rack has 256",
    )  # fmt: skip
    step = _gemma(model, chip, context).step
    users, ends = 1 / step.time_s, (1 / step.time_high_s, 1 / step.time_low_s)
    floor = held / (256 * float(chip.main.bandwidth_bytes_per_s))
    launch = chip.execution.launch_s
    slow, quick = (1 / _gemma(model, with_number(chip, LAUNCH, end), context).step.time_s for end in (launch.high, launch.low))
    others = _gemma(model, with_number(chip, LAUNCH, float(launch)), context).step
    least, most = 1 / others.time_high_s, 1 / others.time_low_s
    yield bounded(
        "Gemma-4-31B at 100,000 tokens on a rack of LPUs, one user", "3431 tokens/s", users, ends,
        "1 / step time, 16 chips per layer, 16 stages in a row",
        {**inputs, "chips": 256, "floor_s": floor, "op_cost_s": float(launch), "low_of_op_cost_alone": slow,
         "high_of_op_cost_alone": quick, "low_at_this_op_cost": least, "high_at_this_op_cost": most},
        f"the range is wide ({ends[1] / ends[0]:.0f}-fold) by one assumption: the cost of an op on an LPU, estimated at "
        f"{launch * 1e6:g} us ({launch.low * 1e6:g} to {launch.high * 1e6:g}), alone moves the rate from {slow:,.0f} to "
        f"{quick:,.0f}; at {launch * 1e6:g} us all other inputs together leave {least:,.0f} to {most:,.0f}. Nothing published "
        "narrows it: the chip's clock and planes are unpublished, and so is any other measured rate. Latency bounds the step: "
        f"of the claim's {1e6 / rate:.0f} us, reading weights and cache takes {floor * 1e6:.2g} us by all 256 chips at once, "
        f"{STAGES * floor * 1e6:.2g} us by one stage after the other. True if an op costs what the next row says, speculation "
        "aside",
    )  # fmt: skip
    needed = _solve(lambda cost: 1 / _gemma(model, with_number(chip, LAUNCH, cost), context).step.time_s, rate,
                    launch.low, launch.high)  # fmt: skip
    yield bounded(
        "cost per op on an LPU that gives just that rate", "0.3 us", needed * 1e6, (launch.low * 1e6, launch.high * 1e6),
        "launch cost at which the model gives 3,431 tokens/s", {**inputs, "tokens_per_s": rate},
        "what would have to be true, within the estimate's range; printed: the estimate in the chip's file, which no source "
        "gives. GroqChip 1 fits 4.3 us",
    )  # fmt: skip


def _gemma(model: Model, chip: Chip, context: int) -> Result:
    formats = Formats(fmt("fp16"), FP8, FP8, FP8)
    cluster = Cluster((Pool("lpx", chip, 256, 0.02),))
    plan = (Tensor(degree=256 // STAGES), Pipeline(stages=STAGES))
    return run(Scenario("claim", model, formats, cluster, plan, Workload(batch=1, context=context), "the claim"))


def _solve(rate: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The cost (s) at which a falling rate is as wanted; an end of the range when none is."""
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if rate(middle) > wanted else (low, middle)
    return (low + high) / 2


def tokens_per_megawatt(known: Library) -> Iterator[Claim]:
    """35 times the tokens per megawatt of GB200 at 400 tokens/s/user, a mixture of 2e12 parameters, 400,000 tokens in."""
    model, times, speed, context = _doubled(known.model("kimi-k2.5")), 35.0, 400.0, 400_000
    alone = 1 / _old(known, model, Workload(batch=1, context=context)).step.time_s
    drafts = Speculative(draft=3, acceptance=0.8, method="free")
    old = _fastest(lambda batch: _old(known, model, Workload(batch=batch, context=context, speculative=drafts)), speed)
    new = _fastest(lambda batch: _new(known, model, Workload(batch=batch, context=context, speculative=drafts)), speed)
    lpus = new.placed.scenario.cluster.pool("lpx")
    power = lpus.chip.power.tdp_watts or Number(0.0)
    single = speed / _tdp(old)
    found, both = _per_watt(new) / single, _per_watt(new) / _per_watt(old)

    def asked(batch: int) -> Result:
        return _new(known, model, Workload(batch=batch, context=context, speculative=drafts))

    def at(share: Callable[[Step], float], watts: float) -> float:
        best = _fastest(asked, speed, share)
        return _per_watt(best, watts) / share(best.step) / single

    ends = (
        at(lambda step: step.time_high_s / step.time_s, power.high),
        at(lambda step: step.time_low_s / step.time_s, power.low),
    )
    needed = _solve(lambda share: at(lambda _: share, float(power)), times, 0.2, 1.0)
    floor = _fastest(lambda batch: _new(known, model, Workload(batch=batch, context=context), ideal=True), speed)
    most = _per_watt(floor, power.low) / single
    inputs: dict[str, Value] = {
        "model": "kimi-k2.5 with twice the experts", "params": counts.params_total(model), "context": context,
        "tokens_per_s_per_user": speed, "tokens_per_step": drafts.tokens_per_step, "power": "TDP of all chips",
        "new_chips": f"{RACKS * NVL72} {NEW} + {lpus.count} {LPU}", "new_tokens_per_s": new.step.tokens_per_s,
        "gb200_tokens_per_s": old.step.tokens_per_s, "gb200_undrafted_tokens_per_s_per_user": alone,
        "ratio_when_both_draft": both, "floor_tokens_per_s": floor.step.tokens_per_s, "physical_floor": most,
        "needed_share_of_step_time": needed,
    }  # fmt: skip
    yield bounded(
        "tokens per MW over a GB200 NVL72 that serves one user at 400 tokens/s", f"{times:g} x", found, ends,
        "(tokens/s / W) of Rubin + LPX / (400 / W of the NVL72)", inputs,
        f"{found:.0f} times, {ends[0]:.0f} to {ends[1]:.0f} by the ranges of step time and power; not excluded either, as the "
        f"physical floor allows {most:.0f}. What would have to be true: GB200 at the end of its line, one user a rack, and a "
        f"step of Rubin + LPX in {needed:.0%} of the time that this program gives it. Where both draft three tokens, accepted "
        f"with 0.8, a GB200 NVL72 gives {old.step.tokens_per_s:,.0f} tokens/s at that speed: {both:.2g} times; without "
        f"drafting it gives one user {alone:.0f} tokens/s, and any ratio holds",
    )  # fmt: skip


def _doubled(model: Model) -> Model:
    """The model with twice the experts in every layer that has them."""
    kinds = tuple(
        replace(kind, ffn=kind.ffn.model_copy(update={"experts": 2 * kind.ffn.experts})) if isinstance(kind.ffn, Moe) else kind
        for kind in model.kinds
    )
    return replace(model, name=f"{model.name} with twice the experts", kinds=kinds)


def _old(known: Library, model: Model, work: Workload) -> Result:
    """One GB200 NVL72, the cache of a sequence over eight chips, experts over all."""
    formats = Formats(fmt("bf16"), FP8, fmt("nvfp4"), FP8)
    cluster = Cluster((Pool("gpu", known.chip(OLD), NVL72),))
    return run(Scenario("claim", model, formats, cluster, (Context(degree=8), Expert(degree=NVL72)), work, "the claim"))


def _new(known: Library, model: Model, work: Workload, *, ideal: bool = False) -> Result:
    """Rubin NVL72 for attention and one copy of the experts on LPUs, their Ethernet reaching all of them."""
    chip = known.chip(LPU)
    lpu = chip.model_copy(update={"links": (*chip.links[:1], chip.link("nic").model_copy(update={"domain": 8192}))})
    pools = (Pool("gpu", known.chip(NEW), RACKS * NVL72), Pool("lpx", lpu, EXPERTS * SHARDS))
    wire = Wire.model_validate(
        {"from": "gpu", "to": "lpx", "bandwidth": "12.5 GB/s", "latency": "4 us", "per": "lpx", "over": "nic"}
    )
    plan = (Context(degree=8), Disaggregate(move="experts", to="lpx", micro_batches=1),
            Expert(pool="lpx", degree=EXPERTS, tensor=SHARDS))  # fmt: skip
    formats = Formats(fmt("bf16"), FP8, FP8, FP8)
    return run(Scenario("claim", model, formats, Cluster(pools, (wire,)), plan, work, "the claim"), ideal=ideal)


def _fastest(ask: Callable[[int], Result], speed: float, share: Callable[[Step], float] = lambda _: 1.0) -> Result:
    """The step of the largest batch that fits and gives every user `speed` tokens/s, within an eighth; of one user if none.

    share : of its time in which a step is taken to run
    """
    best, low, high = ask(1), 1, 2

    def keeps(found: Result) -> bool:
        return found.step.tokens_per_s_per_user >= speed * share(found.step)

    if not keeps(best):
        return best
    while (found := ask(high)).feasible and keeps(found):
        best, low, high = found, high, high * 4
    while high - low > max(1, low // 8):
        middle = (low + high) // 2
        found = ask(middle)
        if found.feasible and keeps(found):
            best, low = found, middle
        else:
            high = middle
    return best


def _tdp(result: Result, lpu_watts: float | None = None) -> float:
    """Power of all chips in W, the LPUs' at a given one."""
    total = 0.0
    for pool in result.placed.scenario.cluster.pools:
        known = float(pool.chip.power.tdp_watts or 0.0)
        total += pool.count * (lpu_watts if pool.name == "lpx" and lpu_watts is not None else known)
    return total


def _per_watt(result: Result, lpu_watts: float | None = None) -> float:
    return result.step.tokens_per_s / _tdp(result, lpu_watts)


CLAIMS: Numbered = ((22, gemma_on_lpx), (23, tokens_per_megawatt))
