"""Where another library's tensors lie, as its C functions tell: here those of a class that is made up."""

import ctypes

import numpy as np
import pytest
from numba import config

from fastpe.kernels import dlpack
from fastpe.kernels._jit import entry
from fastpe.kernels.at_address import whole_at

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="compiled code alone reads tensors")
CPU, ACCELERATOR, FLOATS = 1, 2, 2


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("axes", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("sizes", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )  # fmt: skip


class Tensor:
    """An array, with what its library says of it."""

    def __init__(self, array, device=CPU, strides=True, offset=0, fails=False):
        self.array, self.device, self.offset, self.fails = array, device, offset, fails
        self.sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
        steps = [step // array.itemsize for step in array.strides]
        self.strides = (ctypes.c_int64 * array.ndim)(*steps) if strides else None


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
def read(tensor, out):
    if getattr(tensor, "fails", True):
        return -1
    out[0] = DLTensor(
        tensor.array.ctypes.data - tensor.offset, tensor.device, 0, tensor.array.ndim, FLOATS,
        8 * tensor.array.itemsize, 1, tensor.sizes, tensor.strides, tensor.offset,
    )  # fmt: skip
    return 0


READER = ctypes.cast(read, ctypes.c_void_p).value
NAME = b"dlpack_exchange_api"


class Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("whose", ctypes.c_void_p),
        ("end", ctypes.CFUNCTYPE(None, ctypes.c_void_p)), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    )  # fmt: skip


class Made:
    """What such a library makes of memory that it gets."""

    def __init__(self, managed):
        own = managed.tensor
        self.head = managed.major, managed.flags, own.offset
        self.kind = own.device, own.device_id, own.axes, own.code, own.bits, own.lanes
        self.sizes, self.strides = own.sizes[: own.axes], own.strides[: own.axes]
        count, self.address, self.data = int(np.prod(self.sizes)), ctypes.addressof(managed), own.data
        self.values = np.ctypeslib.as_array((ctypes.c_double * count).from_address(own.data)).copy()
        managed.end(self.address)


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Managed), ctypes.POINTER(ctypes.c_void_p))
def make(managed, out):
    made = Made(managed.contents)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    out[0] = id(made)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def refuse(managed, out):
    return -1


MAKER = ctypes.cast(make, ctypes.c_void_p).value


def table(major, older=None, reader=READER, maker=MAKER):
    return dlpack._Exchange(major, 3, older and ctypes.addressof(older), None, None, maker, reader, None)


def kind_with(table, name=NAME):
    """A class that hands out such a table."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return type("Kind", (), {"__dlpack_c_exchange_api__": make(ctypes.addressof(table), name, None), "kept": table})


def laid_out(*tensors):
    """How they are laid out, each with a place of its own."""
    layouts = dlpack.layouts_of(READER, id(tensors), len(tensors))
    layouts[:, 0] = np.arange(len(layouts))[::-1]
    return np.stack([layouts, np.zeros_like(layouts)])


@entry(objects=True)
def _locate(reader, tensors, layouts, words):
    return dlpack.locate(reader, tensors, layouts, words, 0, 1)


def located(tensors, layouts):
    words = np.zeros(len(tensors), np.int64)
    rows = _locate(READER, id(tensors), layouts, words)
    assert rows in (
        -1,
        tensors[0].array.shape[1] if isinstance(tensors[0], Tensor) and tensors[0].array.ndim > 1 else -1,
    )
    return words.tolist() if rows >= 0 else None


def test_the_table_of_the_version_that_is_known_is_found():
    own, none, both = table(1), dlpack.Functions(), dlpack.Functions(READER, MAKER)
    assert dlpack.functions_of(kind_with(own)) == both
    assert dlpack.functions_of(kind_with(table(2, own, 7))) == both
    assert dlpack.functions_of(kind_with(table(2))) == none
    for absent in ("reader", "maker"):
        assert dlpack.functions_of(kind_with(table(1, **{absent: None}))) == none
    assert dlpack.functions_of(kind_with(own, b"another")) == none
    assert dlpack.functions_of(type("Kind", (), {"__dlpack_c_exchange_api__": 5})) == none
    assert dlpack.functions_of(np.ndarray) == none


def several():
    x = np.zeros((3, 4, 5))
    return Tensor(x), Tensor(x.T[1:], offset=16), Tensor(np.float32(x[0])), Tensor(np.zeros(()))


def test_tensors_are_where_they_lie():
    tensors, others = several(), several()
    layouts = laid_out(*tensors)
    assert layouts[0, 1, 3:9].tolist() == [4, 1, 4, 5, 3, 20]
    assert layouts[0, 3, 3:].tolist() == [0] * 16
    for each in (tensors, others):
        assert located(each, layouts) == [x.array.ctypes.data for x in each[::-1]]
    layouts[0, 1, 0] = -1  # of this one nobody wants to know
    assert located(tensors, layouts)[2] == 0


@pytest.mark.parametrize(
    "other",
    [
        Tensor(np.zeros((2, 3), np.float32)), Tensor(np.zeros((3, 2))), Tensor(np.zeros((3, 2)).T),
        Tensor(np.zeros((2, 3, 1))), Tensor(np.zeros(2)), Tensor(np.zeros((2, 3)), ACCELERATOR),
        Tensor(np.zeros((2, 3)), fails=True), object(), None,
    ],
    ids=["dtype", "sizes", "strides", "axes", "fewer axes", "device", "no memory", "no tensor", "nothing"],
)  # fmt: skip
def test_what_is_laid_out_otherwise_is_told_from_it(other):
    same = Tensor(np.zeros((2, 3)))
    layouts = laid_out(same, same)
    assert located((same, same), layouts)
    for tensors in ((same, other), (other, same)):
        assert located(tensors, layouts) is None


def test_what_has_no_memory_has_no_layout():
    plain = Tensor(np.zeros((2, 3)))
    others = Tensor(np.zeros((2, 3)), strides=False), Tensor(np.zeros((1,) * 9)), Tensor(np.zeros(3), fails=True)
    for other in others:
        tensors = plain, other
        assert dlpack.layouts_of(READER, id(tensors), 2).shape == (0, dlpack.LAYOUT)
    most = (Tensor(np.zeros(tuple(range(1, 9)))),)
    assert dlpack.layouts_of(READER, id(most), 1)[0, 3::2].tolist() == list(range(1, 9))


def test_an_error_of_the_library_does_not_outlive_the_call():
    """Here Python's own function of lengths is asked, which raises an exception."""
    asked = ctypes.cast(ctypes.pythonapi.PyObject_Size, ctypes.c_void_p).value
    tensors = (object(),)
    assert dlpack.layouts_of(asked, id(tensors), 1).shape == (0, dlpack.LAYOUT)
    assert _locate(asked, id(tensors), np.ones((2, 1, dlpack.LAYOUT), np.int64), np.zeros(1, np.int64)) == -1


