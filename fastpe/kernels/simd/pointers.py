"""Pointers: addresses, or, in the build that checks bounds, addresses with the bounds of their memory.

With FASTPE_CHECK_BOUNDS=1 in the environment, every pointer carries the first and the last byte that may be accessed
through it. These are the bounds of the array that the pointer was made from, or of the part of scratch memory that the
pointer was cut from. Adding to a pointer does not change its bounds. All code that reads or writes memory gets the
address from `element`, which checks the bounds. On a violation, a message on standard error names the line of the
kernel, and the process ends, because a thread of a kernel cannot raise an exception. Arrays that kernels index directly
are checked by Numba. Without the variable, a pointer is only an address, and the machine code has no checks. The cache
stores the machine code of the two builds separately. With checks, kernels are about ten times slower:

    FASTPE_CHECK_BOUNDS=1 python -m pytest --capture=sys tests/kernels

(With pytest's default capturing, the message of a process that ends is lost.) In the layout of scratch memory, `region`
turns the start of each part into a number that also holds the part's size; `at` returns a pointer to the part:

    region + number     an element of the region
    number + region     the same region, in a record that begins at this number; region + region likewise
    plain(region)       the number alone: a pointer made with it may leave the region
"""

import ctypes
import operator
import os
import sys
from types import FrameType
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, lower_builtin, models, register_model, type_callable, typeof_impl, unbox

from fastpe.kernels.compile.switches import CHECK_BOUNDS
from fastpe.kernels.simd.half_precision import stored_as

I64 = ir.IntType(64)
_REPORT = "fastpe_out_of_bounds"


# ---------------------------------------------------------------------------------------------------------------------
# Pointers


class CheckedPointer(types.Type):
    """A pointer to elements of `dtype` with the bounds of the memory that may be accessed through it."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"CheckedPointer({dtype})")


@register_model(CheckedPointer)
class _CheckedPointerModel(models.StructModel):
    def __init__(self, manager: Any, kind: CheckedPointer) -> None:
        super().__init__(manager, kind, [("address", types.CPointer(kind.dtype)), *_numbers("low", "high")])


def _numbers(*names: str) -> list[tuple[str, Any]]:
    return [(name, types.intp) for name in names]


class RoundingPointer(types.Type):
    """A pointer to float32 elements that matrix products round to bfloat16 when they read them
    (`kernels.products.bfloat16`).

    It carries a pointer to the thread's memory for the rounded numbers. All compiled code outside of matrix products
    treats it as a plain pointer. Whether a model computes with bfloat16 products is decided only by the type of the
    model's pointers.
    """

    def __init__(self, dtype: Any, isa: str) -> None:
        self.dtype, self.isa = dtype, isa
        super().__init__(name=f"RoundingPointer({dtype}, {isa})")


@register_model(RoundingPointer)
class _RoundingPointerModel(models.StructModel):
    def __init__(self, manager: Any, kind: RoundingPointer) -> None:
        ends = _numbers("low", "high") if CHECK_BOUNDS else []
        members = [("address", types.CPointer(kind.dtype)), *ends, ("memory", pointer_type(kind.dtype))]
        super().__init__(manager, kind, members)


def rounding(b: Any, plain: Any, memory: Any) -> Any:
    """Return a `RoundingPointer` to the element of a plain pointer."""
    ends = [b.extract_value(plain, place) for place in (1, 2)] if CHECK_BOUNDS else []
    return _packed(b, address(b, plain), *ends, memory)


def plain_of(b: Any, kind: Any, pointer: Any) -> Any:
    """Return the plain pointer to the same element; arguments that are not pointers are returned unchanged."""
    if not isinstance(kind, RoundingPointer):
        return pointer
    *members, _ = (b.extract_value(pointer, place) for place in range(len(pointer.type.elements)))
    return _packed(b, *members) if CHECK_BOUNDS else members[0]


def memory_of(b: Any, pointer: Any) -> Any:
    """Return the pointer to the memory that a `RoundingPointer` carries."""
    return b.extract_value(pointer, len(pointer.type.elements) - 1)


def pointer_type(dtype: Any) -> Any:
    """Return the type of pointers to elements of this type."""
    dtype = stored_as(dtype)
    return CheckedPointer(dtype) if CHECK_BOUNDS else types.CPointer(dtype)


def first_element(b: Any, kind: Any, array: Any) -> Any:
    """Return the pointer to the first element of an array, which is passed as Numba's structure."""
    data = array.data
    if not CHECK_BOUNDS:
        return data
    start = b.ptrtoint(data, I64)
    low, high = start, b.add(start, array.itemsize)
    for axis in range(kind.ndim):
        last = b.sub(b.extract_value(array.shape, axis), ir.Constant(I64, 1))
        reach = b.mul(last, b.extract_value(array.strides, axis))
        down = b.icmp_signed("<", reach, ir.Constant(I64, 0))
        low, high = b.select(down, b.add(low, reach), low), b.select(down, high, b.add(high, reach))
    empty = b.icmp_signed("==", array.nitems, ir.Constant(I64, 0))
    return _packed(b, data, b.select(empty, start, low), b.select(empty, start, high))


