"""Operations on vectors in registers: operations lane by lane, and operations that combine or move lanes."""

import operator

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, lower_builtin, type_callable

from fastpe.kernels.simd.code import (
    I32,
    broadcast,
    call_intrinsic,
    constant,
    exponential,
    fold_lanes,
    interleave,
    lanes_below,
    larger,
    multiply_add,
    rectified,
    suffix,
)
from fastpe.kernels.simd.vector import Vector, llvm_vector


@intrinsic
def splat(typingctx, x):
    """Return a vector with the scalar `x` in every lane."""
    kind = Vector(x)
    return kind(x), lambda context, b, signature, a: broadcast(b, kind, a[0])


@intrinsic
def zeros(typingctx, p):
    """Return a vector of zeros, of the element type of the pointer `p`."""
    kind = Vector(p.dtype)
    return kind(p), lambda context, b, signature, a: constant(kind, 0.0)


@intrinsic
def counting(typingctx, start):
    """Return start, start + 1, start + 2, ..."""
    kind = Vector(start)

    def emit(context, b, signature, arguments):
        steps = ir.Constant(llvm_vector(kind), [float(lane) for lane in range(kind.lanes)])
        return b.fadd(broadcast(b, kind, arguments[0]), steps)

    return kind(start), emit


@intrinsic
def keep_first(typingctx, x, count, other):
    """Return the lanes of `x` below `count`, and the scalar `other` in the remaining lanes."""

    def emit(context, b, signature, arguments):
        return b.select(lanes_below(b, x, arguments[1]), arguments[0], broadcast(b, x, arguments[2]))

    return x(x, types.intp, x.dtype), emit


@intrinsic
def blend(typingctx, x, count, y):
    """Return the lanes of `x` below `count`, and the lanes of `y` in the rest."""

    def emit(context, b, signature, arguments):
        return b.select(lanes_below(b, x, arguments[1]), arguments[0], arguments[2])

    return x(x, types.intp, y), emit


@intrinsic
def fma(typingctx, x, y, z):
    """Return x * y + z."""
    return x(x, y, z), lambda context, b, signature, a: multiply_add(b, x, *a)


@intrinsic
def minus(typingctx, x):
    """Return -x."""
    return x(x), lambda context, b, signature, a: b.fneg(a[0])


@intrinsic
def absolute(typingctx, x):
    """Return |x|."""
    return x(x), lambda context, b, signature, a: call_intrinsic(b, f"llvm.fabs.{suffix(x)}", llvm_vector(x), a)


@intrinsic
def maximum(typingctx, x, y):
    """Return the larger one of x and y in each lane."""
    return x(x, y), lambda context, b, signature, a: larger(b, *a)


@intrinsic
def minimum(typingctx, x, y):
    """Return the smaller one of x and y in each lane."""
    return x(x, y), lambda context, b, signature, a: b.select(b.fcmp_ordered("<", *a), *a)


@intrinsic
def relu(typingctx, x):
    """Return max(x, 0), and NaN in lanes where x is NaN."""
    return x(x), lambda context, b, signature, a: rectified(b, x, a[0])


@intrinsic
def where_negative(typingctx, x, y, z):
    """Return y where x < 0, and z elsewhere."""

    def emit(context, b, signature, arguments):
        negative = b.fcmp_ordered("<", arguments[0], constant(x, 0.0))
        return b.select(negative, arguments[1], arguments[2])

    return x(x, y, z), emit


@intrinsic
def where_zero(typingctx, x, y, z):
    """Return y where x == 0, and z elsewhere, also where x is NaN."""

    def emit(context, b, signature, arguments):
        zero = b.fcmp_ordered("==", arguments[0], constant(x, 0.0))
        return b.select(zero, arguments[1], arguments[2])

    return x(x, y, z), emit


@intrinsic
def sqrt(typingctx, x):
    """Return the square root, correctly rounded."""
    return x(x), lambda context, b, signature, a: call_intrinsic(b, f"llvm.sqrt.{suffix(x)}", llvm_vector(x), a)


