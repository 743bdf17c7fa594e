"""What kernels read of half precision, bit by bit, and sums of several vectors at once."""

import numba
import numpy as np
import pytest

from fastpe.kernels.simd import (
    code,
    get,
    lanes,
    load,
    load_first,
    pointer,
    put,
    put_totals,
    start_of,
    store,
    store_first,
    total,
)

EVERY = np.arange(2**16, dtype=np.uint16)  # all bit patterns


def widened(dtype):
    """All numbers of a type, as NumPy widens them."""
    if dtype == "float16":
        return EVERY.view(np.float16).astype(np.float32)
    return (EVERY.astype(np.uint32) << 16).view(np.float32)


def reader():
    """Compiled anew for each test."""

    @numba.njit
    def read(x, out, singles, left):
        p, y = pointer(x), pointer(out)
        whole = (out.size - left) // lanes(y) * lanes(y)
        for j in range(0, whole, lanes(y)):
            store(y, j, load(p, j))
        for j in range(whole, out.size, lanes(y)):
            store_first(y, j, load_first(p, j, out.size - j), out.size - j)
        for j in range(out.size):
            put(pointer(singles), j, get(p, j))

    return read


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_is_widened_exactly(dtype, native, monkeypatch):
    monkeypatch.setattr(code, "_WIDENS", native and code._WIDENS)
    read, exact = reader(), widened(dtype)
    bits = EVERY.view(np.int16) if dtype == "float16" else EVERY
    for first, left in ((0, 0), (1, 5), (3, 40)):
        out, singles = np.empty((2, 2**16 - first), np.float32)
        read(bits[first:], out, singles, left)
        np.testing.assert_array_equal(out, exact[first:])
        np.testing.assert_array_equal(singles, exact[first:])
        signs = ~np.isnan(out)
        np.testing.assert_array_equal(np.signbit(out[signs]), np.signbit(exact[first:][signs]))


def test_nothing_after_the_last_number_is_read():
    read = reader()
    page = np.concatenate([np.ones(7, np.float16), np.full(32, np.nan, np.float16)])
    out, singles = np.empty((2, 7), np.float32)
    read(page.view(np.int16)[:7], out, singles, 0)
    np.testing.assert_array_equal(out, 1)


def test_arrays_of_half_precision_become_their_bits():
    x = np.array([[1.5, -2.0]], np.float16)
    assert start_of(x).dtype == np.int16
    assert start_of(x.astype(np.float64)).dtype == np.float64
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert start_of(x.astype(ml_dtypes.bfloat16)).dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_four_sums_at_once_have_the_bits_of_each(dtype):
    @numba.njit
    def add(x, each, together):
        p, width = pointer(x), lanes(pointer(x))
        s, t, u, w = load(p, 0), load(p, width), load(p, 2 * width), load(p, 3 * width)
        put_totals(pointer(together), 1, s, t, u, w)
        for number, sums in enumerate((total(s), total(t), total(u), total(w))):
            each[number] = sums
        return width

    x = np.random.default_rng(3).standard_normal(64).astype(dtype)
    each, together = np.empty(4, dtype), np.zeros(6, dtype)
    width = add(x, each, together)
    np.testing.assert_array_equal(together, [0, *each, 0])
    np.testing.assert_allclose(each, x[: 4 * width].reshape(4, -1).sum(axis=1), rtol=1e-5)
