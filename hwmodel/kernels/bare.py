"""How kernels of one op or one point are compiled: without reference counting, which takes longer than most of them."""

from typing import Any

from numba import njit


def bare(function: Any) -> Any:
    """Compile a function that makes no array (room to work in, time in s or anything else, is given to it).

    Slices of arrays then cost nothing: price and its parts take half the time, measured with numba 0.68. `_nrt` is numba's own
    name of the switch; without it the answers are the same.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
    return njit(**options)(function)
