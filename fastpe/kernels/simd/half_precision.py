"""Numbers of half precision in memory, which are read as float32; of these bfloat16 is written, too, rounded.

Numba has no arrays of them. They come as integers of their bits, and pointers to those point to `FLOAT16` or to
`BFLOAT16`: whatever is read through such a pointer is widened on its way, and a kernel need not know of it; nor of the
rounding of vectors that it stores (to nearest, ties to even).
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import models, register_model


class Half(types.Type):
    """An element of half precision. In memory either is the 16 bits of an integer: this type tells the two apart."""


@register_model(Half)
class _HalfModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Half) -> None:
        super().__init__(manager, kind, ir.IntType(16))


FLOAT16, BFLOAT16 = Half("Float16"), Half("BFloat16")
_OF_BITS = {types.int16: FLOAT16, types.uint16: BFLOAT16}


def bits_of(x: np.ndarray) -> np.ndarray:
    """The bits of x: of float16 as int16, of bfloat16 as uint16, by which compiled code tells them apart."""
    return x.view(np.int16 if x.dtype == np.float16 else np.uint16)


def stored_as(dtype: Any) -> Any:
    """What a pointer to the elements of an array of such integers points to; other types are themselves."""
    return _OF_BITS.get(dtype, dtype)


def read_as(dtype: Any) -> Any:
    """The type of what is read of such elements."""
    return types.float32 if isinstance(dtype, Half) else dtype
