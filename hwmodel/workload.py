"""What one step works on: sequences, tokens, routing, drafts; and the symbols that sizes are computed from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from hwmodel.model.block import Count, Size
from hwmodel.routing import Routing
from hwmodel.spec.schema import Spec


class Speculative(Spec):
    """Speculative decoding: drafted tokens are verified together."""

    draft: Annotated[int, Field(ge=1, le=32)]
    """Tokens drafted per step."""
    acceptance: Annotated[float, Field(ge=0, le=1)]
    """Probability that a drafted token is accepted, given that those before it were."""
    method: Literal["mtp", "free"] = "mtp"
    """mtp: the model's own multi-token-prediction module drafts, its time counted; free: drafting costs nothing."""

    @property
    def tokens_per_step(self) -> float:
        """Expected tokens per sequence and step: (1 - a^(draft + 1)) / (1 - a) (Leviathan et al., ICML 2023, eq. 1)."""
        if self.acceptance == 1:
            return self.draft + 1.0
        return float((1 - self.acceptance ** (self.draft + 1)) / (1 - self.acceptance))


class Workload(Spec):
    """What one step works on."""

    phase: Literal["decode", "prefill", "mixed"] = "decode"
    batch: Size = 1
    """Sequences of the step, all chips together (in a mixed step: those that decode)."""
    context: Count = 0
    """Cached tokens that each decoding sequence attends to."""
    new_tokens: Count = 0
    """Prompt tokens that each prefilling sequence brings."""
    cached: Count = 0
    """Tokens of a prefilling sequence that are in the cache already."""
    prefill_batch: Size = 1
    """Prefilling sequences of a mixed step."""
    routing: Routing = Routing()
    speculative: Speculative | None = None
    kv_alloc: Literal["windowed", "full"] = "windowed"
    """Whether sliding-window layers hold the window only, or reserve the full length, as engines without a hybrid
    cache do."""
    kv_block: Size = 1
    """Tokens per block of a paged cache; the last block of a sequence counts whole."""

    @model_validator(mode="after")
    def _complete(self) -> Workload:
        if self.phase != "prefill" and not self.context:
            raise ValueError(f"phase {self.phase} needs 'context', the cached tokens per sequence")
        if self.phase != "decode" and not self.new_tokens:
            raise ValueError(f"phase {self.phase} needs 'new_tokens', the prompt tokens per sequence")
        if self.speculative and self.phase == "prefill":
            raise ValueError("speculative decoding has no meaning in a prefill step")
        return self

    @property
    def drafts(self) -> int:
        """Tokens per step that the model's own drafting module makes."""
        return self.speculative.draft if self.speculative and self.speculative.method == "mtp" else 0

    def parts(self, wanted: int) -> int:
        """Micro-batches of equal size (the last may be smaller), at most `wanted`: no more than the batch fills."""
        size = -(-self.batch // min(wanted, self.batch))
        return -(-self.batch // size)

    def symbols(self, parts: int = 1) -> dict[str, float]:
        """The workload symbols of one of `parts` micro-batches (the largest).

        The prompt tokens beside decodes are cut into as many chunks when there are fewer prompts than parts; a chunk has on
        average half of the others cached before it.
        """
        share = -(-self.batch // parts)
        prefills, new, cached = self._prefills(parts, share)
        return {
            "decode_sequences": float(share) if self.phase != "prefill" else 0.0,
            "decode_queries": 1.0 + (self.speculative.draft if self.speculative else 0),
            "decode_context": float(self.context),
            "prefill_sequences": prefills,
            "prefill_new": new,
            "prefill_cached": cached,
        }

    def _prefills(self, parts: int, share: int) -> tuple[float, float, float]:
        """(sequences, new tokens each, cached tokens each) that one part prefills."""
        if self.phase == "decode":
            return 0.0, float(self.new_tokens), float(self.cached)
        if self.phase == "prefill":
            return float(share), float(self.new_tokens), float(self.cached)
        if self.prefill_batch >= parts:
            return float(-(-self.prefill_batch // parts)), float(self.new_tokens), float(self.cached)
        chunks = parts / self.prefill_batch
        return 1.0, self.new_tokens / chunks, self.cached + self.new_tokens * (1 - 1 / chunks) / 2
