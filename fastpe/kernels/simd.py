"""A vector of floats as a Numba type, and its operations.

Numba's own vectoriser picks half-width registers on many CPUs and calls a scalar `exp`; the kernels here say what they
mean instead. A kernel gets *pointers* to float32 or float64 elements and works on whole vectors:

    for j in range(0, n, lanes(x)):
        store_first(y, j, load_first(x, j, n - j) * splat(alpha), n - j)

The element type is the pointer's, the width the host's: 64 bytes with AVX-512, 32 with AVX2, 16 elsewhere. One source
serves all of them. Everything here is inlined into its caller, and nothing checks a bound: the callers own the sizes.

Offsets count elements. `load_first` and `store_first` touch only the first `n` lanes, so a row of any length works.
"""

import math
import operator
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable
from numba.np.arrayobj import make_array

_I32, _I64 = ir.IntType(32), ir.IntType(64)


def _cpu_features() -> set[str]:
    """Features of the CPU that Numba compiles for, by LLVM's names."""
    chosen = numba.config.CPU_FEATURES  # set by the user: "+avx2,-avx512f,..."
    if chosen is not None:
        return {name[1:] for name in chosen.split(",") if name.startswith("+")}
    if numba.config.CPU_NAME == "generic":
        return set()
    return {name for name, present in llvm.get_host_cpu_features().items() if present}


def _register_bytes() -> int:
    """Bytes of the widest vector register of the CPU that Numba compiles for."""
    features = _cpu_features()
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


REGISTER_BYTES = _register_bytes()
FUSED = "fma" in _cpu_features()
"""Whether `fma` rounds once. Where it may not, the error of a product takes ten operations instead of one."""


class Vector(types.Type):
    """As many elements of `dtype` as one register holds."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        self.lanes = REGISTER_BYTES * 8 // dtype.bitwidth
        super().__init__(name=f"Vector({dtype} x {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, llvm_vector(vector))


def llvm_scalar(dtype: types.Float) -> Any:
    """The LLVM type of one element."""
    return ir.FloatType() if dtype.bitwidth == 32 else ir.DoubleType()


def llvm_vector(vector: Vector) -> Any:
    """The LLVM type of a `Vector`."""
    return ir.VectorType(llvm_scalar(vector.dtype), vector.lanes)


# ---------------------------------------------------------------------------------------------------------------------
# Pieces of LLVM code. `kind` is the Numba `Vector`, `b` the IR builder.


def _suffix(kind):
    return f"v{kind.lanes}f{kind.dtype.bitwidth}"


def _call(b, name, result, arguments):
    function = ir.FunctionType(result, [value.type for value in arguments])
    return b.call(cgutils.get_or_insert_function(b.module, function, name), arguments)


def constant(kind, value):
    """A vector with `value` in every lane."""
    return ir.Constant(llvm_vector(kind), [float(value)] * kind.lanes)


def broadcast(b, kind, scalar):
    """A vector with the LLVM value `scalar` in every lane."""
    empty = ir.Constant(llvm_vector(kind), ir.Undefined)
    one = b.insert_element(empty, scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(_I32, kind.lanes), [0] * kind.lanes))


def multiply_add(b, kind, x, y, z):
    """x * y + z, fused where the CPU can (`fmuladd`: plain `fma` becomes a library call where it cannot)."""
    return _call(b, f"llvm.fmuladd.{_suffix(kind)}", llvm_vector(kind), [x, y, z])


def _address(b, kind, pointer, offset):
    return b.bitcast(b.gep(pointer, [offset]), llvm_vector(kind).as_pointer())


def load_vector(b, kind, pointer, offset):
    """Unaligned load."""
    return b.load(_address(b, kind, pointer, offset), align=kind.dtype.bitwidth // 8)


def store_vector(b, kind, pointer, offset, value):
    """Unaligned store."""
    b.store(value, _address(b, kind, pointer, offset), align=kind.dtype.bitwidth // 8)


def _lanes_below(b, kind, count):
    """Mask of the lanes whose number is less than the integer `count`."""
    integers = ir.VectorType(_I32, kind.lanes)
    capped = b.trunc(
        b.select(b.icmp_signed("<", count, ir.Constant(_I64, kind.lanes)), count, ir.Constant(_I64, kind.lanes)), _I32
    )
    empty = ir.Constant(integers, ir.Undefined)
    counts = b.shuffle_vector(
        b.insert_element(empty, capped, ir.Constant(_I32, 0)), empty, ir.Constant(integers, [0] * kind.lanes)
    )
    return b.icmp_signed("<", ir.Constant(integers, list(range(kind.lanes))), counts)


def load_lanes(b, kind, pointer, offset, count):
    """The first `count` lanes; the others are zero and their memory is not touched."""
    whole = b.icmp_signed(">=", count, ir.Constant(_I64, kind.lanes))
    with b.if_else(whole, likely=True) as (then, otherwise):
        with then:
            full = load_vector(b, kind, pointer, offset)
            full_block = b.block
        with otherwise:
            mask = _lanes_below(b, kind, count)
            alignment = ir.Constant(_I32, kind.dtype.bitwidth // 8)
            address = _address(b, kind, pointer, offset)
            name = f"llvm.masked.load.{_suffix(kind)}.p0"
            part = _call(b, name, llvm_vector(kind), [address, alignment, mask, constant(kind, 0.0)])
            part_block = b.block
    result = b.phi(llvm_vector(kind))
    result.add_incoming(full, full_block)
    result.add_incoming(part, part_block)
    return result


def store_lanes(b, kind, pointer, offset, value, count):
    """Store the first `count` lanes; no other memory is touched."""
    whole = b.icmp_signed(">=", count, ir.Constant(_I64, kind.lanes))
    with b.if_else(whole, likely=True) as (then, otherwise):
        with then:
            store_vector(b, kind, pointer, offset, value)
        with otherwise:
            mask = _lanes_below(b, kind, count)
            alignment = ir.Constant(_I32, kind.dtype.bitwidth // 8)
            address = _address(b, kind, pointer, offset)
            name = f"llvm.masked.store.{_suffix(kind)}.p0"
            _call(b, name, ir.VoidType(), [value, address, alignment, mask])


def _fold(b, kind, vector, combine):
    """Combine all lanes by a halving tree of fixed shape."""
    width = kind.lanes
    while width > 1:
        width //= 2
        empty = ir.Constant(vector.type, ir.Undefined)
        integers = ir.VectorType(_I32, width)
        low = b.shuffle_vector(vector, empty, ir.Constant(integers, list(range(width))))
        high = b.shuffle_vector(vector, empty, ir.Constant(integers, list(range(width, 2 * width))))
        vector = combine(low, high)
    return b.extract_element(vector, ir.Constant(_I32, 0))


def larger(b, x, y):
    """max(x, y), y where x is NaN: one instruction on x86."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def rectified(b, kind, x):
    """max(x, 0) that lets NaN through."""
    return larger(b, constant(kind, 0.0), x)