def first_of(b: Any, start: Any, size: Any) -> Any:
    """Return the pointer to the first of `size` elements that start at an address."""
    if not CHECK_BOUNDS:
        return start
    return _packed(b, start, b.ptrtoint(start, I64), b.ptrtoint(b.gep(start, [size]), I64))


def address(b: Any, pointer: Any) -> Any:
    """Return the address that a pointer holds."""
    return pointer if _bare(pointer) else b.extract_value(pointer, 0)


def _bare(pointer: Any) -> bool:
    """Whether a pointer is only an address, without bounds."""
    return not isinstance(pointer.type, ir.LiteralStructType)


def moved(b: Any, pointer: Any, offset: Any) -> Any:
    """Return the pointer `offset` elements further on, with the same bounds."""
    if _bare(pointer):
        return b.gep(pointer, [offset])
    return b.insert_value(pointer, b.gep(address(b, pointer), [offset]), 0)


def cut(b: Any, pointer: Any, offset: Any, size: Any) -> Any:
    """Return the pointer `offset` elements further on, through which only `size` elements may be accessed."""
    if not CHECK_BOUNDS:
        return moved(b, pointer, offset)
    start = b.gep(address(b, pointer), [offset])
    first, last = b.ptrtoint(start, I64), b.ptrtoint(b.gep(start, [size]), I64)
    low, high = b.extract_value(pointer, 1), b.extract_value(pointer, 2)
    low = b.select(b.icmp_unsigned(">", first, low), first, low)
    high = b.select(b.icmp_unsigned("<", last, high), last, high)
    for place, value in enumerate((start, low, high)):
        pointer = b.insert_value(pointer, value, place)
    return pointer


def cut_region(b: Any, pointer: Any, region: Any) -> Any:
    """Return a pointer to the element whose index `region` holds. The region is a part of the memory at `pointer`, and
    only this part may be accessed through the result.
    """
    start, size, inside = (b.extract_value(region, place) for place in range(3))
    return moved(b, cut(b, pointer, start, size), inside)


def anywhere(b: Any, pointer: Any, offset: Any) -> Any:
    """Return the address of an element that is neither read nor written; it is not checked."""
    return b.gep(address(b, pointer), [offset])


def element(b: Any, pointer: Any, offset: Any, count: Any = 1) -> Any:
    """Return the address of an element, and check that `count` elements (an integer, or an LLVM value) from there on
    may be read or written."""
    if not CHECK_BOUNDS:
        return b.gep(address(b, pointer), [offset])
    base, low, high = (b.extract_value(pointer, place) for place in range(3))
    count = ir.Constant(I64, count) if isinstance(count, int) else count
    place = b.gep(base, [offset])
    first, last = b.ptrtoint(place, I64), b.ptrtoint(b.gep(place, [count]), I64)
    outside = b.or_(b.icmp_unsigned("<", first, low), b.icmp_unsigned(">", last, high))
    touched = b.icmp_signed(">", count, ir.Constant(I64, 0))
    with b.if_then(b.and_(touched, outside), likely=False):
        size = b.sub(b.ptrtoint(b.gep(place, [ir.Constant(I64, 1)]), I64), first)
        _report(b, first, last, low, high, size)
    return place


def _packed(b: Any, *parts: Any) -> Any:
    packed = ir.Constant(ir.LiteralStructType([part.type for part in parts]), ir.Undefined)
    for number, part in enumerate(parts):
        packed = b.insert_value(packed, part, number)
    return packed


# ---------------------------------------------------------------------------------------------------------------------
# The message about a violation


def check_status(b: Any, failed: Any) -> None:
    """End the process if the function of a worker has failed, for example because Numba found an index out of
    bounds."""
    if CHECK_BOUNDS:
        with b.if_then(failed, likely=False):
            _report(b, *[ir.Constant(I64, 0)] * 5)


