"""Loads and stores of vectors. Offsets count elements; bounds are checked only in the build for this purpose
(`pointers`)."""

from llvmlite import ir
from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from fastpe.kernels.compile.decorators import inlined
from fastpe.kernels.simd import pointers
from fastpe.kernels.simd.code import (
    I32,
    Part,
    call_intrinsic,
    interleave,
    load_element,
    load_lanes,
    load_vector,
    store_lanes,
    store_vector,
    store_vector_past_caches,
    totals,
    transpose,
)
from fastpe.kernels.simd.half_precision import read_as
from fastpe.kernels.simd.pointers import I64, REGION, element
from fastpe.kernels.simd.vector import REGISTER_BYTES, Vector, llvm_vector

# Private to Numba: `make_array`, which knows an array's fields, and `impl_ret_borrowed`; examples in Numba's manual use
# both. The kernels do not work without them.

_TO_L1 = 3
_BYTES = ir.IntType(8).as_pointer()


@intrinsic
def pointer(typingctx, array):
    """Return a pointer to the first element of an array. The array must outlive the pointer."""

    def emit(context, b, signature, arguments):
        kind = signature.args[0]
        return pointers.first_element(b, kind, make_array(kind)(context, b, arguments[0]))

    if not isinstance(array, types.Array):  # already a pointer, made by `with_pointers`
        return array(array), lambda context, b, signature, arguments: arguments[0]
    return pointers.pointer_type(array.dtype)(array), emit


def _pointer_at(context, b, kind, address, size):
    """Return the pointer to `size` elements at an address."""
    start = b.inttoptr(address, context.get_value_type(types.CPointer(kind.dtype)))
    return pointers.first_of(b, start, size)


@intrinsic
def float_pointer(typingctx, address, size, like):
    """Return the pointer to `size` elements at an address. `like` is a pointer to elements of the same type."""
    kind = pointers.pointer_type(like.dtype)
    return kind(types.intp, types.intp, like), lambda context, b, signature, a: _pointer_at(context, b, kind, *a[:2])


@intrinsic
def double_pointer(typingctx, address, size):
    """Return a pointer as `float_pointer` does, but to float64 elements."""
    kind = pointers.pointer_type(types.float64)
    return kind(types.intp, types.intp), lambda context, b, signature, a: _pointer_at(context, b, kind, *a)


@intrinsic
def int32_pointer(typingctx, address, size):
    """Return a pointer as `float_pointer` does, but to int32 elements."""
    kind = pointers.pointer_type(types.int32)
    return kind(types.intp, types.intp), lambda context, b, signature, a: _pointer_at(context, b, kind, *a)


@intrinsic
def with_pointers(typingctx, record):
    """Replace the one-dimensional arrays in a named tuple, and in named tuples within it, by pointers.

    Numba calls a function to count references wherever an array is passed on; pointers avoid this. The arrays must
    outlive the result.
    """

    def emit(context, b, signature, arguments):
        made = _pointers_in(context, b, signature.args[0], arguments[0])
        return impl_ret_borrowed(context, b, signature.return_type, made)

    return _with_pointers(record)(record), emit


def _is_line(kind):
    return isinstance(kind, types.Array) and kind.ndim == 1


def _with_pointers(kind):
    if _is_line(kind):
        return pointers.pointer_type(kind.dtype)
    if not isinstance(kind, types.BaseNamedTuple):
        return kind
    return types.BaseTuple.from_types([_with_pointers(member) for member in kind.types], kind.instance_class)


def _pointers_in(context, b, kind, value):
    if _is_line(kind):
        return pointers.first_element(b, kind, make_array(kind)(context, b, value))
    if not isinstance(kind, types.BaseNamedTuple):
        return value
    members = [_pointers_in(context, b, member, b.extract_value(value, i)) for i, member in enumerate(kind.types)]
    return context.make_tuple(b, _with_pointers(kind), members)