def where_positive(b, kind, x, y):
    """x where y > 0, else 0."""
    return b.select(b.fcmp_ordered(">", y, constant(kind, 0.0)), x, constant(kind, 0.0))


# ---------------------------------------------------------------------------------------------------------------------
# exp: x = n ln 2 + r, |r| <= ln(2)/2; exp(r) = 1 + r + r^2 p(r); the exponent n is added to the bits.
#
# float32: p of degree 5 (minimax; Cephes' expf), at most 1 ULP on [-87, 0]. float64: the Taylor series to r^13, whose
# remainder is below 2^-57. Below `lowest` the result is exactly 0: masked scores must not become denormal numbers.

_LN2_HIGH = {32: 0.693359375, 64: float.fromhex("0x1.62e42fee00000p-1")}
_LN2_LOW = {32: -2.12194440e-4, 64: float.fromhex("0x1.a39ef35793c76p-33")}
_EXP_LOWEST = {32: -87.0, 64: -708.0}
_EXP_COEFFICIENTS = {
    32: (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
    64: tuple(1.0 / math.factorial(k) for k in range(13, 1, -1)),
}


def exponential(b, kind, x):
    """exp(x) for x <= 0; exactly 0 below -87 (float32) or -708 (float64); NaN stays NaN."""
    bits = kind.dtype.bitwidth
    mantissa = 23 if bits == 32 else 52
    integers = ir.VectorType(ir.IntType(bits), kind.lanes)
    # adding 1.5 * 2^mantissa rounds to an integer and leaves that integer in the low bits: no conversion, safe for NaN
    magic = constant(kind, 1.5 * 2.0**mantissa)
    shifted = multiply_add(b, kind, x, constant(kind, 1.0 / math.log(2.0)), magic)
    n = b.fsub(shifted, magic)
    r = multiply_add(b, kind, n, constant(kind, -_LN2_HIGH[bits]), x)
    r = multiply_add(b, kind, n, constant(kind, -_LN2_LOW[bits]), r)
    first, *others = _EXP_COEFFICIENTS[bits]
    p = constant(kind, first)
    for coefficient in others:
        p = multiply_add(b, kind, p, r, constant(kind, coefficient))
    p = b.fadd(multiply_add(b, kind, p, b.fmul(r, r), r), constant(kind, 1.0))
    shift = ir.Constant(integers, [mantissa] * kind.lanes)
    exponent = b.shl(b.bitcast(shifted, integers), shift)
    scaled = b.bitcast(b.add(b.bitcast(p, integers), exponent), llvm_vector(kind))
    tiny = b.fcmp_ordered("<", x, constant(kind, _EXP_LOWEST[bits]))
    unusual = b.fcmp_unordered("uno", x, x)
    return b.select(unusual, x, b.select(tiny, constant(kind, 0.0), scaled))


# ---------------------------------------------------------------------------------------------------------------------
# The operations that kernels call


@intrinsic
def pointer(typingctx, array):
    """Pointer to the first element of an array. The array must outlive it."""

    def emit(context, b, signature, arguments):
        return make_array(signature.args[0])(context, b, arguments[0]).data

    return types.CPointer(array.dtype)(array), emit


@intrinsic
def at(typingctx, p, offset):
    """The pointer `offset` elements further on."""
    return p(p, types.intp), lambda context, b, signature, a: b.gep(a[0], [a[1]])


@intrinsic
def get(typingctx, p, offset):
    """One element."""
    return p.dtype(p, types.intp), lambda context, b, signature, a: b.load(b.gep(a[0], [a[1]]))


@intrinsic
def put(typingctx, p, offset, value):
    """Store one element."""

    def emit(context, b, signature, arguments):
        b.store(arguments[2], b.gep(arguments[0], [arguments[1]]))
        return context.get_dummy_value()

    return types.void(p, types.intp, p.dtype), emit


@intrinsic
def lanes(typingctx, p):
    """Elements per vector, for the element type of the pointer or vector `p`."""
    count = Vector(p.dtype).lanes
    return types.intp(p), lambda context, b, signature, a: ir.Constant(_I64, count)


@intrinsic
def scalar(typingctx, p, value):
    """The number `value` in the element type of the pointer `p`."""

    def emit(context, b, signature, arguments):
        return context.cast(b, arguments[1], signature.args[1], p.dtype)

    return p.dtype(p, value), emit


@intrinsic
def load(typingctx, p, offset):
    """A whole vector."""
    kind = Vector(p.dtype)
    return kind(p, types.intp), lambda context, b, signature, a: load_vector(b, kind, a[0], a[1])


@intrinsic
def load_first(typingctx, p, offset, count):
    """The first `count` lanes (all when `count` >= lanes); the others are zero and not read."""
    kind = Vector(p.dtype)
    return kind(p, types.intp, types.intp), lambda context, b, signature, a: load_lanes(b, kind, a[0], a[1], a[2])


@intrinsic
def store(typingctx, p, offset, value):
    """Store a whole vector."""

    def emit(context, b, signature, arguments):
        store_vector(b, value, *arguments)
        return context.get_dummy_value()

    return types.void(p, types.intp, value), emit


@intrinsic
def store_first(typingctx, p, offset, value, count):
    """Store the first `count` lanes (all when `count` >= lanes)."""

    def emit(context, b, signature, arguments):
        store_lanes(b, value, *arguments)
        return context.get_dummy_value()

    return types.void(p, types.intp, value, types.intp), emit


@intrinsic
def splat(typingctx, x):
    """A vector with the scalar `x` in every lane."""
    kind = Vector(x)
    return kind(x), lambda context, b, signature, a: broadcast(b, kind, a[0])


@intrinsic
def zeros(typingctx, p):
    """A vector of zeros, of the element type of the pointer `p`."""
    kind = Vector(p.dtype)
    return kind(p), lambda context, b, signature, a: constant(kind, 0.0)


@intrinsic
def keep_first(typingctx, x, count, other):
    """The lanes of `x` below `count`, the scalar `other` in the rest."""

    def emit(context, b, signature, arguments):
        return b.select(_lanes_below(b, x, arguments[1]), arguments[0], broadcast(b, x, arguments[2]))

    return x(x, types.intp, x.dtype), emit


@intrinsic
def blend(typingctx, x, count, y):
    """The lanes of `x` below `count`, those of `y` in the rest."""

    def emit(context, b, signature, arguments):
        return b.select(_lanes_below(b, x, arguments[1]), arguments[0], arguments[2])

    return x(x, types.intp, y), emit


@intrinsic
def fma(typingctx, x, y, z):
    """x * y + z."""
    return x(x, y, z), lambda context, b, signature, a: multiply_add(b, x, *a)


@intrinsic
def maximum(typingctx, x, y):
    """The larger of each two lanes."""
    return x(x, y), lambda context, b, signature, a: larger(b, *a)


@intrinsic
def relu(typingctx, x):
    """max(x, 0), NaN where x is."""
    return x(x), lambda context, b, signature, a: rectified(b, x, a[0])


@intrinsic
def absolute(typingctx, x):
    """|x|."""
    return x(x), lambda context, b, signature, a: _call(b, f"llvm.fabs.{_suffix(x)}", llvm_vector(x), a)


@intrinsic
def where_negative(typingctx, x, y, z):
    """y where x < 0, else z."""

    def emit(context, b, signature, arguments):
        negative = b.fcmp_ordered("<", arguments[0], constant(x, 0.0))
        return b.select(negative, arguments[1], arguments[2])

    return x(x, y, z), emit


@intrinsic
def sqrt(typingctx, x):
    """Square root, correctly rounded."""
    return x(x), lambda context, b, signature, a: _call(b, f"llvm.sqrt.{_suffix(x)}", llvm_vector(x), a)


@intrinsic
def exp(typingctx, x):
    """exp(x) for x <= 0, at most 1 ULP off; exactly 0 where it would be denormal."""
    return x(x), lambda context, b, signature, a: exponential(b, x, a[0])


@intrinsic
def total(typingctx, x):
    """The sum of all lanes, in a fixed order."""
    return x.dtype(x), lambda context, b, signature, a: _fold(b, x, a[0], b.fadd)


@intrinsic
def largest(typingctx, x):
    """The largest of all lanes."""
    return x.dtype(x), lambda context, b, signature, a: _fold(b, x, a[0], lambda u, v: larger(b, u, v))


@intrinsic
def transpose_block(typingctx, source, source_row, target, target_row):
    """target = source^T for one square block of lanes x lanes; rows are `*_row` elements apart."""
    kind = Vector(source.dtype)

    def emit(context, b, signature, arguments):
        _transpose(b, kind, *arguments)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), emit


