"""What people say about LLM inference on hardware, recomputed from the chips and models of this program.

Each small function yields one row per printed figure. To add a claim, write a function that takes a `Library` and
yields `row(...)` in the file of its subject, and list it in that file's `CLAIMS` with its number. What the program
knows (peaks, bandwidths, parameters, cache bytes, prices) is read from the library; only what belongs to the claim
alone (a batch, a rate, a published count) is typed, and it is named among the row's inputs.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from hwmodel.answered import Answered
from hwmodel.claims import disaggregation, models, money, rooflines, serving, vendor
from hwmodel.claims.facts import decode_attention_intensity, hourly_usd
from hwmodel.claims.forms import (
    attention_usd,
    batch_where_cache_equals_weights,
    fixed_and_streamed,
    margin,
    prefill_tokens,
    recompute_s_per_token,
    reload_bandwidth,
    static_utilisation_exponential,
    static_utilisation_uniform,
    streaming_share,
    ttft_one_queue,
    ttft_split,
    ttft_two_stages,
)
from hwmodel.claims.rows import Claim, Library, Numbered, agree, row
from hwmodel.optimize.knee import knee, ridge

__all__ = [
    "CLAIMS",
    "Claim",
    "Claims",
    "Library",
    "agree",
    "attention_usd",
    "batch_where_cache_equals_weights",
    "claims",
    "decode_attention_intensity",
    "fixed_and_streamed",
    "hourly_usd",
    "knee",
    "margin",
    "prefill_tokens",
    "recompute_s_per_token",
    "reload_bandwidth",
    "ridge",
    "row",
    "static_utilisation_exponential",
    "static_utilisation_uniform",
    "streaming_share",
    "to_dict",
    "ttft_one_queue",
    "ttft_split",
    "ttft_two_stages",
]

_ALL = (*rooflines.CLAIMS, *models.CLAIMS, *serving.CLAIMS, *money.CLAIMS, *disaggregation.CLAIMS, *vendor.CLAIMS)
CLAIMS: Numbered = tuple(sorted(_ALL, key=lambda listed: listed[0]))
"""Every claim in the order of the numbers."""


class Claims(tuple[Claim, ...], Answered):
    """Rows in the order of the numbers; `to_dict` holds them under ``claims``."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"claims": [to_dict(claim) for claim in self]}


def claims(library: Library | None = None) -> Claims:
    """Every row of every claim, computed from the library (the shipped files when None)."""
    known = library or Library()
    return Claims(replace(found, number=number) for number, compute in CLAIMS for found in compute(known))


def to_dict(claim: Claim) -> dict[str, Any]:
    """Plain data, as ``hwmodel claims --json`` prints it."""
    return asdict(claim)