def _report(b: Any, *numbers: Any) -> None:
    where = cgutils.global_constant(b, "fastpe.line", cgutils.make_bytearray(_line_of_kernel().encode() + b"\0"))
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[I64] * 5])
    report = cgutils.get_or_insert_function(b.module, kind, _REPORT)
    b.call(report, [b.bitcast(where, ir.IntType(8).as_pointer()), *numbers])
    b.unreachable()


def _line_of_kernel() -> str:
    """Return the line of the kernel that Numba is lowering, found in Numba's stack frames.

    Only the checked build calls it. It relies on private names of Numba: the object that lowers a function is the local
    variable `self` of a frame, and has the attributes `func_ir` and `loc`. Without these, the message names no line.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        lower: Any = frame.f_locals.get("self")
        if hasattr(lower, "func_ir") and hasattr(lower, "loc"):
            return f"{lower.func_ir.func_id.modname}.{lower.func_ir.func_id.func_qualname}, line {lower.loc.line}"
        frame = frame.f_back
    return "compiled code"


@ctypes.CFUNCTYPE(None, ctypes.c_char_p, *[ctypes.c_int64] * 5)
def _out_of_bounds(where: bytes, first: int, last: int, low: int, high: int, size: int) -> None:
    what = "an index outside an array, here or in a function called here (NUMBA_FULL_TRACEBACKS=1 says more)"
    if size:
        touched = f"element {(first - low) // size}"
        if last - first > size:
            touched = f"elements {(first - low) // size} to {(last - low) // size - 1}"
        what = f"{touched} of memory that has {(high - low) // size} elements of {size} bytes"
    os.write(2, f"fastpe: out of bounds in {where.decode()}: {what}\n".encode())
    os.abort()


if CHECK_BOUNDS:
    llvm.add_symbol(_REPORT, ctypes.cast(_out_of_bounds, ctypes.c_void_p).value)


# ---------------------------------------------------------------------------------------------------------------------
# Regions


class Region(int):
    """The start of a part of scratch memory, in elements, together with the size of the part."""

    size: int


def region(start: int, size: Any) -> int:
    """Return the `Region` of `size` elements from `start` on; in the build without checks, the number `start`."""
    if not CHECK_BOUNDS:
        return start
    made = Region(start)
    made.size = int(size)
    return made


class RegionType(types.Type):
    """The type of a `Region` in compiled code. A value also holds the index of an element of the region."""

    def __init__(self) -> None:
        super().__init__(name="Region")


REGION = RegionType()


@register_model(RegionType)
class _RegionModel(models.StructModel):
    def __init__(self, manager: Any, kind: RegionType) -> None:
        super().__init__(manager, kind, _numbers("start", "size", "element"))


@typeof_impl.register(Region)
def _typeof_region(value: Region, context: Any) -> RegionType:
    return REGION


@unbox(RegionType)
def _unbox_region(kind: RegionType, value: Any, c: Any) -> NativeValue:
    size = c.pyapi.object_getattr_string(value, "size")
    numbers = [c.pyapi.long_as_longlong(number) for number in (value, size)]
    c.pyapi.decref(size)
    return NativeValue(_packed(c.builder, *numbers, ir.Constant(I64, 0)))


def place_of(b: Any, region: Any) -> Any:
    """Return the offset of the element whose index a region holds."""
    return b.add(b.extract_value(region, 0), b.extract_value(region, 2))


@type_callable(operator.add)
def _type_sum(context: Any) -> Any:
    def typed(x: Any, y: Any) -> Any:
        numbers = all(isinstance(each, RegionType | types.Integer) for each in (x, y))
        return REGION if numbers and REGION in (x, y) else None

    return typed


@lower_builtin(operator.add, RegionType, types.Integer)
def _element_of_region(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    number = context.cast(b, arguments[1], signature.args[1], types.intp)
    return b.insert_value(arguments[0], b.add(b.extract_value(arguments[0], 2), number), 2)


@lower_builtin(operator.add, types.Integer, RegionType)
def _region_further_on(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    number = context.cast(b, arguments[0], signature.args[0], types.intp)
    return b.insert_value(arguments[1], b.add(b.extract_value(arguments[1], 0), number), 0)


@lower_builtin(operator.add, RegionType, RegionType)
def _region_within(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    start = b.add(place_of(b, arguments[0]), b.extract_value(arguments[1], 0))
    return b.insert_value(arguments[1], start, 0)
