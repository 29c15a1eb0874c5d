"""Claims about attention and experts on unlike chips, and about experts in host memory."""

from __future__ import annotations

from collections.abc import Iterator

from hwmodel.claims.facts import DEEPSEEK, GB, MS, TB, decode_attention_intensity, hourly_usd, moe_of, roof
from hwmodel.claims.forms import attention_usd, fixed_and_streamed, sparsity_floor
from hwmodel.claims.rows import Claim, Library, Numbered, Value, row
from hwmodel.hardware import Chip, Cluster, Pool, Wire, with_number
from hwmodel.lower.decoder import Formats
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import fmt
from hwmodel.optimize.knee import ridge
from hwmodel.optimize.offload import near_tokens_per_s
from hwmodel.partition.disaggregate import Disaggregate
from hwmodel.partition.expert import Expert
from hwmodel.partition.strategy import Strategy
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.spec.number import Number
from hwmodel.workload import Workload

CHIPS = ("h800_sxm", "h20_sxm", "a800_sxm", "ascend_910b")
"""Of Step-3's comparison, with their rental prices (arXiv 2507.19427, Table 4)."""


def _type(chip: Chip) -> str:
    """Type of Step-3's products on a chip: FP8 where it has it."""
    return "fp8" if "fp8" in chip.peaks.by_dtype() else "bf16"


def _used(model: Model, *roles: str) -> float:
    """Parameters of these roles that one token uses."""
    return sum(n * weight.active_elements for n, _, weight in counts.stored_weights(model) if weight.role in roles)


def disaggregated_cost(known: Library) -> Iterator[Claim]:
    """Dollars per token with attention and FFN each on the chip that is cheapest for it, all transfers hidden."""
    context, million = 8192, 1e6
    for name, printed in (("step-3", "0.055"), (DEEPSEEK, "0.068"), ("qwen3-235b-a22b", "0.062")):
        model = known.model(name)
        cache = counts.kv_law(model, fmt("fp8")).at(context)
        core = cache * decode_attention_intensity(model, known.chip(CHIPS[0]), "fp8", 1, context)
        linear, ffn = 2 * _used(model, "attention"), 2 * _used(model, "ffn", "experts", "shared")
        attention_at, ffn_at = {}, {}
        for chip in map(known.chip, CHIPS):
            peak, rate = float(chip.peaks.by_dtype()[_type(chip)]), float(chip.main.bandwidth_bytes_per_s)
            attention_at[chip.name] = million * attention_usd(core, cache, linear, peak, rate, hourly_usd(chip))
            ffn_at[chip.name] = million * ffn / peak * hourly_usd(chip) / 3600
        best, cheapest = min(attention_at, key=attention_at.__getitem__), min(ffn_at, key=ffn_at.__getitem__)
        inputs: dict[str, Value] = {"context": context, "kv_bytes": cache, "attention_flops": core, "linear_flops": linear,
                                    "ffn_flops": ffn, "attention_on": best, "ffn_on": cheapest}  # fmt: skip
        yield row(
            f"cost of {name} at 8,192 tokens, attention and FFN apart",
            f"{printed} USD/Mtok",
            attention_at[best] + ffn_at[cheapest],
            "min over chips of max(FLOP / F, KV / BW) + FLOP_linear / F, in dollars, + min over chips of FLOP_ffn / F",
            inputs,
            note="peaks reached and transfers hidden: a bound, of which Step-3 measures 30 %",
        )


def measured_prices(known: Library) -> Iterator[Claim]:
    """Dollars of the tokens that two systems on H800 report, and what share of a roofline one of them reaches."""
    chip, million = known.chip("h800_sxm"), 1e6
    hourly = hourly_usd(chip)
    paid: dict[str, Value] = {"chip": chip.name, "usd_per_hour": hourly}
    for system, rate, printed in (
        ("DeepSeek's service", 1850.0, "0.300"),
        ("Step-3, attention and FFN apart", 4039.0, "0.1375"),
    ):
        yield row(
            f"price of a token of {system}",
            f"{printed} USD/Mtok",
            million * hourly / (3600 * rate),
            "1e6 x rental / (3600 x tokens/s of a chip)",
            {**paid, "tokens_per_s_per_chip": rate},
            note="tokens/s as measured (Step-3, arXiv 2507.19427, Table 8)",
        )
    model, context = known.model("step-3"), 4096
    cache = counts.kv_law(model, fmt("fp8")).at(context)
    core = cache * decode_attention_intensity(model, chip, "fp8", 1, context)
    linear, ffn = 2 * _used(model, "attention"), 2 * _used(model, "ffn", "experts", "shared")
    peak, memory = float(chip.peaks.by_dtype()[_type(chip)]), float(chip.main.bandwidth_bytes_per_s)
    ideal = 1 / (max(core / peak, cache / memory) + (linear + ffn) / peak)
    inputs: dict[str, Value] = {"context": context, "kv_bytes": cache, "attention_flops": core, "linear_flops": linear,
                                "ffn_flops": ffn, "measured_tokens_per_s": 4039.0}  # fmt: skip
    note = "weights and transfers free, all peaks reached: a bound, no prediction"
    yield row("tokens/s of step-3 on a roofline, h800_sxm at 4,096 tokens", "13231 tokens/s", ideal,
              "1 / (max(FLOP / F, KV / BW) + FLOP_linear / F + FLOP_ffn / F)", inputs, note=note)  # fmt: skip
    yield row("share of that roofline that Step-3 measures", "30.5 %", 100 * 4039 / ideal, "measured / ideal", inputs)


