"""Few queries of half precision: keys and values are read where they lie, and no bit is other than after conversion."""

import numpy as np
import pytest
from attention_options import OPTIONS, options, qkv
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.functional import attention as ways
from fastpe.functional.passes import Pass
from fastpe.kernels.attention.tile import FEW

NAMES = ["float16", "bfloat16"]


def half(name):
    return np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)


def narrowed(arguments, dtype):
    """The arguments with every float32 array in half precision."""
    floats = np.dtype(np.float32)
    return {
        name: x.astype(dtype) if isinstance(x, np.ndarray) and x.dtype == floats else x for name, x in arguments.items()
    }


def widened(arguments, dtype):
    return {
        name: x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == dtype else x
        for name, x in arguments.items()
    }


@given(data=st.data())
def test_the_bits_are_those_of_converted_arrays(data):
    draw = data.draw
    dtype = half(draw(st.sampled_from(NAMES)))
    names = draw(st.lists(st.sampled_from(OPTIONS), unique=True, max_size=4))
    n, m = draw(st.sampled_from([1, 2, int(FEW)])), draw(st.sampled_from([1, 4, 127, 129, 300]))
    d, hk, b = draw(st.sampled_from([2, 16, 40, 64, 130])), draw(st.sampled_from([1, 2])), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    halves = narrowed(dict(zip("qkv", qkv(rng, b, 4, hk, n, m, d), strict=True)), dtype)
    given = widened(narrowed(options(rng, names, b, 4, n, m, d, np.float32), dtype), dtype)
    expected = fastpe.attention(**widened(halves, dtype), **given)
    found = fastpe.attention(**halves, **given)
    for one, wanted in zip(*((x if "return_lse" in names else [x]) for x in (found, expected)), strict=True):
        np.testing.assert_array_equal(one, wanted.astype(one.dtype))
    assert (found[0] if "return_lse" in names else found).dtype == dtype
    found = fastpe.attention(**halves, **narrowed(given, dtype))  # with a bias of half precision, by the general path
    near = {"float16": 2e-3, "bfloat16": 2e-2}[dtype.name]
    for one, wanted in zip(*((x if "return_lse" in names else [x]) for x in (found, expected)), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), wanted, rtol=near, atol=near)


def test_the_other_order_of_bytes():
    halves = [x.astype(np.float16) for x in qkv(np.random.default_rng(1))]
    found = fastpe.attention(*(x.astype(x.dtype.newbyteorder()) for x in halves))
    np.testing.assert_array_equal(found, fastpe.attention(*halves))


@pytest.mark.parametrize("n", [1, int(FEW), int(FEW) + 1])
def test_a_cache_is_not_converted(n, monkeypatch):
    """Not one key of few queries becomes float32 before the kernel, on the general path too, and gradients are what
    they were."""
    q, k, v = (x.astype(np.float16) for x in qkv(np.random.default_rng(1), n=n))
    kept = []

    class Kept(Pass):
        def __init__(self, call, *rest, **options):
            super().__init__(call, *rest, **options)
            kept.append(self.call.k.dtype)

    monkeypatch.setattr(ways, "Pass", Kept)
    out = fastpe.attention(q, k, v, rectify=True)
    same, pullback = fastpe.attention_vjp(q, k, v, rectify=True, wrt=())
    assert kept == [np.float16 if n <= FEW else np.float32, np.float32]
    np.testing.assert_array_equal(out, same)
    assert pullback(out) == {}
    gradients = fastpe.attention_vjp(q, k, v)[1](out)
    exact = fastpe.attention_vjp(*(x.astype(np.float32) for x in (q, k, v)))[1](out.astype(np.float32))
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, exact[name].astype(np.float16))
