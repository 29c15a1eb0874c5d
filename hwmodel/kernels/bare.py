"""How kernels of one op or one point are compiled: without reference counting, which takes longer than most of them."""

from typing import Any

from numba import njit

from hwmodel.kernels.linked import INTERPRETED, linked


def bare(function: Any, *, forceinline: bool = False) -> Any:
    """Compile a function that makes no array (room to work in, time in s or anything else, is given to it).

    Slices of arrays then cost nothing: price and its parts take half the time, measured with numba 0.68. `_nrt` is numba's own
    name of the switch; without it the answers are the same. A division by zero is inf or nan as in numpy, not an error: a check
    behind every division would keep loops over points from working on several at once. Other kernels link it; machine code of
    its own it has when Python calls it.
    """
    if INTERPRETED:
        return function
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "forceinline": forceinline}
    unwrapped: dict[str, Any] = {"no_cfunc_wrapper": True, "_nrt": False}
    called: Any = njit(cache=True, **options, **unwrapped)(function)
    part = linked(function, **options)
    called.get_call_template, called.get_overload = part.get_call_template, part.get_overload
    return called


def within(function: Any) -> Any:
    """As `bare`, for a short function (of times in s, or anything else) that is always put into its caller.

    A call hands every array over as seven numbers; of a function of a few comparisons that is most of its time.
    """
    return bare(function, forceinline=True)
