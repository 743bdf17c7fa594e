"""Arrays to be filled lie in memory of their own; views that interleave are apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpe
from fastpe.base import memory

STRIDES = st.lists(st.tuples(st.integers(1, 6), st.integers(-40, 40)), min_size=1, max_size=3)


def bytes_of(array):
    """The addresses of each element's bytes, (elements, itemsize)."""
    starts = np.zeros(1, int)
    for count, stride in zip(array.shape, array.strides, strict=True):
        starts = (starts[:, None] + np.arange(count) * stride).ravel()
    return (starts + array.__array_interface__["data"][0])[:, None] + np.arange(array.itemsize)


def view_of(whole, axes, start, dtype):
    shape, strides = zip(*axes, strict=True)
    return np.lib.stride_tricks.as_strided(whole[start:].view(dtype), shape, strides)


@settings(max_examples=5 * settings().max_examples)
@given(one=STRIDES, other=STRIDES, start=st.integers(0, 60), dtype=st.sampled_from([np.uint8, np.float32, np.float64]))
def test_memory_is_shared_where_a_byte_is(one, other, start, dtype):
    whole = np.zeros(4096, np.uint8)
    first = view_of(whole, one, 2048, dtype)
    second = view_of(whole, other, 2000 + 8 * (start // 8), dtype)
    assert memory.shared(first, second) == bool(np.intersect1d(bytes_of(first), bytes_of(second)).size)
    places = bytes_of(first)
    assert memory.overlaps_itself(first) == (np.unique(places).size < places.size)


def of_shaw(**out):
    return fastpe.build("shaw", 4, dim=8, heads=2, reach=3, out=out)


def test_outputs_that_interleave_are_filled_and_outputs_that_overlap_are_refused():
    expected = fastpe.build("shaw", 4, dim=8, heads=2, reach=3)
    rows, width = expected["rel_key"].shape[1:]
    whole = np.zeros((1, 2 * rows, 2 * width), np.float32)
    for key, value in (
        (whole[:, ::2, ::2], whole[:, 1::2, 1::2]),
        (whole[:, ::2, ::2], whole[:, ::2, 1::2]),
        (whole[:, ::2, :width], whole[:, ::2, width:]),
        (whole[:, :rows, ::2], whole[:, :rows, :0:-2]),
    ):
        of_shaw(rel_key=key, rel_value=value)
        np.testing.assert_array_equal(key, expected["rel_key"])
        np.testing.assert_array_equal(value, expected["rel_value"])
    before = whole.copy()
    for key, value in (
        (whole[:, :rows, :width], whole[:, :rows, :width]),
        (whole[:, :rows, :width], whole[:, rows - 1 : 2 * rows - 1, :width]),
        (whole[:, ::2, ::2], whole[:, rows:0:-1, :width]),
    ):
        with pytest.raises(ValueError, match=r"^out\['rel_key'\] must not share memory with out\['rel_value'\]$"):
            of_shaw(rel_key=key, rel_value=value)
    np.testing.assert_array_equal(whole, before)


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[::-1], lambda t: t[:, ::-1]])
def test_an_output_in_the_memory_of_a_parameter_is_refused(view):
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    kept = table.copy()
    with pytest.raises(ValueError, match=r"^out\['table'\] must not share memory with params\['table'\]$"):
        fastpe.build("learned", 3, dim=4, params={"table": table}, out={"table": view(table)})
    np.testing.assert_array_equal(table, kept)


def test_an_output_in_the_memory_of_the_positions_is_refused_whatever_their_type():
    whole = np.zeros((4, 5), np.float32)
    with pytest.raises(ValueError, match=r"^out\['table'\] must not share memory with positions$"):
        fastpe.build("sinusoidal", 4, dim=4, positions=whole[:, 2].view(np.int32), out={"table": whole[:, :4]})
    out = fastpe.build("sinusoidal", 4, dim=4, positions=whole[:, 4], out={"table": whole[:, :4]})["table"]
    np.testing.assert_array_equal(out, fastpe.build("sinusoidal", 4, dim=4, positions=np.zeros(4))["table"])


def test_strides_that_would_be_searched_for_ever_count_as_shared():
    whole = np.zeros(2**22, np.uint8)
    axes = [(19, 10**k + 7 * k) for k in range(1, 6)]
    one, other = (np.lib.stride_tricks.as_strided(whole, *zip(*axes[:n], strict=True)) for n in (5, 5))
    assert memory.shared(one, other[..., 1:])