def _transpose(b, kind, source, source_row, target, target_row):
    """log2(lanes) rounds, each swapping the off-diagonal blocks of half the size."""
    width = kind.lanes
    integers = ir.VectorType(_I32, width)
    rows = [load_vector(b, kind, source, b.mul(source_row, ir.Constant(_I64, i))) for i in range(width)]
    half = width // 2
    while half:
        upper = ir.Constant(integers, [lane if not lane & half else width + lane - half for lane in range(width)])
        lower = ir.Constant(integers, [lane + half if not lane & half else width + lane for lane in range(width)])
        for i in range(width):
            if not i & half:
                x, y = rows[i], rows[i + half]
                rows[i] = b.shuffle_vector(x, y, upper)
                rows[i + half] = b.shuffle_vector(x, y, lower)
        half //= 2
    for i in range(width):
        store_vector(b, kind, target, b.mul(target_row, ir.Constant(_I64, i)), rows[i])


def _define_operator(symbol, instruction):
    @type_callable(symbol)
    def _type(context):
        return lambda x, y: x if isinstance(x, Vector) and x == y else None

    @lower_builtin(symbol, Vector, Vector)
    def _lower(context, b, signature, arguments):
        return getattr(b, instruction)(*arguments)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define_operator(_symbol, _instruction)


