"""Matrix products: every product of the model is one call of `gemm`.

The pointers decide how it multiplies: those of the package `bfloat16` round the operands; all others use `float_gemm`,
which documents the arguments.
"""

from numba import types
from numba.extending import intrinsic

from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.products.bfloat16.isa import IsaType, no_way
from fastpe.kernels.products.bfloat16.product import rounded_gemm, rounded_turn
from fastpe.kernels.products.float_gemm import float_gemm, transpose
from fastpe.kernels.simd import pointers


@intrinsic
def gemm(typingctx, a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row):
    """C = f(start + A B); see `float_gemm` for every argument. If the pointer to C rounds, operands are rounded to
    bfloat16, in the pointer's memory."""
    arguments = (a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row)
    if not isinstance(c, pointers.RoundingPointer):
        return overload_by_type(typingctx, float_gemm, arguments)
    return _called_rounding(typingctx, rounded_gemm, arguments, 5)


def _called_rounding(typingctx, function, arguments, place):
    """The result of an intrinsic that calls a function of plain pointers; the instruction set and the memory of the
    pointer at `place` among its arguments come first."""
    plain = pointers.pointer_type(arguments[place].dtype)
    kinds = [plain if isinstance(kind, pointers.RoundingPointer) else kind for kind in arguments]

    def convert(context, b, values):
        bare = [pointers.plain_of(b, kind, value) for kind, value in zip(arguments, values, strict=True)]
        return [no_way(b), pointers.memory_of(b, values[place]), *bare]

    return overload_by_type(typingctx, function, (IsaType(arguments[place].isa), plain, *kinds), convert, arguments)


@intrinsic
def transpose_operand(typingctx, source, source_row, target, target_row, m, n):
    """The transpose of m rows of n elements, as operand B of products: packed if `target` rounds, otherwise plain rows.

    A product takes `row_of_transposed` as its row stride. Memory: max(n, 16) rows of m elements, rounded up to 32.
    """
    arguments = (source, source_row, target, target_row, m, n)
    if not isinstance(target, pointers.RoundingPointer):
        return overload_by_type(typingctx, transpose, arguments)
    return _called_rounding(typingctx, rounded_turn, arguments, 2)


@intrinsic
def row_of_transposed(typingctx, target, target_row, n):
    """The row stride for products of the result of `transpose_operand` for rows of n elements."""

    def emit(context, b, signature, arguments):
        return b.neg(arguments[2]) if isinstance(target, pointers.RoundingPointer) else arguments[1]

    return types.intp(target, types.intp, types.intp), emit