def sparsity_floors(known: Library) -> Iterator[Claim]:
    """Least share of active experts at which the network keeps up with FFN chips that are kept busy."""
    hidden, layers, stage = 7168, 61, 50 * MS / 3
    rounded = with_number(known.chip("a800_sxm"), "memory.hbm.bandwidth", 2.0 * TB)
    for chip, ports, printed in (
        (known.chip("h800_sxm"), 400, "0.058"), (known.chip("h20_sxm"), 400, "0.007"), (rounded, 200, "0.031"),
        (known.chip("ascend_910b"), 200, "0.034"),
    ):  # fmt: skip
        network, found = 8 * ports / 8 * GB, ridge(chip, _type(chip))
        inputs: dict[str, Value] = {**roof(chip, _type(chip)), "hidden": hidden, "layers": layers,
                                    "network_bytes_per_s": network, "stage_s": stage}  # fmt: skip
        yield row(
            f"least share of active experts, {chip.name} behind 8 x {ports} Gb/s",
            f"{printed} share",
            sparsity_floor(hidden, layers, found, network, stage),
            "3 h L (F / BW) / (2 Net t), 3 bytes an element there and back, a third of 50 ms for each of three stages",
            inputs,
            note="Step-3 (arXiv 2507.19427); HBM of A800 rounded to 2.0 TB/s as it does" if ports == 200 else "",
        )


def unlike_chips(known: Library) -> Iterator[Claim]:
    """Gain of H20 for attention and L40S for experts over H20 alone, per price, both as `run` schedules them."""
    model, batch, context = known.model("mixtral-8x7b"), 3072, 730
    price = {"h20_sxm": 1.85, "l40s": 1.08}
    first, second = known.chip("h20_sxm"), known.chip("l40s")
    formats = Formats(model.dtype, model.dtype)

    def rate(pools: tuple[tuple[Chip, int], ...], plan: tuple[Strategy, ...], wires: tuple[Wire, ...] = ()) -> float:
        named = tuple(Pool(name, chip, n) for name, (chip, n) in zip(("gpu", "ffn"), pools, strict=False))
        cluster, work = Cluster(named, wires), Workload(batch=batch, context=context)
        step = run(Scenario("gain", model, formats, cluster, plan, work, "the activations")).step
        return step.tokens_per_s / sum(n * price[chip.name] for chip, n in pools)

    alone = rate(((first, 8),), (Expert(degree=8),))
    nic = second.link("nic")
    wire = Wire(from_="gpu", to="ffn", bandwidth_bytes_per_s=nic.bandwidth_bytes_per_s, latency_s=Number(5e-6))
    apart = rate(((first, 4), (second, 8)), (Disaggregate(to="ffn", micro_batches=2), Expert(pool="ffn", degree=8)), (wire,))
    yield row(
        "gain per price of 4 H20 + 8 L40S over 8 H20, mixtral-8x7b",
        "1.7 x",
        apart / alone,
        "tokens per second and price of both, two micro-batches in ping-pong against expert parallelism",
        {"batch": batch, "context": context, **{f"price_{name}": value for name, value in price.items()}},
        note="MegaScale-Infer (arXiv 2504.02263, prices of its Table 3) prints up to 1.7 and 1.86 for larger models",
        within=0.25,
    )


def experts_in_host_memory(known: Library) -> Iterator[Claim]:
    """Experts of DeepSeek-V3 read from host memory, token by token."""
    model, bits, one, two, eight = known.model(DEEPSEEK), 4.85, 10.303, 13.69, 12.208
    topk = moe_of(model).topk
    each = _used(model, "experts") / topk * bits / 8
    fixed, streamed = fixed_and_streamed(1 / one, 1 / two)
    inputs: dict[str, Value] = {"experts": 6, "tokens_per_s_one_socket": one, "tokens_per_s_two_sockets": two,
                                "bits_per_weight": bits}  # fmt: skip
    note = "set on the rows of six experts of ktransformers: one and two Xeon 6454S, 4-bit weights, a 4090D for the rest"
    yield row(
        "experts' bandwidth of one socket", "193 GB/s", 6 * each / streamed / GB, "W_6 / (2 (t_1 - t_2))", inputs, note=note
    )
    yield row("time of a token beside its experts", "49 ms", fixed / MS, "2 t_2 - t_1", inputs, note=note)
    yield row(
        "decode with eight experts on two sockets",
        f"{eight} tokens/s",
        1 / (fixed + streamed * topk / 6 / 2),
        "1 / (t_0 + W_8 / (2 BW))",
        {**inputs, "topk": topk},
        note="predicted from the two rows of six experts",
        within=0.25,
    )
    for shared, printed in ((False, "22.5"), (True, "20.0")):
        yield row(
            f"most tokens per second of {DEEPSEEK} with {'routed and shared' if shared else 'routed'} experts at 460 GB/s",
            f"{printed} tokens/s",
            near_tokens_per_s(model, 460 * GB, fmt("fp8"), shared=shared),
            "BW / bytes of the experts that a token uses",
            {"model": DEEPSEEK, "bandwidth_bytes_per_s": 460 * GB, "weights": "fp8"},
        )


CLAIMS: Numbered = (
    (18, disaggregated_cost),
    (18, measured_prices),
    (19, sparsity_floors),
    (20, unlike_chips),
    (21, experts_in_host_memory),
)
