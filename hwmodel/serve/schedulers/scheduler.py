"""What a scheduler is: its fields are its YAML, its rule is a kernel."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hwmodel.kernels import serving_columns as c
from hwmodel.model.block import Size
from hwmodel.spec.schema import Spec

UNLIMITED = 1 << 40
"""Tokens of an iteration without a budget."""
Share = Annotated[float, Field(ge=0, lt=1)]


class Scheduler(Spec):
    """The base of schedulers."""

    kind: ClassVar[str] = ""
    """Name in a scenario."""
    rule: ClassVar[int] = c.BUDGETED
    """Code of its kernel."""
    chunked: ClassVar[bool] = True
    """Prompts may be cut into chunks."""
    longest_prefix: ClassVar[bool] = False
    """Of those that wait, the one with the longest cached prefix is admitted first."""
    kinds: ClassVar[dict[str, type[Scheduler]]] = {}

    max_sequences: Size = 256
    """Sequences that run at the same time at most."""
    max_tokens: Size | None = None
    """Tokens of an iteration at most; no limit when absent."""
    reserve: Literal["paged", "final"] | Size = "paged"
    """Room for a request when it is admitted: pages as they are needed (paged), its final length, or so many tokens, as
    before PagedAttention."""
    watermark: Share = 0.0
    """Share of the pages that admission leaves free for those that run."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Make the kind known."""
        super().__pydantic_init_subclass__(**options)
        if cls.kind:
            Scheduler.kinds[cls.kind] = cls

    @property
    def budget(self) -> int:
        """Tokens of an iteration at most."""
        return self.max_tokens or UNLIMITED

    @property
    def reserved_tokens(self) -> int:
        """As the kernel reads it: 0 none, -1 the final length, else so many."""
        return {"paged": 0, "final": -1}[self.reserve] if isinstance(self.reserve, str) else self.reserve
