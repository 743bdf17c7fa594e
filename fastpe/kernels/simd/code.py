"""Pieces of LLVM code.

`b` is the IR builder, `kind` the Numba `Vector`, `dtype` Numba's type of the elements in memory; all other arguments
are LLVM values. Only `dtype` tells whether elements have half precision, because LLVM's pointers need not have a type.
"""

import math
import platform
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils

from fastpe.kernels.simd.half_precision import BFLOAT16, Half
from fastpe.kernels.simd.pointers import I64, element
from fastpe.kernels.simd.vector import REGISTER_BYTES, cpu_features, llvm_vector

I16, I32 = ir.IntType(16), ir.IntType(32)
_WIDENS = "f16c" in cpu_features() or platform.machine().lower() in ("aarch64", "arm64")
"""Whether the CPU has instructions that convert float16 to float32. Without them LLVM would call a function that is not
available."""


class Part(NamedTuple):
    """A vector that need not fill a register, with the attributes of a `Vector` that the pieces of LLVM code use."""

    dtype: types.Float
    lanes: int


def suffix(kind):
    """Return the suffix of the names of LLVM's functions for such vectors."""
    return f"v{kind.lanes}f{kind.dtype.bitwidth}"


def call_intrinsic(b, name, result, arguments):
    """Call one of LLVM's intrinsic functions; `result` is the type of its result."""
    function = ir.FunctionType(result, [value.type for value in arguments])
    return b.call(cgutils.get_or_insert_function(b.module, function, name), arguments)


def constant(kind, value):
    """Return a vector with `value` in every lane."""
    return ir.Constant(llvm_vector(kind), [float(value)] * kind.lanes)


