"""Numbers of half precision in memory. Both float16 and bfloat16 are read as float32; only bfloat16 is also written,
with rounding.

Numba has no arrays of half precision. Kernels receive the bits of the numbers as arrays of integers. Pointers to these
arrays have the element type `FLOAT16` or `BFLOAT16`. Loads through such a pointer widen to float32, and stores round
(to nearest, ties to even), so the code of a kernel does not depend on the precision.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model


class Half(types.Type):
    """An element of half precision. In memory, float16 and bfloat16 are both 16-bit integers; this type distinguishes
    them."""


@register_model(Half)
class _HalfModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Half) -> None:
        super().__init__(manager, kind, ir.IntType(16))


FLOAT16, BFLOAT16 = Half("Float16"), Half("BFloat16")
_OF_BITS = {types.int16: FLOAT16, types.uint16: BFLOAT16}


def bits_of(x: np.ndarray) -> np.ndarray:
    """Return the bits of x: float16 as int16, bfloat16 as uint16. Compiled code distinguishes the two by this dtype."""
    return x.view(np.int16 if x.dtype == np.float16 else np.uint16)


def stored_as(dtype: Any) -> Any:
    """Return the element type of a pointer to an array of such integers; other types are returned unchanged."""
    return _OF_BITS.get(dtype, dtype)


def read_as(dtype: Any) -> Any:
    """Return the type that such elements are read as."""
    return types.float32 if isinstance(dtype, Half) else dtype
