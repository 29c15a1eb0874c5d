"""How the inner functions of the serving loop are compiled: for the loop alone, which is cached as a whole."""

from typing import Any

from hwmodel.kernels.linked import linked


def inner(function: Any) -> Any:
    """Compile a function that only the loop calls; it may make no array."""
    return linked(function, error_model="numpy")
