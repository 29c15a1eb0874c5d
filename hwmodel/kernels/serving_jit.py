"""How the inner functions of the serving loop are compiled: for the loop alone, which is cached as a whole."""

from collections.abc import Callable
from typing import Any

from hwmodel.kernels.linked import INTERPRETED, linked
from hwmodel.kernels.serving_columns import Unshared


def inner(function: Any) -> Any:
    """Compile a function that only the loop calls; it may make no array."""
    return linked(function, error_model="numpy")


def sharing(otherwise: Any) -> Callable[[Any], Any]:
    """Compile a function of units of prompts as `inner`, and `otherwise` in its place where requests share none (`Unshared`).

    A third of the loop is about units; where there are none it need not be compiled.
    """

    def compiled(function: Any) -> Any:
        if INTERPRETED:
            return function
        found, instead = inner(function), inner(otherwise)
        template, overload = found.get_call_template, found.get_overload

        def without(state: Any) -> bool:
            return state.to.instance_class is Unshared

        found.get_call_template = lambda args, kws: (instead.get_call_template if without(args[0]) else template)(args, kws)
        found.get_overload = lambda args: (instead.get_overload if without(args[0]) else overload)(args)
        return found

    return compiled