@intrinsic
def at(typingctx, p, offset):
    """Return the pointer `offset` elements further on. If `offset` is a region, the pointer is limited to that
    region."""
    if offset is REGION:
        return p(p, REGION), lambda context, b, signature, a: pointers.cut_region(b, *a)
    return p(p, types.intp), lambda context, b, signature, a: pointers.moved(b, *a)


@intrinsic
def part(typingctx, p, offset, size):
    """Return the pointer `offset` elements further on. Only the `size` elements from there on may be accessed through
    it.
    """
    return p(p, types.intp, types.intp), lambda context, b, signature, a: pointers.cut(b, *a)


@inlined
def row(matrix, i):
    """Return a pointer to row i of a contiguous matrix; only this row may be accessed through it."""
    return part(pointer(matrix), i * matrix.shape[1], matrix.shape[1])


@intrinsic
def plain(typingctx, offset):
    """Return the offset of a region (see `pointers`) as a number. A pointer that is moved by this number may leave the
    region.
    """
    if offset is REGION:
        return types.intp(REGION), lambda context, b, signature, a: pointers.place_of(b, a[0])
    return types.intp(types.intp), lambda context, b, signature, a: a[0]


@intrinsic
def same_place(typingctx, p, other):
    """Whether both pointers have the same address."""

    def emit(context, b, signature, arguments):
        first, second = (b.ptrtoint(pointers.address(b, each), I64) for each in arguments)
        return b.icmp_unsigned("==", first, second)

    return types.boolean(p, other), emit


@intrinsic
def get(typingctx, p, offset):
    """Load one element."""
    return read_as(p.dtype)(p, types.intp), lambda context, b, signature, a: load_element(b, p.dtype, *a)


@intrinsic
def put(typingctx, p, offset, value):
    """Store one element."""

    def emit(context, b, signature, arguments):
        b.store(arguments[2], element(b, *arguments[:2]))
        return context.get_dummy_value()

    return types.void(p, types.intp, p.dtype), emit


@intrinsic
def put_totals(typingctx, p, offset, x, y, z, w):
    """Store four sums next to each other: the sum of all lanes of each vector, equal to `total` of the vector."""

    def emit(context, b, signature, arguments):
        sums = totals(b, x, arguments[2:])
        place = element(b, *arguments[:2], 4)
        b.store(sums, b.bitcast(place, sums.type.as_pointer()), align=x.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(p, types.intp, x, y, z, w), emit


@intrinsic
def lanes(typingctx, p):
    """Return the number of elements per vector, for the element type of the pointer or vector `p`."""
    count = Vector(p.dtype).lanes
    return types.intp(p), lambda context, b, signature, a: ir.Constant(I64, count)


@intrinsic
def scalar(typingctx, p, value):
    """Return the number `value` in the type that elements of `p` are read as."""
    kind = read_as(p.dtype)

    def emit(context, b, signature, arguments):
        return context.cast(b, arguments[1], signature.args[1], kind)

    return kind(p, value), emit


@intrinsic
def load(typingctx, p, offset):
    """Load a whole vector."""
    kind = Vector(p.dtype)
    return kind(p, types.intp), lambda context, b, signature, a: load_vector(b, kind, p.dtype, *a)


@intrinsic
def load_first(typingctx, p, offset, count):
    """Load the first `count` lanes (all if `count` >= lanes); the others are zero, and their memory is not read."""
    kind = Vector(p.dtype)
    return kind(p, types.intp, types.intp), lambda context, b, signature, a: load_lanes(b, kind, p.dtype, *a)


@intrinsic
def store(typingctx, p, offset, value):
    """Store a whole vector."""

    def emit(context, b, signature, arguments):
        store_vector(b, value, p.dtype, *arguments)
        return context.get_dummy_value()

    return types.void(p, types.intp, value), emit


@intrinsic
def store_first(typingctx, p, offset, value, count):
    """Store the first `count` lanes (all if `count` >= lanes)."""

    def emit(context, b, signature, arguments):
        store_lanes(b, value, p.dtype, *arguments)
        return context.get_dummy_value()

    return types.void(p, types.intp, value, types.intp), emit


@intrinsic
def transpose_block(typingctx, source, source_row, target, target_row, past_caches):
    """target = source^T for one square block of lanes x lanes; rows are `*_row` elements apart.

    past_caches: store as `store_past_caches` does.
    """
    kind = Vector(source.dtype)

    def emit(context, b, signature, arguments):
        transpose(b, kind, (source.dtype, target.dtype), *arguments)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.boolean), emit


