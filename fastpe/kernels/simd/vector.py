"""Vectors of floats: the width of the CPU's registers, the Numba type of a vector, and memory that is aligned to it."""

import math
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model

from fastpe.kernels.compile.switches import CHECK_BOUNDS
from fastpe.kernels.simd.half_precision import bits_of, read_as


def cpu_features() -> set[str]:
    """Return the features of the CPU that Numba compiles for, by LLVM's names."""
    chosen = numba.config.CPU_FEATURES  # set by the user: "+avx2,-avx512f,..."
    if chosen is not None:
        return {name[1:] for name in chosen.split(",") if name.startswith("+")}
    if numba.config.CPU_NAME == "generic":
        return set()
    return {name for name, present in llvm.get_host_cpu_features().items() if present}


def _register_bytes() -> int:
    """Return the size in bytes of the widest vector register of the CPU that Numba compiles for."""
    features = cpu_features()
    return 64 if "avx512f" in features else 32 if "avx2" in features else 16


REGISTER_BYTES = _register_bytes()
FUSED = "fma" in cpu_features()
"""Whether `fma` rounds once. If it may round twice, computing the error of a product takes ten operations instead of
one."""


class Vector(types.Type):
    """A vector of as many elements of `dtype` as one register holds; elements of half precision are float32 in
    registers."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = read_as(dtype)
        self.lanes = REGISTER_BYTES * 8 // self.dtype.bitwidth
        super().__init__(name=f"Vector({self.dtype} x {self.lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, llvm_vector(vector))


def llvm_scalar(dtype: types.Float) -> Any:
    """Return the LLVM type of one element."""
    return ir.FloatType() if dtype.bitwidth == 32 else ir.DoubleType()


def llvm_vector(vector: Vector) -> Any:
    """Return the LLVM type of a `Vector`."""
    return ir.VectorType(llvm_scalar(vector.dtype), vector.lanes)


def whole_vectors(count: int, dtype: Any) -> int:
    """Return `count` elements of `dtype`, rounded up to a multiple of a vector's length."""
    width = REGISTER_BYTES // np.dtype(dtype).itemsize
    return -(-count // width) * width


_ONE = slice(1)


def start_of(x: np.ndarray) -> np.ndarray:
    """Return the first element of x with the shape (1,). Kernels compute the addresses of the other elements, so
    kernels are compiled only once for all shapes and strides.

    In the build that checks bounds, the result extends to the last element of x, or is x itself if a stride is
    negative. Half precision is replaced by its bits (`half_precision.bits_of`).
    """
    if x.dtype.itemsize == 2:
        x = bits_of(x)
    if not CHECK_BOUNDS:
        first: Any = (*(0,) * (x.ndim - 1), _ONE)
        return x[first]
    steps = [(size - 1) * stride for size, stride in zip(x.shape, x.strides, strict=True)]
    if min(steps) < 0:
        return x
    return np.lib.stride_tricks.as_strided(x, (1 + sum(steps) // x.itemsize,), (x.itemsize,))


def aligned_zeros(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros that start on a 64-byte boundary: kernels are slower by a tenth if vectors straddle cache lines."""
    return _aligned(np.zeros, shape, np.dtype(dtype))


def aligned_empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return uninitialised memory that starts on a 64-byte boundary, for data that is written before it is read."""
    return _aligned(np.empty, shape, np.dtype(dtype))


def _aligned(make: Callable[..., np.ndarray], shape: int | tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    raw = make(count * dtype.itemsize + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    return raw[start : start + count * dtype.itemsize].view(dtype).reshape(shape)