def test_sizes_and_strides_may_be_linear_in_one_size():
    """Of that of the first tensor's second axis."""

    def three(rows, offset=0):
        return (
            Tensor(np.zeros((2, rows, 5))), Tensor(np.zeros((3, 2 * rows + 1 + offset))),
            Tensor(np.zeros((2, 50, 5))[:, :rows]),
        )  # fmt: skip

    first, second = three(4), three(7)
    layouts = laid_out(*first)
    assert located(second, layouts) is None
    layouts[1] = (laid_out(*second)[0] - layouts[0]) // 3
    assert not layouts[1, :, :3].any()
    for rows in (4, 7, 1, 40):
        tensors = three(rows)
        assert located(tensors, layouts) == [x.array.ctypes.data for x in tensors[::-1]]
        assert located(three(rows, offset=1), layouts) is None
        assert located((*tensors[:2], three(rows + 1)[2]), layouts) is None
        assert located((*tensors[:2], Tensor(np.zeros((2, 49, 5))[:, :rows])), layouts) is None


@entry(objects=True)
def _fill(layouts, maker, shape, found):
    made, rows = dlpack.tensor_like(layouts, 0, shape)
    x = whole_at(rows, shape, np.float64)
    for place in range(x.size):
        x.flat[place] = place
    if maker == 0:
        dlpack.take_back(made)
        return made, rows
    return made if dlpack.hand_over(maker, made, found) else 0, rows


def test_a_tensor_is_made_of_memory_that_its_library_ends():
    tensors, found = (Tensor(np.zeros((2, 3)), ACCELERATOR),), ["nothing"]
    layouts = laid_out(*tensors)
    made, rows = _fill(layouts, MAKER, (4, 1, 5), id(found))
    (own,) = found
    assert (own.address, own.data) == (made, rows)
    assert rows % 64 == 0
    assert own.head == (1, 0, 0)
    assert own.kind == (ACCELERATOR, 0, 3, FLOATS, 64, 1)  # as that tensor's, but for its axes
    assert (own.sizes, own.strides) == ([4, 1, 5], [5, 5, 1])
    assert own.values.tolist() == list(range(20))


def test_what_does_not_become_a_tensor_leaves_all_as_it_was():
    layouts, found = laid_out(Tensor(np.zeros((2, 3)))), ["nothing"]
    assert _fill(layouts, 0, (4, 5), id(found))[0]  # and is taken back
    assert _fill(layouts, ctypes.cast(refuse, ctypes.c_void_p).value, (4, 5), id(found))[0] == 0
    assert found == ["nothing"]