def whole_vectors(count: int, dtype: Any) -> int:
    """`count` elements of `dtype`, rounded up to whole vectors."""
    width = REGISTER_BYTES // np.dtype(dtype).itemsize
    return -(-count // width) * width


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros that start on a 64-byte boundary: vectors that straddle cache lines cost a tenth of the speed."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    raw = np.zeros(count * dtype.itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Fills compute in float64 vectors, whatever the table's own type: these carry them in and out, and rearrange lanes


@intrinsic
def load_wide(typingctx, p, offset, count):
    """As many elements as a float64 vector holds, as float64; those from `count` on are zero and not read."""
    wide = Vector(types.float64)

    def emit(context, b, signature, arguments):
        part = _Part(p.dtype, wide.lanes)
        loaded = load_lanes(b, part, *arguments)
        return loaded if p.dtype == wide.dtype else b.fpext(loaded, llvm_vector(wide))

    return wide(p, types.intp, types.intp), emit


@intrinsic
def store_rounded(typingctx, p, offset, value, count):
    """Round the first `count` lanes of a float64 vector to the type of the elements of `p`, and store them."""

    def emit(context, b, signature, arguments):
        pointer_value, at_offset, wide, lanes_used = arguments
        part = _Part(p.dtype, value.lanes)
        rounded = wide if p.dtype == value.dtype else b.fptrunc(wide, llvm_vector(part))
        store_lanes(b, part, pointer_value, at_offset, rounded, lanes_used)
        return context.get_dummy_value()

    return types.void(p, types.intp, value, types.intp), emit


@intrinsic
def store_interleaved(typingctx, p, offset, x, y, count):
    """As `store_rounded`, for x0, y0, x1, y1, ...: the first `count` of twice as many elements."""

    def emit(context, b, signature, arguments):
        pointer_value, at_offset, *pair, lanes_used = arguments
        both, mixed = _interleaved(b, p.dtype, x, *pair)
        store_lanes(b, both, pointer_value, at_offset, mixed, lanes_used)
        return context.get_dummy_value()

    return types.void(p, types.intp, x, y, types.intp), emit


@intrinsic
def interleaved(typingctx, p, x, y):
    """x0, y0, x1, y1, ... of two float64 vectors, rounded to the float32 elements of `p`: one vector."""
    kind = Vector(p.dtype)

    def emit(context, b, signature, arguments):
        return _interleaved(b, p.dtype, x, arguments[1], arguments[2])[1]

    return kind(p, x, y) if p.dtype == types.float32 else None, emit


def _interleaved(b, dtype, kind, x, y):
    part, both = _Part(dtype, kind.lanes), _Part(dtype, 2 * kind.lanes)
    if dtype != kind.dtype:
        x, y = (b.fptrunc(wide, llvm_vector(part)) for wide in (x, y))
    order = [lane // 2 + lane % 2 * kind.lanes for lane in range(both.lanes)]
    return both, b.shuffle_vector(x, y, ir.Constant(ir.VectorType(_I32, both.lanes), order))


@intrinsic
def store_past_caches(typingctx, p, offset, value):
    """Store a whole vector at a multiple of its size, without keeping it in any cache; `fence` when all is done."""

    def emit(context, b, signature, arguments):
        stored = b.store(arguments[2], _address(b, value, arguments[0], arguments[1]), align=REGISTER_BYTES)
        stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(_I32, 1)]))
        return context.get_dummy_value()

    return types.void(p, types.intp, value), emit