# ---------------------------------------------------------------------------------------------------------------------
# Fills compute with float64 vectors, whatever the dtype of the table; these functions convert between the two


@intrinsic
def load_wide(typingctx, p, offset, count):
    """Load as many elements as a float64 vector holds, as float64; elements from `count` on are zero and not read."""
    wide = Vector(types.float64)

    def emit(context, b, signature, arguments):
        part = Part(p.dtype, wide.lanes)
        loaded = load_lanes(b, part, p.dtype, *arguments)
        return loaded if p.dtype == wide.dtype else b.fpext(loaded, llvm_vector(wide))

    return wide(p, types.intp, types.intp), emit


@intrinsic
def store_rounded(typingctx, p, offset, value, count):
    """Round the first `count` lanes of a float64 vector to the type of the elements of `p`, and store them."""

    def emit(context, b, signature, arguments):
        pointer_value, at_offset, wide, lanes_used = arguments
        part = Part(p.dtype, value.lanes)
        rounded = wide if p.dtype == value.dtype else b.fptrunc(wide, llvm_vector(part))
        store_lanes(b, part, p.dtype, pointer_value, at_offset, rounded, lanes_used)
        return context.get_dummy_value()

    return types.void(p, types.intp, value, types.intp), emit


@intrinsic
def store_interleaved(typingctx, p, offset, x, y, count):
    """Store the first `count` elements of x0, y0, x1, y1, ... of two float64 vectors, rounded to the
    elements of `p`.
    """

    def emit(context, b, signature, arguments):
        pointer_value, at_offset, *pair, lanes_used = arguments
        both, mixed = interleave(b, p.dtype, x, *pair)
        store_lanes(b, both, p.dtype, pointer_value, at_offset, mixed, lanes_used)
        return context.get_dummy_value()

    return types.void(p, types.intp, x, y, types.intp), emit


@intrinsic
def store_past_caches(typingctx, p, offset, value):
    """Store a whole vector at a multiple of its size, without keeping it in a cache. Call `fence` after the last
    store."""

    def emit(context, b, signature, arguments):
        store_vector_past_caches(b, value, p.dtype, *arguments)
        return context.get_dummy_value()

    return types.void(p, types.intp, value), emit


@intrinsic
def fence(typingctx):
    """Make all earlier stores visible to every thread before any later store."""

    def emit(context, b, signature, arguments):
        b.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def bring_near(typingctx, p, offset):
    """Prefetch the cache line of an element that is read soon. The address need not be valid: an invalid one has no
    effect."""

    def emit(context, b, signature, arguments):
        place = pointers.anywhere(b, *arguments)
        flags = [ir.Constant(I32, flag) for flag in (0, _TO_L1, 1)]  # to read; how near; data
        call_intrinsic(b, "llvm.prefetch.p0", ir.VoidType(), [b.bitcast(place, _BYTES), *flags])
        return context.get_dummy_value()

    return types.void(p, types.intp), emit


@intrinsic
def before_boundary(typingctx, p):
    """Return the number of elements from `p` to the next address that is a multiple of a vector's size."""

    def emit(context, b, signature, arguments):
        behind = b.and_(b.neg(b.ptrtoint(pointers.address(b, arguments[0]), I64)), ir.Constant(I64, REGISTER_BYTES - 1))
        return b.udiv(behind, ir.Constant(I64, p.dtype.bitwidth // 8))

    return types.intp(p), emit
