"""The instruction sets for bfloat16 products on this CPU, and pointers to elements that products round to bfloat16."""

import ctypes
import platform
import sys
from functools import cache
from typing import Any, NamedTuple

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from fastpe.kernels.simd import pointers
from fastpe.kernels.simd.half_precision import BFLOAT16
from fastpe.kernels.simd.vector import cpu_features

_ARCH_PRCTL, _ASK, _TILES = 158, 0x1023, 18  # of Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)


# Each instruction set has its own class, because compiled code is specialised by type. The classes are named tuples,
# because Numba finds the type of a tuple without calling Python.


class Amx(NamedTuple):
    """AMX-BF16."""

    terms: int = 32  # number of terms that an instruction adds to a sum

    @property
    def name(self) -> str:
        return "amx"


class Avx512(NamedTuple):
    """AVX512_BF16."""

    terms: int = 2

    @property
    def name(self) -> str:
        return "avx512bf16"


class Shifts(NamedTuple):
    """No instructions for bfloat16: the numbers are widened to float32 by shifts, then multiplied and added."""

    terms: int = 1

    @property
    def name(self) -> str:
        return "shifts"


Isa = Amx | Avx512 | Shifts
AMX, AVX512, SHIFTS = Amx(), Avx512(), Shifts()
_NAMES = {type(isa): isa.name for isa in (AMX, AVX512, SHIFTS)}


class IsaType(types.Type):
    """The type of an instruction set in compiled code; a value of this type holds no data."""

    def __init__(self, isa: str) -> None:
        self.isa = isa
        super().__init__(name=f"Isa({isa})")


@register_model(IsaType)
class _IsaModel(models.OpaqueModel):
    pass


@cache
def _tiles_granted() -> bool:
    """Ask the operating system for AMX tiles, for all threads of this process; return whether they may be used."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK, _TILES) == 0)


def ways() -> tuple[Isa, ...]:
    """Return the instruction sets that work on this machine, fastest first.

    Examples
    --------
    >>> ways()[-1].name
    'shifts'
    """
    found: list[Isa] = [SHIFTS]
    if cpu_features() >= {"avx512f", "avx512bw", "avx512bf16"}:
        found.insert(0, AVX512)
        if cpu_features() >= {"amx-tile", "amx-bf16"} and _tiles_granted():
            found.insert(0, AMX)
    return tuple(found)


@cache
def fastest() -> Isa:
    """Return the fastest instruction set that works on this machine."""
    return ways()[0]


@intrinsic
def rounding(typingctx, p, memory, isa):
    """Return `p` as a `RoundingPointer`: products round its elements to bfloat16, and use `product.MEMORY` elements at
    `memory`. Return p itself if `isa` is None, or if p points to bfloat16 numbers."""
    if isa is types.none or p == pointers.pointer_type(BFLOAT16):
        return p(p, memory, isa), lambda context, b, signature, a: a[0]
    made = pointers.RoundingPointer(p.dtype, _NAMES[isa.instance_class])
    fits = p.dtype == types.float32 and memory == pointers.pointer_type(p.dtype)
    return made(p, memory, isa) if fits else None, lambda context, b, signature, a: pointers.rounding(b, *a[:2])


@intrinsic
def exact(typingctx, p):
    """Return `p` as a plain pointer, whose elements products do not round."""
    plain = pointers.pointer_type(p.dtype) if isinstance(p, pointers.RoundingPointer) else p
    return plain(p), lambda context, b, signature, a: pointers.plain_of(b, p, a[0])


@intrinsic
def named(typingctx, isa):
    """Return an instruction set as a value of `IsaType`, which the functions in `tiles` and `pack` take."""
    return IsaType(_NAMES[isa.instance_class])(isa), lambda context, b, signature, arguments: no_way(b)


def no_way(b: Any) -> Any:
    """Return the LLVM value of any `IsaType`, a null pointer."""
    return cgutils.get_null_value(cgutils.voidptr_t)
