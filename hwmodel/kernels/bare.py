"""How kernels of one op or one point are compiled: without reference counting, which takes longer than most of them."""

from typing import Any

from numba import njit

from hwmodel.kernels.linked import linked


def bare(function: Any) -> Any:
    """Compile a function that makes no array (room to work in, time in s or anything else, is given to it).

    Slices of arrays then cost nothing: price and its parts take half the time, measured with numba 0.68. `_nrt` is numba's own
    name of the switch; without it the answers are the same. Other kernels link it; machine code of its own it has when Python
    calls it.
    """
    options: dict[str, Any] = {"cache": True, "nogil": True, "no_cfunc_wrapper": True, "_nrt": False}
    called: Any = njit(**options)(function)
    part = linked(function, nogil=True)
    called.get_call_template, called.get_overload = part.get_call_template, part.get_overload
    return called
