"""Matrix products: every product of the model is one call of `gemm`.

The pointer to C decides how `gemm` multiplies: if it is a pointer that rounds (package `bfloat16`), the operands are
rounded; otherwise `gemm` calls `float_gemm`. The module `float_gemm` documents the arguments.
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
    """C = f(start + A B); see the module `float_gemm` for every argument. If the pointer to C is a `RoundingPointer`,
    operands are rounded to bfloat16 and stored in the memory that this pointer carries."""
    arguments = (a, a_row, a_col, b, b_row, c, c_row, m, n, depth, mode, d, d_row, e, e_row)
    if not isinstance(c, pointers.RoundingPointer):
        return overload_by_type(typingctx, float_gemm, arguments)
    return _called_rounding(typingctx, rounded_gemm, arguments, 5)


def _called_rounding(typingctx, function, arguments, place):
    """Return the signature and the code generator of an intrinsic that calls a function with plain pointers. The
    function has two more arguments at the start: the instruction set and the memory of the rounding pointer
    `arguments[place]`."""
    plain = pointers.pointer_type(arguments[place].dtype)
    kinds = [plain if isinstance(kind, pointers.RoundingPointer) else kind for kind in arguments]

    def convert(context, b, values):
        bare = [pointers.plain_of(b, kind, value) for kind, value in zip(arguments, values, strict=True)]
        return [no_way(b), pointers.memory_of(b, values[place]), *bare]

    return overload_by_type(typingctx, function, (IsaType(arguments[place].isa), plain, *kinds), convert, arguments)


@intrinsic
def transpose_operand(typingctx, source, source_row, target, target_row, m, n):
    """Write the transpose of m rows of n elements to `target`, to be used as operand B of products. The transpose is
    packed if `target` is a `RoundingPointer`, and stored as plain rows otherwise.

    `row_of_transposed` returns the stride b_row to pass to these products. `target` needs memory for max(n, 16) rows of
    m elements, with m rounded up to a multiple of 32.
    """
    arguments = (source, source_row, target, target_row, m, n)
    if not isinstance(target, pointers.RoundingPointer):
        return overload_by_type(typingctx, transpose, arguments)
    return _called_rounding(typingctx, rounded_turn, arguments, 2)


@intrinsic
def row_of_transposed(typingctx, target, target_row, n):
    """Return the stride b_row for products whose operand B is the result of `transpose_operand` for rows of n
    elements."""

    def emit(context, b, signature, arguments):
        return b.neg(arguments[2]) if isinstance(target, pointers.RoundingPointer) else arguments[1]

    return types.intp(target, types.intp, types.intp), emit
