"""numba's answers to which type an operation gives, kept: it looks them up anew for every place that has the operation.

For ``a[i, j]`` or ``x + y`` that is a search through dozens of implementations, for sets and strings too; a fifth of the time
that kernels take to compile. The names are those of numba 0.60 to 0.68.
"""

from functools import cache
from typing import Any

from numba.core.targetconfig import ConfigStack
from numba.core.types.functions import BaseFunction


@cache
def keep_types() -> None:
    """Search once for each operation, types of its operands and settings of the compiler. For a process of our own only."""
    operations: Any = BaseFunction
    search = operations.get_call_type
    known: dict[Any, Any] = {}

    def kept(operation: Any, context: Any, args: Any, kws: Any) -> Any:
        """The signature; an operation that has none raises, as without memory."""
        settings = ConfigStack.top_or_none()
        key = operation, tuple(args), tuple(kws.items()), settings and str(settings._values)
        if key not in known:
            known[key] = search(operation, context, args, kws)
        return known[key]

    operations.get_call_type = kept