@intrinsic
def exp(typingctx, x):
    """Return exp(x) for x <= 87 (float32) or 708 (float64), with an error of at most 1 ULP. The result is exactly 0
    where it would be denormal.
    """
    return x(x), lambda context, b, signature, a: exponential(b, x, a[0])


@intrinsic
def total(typingctx, x):
    """Return the sum of all lanes, added in a fixed order."""
    return x.dtype(x), lambda context, b, signature, a: fold_lanes(b, x, a[0], b.fadd)


@intrinsic
def largest(typingctx, x):
    """Return the largest of all lanes."""
    return x.dtype(x), lambda context, b, signature, a: fold_lanes(b, x, a[0], lambda u, v: larger(b, u, v))


@intrinsic
def any_negative(typingctx, x):
    """Whether a lane is below zero."""

    def emit(context, b, signature, arguments):
        below = b.fcmp_ordered("<", arguments[0], constant(x, 0.0))
        return b.icmp_unsigned("!=", b.bitcast(below, ir.IntType(x.lanes)), ir.Constant(ir.IntType(x.lanes), 0))

    return types.boolean(x), emit


def _in_order(x, order):
    """Return a vector whose lane i is lane order[i] of x."""

    def emit(context, b, signature, arguments):
        lanes = ir.Constant(ir.VectorType(I32, x.lanes), list(order))
        return b.shuffle_vector(arguments[0], arguments[0], lanes)

    return x(x), emit


def _exchanged(x, distance):
    """Return a vector whose lane i is lane i ^ distance of x. x must have more than `distance` lanes."""
    return _in_order(x, [(lane ^ distance) % x.lanes for lane in range(x.lanes)])


@intrinsic
def swapped(typingctx, x):
    """Return x1, x0, x3, x2, ...: adjacent lanes are exchanged."""
    return _exchanged(x, 1)


@intrinsic
def swapped_twos(typingctx, x):
    """Return x2, x3, x0, x1, ...: adjacent pairs of lanes are exchanged. x must have at least four lanes."""
    return _exchanged(x, 2)


@intrinsic
def swapped_fours(typingctx, x):
    """Return x with adjacent groups of four lanes exchanged. x must have at least eight lanes."""
    return _exchanged(x, 4)


@intrinsic
def swapped_eights(typingctx, x):
    """Return x with its two halves of eight lanes exchanged. x must have sixteen lanes."""
    return _exchanged(x, 8)


@intrinsic
def evens_first(typingctx, x):
    """Return x0, x2, x4, ..., then x1, x3, x5, ..."""
    return _in_order(x, [*range(0, x.lanes, 2), *range(1, x.lanes, 2)])


@intrinsic
def backwards(typingctx, x):
    """Return the lanes in the opposite order."""
    return _in_order(x, range(x.lanes - 1, -1, -1))


@intrinsic
def running_sums(typingctx, x):
    """Return x0, x0 + x1, x0 + x1 + x2, ..., added in a fixed order."""

    def emit(context, b, signature, arguments):
        (sums,), nothing, step = arguments, constant(x, 0.0), 1
        while step < x.lanes:
            order = [lane - step if lane >= step else x.lanes for lane in range(x.lanes)]
            moved = b.shuffle_vector(sums, nothing, ir.Constant(ir.VectorType(I32, x.lanes), order))
            sums, step = b.fadd(sums, moved), 2 * step
        return sums

    return x(x), emit


@intrinsic
def interleaved(typingctx, p, x, y):
    """Return x0, y0, x1, y1, ... of two float64 vectors as one vector, rounded to the float32 elements of `p`."""
    kind = Vector(p.dtype)

    def emit(context, b, signature, arguments):
        return interleave(b, p.dtype, x, arguments[1], arguments[2])[1]

    return kind(p, x, y) if p.dtype == types.float32 else None, emit


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
