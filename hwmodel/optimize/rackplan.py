"""Racks for the experts of a model and chips for its attention, as one answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hwmodel.answered import Answered
from hwmodel.hardware import Chip, load_chip
from hwmodel.lower.decoder import Formats
from hwmodel.model.architecture import Model
from hwmodel.model.dtypes import Format, fmt
from hwmodel.model.load import load_model
from hwmodel.optimize.racks import Need, attention_chips, expert_racks
from hwmodel.spec.errors import InputError
from hwmodel.spec.units import show
from hwmodel.timing import operand_type


@dataclass(frozen=True, repr=False)
class RackPlan(Answered):
    """How many racks of `chip` hold and feed the routed experts, and how many of `attention_chip` do the rest.

    A step of `batch` tokens has `tpot_s`, of which each of the `stages` of a layer (attention, transfers, experts) takes its
    share while the others work on other micro-batches.
    """

    model: Model
    chip: Chip
    attention_chip: Chip | None
    weights: Format
    kv: Format
    batch: int = 1
    tpot_s: float | None = None
    stages: int = 3
    context: int | None = None
    rack: int = 0
    """Chips of a rack; those that the chip's first link joins when 0."""

    def __repr__(self) -> str:
        """What was asked, and how many racks it takes."""
        return f"RackPlan({self.title!r}, racks={self.racks.count})"

    @property
    def seconds(self) -> float:
        """Of a step, for one stage of all layers."""
        return math.inf if self.tpot_s is None else self.tpot_s / self.stages

    @property
    def chips_per_rack(self) -> int:
        """Chips of a rack."""
        if not self.rack and not self.chip.links:
            raise InputError(f"chip {self.chip.name} has no link that joins a rack; say how many chips a rack has (--rack)")
        return self.rack or self.chip.links[0].domain

    @cached_property
    def racks(self) -> Need:
        """Racks of chips with the experts."""
        dtype = operand_type(self.chip, self.weights.compute)
        return expert_racks(
            self.model, self.chip, self.weights, dtype, batch=self.batch, seconds=self.seconds, rack=self.chips_per_rack
        )

    @cached_property
    def attention(self) -> Need | None:
        """Chips that do everything else."""
        if self.attention_chip is None or self.context is None:
            return None
        dtype = operand_type(self.attention_chip, self.weights.compute)
        formats = Formats(self.model.dtype, self.kv, self.weights, self.weights if self.weights.bits <= 8 else None)
        return attention_chips(
            self.model, self.attention_chip, formats, dtype, batch=self.batch, context=self.context, seconds=self.seconds
        )

    @property
    def warnings(self) -> list[str]:
        """What is tight."""
        return [need.warning for need in (self.racks, self.attention) if need is not None and need.warning]

    @property
    def title(self) -> str:
        """What was asked."""
        return f"{self.model.name}, routed experts in {self.weights.name} on racks of {self.chips_per_rack} {self.chip.name}"

    @property
    def said(self) -> list[str]:
        """The assumptions in words."""
        if self.tpot_s is None:
            return ["no TPOT was asked for: only the capacity counts"]
        each = f"{show(self.tpot_s, 's', 4)} TPOT, {show(self.seconds, 's', 4)} for each of {self.stages} stages"
        context = f", {self.context:,} tokens of context" if self.context else ""
        return [f"a step of {self.batch:,} tokens{context}; {each}; peaks as stated, a floor"]

    @property
    def rows(self) -> list[tuple[str, str, Need]]:
        """(what, unit, need)."""
        found = [("routed experts", "rack" if self.racks.count == 1 else "racks", self.racks)]
        if self.attention is not None and self.attention_chip is not None:
            found.append(("all else", f"x {self.attention_chip.name}", self.attention))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as ``hwmodel racks --json`` prints it."""
        far = self.attention
        return {
            "model": self.model.name, "chip": self.chip.name, "chips_per_rack": self.chips_per_rack,
            "weights": self.weights.name, "batch": self.batch, "tpot_s": self.tpot_s, "stages": self.stages,
            "racks": _plain(self.racks), "chips": self.racks.count * self.chips_per_rack,
            "attention": None if far is None or self.attention_chip is None
            else {"chip": self.attention_chip.name, "context": self.context, **_plain(far)},
            "warnings": self.warnings,
        }  # fmt: skip


def _plain(need: Need) -> dict[str, Any]:
    return {"count": need.count, "limit": need.limit, "head_room": need.head_room, "loads": dict(need.loads)}


def racks(
    model: str, chip: str, *, weights: str = "fp8", kv: str = "fp8", batch: int = 1, tpot_s: float | None = None,
    stages: int = 3, rack: int = 0, attention_chip: str | None = None, context: int | None = None,
) -> RackPlan:  # fmt: skip
    """Count the racks of a memory-poor chip that hold a model's routed experts, and the chips that do the rest.

    Parameters
    ----------
    model, chip, attention_chip
        Names or paths; without `attention_chip` the rest is not counted.
    weights, kv
        Formats of all weights and of the KV cache.
    batch, context
        Tokens of a step, and cached tokens per sequence.
    tpot_s
        Time per output token (s); without one only capacity counts.
    stages
        Stages that share a layer's time: attention, transfers, experts.
    rack
        Chips of a rack; those that the chip's first link joins when 0.

    Raises
    ------
    InputError
        When a name or a format is not known, the model has no routed experts, or `attention_chip` stands without `tpot_s` and
        `context`.
    """
    if attention_chip and not (context and tpot_s):
        raise InputError("an attention chip needs a context and a time per output token")
    far = load_chip(attention_chip) if attention_chip else None
    plan = RackPlan(
        load_model(model), load_chip(chip), far, fmt(weights), fmt(kv), batch=batch, tpot_s=tpot_s, stages=stages,
        context=context, rack=rack,
    )  # fmt: skip
    plan.to_dict()  # what cannot be held or fed is told now, not when the answer is read
    return plan
