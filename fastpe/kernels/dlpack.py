"""Where the tensors of another library lie, and tensors that compiled code makes for it, as DLPack has them.

Python asks a tensor for its axes, its strides and its address in half a microsecond, which is as long as one head needs
for a query and 64 keys; to make a tensor of an array takes as long. Libraries that know DLPack 1.2 or later hand out C
functions that tell all of it at once, and that make tensors.
"""

import ctypes
from typing import NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.at_address import whole_at

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_ADDRESS = ir.IntType(8).as_pointer()
_ABI = 1  # the major version of DLPack whose structures these are
_DL_TENSOR = ir.LiteralStructType([_I64] * 6)
"""`DLTensor`: its address; device; axes and type; addresses of sizes and of strides; bytes before the first element."""
_MOST_AXES = 8
_AXES, _BITS = 255, 40  # of the word of axes and type: the bits of axes, and where the size of an element begins
FRONT = 3
LAYOUT = FRONT + 2 * _MOST_AXES
"""Words that say how a tensor is laid out: the place of its address (`locate`), below 0 if nobody asks for it; its
device; its axes and type; and then the size and the stride, in elements, of each axis."""


class _Exchange(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("of_older_version", ctypes.c_void_p),
        ("managed_tensor_allocator", ctypes.c_void_p),
        ("managed_tensor_from_py_object_no_sync", ctypes.c_void_p),
        ("managed_tensor_to_py_object_no_sync", ctypes.c_void_p),
        ("dltensor_from_py_object_no_sync", ctypes.c_void_p),
        ("current_work_stream", ctypes.c_void_p),
    )


class Functions(NamedTuple):
    """Addresses of C functions, 0 where a library does not hand out both: of one that tells where a tensor of its class
    lies, which takes any object of the class, and none of another; and of one that makes such a tensor."""

    reader: int = 0
    maker: int = 0


