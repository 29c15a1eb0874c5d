"""Number formats: bits per element, bytes of scales, and the type the chip multiplies in."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodel.spec.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Format:
    """A format of weights, activations or cache elements."""

    name: str
    bits: float
    """Bits of one element, without scales."""
    scale_bits: float = 0.0
    """Bits of one scale."""
    group: int = 0
    """Elements that share a scale: along a row, or `group` x `group` when `square`; 0: one scale per matrix."""
    square: bool = False
    per_row: bool = False
    """One scale per row (output channel)."""
    compute: tuple[str, ...] = ("bf16", "fp16")
    """Types it can be multiplied in, the native one first; the first that the chip has is taken."""

    @property
    def bytes(self) -> float:
        """Bytes per element with its share of the scales, for matrices whose sides the group divides."""
        per_scale = self.group * (self.group if self.square else 1)
        return (self.bits + (self.scale_bits / per_scale if per_scale else 0.0)) / 8

    def matrix_bytes(self, rows: int, columns: int) -> float:
        """Bytes of a rows x columns matrix, partial groups counted whole, the scales included."""
        elements = rows * columns * self.bits / 8
        if not self.scale_bits:
            return elements
        if self.per_row:
            return elements + rows * self.scale_bits / 8
        if not self.group:
            return elements + self.scale_bits / 8
        along = -(-columns // self.group)
        across = -(-rows // self.group) if self.square else rows
        return elements + along * across * self.scale_bits / 8


WIDEST = ("tf32", "fp32")
"""Stand in for any narrower type: 8 bits of exponent and at least 10 of mantissa hold bf16, fp16 and all below."""
_WIDE = ("bf16", "fp16")
FORMATS: dict[str, Format] = {
    item.name: item
    for item in (
        Format("fp32", 32, compute=("fp32", "tf32", *_WIDE)),
        Format("bf16", 16),
        Format("fp16", 16, compute=("fp16", "bf16")),
        Format("fp8", 8, 32, 0, compute=("fp8", "mxfp8", "int8", *_WIDE)),
        Format("fp8_channel", 8, 32, per_row=True, compute=("fp8", "mxfp8", "int8", *_WIDE)),
        Format("fp8_block", 8, 32, 128, square=True, compute=("fp8", "mxfp8", "int8", *_WIDE)),
        Format("mxfp8", 8, 8, 32, compute=("mxfp8", "fp8", *_WIDE)),
        Format("int8", 8, 32, 0, compute=("int8", "fp8", *_WIDE)),
        Format("int8_wo", 8, 32, 0, compute=_WIDE),
        Format("int4", 4, 16, 32, compute=_WIDE),
        Format("int4_128", 4, 16, 128, compute=_WIDE),
        Format("mxfp4", 4, 8, 32, compute=("mxfp4", "fp8", *_WIDE)),
        Format("nvfp4", 4, 8, 16, compute=("nvfp4", "mxfp4", "fp8", *_WIDE)),
    )
}
ALIASES = {
    "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32",
    "float8": "fp8", "fp8_e4m3": "fp8", "float8_e4m3fn": "fp8", "int4_wo": "int4", "w4a16": "int4", "fp4": "nvfp4",
    "sq": "int8", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip


def fmt(name: str) -> Format:
    """The format of that name or alias.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    key = ALIASES.get(str(name).lower(), str(name).lower())
    if key not in FORMATS:
        raise InputError(f"unknown dtype '{str(name)[:40]}'{did_you_mean(key, [*FORMATS, *ALIASES])}")
    return FORMATS[key]
