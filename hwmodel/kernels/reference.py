"""A named tuple of many arrays, passed on as one address: numba on its own passes each array as seven and more numbers.

Two hundred numbers a call take longer than what most functions of the serving loop do, to compile as to run: the loop runs
three times as fast.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.imputils import impl_ret_borrowed
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, lower_getattr_generic, models, register_model

from hwmodel.kernels.linked import INTERPRETED


class Reference(types.Type):
    """The address of a named tuple of type `to`."""

    def __init__(self, to: Any) -> None:
        self.to = to
        super().__init__(f"Reference({to})")


@register_model(Reference)
class ReferenceModel(models.PrimitiveModel):
    """A pointer to the tuple's value."""

    def __init__(self, manager: Any, reference: Reference) -> None:
        super().__init__(manager, reference, manager.lookup(reference.to).get_value_type().as_pointer())


@infer_getattr
class Field(AttributeTemplate):
    """The type of a field by name."""

    key = Reference

    def generic_resolve(self, value: Any, attr: Any) -> Any:  # type: ignore[override]
        """None where there is no such field: numba then says so."""
        fields = value.to.fields
        return value.to.types[fields.index(attr)] if attr in fields else None


@lower_getattr_generic(Reference)
def read_field(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:
    """Code that reads a field."""
    place = reference.to.fields.index(name)
    value = builder.load(cgutils.gep_inbounds(builder, address, 0, place))
    return impl_ret_borrowed(context, builder, reference.to.types[place], value)


def _by_reference(_: Any, whole: Any) -> Any:

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    return Reference(whole)(whole), code


by_reference: Any = (lambda whole: whole) if INTERPRETED else intrinsic(_by_reference)
"""The address of a named tuple, for kernels and while the one that took it runs; fields are read by name as before."""
