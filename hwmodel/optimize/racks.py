"""How many racks of memory-poor chips hold and feed a model's routed experts, and the chips that attend for them.

The experts of every layer are spread over all chips of the racks, so that each step uses the bandwidth and arithmetic of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hwmodel.hardware import Chip, Cluster, Pool
from hwmodel.kernels import columns as c
from hwmodel.kernels.routing import distinct_experts
from hwmodel.lower.decoder import Formats
from hwmodel.model import counts
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import Format
from hwmodel.routing import Routing
from hwmodel.run import run
from hwmodel.scenario import Scenario
from hwmodel.spec.errors import InputError
from hwmodel.stages import executions, stage_counts
from hwmodel.workload import Workload

TIGHT = 0.02
"""Share of the racks left free below which caches, activations and padding have no room."""


@dataclass(frozen=True)
class Need:
    """How much of something a model needs, by what asks for it."""

    loads: dict[str, float]
    """capacity, bandwidth and compute: each alone asks for so many units (racks or chips)."""
    warning: str = ""

    @property
    def limit(self) -> str:
        """What asks for the most."""
        return max(self.loads, key=lambda key: self.loads[key])

    @property
    def count(self) -> int:
        """Whole units that satisfy all."""
        return max(1, math.ceil(max(self.loads.values()) - 1e-9))

    @property
    def head_room(self) -> float:
        """Share of the capacity of `count` units that is left."""
        return 1 - self.loads["capacity"] / self.count


def expert_racks(
    model: Model, chip: Chip, weights: Format, dtype: str, *, batch: int = 1, seconds: float = math.inf, rack: int = 0
) -> Need:
    """Racks for the routed experts of a model, shared experts elsewhere.

    Capacity W / C; bandwidth, the experts that a step of `batch` tokens chooses, D(B) of each layer, read within `seconds`;
    compute 2 P B / F within `seconds`; each over the chips of a rack.

    Parameters
    ----------
    weights, dtype
        How expert weights are stored, and the type the chip multiplies them in.
    batch, seconds
        Tokens of a step, and the time (s) its expert layers may take; without a limit only the capacity counts.
    rack
        Chips of a rack; those that the chip's first link joins when 0.

    Raises
    ------
    InputError
        When the model has no routed experts, or the chip no arithmetic of that type.
    """
    chips = rack or chip.links[0].domain
    peaks = chip.peaks.by_dtype()
    if dtype not in peaks:
        raise InputError(f"chip {chip.name} multiplies {', '.join(peaks)}, not {dtype}")
    held = read = used = 0.0
    for count, kind, weight in counts.stored_weights(model):
        if weight.role != "experts" or kind is None:
            continue
        moe, copies = model.kinds[kind].ffn, weight.copies
        hit = distinct_experts(batch, Routing().bins(copies, getattr(moe, "topk", copies), copies, 1))
        held += count * weight.elements
        read += count * weight.elements * hit / copies
        used += count * weight.active_elements
    if not held:
        raise InputError(f"model {model.name} has no routed experts")
    size, main = weights.bytes, chip.main
    need = Need(
        {
            "capacity": held * size / (chips * float(main.capacity_bytes)),
            "bandwidth": read * size / (chips * float(main.bandwidth_bytes_per_s) * seconds),
            "compute": 2 * used * batch / (chips * float(peaks[dtype]) * seconds),
        }
    )
    if need.head_room >= TIGHT:
        return need
    left = f"{need.head_room:.1%} of the memory of {need.count} rack{'s' if need.count > 1 else ''} of {chips} {chip.name}"
    return Need(need.loads, f"{model.name}: its experts leave {left}; activations and padding may not fit")


def attention_chips(
    model: Model, chip: Chip, formats: Formats, dtype: str, *, batch: int, context: int, seconds: float, reserve: float = 0.08
) -> Need:
    """Chips that do everything but the routed experts for a step of `batch` sequences, spread by sequences.

    Each chip holds and reads all of those weights, W: capacity B KV / (C (1 - reserve) - W), bandwidth
    B KV / (BW t - W), compute B FLOP / (F t). Peaks as stated: a floor.

    Parameters
    ----------
    formats
        Of weights (the activations' when none), cache and activations.
    dtype
        Type that the products run in.
    seconds
        Time (s) of a step that attention may take.

    Raises
    ------
    InputError
        When the weights alone fill a chip, or cannot be read in time.
    """
    stored = formats.weights or formats.activations
    mine = [(n, weight) for n, _, weight in counts.stored_weights(model) if weight.role != "experts"]
    held = sum(n * weight.elements for n, weight in mine) * stored.bytes
    read = sum(n * weight.active_elements for n, weight in mine if weight.role != "embedding")
    cache = counts.kv_law(model, formats.kv).at(context, batch)
    main = chip.main
    room = float(main.capacity_bytes) * (1 - reserve) - held
    spare = float(main.bandwidth_bytes_per_s) * seconds - read * stored.bytes
    if room <= 0:
        raise InputError(f"chip {chip.name} does not hold the {held / 1e9:.1f} GB that are not experts of {model.name}")
    if spare <= 0:
        raise InputError(f"chip {chip.name} does not read {read * stored.bytes / 1e9:.1f} GB in {seconds * 1e3:.3g} ms")
    flops = batch * (2 * read + core_flops(model, chip, formats, context))
    return Need(
        {"capacity": cache / room, "bandwidth": cache / spare, "compute": flops / (chip.peaks.by_dtype()[dtype] * seconds)}
    )


def core_flops(model: Model, chip: Chip, formats: Formats, context: int) -> float:
    """FLOP of queries with keys and weights with values for one token after `context`, all layers, as `run` prices them."""
    cluster = Cluster((Pool("attention", chip, 1),))
    placed = run(Scenario("attention", model, formats, cluster, (), Workload(context=context), "given"), ideal=True).placed
    times = stage_counts(placed.graph)[0]
    ops = zip(placed.table.ops, placed.priced, strict=True)
    return sum(float(priced[c.FLOPS]) * executions(placed.graph, op, times) for op, priced in ops if op.kept is not None)
