"""Compiled attention takes arrays of any strides, with and without a batch axis."""

import numpy as np
import pytest
from attention_problems import SLOTS, problem

import fastpe

EDGES_N, EDGES_M = (1, 2, 31, 95, 96, 97, 193), (1, 2, 45, 127, 128, 129, 257)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def test_repeated_memory(rng):
    """Heads and sequences that are one and the same memory (strides of zero)."""
    q, k, v = (problem(rng, n=50, d=8)[name] for name in "qkv")
    one = np.ascontiguousarray(k[:1, :1])
    broad = np.lib.stride_tricks.as_strided(one, k.shape, (0, 0, *one.strides[2:]))
    for slots in ({}, {"angles": rng.standard_normal((1, 50, 4))}):
        expected = fastpe.attention(q, np.array(broad), v, **slots)
        np.testing.assert_array_equal(fastpe.attention(q, broad, v, **slots), expected)


def test_without_a_batch_axis(rng):
    arguments = problem(rng, ("bias", "scores", "scale"), b=1, n=40)
    single = {name: array[0] if name in "qkv" else array for name, array in arguments.items()}
    dout = rng.standard_normal(single["q"].shape)
    (out, lse), pullback = fastpe.attention_vjp(**single, return_lse=True, lengths=(30, 35))
    expected, expected_pullback = fastpe.attention_vjp(
        **arguments, return_lse=True, lengths=(np.array([30]), np.array([35]))
    )
    np.testing.assert_array_equal(out, expected[0][0])
    np.testing.assert_array_equal(lse, expected[1][0])
    for name, gradient in expected_pullback(dout[None]).items():
        np.testing.assert_array_equal(pullback(dout)[name], gradient[0] if name in "qkv" else gradient)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
@pytest.mark.parametrize("names", [(), ("angles", "rel_key"), ("growth",), ("gain", "bias"), SLOTS], ids=len)
def test_numbers_that_are_not_finite_go_through_without_a_warning(names, bad):
    """Warnings are errors here. Each of q, k, v and dout in turn holds one at its third row."""
    for name in ("q", "k", "v", "dout"):
        arguments = problem(np.random.default_rng(4), names, n=5, m=70, dtype=np.float32)
        dout = np.ones(arguments["q"].shape, np.float32)
        (dout if name == "dout" else arguments[name])[0, 0, 2] = bad
        for attention_vjp in (fastpe.attention_vjp, fastpe.reference.attention_vjp):
            out, pullback = attention_vjp(**arguments, causal=True)
            found = [out, *pullback(dout).values()]
            assert abs(bad) < np.inf or not all(np.isfinite(array).all() for array in found)