def broadcast(b, kind, scalar):
    """Return a vector with the LLVM value `scalar` in every lane."""
    empty = ir.Constant(llvm_vector(kind), ir.Undefined)
    one = b.insert_element(empty, scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(one, empty, ir.Constant(ir.VectorType(I32, kind.lanes), [0] * kind.lanes))


def multiply_add(b, kind, x, y, z):
    """Return x * y + z, fused if the CPU supports it (`fmuladd`; `fma` would become a library call on other CPUs)."""
    return call_intrinsic(b, f"llvm.fmuladd.{suffix(kind)}", llvm_vector(kind), [x, y, z])


def address_of(b, kind, pointer, offset, count=None):
    """Return the address of the element `offset` of `pointer`, for an access to the first `count` lanes of a vector, by
    default to all."""
    place = element(b, pointer, offset, kind.lanes if count is None else count)
    return b.bitcast(place, llvm_vector(kind).as_pointer())


def load_element(b, dtype, pointer, offset):
    """Load one element; half precision is widened to float32."""
    read = b.load(element(b, pointer, offset))
    return widened(b, dtype, read) if isinstance(dtype, Half) else read


def load_vector(b, kind, dtype, pointer, offset):
    """Load a vector from an address that need not be aligned."""
    place = element(b, pointer, offset, kind.lanes)
    if isinstance(dtype, Half):
        return widened(b, dtype, b.load(_bits_at(b, place, kind.lanes), align=2))
    return b.load(b.bitcast(place, llvm_vector(kind).as_pointer()), align=kind.dtype.bitwidth // 8)


def store_vector(b, kind, dtype, pointer, offset, value):
    """Store a vector to an address that need not be aligned. If the elements are bfloat16, round the vector."""
    place = element(b, pointer, offset, kind.lanes)
    if isinstance(dtype, Half):
        b.store(narrowed(b, kind, value), _bits_at(b, place, kind.lanes), align=2)
    else:
        b.store(value, b.bitcast(place, llvm_vector(kind).as_pointer()), align=kind.dtype.bitwidth // 8)


def lanes_below(b, kind, count):
    """Return the mask of the lanes whose number is less than the integer `count`."""
    integers = ir.VectorType(I32, kind.lanes)
    capped = b.trunc(
        b.select(b.icmp_signed("<", count, ir.Constant(I64, kind.lanes)), count, ir.Constant(I64, kind.lanes)), I32
    )
    empty = ir.Constant(integers, ir.Undefined)
    counts = b.shuffle_vector(
        b.insert_element(empty, capped, ir.Constant(I32, 0)), empty, ir.Constant(integers, [0] * kind.lanes)
    )
    return b.icmp_signed("<", ir.Constant(integers, list(range(kind.lanes))), counts)


def load_lanes(b, kind, dtype, pointer, offset, count):
    """Load the first `count` lanes; the others are zero, and their memory is not accessed."""
    whole = b.icmp_signed(">=", count, ir.Constant(I64, kind.lanes))
    with b.if_else(whole, likely=True) as (then, otherwise):
        with then:
            full = load_vector(b, kind, dtype, pointer, offset)
            full_block = b.block
        with otherwise:
            mask = lanes_below(b, kind, count)
            part = _load_masked(b, kind, dtype, element(b, pointer, offset, count), mask)
            part_block = b.block
    result = b.phi(llvm_vector(kind))
    result.add_incoming(full, full_block)
    result.add_incoming(part, part_block)
    return result


def _load_masked(b, kind, dtype, place, mask):
    half = isinstance(dtype, Half)
    name, vector, size = f"v{kind.lanes}i16" if half else suffix(kind), llvm_vector(kind), kind.dtype.bitwidth // 8
    if half:
        vector, size = ir.VectorType(I16, kind.lanes), 2
    zero = ir.Constant(vector, [0] * kind.lanes) if half else constant(kind, 0.0)
    address = b.bitcast(place, vector.as_pointer())
    part = call_intrinsic(b, f"llvm.masked.load.{name}.p0", vector, [address, ir.Constant(I32, size), mask, zero])
    return widened(b, dtype, part) if half else part


def store_lanes(b, kind, dtype, pointer, offset, value, count):
    """Store the first `count` lanes; no other memory is accessed."""
    whole = b.icmp_signed(">=", count, ir.Constant(I64, kind.lanes))
    with b.if_else(whole, likely=True) as (then, otherwise):
        with then:
            store_vector(b, kind, dtype, pointer, offset, value)
        with otherwise:
            mask, place = lanes_below(b, kind, count), element(b, pointer, offset, count)
            half = isinstance(dtype, Half)
            name, size = (f"v{kind.lanes}i16", 2) if half else (suffix(kind), kind.dtype.bitwidth // 8)
            stored = narrowed(b, kind, value) if half else value
            address = b.bitcast(place, stored.type.as_pointer())
            arguments = [stored, address, ir.Constant(I32, size), mask]
            call_intrinsic(b, f"llvm.masked.store.{name}.p0", ir.VoidType(), arguments)


def fold_lanes(b, kind, vector, combine):
    """Combine all lanes into one: combine the two halves of the vector, then the two halves of the
    result, and so on.
    """
    width = kind.lanes
    while width > 1:
        width //= 2
        empty = ir.Constant(vector.type, ir.Undefined)
        integers = ir.VectorType(I32, width)
        low = b.shuffle_vector(vector, empty, ir.Constant(integers, list(range(width))))
        high = b.shuffle_vector(vector, empty, ir.Constant(integers, list(range(width, 2 * width))))
        vector = combine(low, high)
    return b.extract_element(vector, ir.Constant(I32, 0))


def totals(b, kind, vectors):
    """Return a vector that holds the sum of all lanes of each vector, added in the same order as in `fold_lanes`.

    Each round replaces two vectors by one. The new vector holds the sum of the two halves of the first vector, then the
    sum of the two halves of the second vector.
    """

    def chosen(lanes, x, y=None):
        return b.shuffle_vector(x, x if y is None else y, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))

    width, count = kind.lanes, len(vectors)
    while width > 1:
        width //= 2
        low = [lane for lane in range(kind.lanes) if not lane & width]
        high = [lane | width for lane in low]
        if len(vectors) > 1:
            low, high = ([*lanes, *(kind.lanes + lane for lane in lanes)] for lanes in (low, high))
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [b.fadd(chosen(low, x, y), chosen(high, x, y)) for x, y in pairs]
        else:
            (x,) = vectors
            vectors = [b.fadd(x, chosen([lane ^ width for lane in range(kind.lanes)], x))]
    apart = kind.lanes * len(vectors) // count
    return chosen(list(range(0, count * apart, apart)), vectors[0], vectors[-1])


def larger(b, x, y):
    """Return max(x, y), or y where x is NaN. This is one instruction on x86."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def rectified(b, kind, x):
    """Return max(x, 0), or NaN where x is NaN."""
    return larger(b, constant(kind, 0.0), x)


def where_positive(b, kind, x, y):
    """Return x where y > 0, and 0 elsewhere."""
    return b.select(b.fcmp_ordered(">", y, constant(kind, 0.0)), x, constant(kind, 0.0))


def interleave(b, dtype, kind, x, y):
    """Return the vector x0, y0, x1, y1, ... of the lanes of two vectors of type `kind`, rounded to `dtype` (which may
    be the type of the lanes). The result consists of a `Part` that describes the vector, and its LLVM value."""
    part, both = Part(dtype, kind.lanes), Part(dtype, 2 * kind.lanes)
    if dtype != kind.dtype:
        x, y = (b.fptrunc(wide, llvm_vector(part)) for wide in (x, y))
    order = [lane // 2 + lane % 2 * kind.lanes for lane in range(both.lanes)]
    return both, b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, both.lanes), order))


def store_vector_past_caches(b, kind, dtype, pointer, offset, value):
    """Store a vector, past the caches, at an address that is a multiple of its size."""
    stored = b.store(value, address_of(b, kind, pointer, offset), align=REGISTER_BYTES)
    stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))


def transpose(b, kind, dtypes, source, source_row, target, target_row, past_caches):
    """Transpose a square block in log2(lanes) rounds. Each round swaps off-diagonal blocks of half the previous size.
    `dtypes` are the element types of source and target."""
    width = kind.lanes
    integers = ir.VectorType(I32, width)
    rows = [load_vector(b, kind, dtypes[0], source, b.mul(source_row, ir.Constant(I64, i))) for i in range(width)]
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
    with b.if_else(past_caches) as branches:
        for branch, put in zip(branches, (store_vector_past_caches, store_vector), strict=True):
            with branch:
                for i in range(width):
                    put(b, kind, dtypes[1], target, b.mul(target_row, ir.Constant(I64, i)), rows[i])


# ---------------------------------------------------------------------------------------------------------------------
# Half precision (see `half_precision`)


def _bits_at(b, place, lanes):
    return b.bitcast(place, ir.VectorType(I16, lanes).as_pointer())


def widened(b, dtype, bits):
    """Convert the bits of a number of half precision, or of a vector of such numbers, to float32; this is exact."""

    def of(kind):
        return ir.VectorType(kind, bits.type.count) if isinstance(bits.type, ir.VectorType) else kind

    def number(kind, value):
        return ir.Constant(of(kind), [value] * bits.type.count if of(kind) is not kind else value)

    if dtype is not BFLOAT16 and _WIDENS:
        return b.fpext(b.bitcast(bits, of(ir.HalfType())), of(ir.FloatType()))
    wide = b.zext(bits, of(I32))
    if dtype is BFLOAT16:
        return b.bitcast(b.shl(wide, number(I32, 16)), of(ir.FloatType()))
    # multiply by 2^112, because the bias of the exponent is 127 instead of 15; this is also right for denormal numbers
    size = b.shl(b.and_(wide, number(I32, 0x7FFF)), number(I32, 13))
    scaled = b.bitcast(b.fmul(b.bitcast(size, of(ir.FloatType())), number(ir.FloatType(), 2.0**112)), of(I32))
    finite = b.icmp_unsigned("<", size, number(I32, 0x7C00 << 13))
    found = b.select(finite, scaled, b.or_(size, number(I32, 0x7F800000)))
    sign = b.shl(b.and_(wide, number(I32, 0x8000)), number(I32, 16))
    return b.bitcast(b.or_(found, sign), of(ir.FloatType()))


def narrowed(b, kind, value):
    """Return the bits of the lanes of a vector, rounded to bfloat16 (to nearest, ties to even)."""
    integers = ir.VectorType(I32, kind.lanes)

    def every(number):
        return ir.Constant(integers, [number] * kind.lanes)

    bits = b.bitcast(value, integers)
    upper = b.lshr(bits, every(16))
    nearest = b.lshr(b.add(bits, b.add(b.and_(upper, every(1)), every(0x7FFF))), every(16))
    no_number = b.or_(b.and_(upper, every(0x8000)), every(0x7FC0))
    rounded = b.select(b.fcmp_unordered("uno", value, value), no_number, nearest)
    return b.trunc(rounded, ir.VectorType(I16, kind.lanes))


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


def _polynomial(b, kind, coefficients, r, square):
    """Evaluate a polynomial in r from its coefficients, the highest power first. In float64 the terms are added in
    pairs, and the pairs in fours (Estrin's scheme), because in Horner's scheme each of twelve operations would wait for
    the one before."""

    def chain(terms, step):
        p, *others = terms
        for term in others:
            p = multiply_add(b, kind, p, step, term)
        return p

    def joined(terms, step):
        return [chain(pair, step) for pair in zip(terms[::2], terms[1::2], strict=True)]

    terms = [constant(kind, coefficient) for coefficient in coefficients]
    if kind.dtype.bitwidth == 32:
        return chain(terms, r)
    return chain(joined(joined(terms, r), square), b.fmul(square, square))


def exponential(b, kind, x):
    """Return exp(x) for x <= 87 (float32) or 708 (float64). It is exactly 0 below -87 or -708; NaN stays NaN."""
    bits = kind.dtype.bitwidth
    mantissa = 23 if bits == 32 else 52
    integers = ir.VectorType(ir.IntType(bits), kind.lanes)
    # adding 1.5 * 2^mantissa rounds to an integer and leaves that integer in the low bits: no conversion, safe for NaN
    magic = constant(kind, 1.5 * 2.0**mantissa)
    shifted = multiply_add(b, kind, x, constant(kind, 1.0 / math.log(2.0)), magic)
    n = b.fsub(shifted, magic)
    r = multiply_add(b, kind, n, constant(kind, -_LN2_HIGH[bits]), x)
    r = multiply_add(b, kind, n, constant(kind, -_LN2_LOW[bits]), r)
    square = b.fmul(r, r)
    p = _polynomial(b, kind, _EXP_COEFFICIENTS[bits], r, square)
    p = b.fadd(multiply_add(b, kind, p, square, r), constant(kind, 1.0))
    shift = ir.Constant(integers, [mantissa] * kind.lanes)
    exponent = b.shl(b.bitcast(shifted, integers), shift)
    scaled = b.bitcast(b.add(b.bitcast(p, integers), exponent), llvm_vector(kind))
    tiny = b.fcmp_ordered("<", x, constant(kind, _EXP_LOWEST[bits]))
    unusual = b.fcmp_unordered("uno", x, x)
    return b.select(unusual, x, b.select(tiny, constant(kind, 0.0), scaled))
