"""What one software stack adds to the ops of a step: the parameters of a served step, as stacks/NAME.yaml states them."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field

from hwmodel.spec import catalog, yamlfile
from hwmodel.spec.schema import Seconds, Spec, build

Factor = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]


class Stack(Spec):
    """Parameters of a served step under one stack; see `hwmodel.served.step`."""

    stack: str
    date: str = ""
    data: str = ""
    """What it was fitted to."""
    note: str = ""
    gap_s: Seconds
    """Per kernel of a decode step, over its measured time less `hwmodel.served.step.OVERLAP`."""
    gap_fp4_s: Seconds
    """The same on chips that multiply 4-bit floats: recipes for them fuse more."""
    late_s: Seconds
    """Per all-reduce and doubling of the chips: waiting for the last of them, which no table holds."""
    rank_s: Seconds
    """Per exchange among attention data parallel ranks: waiting for the fullest."""
    sequence_s: Seconds
    """Per sequence and step: sampling, detokenisation, block tables."""
    sequence_lab_s: Seconds
    """The same under another harness than InferenceX, whose recipes schedule the next step while one runs."""
    fused: Factor
    """How much of the quantisation that tables of fp8 and nvfp4 products count an engine fuses into the op before."""
    lag: Factor
    """By what share of their time experts in fp8 blocks were slower per release before `hwmodel.served.rows.TUNED`."""
    share: Factor
    """Of a prompt's prefill time, how much decoding sequences wait for."""
    lockstep: Factor
    """Share of the clients that start together, under releases before `hwmodel.served.rows.STAGGERED`."""
    prompt_s: Seconds
    """Per admitted prompt, which decodes wait for as well."""
    start_s: Seconds
    """Of a first token: tokenisation, HTTP, scheduling."""
    stretch: Factor
    """Own prefill, in units of the priced time."""
    lab: Factor
    """The same under another harness than InferenceX."""
    steps: Factor
    """Decode steps that a prompt waits for before and while it runs."""
    burst: Factor
    """Share of the other clients' prompts that a prompt waits behind."""


@cache
def load_stack(name: str) -> Stack:
    """A stack by name or path.

    Raises
    ------
    InputError
        With every problem of the file.
    """
    return build(Stack, yamlfile.load(catalog.find("stacks", name)))


def stack_names() -> list[str]:
    """Every stack that is known by name."""
    return catalog.names("stacks")
