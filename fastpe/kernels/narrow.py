"""Rows of half precision widened to float32, and float32 rounded to half precision: to nearest, ties to even.

Halves are the integers of their bits, as `simd.halves` has them. A few hundred numbers are rounded here sooner than
NumPy is told to.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fastpe.kernels._jit import allocating, inner
from fastpe.kernels.choice import called
from fastpe.kernels.simd import at, lanes, load_first, pointer, store_first
from fastpe.kernels.simd.halves import BFLOAT16, Half, stored_as

_SIGN, _INFINITE = np.int32(0x8000), np.int32(0x7F800000)
_TOO_LARGE, _SUBNORMAL = np.int32(0x47800000), np.int32(0x38800000)  # bits of 65,536, and of the least normal float16
_STEPS = np.float32(2.0**24)  # of subnormal float16 numbers, in 1
_OF_EXPONENTS = np.int32(112 << 23)  # by which float32's are larger


@intrinsic
def _is_bfloat16(typingctx, x):
    """Whether an array holds the bits of such numbers."""
    return types.boolean(x), lambda context, b, signature, a: ir.Constant(
        ir.IntType(1), int(stored_as(x.dtype) is BFLOAT16)
    )


@intrinsic
def as_floats(typingctx, source, target, count):
    """The pointer to so many numbers: `source`; of half precision `target`, where they are laid down as float32."""
    return called(typingctx, _widen if isinstance(source.dtype, Half) else _as_they_are, (source, target, count))


@inner
def _widen(source, target, count):
    for c in range(0, count, lanes(target)):
        store_first(target, c, load_first(source, c, count - c), count - c)
    return target


@inner
def _as_they_are(source, target, count):
    return source


@allocating
def widened(x):
    """Rows of half precision (B, H, N, D), each in one piece, as float32 in one row."""
    (b, h, n, d), (of_b, of_h, of_n, _), size = x.shape, x.strides, x.itemsize
    wide = np.empty(b * h * n * d, np.float32)
    for row in range(b * h * n):
        place = row // (h * n) * of_b + row // n % h * of_h + row % n * of_n
        source, target = at(pointer(x), place // size), at(pointer(wide), row * d)
        _widen(source, target, d)
    return wide


@inner
def round_into(x, y):
    """Fill y, bits of half precision, from x, float32; both of one axis."""
    brief, bits = _is_bfloat16(y), x.view(np.int32)
    for place in range(x.size):
        word = bits[place]
        y[place] = _to_bfloat16(word) if brief else _to_float16(x[place], word)


@inner
def _to_bfloat16(word):
    if word & np.int32(0x7FFFFFFF) > _INFINITE:
        return (word >> 16) & _SIGN | np.int32(0x7FC0)
    return (word + np.int32(0x7FFF) + ((word >> 16) & 1)) >> 16


@inner
def _to_float16(x, word):
    sign, size = (word >> 16) & _SIGN, word & np.int32(0x7FFFFFFF)
    if size >= _TOO_LARGE:
        return sign | (np.int32(0x7E00) | (size >> 13 & 0x3FF) if size > _INFINITE else np.int32(0x7C00))
    if size < _SUBNORMAL:
        return sign | np.int64(np.rint(abs(x) * _STEPS))
    return sign | ((size - _OF_EXPONENTS + np.int32(0xFFF) + ((size >> 13) & 1)) >> 13)