@intrinsic
def fence(typingctx):
    """What was stored is there for every thread before what is stored later."""

    def emit(context, b, signature, arguments):
        b.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def before_boundary(typingctx, p):
    """Elements from `p` to the next address that is a multiple of a vector's size."""

    def emit(context, b, signature, arguments):
        behind = b.and_(b.neg(b.ptrtoint(arguments[0], _I64)), ir.Constant(_I64, REGISTER_BYTES - 1))
        return b.udiv(behind, ir.Constant(_I64, p.dtype.bitwidth // 8))

    return types.intp(p), emit


class _Part(NamedTuple):
    """Some lanes of a register: what the pieces of LLVM code ask of a `Vector`."""

    dtype: types.Float
    lanes: int


@intrinsic
def minus(typingctx, x):
    """-x."""
    return x(x), lambda context, b, signature, a: b.fneg(a[0])


@intrinsic
def swapped(typingctx, x):
    """x1, x0, x3, x2, ...: neighbours in each other's place."""

    def emit(context, b, signature, arguments):
        order = ir.Constant(ir.VectorType(_I32, x.lanes), [lane ^ 1 for lane in range(x.lanes)])
        return b.shuffle_vector(arguments[0], arguments[0], order)

    return x(x), emit


@intrinsic
def minimum(typingctx, x, y):
    """The smaller of each two lanes."""
    return x(x, y), lambda context, b, signature, a: b.select(b.fcmp_ordered("<", *a), *a)


@intrinsic
def any_negative(typingctx, x):
    """Whether a lane is below zero."""

    def emit(context, b, signature, arguments):
        below = b.fcmp_ordered("<", arguments[0], constant(x, 0.0))
        return b.icmp_unsigned("!=", b.bitcast(below, ir.IntType(x.lanes)), ir.Constant(ir.IntType(x.lanes), 0))

    return types.boolean(x), emit


@intrinsic
def counting(typingctx, start):
    """start, start + 1, start + 2, ..."""
    kind = Vector(start)

    def emit(context, b, signature, arguments):
        steps = ir.Constant(llvm_vector(kind), [float(lane) for lane in range(kind.lanes)])
        return b.fadd(broadcast(b, kind, arguments[0]), steps)

    return kind(start), emit