def functions_of(kind: type) -> Functions:
    """What the library of a class of tensors hands out."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None or numba.config.DISABLE_JIT:
        return Functions()
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    try:
        address = get(capsule, b"dlpack_exchange_api")
    except (TypeError, ValueError):
        return Functions()
    while address:
        table = _Exchange.from_address(address)
        if table.major == _ABI:
            found = table.dltensor_from_py_object_no_sync, table.managed_tensor_to_py_object_no_sync
            return Functions(*found) if all(found) else Functions()
        address = table.of_older_version
    return Functions()


@intrinsic
def _read(typingctx, reader, objects, place):
    """The six words of the object at a place of the tuple that Python has at an address; 0 where it has no memory."""

    def emit(context, b, signature, values):
        room = cgutils.alloca_once_value(b, ir.Constant(_DL_TENSOR, None))
        find = cgutils.get_or_insert_function(b.module, ir.FunctionType(_ADDRESS, [_ADDRESS, _I64]), "PyTuple_GetItem")
        forget = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), []), "PyErr_Clear")
        read = b.inttoptr(values[0], ir.FunctionType(_I32, [_ADDRESS, room.type]).as_pointer())
        found = b.call(find, [b.inttoptr(values[1], _ADDRESS), values[2]])
        with b.if_then(cgutils.is_not_null(b, b.call(read, [found, room])), likely=False):
            b.call(forget, [])
            b.store(ir.Constant(_DL_TENSOR, None), room)
        return context.make_tuple(b, signature.return_type, cgutils.unpack_tuple(b, b.load(room)))

    return types.UniTuple(types.intp, len(_DL_TENSOR.elements))(types.intp, types.intp, types.intp), emit


@intrinsic
def _word(typingctx, address, number):
    """One of the words at an address."""

    def emit(context, b, signature, values):
        return b.load(b.gep(b.inttoptr(values[0], _I64.as_pointer()), [values[1]]))

    return types.intp(types.intp, types.intp), emit


@entry(label="where tensors lie", objects=True)
def layouts_of(reader, objects, count):
    """How the first tensors of a tuple are laid out: (tensors, `LAYOUT`), without a row where one has no memory that
    can be read.

    reader: see `Functions`. objects: the tuple's address (`id`). count: of tensors.
    """
    found = np.zeros((count, LAYOUT), np.int64)
    for number in range(count):
        first, device, kind, sizes, strides, _ = _read(reader, objects, number)
        axes = kind & _AXES
        if axes > _MOST_AXES or first == 0 or sizes == 0 or strides == 0:
            return found[:0]
        found[number, 1], found[number, 2] = device, kind
        for axis in range(axes):
            found[number, FRONT + 2 * axis] = _word(sizes, axis)
            found[number, FRONT + 2 * axis + 1] = _word(strides, axis)
    return found


@inner
def locate(reader, objects, layouts, words, tensor, axis):
    """Write the addresses of a tuple's tensors to the places that their layouts name. Returns the size of one axis of
    one tensor, which may be any if all that depends on it is linear in it; -1 where they are laid out otherwise.

    reader, objects: as for `layouts_of`. layouts: (2, tensors, `LAYOUT`), and after them what is added to sizes and
    strides, of tensors from this one on, for each row that this axis has more. words: int64, partly written where
    tensors are laid out otherwise.
    """
    rows, more = layouts[0, tensor, FRONT + 2 * axis], np.int64(0)
    for number in range(layouts.shape[1]):
        first, device, kind, sizes, strides, offset = _read(reader, objects, number)
        if first == 0 or device != layouts[0, number, 1] or kind != layouts[0, number, 2]:
            return np.int64(-1)
        if number == tensor:
            more = _word(sizes, axis) - rows
        for each in range(kind & _AXES):
            place = FRONT + 2 * each
            size = layouts[0, number, place] + more * layouts[1, number, place]
            stride = layouts[0, number, place + 1] + more * layouts[1, number, place + 1]
            if _word(sizes, each) != size or _word(strides, each) != stride:
                return np.int64(-1)
        if layouts[0, number, 0] >= 0:
            words[layouts[0, number, 0]] = first + offset
    return rows + more


# ---------------------------------------------------------------------------------------------------------------------
# Tensors that are made

_HEAD = 10  # words of `DLManagedTensorVersioned`: version, whose it is, who ends it, flags; and `_DL_TENSOR`
_LINE = 64


@intrinsic
def _memory(typingctx, size):
    """The address of so many bytes, 0 where there are none, and that of the function that takes them back."""

    def emit(context, b, signature, values):
        take = cgutils.get_or_insert_function(b.module, ir.FunctionType(_ADDRESS, [_I64]), "malloc")
        addresses = [b.ptrtoint(each, _I64) for each in (b.call(take, values), _free(b))]
        return context.make_tuple(b, signature.return_type, addresses)

    return types.UniTuple(types.intp, 2)(types.intp), emit


def _free(b):
    return cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [_ADDRESS]), "free")


@intrinsic
def take_back(typingctx, made):
    """Give back the memory of a tensor that is none yet (`tensor_like`)."""

    def emit(context, b, signature, values):
        b.call(_free(b), [b.inttoptr(values[0], _ADDRESS)])
        return context.get_dummy_value()

    return types.void(types.intp), emit


@inner
def tensor_like(layouts, tensor, shape):
    """The addresses of what becomes a tensor (`hand_over`), in one piece, of such a shape, on the same device and of
    the same type as one that is laid out so; and of its first element. Both are 0 where there is no memory."""
    axes, device, kind = len(shape), layouts[0, tensor, 1], layouts[0, tensor, 2] & ~_AXES | len(shape)
    size = (kind >> _BITS & 255) // 8
    for each in shape:
        size *= each
    made, free = _memory(8 * (_HEAD + 2 * axes) + _LINE + size)
    if made == 0:
        return np.int64(0), np.int64(0)
    words, sizes = whole_at(made, (_HEAD + 2 * axes,), np.int64), made + 8 * _HEAD
    first = (sizes + 16 * axes + _LINE - 1) // _LINE * _LINE
    words[0], words[1], words[2], words[3], words[4] = _ABI, 0, free, 0, first
    words[5], words[6], words[7], words[8], words[9] = device, kind, sizes, sizes + 8 * axes, 0
    stride = np.int64(1)
    for axis in range(axes - 1, -1, -1):
        words[_HEAD + axis], words[_HEAD + axes + axis] = shape[axis], stride
        stride *= shape[axis]
    return made, first


@intrinsic
def hand_over(typingctx, maker, made, objects):
    """Whether a library makes its tensor of one (`tensor_like`), which is put in the place of the first object of the
    list that Python has at an address. Whose the memory of one is that was not made, nobody knows: it is lost."""

    def emit(context, b, signature, values):
        room = cgutils.alloca_once_value(b, ir.Constant(_ADDRESS, None))
        make = b.inttoptr(values[0], ir.FunctionType(_I32, [_ADDRESS, room.type]).as_pointer())
        failed = cgutils.is_not_null(b, b.call(make, [b.inttoptr(values[1], _ADDRESS), room]))
        with b.if_else(failed, likely=False) as (otherwise, then):
            with otherwise:
                forget = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), []), "PyErr_Clear")
                b.call(forget, [])
            with then:
                put = ir.FunctionType(_I32, [_ADDRESS, _I64, _ADDRESS])
                put = cgutils.get_or_insert_function(b.module, put, "PyList_SetItem")
                b.call(put, [b.inttoptr(values[2], _ADDRESS), ir.Constant(_I64, 0), b.load(room)])
        return b.not_(failed)

    return types.boolean(types.intp, types.intp, types.intp), emit
