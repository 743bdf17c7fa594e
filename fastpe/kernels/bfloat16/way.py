"""Which instructions multiply bfloat16 numbers here, and the pointers whose products are rounded to them."""

import ctypes
import platform
import sys
from functools import cache
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, typeof_impl, unbox

from fastpe.kernels.simd import pointers
from fastpe.kernels.simd.vector import cpu_features

_ARCH_PRCTL, _ASK, _TILES = 158, 0x1023, 18  # of Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


class Way:
    """A way to compute, by its name; compiled code is specialised on it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Way({self.name!r})"


AMX, AVX512, SHIFTS = Way("amx"), Way("avx512bf16"), Way("shifts")


class WayType(types.Type):
    """A `Way` in compiled code, which knows it by its type alone."""

    def __init__(self, way: str) -> None:
        self.way = way
        super().__init__(name=f"Way({way})")


@register_model(WayType)
class _WayModel(models.OpaqueModel):
    pass


@typeof_impl.register(Way)
def _typeof_way(value: Way, context: Any) -> WayType:
    return WayType(value.name)


@unbox(WayType)
def _unbox_way(kind: WayType, value: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


@cache
def _tiles_granted() -> bool:
    """Ask the operating system for tiles, on behalf of all threads of this process."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK, _TILES) == 0)


def ways() -> tuple[Way, ...]:
    """Those that work here, the fastest first.

    Examples
    --------
    >>> ways()[-1]
    Way('shifts')
    """
    features = cpu_features()
    vectors = {"avx512f", "avx512bw", "avx512bf16"} <= features
    tiles = vectors and {"amx-tile", "amx-bf16"} <= features and _tiles_granted()
    return (AMX,) * tiles + (AVX512,) * vectors + (SHIFTS,)


def fastest() -> Way:
    """The first of `ways`."""
    return ways()[0]


@intrinsic
def rounding(typingctx, p, memory, way):
    """The pointer `p`, rounding in products, which take `MEMORY` elements at `memory`; as it is where `way` is None."""
    if way is types.none:
        return p(p, memory, way), lambda context, b, signature, a: a[0]
    made = pointers.RoundingPointer(p.dtype, way.way)
    fits = p.dtype == types.float32 and memory == pointers.pointer_type(p.dtype)
    return made(p, memory, way) if fits else None, lambda context, b, signature, a: pointers.rounding(b, *a[:2])


def no_way(b: Any) -> Any:
    """LLVM's value of any `Way`."""
    return cgutils.get_null_value(cgutils.voidptr_t)
