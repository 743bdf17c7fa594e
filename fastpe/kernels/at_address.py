"""What lies at addresses that come as numbers, as compiled code reads it; nobody counts references to any of it."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model
from numba.np.arrayobj import make_array, populate_array

from fastpe.kernels.simd.by_address import ByAddress, hidden

_I64 = ir.IntType(64)
AXES = 4
LAYOUT = 2 * AXES
"""Numbers that say how an array of four axes is laid out: their sizes, and their strides in bytes."""


@intrinsic
def whole_at(typingctx, address, shape, dtype):
    """The array in one piece, of such a shape, that lies at an address."""
    kind = types.Array(dtype.dtype, len(shape), "C")

    def emit(context, b, signature, values):
        data = b.inttoptr(values[0], context.get_data_type(kind.dtype).as_pointer())
        return _in_one_piece(context, b, kind, data, values[1])

    return kind(types.intp, shape, dtype), emit


@intrinsic
def within(typingctx, words, place, shape, dtype):
    """The array in one piece, of such a shape, that begins at a place among words, which must outlive it."""
    kind = types.Array(dtype.dtype, len(shape), "C")

    def emit(context, b, signature, values):
        first = b.gep(make_array(words)(context, b, values[0]).data, [values[1]])
        data = b.bitcast(first, context.get_data_type(kind.dtype).as_pointer())
        return _in_one_piece(context, b, kind, data, values[2])

    return kind(words, types.intp, shape, dtype), emit


def _in_one_piece(context, b, kind, data, shape):
    sizes, step = cgutils.unpack_tuple(b, shape), context.get_abi_sizeof(context.get_data_type(kind.dtype))
    made, strides = make_array(kind)(context, b), [ir.Constant(_I64, step)]
    for size in sizes[:0:-1]:
        strides.insert(0, b.mul(strides[0], size))
    populate_array(made, data=data, shape=sizes, strides=strides, itemsize=strides[-1], meminfo=None, parent=None)
    return made._getvalue()


@intrinsic
def array_at(typingctx, address, layout, place, like):
    """The array at an address that has such axes and strides, and elements as another array has."""
    kind = types.Array(like.dtype, AXES, "A")

    def emit(context, b, signature, values):
        first = make_array(layout)(context, b, values[1]).data
        words = [b.load(b.gep(first, [b.add(values[2], ir.Constant(_I64, word))])) for word in range(LAYOUT)]
        made = make_array(kind)(context, b)
        data = b.inttoptr(values[0], made.data.type)
        size = make_array(like)(context, b, values[3]).itemsize
        populate_array(
            made, data=data, shape=words[:AXES], strides=words[AXES:], itemsize=size, meminfo=None, parent=None
        )
        return made._getvalue()

    return kind(types.intp, layout, types.intp, like), emit


def _flat_at(context, b, kind, addresses, counts, place):
    """The array of one axis of which the words at a place of each say where it lies, and how many elements it has; one
    without elements lies where `counts` does."""
    made, size_of_element = make_array(kind)(context, b), context.get_abi_sizeof(context.get_data_type(kind.dtype))
    address, size = (b.load(b.gep(words, [place])) for words in (addresses, counts))
    none, step = b.icmp_signed("==", size, ir.Constant(_I64, 0)), ir.Constant(_I64, size_of_element)
    data = b.select(none, b.bitcast(counts, made.data.type), b.inttoptr(address, made.data.type))
    populate_array(made, data=data, shape=[size], strides=[step], itemsize=step, meminfo=None, parent=None)
    return made._getvalue()


def _first_of_both(context, b, signature, values):
    """Pointers to the words of the first two arguments."""
    return [make_array(signature.args[place])(context, b, values[place]).data for place in range(2)]


@intrinsic
def flat_at(typingctx, addresses, counts, place, dtype):
    """The array of one axis at the address that stands at a place, of as many elements as `counts` says there."""
    kind = types.Array(dtype.dtype, 1, "C")

    def emit(context, b, signature, values):
        return _flat_at(context, b, kind, *_first_of_both(context, b, signature, values), values[2])

    return kind(addresses, counts, types.intp, dtype), emit


# ---------------------------------------------------------------------------------------------------------------------
# Named tuples, of which what is asked for is read where it is asked for. Handed on by their members, three dozen arrays
# take as long as attention of one head to 128 keys.


class ArraysAt(types.Type):
    """A named tuple of arrays of one axis, of which the addresses and the numbers of elements lie somewhere."""

    def __init__(self, dtypes: dict[str, Any]) -> None:
        self.members = {name: types.Array(dtype, 1, "C") for name, dtype in dtypes.items()}
        super().__init__(name=f"ArraysAt({dtypes})")


@register_model(ArraysAt)
class _ArraysAtModel(models.StructModel):
    def __init__(self, manager: Any, kind: ArraysAt) -> None:
        super().__init__(manager, kind, [(words, types.CPointer(types.int64)) for words in ("addresses", "counts")])


@infer_getattr
class _Members(AttributeTemplate):
    key = ArraysAt

    def generic_resolve(self, kind: ArraysAt, name: str) -> Any:
        return kind.members.get(name)


@lower_getattr_generic(ArraysAt)
def _member(context: Any, b: Any, kind: ArraysAt, value: Any, name: str) -> Any:
    addresses, counts = (b.extract_value(value, words) for words in range(2))
    return _flat_at(context, b, kind.members[name], addresses, counts, ir.Constant(_I64, [*kind.members].index(name)))


def arrays_at(dtypes: dict[str, Any]) -> Any:
    """An `ArraysAt`, and what makes one in an intrinsic, of its first two arguments: arrays, which must outlive it."""

    def emit(context: Any, b: Any, signature: Any, values: Any) -> Any:
        return cgutils.pack_struct(b, _first_of_both(context, b, signature, values))

    return ArraysAt(dtypes), emit


@intrinsic
def tuple_at(typingctx, kind, words, place):
    """The named tuple of integers that lie in an array from a place on, which nobody writes to, and which must outlive
    it."""
    made = ByAddress(types.NamedUniTuple(words.dtype, len(kind.instance_class._fields), kind.instance_class))

    def emit(context, b, signature, values):
        first = b.gep(make_array(words)(context, b, values[1]).data, [values[2]])
        return hidden(b, b.bitcast(first, context.get_value_type(made)))

    return made(kind, words, types.intp), emit


@intrinsic
def numbers_at(typingctx, array, place, count):
    """The `count` elements of an array from `place` on, as a tuple."""
    if not isinstance(count, types.IntegerLiteral):
        raise RequireLiteralValue("count")
    made = types.UniTuple(array.dtype, count.literal_value)

    def emit(context, b, signature, values):
        first = b.gep(make_array(array)(context, b, values[0]).data, [values[1]])
        found = [b.load(b.gep(first, [ir.Constant(_I64, number)])) for number in range(len(made))]
        return context.make_tuple(b, made, found)

    return made(array, types.intp, count), emit


@intrinsic
def float_at(typingctx, array, place):
    """The element of an array of words at a place, of which it is the bits."""

    def emit(context, b, signature, values):
        word = b.gep(make_array(array)(context, b, values[0]).data, [values[1]])
        return b.load(b.bitcast(word, ir.DoubleType().as_pointer()))

    return types.float64(array, types.intp), emit
