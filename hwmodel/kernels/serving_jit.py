"""How the inner functions of the serving loop are compiled.

They are called from the loop alone, and never allocate: without wrappers for Python and without reference counts the loop
compiles three times faster, and is cached as a whole.
"""

from typing import Any

from numba import njit

OPTIONS: dict[str, Any] = {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**OPTIONS)
"""Decorator of an inner function."""
hot = njit(forceinline=True, **OPTIONS)
"""Of what every iteration runs: put into its caller, for a call passes all arrays of the state, which takes longer than most of
these functions."""
