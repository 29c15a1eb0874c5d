"""A named tuple of many arrays, passed on as one address: numba on its own passes each array as seven and more numbers.

Two hundred numbers a call take longer than what most functions of the serving loop do, to compile as to run: the loop runs
three times as fast. One number of such an array is read and written by its place, without numba's care for an index below zero,
which nothing here has: the loop compiles in a sixth less time and serves a quarter more requests a second (numba 0.68).
"""

import operator
from typing import Any

from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr, lower_getattr_generic, models, register_model
from numba.np.arrayobj import load_item, store_item

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


class Held(types.Type):
    """The address of an array that a named tuple holds."""

    def __init__(self, array: Any) -> None:
        self.array = array
        super().__init__(f"Held({array})")


@register_model(Held)
class HeldModel(models.PrimitiveModel):
    """A pointer to the array's description: where its numbers are, its shape."""

    def __init__(self, manager: Any, held: Held) -> None:
        super().__init__(manager, held, manager.lookup(held.array).get_value_type().as_pointer())


@infer_getattr
class Field(AttributeTemplate):
    """The type of a field by name."""

    key = Reference

    def generic_resolve(self, value: Any, attr: Any) -> Any:  # type: ignore[override]
        """None where there is no such field: numba then says so."""
        fields = value.to.fields
        return Held(value.to.types[fields.index(attr)]) if attr in fields else None


@lower_getattr_generic(Reference)
def read_field(context: Any, builder: Any, reference: Reference, address: Any, name: str) -> Any:
    """The address of a field."""
    return cgutils.gep_inbounds(builder, address, 0, reference.to.fields.index(name))


@infer_getattr
class Shape(AttributeTemplate):
    """The shape, which is all that is asked of an array but its numbers."""

    key = Held

    def resolve_shape(self, held: Any) -> Any:
        """A whole number for each dimension."""
        return types.UniTuple(types.intp, held.array.ndim)


@lower_getattr(Held, "shape")
def read_shape(context: Any, builder: Any, held: Held, address: Any) -> Any:
    """Code that reads the shape."""
    return builder.load(_part(context, builder, held, address, "shape"))


@infer_global(operator.getitem)
class Read(AbstractTemplate):
    """The type of what an index of a held array gives: as of the array itself."""

    def generic(self, args: Any, kws: Any) -> Any:
        """None for anything else."""
        if not isinstance(args[0], Held):
            return None
        found: Any = self.context.resolve_function_type(operator.getitem, (args[0].array, args[1]), {})
        return found and signature(found.return_type, args[0], *found.args[1:])


@infer_global(operator.setitem)
class Write(AbstractTemplate):
    """What may be written into a held array: as into the array itself."""

    def generic(self, args: Any, kws: Any) -> Any:
        """None for anything else."""
        if not isinstance(args[0], Held):
            return None
        found: Any = self.context.resolve_setitem(args[0].array, args[1], args[2])
        return found and signature(found.return_type, args[0], *found.args[1:])


@lower_builtin(operator.getitem, Held, types.Any)
def read_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Code that reads a number, or whatever else an index of the array gives."""
    held, index = sig.args
    place = _place(context, builder, held, args[0], index, args[1])
    if place is not None:
        return load_item(context, builder, held.array, place)
    read = context.get_function(operator.getitem, signature(sig.return_type, held.array, index))
    return read(builder, (builder.load(args[0]), args[1]))


@lower_builtin(operator.setitem, Held, types.Any, types.Any)
def write_item(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Code that writes a number, or whatever else an index of the array takes."""
    held, index, given = sig.args
    place = _place(context, builder, held, args[0], index, args[1])
    if place is not None:
        value = context.cast(builder, args[2], given, held.array.dtype)
        return store_item(context, builder, held.array, value, place)
    write = context.get_function(operator.setitem, signature(sig.return_type, held.array, index, given))
    return write(builder, (builder.load(args[0]), *args[1:]))


def _part(context: Any, builder: Any, held: Held, address: Any, name: str) -> Any:
    """The address of a part of an array's description."""
    return cgutils.gep_inbounds(builder, address, 0, context.data_model_manager.lookup(held.array).get_field_position(name))


def _place(context: Any, builder: Any, held: Held, address: Any, index: Any, given: Any) -> Any:
    """The address of one number of an array in C order, None where the index is not that of one. No index is below zero."""
    several = isinstance(index, types.BaseTuple)
    kinds = tuple(index) if several else (index,)
    if held.array.layout != "C" or len(kinds) != held.array.ndim or not all(isinstance(kind, types.Integer) for kind in kinds):
        return None
    values = cgutils.unpack_tuple(builder, given) if several else (given,)
    place, shape = None, _part(context, builder, held, address, "shape")
    for axis, (value, kind) in enumerate(zip(values, kinds, strict=True)):
        step = context.cast(builder, value, kind, types.intp)
        if place is None:
            place = step
        else:
            length = cgutils.gep_inbounds(builder, shape, 0, axis)
            place = builder.add(builder.mul(place, builder.load(length)), step)
    return builder.gep(builder.load(_part(context, builder, held, address, "data")), [place])


def _by_reference(_: Any, whole: Any) -> Any:

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    return Reference(whole)(whole), code


by_reference: Any = (lambda whole: whole) if INTERPRETED else intrinsic(_by_reference)
"""The address of a named tuple, for kernels and while the one that took it runs; fields are read by name as before."""
